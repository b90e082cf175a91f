#!/usr/bin/env python3
"""Fails if the servers had more than three times as many calls under faults as before, on average or in one second,
or many that no step needed. Reads the counts of count_calls.py and the reports of the chaos proxies.

  check_chaos.py SEED MILLISECONDS STEP CALLS REPORT...

With the reports of all seeds, fails if no connection met some kind of fault.

  check_chaos.py --kinds REPORT...
"""

import collections
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import chaos_proxy  # noqa: E402  (found beside this file)

# The base rate is that of a run without pauses. A higher multiple is a storm (reliability.md T7).
MOST_TIMES_BASE = 3
# Two trainers with their lanes, the coordinator and kaonctl, each with a backoff of 0.1 to 1 s.
MOST_CONNECTIONS_PER_SECOND = 60
# Calls in addition to those of the steps. Faults cause so few; a storm would hide among the usual calls.
MOST_SPARE_PER_SECOND = 25
# Two looks that make a rate are at least so far apart.
WINDOW_SECONDS = 1.0


def add(tables):
    total = {}
    for table in tables:
        for second, count in table.items():
            total[int(second)] = total.get(int(second), 0) + count
    return total


def rate(first, last):
    return (last["calls"] - first["calls"]) / (last["at"] - first["at"])


def windows(looks):
    """Returns pairs of looks that are a window apart, one after the other."""
    pairs = []
    first = None
    for look in looks:
        if first is None:
            first = look
        elif look["at"] - first["at"] >= WINDOW_SECONDS:
            pairs.append((first, look))
            first = look
    return pairs


class Calls:
    """Rates of one seed, with its faults from `first` to `last`."""

    def __init__(self, looks, first, last):
        before = [look for look in looks if look["at"] < first]
        # Includes the second after the faults, in which delayed calls arrive.
        after = [look for look in looks if look["at"] > last + 1] or [look for look in looks if look["at"] > last][-1:]
        calm = windows(before)
        self.enough = len(calm) > 0 and len(after) > 0
        if not self.enough:
            return
        self.base = rate(before[0], before[-1])
        self.per_step = (before[-1]["calls"] - before[0]["calls"]) / max(1, before[-1]["step"] - before[0]["step"])
        troubled = [before[-1]] + [look for look in looks if first <= look["at"] <= last + 1] + [after[0]]
        self.whole = (troubled[0], troubled[-1])
        self.worst = max(windows(troubled), key=lambda pair: rate(*pair) / self.usual(*pair))

    def needed(self, first, last):
        """Returns the calls a second that the steps needed: each step needs as many as in calm times."""
        return (last["step"] - first["step"]) * self.per_step / (last["at"] - first["at"])

    def usual(self, first, last):
        """Returns the rate from before, or more if training is faster: the machine may have been slow before the
        faults."""
        return max(self.base, self.needed(first, last))

    def spare(self):
        return rate(*self.whole) - self.needed(*self.whole)

    def problems(self):
        if not self.enough:
            return ["no second before the trouble, or nothing after it, to compare with"]
        found = []
        for what, pair in (("", self.whole), (" in a second", self.worst)):
            if rate(*pair) > MOST_TIMES_BASE * self.usual(*pair):
                found.append(f"{rate(*pair):.0f} calls/s{what}, {self.usual(*pair):.0f} usually")
        if self.spare() > MOST_SPARE_PER_SECOND:
            found.append(f"{self.spare():.0f} calls/s more than the steps needed")
        return found

    def __str__(self):
        if not self.enough:
            return "calls not known"
        return (f"{self.base:.0f} calls/s usually; under trouble {rate(*self.whole):.0f}, {self.spare():.0f} more than its steps needed, "
                f"at worst {rate(*self.worst):.0f} where {self.usual(*self.worst):.0f} are usual")


def check(reports, looks):
    """Returns (what was seen, what is wrong)."""
    connections = add(table for report in reports for table in report["connections"])
    events = [event for report in reports for event in report["events"]]
    first = min(event["from"] for event in events)
    last = max(event["to"] for event in events)
    calls = Calls(looks, first, last)
    dials = max((n for s, n in connections.items() if first <= s <= last + 1), default=0)
    kinds = " ".join(f"{event['kind']}@{','.join(map(str, event['targets']))}" for event in events)
    problems = calls.problems()
    if dials > MOST_CONNECTIONS_PER_SECOND:
        problems.append(f"{dials} new connections in a second")
    return f"{calls}; at most {dials} new connections/s; {kinds}", problems


def check_kinds(reports):
    """Returns (what was met, what is wrong)."""
    met = sum((collections.Counter(report["met"]) for report in reports), collections.Counter())
    absent = [kind for kind in chaos_proxy.KINDS if met[kind] == 0]
    seen = ", ".join(f"{kind} {met[kind]}" for kind in chaos_proxy.KINDS)
    return seen, [f"nobody met {kind}" for kind in absent]


def read(paths):
    reports = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            reports.append(json.load(file))
    return reports


def main(arguments):
    if arguments[0] == "--kinds":
        seen, problems = check_kinds(read(arguments[1:]))
        print(f"chunks, connections and resets that met trouble of each kind: {seen}")
        for problem in problems:
            print(f"all seeds: {problem}")
        return 1 if problems else 0
    seed, took, step, calls = arguments[:4]
    reports = read(arguments[4:])
    with open(calls, encoding="utf-8") as file:
        looks = [json.loads(line) for line in file if line.endswith("\n")]
    seen, problems = check(reports, looks)
    print(f"seed {seed}: step {step} at the end of the trouble, next after {took} ms; {seen}")
    for problem in problems:
        print(f"seed {seed}: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
