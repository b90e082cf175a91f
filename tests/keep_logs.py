#!/usr/bin/env python3
"""Keeps the logs of one part of tests/run.sh, which the next part overwrites in .bazel/testlogs.

Usage: keep_logs.py EVENTS FOLDER

EVENTS is a file of `bazel test --build_event_json_file=EVENTS`; FOLDER afterwards holds the test.log of every test in it,
each below its package and name as in .bazel/testlogs, and nothing else. What tests/report.py reads.
"""

import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import count_results  # noqa: E402  (found beside this file)


def keep(events, folder):
    """Copies the logs of the last attempts; the number of them."""
    shutil.rmtree(folder, ignore_errors=True)
    kept = 0
    for label, parts in count_results.attempts_of(count_results.read_events(events)).items():
        place = os.path.join(folder, *label.lstrip("/").lstrip(":").split(":"))
        for number, attempts in enumerate(parts):
            log = count_results.output_of(attempts[-1], "test.log")
            if not os.path.isfile(log):
                continue
            part = place if len(parts) == 1 else os.path.join(place, f"part_{number + 1}")
            os.makedirs(part, exist_ok=True)
            # With its time, by which report.py knows the newest.
            shutil.copy2(log, os.path.join(part, "test.log"))
            kept += 1
    return kept


def main(arguments):
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    print(f"{keep(*arguments)} logs kept in {arguments[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
