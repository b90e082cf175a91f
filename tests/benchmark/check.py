#!/usr/bin/env python3
"""Compares the ratios that tests/benchmark/run.sh has measured with the table of docs/benchmarks.md.

    tests/benchmark/check.py [--again] docs/benchmarks.md MEASURED.json...

If several files have a row, their median counts: on a shared machine some of a hundred rows are off in any one run.
With --again it prints the files, one a line, that have a row which falls short, and exits with 0.

Exit status: 1 if a ratio is below 0.9 of the table's, if it is below 0.95 of a floor that the table's ratio reaches, or
if a row was not measured. It then also says which of these rows are of another processor.
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import ratio_table  # noqa: E402  (found in the folder of this file)

ALLOWED = 0.9
ALLOWED_OF_FLOOR = 0.95
# Benchmarks that check.sh does not run.
BY_NAME_ONLY = {"step_vs_torch"}


def read_measured(text):
    """(name, settings) -> ratio, of one JSON object per line."""
    rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    return {(row["name"], row["settings"]): row["ratio"] for row in rows}


def guarded(table, measured):
    """The rows that a run must have: all but those of benchmarks that run by name only and were not run."""
    return {row: entry for row, entry in table.items() if row[0] not in BY_NAME_ONLY or row in measured}


def compare(table, measured):
    """Returns (name, settings) -> what is wrong."""
    problems = {}
    for row, entry in table.items():
        now = measured.get(row)
        if now is None:
            problems[row] = "not measured"
        elif now < ALLOWED * entry.ratio:
            problems[row] = f"ratio {now:.2f}, in docs/benchmarks.md it is {entry.ratio:.2f}"
        elif entry.floor <= entry.ratio and now < ALLOWED_OF_FLOOR * entry.floor:
            problems[row] = f"ratio {now:.2f}, below its floor of {entry.floor:.2f}"
    return problems


def unlisted(table, measured):
    """What was measured and is in no row, one line each: nothing guards it."""
    return [f"{name}, {settings}: in no row of the table" for name, settings in measured
            if (name, settings) not in table and ratio_table.is_listed(name)]


def other_machines(table, problems, machine):
    """The machines of the rows with problems that are not this one, a line each: between processors ratios carry over less well."""
    others = sorted({table[row].machine for row in problems} - {machine})
    return [f"the table is of {other}, this machine is {machine}: what is short here need not have become slower"
            for other in others]


def middle(runs):
    """(name, settings) -> the median ratio of the runs, the lower one of two."""
    ratios = {}
    for measured in runs:
        for row, ratio in measured.items():
            ratios.setdefault(row, []).append(ratio)
    return {row: sorted(of_row)[(len(of_row) - 1) // 2] for row, of_row in ratios.items()}


def short(table, runs):
    """The names of those runs with a row whose median falls short."""
    measured = middle(runs.values())
    rows = set(compare({row: entry for row, entry in table.items() if row in measured}, measured))
    return [name for name, run in runs.items() if rows & set(run)]


def main():
    again = sys.argv[1:2] == ["--again"]
    arguments = sys.argv[1 + again:]
    if len(arguments) < 2 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    runs = {}
    for name in arguments[1:]:
        with open(name, encoding="utf-8") as file:
            runs[name] = read_measured(file.read())
    machine = ratio_table.this_machine()
    with open(arguments[0], encoding="utf-8") as file:
        table = ratio_table.read_for(file.read(), machine)
    if again:
        for name in short(table, runs):
            print(name)
        return 0
    measured = middle(runs.values())
    table = guarded(table, measured)
    problems = compare(table, measured)
    for line in unlisted(table, measured) + [f"{name}, {settings}: {problem}" for (name, settings), problem in problems.items()]:
        print(line)
    for line in other_machines(table, problems, machine):
        print(line)
    print(f"{len(table) - len(problems)} of {len(table)} ratios are at least {ALLOWED} of the table's")
    return 1 if problems or not table else 0


if __name__ == "__main__":
    sys.exit(main())
