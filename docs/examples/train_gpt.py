#!/usr/bin/python3
"""Trains a small GPT on the licence texts of this machine, by torch's optimizers or through Kaon:

    train_gpt.py --optimizer torch --steps 200
    train_gpt.py --optimizer kaon --steps 200     # a cluster of its own, unless KAON_ENDPOINTS names one

Both print the loss of every 10th step, and in the end steps per second after the first step and the largest memory
that this process had, on a GPU also of the GPU. Hidden matrices are stepped by Muon and the others by AdamW; --adamw
uses AdamW for all. Several ranks share each batch: start one process with RANK and WORLD_SIZE for each, as torchrun
does.
"""

import argparse
import contextlib
import functools
import math
import os
import resource
import sys
import time
from pathlib import Path

import torch
from torch import nn

CONTEXT, HEADS, BATCH = 64, 4, 16
RANK, WORLD_SIZE = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.output = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        def heads(linear):
            return linear(normed).view(*x.shape[:2], HEADS, -1).transpose(1, 2)

        normed = self.norm_1(x)
        scores = heads(self.query) @ heads(self.key).transpose(2, 3) / math.sqrt(x.shape[2] // HEADS)
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        mixed = scores.masked_fill(future, -math.inf).softmax(-1) @ heads(self.value)
        x = x + self.output(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.down(nn.functional.gelu(self.up(self.norm_2(x))))


class Model(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(256, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.lm_head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.lm_head(self.norm(x))


def corpus(directory):
    texts = sorted(Path(directory).glob("*"))
    return torch.tensor(list(b"".join(path.read_bytes() for path in texts if not path.is_symlink())))


def loss_of(model, text, step):
    """Mean over this rank's share of the batch of that step."""
    generator = torch.Generator().manual_seed(step)
    starts = torch.randint(len(text) - CONTEXT - 1, (BATCH,), generator=generator)[RANK::WORLD_SIZE]
    batch = torch.stack([text[start:start + CONTEXT + 1] for start in starts])
    return nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


class Muon(torch.optim.Optimizer):
    """What torch.optim.Muon of torch 2.9 and later does with adjust_lr_fn="match_rms_adamw"."""

    def __init__(self, params, lr, weight_decay, momentum):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                buffer = self.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))
                buffer.lerp_(parameter.grad, 1 - group["momentum"])
                update = orthogonalized(parameter.grad.lerp(buffer, group["momentum"]))
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.sub_(update, alpha=group["lr"] * 0.2 * math.sqrt(max(parameter.shape)))


def orthogonalized(matrix):
    """Newton-Schulz in bf16."""
    if matrix.shape[0] > matrix.shape[1]:
        return orthogonalized(matrix.T).T
    x = matrix.bfloat16()
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (2.0315 * gram @ gram - 4.775 * gram) @ x
    return x.float()


class TorchOptimizers:
    """Several optimizers as one."""

    def __init__(self, *optimizers):
        self.optimizers = optimizers

    def step(self, loss=None):
        for optimizer in self.optimizers:
            optimizer.step()

    def zero_grad(self):
        for optimizer in self.optimizers:
            optimizer.zero_grad()


def torch_optimizer(model, lr, adamw):
    hidden = [] if adamw else [p for name, p in model.named_parameters() if name.startswith("blocks") and p.ndim == 2]
    others = [p for p in model.parameters() if all(p is not other for other in hidden)]
    fused = {"fused": True} if others[0].is_cuda else {}
    parts = [torch.optim.AdamW(others, lr=lr, weight_decay=0.1, betas=(0.9, 0.95), **fused)]
    if hidden:
        if hasattr(torch.optim, "Muon"):
            muon = functools.partial(torch.optim.Muon, adjust_lr_fn="match_rms_adamw")
        else:
            muon = Muon
        parts.append(muon(hidden, lr=lr, weight_decay=0.1, momentum=0.95))
    return TorchOptimizers(*parts), parts


def kaon_optimizer(model, lr, adamw, overlap):
    import kaon

    # The rule sends every parameter to AdamW; without it the preset chooses by shape and name.
    rules = [{"name": "all", "name_glob": "*", "group": "scalars"}] if adamw else []
    optimizer = kaon.Optimizer(model.named_parameters(), job="gpt", preset="default", lr=lr, max_grad_norm=0,
                               routing_rules=rules, overlap=overlap)
    return optimizer, [optimizer]


def cluster_of(options):
    if options.optimizer == "torch" or "KAON_ENDPOINTS" in os.environ or "KAON_DIR" in os.environ:
        return contextlib.nullcontext()
    import kaon

    return kaon.local_cluster(shards=2)


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_memory(device):
    peak = f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB"
    if device.type == "cuda":
        peak += f", peak GPU memory {torch.cuda.max_memory_allocated(device) >> 20} MiB"
    return peak


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--optimizer", choices=["torch", "kaon"], default="kaon")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--adamw", action="store_true")
    parser.add_argument("--width", type=int, default=64, help="of the model; a multiple of 4 (default 64)")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--device", type=torch.device, default="cpu", help="cpu or cuda (default cpu)")
    parser.add_argument("--overlap", action="store_true", help="let Kaon send gradients during the backward pass")
    parser.add_argument("--text", default="/usr/share/common-licenses", help="folder of text files (default %(default)s)")
    parser.add_argument("--every", type=int, default=10, help="print the loss of every Nth step (default 10)")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after the step that ends later than this")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = Model(options.width, options.layers).to(options.device)
    text = corpus(options.text).to(options.device)
    with cluster_of(options):
        if options.optimizer == "torch":
            optimizer, parts = torch_optimizer(model, options.lr, options.adamw)
        else:
            optimizer, parts = kaon_optimizer(model, options.lr, options.adamw, options.overlap)
        schedulers = [torch.optim.lr_scheduler.LambdaLR(part, lambda step: max(0.1, 1 - step / options.steps))
                      for part in parts]
        begin = time.monotonic()
        for step in range(1, options.steps + 1):
            loss = loss_of(model, text, step)
            loss.backward()
            optimizer.step(loss=loss)
            optimizer.zero_grad()
            for scheduler in schedulers:
                scheduler.step()
            if RANK == 0 and (step % options.every == 0 or step == 1):
                # Kaon's is the mean over the ranks.
                mean = loss.item() if options.optimizer == "torch" else optimizer.last_record.loss
                print(f"step {step} loss {mean:.7f}", flush=True)
            if step == 1:
                # Its memory is new, and a GPU compiles.
                synchronize(options.device)
                start = time.monotonic()
            if time.monotonic() - begin > options.seconds:
                break
        synchronize(options.device)
        rate = (step - 1) / (time.monotonic() - start)
    print(f"{sum(p.numel() for p in model.parameters())} parameters: {rate:.2f} steps/s, {peak_memory(options.device)}",
          file=sys.stderr)


if __name__ == "__main__":
    main()
