#!/usr/bin/env python3
"""Tests check_chaos.py with made-up counts: it finds a storm of calls although training makes as many."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import chaos_proxy  # noqa: E402  (found beside this file)
import check_chaos  # noqa: E402  (found beside this file)

CALLS_PER_STEP = 10
# The faults last ten seconds from the fourth on.
EVENTS = [{"kind": "delay", "targets": [0], "from": 4.0, "to": 7.0}, {"kind": "reset", "targets": [1], "from": 8.0, "to": 14.0}]


def looks(calm_steps=100, troubled_steps=20, spare=0.0, burst=0.0, until=18.0):
    """Makes two looks a second: steps a second, calls a second in addition to them under faults, and a peak in their
    middle."""
    made = []
    step = extra = 0.0
    for number in range(int(until * 2)):
        at = number / 2
        made.append({"at": at, "step": int(step), "calls": int(step) * CALLS_PER_STEP + int(extra)})
        troubled = 4 <= at < 14
        step += (troubled_steps if troubled else calm_steps) / 2
        extra += spare / 2 if troubled else 0
        extra += burst if at == 10 else 0
    return made


def problems(counted, connections=None):
    reports = [{"events": EVENTS, "connections": [connections or {"5": 3}]}]
    return check_chaos.check(reports, counted)[1]


class CheckChaosTest(unittest.TestCase):
    def test_steps_that_trouble_made_fewer_are_no_storm(self):
        self.assertEqual(problems(looks()), [])

    def test_a_storm_that_hides_beside_what_is_usual_is_found(self):
        found = problems(looks(spare=500))
        self.assertEqual(len(found), 1)
        self.assertRegex(found[0], r"^\d+ calls/s more than the steps needed$")

    def test_three_times_what_is_usual_is_a_storm(self):
        self.assertRegex(" ".join(problems(looks(spare=4000))), r"\d{4} calls/s, 1000 usually")

    def test_a_second_of_storm_is_found(self):
        self.assertRegex(" ".join(problems(looks(burst=5000))), r"\d{4} calls/s in a second, 1000 usually")

    def test_training_that_is_faster_than_before_is_no_storm(self):
        self.assertEqual(problems(looks(calm_steps=10, troubled_steps=100)), [])

    def test_what_cannot_be_compared_is_no_success(self):
        self.assertEqual(problems(looks(until=15.0)), [])
        self.assertEqual(len(problems(looks(until=14.0))), 1)
        self.assertEqual(len(problems([look for look in looks() if look["at"] > 4])), 1)

    def test_many_connections_are_found(self):
        self.assertEqual(problems(looks(), {"5": 61}), ["61 new connections in a second"])
        self.assertEqual(problems(looks(), {"1": 61}), [])

    def test_kinds_that_nobody_met_are_found(self):
        met = dict.fromkeys(chaos_proxy.KINDS, 1)
        self.assertEqual(check_chaos.check_kinds([{"met": met}])[1], [])
        for kind in chaos_proxy.KINDS:
            others = {other: 3 for other in met if other != kind}
            self.assertEqual(check_chaos.check_kinds([{"met": others}, {"met": {}}])[1], [f"nobody met {kind}"])
            # One of the schedules suffices.
            self.assertEqual(check_chaos.check_kinds([{"met": others}, {"met": {kind: 1}}])[1], [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
