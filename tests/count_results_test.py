#!/usr/bin/env python3
"""Tests of count_results.py over hand-written build events."""

import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import count_results  # noqa: E402  (found beside this file)

GTEST = """<testsuites><testsuite name="A">
<testcase name="x" status="run"/>
<testcase name="y" status="run">{y}</testcase>
<testcase name="z" status="notrun"/>
</testsuite></testsuites>"""


class CountTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)

    def write(self, name, text):
        path = os.path.join(self.directory.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def events(self, *events, exit_code=0):
        finished = {"id": {"buildFinished": {}}, "finished": {"exitCode": {"code": exit_code, "name": "TESTS_FAILED"}}}
        return self.write("events.json", "\n".join(json.dumps(e) for e in [*events, finished]))

    def result(self, label, status, xml=None):
        outputs = [{"name": "test.xml", "uri": "file://" + xml}] if xml else []
        return {
            "id": {"testResult": {"label": label}},
            "testResult": {"status": status, "testActionOutput": outputs},
        }

    def totals(self, path):
        total = count_results.count(path)
        return total.passed, total.failed

    def test_counts_cases_that_ran(self):
        xml = self.write("test.xml", GTEST.format(y=""))
        self.assertEqual(self.totals(self.events(self.result("//a:t", "PASSED", xml))), (2, 0))

    def test_counts_failed_cases_beside_passed_ones(self):
        xml = self.write("test.xml", GTEST.format(y='<failure message="m"/>'))
        path = self.events(self.result("//a:t", "FAILED", xml), exit_code=3)
        self.assertEqual(self.totals(path), (1, 1))

    def test_a_crash_after_passed_cases_is_a_failure(self):
        xml = self.write("test.xml", GTEST.format(y=""))
        path = self.events(self.result("//a:t", "FAILED", xml), exit_code=3)
        self.assertEqual(self.totals(path), (2, 1))

    def test_a_target_without_report_is_a_failure(self):
        self.assertEqual(self.totals(self.events(self.result("//a:t", "TIMEOUT"), exit_code=3)), (0, 1))

    def test_a_target_that_passes_without_cases_is_a_failure(self):
        self.assertEqual(self.totals(self.events(self.result("//a:t", "PASSED"))), (0, 1))

    def test_a_target_that_does_not_build_is_a_failure(self):
        xml = self.write("test.xml", GTEST.format(y=""))
        broken = {"id": {"targetCompleted": {"label": "//a:broken"}}, "aborted": {"reason": "INCOMPLETE"}}
        path = self.events(self.result("//a:t", "PASSED", xml), broken, exit_code=1)
        self.assertEqual(self.totals(path), (2, 1))

    def test_a_build_that_fails_without_naming_a_target_is_a_failure(self):
        self.assertEqual(self.totals(self.events(exit_code=1)), (0, 1))

    def test_an_interrupted_build_is_a_failure(self):
        xml = self.write("test.xml", GTEST.format(y=""))
        event = json.dumps(self.result("//a:t", "PASSED", xml))
        path = self.write("events.json", event + "\n" + event[:20])
        self.assertEqual(self.totals(path), (2, 1))

    def test_no_events_at_all_is_a_failure(self):
        self.assertEqual(self.totals(os.path.join(self.directory.name, "absent.json")), (0, 1))

    def test_exit_status_is_zero_only_if_something_passed_and_nothing_failed(self):
        xml = self.write("test.xml", GTEST.format(y=""))
        good = self.events(self.result("//a:t", "PASSED", xml))
        self.assertEqual(count_results.main([good]), 0)
        self.assertEqual(count_results.main([good, os.path.join(self.directory.name, "absent")]), 1)
        self.assertEqual(count_results.main([self.events()]), 1)


if __name__ == "__main__":
    unittest.main()
