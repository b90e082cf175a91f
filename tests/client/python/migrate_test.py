#!/usr/bin/python3
"""Moves a training from torch to Kaon and back. The next step is torch's, in both directions."""

import os
import subprocess
import sys
import tempfile
import unittest
import zipfile
from unittest import mock

import kaon_package  # noqa: F401  (makes kaon importable)
import torch

import kaon
from kaon import migrate

TOLERANCE = 1e-6
ADAMW = {"lr": 0.01, "weight_decay": 0.1, "betas": (0.9, 0.999), "eps": 1e-8}
SGD = {"lr": 0.01, "weight_decay": 0.1, "momentum": 0.9, "dampening": 0.5}


def model_of(seed=1):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 4))
    model.register_buffer("mask", torch.ones(4))
    return model


# Buffers of floats, which nothing in a file tells from parameters.
BUFFERS = ["*.running_mean", "*.running_var", "mask"]


def backward(model, step):
    generator = torch.Generator().manual_seed(step)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def trained(model, optimizers, steps):
    for step in range(1, steps + 1):
        backward(model, step)
        for optimizer in optimizers:
            optimizer.step()


READS_FLOATS = int(torch.__version__.split(".")[0]) >= 2
reads_floats = unittest.skipUnless(READS_FLOATS, "torch.load with weights_only reads no floats before torch 2.0")


class MigrateTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.file = os.path.join(folder.name, "last.pt")

    def assert_equal_weights(self, model, other):
        for (name, ours), theirs in zip(model.named_parameters(), other.parameters()):
            error = (ours - theirs).detach().norm() / theirs.detach().norm()
            self.assertLess(float(error), TOLERANCE, name)

    def continue_in_kaon(self, model, optimizers, step, **fields):
        """Imports the file, makes the step in Kaon and in torch, compares, and returns the new checkpoint's content for
        torch."""
        with kaon.local_cluster(shards=2) as cluster:
            made = migrate.import_torch(self.file, cluster.checkpoint_dir, "start", job="moved", exclude=BUFFERS,
                                        **fields)
            self.assertEqual((made.id, made.job, made.step), ("start", "moved", 0))
            kaon.admin.Cluster().checkpoints.restore("start")
            other = model_of(seed=2)
            attached = kaon.Optimizer(other.named_parameters(), job="moved", **fields)
            self.assert_equal_weights(other, model)
            for one, steps in ((model, optimizers), (other, [attached])):
                backward(one, step)
                for optimizer in steps:
                    optimizer.step()
            self.assertTrue(attached.last_record.applied)
            self.assert_equal_weights(other, model)
            kaon.admin.Cluster().checkpoints.create("back")
            attached.close()
            return migrate.export_torch(cluster.checkpoint_dir, "back", os.path.join(self.folder, "back.pt"))

    def continue_in_torch(self, model, optimizer, step):
        """Makes the step with the optimizer and with another one that the export alone fills, compares, and returns the
        other one."""
        content = torch.load(os.path.join(self.folder, "back.pt"), weights_only=True)
        again = model_of(seed=3)
        self.assertEqual(again.load_state_dict(content["model"], strict=False).unexpected_keys, [])
        continued = type(optimizer)(again.parameters(), lr=1)
        continued.load_state_dict(content["optimizers"][type(optimizer).__name__.lower()])
        for one, stepped in ((model, optimizer), (again, continued)):
            backward(one, step)
            stepped.step()
        self.assert_equal_weights(again, model)
        return continued

    @reads_floats
    def test_adamw_continues_in_kaon_and_again_in_torch(self):
        model = model_of()
        adamw = torch.optim.AdamW(model.parameters(), **ADAMW)
        trained(model, [adamw], 5)
        torch.save({"model": model.state_dict(), "optimizer": adamw.state_dict(), "step": 5}, self.file)
        fields = {"groups": [{"name": "all", "rule": "adamw", "lr": 0.01, "weight_decay": 0.1,
                              "adamw": {"beta2": 0.999}}], "matrix_group": "all", "scalar_group": "all"}
        self.continue_in_kaon(model, [adamw], 6, **fields)
        again = self.continue_in_torch(model, adamw, 7)
        self.assertEqual({key: again.param_groups[0][key] for key in ADAMW}, ADAMW)
        self.assertEqual({int(state["step"]) for state in again.state.values()}, {7})

    @reads_floats
    def test_sgd_with_momentum_continues_in_kaon_and_again_in_torch(self):
        """torch's SGD does not count its steps."""
        model = model_of()
        sgd = torch.optim.SGD(model.parameters(), **SGD)
        trained(model, [sgd], 5)
        torch.save({"model": model.state_dict(), "optimizer": sgd.state_dict()}, self.file)
        fields = {"groups": [{"name": "all", "rule": "sgd", "lr": 0.01, "weight_decay": 0.1,
                              "sgd": {"momentum": 0.9, "dampening": 0.5}}],
                  "matrix_group": "all", "scalar_group": "all"}
        with self.assertWarnsRegex(UserWarning, "schedules restart.*--updates"):
            self.continue_in_kaon(model, [sgd], 6, **fields)
        again = self.continue_in_torch(model, sgd, 7)
        self.assertEqual({key: again.param_groups[0][key] for key in SGD}, SGD)

    @unittest.skipUnless(hasattr(torch.optim, "Muon"), "this torch has no torch.optim.Muon")
    def test_muon_and_adamw_continue_in_kaon_and_again_in_torch(self):
        """The job's momentum is a sum, torch's is not."""
        model = model_of()
        named = dict(model.named_parameters())

        def optimizers_of(model):
            named = dict(model.named_parameters())
            return [torch.optim.Muon([(n, p) for n, p in named.items() if p.ndim == 2], lr=0.02, weight_decay=0.1,
                                     adjust_lr_fn="match_rms_adamw"),
                    torch.optim.AdamW([(n, p) for n, p in named.items() if p.ndim < 2], **ADAMW)]

        optimizers = optimizers_of(model)
        trained(model, optimizers, 5)
        torch.save({"model": {f"module.{name}": value for name, value in model.state_dict().items()},
                    "optimizers": [optimizer.state_dict() for optimizer in optimizers]}, self.file)
        fields = {"groups": [{"name": "matrices", "rule": "muon", "lr": 0.02, "weight_decay": 0.1,
                              "muon": {"momentum_form": "sum"}},
                             {"name": "scalars", "rule": "adamw", "lr": 0.01, "weight_decay": 0.1,
                              "adamw": {"beta2": 0.999}}], "matrix_group": "matrices", "scalar_group": "scalars"}
        global TOLERANCE
        # Newton-Schulz is in bf16 on both sides; without the conversion the error is above 1e-2.
        TOLERANCE, kept = 1e-3, TOLERANCE
        self.addCleanup(globals().__setitem__, "TOLERANCE", kept)
        content = self.continue_in_kaon(model, optimizers, 6, **fields)
        for optimizer, rule in zip(optimizers, ("muon", "adamw")):
            saved = content["optimizers"][rule]
            names = saved["param_groups"][0]["param_names"]
            for index, name in enumerate(names):
                for role, value in saved["state"][index].items():
                    theirs = optimizer.state[named[name]][role]
                    self.assertLess(float((value - theirs).norm() / theirs.norm()), 1e-5, f"{name} {role}")

    def test_momentum_of_muon_continues_in_kaon_and_comes_back(self):
        """The formula of torch.optim.Muon, which older versions of torch lack; the job's momentum is a sum."""
        model = torch.nn.Linear(6, 8, bias=False)
        buffer = torch.zeros(8, 6)
        for step in range(1, 6):
            backward(model, step)
            buffer.lerp_(model.weight.grad, 1 - 0.9)
        torch.save({"model": model.state_dict(), "optimizer": {"state": {0: {"momentum_buffer": buffer}},
                                                               "param_groups": [{"params": [0]}]}}, self.file)
        fields = {"groups": [{"name": "all", "rule": "muon", "lr": 0.02,
                              "muon": {"momentum": 0.9, "momentum_form": "sum"}}],
                  "matrix_group": "all", "scalar_group": "all"}
        with kaon.local_cluster(shards=1) as cluster:
            migrate.import_torch(self.file, cluster.checkpoint_dir, "start", job="moved", updates=5, **fields)
            kaon.admin.Cluster().checkpoints.restore("start")
            optimizer = kaon.Optimizer(model.named_parameters(), job="moved", **fields)
            backward(model, 6)
            optimizer.step()
            kaon.admin.Cluster().checkpoints.create("back")
            optimizer.close()
            content = migrate.export_torch(cluster.checkpoint_dir, "back", os.path.join(self.folder, "back.pt"))
        buffer.lerp_(model.weight.grad, 1 - 0.9)
        exported = content["optimizers"]["muon"]["state"][0]["momentum_buffer"]
        self.assertLess(float((exported - buffer).norm() / buffer.norm()), TOLERANCE)


class ExportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def exported(self, group, id="start", **fields):
        """Returns the optimizers of an export of a job with this group."""
        file = os.path.join(self.folder, "weights.pt")
        torch.save({"weight": torch.ones(4, 3), "bias": torch.ones(4, 1)}, file)
        group = {"name": "all", "lr": 0.5, "weight_decay": 0.25, **group}
        migrate.import_torch(file, self.folder, id, job="job", groups=[group], matrix_group="all", scalar_group="all",
                             **fields)
        return migrate.export_torch(self.folder, id, os.path.join(self.folder, f"{id}.pt"))["optimizers"]

    def test_each_pair_of_multipliers_has_a_param_group(self):
        rule = {"name": "biases", "name_glob": "bias", "lr_multiplier": 2, "weight_decay_multiplier": 0}
        groups = self.exported({"rule": "adamw"}, routing_rules=[rule])["adamw"]["param_groups"]
        self.assertEqual([(group["param_names"], group["params"], group["lr"], group["weight_decay"])
                          for group in groups], [(["weight"], [0], 0.5, 0.25), (["bias"], [1], 1.0, 0.0)])

    def test_names_settings_that_torch_lacks(self):
        refused = [({"rule": "sgd", "decay_mode": "decoupled"}, "decay_mode is DECAY_MODE_DECOUPLED"),
                   ({"rule": "adamw", "decay_mode": "palm"}, "decay_mode is DECAY_MODE_PALM"),
                   ({"rule": "adamw", "adamw": {"eps_mode": "uncorrected"}}, "eps_mode is ADAM_EPS_MODE_UNCORRECTED"),
                   ({"rule": "adamw", "adamw": {"bias_correction": False}}, "bias_correction is False"),
                   ({"rule": "muon", "decay_mode": "l2"}, "decay_mode is DECAY_MODE_L2"),
                   ({"rule": "muon", "muon": {"scale_extra": 2}}, "scale_extra is 2"),
                   *(({"rule": "muon", "muon": {"scale": scale}}, f"scale is UPDATE_SCALE_{scale.upper()}")
                     for scale in ("none", "max_dim", "unit_rms_norm"))]
        for index, (group, words) in enumerate(refused):
            with self.subTest(words), self.assertRaisesRegex(kaon.InvalidArgumentError, f"group all: {words}"):
                self.exported(group, id=f"id{index}")
        # A decay of 0 has no mode.
        self.exported({"rule": "sgd", "decay_mode": "decoupled", "weight_decay": 0})


class ReadTest(unittest.TestCase):
    def setUp(self):
        file = tempfile.NamedTemporaryFile(suffix=".pt")
        self.addCleanup(file.close)
        self.file = file.name

    @reads_floats
    def test_names_what_is_missing_or_does_not_fit(self):
        model = model_of()
        adamw = torch.optim.AdamW([{"params": [p for p in model.parameters() if p.ndim == dims]} for dims in (2, 1)],
                                  lr=0.1)
        trained(model, [adamw], 1)
        torch.save({"net": model.state_dict(), "optimizer": adamw.state_dict()}, self.file)
        with self.assertRaisesRegex(kaon.InvalidArgumentError, "--model-key"):
            migrate.read_torch(self.file)
        with self.assertRaisesRegex(kaon.NotFoundError, "no other; it has net, optimizer"):
            migrate.read_torch(self.file, model_key="other")
        with self.assertRaisesRegex(kaon.InvalidArgumentError, "6 parameters in 2 groups without names.*--names"):
            migrate.read_torch(self.file, model_key="net", exclude=BUFFERS)
        names = [name for name, _ in model.named_parameters()]
        with self.assertRaisesRegex(kaon.InvalidArgumentError, r"exp_avg has shape \[4, 8\], the weights \[8\]"):
            migrate.read_torch(self.file, model_key="net", exclude=BUFFERS, names=names)
        right = sorted(names, key=lambda name: -dict(model.named_parameters())[name].ndim)
        found = migrate.read_torch(self.file, model_key="net", exclude=BUFFERS, names=right)
        self.assertEqual(set(found.state), set(names))
        self.assertEqual(migrate.read_torch(self.file, model_key="net", weights_only=True).state, {})

    def test_takes_tied_weights_once_and_leaves_integers_out(self):
        weight = torch.ones(3, 2)
        torch.save({"a": weight, "b": weight, "n": torch.tensor(1)}, self.file)
        found = migrate.read_torch(self.file)
        self.assertEqual((list(found.weights), found.left_out), (["a"], ("b", "n")))

    @reads_floats
    def test_an_optimizer_that_does_not_count_has_the_updates_of_the_caller_or_at_least_1(self):
        model = torch.nn.Linear(3, 2)
        for momentum in (0.9, 0):
            sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
            trained(model, [sgd], 2)
            torch.save({"model": model.state_dict(), "optimizer": sgd.state_dict()}, self.file)
            tensors = migrate._tensors_of(migrate.read_torch(self.file), 7)
            self.assertEqual(int(tensors["updates_applied:weight"]), 7)
            if momentum:
                with self.assertWarnsRegex(UserWarning, "schedules restart"):
                    tensors = migrate._tensors_of(migrate.read_torch(self.file))
                self.assertEqual(int(tensors["updates_applied:weight"]), 1)
        with self.assertRaisesRegex(kaon.InvalidArgumentError, "updates is 0"):
            migrate.import_torch(self.file, "", "a", job="job", updates=0)

    @unittest.skipIf(READS_FLOATS, "this torch reads floats")
    def test_a_torch_that_reads_no_floats_is_named(self):
        torch.save({"model": {"weight": torch.ones(2)}, "lr": 0.5}, self.file)
        with self.assertRaisesRegex(kaon.InvalidArgumentError, "before torch 2.0 it reads no file with floats"):
            migrate.read_torch(self.file)

    def test_executes_nothing(self):
        class Evil:
            def __reduce__(self):
                return os.mkdir, (self_file + ".executed",)

        self_file = self.file
        torch.save({"model": {"a": torch.ones(2)}, "evil": Evil()}, self.file)
        with self.assertRaisesRegex(kaon.InvalidArgumentError, "weights_only"):
            migrate.read_torch(self.file)
        self.assertFalse(os.path.exists(self.file + ".executed"))

    def test_torch_load_gets_no_torchscript_and_before_2_6_only_zip_archives(self):
        """torch 1.13 passes TorchScript to torch.jit.load, whatever weights_only is."""
        def assert_refused(words):
            with mock.patch.object(torch, "load") as load, self.assertRaisesRegex(kaon.InvalidArgumentError, words):
                migrate.read_torch(self.file)
            load.assert_not_called()

        torch.save({"a": torch.ones(2)}, self.file)
        with zipfile.ZipFile(self.file, "a") as archive:
            archive.writestr("archive/constants.pkl", b"")
        assert_refused("TorchScript")
        weights = {"a": torch.ones(2)}
        torch.save(weights, self.file, _use_new_zipfile_serialization=False)
        with mock.patch.object(torch, "__version__", "2.5.1+cpu"):
            assert_refused("zip archive.*2.6")
        torch.save(weights, self.file)
        with mock.patch.object(torch, "__version__", "1.13.1"):
            self.assertEqual(list(migrate.read_torch(self.file).weights), ["a"])

    @reads_floats
    def test_the_commands_name_state_of_another_rule_and_convert(self):
        model = torch.nn.Linear(3, 2)
        adamw = torch.optim.AdamW(model.parameters())
        trained(model, [adamw], 1)
        torch.save({"model": model.state_dict(), "optimizer": adamw.state_dict()}, self.file)
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "kaon", "import-torch", self.file, "--checkpoint-dir", folder, "--id", "a",
                       "--job", "job", "--lr", "0.1"]
            env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            done = subprocess.run(command + ["--preset", "moonlight"], capture_output=True, text=True, env=env)
            self.assertEqual(done.returncode, 1)
            self.assertIn("parameter 'weight' has some state, but no momentum_buffer", done.stderr)
            done = subprocess.run(command + ["--preset", "adamw"], capture_output=True, text=True, env=env)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("checkpoint a of job job", done.stdout)
            out = os.path.join(folder, "out.pt")
            command = [sys.executable, "-m", "kaon", "export-torch", "a", "--checkpoint-dir", folder, "--out", out]
            done = subprocess.run(command, capture_output=True, text=True, env=env)
            self.assertIn("2 parameters, state of adamw", done.stdout, done.stderr)
            saved = torch.load(out, weights_only=True)
            self.assertTrue(torch.equal(saved["model"]["weight"], model.weight.detach()))
            self.assertTrue(torch.equal(saved["optimizers"]["adamw"]["state"][0]["exp_avg"],
                                        adamw.state[model.weight]["exp_avg"]))
            done = subprocess.run(command, capture_output=True, text=True, env=env)
            self.assertIn("AlreadyExistsError", done.stderr)


if __name__ == "__main__":
    unittest.main()
