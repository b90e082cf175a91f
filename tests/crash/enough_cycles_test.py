#!/usr/bin/env python3
"""Tests the demands of crash_cycles.py on a run that its time ended, with made-up counts."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import crash_cycles  # noqa: E402  (found beside this file)

LEAST = 300


def too_few(points, cycles=LEAST, kinds=crash_cycles.KINDS, least=LEAST):
    """Returns the error of a run of so many cycles, spread evenly over the kinds and over so many points."""
    counted = crash_cycles.Cycles(1, [], 0)
    for number in range(cycles):
        counted.reached[f"point_{number % points}"] += 1
        counted.kinds[kinds[number % len(kinds)]] += 1
    # The point was armed and never reached.
    counted.reached["elsewhere"] += 0
    return crash_cycles.too_few(counted, least)


class EnoughCyclesTest(unittest.TestCase):
    def test_cycles(self):
        self.assertIsNone(too_few(points=30))
        self.assertEqual(too_few(points=30, cycles=299), "299 cycles, expecting at least 300")

    def test_kinds(self):
        self.assertEqual(too_few(points=30, kinds=("shard", "coordinator", "worker")), "300 cycles, and none of all at once")

    def test_points(self):
        self.assertEqual(too_few(points=29), "300 cycles at 29 points, expecting at least 30")

    def test_nothing_is_asked_of_a_run_by_hand(self):
        self.assertIsNone(too_few(points=1, cycles=1, least=0))

    def test_there_are_more_points_than_that(self):
        points = crash_cycles.read_points("proto/failpoint.h")
        usable = {name for _, when, name in points if when in ("run", "start")}
        self.assertGreater(len(usable), crash_cycles.LEAST_POINTS)
        self.assertEqual({process for process, _, _ in points}, {"shard", "coordinator", "worker"})


if __name__ == "__main__":
    unittest.main()
