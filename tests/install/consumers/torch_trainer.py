"""What a user of the wheel and torch writes: trains on a cluster of its own. Usage: torch_trainer.py first|last, which is
when torch is imported: before libkaon.so and its Protobuf are loaded, or after."""

import os
import sys

if sys.argv[1] == "first":
    import torch

import kaon

print(f"Kaon {kaon.library_version()}", end=", ")  # Loads the library.
import torch  # noqa: E402

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
x = torch.randn(64, 12)
y = x.sum(1, keepdim=True).sin()
losses = []
with kaon.local_cluster(shards=2):
    optimizer = kaon.Optimizer(model.named_parameters(), job="trial", preset="moonlight", lr=1e-2)
    for _ in range(30):
        loss = ((model(x) - y)**2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
print(f"torch {torch.__version__} imported {sys.argv[1]}: loss {losses[0]:.3f}, then {losses[-1]:.3f}")
assert losses[-1] < 0.9 * losses[0], losses
# A name that other modules ask for would be ours for them, or theirs for us.
with open("/proc/self/maps", encoding="utf-8") as maps:
    ours = {line.split()[-1] for line in maps if "/kaon/installation/" in line}
assert ours and all("kaon" in os.path.basename(path) for path in ours), ours
