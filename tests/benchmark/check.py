#!/usr/bin/env python3
"""Compares the ratios that tests/benchmark/run.sh has measured with those of docs/benchmarks.md.

    tests/benchmark/check.py MEASURED.json docs/benchmarks.md

A row of the table "Ratios" is `| name | settings | ratio | ...`. Ratios are to a limit of the same run, so that another
machine, or a busy one, says little less. Exit status: 1 if one is below 0.9 of the table's, or below a floor that the table says is
reached, or a row was not measured.
"""

import json
import re
import sys

ALLOWED = 0.9
ROW = re.compile(r"^\| `(\w+)` \| ([^|]+) \| (\d+\.\d+) \| (\d+\.\d+|-) \|")


def read_table(text):
    """(name, settings) -> (ratio, floor); 0 where there is none."""
    return {(match[1], match[2].strip()): (float(match[3]), 0.0 if match[4] == "-" else float(match[4]))
            for match in map(ROW.match, text.splitlines()) if match}


def read_measured(text):
    """(name, settings) -> ratio, of one JSON object per line."""
    rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    return {(row["name"], row["settings"]): row["ratio"] for row in rows}


def compare(table, measured):
    """What is wrong, one line each."""
    problems = []
    for (name, settings), (ratio, floor) in table.items():
        now = measured.get((name, settings))
        if now is None:
            problems.append(f"{name}, {settings}: not measured")
        elif now < ALLOWED * ratio:
            problems.append(f"{name}, {settings}: ratio {now:.2f}, in docs/benchmarks.md it is {ratio:.2f}")
        elif now < floor <= ratio:
            problems.append(f"{name}, {settings}: ratio {now:.2f}, below its floor of {floor:.2f}")
    return problems


def main():
    if len(sys.argv) != 3 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    with open(sys.argv[1], encoding="utf-8") as file:
        measured = read_measured(file.read())
    with open(sys.argv[2], encoding="utf-8") as file:
        table = read_table(file.read())
    problems = compare(table, measured)
    for problem in problems:
        print(problem)
    print(f"{len(table) - len(problems)} of {len(table)} ratios are at least {ALLOWED} of the table's")
    return 1 if problems or not table else 0


if __name__ == "__main__":
    sys.exit(main())
