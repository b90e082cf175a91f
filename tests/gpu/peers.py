#!/usr/bin/env python3
"""What PyTorch does on this GPU, for the comparison of tests/gpu/run.sh: one JSON line per figure.

    peers.py                all rows, the cheap ones first; torch.compile takes most of the time
    peers.py --cpu-smoke    tiny sizes on the CPU: does this program work

A row that cannot be measured says why. Figures are medians of CUDA events over inputs that take turns, so that the L2
cache does not hold them. Newton-Schulz has five steps in bf16, as torch.optim.Muon has them; cast and norm are included.
"""

import argparse
import itertools
import json
import statistics
import sys
import time

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5
LARGE = [(4096, 4096), (8192, 8192), (4096, 14336)]
# 126 matrices: 18 of each shape. sections.h has the same list.
SMALL = [(64, 64), (128, 128), (256, 256), (64, 576), (128, 512), (256, 1024), (192, 384)]
EACH = 18
REASON = "not measured: "


def row(name, value, unit, **settings):
    print(json.dumps({"section": "peers", "name": name, "value": float(f"{value:.5g}"), "unit": unit, **settings}), flush=True)


def skipped(name, reason):
    print(json.dumps({"section": "peers", "name": name, "skipped": REASON + str(reason)[:300]}), flush=True)


class Peers:
    def __init__(self, torch, smoke):
        self.torch, self.smoke = torch, smoke
        self.device = torch.device("cpu" if smoke else "cuda")

    def wait(self):
        if not self.smoke:
            self.torch.cuda.synchronize()

    def random(self, *shape, dtype=None):
        values = self.torch.randn(*shape, device=self.device)
        return values if dtype is None else values.to(dtype)

    def seconds(self, run, budget=0.5):
        """Median of single runs: 20, or as many as fit into the budget in seconds."""
        for _ in range(1 if self.smoke else 3):
            run()
        self.wait()
        begin = time.perf_counter()
        run()
        self.wait()
        once = time.perf_counter() - begin
        if self.smoke:
            return once
        torch = self.torch
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
                  for _ in range(min(200, max(20, int(budget / max(once, 1e-6)))))]
        for first, last in events:
            first.record()
            run()
            last.record()
        self.wait()
        return statistics.median(first.elapsed_time(last) for first, last in events) / 1e3

    def by_turns(self, run, inputs):
        turns = itertools.cycle(inputs)
        return self.seconds(lambda: run(next(turns)))

    def copy(self):
        n = 1 << (16 if self.smoke else 28)
        source, target = self.random(n), self.torch.empty(n, device=self.device)
        row("copy", 8 * n / self.seconds(lambda: target.copy_(source)) / 1e9, "GB/s", elements=n)

    def transfer(self, name):
        n = 1 << (16 if self.smoke else 29)
        host = self.torch.ones(n, dtype=self.torch.uint8, pin_memory=not self.smoke)
        device = self.torch.ones(n, dtype=self.torch.uint8, device=self.device)
        to, source = (device, host) if name == "transfer_h2d" else (host, device)
        row(name, n / self.seconds(lambda: to.copy_(source, non_blocking=True)) / 1e9, "GB/s", bytes=n)

    def gemm(self, name, size):
        n = 64 if self.smoke else size
        pairs = [[self.random(n, n, dtype=self.torch.bfloat16) for _ in range(2)] for _ in range(4)]
        seconds = self.by_turns(lambda pair: self.torch.mm(pair[0], pair[1].mT), pairs)
        row(name, 2 * n**3 / seconds / 1e12, "TFLOP/s", n=n)

    def parameters(self, shapes):
        parameters = [self.torch.nn.Parameter(self.random(*shape)) for shape in shapes]
        for parameter in parameters:
            parameter.grad = self.random(*parameter.shape)
        return parameters

    def adamw(self, name):
        count, each = (4, 1 << 10) if self.smoke else (64, 4 << 20)
        parameters = self.parameters([(each,)] * count)
        step = self.torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.1, fused=True).step
        row(name, self.seconds(step) * 1e3, "ms", elements=count * each)

    def newton_schulz(self, x):
        """x is a batch of matrices in fp32, no taller than wide."""
        torch, (a, b, c) = self.torch, COEFFICIENTS
        x = x.bfloat16()
        x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
        for _ in range(STEPS):
            gram = x @ x.mT
            x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
        return x

    def orthogonalize(self, name, shape, compiled):
        n, m = (16, 16 * shape[1] // shape[0]) if self.smoke else shape
        run = self.torch.compile(self.newton_schulz, dynamic=False) if compiled else self.newton_schulz
        inputs = [self.random(1, n, m) for _ in range(2)]
        row(name, self.by_turns(run, inputs) * 1e3, "ms", steps=STEPS)

    def muon(self, name, groups):
        """`groups` are (count, n, m)."""
        shapes = [(n, m) for count, n, m in self.sized(groups) for _ in range(count)]
        optimizer = self.torch.optim.Muon(self.parameters(shapes), lr=1e-3, momentum=0.95, nesterov=True, ns_steps=STEPS)
        row(name, self.seconds(optimizer.step) * 1e3, "ms", steps=STEPS)

    def sized(self, groups):
        return [(min(count, 2), 16, 16 * m // n) for count, n, m in groups] if self.smoke else groups

    def small(self, name, groups, batched):
        """`groups` are (count, n, m). Eager runs one matrix at a time, as torch.optim.Muon does."""
        groups = self.sized(groups)
        batches = [self.random(*group) for group in groups]

        def run():
            for batch in batches:
                for part in [batch] if batched else batch.split(1):
                    self.newton_schulz(part)
        row(name, self.seconds(run) * 1e3, "ms", matrices=sum(group[0] for group in groups))


def rows(peers):
    """(name, call), cheap rows first, as the time limit may cut the last ones."""
    yield "copy", peers.copy
    for name in ("transfer_h2d", "transfer_d2h"):
        yield name, lambda name=name: peers.transfer(name)
    for size in (2048, 4096, 8192):
        yield f"gemm_{size}", lambda size=size: peers.gemm(f"gemm_{size}", size)
    yield "adamw_fused", lambda: peers.adamw("adamw_fused")
    for label, groups in (("64x256x256", [(64, 256, 256)]), ("126", [(EACH, n, m) for n, m in SMALL])):
        for mode in ("eager", "batched"):
            name = f"ns_{mode}_{label}"
            yield name, lambda name=name, groups=groups, mode=mode: peers.small(name, groups, mode == "batched")
        name = f"muon_torch_{label}"
        yield name, lambda name=name, groups=groups: peers.muon(name, groups)
    for kind in ("ns_eager", "muon_torch", "ns_compile"):
        for n, m in LARGE:
            name = f"{kind}_{n}x{m}"
            if kind == "muon_torch":
                yield name, lambda name=name, group=(1, n, m): peers.muon(name, [group])
            else:
                yield name, lambda name=name, shape=(n, m), kind=kind: peers.orthogonalize(name, shape, kind == "ns_compile")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu-smoke", action="store_true")
    smoke = parser.parse_args().cpu_smoke
    try:
        import torch  # pylint: disable=import-outside-toplevel
        if not smoke and not torch.cuda.is_available():
            raise RuntimeError("torch sees no GPU")
    except (ImportError, RuntimeError) as error:
        skipped("", error)
        return 0
    torch.set_grad_enabled(False)
    torch.manual_seed(1)
    print(f"torch {torch.__version__}, CUDA {torch.version.cuda}", file=sys.stderr)
    for name, measure in rows(Peers(torch, smoke)):
        if smoke and name.startswith("ns_compile"):
            skipped(name, "torch.compile is left out of --cpu-smoke")
            continue
        try:
            measure()
        except Exception as error:  # pylint: disable=broad-except
            skipped(name, f"{type(error).__name__}: {error}")
        if not smoke:
            torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
