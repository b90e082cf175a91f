#!/usr/bin/env python3
"""Counts test cases in the build event files of `bazel test --build_event_json_file=FILE`.

Usage: count_results.py FILE...

Prints every failed target, then as its last line `N passed, M failed`; the exit status is 0 only if nothing failed and
something passed. A target that does not build, crashes, times out or leaves no report counts as one failure.
"""

import json
import os
import sys
import urllib.parse
import xml.etree.ElementTree


def count_cases(path):
    """(passed, failed, skipped) of one test.xml; (0, 0, 0) if it cannot be read."""
    try:
        root = xml.etree.ElementTree.parse(path).getroot()
    except (OSError, xml.etree.ElementTree.ParseError):
        return 0, 0, 0
    passed = failed = skipped = 0
    for case in root.iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


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


def xml_of(result):
    for output in result.get("testActionOutput", []):
        if output.get("name") == "test.xml":
            return urllib.parse.unquote(urllib.parse.urlparse(output.get("uri", "")).path)
    return ""


class Count:
    """Running totals over one build event file, and the lines that explain its failures."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.problems = []

    def add_test(self, label, result):
        passed, failed, skipped = count_cases(xml_of(result))
        if result.get("status") != "PASSED" and failed == 0:
            failed = 1
        elif result.get("status") == "PASSED" and passed == failed == 0:
            # Nothing was asserted: the report is missing, or every case was skipped.
            self.problems.append(f"NO CASES  {label}")
            failed = 1
        self.passed += passed
        self.failed += failed
        self.skipped += skipped
        if result.get("status") != "PASSED":
            self.problems.append(f"{result.get('status', 'UNKNOWN')}  {label}  {xml_of(result)}")

    def add_build_failure(self, label):
        self.failed += 1
        self.problems.append(f"DOES NOT BUILD  {label}")


def count(path):
    """Count of one build event file."""
    total = Count()
    events = read_events(path)
    finished = False
    tested = set()
    for event in events:
        if "testResult" in event.get("id", {}):
            label = event["id"]["testResult"]["label"]
            tested.add(label)
            total.add_test(label, event.get("testResult", {}))
        finished = finished or "buildFinished" in event.get("id", {})
    for event in events:
        completed = event.get("id", {}).get("targetCompleted")
        if completed and completed["label"] not in tested:
            if not event.get("completed", {}).get("success", False):
                total.add_build_failure(completed["label"])
    exit_codes = [e["finished"].get("exitCode", {}) for e in events if "finished" in e]
    if not finished or (total.failed == 0 and any(c.get("code", 0) != 0 for c in exit_codes)):
        name = exit_codes[0].get("name", "unknown") if exit_codes else "it was interrupted"
        total.failed += 1
        total.problems.append(f"BUILD  {os.path.basename(path)}: {name}")
    return total


def main(paths):
    passed = failed = skipped = 0
    for path in paths:
        total = count(path)
        for problem in total.problems:
            print(problem)
        passed += total.passed
        failed += total.failed
        skipped += total.skipped
    if skipped:
        print(f"{skipped} skipped")
    print(f"{passed} passed, {failed} failed")
    return 0 if failed == 0 and passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
