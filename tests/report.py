#!/usr/bin/env python3
"""One table of what the reliability suites have tried and found (docs/design/reliability.md, "Publish per release").

    tests/report.py [LOG...]

Without logs: those that `bazel test` has left in this checkout, and what tests/nightly.sh has kept of its suites. A figure that no
log has is shown as "not run". Exit status: 1 if a log says that a step was lost, or something was not found.
"""

import collections
import glob
import os
import re
import sys

# (row, pattern of a line, how its numbers are put together, which must be equal)
ROWS = (
    ("simulated clusters", r"^(\d+) seeds, (\d+) events", "{0} seeds, {1} events", None),
    ("bugs of the protocol built in", r"^server/mutation/mutation\.h: (\d+) of (\d+) bugs found$", "{0} of {1} found", (0, 1)),
    ("bugs of the kernels built in", r"^kernels/mutation\.h: (\d+) of (\d+) bugs found$", "{0} of {1} found", (0, 1)),
    ("corruptions", r": (\d+), found (\d+), naming the very (?:file|parameter) \d+", "{0} tried, {1} found", (0, 1)),
    ("power cuts", r"seed \d+: (\d+) power cuts", "{0}, 0 durable entries lost", None),
    ("crash cycles", r"^crash cycles: (\d+) ", "{0}", None),
    ("steps lost", r"^steps lost: (\d+)", "{0}", (0, None)),
    ("kills at system calls", r"^syscall kills: (\d+) ", "{0}", None),
    ("failed reads", r"^failed reads: (\d+), each named", "{0}, each named", None),
    ("histories of clients", r"^histories: (\d+) checked, (\d+) explained", "{0} checked, {1} explained", (0, 1)),
    ("changed histories", r"^changed histories: (\d+) tried, (\d+) refused", "{0} tried, {1} refused", (0, 1)),
)
# Shown as they are.
LINES = (("failpoints", r"^points reached: (.*)"), ("recovery", r"^recovery: (.*)"), ("recovery of 1 GiB", r"^recovery of (.*)"))
NOT_RUN = "not run"


def find_logs(root):
    """The logs of tests, and of nightly suites."""
    tests = glob.glob(os.path.join(root, ".bazel/testlogs", "**/test.log"), recursive=True)
    return tests + glob.glob(os.path.join(root, ".bazel/nightly-*.log"))


def read_lines(paths):
    """All lines, those of nightly logs only as far as no test log has them: they repeat those of their tests."""
    of_tests, of_nightly = collections.Counter(), collections.Counter()
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = of_nightly if os.path.basename(path).startswith("nightly-") else of_tests
            lines.update(line.rstrip("\n") for line in file)
    return list((of_tests | of_nightly).elements())


def make_table(lines):
    """The rows, and whether all is well."""
    rows = []
    good = True
    for name, pattern, text, equal in ROWS:
        found = [match for match in (re.search(pattern, line) for line in lines) if match]
        if not found:
            rows.append((name, NOT_RUN))
            continue
        sums = [sum(numbers) for numbers in zip(*([int(number) for number in match.groups()] for match in found))]
        rows.append((name, text.format(*(f"{number:,}" for number in sums))))
        if equal is not None:
            good = good and sums[equal[0]] == (0 if equal[1] is None else sums[equal[1]])
    for name, pattern in LINES:
        found = [match.group(1) for match in (re.search(pattern, line) for line in lines) if match]
        rows.extend((name, one) for one in found or [NOT_RUN])
    return rows, good


def main(arguments):
    if arguments and arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    rows, good = make_table(read_lines(arguments or find_logs(root)))
    print("| what | figure |\n|---|---|")
    for name, figure in rows:
        print(f"| {name} | {figure} |")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
