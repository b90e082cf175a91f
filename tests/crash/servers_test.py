#!/usr/bin/env python3
"""Tests of servers.py without any server."""

import contextlib
import io
import json
import os
import socket
import sys
import tempfile
import types
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import servers  # noqa: E402  (found beside this file)

DESCRIBED = {"shard": 0, "connected": True, "applied_position": 7, "snapshot_problem": ""}
LISTED = {"shard": 1, "connected": False, "problem": "not connected"}


class LeaveOutTest(unittest.TestCase):
    def run_suite(self, environment):
        """Returns (exit status, output) of a suite that finds no strace."""
        said = io.StringIO()
        variables = {name: value for name, value in os.environ.items() if name not in ("KAON_SKIPS_FAIL", "KAON_ALLOW_SKIPS")}
        with mock.patch.dict(os.environ, {**variables, **environment}, clear=True), mock.patch.object(servers, "LEFT_OUT", []):
            with contextlib.redirect_stdout(said):
                try:
                    servers.run_suite("kaon-none.", lambda folder: servers.leave_out("failing disks", "no strace"))
                except SystemExit as end:
                    return end.code, said.getvalue()
        return 0, said.getvalue()

    def test_says_why_in_every_run(self):
        status, said = self.run_suite({})
        self.assertEqual((status, said), (0, "failing disks: not run: no strace\npassed, without failing disks\n"))

    def test_fails_in_a_nightly_suite(self):
        status, said = self.run_suite({"KAON_SKIPS_FAIL": "1"})
        self.assertEqual(status, 1)
        self.assertIn("FAILED: failing disks: not run (KAON_ALLOW_SKIPS=1 would allow that): no strace", said)

    def test_but_not_where_that_is_allowed(self):
        self.assertEqual(self.run_suite({"KAON_SKIPS_FAIL": "1", "KAON_ALLOW_SKIPS": "1"})[0], 0)
        self.assertEqual(self.run_suite({"KAON_SKIPS_FAIL": "1", "KAON_ALLOW_SKIPS": "0"})[0], 1)


class FreePortsTest(unittest.TestCase):
    def setUp(self):
        self.listener = socket.socket()
        self.addCleanup(self.listener.close)
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen()
        self.free = servers.free_ports(2)

    def draw(self, count, *draws):
        left = iter(draws)
        with mock.patch.object(servers.random, "SystemRandom") as source:
            source.return_value.choice = lambda *_: next(left)
            return servers.free_ports(count)

    def test_gives_none_twice_though_nobody_listens_on_it_yet(self):
        first, second = self.free
        self.assertEqual(self.draw(2, first, first, second), [first, second])

    def test_gives_none_on_which_somebody_listens(self):
        self.assertEqual(self.draw(1, self.listener.getsockname()[1], self.free[0]), self.free[:1])


class DescribedShardsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cluster = servers.Cluster(os.path.join(folder.name, "cluster"), folder.name)

    def answer(self, *answers):
        """Makes kaonctl give these answers one after the other, and then repeat the last one."""
        left = list(answers)

        def kaonctl(*_):
            status, shards = left.pop(0) if len(left) > 1 else left[0]
            text = shards if isinstance(shards, str) else json.dumps({"shards": shards})
            return types.SimpleNamespace(returncode=status, stdout=text.encode())

        self.cluster.kaonctl = kaonctl

    def test_waits_until_every_shard_is_listed_with_its_facts(self):
        whole = [DESCRIBED, {**DESCRIBED, "shard": 1}]
        self.answer((1, "UNAVAILABLE"), (0, [DESCRIBED, LISTED]), (0, [DESCRIBED]), (0, whole))
        self.assertEqual(self.cluster.described_shards(), whole)
        self.answer((0, [DESCRIBED, LISTED]), (0, whole))
        self.cluster.check_snapshots()

    def test_a_snapshot_that_a_start_passed_over_is_a_failure(self):
        self.answer((0, [DESCRIBED, {**DESCRIBED, "shard": 1, "snapshot_problem": "damaged"}]))
        with self.assertRaisesRegex(servers.Failure, "shard 1: damaged"):
            self.cluster.check_snapshots()

    def test_says_what_it_waited_for(self):
        ends = iter([0, 31])
        with mock.patch.object(servers.time, "monotonic", lambda: next(ends)):
            self.answer((0, [DESCRIBED, LISTED]))
            with self.assertRaisesRegex(servers.Failure, "every shard described by kaonctl status, which says .*not connected"):
                self.cluster.described_shards()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
