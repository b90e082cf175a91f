#!/usr/bin/python3
"""The order of the copies and events of CUDA tensors, over a stand-in for torch.cuda. No card runs here."""

import unittest
from unittest import mock

import kaon_package  # noqa: F401  (makes kaon importable)
import fake_cuda
import torch

import kaon
from kaon import _staging


def host_of(staged):
    return staged.source.tolist()


class StagingCase(unittest.TestCase):
    def setUp(self):
        self.staging = fake_cuda.FakeStaging()
        self.cuda = self.staging.cuda
        self.model_stream = self.cuda.current

    def later(self, tensor, value):
        """Queues a kernel of the model, which fills the tensor."""
        self.model_stream.queue(lambda: tensor.fill_(value))

    def read(self, gradient):
        return self.staging.read([("w", gradient)])["w"]

    def target(self, weight):
        return self.staging.targets([("w", weight)])["w"]


class StagingTest(StagingCase):
    def test_a_copy_comes_after_the_kernels_before_it_and_no_others(self):
        gradient = torch.zeros(2)
        self.later(gradient, 1)
        staged = self.read(gradient)
        self.later(gradient, 2)
        self.assertFalse(staged.is_ready())
        staged.wait()
        self.assertTrue(staged.is_ready())
        self.assertEqual(host_of(staged), [1, 1])
        self.assertEqual(self.model_stream.num_done, 1)

    def test_a_freed_gradient_is_kept_until_its_copy(self):
        gradient = torch.zeros(2)
        self.read(gradient)
        self.assertEqual(self.cuda.kept, [(gradient.data_ptr(), self.cuda.streams[1])])

    def test_weights_are_written_after_older_kernels_and_before_later_ones(self):
        weight, seen = torch.zeros(2), []
        self.model_stream.queue(lambda: seen.append(weight.tolist()))
        self.target(weight).fill_(5)
        self.staging.write([("w", weight)])
        self.model_stream.queue(lambda: seen.append(weight.tolist()))
        # The host has waited for nothing.
        self.assertEqual((seen, weight.tolist()), ([], [0, 0]))
        copies = self.cuda.streams[1]
        copies.run(copies.mark())
        self.assertEqual(seen, [[0, 0]])
        self.model_stream.run(self.model_stream.mark())
        self.assertEqual(seen, [[0, 0], [5, 5]])

    def test_a_buffer_is_written_by_the_host_once_its_last_copy_is_done(self):
        weight = torch.zeros(2)
        self.target(weight).fill_(5)
        self.staging.write([("w", weight)])
        self.target(weight).fill_(6)
        self.assertEqual(weight.tolist(), [5, 5])

    def test_a_gradient_overwrites_the_buffer_of_weights_that_are_copied(self):
        weight = torch.zeros(2)
        self.target(weight).fill_(5)
        self.staging.write([("w", weight)])
        staged = self.read(torch.ones(2))
        staged.wait()
        self.assertEqual((weight.tolist(), host_of(staged)), ([5, 5], [1, 1]))

    def test_strides_sparse_gradients_and_another_dtype(self):
        gradient = torch.arange(6.0).reshape(2, 3).t()
        for given in (gradient, gradient.to_sparse(), gradient.to(torch.bfloat16)):
            staged = self.read(given)
            staged.wait()
            self.assertTrue(staged.source.is_contiguous())
            self.assertEqual((host_of(staged), staged.source.dtype), (gradient.tolist(), given.dtype))

    def test_host_tensors_are_used_as_they_are(self):
        self.staging, tensor = _staging.Staging(), torch.ones(2)
        staged = self.read(tensor)
        self.assertTrue(staged.is_ready())
        self.assertIs(staged.source, tensor)
        self.assertIs(self.target(tensor), tensor)
        self.staging.write([("w", tensor)])


class OnDeviceTest(StagingCase):
    """Tensors that the library takes on their device."""

    def setUp(self):
        super().setUp()
        # The device does its work when somebody asks for the handle of an event.
        self.staging._check_device = lambda device: None

    def test_a_gradient_is_read_after_the_kernels_before_it_and_no_others(self):
        gradient, other = torch.zeros(2), torch.zeros(3)
        self.later(gradient, 1)
        staged = self.staging.read([("w", gradient), ("b", other)])
        self.later(gradient, 2)
        source = staged["w"].source
        self.assertTrue(staged["w"].is_ready())
        self.assertEqual((source.tensor.data_ptr(), source.place[0]), (gradient.data_ptr(), 0))
        self.assertEqual((source.tensor.tolist(), self.model_stream.num_done), ([1, 1], 1))
        # One event for all, which lives as long as the gradients.
        self.assertIs(staged["b"].source.event, source.event)

    def test_weights_are_written_after_older_kernels(self):
        weight, seen = torch.zeros(2), []
        self.model_stream.queue(lambda: seen.append(weight.tolist()))
        target = self.target(weight)
        self.assertEqual(seen, [[0, 0]])
        self.assertEqual((target.tensor.data_ptr(), target.event), (weight.data_ptr(), None))
        self.staging.write([("w", weight)])
        self.assertEqual([stream.mark() for stream in self.cuda.streams], [1])

    def test_strides_and_sparse_gradients_go_through_host_memory(self):
        gradient = torch.arange(6.0).reshape(2, 3).t()
        for given in (gradient, gradient.to_sparse()):
            staged = self.read(given)
            staged.wait()
            self.assertEqual(host_of(staged), gradient.tolist())
        weight = torch.zeros(3, 2).t()
        self.target(weight).fill_(5)
        self.staging.write([("w", weight)])
        self.model_stream.run(self.model_stream.mark())
        self.assertEqual(weight.tolist(), [[5, 5, 5], [5, 5, 5]])

    def test_a_device_that_the_client_refuses_goes_through_host_memory(self):
        asked = []

        def refuse(device):
            asked.append(device)
            raise kaon.InvalidArgumentError("on device 0, expecting host memory")
        self.staging._check_device = refuse
        for value in (1, 2):
            staged = self.read(torch.full((2,), float(value)))
            staged.wait()
            self.assertEqual(host_of(staged), [value, value])
        # Once for all tensors of the device.
        self.assertEqual(asked, [0])


class OptimizerTest(unittest.TestCase):
    """Trains tensors that the optimizer takes for CUDA's, beside torch."""

    def train(self, steps, **options):
        """Returns the weights and those of torch.optim.AdamW."""
        nets = []
        for _ in range(2):
            torch.manual_seed(0)
            nets.append(torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)))
        with kaon.local_cluster(shards=1), mock.patch("kaon.optimizer.Staging", fake_cuda.FakeStaging):
            optimizer = kaon.Optimizer(nets[0], job="staged", preset="adamw", lr=0.01, max_grad_norm=0, **options)
            self.addCleanup(optimizer.close)
            reference = torch.optim.AdamW(nets[1].parameters(), lr=0.01, weight_decay=0.01, betas=(0.9, 0.999))
            for step in range(steps):
                for net, each in zip(nets, (optimizer, reference)):
                    if each is optimizer:
                        # Kernels of the forward pass see the weights.
                        current = optimizer._staging.cuda.current
                        current.run(current.mark())
                    net(torch.randn(64, 12, generator=torch.Generator().manual_seed(step))).square().mean().backward()
                    if each is optimizer:
                        self.in_flight = len(optimizer._staged)
                    each.step()
                    each.zero_grad()
            current.run(current.mark())
            optimizer.close()
        return nets

    def assert_equal(self, nets):
        for one, other in zip(*(net.parameters() for net in nets)):
            self.assertLess((one - other).abs().max().item(), 1e-5)

    def test_step_sends_the_gradients_and_pulls_the_weights(self):
        self.assert_equal(self.train(4))

    def test_backward_starts_the_copies_and_waits_for_none(self):
        self.assert_equal(self.train(4, overlap=True))
        self.assertEqual(self.in_flight, 4)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main(verbosity=2)
