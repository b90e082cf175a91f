#!/usr/bin/env python3
"""The table of ratios in docs/benchmarks.md: run.sh --write fills it, check.py reads it.

    tests/benchmark/ratio_table.py docs/benchmarks.md MEASURED.json...

Replaces the rows that were measured, keeps their floors and adds new rows without one. Rows of muon_* exist once for
processors with AMX tiles and once for those without, since their limit differs; of any other row there is one.
"""

import collections
import json
import os
import re
import subprocess
import sys
import time

BEGIN = "<!-- ratios: begin -->"
END = "<!-- ratios: end -->"
HEAD = "| machine | date | commit | benchmark | settings | ratio | floor |\n|---|---|---|---|---|---|---|\n"
ROW = re.compile(r"^\| ([^|]+) \| ([\d-]{10}) \| (\w+) \| `(\w+)` \| ([^|]+) \| (\d+\.\d+) \| (\d+\.\d+|-) \|$")
STAGES = {"step_push", "step_compute", "step_pull"}

# `floor` is 0 where the project has none.
Row = collections.namedtuple("Row", "machine date commit name settings ratio floor")


def machine_of(cpuinfo):
    """Names the processor of /proc/cpuinfo: model name, family and model, CPUs, and AMX where it has tiles."""
    def field(name):
        match = re.search(rf"^{name}\s*: (.*)$", cpuinfo, re.MULTILINE)
        return match[1] if match else "unknown"
    name = re.sub(r"\((R|TM)\)| Processor.*| CPU.*", "", field("model name"))
    cpus = len(re.findall(r"^processor\s*:", cpuinfo, re.MULTILINE))
    tiles = ", AMX" if re.search(r"\bamx_bf16\b", field("flags")) else ""
    return f"{name} (family {field('cpu family')} model {field('model')}), {cpus} CPUs{tiles}"


def this_machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return machine_of(file.read())


def key(row):
    return row.name, row.settings, row.name.startswith("muon_") and row.machine.endswith(", AMX")


def is_listed(name):
    """Whether a measurement belongs in the table: shares of CPU time and the stages of step_e2e do not."""
    return not name.endswith("_cpu") and name not in STAGES


def read(document):
    """Returns key -> Row."""
    rows = {}
    for line in document.partition(BEGIN)[2].partition(END)[0].splitlines():
        match = ROW.match(line)
        if match:
            row = Row(*match.groups()[:5], float(match[6]), 0.0 if match[7] == "-" else float(match[7]))
            rows[key(row)] = row
    return rows


def read_for(document, machine):
    """Returns (name, settings) -> Row, of the rows that hold for a machine."""
    tiles = machine.endswith(", AMX")
    return {(row.name, row.settings): row for row in read(document).values()
            if not row.name.startswith("muon_") or row.machine.endswith(", AMX") == tiles}


def updated(document, measured, machine, date, commit):
    """Returns the document with the rows of `measured`, objects as run.sh --json writes them."""
    rows = read(document)
    for entry in measured:
        if is_listed(entry["name"]):
            row = Row(machine, date, commit, entry["name"], entry["settings"], entry["ratio"], 0.0)
            rows[key(row)] = row._replace(floor=rows[key(row)].floor if key(row) in rows else 0.0)
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document has no lines {BEGIN} and {END}")
    lines = [f"| {r.machine} | {r.date} | {r.commit} | `{r.name}` | {r.settings} | {r.ratio:.2f} | "
             f"{f'{r.floor:.2f}' if r.floor else '-'} |\n" for r in rows.values()]
    return f"{before}{begin}\n{HEAD}{''.join(lines)}{end}{after}"


def main():
    if len(sys.argv) < 3 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    measured = []
    for name in sys.argv[2:]:
        with open(name, encoding="utf-8") as file:
            measured += [json.loads(line) for line in file if line.strip()]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, check=False,
                            cwd=os.path.dirname(os.path.realpath(sys.argv[1])), encoding="utf-8").stdout.strip()
    with open(sys.argv[1], encoding="utf-8") as file:
        document = file.read()
    document = updated(document, measured, this_machine(), time.strftime("%Y-%m-%d", time.gmtime()), commit or "unknown")
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write(document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
