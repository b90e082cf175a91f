#!/usr/bin/env python3
"""Reads the reports of the chaos proxies: fails when the callers sent more than three times as much under trouble as without it, on
average or in one second.

  check_chaos.py SEED MILLISECONDS STEP REPORT...
"""

import json
import sys

# The base is of a run that goes as fast as it can; more than this is a storm (reliability.md T7).
MOST_TIMES_BASE = 3
# Two trainers with their lanes, the coordinator and kaonctl, each with a backoff of 0.1 to 1 s.
MOST_CONNECTIONS_PER_SECOND = 60


def add(tables):
    total = {}
    for table in tables:
        for second, count in table.items():
            total[int(second)] = total.get(int(second), 0) + count
    return total


def main(arguments):
    seed, took, step = arguments[:3]
    reports = []
    for path in arguments[3:]:
        with open(path, encoding="utf-8") as file:
            reports.append(json.load(file))
    records = add(table for report in reports for table in report["records"])
    connections = add(table for report in reports for table in report["connections"])
    events = [event for report in reports for event in report["events"]]
    first = min(event["from"] for event in events)
    last = max(event["to"] for event in events)
    # Whole seconds in which everything was as usual: not the first one, in which the trainers start, nor the last.
    before = [records[s] for s in sorted(records) if s + 1 <= first][1:]
    after = [records[s] for s in sorted(records) if s >= last + 1][:-1]
    calm = before + after
    base = sum(calm) / len(calm) if calm else 0
    busiest = max(calm, default=0)
    # With the second after it: what had piled up comes then.
    troubled = [n for s, n in records.items() if first <= s <= last + 1]
    mean = sum(troubled) / (last + 1 - first)
    worst = max(troubled, default=0)
    dials = max((n for s, n in connections.items() if first <= s <= last + 1), default=0)
    kinds = " ".join(f"{event['kind']}@{','.join(map(str, event['targets']))}" for event in events)
    print(f"seed {seed}: step {step} at the end of the trouble, next after {took} ms; {base:.0f} records/s usually, at most {busiest}; "
          f"under trouble {mean:.0f}, at most {worst}, at most {dials} new connections/s; {kinds}")
    problems = []
    if not calm:
        problems.append("no calm second to compare with")
    # More than the busiest calm second, too: a machine that was slow while all was calm makes the usual rate low, not a storm.
    if mean > max(MOST_TIMES_BASE * base, busiest):
        problems.append(f"{mean:.0f} records/s, {base:.0f} usually")
    if worst > MOST_TIMES_BASE * busiest:
        problems.append(f"{worst} records in a second, at most {busiest} usually")
    if dials > MOST_CONNECTIONS_PER_SECOND:
        problems.append(f"{dials} new connections in a second")
    for problem in problems:
        print(f"seed {seed}: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
