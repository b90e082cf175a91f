#!/usr/bin/python3
"""AdamW, Adam and SGD step as torch.optim's do in float64: 20 updates in many settings, weights and state within 1e-6.
Debian's interpreter runs it, for which python3-torch is installed."""

import itertools
import json
import subprocess
import unittest

import torch

TRAJECTORY = "tests/torch/element_wise_trajectory"
NUM_UPDATES = 20
NUM_ELEMENTS = 257
TOLERANCE = 1e-6


def inputs(seed):
    """Returns fp32 weights and gradients. The size of the gradients rises and falls, so that amsgrad matters."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(NUM_ELEMENTS, generator=generator)
    gradients = [torch.randn(NUM_ELEMENTS, generator=generator) * 10 ** ((t % 5) / 2 - 1) for t in range(NUM_UPDATES)]
    return weights, gradients


def run_kaon(options, weights, gradients):
    request = dict(options, weights=weights.tolist(), gradients=[g.tolist() for g in gradients])
    output = subprocess.run([TRAJECTORY], input=json.dumps(request), capture_output=True, text=True, check=True).stdout
    return json.loads(output)


def run_torch(make_optimizer, weights, gradients):
    """Returns the weights and the optimizer's state after stepping in float64."""
    parameter = torch.nn.Parameter(weights.double())
    optimizer = make_optimizer([parameter])
    for gradient in gradients:
        parameter.grad = gradient.double()
        optimizer.step()
    return parameter.detach(), optimizer.state[parameter]


def relative_error(got, expected):
    difference = torch.tensor(got, dtype=torch.float64) - expected
    return float(torch.linalg.norm(difference) / torch.linalg.norm(expected))


class TorchOptimTest(unittest.TestCase):
    def compare(self, options, make_optimizer, slots):
        with self.subTest(**options):
            weights, gradients = inputs(len(json.dumps(options)))
            got = run_kaon(options, weights, gradients)
            expected, state = run_torch(make_optimizer, weights, gradients)
            self.assertGreater(relative_error(weights.tolist(), expected), 1e-3)
            self.assertLessEqual(relative_error(got["weights"], expected), TOLERANCE)
            self.assertEqual(sorted(got["state"]), sorted(slots))
            for slot in slots:
                self.assertLessEqual(relative_error(got["state"][slot], state[slot]), TOLERANCE, slot)

    def adam_settings(self):
        betas = [(0.9, 0.999), (0.9, 0.95), (0.5, 0.9), (0.0, 0.99)]
        return itertools.product(betas, [1e-8, 1e-3], [0.0, 0.1], [False, True])

    def compare_adam(self, optimizer, l2):
        for (beta1, beta2), eps, decay, amsgrad in self.adam_settings():
            options = {"rule": "adamw", "lr": 0.01, "beta1": beta1, "beta2": beta2, "eps": eps, "l2": l2}
            options.update(weight_decay=decay, amsgrad=amsgrad)

            def make(parameters, betas=(beta1, beta2), eps=eps, decay=decay, amsgrad=amsgrad):
                return optimizer(parameters, lr=0.01, betas=betas, eps=eps, weight_decay=decay, amsgrad=amsgrad)

            slots = ["exp_avg", "exp_avg_sq"] + (["max_exp_avg_sq"] if amsgrad else [])
            self.compare(options, make, slots)

    def test_decoupled_decay_is_adamw(self):
        self.compare_adam(torch.optim.AdamW, l2=False)

    def test_l2_decay_is_adam(self):
        self.compare_adam(torch.optim.Adam, l2=True)

    def test_sgd(self):
        modes = [(0.0, 0.0, False), (0.9, 0.0, False), (0.9, 0.3, False), (0.5, 1.0, False), (0.9, 0.0, True)]
        for (momentum, dampening, nesterov), decay in itertools.product(modes, [0.0, 0.1]):
            mode = {"momentum": momentum, "dampening": dampening, "nesterov": nesterov, "weight_decay": decay}

            def make(parameters, mode=mode):
                return torch.optim.SGD(parameters, lr=0.01, **mode)

            self.compare({"rule": "sgd", "lr": 0.01, "l2": True, **mode}, make, ["momentum_buffer"] if momentum else [])


if __name__ == "__main__":
    unittest.main()
