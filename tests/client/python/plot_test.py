#!/usr/bin/python3
"""kaon.plot: what it draws of a history, where matplotlib is installed; and its errors."""

import importlib.util
import io
import sys
import unittest
from unittest import mock

import kaon_package  # noqa: F401  (makes kaon importable)

import kaon
from kaon import admin


def step(number, **fields):
    row = {"position": number, "kind": "train", "step": number, "outcome": "apply", "loss": 9.0 / number,
           "grad_norm": 5.0, "rates": {"matrices": 0.01, "scalars": 0.02},
           "norms": [{"group": "matrices", "norm": 3.0, "exempt": True, "clip_factor": 1.0},
                     {"group": "scalars", "norm": 4.0, "exempt": False, "clip_factor": 0.5}]}
    row.update(fields)
    return admin._row(admin.Step, row)


HISTORY = [step(1, kind="load_weights"), step(2), step(3, outcome="skip", loss=None, grad_norm=None, norms=[]), step(4)]


class PlotTest(unittest.TestCase):
    def test_without_matplotlib_the_error_names_it(self):
        with mock.patch.dict(sys.modules, matplotlib=None):
            with self.assertRaisesRegex(kaon.FailedPreconditionError, "pip install matplotlib"):
                kaon.plot.history(HISTORY)

    def test_a_history_without_a_step_is_refused(self):
        with self.assertRaisesRegex(kaon.InvalidArgumentError, "no train step"):
            kaon.plot.history(HISTORY[:1])

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "matplotlib is not installed")
    def test_draws_a_panel_for_each_value_and_a_gap_for_a_skipped_step(self):
        figure = kaon.plot.history(HISTORY, {"bias": 0.01, "matrix": 0.002})
        panels = {axes.get_title(): axes for axes in figure.axes}
        self.assertEqual(list(panels), ["loss", "gradient norm", "clip factor", "learning rate",
                                        "update / weight of the newest update"])
        loss = panels["loss"].lines[0]
        self.assertEqual(list(loss.get_xdata()), [2, 3, 4])
        self.assertEqual([str(value) for value in loss.get_ydata()], ["4.5", "nan", "2.25"])
        # A line for each group, and one that marks the skipped step.
        self.assertEqual([line.get_label() for line in panels["clip factor"].lines][:2], ["matrices", "scalars"])
        self.assertEqual(list(panels["clip factor"].lines[2].get_xdata()), [3, 3])
        self.assertEqual([patch.get_width() for patch in panels["update / weight of the newest update"].patches],
                         [0.01, 0.002])
        file = io.BytesIO()
        figure.savefig(file)
        self.assertGreater(file.tell(), 10000)

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "matplotlib is not installed")
    def test_asks_a_cluster_for_the_ratios_of_its_largest_parameters(self):
        cluster = mock.create_autospec(admin.Cluster, instance=True)
        rows = {"small": ([2], "adamw"), "large": ([8, 8], "muon"), "frozen": ([99, 99], "frozen")}
        cluster.parameters.return_value = admin.Table(
            admin._row(admin.Parameter, {"name": name, "shape": shape, "route": route})
            for name, (shape, route) in rows.items())
        cluster.parameter_stats.side_effect = lambda name: admin._row(
            admin.ParameterStats, {"name": name, "update_to_weight_ratio": 0.5})
        cluster.steps.return_value = HISTORY
        figure = kaon.plot.training(cluster, num_parameters=1)
        self.assertEqual([text.get_text() for text in figure.axes[-1].get_yticklabels()], ["large"])


if __name__ == "__main__":
    if importlib.util.find_spec("matplotlib") is None:
        print("SKIPPED: drawing, because matplotlib is not installed for /usr/bin/python3")
    unittest.main()
