#!/usr/bin/python3
"""Data-parallel torch ranks that make one optimizer step for each line on standard input.

Each rank holds the whole model, as trainers without a service do: it all-reduces the gradients
over gloo on loopback (more than one rank), then runs torch.optim.AdamW, or for matrices Muon with
the usual bf16 Newton-Schulz (KellerJordan/Muon). With --wire bf16 gradients and weights have 16
bits outside of the optimizer, whose masters are fp32. Prints `ready`, then the seconds of each
step, as the slowest rank took them. Used by step_vs_torch.
"""
import argparse
import os
import sys
import time

import torch
import torch.distributed
import torch.multiprocessing

MATRIX_SIDE = 2048


def newton_schulz(g):
    """Five steps of the quintic iteration in bf16, on a square matrix."""
    x = g.bfloat16()
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(p)
                buffer = state["momentum_buffer"]
                buffer.lerp_(p.grad, 0.05)
                update = newton_schulz(p.grad.lerp(buffer, 0.95))
                p.add_(update.float(), alpha=-group["lr"] * 0.2 * max(p.shape) ** 0.5)


class Rank:
    """The model, its gradients and its optimizers of one rank."""

    def __init__(self, arguments):
        half = (arguments.million_elements << 20) // 2
        matrices = max(1, half // MATRIX_SIDE**2)
        muon, adamw = [], []
        for _ in range(matrices):
            matrix = torch.randn(MATRIX_SIDE, MATRIX_SIDE)
            (muon if arguments.rules == "muon" else adamw).append(matrix)
            adamw.append(torch.randn(MATRIX_SIDE**2))
        self.masters = muon + adamw
        self.is_16_bit = arguments.wire == "bf16"
        # gloo of torch 1.13 reduces fp16, not bf16: as many bits.
        dtype = torch.float16 if self.is_16_bit else torch.float32
        self.pushed = [torch.randn_like(p).to(dtype) for p in self.masters]
        self.received = [g.clone() for g in self.pushed]
        self.weights = [p.to(torch.bfloat16) for p in self.masters] if self.is_16_bit else []
        self.world = arguments.workers
        for p in self.masters:
            p.grad = torch.zeros_like(p)
        self.optimizers = [torch.optim.AdamW(adamw, lr=1e-3, foreach=True)]
        if muon:
            self.optimizers.append(Muon(muon, lr=1e-3))

    @torch.no_grad()
    def reduce(self):
        # What a backward pass leaves, anew in each step.
        for received, pushed in zip(self.received, self.pushed):
            received.copy_(pushed)
        start = time.monotonic()
        if self.world > 1:
            works = [torch.distributed.all_reduce(g, async_op=True) for g in self.received]
            for work in works:
                work.wait()
        for p, g in zip(self.masters, self.received):
            if self.is_16_bit or self.world > 1:
                torch.mul(g, 1 / self.world, out=p.grad)
            else:
                p.grad = g
        return start

    def step(self):
        start = self.reduce()
        for optimizer in self.optimizers:
            optimizer.step()
        with torch.no_grad():
            for weight, master in zip(self.weights, self.masters):
                weight.copy_(master)
        return time.monotonic() - start


def run_rank(index, arguments, pipes):
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // arguments.workers))
    if arguments.workers > 1:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{arguments.store}", rank=index,
            world_size=arguments.workers)
    rank = Rank(arguments)
    rank.step()
    pipe = pipes[index]
    pipe.send(0.0)
    while pipe.recv():
        pipe.send(rank.step())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rules", choices=["muon", "adamw"], default="adamw")
    parser.add_argument("--wire", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--million-elements", type=int, default=32)
    parser.add_argument("--store", required=True, help="a file that does not exist, for gloo")
    arguments = parser.parse_args()
    ends = [torch.multiprocessing.Pipe() for _ in range(arguments.workers)]
    ranks = torch.multiprocessing.spawn(
        run_rank, (arguments, [far for _, far in ends]), nprocs=arguments.workers, join=False)
    for near, _ in ends:
        near.recv()
    print("ready", flush=True)
    for _ in sys.stdin:
        for near, _ in ends:
            near.send(True)
        print(max(near.recv() for near, _ in ends), flush=True)
    for near, _ in ends:
        near.send(False)
    ranks.join()


if __name__ == "__main__":
    main()
