"""Checks `kaonctl -o json parameters` against the trainer's SUMMARY line after 9 steps, one of them skipped."""

import json
import sys

APPLIED = 8


def main():
    with open(sys.argv[1]) as file:
        rows = json.load(file)["parameters"]
    with open(sys.argv[2]) as file:
        summary = json.loads(file.readline()[len("SUMMARY "):])
    problems = []
    if (summary["steps"], summary["applied"], summary["skipped"]) != (9, APPLIED, 1):
        problems.append(f"summary: {summary}")
    matrices = 0
    for row in rows:
        is_muon = row["route"] == "muon"
        matrices += is_muon
        if row["updates_applied"] != APPLIED:
            problems.append(f"{row['name']}: {row['updates_applied']} updates")
        if row["newton_schulz_updates"] != (APPLIED if is_muon else 0):
            problems.append(f"{row['name']}: {row['newton_schulz_updates']} Newton-Schulz updates")
        if is_muon and len(row["shape"]) != 2:
            problems.append(f"{row['name']} is no matrix: {row['shape']}")
        if is_muon and summary["newton_schulz_updates"].get(row["name"]) != APPLIED:
            problems.append(f"{row['name']}: summary says {summary['newton_schulz_updates']}")
        if not row["state_bytes"] or not row["reason"] or row["shard"] not in (0, 1):
            problems.append(f"incomplete row: {row}")
    if matrices < 2:
        problems.append(f"{matrices} matrices went to muon")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


sys.exit(main())
