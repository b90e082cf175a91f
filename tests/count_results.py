#!/usr/bin/env python3
"""Counts test cases in the build event file of `bazel test --build_event_json_file=FILE`.

Usage: count_results.py FILE

Prints every failed target, as `FLAKY  LABEL  LOG` every one that failed before an attempt of it passed (--flaky_test_attempts),
with the log of what failed, and as `SKIPPED  LABEL  REASON` every one of which nothing was run because its cases said why they
cannot be on this machine. Below what failed, once or for good, stand the last lines of its log, which may be gone with the machine
by when somebody reads this. The ten slowest tests follow. The last line is `N passed, M failed`. The exit status is 0 only if nothing failed and something
passed. A target that does not build, crashes, times out or leaves no report counts as one failure, one that is not for the
configuration (target_compatible_with) not at all, and of several attempts the last.
"""

import collections
import json
import os
import sys
import urllib.parse
import xml.etree.ElementTree


# Of a log; its lines are cut after so many characters.
LAST_LINES = 40
LINE_CHARACTERS = 240
# Tests that are listed as the slowest.
SLOWEST = 10


def last_lines(path):
    """The end of a log, indented; nothing if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as log:
            lines = collections.deque(log, LAST_LINES)
    except OSError:
        return []
    return ["    " + line.rstrip()[:LINE_CHARACTERS] for line in lines]


def count_cases(path):
    """(passed, failed, skipped, why some were skipped) of one test.xml; nothing if it cannot be read."""
    try:
        root = xml.etree.ElementTree.parse(path).getroot()
    except (OSError, xml.etree.ElementTree.ParseError):
        return 0, 0, 0, ""
    passed = failed = skipped = 0
    reason = ""
    for case in root.iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            skipped += 1
            # googletest puts the place before it, in a line of its own.
            told = case.find("skipped")
            reason = reason or ("" if told is None else told.get("message", "").split("\n")[-1])
        else:
            passed += 1
    return passed, failed, skipped, reason


def read_events(path):
    """The events of a file; a torn last line, as an interrupted build leaves it, is dropped."""
    events = []
    try:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                try:
                    events.append(json.loads(line))
                except json.JSONDecodeError:
                    break
    except OSError:
        pass
    return events


def output_of(result, name):
    """The path of a file that the test left, "" if there is none."""
    for output in result.get("testActionOutput", []):
        if output.get("name") == name:
            return urllib.parse.unquote(urllib.parse.urlparse(output.get("uri", "")).path)
    return ""


def attempts_of(events):
    """{label: [the results of each run or shard of it, an attempt each]}."""
    found = {}
    for event in events:
        identity = event.get("id", {}).get("testResult")
        if identity:
            part = (identity.get("run", 1), identity.get("shard", 1))
            parts = found.setdefault(identity["label"], {})
            parts.setdefault(part, {})[identity.get("attempt", 1)] = event.get("testResult", {})
    return {label: [[one[attempt] for attempt in sorted(one)] for one in parts.values()] for label, parts in found.items()}


def has_passed(result):
    return result.get("status") in ("PASSED", "FLAKY")


class Count:
    """Running totals over one build event file, and the lines that explain its failures."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.problems = []

    def add_test(self, label, attempts):
        result = attempts[-1]
        passed, failed, skipped, reason = count_cases(output_of(result, "test.xml"))
        if not has_passed(result) and failed == 0:
            failed = 1
        elif has_passed(result) and passed == failed == 0 and reason:
            # Of a machine that this is not.
            self.problems.append(f"SKIPPED  {label}  {reason}")
        elif has_passed(result) and passed == failed == 0:
            # Nothing was asserted: the report is missing, or cases were skipped without a word.
            self.problems.append(f"NO CASES  {label}")
            self.problems += last_lines(output_of(result, "test.log"))
            failed = 1
        self.passed += passed
        self.failed += failed
        self.skipped += skipped
        if not has_passed(result):
            self.problems.append(f"{result.get('status', 'UNKNOWN')}  {label}  {output_of(result, 'test.xml')}")
            self.problems += last_lines(output_of(result, "test.log"))
        elif len(attempts) > 1 or result["status"] == "FLAKY":
            self.problems.append(f"FLAKY  {label}  {output_of(attempts[0], 'test.log')}")
            self.problems += last_lines(output_of(attempts[0], "test.log"))

    def add_build_failure(self, label):
        self.failed += 1
        self.problems.append(f"DOES NOT BUILD  {label}")


def is_skipped(completed):
    """Whether the target is not for this configuration, or needs one that is not."""
    return completed.get("aborted", {}).get("reason") == "SKIPPED"


def count(path):
    """Count of one build event file."""
    total = Count()
    events = read_events(path)
    tests = attempts_of(events)
    for label, parts in tests.items():
        for attempts in parts:
            total.add_test(label, attempts)
    for event in events:
        completed = event.get("id", {}).get("targetCompleted")
        if completed and completed["label"] not in tests and not is_skipped(event):
            if not event.get("completed", {}).get("success", False):
                total.add_build_failure(completed["label"])
    finished = any("buildFinished" in event.get("id", {}) for event in events)
    exit_codes = [e["finished"].get("exitCode", {}) for e in events if "finished" in e]
    if not finished or (total.failed == 0 and any(c.get("code", 0) != 0 for c in exit_codes)):
        name = exit_codes[0].get("name", "unknown") if exit_codes else "it was interrupted"
        total.failed += 1
        total.problems.append(f"BUILD  {os.path.basename(path)}: {name}")
    return total


def slowest(path):
    """A line for each of the slowest tests: the seconds of all attempts of one run or shard. A cached test did not run now."""
    rows = []
    for label, parts in attempts_of(read_events(path)).items():
        for attempts in parts:
            millis = sum(int(result.get("testAttemptDurationMillis", 0)) for result in attempts)
            cached = attempts[-1].get("cachedLocally") or attempts[-1].get("executionInfo", {}).get("cachedRemotely")
            rows.append((millis, label + (" (cached)" if cached else "")))
    rows.sort(key=lambda row: (-row[0], row[1]))
    return [f"{millis / 1000:7.1f} s  {label}" for millis, label in rows[:SLOWEST]]


def main(arguments):
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    total = count(arguments[0])
    for problem in total.problems:
        print(problem)
    print("slowest tests:")
    for line in slowest(arguments[0]):
        print(line)
    if total.skipped:
        print(f"{total.skipped} skipped")
    print(f"{total.passed} passed, {total.failed} failed")
    return 0 if total.failed == 0 and total.passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
