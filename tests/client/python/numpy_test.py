#!/usr/bin/python3
"""Trains through a real cluster with numpy alone, and compares with float64 rules; then what users do wrong."""

import gc
import glob
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings
from unittest import mock

import kaon_package
import float64_rules
import numpy

import kaon

NUM_STEPS = 20
# Of Muon with fp32 Newton-Schulz over 20 steps ([N9] has 1e-5 for one call), and of AdamW.
MUON_TOLERANCE, ADAMW_TOLERANCE = 5e-5, 1e-5

cluster = None


def setUpModule():
    global cluster
    cluster = kaon.local_cluster(shards=2)


def tearDownModule():
    cluster.close()


def listens(host, port):
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def relative_error(value, wanted):
    return numpy.linalg.norm(value - wanted) / numpy.linalg.norm(wanted)


def loss_and_gradients(weights, seed):
    """Loss of a regression with one hidden layer, and its gradients in float32."""
    generator = numpy.random.default_rng(seed)
    x = generator.standard_normal((64, 12))
    y = numpy.sin(x @ numpy.arange(1, 13) / 10)[:, None]
    hidden = numpy.tanh(x @ weights["hidden.weight"].T.astype(float) + weights["hidden.bias"])
    error = hidden @ weights["last.weight"].T.astype(float) + weights["last.bias"] - y
    d_error = 2 * error / len(x)
    d_hidden = d_error @ weights["last.weight"] * (1 - hidden**2)
    gradients = {"hidden.weight": d_hidden.T @ x, "hidden.bias": d_hidden.sum(0),
                 "last.weight": d_error.T @ hidden, "last.bias": d_error.sum(0)}
    return float((error**2).mean()), {name: value.astype(numpy.float32) for name, value in gradients.items()}


def initial_weights():
    generator = numpy.random.default_rng(1)
    shapes = {"hidden.weight": (16, 12), "hidden.bias": (16,), "last.weight": (1, 16), "last.bias": (1,)}
    return {name: generator.standard_normal(shape).astype(numpy.float32) * 0.3 for name, shape in shapes.items()}


GROUPS = [{"name": "matrices", "rule": "muon", "lr": 0.02, "weight_decay": 0.1, "muon": {"ns_dtype": "float32"}},
          {"name": "scalars", "rule": "adamw", "lr": 0.01, "weight_decay": 0.1}]
DEFINITION = {"groups": GROUPS, "matrix_group": "matrices", "scalar_group": "scalars"}


class TrainingTest(unittest.TestCase):
    """One job for the cluster: its tests run in the order of their names."""

    def setUp(self):
        self.client = cluster.client()
        self.addCleanup(self.client.close)

    def register(self):
        return self.client.register("numpy", initial_weights(), **DEFINITION)

    def test_1_trains_as_float64_rules_do(self):
        weights = initial_weights()
        job = self.register()
        self.assertEqual({p.name: p.group for p in job.parameters}["hidden.weight"], "matrices")
        worker = job.join(0)
        worker.load_weights(weights)
        self.assertEqual(job.wait_for_weights(), 0)
        rules = {p.name: (float64_rules.Muon(0.02) if p.group == "matrices" else float64_rules.AdamW(0.01))
                 for p in job.parameters}
        wanted = {name: value.astype(float) for name, value in weights.items()}
        first = None
        for step in range(1, NUM_STEPS + 1):
            loss, gradients = loss_and_gradients(weights, step)
            first = first or loss
            # As a scheduler would.
            factors = {"scalars": 1 - step / 40}
            record = worker.run_step(step, gradients, weights, loss=loss, group_multipliers=factors)
            self.assertEqual((record.step, record.applied, record.ranks, record.loss), (step, True, (0,), loss))
            self.assertAlmostEqual(record.groups["scalars"].norm, numpy.sqrt(sum(
                (gradients[p.name].astype(float)**2).sum() for p in job.parameters if p.group == "scalars")), places=5)
            for parameter in job.parameters:
                wanted[parameter.name] = rules[parameter.name].step(
                    wanted[parameter.name], gradients[parameter.name].astype(float), factors.get(parameter.group, 1))
        for parameter in job.parameters:
            tolerance = MUON_TOLERANCE if parameter.group == "matrices" else ADAMW_TOLERANCE
            error = relative_error(weights[parameter.name], wanted[parameter.name])
            print(f"{parameter.name}: relative error {error:.1e}, at most {tolerance}")
            self.assertLess(error, tolerance, parameter.name)
        self.assertLess(loss_and_gradients(weights, 1)[0], first)
        pulled = job.pull(NUM_STEPS)
        self.assertTrue(all((pulled[name] == weights[name]).all() for name in weights))
        self.assertEqual(job.refresh(), kaon.Progress(1, NUM_STEPS, True))

    def test_2_attaches_and_pulls_in_other_dtypes_and_layouts(self):
        job = self.client.attach("numpy")
        whole = job.pull(NUM_STEPS)
        half = {"hidden.weight": numpy.zeros((12, 16), numpy.float16).T, "last.bias": numpy.zeros(1, numpy.float32)}
        job.pull(NUM_STEPS, half)
        self.assertTrue((half["hidden.weight"] == whole["hidden.weight"].astype(numpy.float16)).all())
        self.assertEqual(half["last.bias"], whole["last.bias"])
        self.assertGreater(self.client.transfer_totals()["pull_bytes"], 0)

    def test_3_names_what_is_wrong_with_a_gradient_and_the_step_can_be_retried(self):
        worker = self.client.attach("numpy").join(0)
        with worker.begin(NUM_STEPS + 1) as step:
            with self.assertRaisesRegex(kaon.InvalidArgumentError, r"hidden.bias: shape is \[3\], expecting \[16\]"):
                step.push("hidden.bias", numpy.zeros(3, numpy.float32))
            with self.assertRaisesRegex(kaon.InvalidArgumentError, "no parameter hidden.wieght"):
                step.push("hidden.wieght", numpy.zeros((16, 12), numpy.float32))
            step.push("hidden.bias", numpy.full(16, 2, numpy.float32))
        # The closed step does not count.
        with self.assertRaisesRegex(kaon.FailedPreconditionError, f"{NUM_STEPS + 1}"):
            worker.begin(NUM_STEPS + 5)
        gradient = numpy.ones(16, numpy.float32)
        gradient[3] = numpy.nan
        record = worker.run_step(NUM_STEPS + 1, {"hidden.bias": gradient})
        self.assertFalse(record.applied)
        self.assertIn("hidden.bias", record.reason)
        self.assertIsNone(record.grad_norm)

    def test_4_refuses_another_model_and_an_unknown_field(self):
        other = initial_weights()
        other["hidden.bias"] = other["hidden.bias"][:5]
        with self.assertRaisesRegex(kaon.AlreadyExistsError, r"parameters\[1\].shape\[0\]: 16 -> 5"):
            self.client.register("numpy", other, **DEFINITION)
        with self.assertRaisesRegex(kaon.InvalidArgumentError, "learning_rate"):
            self.client.register("numpy", other, learning_rate=1)
        with self.assertRaises(kaon.NotFoundError):
            self.client.attach("another")

    def test_5_a_replaced_rank_is_told(self):
        job = self.client.attach("numpy")
        worker = job.join(0)
        step = worker.begin(job.refresh().applied_step + 1)
        job.join(0)
        with self.assertRaises(kaon.AbortedError):
            step.finish()

    def test_6_a_forked_child_is_refused_and_ends(self):
        job = self.client.attach("numpy")
        step = job.join(0).begin(job.refresh().applied_step + 1)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                cluster.client()
            except kaon.FailedPreconditionError as error:
                status = 2 if "forked after its parent connected" not in str(error) else 0
            try:
                # A result that never comes.
                step.finish()
                status = 4
            except kaon.FailedPreconditionError:
                pass
            try:
                job.refresh()
                status = 3
            except kaon.FailedPreconditionError:
                pass
            os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertTrue(job.refresh().weights_loaded)


class ConnectTest(unittest.TestCase):
    def test_a_cluster_that_is_down_is_named(self):
        with self.assertRaisesRegex(kaon.UnavailableError, "127.0.0.1:1") as raised:
            kaon.Client("127.0.0.1:1", call_deadline=0.3)
        self.assertTrue(raised.exception.retriable)

    def test_missing_certificates_are_named(self):
        with self.assertRaisesRegex(kaon.NotFoundError, "/nowhere/ca.crt"):
            kaon.Client(cluster.endpoints, tls_dir="/nowhere")

    def test_expired_certificates_and_those_of_another_cluster_are_named(self):
        with tempfile.TemporaryDirectory() as directory:
            script = [kaon.cluster.find_programs()[0].parent / "certificates.sh", directory, "--workers", "any"]
            subprocess.run(script, stdout=subprocess.DEVNULL, check=True)
            with self.assertRaisesRegex(kaon.UnavailableError, "certificate verify failed"):
                kaon.Client(cluster.endpoints, tls_dir=directory, call_deadline=1)
            library, = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
            subprocess.run(script, stdout=subprocess.DEVNULL, check=True,
                           env={**os.environ, "LD_PRELOAD": library, "FAKETIME": "-3d"})
            with self.assertRaisesRegex(kaon.FailedPreconditionError, r"ca\.crt' expired on "):
                kaon.Client(cluster.endpoints, tls_dir=directory)

    def test_a_cluster_that_dies_in_training_is_unavailable_and_the_error_says_what_was_tried(self):
        with kaon.local_cluster(shards=1) as own, own.client(step_deadline=1, call_deadline=1) as client:
            weights = {"w": numpy.ones(3, numpy.float32)}
            job = client.register("gone", weights, preset="adamw")
            worker = job.join(0)
            worker.load_weights(weights)
            worker.run_step(1, weights)
            for name in ("coordinator", "shard-0"):
                os.kill(int((own.directory / f"{name}.pid").read_text()), signal.SIGKILL)
            tried = rf"waited 1s for a coordinator to .*, \d+ (try|tries); {own.endpoints}: UNAVAILABLE: .*refused"
            for words, call in (
                    ("step 2 was not decided within 1s", lambda: worker.run_step(2, weights)),
                    ("pull of step 1 from shard 0 in 1s; last error: UNAVAILABLE", lambda: job.pull(1)),
                    ("waited .* for weights of job gone", lambda: job.wait_for_weights(0.5)),
                    ("no coordinator let rank 0 join", lambda: job.join(0)),
                    ("", lambda: worker.begin(7)),
                    ("", job.refresh),
                    ("", lambda: client.attach("gone")),
                    ("", lambda: client.register("gone", weights, preset="adamw"))):
                with self.assertRaisesRegex(kaon.UnavailableError, f"^{words}.*{tried}") as raised:
                    call()
                self.assertTrue(raised.exception.retriable)

    def test_a_shard_that_does_not_answer_is_named(self):
        with kaon.local_cluster(shards=1) as own, own.client(step_deadline=3, call_deadline=3) as client:
            weights = {"w": numpy.ones(3, numpy.float32)}
            job = client.register("gone", weights, preset="adamw")
            worker = job.join(0)
            worker.load_weights(weights)
            shard = int((own.directory / "shard-0.pid").read_text())
            try:
                kaon_package.stop(shard)
                # Unavailable once the coordinator has missed the shard, too.
                for words, call in (("step 1 was not decided within 3s: .*shard 0", lambda: worker.run_step(1, weights)),
                                    ("shard 0", lambda: job.pull(0))):
                    with self.assertRaisesRegex((kaon.DeadlineExceededError, kaon.UnavailableError), words):
                        call()
            finally:
                os.kill(shard, signal.SIGCONT)

    def test_a_rank_that_is_late_is_not_a_cluster_that_is_down(self):
        with kaon.local_cluster(shards=1) as own, own.client(step_deadline=1) as client:
            weights = {"w": numpy.ones(3, numpy.float32)}
            job = client.register("late", weights, preset="adamw", world_size=2)
            worker = job.join(0)
            with self.assertRaisesRegex(kaon.DeadlineExceededError, "waited .* for weights of job late"):
                job.wait_for_weights(0.2)
            worker.load_weights(weights)
            with self.assertRaisesRegex(kaon.DeadlineExceededError, "step 1 .* within 1s: .*every rank must begin"):
                worker.run_step(1, weights)

    def test_a_missing_gradient_leaves_the_parameter_or_counts_as_zeros(self):
        for policy, wanted in (("skip", 1), ("zero", 0.95)):
            with kaon.local_cluster(shards=1) as own, own.client() as client:
                weights = {name: numpy.ones(2, numpy.float32) for name in ("given", "missing")}
                job = client.register("policy", weights, scalar_group="all", groups=[
                    {"name": "all", "rule": "sgd", "lr": 0.5, "weight_decay": 0.1, "missing_gradient": policy}])
                worker = job.join(0)
                worker.load_weights(weights)
                worker.run_step(1, {"given": numpy.ones(2, numpy.float32)}, weights)
                numpy.testing.assert_allclose(weights["given"], 0.45, err_msg=policy)
                numpy.testing.assert_allclose(weights["missing"], wanted, err_msg=policy)

    def test_on_rewind_may_collect_a_step_that_nothing_refers_to(self):
        threads = []

        def on_rewind(*_):
            threads.append(threading.get_ident())
            gc.collect()
        weights = {"w": numpy.zeros(3, numpy.float32)}
        with kaon.local_cluster(shards=1) as own, own.client(on_rewind=on_rewind) as client:
            job = client.register("rewound", weights, preset="adamw", world_size=2)
            first, second = job.join(0), job.join(1)
            first.load_weights(weights)
            own.kaonctl("checkpoint", "create", "first")
            own.kaonctl("checkpoint", "restore", "--yes", "first")
            gc.disable()
            self.addCleanup(gc.enable)
            step = second.begin(1)
            step.itself = step
            del step
            with self.assertRaises(kaon.FailedPreconditionError):
                first.run_step(1, weights)
        self.assertNotIn(threading.get_ident(), threads)
        self.assertEqual(len(threads), 1)

    def test_the_innermost_cluster_is_the_default(self):
        with self.assertRaisesRegex(kaon.InvalidArgumentError, "KAON_ENDPOINTS"):
            kaon.Client()
        kaon.client.default_clusters.append(cluster)
        self.addCleanup(kaon.client.default_clusters.clear)
        kaon.Client().close()

    def test_a_rank_has_its_own_certificate_in_the_directory_of_the_environment(self):
        with tempfile.TemporaryDirectory() as directory:
            for name, file in (("ca.crt", "ca.crt"), ("worker.crt", "worker-1.crt"), ("worker.key", "worker-1.key")):
                shutil.copy(os.path.join(cluster.tls_dir, name), os.path.join(directory, file))
            with mock.patch.dict(os.environ, KAON_ENDPOINTS=cluster.endpoints, KAON_TLS_DIR=directory):
                kaon.Client(rank=1).close()
                with self.assertRaisesRegex(kaon.NotFoundError, "worker.crt"):
                    kaon.Client(rank=2)

    def test_a_closed_client_says_so_and_leaves_no_thread_and_no_file(self):
        def count(what):
            return len(os.listdir(f"/proc/self/{what}"))

        client = cluster.client()
        client.close()
        client.close()
        with self.assertRaisesRegex(kaon.FailedPreconditionError, "closed"):
            client.attach("numpy")
        before = count("task"), count("fd")
        for _ in range(100):
            cluster.client().close()
        # gRPC has a few threads of its own that come and go.
        self.assertLess(count("task"), before[0] + 20)
        self.assertLess(count("fd"), before[1] + 20)

    def test_a_local_cluster_that_cannot_start_says_why(self):
        with self.assertRaisesRegex(kaon.UnavailableError, "already has a running cluster"):
            kaon.local_cluster(directory=str(cluster.directory))


# Blocks for ten minutes unless it is interrupted. Calls to a coordinator that is stopped do.
INTERRUPTED = """
import sys
import threading
import kaon_package, kaon, numpy
what, endpoints, tls_dir, coordinator = sys.argv[1:]
weights = {"w": numpy.zeros(3, numpy.float32)}
client = kaon.Client(endpoints, tls_dir=tls_dir, call_deadline=600)
job = client.register("two-ranks", weights, preset="adamw", world_size=2)
if what == "begin":
    worker = job.join(0)
if what in ("join", "begin", "refresh", "register"):
    kaon_package.stop(int(coordinator))
if what == "finish":
    worker = job.join(0)
    worker.load_weights(weights)
    step = worker.begin(1)
    step.push("w", weights["w"])
gate = threading.Event()
def tell():
    gate.wait()
    print("waiting", flush=True)
threading.Thread(target=tell).start()
# So the other thread runs, and prints, once this one has released the GIL in the call below.
sys.setswitchinterval(1000)
try:
    gate.set()
    if what == "connect":
        kaon.Client("127.0.0.1:1", call_deadline=600)
    elif what == "weights":
        job.wait_for_weights(600)
    elif what == "refresh":
        job.refresh()
    elif what == "register":
        with client:
            client.register("two-ranks", weights, preset="adamw", world_size=2)
    elif what == "join":
        job.join(0)
    elif what == "begin":
        # The library expects 1, and asks.
        worker.begin(7)
    else:
        step.finish()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


class InterruptTest(unittest.TestCase):
    def test_ctrl_c_ends_waits_and_leaves_no_hang(self):
        path = os.path.dirname(os.path.abspath(__file__))
        with kaon.local_cluster(shards=1) as own:
            # The job has no weights before the last one.
            coordinator = (own.directory / "coordinator.pid").read_text().strip()
            for what in ("connect", "weights", "refresh", "register", "join", "begin", "finish"):
                command = [sys.executable, "-c", INTERRUPTED, what, own.endpoints, own.tls_dir, coordinator]
                process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                                           env={**os.environ, "PYTHONPATH": path})
                try:
                    self.assertEqual(process.stdout.readline(), "waiting\n", what)
                    process.send_signal(signal.SIGINT)
                    self.assertEqual(process.communicate(timeout=120)[0], "interrupted\n", what)
                finally:
                    process.kill()
                    os.kill(int(coordinator), signal.SIGCONT)
                self.assertEqual(process.returncode, 0, what)

    def test_a_step_whose_begin_or_finish_was_interrupted_is_begun_again_at_once(self):
        def interrupted(function):
            """Ctrl-C comes when the library has done what the function asks for."""
            library = kaon._library.library()
            real = getattr(library, function)

            def call(*arguments):
                status = real(*arguments)
                signal.raise_signal(signal.SIGINT)
                return status
            return mock.patch.object(library, function, call)

        weights = {"w": numpy.zeros(3, numpy.float32)}
        with kaon.local_cluster(shards=1) as own, own.client() as client:
            # The other rank is missing, so no step is decided.
            worker = client.register("two-ranks", weights, preset="adamw", world_size=2).join(0)
            worker.load_weights(weights)
            # So begin() asks no coordinator, and calls the library on this thread.
            worker._decided_step = 0
            with self.assertRaises(KeyboardInterrupt), interrupted("kaon_worker_begin"):
                worker.begin(1)
            with self.assertRaises(KeyboardInterrupt), worker.begin(1) as step:
                step.push_all(weights)
                with interrupted("kaon_step_finish"):
                    step.finish()
            worker.begin(1).close()

    def test_a_directory_with_files_of_others_is_refused_and_left_alone(self):
        with tempfile.TemporaryDirectory() as directory:
            other = os.path.join(directory, "shard-000.tar")
            open(other, "w").close()
            with self.assertRaisesRegex(kaon.FailedPreconditionError, "has files of others"):
                kaon.local_cluster(directory=directory)
            self.assertEqual(os.listdir(directory), ["shard-000.tar"])

    def test_a_cluster_ends_while_a_forked_child_lives(self):
        released, release = os.pipe()
        own = kaon.local_cluster(shards=1)
        child = os.fork()
        if child == 0:
            os.close(release)
            os.read(released, 1)
            os._exit(0)
        with warnings.catch_warnings():
            # Otherwise it is killed, with a warning.
            warnings.simplefilter("error", RuntimeWarning)
            own.close()
        os.close(release)
        os.waitpid(child, 0)

    def test_the_servers_end_with_their_process(self):
        script = "import kaon_package, kaon, os; print(kaon.local_cluster(shards=1).endpoints, flush=True); os._exit(0)"
        process = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True,
                                 env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.abspath(__file__))})
        host, port = process.stdout.strip().split(":")
        deadline = time.monotonic() + 60
        while listens(host, int(port)):
            self.assertLess(time.monotonic(), deadline, "the coordinator still listens")
            time.sleep(0.05)


if __name__ == "__main__":
    unittest.main(verbosity=2)
