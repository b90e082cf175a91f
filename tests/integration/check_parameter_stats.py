"""Checks `kaonctl -o json parameter stats` and `diagnostics` of every parameter, one JSON document after the other,
after 8 applied steps. Checks how orthogonal each Muon update was, how often Newton-Schulz ran, and which tensors
are stored."""

import json
import sys

APPLIED = 8
#
# O O^T - I
# / sqrt(rows) of a full-rank matrix is at most the largest |s^2 - 1| of the set's band ([N2] of numerics.md). The
# band of jordan is 0.682 .. 1.134 for singular values from 0.01 of the norm on. jordan never converges to 1, so
# the error is well above 0, too.
JORDAN = (0.05, 1 - 0.682**2)


def documents(path):
    with open(path) as file:
        text = file.read()
    decoder = json.JSONDecoder()
    at = 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        document, at = decoder.raw_decode(text, at)
        yield document


def problems_of(row):
    is_muon = row["group"] == "muon"
    if row["updates_applied"] != APPLIED or row["newton_schulz_updates"] != (APPLIED if is_muon else 0):
        yield "counts"
    if not row["weight_norm"] > 0 or not row["update_norm"] > 0 or not row["grad_norm"] > 0 or not row["momentum_norm"] > 0:
        yield "norms"
    if abs(row["update_to_weight_ratio"] - row["update_norm"] / row["weight_norm"]) > 1e-12:
        yield "ratio"
    error = row["orthogonality_error"]
    if is_muon != (error is not None) or is_muon and not JORDAN[0] < error < JORDAN[1]:
        yield f"orthogonality {error}"


def problems_of_tensors(row):
    slots = ["momentum_buffer"] if row["rule"] == "muon" else ["exp_avg", "exp_avg_sq"]
    if [tensor["name"] for tensor in row["tensors"]] != ["weight", "gradient"] + slots:
        yield "tensors"
    for tensor in row["tensors"]:
        if tensor["dtype"] != "float32" or tensor["tier"] != "cpu" or tensor["first_used_step"] != 1 or not tensor["bytes"]:
            yield f"{tensor}"


def main():
    problems = []
    matrices = 0
    for row in documents(sys.argv[1]):
        matrices += row["group"] == "muon"
        problems += [f"{row['name']}: {problem}: {row}" for problem in problems_of(row)]
    for row in documents(sys.argv[2]):
        problems += [f"{row['name']}: {problem}" for problem in problems_of_tensors(row)]
    if matrices < 2:
        problems.append(f"{matrices} matrices")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


sys.exit(main())
