#!/usr/bin/python3
"""kaon.admin against a real cluster: state, history, settings and checkpoints as dataclasses, and errors by class."""

import dataclasses
import importlib.util
import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import kaon_package  # noqa: F401  (makes kaon importable)
import numpy

import kaon

cluster = None
job = None


def setUpModule():
    """A job with three steps of known gradients: 3 is the norm of `bias` in the third."""
    global cluster, job
    cluster = kaon.local_cluster(shards=2)
    weights = {"matrix": numpy.ones((4, 3), numpy.float32), "bias": numpy.ones(4, numpy.float32)}
    job = cluster.client().register("admin", weights, preset="moonlight", lr=1e-2)
    worker = job.join(0)
    worker.load_weights(weights)
    for step in range(1, 4):
        gradients = {"matrix": numpy.ones((4, 3), numpy.float32), "bias": numpy.full(4, step / 2, numpy.float32)}
        worker.run_step(step, gradients, weights, loss=10.0 - step)


def tearDownModule():
    cluster.close()


def admin(**options):
    return kaon.admin.Cluster(cluster.endpoints, tls_dir=cluster.tls_dir, **options)


class StateTest(unittest.TestCase):
    def test_status_names_job_shards_and_workers(self):
        status = admin().status()
        self.assertEqual((status.job, status.applied_step, status.holder), ("admin", 3, True))
        self.assertEqual([(shard.shard, shard.connected, shard.applied_step) for shard in status.shards],
                         [(0, True, 3), (1, True, 3)])
        self.assertEqual([worker.rank for worker in status.workers], [0])
        # A key that has no field of its own.
        self.assertEqual(status.shards[0].raw["snapshot_in_progress"], False)
        with self.assertRaises(dataclasses.FrozenInstanceError):
            status.job = "other"

    def test_parameters_have_shape_route_and_updates(self):
        rows = {row.name: row for row in admin().parameters()}
        self.assertEqual((rows["matrix"].shape, rows["matrix"].route, rows["matrix"].group),
                         ((4, 3), "muon", "matrices"))
        self.assertEqual(rows["bias"].updates_applied, 3)
        self.assertEqual([row.name for row in admin().parameters("^bi")], ["bias"])
        self.assertAlmostEqual(admin().parameter_stats("bias").grad_norm, 3)

    def test_a_parameter_has_samples_and_values(self):
        samples = admin().parameter_history("bias")
        self.assertEqual(samples[0].step, 1)
        self.assertAlmostEqual(samples[0].grad_norm, 1, places=6)
        self.assertIsNone(samples[0].stable_rank)
        pulled = job.pull(3)["bias"].tolist()
        self.assertEqual(admin().parameter_read("bias", offset=1), pulled[1:])
        self.assertEqual(len(admin().parameter_read("matrix", "momentum_buffer", count=5)), 5)
        with self.assertRaisesRegex(kaon.NotFoundError, "the parameter has weight, exp_avg, exp_avg_sq"):
            admin().parameter_read("bias", "momentum_buffer")

    def test_steps_are_the_history(self):
        steps = admin().steps()
        self.assertEqual([(step.kind, step.step) for step in steps[:4]],
                         [("load_weights", 0), ("train", 1), ("train", 2), ("train", 3)])
        self.assertEqual((steps[3].loss, steps[3].outcome, steps[3].rates["scalars"]), (7.0, "apply", 0.01))
        self.assertAlmostEqual(steps[3].norms["scalars"].norm, 3)
        self.assertTrue(steps[3].norms["matrices"].exempt)
        self.assertEqual(steps[3].norm_groups["main"].clip_factor, 1)
        self.assertEqual([step.step for step in admin().steps(limit=1)], [steps[-1].step])

    def test_events_and_tiers_are_those_of_each_server(self):
        counts = {(row.server, row.event): row.count for row in admin().events()}
        self.assertEqual(counts["coordinator", "worker_joined"], 1)
        self.assertIn(("shard 1", "promise"), counts)
        tiers = admin().tiers()
        self.assertEqual([(tier.shard, tier.tier, tier.read_bytes) for tier in tiers],
                         [(0, "cpu", None), (1, "cpu", None)])

    def test_the_cluster_of_the_with_is_the_default(self):
        kaon.client.default_clusters.append(cluster)
        self.addCleanup(kaon.client.default_clusters.clear)
        self.assertEqual(kaon.admin.Cluster().status().job, "admin")


class UpdateTest(unittest.TestCase):
    """After StateTest, whose values it changes: classes run in the order of their names."""

    def test_group_set_changes_fields_from_the_next_step_on(self):
        changed = admin().group_set("matrices", {"muon.nesterov": False}, lr=0.25)
        self.assertEqual((changed["lr"], changed["muon"]["nesterov"]), (0.25, False))
        self.assertEqual(admin().steps(limit=1)[0].kind, "group_change")
        with self.assertRaisesRegex(kaon.NotFoundError, "biases"):
            admin().group_set("biases", lr=0.25)
        with self.assertRaisesRegex(kaon.InvalidArgumentError, "learning"):
            admin().group_set("matrices", learning=0.25)

    def test_checkpoints_are_made_listed_verified_restored_and_deleted(self):
        checkpoints = admin().checkpoints
        made = checkpoints.create("first")
        self.assertEqual((made.id, made.job, made.step), ("first", "admin", 3))
        self.assertEqual([row.id for row in checkpoints.list()], ["first"])
        self.assertEqual(checkpoints.verify("first").state_digest, made.state_digest)
        with self.assertRaises(kaon.AlreadyExistsError):
            checkpoints.create("first")
        with self.assertRaisesRegex(kaon.NotFoundError, "second"):
            checkpoints.verify("second")
        restored = checkpoints.restore("first")
        self.assertEqual((restored.checkpoint.id, restored.timeline), ("first", 2))
        with self.assertRaises(kaon.FailedPreconditionError):
            checkpoints.restore("first", expect_step=99)
        checkpoints.create("second")
        self.assertEqual(kaon.checkpoint("third", endpoints=cluster.endpoints, tls_dir=cluster.tls_dir).id, "third")
        self.assertEqual(checkpoints.delete("second").id, "second")
        self.assertEqual([row.id for row in checkpoints.list()], ["third", "first"])


class DoctorTest(unittest.TestCase):
    def doctor(self, *arguments):
        package = os.path.dirname(os.path.dirname(kaon.__file__))
        return subprocess.run([sys.executable, "-m", "kaon", "doctor", *arguments], capture_output=True, text=True,
                              check=False, env={**os.environ, "PYTHONPATH": package})

    def test_a_healthy_cluster_is_described_on_one_screen(self):
        done = self.doctor("--endpoints", cluster.endpoints, "--tls-dir", cluster.tls_dir, "--job", "admin")
        self.assertEqual(done.returncode, 0, done.stdout)
        for line in (rf"package +kaon {kaon.__version__}, Python .*, numpy .*, torch ",
                     rf"library +{os.environ['KAON_LIBRARY']}, Kaon {kaon.library_version()}",
                     r"programs +local clusters by .*local_cluster.sh",
                     r"certificate +.*/ca.crt: until .*", r"certificate +.*/worker.crt: until .*",
                     r"cluster +answers after \d+ ms",
                     r"nccl +not used: no tensor may be on device 0, .*nccl is empty",
                     r"job +admin: step \d+, timeline \d+, 2 parameters; a round trip takes [\d.]+ ms"):
            self.assertRegex(done.stdout, f"(?m)^{line}")
        self.assertLess(len(done.stdout.splitlines()), 25)

    def test_the_environment_may_name_the_cluster_and_the_cluster_names_its_job(self):
        with mock.patch.dict(os.environ, KAON_ENDPOINTS=cluster.endpoints, KAON_TLS_DIR=cluster.tls_dir):
            done = self.doctor()
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r"(?m)^certificate +.*/worker.crt: until .*")
        self.assertRegex(done.stdout, r'(?m)^job +.*the job here is "admin"; a round trip takes [\d.]+ ms$')

    def test_what_is_wrong_is_named_and_the_rest_is_checked(self):
        done = self.doctor("--endpoints", "127.0.0.1:1", "--tls-dir", cluster.tls_dir, "--timeout", "0.5")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"(?m)^certificate +.*until .*")
        self.assertRegex(done.stdout, r"(?m)^cluster +FAILED: UnavailableError: .*127.0.0.1:1: UNAVAILABLE: .*refused")
        done = self.doctor("--endpoints", cluster.endpoints, "--tls-dir", cluster.tls_dir, "--nccl", "nowhere")
        self.assertRegex(done.stdout, "(?m)^nccl +not used: .*nowhere")
        done = self.doctor("--endpoints", cluster.endpoints, "--tls-dir", "/nowhere")
        self.assertRegex(done.stdout, r"(?m)^cluster +FAILED: NotFoundError: .*/nowhere/ca.crt")


class CommandTest(unittest.TestCase):
    def test_the_command_of_the_package_becomes_kaonctl(self):
        script = "import kaon_package; from kaon import _kaonctl; _kaonctl.main()"
        arguments = ["--dir", str(cluster.directory), "job", "delete", "--yes", "another"]
        done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False,
                              env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.abspath(__file__))})
        self.assertEqual(done.returncode, 3)
        self.assertIn("another", done.stderr)


class ErrorsTest(unittest.TestCase):
    def test_a_cluster_that_is_down_is_unavailable(self):
        with self.assertRaises(kaon.UnavailableError) as raised:
            kaon.admin.Cluster("127.0.0.1:1", tls_dir=cluster.tls_dir, timeout=0.5).status()
        self.assertIn("127.0.0.1:1", str(raised.exception))

    def test_missing_certificates_are_named(self):
        with self.assertRaisesRegex(kaon.Error, "/nowhere"):
            kaon.admin.Cluster(cluster.endpoints, tls_dir="/nowhere").status()

    def test_another_job_is_not_found(self):
        with self.assertRaisesRegex(kaon.NotFoundError, "another"):
            admin(job="another").steps()

    def test_a_part_of_an_answer_is_kept_in_the_error(self):
        """A stand-in for kaonctl: a shard that is away would cost seconds."""
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "kaonctl")
            answer = json.dumps({"parameters": []})
            error = json.dumps({"error": {"code": "UNAVAILABLE", "message": "shard 1", "exit_status": 4}}, indent=2)
            with open(program, "w", encoding="utf-8") as file:
                file.write(f"#!/bin/sh\necho '{answer}'\necho a line of a log with {{braces}} >&2\necho '{error}' >&2\nexit 4\n")
            os.chmod(program, stat.S_IRWXU)
            with mock.patch.dict(os.environ, KAON_BINARIES=folder):
                with self.assertRaises(kaon.UnavailableError) as raised:
                    admin().parameters()
        self.assertEqual((raised.exception.message, raised.exception.partial), ("shard 1", {"parameters": []}))

    def test_without_pandas_the_error_names_it(self):
        with mock.patch.dict(sys.modules, pandas=None):
            with self.assertRaisesRegex(kaon.FailedPreconditionError, "pip install pandas"):
                admin().steps().to_pandas()

    @unittest.skipUnless(importlib.util.find_spec("pandas"), "pandas is not installed")
    def test_a_table_becomes_a_frame_with_a_column_for_each_value(self):
        frame = admin().steps().to_pandas()
        third = frame[frame["step"] == 3].iloc[0]
        self.assertEqual((third["loss"], third["rates.scalars"]), (7.0, 0.01))
        self.assertAlmostEqual(third["norms.scalars.norm"], 3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
