#!/usr/bin/env python3
"""A failing seed prints the newest events of its trace, its options, the commit and a command that repeats the
failure. This holds if an invariant is broken, if nothing continues, or if the process dies of a CHECK or a signal."""

import os
import re
import shlex
import signal
import subprocess
import sys
import unittest

PROGRAM = "tests/simulation/step_simulation_test"
# Values of SeededBug.
FORGETFUL_SHARD, FAILED_CHECK, SEGMENTATION_FAULT, LOST_SHARD = 1, 3, 4, 5
EVENT = re.compile(r"^\d+ \S.*$", re.MULTILINE)
# Constant of tests/simulation/trace_ring.h.
MOST_EVENTS = 200


def run(*arguments):
    """Returns the program's exit status, output and trace. Its test cases do not matter here."""
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("XML_OUTPUT_FILE", "GTEST_", "TEST_"))}
    done = subprocess.run([PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, check=False)
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


class Report:
    """Report of one failing seed."""

    def __init__(self, said):
        self.found = self.line(said, "FOUND seed ")
        self.replay = self.line(said, "replay with: ")
        self.options = self.line(said, "options: ")
        self.build = self.line(said, "build: ")
        self.hash = re.findall(r"^event hash: .*$", said, re.MULTILINE)
        at = said.index("newest events, of at most ")
        self.events = EVENT.findall(said[at:])

    @staticmethod
    def line(said, start):
        lines = [line[len(start):] for line in said.splitlines() if line.startswith(start)]
        if len(lines) != 1:
            raise AssertionError(f"{len(lines)} lines begin with {start!r}, expecting 1, in:\n{said}")
        return lines[0]


class FailingSeedTest(unittest.TestCase):
    def fail_and_replay(self, bug, status, why):
        ended, said, traced = run("--seeds=100", f"--bug={bug}", "--gtest_filter=*KeepsEveryPromise*")
        self.assertEqual(ended, status, said)
        report = Report(said)
        self.assertIn(why, report.found)
        self.assertRegex(report.options, r"^\d shards, .*seeded bug \d")
        self.assertRegex(report.build, r"^commit \S+, compiled by ")
        self.assertGreater(len(report.events), 5)
        self.assertLessEqual(len(report.events), MOST_EVENTS)
        # The whole trace is printed on request only.
        self.assertEqual([line for line in EVENT.findall(traced) if line in report.events], [])
        self.replay(report, status)

    def replay(self, report, status):
        command = shlex.split(report.replay)
        self.assertEqual(command[:2], ["bazel", "run"])
        self.assertTrue(command[command.index("--") - 1].endswith("//" + PROGRAM.replace("/step", ":step")), command)
        ended, said, traced = run(*command[command.index("--") + 1:])
        self.assertEqual(ended, status)
        again = Report(said)
        self.assertEqual((again.found, again.options, again.hash), (report.found, report.options, report.hash))
        self.assertEqual(again.events, report.events)
        # Long lines are truncated.
        newest = EVENT.findall(traced)[-len(report.events):]
        self.assertEqual([line[:len(kept)] for line, kept in zip(newest, report.events)], report.events)

    def test_a_broken_invariant(self):
        self.fail_and_replay(FORGETFUL_SHARD, 1, "shard ")

    def test_no_progress(self):
        self.fail_and_replay(LOST_SHARD, 1, "no progress: shard dead; ")

    def test_a_failed_check(self):
        self.fail_and_replay(FAILED_CHECK, -signal.SIGABRT, "the process died")

    def test_a_long_trace(self):
        """Only the end of the trace is printed."""
        for seed in range(1, 200):
            ended, said, traced = run(f"--first_seed={seed}", "--seeds=1", f"--bug={FAILED_CHECK}", "--trace",
                                      "--gtest_filter=*KeepsEveryPromise*")
            if ended == 0 or len(EVENT.findall(traced)) <= MOST_EVENTS + 20:
                continue
            report = Report(said)
            self.assertEqual(len(report.events), MOST_EVENTS)
            self.replay(report, -signal.SIGABRT)
            return
        self.fail("no seed has a long trace")

    def test_a_signal(self):
        self.fail_and_replay(SEGMENTATION_FAULT, -signal.SIGSEGV, "the process died")

    def test_seeds_that_do_not_fail_say_nothing(self):
        ended, said, _ = run("--seeds=20", "--gtest_filter=*KeepsEveryPromise*")
        self.assertEqual(ended, 0, said)
        self.assertNotIn("FOUND", said)
        self.assertNotIn("newest events", said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
