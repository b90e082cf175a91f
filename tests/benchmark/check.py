#!/usr/bin/env python3
"""Compares the ratios that tests/benchmark/run.sh has measured with those of docs/benchmarks.md.

    tests/benchmark/check.py [--again] docs/benchmarks.md MEASURED.json...

Of a row that three files have, the middle ratio counts: of a hundred rows some are off in any one run on a shared machine.
With --again it names the files, one to a line, that have a row which falls short, and exits with 0.

A row of the section "Ratios" is `| name | settings | ratio | ...`. Ratios are to a limit of the same run, so that another
machine, or a busy one, says little less; but Muon's limit is another one with AMX tiles than without: of the subsections
"With AMX tiles" and "Without AMX tiles" the one of this machine counts. Exit status: 1 if one is below 0.9 of the table's, or by more
than runs differ (0.95) below a floor that the table says is reached, or a row was not measured; where the table is of another
kind of processor it also says that.
"""

import json
import os
import re
import sys

CPUINFO = "/proc/cpuinfo"
ALLOWED = 0.9
ALLOWED_OF_FLOOR = 0.95
STAGES = {"step_push", "step_compute", "step_pull"}
ROW = re.compile(r"^\| `(\w+)` \| ([^|]+) \| (\d+\.\d+) \| (\d+\.\d+|-) \|")
WITH_TILES = "### With AMX tiles"
WITHOUT_TILES = "### Without AMX tiles"


def read_table(text, other=WITHOUT_TILES):
    """(name, settings) -> (ratio, floor), 0 where there is none, but for the subsection `other`."""
    rows = {}
    section = subsection = ""
    for line in text.splitlines():
        if line.startswith("## "):
            section, subsection = line, ""
        elif line.startswith("### "):
            subsection = line
        match = ROW.match(line)
        if match and section == "## Ratios" and subsection != other:
            rows[match[1], match[2].strip()] = (float(match[3]), 0.0 if match[4] == "-" else float(match[4]))
    return rows


def read_measured(text):
    """(name, settings) -> ratio, of one JSON object per line."""
    rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    return {(row["name"], row["settings"]): row["ratio"] for row in rows}


def other_subsection(text):
    """The one that is not of the machine that measured."""
    tiles = any("tiles" in json.loads(line)["limit_name"] for line in text.splitlines() if line.strip())
    return WITHOUT_TILES if tiles else WITH_TILES


def compare(table, measured):
    """What is wrong, one line each."""
    problems = []
    for (name, settings), (ratio, floor) in table.items():
        now = measured.get((name, settings))
        if now is None:
            problems.append(f"{name}, {settings}: not measured")
        elif now < ALLOWED * ratio:
            problems.append(f"{name}, {settings}: ratio {now:.2f}, in docs/benchmarks.md it is {ratio:.2f}")
        elif floor <= ratio and now < ALLOWED_OF_FLOOR * floor:
            problems.append(f"{name}, {settings}: ratio {now:.2f}, below its floor of {floor:.2f}")
    return problems


def unlisted(table, measured):
    """What was measured and is in no row, one line each: nothing guards it. Stages of a step are what step_e2e is measured by."""
    return [f"{name}, {settings}: in no row of the table" for name, settings in measured
            if (name, settings) not in table and not name.endswith("_cpu") and name not in STAGES]


def other_machine(document, cpuinfo):
    """Where the table is of another kind of processor, a line that says so: ratios carry over between those less well. The
    few rows with AMX tiles are of a third."""
    ratios = document.partition("## Ratios\n")[2].partition("\n## ")[0]
    of_table = re.search(r"^Machine: .*?\((family \d+ model \d+)", ratios, re.MULTILINE)
    numbers = [re.search(rf"^{name}\s*: (\d+)$", cpuinfo, re.MULTILINE) for name in ("cpu family", "model")]
    if of_table is None or None in numbers:
        return []
    here = "family {} model {}".format(*(number[1] for number in numbers))
    if here == of_table[1]:
        return []
    return [f"the table is of {of_table[1]}, this machine is {here}: what is short here need not have become slower"]


def middle(runs):
    """(name, settings) -> the middle ratio of the runs, the lower one of two."""
    ratios = {}
    for measured in runs:
        for row, ratio in measured.items():
            ratios.setdefault(row, []).append(ratio)
    return {row: sorted(of_row)[(len(of_row) - 1) // 2] for row, of_row in ratios.items()}


def short(table, runs):
    """The names of those runs with a row that falls short in the middle one of them."""
    measured = middle(runs.values())
    rows = {row for row, entry in table.items() if row in measured and compare({row: entry}, measured)}
    return [name for name, run in runs.items() if rows & set(run)]


def main():
    again = sys.argv[1:2] == ["--again"]
    arguments = sys.argv[1 + again:]
    if len(arguments) < 2 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    texts = {}
    for name in arguments[1:]:
        with open(name, encoding="utf-8") as file:
            texts[name] = file.read()
    with open(arguments[0], encoding="utf-8") as file:
        document = file.read()
    table = read_table(document, other_subsection("\n".join(texts.values())))
    runs = {name: read_measured(text) for name, text in texts.items()}
    if again:
        for name in short(table, runs):
            print(name)
        return 0
    measured = middle(runs.values())
    problems = compare(table, measured)
    notes = unlisted(table, measured) + problems
    if problems and os.path.exists(CPUINFO):
        with open(CPUINFO, encoding="utf-8") as file:
            notes += other_machine(document, file.read())
    for line in notes:
        print(line)
    print(f"{len(table) - len(problems)} of {len(table)} ratios are at least {ALLOWED} of the table's")
    return 1 if problems or not table else 0


if __name__ == "__main__":
    sys.exit(main())
