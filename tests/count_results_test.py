#!/usr/bin/env python3
"""Tests of count_results.py over hand-written build events."""

import contextlib
import io
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

    def result(self, label, status, xml=None, attempt=1, log=None):
        outputs = [{"name": "test.xml", "uri": "file://" + xml}] if xml else []
        outputs += [{"name": "test.log", "uri": "file://" + log}] if log else []
        return {
            "id": {"testResult": {"label": label, "run": 1, "shard": 1, "attempt": attempt}},
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
        log = self.write("test.log", "no reporter\n")
        total = count_results.count(self.events(self.result("//a:t", "PASSED", log=log)))
        self.assertEqual((total.passed, total.failed), (0, 1))
        self.assertEqual(total.problems, ["NO CASES  //a:t", "    no reporter"])

    def test_a_target_whose_cases_say_why_they_are_skipped_is_listed_and_passes(self):
        case = '<testcase name="x" status="run" result="skipped"><skipped message="{}"/></testcase>'
        skipped = "<testsuites><testsuite>" + case + "</testsuite></testsuites>"
        good = self.write("good.xml", GTEST.format(y=""))
        told = self.write("told.xml", skipped.format("a_test.cc:35&#x0A;no such tiles here"))
        path = self.events(self.result("//a:t", "PASSED", good), self.result("//a:told", "PASSED", told))
        total = count_results.count(path)
        self.assertEqual((total.passed, total.failed, total.skipped), (2, 0, 2))
        self.assertEqual(total.problems, ["SKIPPED  //a:told  no such tiles here"])
        # Without a word it is a target that asserted nothing.
        silent = self.write("silent.xml", skipped.format(""))
        self.assertEqual(self.totals(self.events(self.result("//a:silent", "PASSED", silent))), (0, 1))

    def test_a_target_that_does_not_build_is_a_failure(self):
        xml = self.write("test.xml", GTEST.format(y=""))
        broken = {"id": {"targetCompleted": {"label": "//a:broken"}}, "aborted": {"reason": "INCOMPLETE"}}
        path = self.events(self.result("//a:t", "PASSED", xml), broken, exit_code=1)
        self.assertEqual(self.totals(path), (2, 1))

    def test_a_target_that_is_not_for_the_configuration_is_not_counted(self):
        xml = self.write("test.xml", GTEST.format(y=""))
        skipped = {
            "id": {"targetCompleted": {"label": "//a:clang_only", "configuration": {"id": "f5527a63"}}},
            "aborted": {"reason": "SKIPPED", "description": "Target //a:clang_only build was skipped."},
        }
        total = count_results.count(self.events(skipped, self.result("//a:t", "PASSED", xml)))
        self.assertEqual((total.passed, total.failed, total.problems), (2, 0, []))

    def test_a_target_that_passed_at_its_second_attempt_is_listed_and_passes(self):
        bad = self.write("attempt_1.xml", GTEST.format(y='<failure message="m"/>'))
        xml = self.write("test.xml", GTEST.format(y=""))
        first = self.result("//a:t", "FAILED", bad, 1, "/logs/attempt_1.log")
        second = self.result("//a:t", "PASSED", xml, 2, "/logs/test.log")
        # Whichever Bazel tells first.
        for attempts in ((first, second), (second, first)):
            path = self.events(*attempts)
            total = count_results.count(path)
            self.assertEqual((total.passed, total.failed), (2, 0))
            self.assertEqual(total.problems, ["FLAKY  //a:t  /logs/attempt_1.log"])
            self.assertEqual(count_results.main([path]), 0)

    def test_a_result_that_bazel_calls_flaky_is_listed_and_passes(self):
        xml = self.write("test.xml", GTEST.format(y=""))
        total = count_results.count(self.events(self.result("//a:t", "FLAKY", xml, log="/logs/test.log")))
        self.assertEqual((total.passed, total.failed), (2, 0))
        self.assertEqual(total.problems, ["FLAKY  //a:t  /logs/test.log"])

    def test_a_target_that_fails_at_every_attempt_fails_once(self):
        bad = self.write("test.xml", GTEST.format(y='<failure message="m"/>'))
        attempts = [self.result("//a:t", "FAILED", bad, attempt) for attempt in (1, 2)]
        total = count_results.count(self.events(*attempts, exit_code=3))
        self.assertEqual((total.passed, total.failed), (1, 1))
        self.assertEqual(total.problems, [f"FAILED  //a:t  {bad}"])

    def test_the_end_of_what_failed_is_printed(self):
        bad = self.write("test.xml", GTEST.format(y='<failure message="m"/>'))
        log = self.write("test.log", "".join(f"line {i}\n" for i in range(100)) + "x" * 1000 + "\n")
        other = self.write("other.log", "passes\n")
        good = self.write("good.xml", GTEST.format(y=""))
        failed, passed = self.result("//a:t", "FAILED", bad, log=log), self.result("//a:u", "PASSED", good, log=other)
        path = self.events(failed, passed, exit_code=3)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            count_results.main([path])
        lines = said.getvalue().splitlines()
        self.assertEqual(lines[0], f"FAILED  //a:t  {bad}")
        self.assertEqual(lines[1:41], [f"    line {i}" for i in range(61, 100)] + ["    " + "x" * 240])
        self.assertEqual(lines[-2:], ["2 skipped", "3 passed, 1 failed"])

    def test_the_end_of_an_attempt_that_failed_before_one_passed_is_printed(self):
        log = self.write("attempt_1.log", "Expected: 1\n")
        xml = self.write("test.xml", GTEST.format(y=""))
        path = self.events(self.result("//a:t", "FAILED", None, 1, log), self.result("//a:t", "PASSED", xml, 2))
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            count_results.main([path])
        self.assertEqual(said.getvalue().splitlines()[:2], [f"FLAKY  //a:t  {log}", "    Expected: 1"])

    def test_every_shard_of_a_target_is_counted(self):
        xml = self.write("test.xml", GTEST.format(y=""))
        shards = [self.result("//a:t", "PASSED", xml) for _ in range(2)]
        shards[1]["id"]["testResult"]["shard"] = 2
        self.assertEqual(self.totals(self.events(*shards)), (4, 0))

    def test_the_slowest_tests_are_listed_with_the_time_of_all_attempts(self):
        results = [self.result(f"//a:t{number}", "PASSED") for number in range(12)] + [self.result("//a:t2", "FAILED", attempt=2)]
        for number, event in enumerate(results):
            event["testResult"]["testAttemptDurationMillis"] = str(1000 * number)
        results[11]["testResult"]["executionInfo"] = {"cachedRemotely": True}
        lines = count_results.slowest(self.events(*results))
        self.assertEqual(len(lines), 10)
        self.assertEqual(lines[:3], ["   14.0 s  //a:t2", "   11.0 s  //a:t11 (cached)", "   10.0 s  //a:t10"])

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
        self.assertEqual(count_results.main([self.events()]), 1)


if __name__ == "__main__":
    unittest.main()
