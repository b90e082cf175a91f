#!/usr/bin/env python3
"""Tests of report.py over lines as the suites print them."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import report  # noqa: E402  (found beside this file)

LINES = [
    "200 seeds, 1000 events, 3 coordinators killed, 1 frozen",
    "30000 seeds, 5000 events, 3 coordinators killed, 1 frozen",
    "26/26 found",
    "flipped bits: 2000, found 2000, naming the very file 1990; seed 1",
    "15000 lives in 1500 directories, seed 1: 12000 power cuts, 4 failures of the device",
    "crash cycles: 302 (42 of all at once, 102 of shard), 13 trainings, 0.44 s each",
    "points reached: 68 of 68",
    "steps lost: 0",
    "syscall kills: 15 (5 at pwritev), every 8th, 57 s",
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
        self.assertEqual(rows["bugs built in"], "26 of 26 found")
        self.assertEqual(rows["corruptions"], "2,000 tried, 2,000 found")
        self.assertEqual(rows["power cuts"], "12,000, 0 durable entries lost")
        self.assertEqual(rows["crash cycles"], "302")
        self.assertEqual(rows["failpoints"], "68 of 68")
        self.assertEqual(rows["steps lost"], "0")
        self.assertEqual(rows["kills at system calls"], "15")
        self.assertTrue(rows["recovery"].startswith("67843332 bytes of state"))

    def test_says_what_was_not_run(self):
        rows, good = self.rows([])
        self.assertTrue(good)
        self.assertEqual(set(rows.values()), {"not run"})

    def test_fails_when_something_was_lost_or_not_found(self):
        for line in ("steps lost: 1", "25/26 found", "flipped bits: 2000, found 1999, naming the very file 1990; seed 1"):
            with self.subTest(line):
                self.assertFalse(self.rows([line])[1])


if __name__ == "__main__":
    unittest.main()
