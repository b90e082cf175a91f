#!/usr/bin/env python3
"""Tests of report.py over lines as the suites print them."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import report  # noqa: E402  (found beside this file)

LINES = [
    "200 seeds, 1000 events, 3 coordinators killed, 1 frozen",
    "30000 seeds, 5000 events, 3 coordinators killed, 1 frozen",
    "server/mutation/mutation.h: 26 of 26 bugs found",
    "26/26 found",
    "kernels/mutation.h: 25 of 25 bugs found",
    "25/25 found",
    "flipped bits: 2000, found 2000, naming the very file 1990; seed 1",
    "15000 lives in 1500 directories, seed 1: 12000 power cuts, 4 failures of the device",
    "crash cycles: 302 (42 of all at once, 102 of shard), 13 trainings, 0.44 s each",
    "points reached: 68 of 68",
    "steps lost: 0",
    "syscall kills: 15 (5 at pwritev), every 8th, 57 s",
    "failed reads: 90, each named, every 6th, 50 s",
    "histories: 12 checked, 12 explained: 4000 operations, 30 unanswered, 380 entries, 120 deaths, 60 s",
    "changed histories: 6 tried, 6 refused",
    "recovery of 1074000000 bytes of state: 2.90 s, P19 x 1.2 allows 4.90 s",
    "recovery: 67843332 bytes of state, 12 kills, until the shard serves p50 0.3 s, p99 0.4 s",
]


class ReportTest(unittest.TestCase):
    def rows(self, lines):
        rows, good = report.make_table(lines)
        return dict(rows), good

    def test_adds_up_what_the_suites_print(self):
        rows, good = self.rows(LINES)
        self.assertTrue(good)
        self.assertEqual(rows["simulated clusters"], "30,200 seeds, 6,000 events")
        self.assertEqual(rows["bugs of the protocol built in"], "26 of 26 found")
        self.assertEqual(rows["bugs of the kernels built in"], "25 of 25 found")
        self.assertEqual(rows["corruptions"], "2,000 tried, 2,000 found")
        self.assertEqual(rows["power cuts"], "12,000, 0 durable entries lost")
        self.assertEqual(rows["crash cycles"], "302")
        self.assertEqual(rows["failpoints"], "68 of 68")
        self.assertEqual(rows["steps lost"], "0")
        self.assertEqual(rows["kills at system calls"], "15")
        self.assertEqual(rows["failed reads"], "90, each named")
        self.assertEqual(rows["histories of clients"], "12 checked, 12 explained")
        self.assertEqual(rows["changed histories"], "6 tried, 6 refused")
        self.assertTrue(rows["recovery of 1 GiB"].startswith("1074000000 bytes of state: 2.90 s"))
        self.assertTrue(rows["recovery"].startswith("67843332 bytes of state"))

    def test_counts_equal_lines_of_two_tests_but_not_their_repetition(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, name) for name in ("one.log", "two.log", "nightly-sim.log")]
            for path, text in zip(paths, ["100 seeds, 5 events\n"] * 2 + ["100 seeds, 5 events\n7 seeds, 1 events\n"]):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            self.assertEqual(self.rows(report.read_lines(paths))[0]["simulated clusters"], "207 seeds, 11 events")

    def test_finds_the_logs_of_tests_and_of_suites(self):
        with tempfile.TemporaryDirectory() as root:
            for path, seeds in ((".bazel/testlogs/tests/a/one/test.log", 1), (".bazel/testlogs/tests/a/b/two/shard_1_of_2/test.log", 20),
                                (".bazel/nightly-sim.log", 300)):
                path = os.path.join(root, path)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(f"{seeds} seeds, 5 events\n")
            self.assertEqual(self.rows(report.read_lines(report.find_logs(root)))[0]["simulated clusters"], "321 seeds, 15 events")

    def test_says_what_was_not_run(self):
        rows, good = self.rows([])
        self.assertTrue(good)
        self.assertEqual(set(rows.values()), {"not run"})

    def test_fails_when_something_was_lost_or_not_found(self):
        for line in ("steps lost: 1", "kernels/mutation.h: 24 of 25 bugs found", "changed histories: 6 tried, 5 refused",
                     "flipped bits: 2000, found 1999, naming the very file 1990; seed 1"):
            with self.subTest(line):
                self.assertFalse(self.rows([line])[1])


if __name__ == "__main__":
    unittest.main()
