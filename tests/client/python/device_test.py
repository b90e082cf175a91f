#!/usr/bin/python3
"""Trains with tensors on a device. They go over NCCL and end in the bits of a run over gRPC. The device is the host, and a
library over sockets stands in for NCCL, as in tests/integration/nccl_processes_test.sh."""

import ctypes
import math
import os
import sys
import time
import unittest
from unittest import mock

LIBRARIES = os.path.join(os.environ["TEST_TMPDIR"], "libraries")
if os.environ.get("LD_LIBRARY_PATH") != LIBRARIES:
    # The loader reads the variable when a process starts.
    os.makedirs(LIBRARIES)
    for link, target in (("libkaon_cuda.so", "kernels/cuda/libkaon_cuda_on_host.so"),
                         ("libnccl.so.2", "tests/testing/libsocket_nccl.so")):
        os.symlink(os.path.join(os.getcwd(), target), os.path.join(LIBRARIES, link))
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "LD_LIBRARY_PATH": LIBRARIES})

import kaon_package  # noqa: F401  (makes kaon importable)
import fake_cuda
import numpy
import torch

import kaon

# A session that a busy machine refused is asked for again after 10 s.
SECONDS = 120
MIN_STEPS = 4

allocate = ctypes.CDLL(os.path.join(os.getcwd(), "tests/testing/libdevice_memory.so")).kaon_test_device_memory
allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_uint64]


def device_array(shape, dtype):
    """Returns an array in memory of the device."""
    memory = (ctypes.c_char * (math.prod(shape) * numpy.dtype(dtype).itemsize))
    return numpy.frombuffer(memory.from_address(allocate(ctypes.sizeof(memory))), dtype).reshape(shape)


class DeviceTensor:
    """What kaon.OnDevice uses of a torch tensor."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def data_ptr(self):
        return self.array.ctypes.data

    def is_contiguous(self):
        return self.array.flags.c_contiguous


def on_device(arrays):
    return {name: kaon.OnDevice(DeviceTensor(array), 0) for name, array in arrays.items()}


def cluster_with_nccl():
    with mock.patch.dict(os.environ, KAON_NCCL="lo"):
        return kaon.local_cluster(shards=1)


def is_last(client, step, bytes_per_step):
    """Whether NCCL has carried more than the gradients of these steps, so some weights."""
    return step >= MIN_STEPS and client.transfer_totals()["nccl_bytes"] > step * bytes_per_step


class ArraysTest(unittest.TestCase):
    # Several transfers, and a part of one. A dtype has a pull of its own.
    SHAPES = {"w": (600, 700), "b": (5,)}
    DTYPES = {"w": numpy.float32, "b": numpy.float16}

    def train(self, client, new_array, place, is_last):
        """Returns the steps, the last state digest and the weights."""
        first = {name: numpy.full(shape, 0.5, numpy.float32) for name, shape in self.SHAPES.items()}
        gradients, weights = ({name: new_array(shape, self.DTYPES[name]) for name, shape in self.SHAPES.items()}
                              for _ in range(2))
        worker = client.register("device", first, preset="adamw", lr=0.01).join(0)
        worker.load_weights(first)
        end = time.monotonic() + SECONDS
        step, last = 0, False
        while not last:
            step += 1
            self.assertLess(time.monotonic(), end, client.transfer_totals())
            for gradient in gradients.values():
                gradient[...] = numpy.random.default_rng(step).standard_normal(gradient.shape)
            record = worker.run_step(step, place(gradients), place(weights))
            last = is_last(step)
        return step, record.state_digest, {name: array.tolist() for name, array in weights.items()}

    def test_arrays_on_a_device_train_as_those_of_the_host(self):
        cluster = cluster_with_nccl()
        self.addCleanup(cluster.close)
        with mock.patch.dict(os.environ, KAON_ENDPOINTS=cluster.endpoints, KAON_TLS_DIR=cluster.tls_dir,
                             KAON_NCCL="lo"), kaon.Client() as client:
            there = self.train(client, device_array, on_device,
                               lambda step: is_last(client, step, 4 * 600 * 700 + 2 * 5))
            with self.assertRaisesRegex(kaon.InvalidArgumentError, "w: elements are on device 1, .*or device 0"):
                client.attach("device").join(0).begin(there[0] + 1).push(
                    "w", kaon.OnDevice(DeviceTensor(device_array((600, 700), numpy.float32)), 1))
        with cluster_with_nccl() as cluster:
            client = cluster.client()
            here = self.train(client, numpy.zeros, lambda arrays: arrays, lambda step: step == there[0])
            self.assertEqual(client.transfer_totals()["nccl_bytes"], 0)
        self.assertEqual(there, here)


class OptimizerTest(unittest.TestCase):
    def train(self, is_last, **options):
        """Returns the steps, the weights and the bytes over NCCL. The optimizer takes all tensors for those of device
        0, where their memory is."""
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
        for parameter in net.parameters():
            parameter.data = torch.from_numpy(device_array(parameter.shape, numpy.float32)).copy_(parameter.data)
            parameter.grad = torch.from_numpy(device_array(parameter.shape, numpy.float32)).zero_()
        end = time.monotonic() + SECONDS
        with cluster_with_nccl(), mock.patch("kaon.optimizer.Staging", fake_cuda.FakeStaging):
            optimizer = kaon.Optimizer(net, job="device", preset="adamw", lr=0.01, connection={"nccl": "lo"}, **options)
            current = optimizer._staging.cuda.current
            step, last = 0, False
            while not last:
                step += 1
                self.assertLess(time.monotonic(), end, optimizer.client.transfer_totals())
                # Weights that were staged are copied.
                current.run(current.mark())
                net(torch.randn(64, 12, generator=torch.Generator().manual_seed(step))).square().mean().backward()
                optimizer.step()
                # The memory of the gradients stays.
                optimizer.zero_grad(set_to_none=False)
                last = is_last(optimizer.client, step)
            current.run(current.mark())
            nccl_bytes = optimizer.client.transfer_totals()["nccl_bytes"]
            optimizer.close()
        return step, [parameter.tolist() for parameter in net.parameters()], nccl_bytes

    def test_the_optimizer_uses_nccl_by_itself(self):
        bytes_per_step = 4 * (12 * 16 + 16 + 16 + 1)
        for overlap in (False, True):
            steps, there, _ = self.train(lambda client, step: is_last(client, step, bytes_per_step), overlap=overlap)
            _, here, nccl_bytes = self.train(lambda _, step: step == steps, overlap=overlap, transport="grpc")
            self.assertEqual((there, nccl_bytes), (here, 0))


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main(verbosity=2)
