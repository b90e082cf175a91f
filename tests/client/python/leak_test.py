#!/usr/bin/python3
"""1,000 connects and closes, each with a job, leave no thread and no descriptor, and hardly any allocated memory."""

import ctypes
import gc
import os
import unittest

import kaon_package  # noqa: F401  (makes kaon importable)
import numpy

import kaon

WARM_UP, CYCLES = 200, 1000
# gRPC 1.51 keeps about 600 bytes for each connection with certificate files. A client that is not freed has some
# 20 KiB.
MAX_BYTES_PER_CYCLE = 2048


class Mallinfo2(ctypes.Structure):
    """Of malloc.h."""

    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]


mallinfo2 = ctypes.CDLL(None).mallinfo2
mallinfo2.restype = Mallinfo2


def count(what):
    return len(os.listdir(f"/proc/self/{what}"))


def allocated_bytes():
    """Of malloc in use: resident memory also grows by the holes of its arenas."""
    gc.collect()
    allocated = mallinfo2()
    return allocated.uordblks + allocated.hblkhd


class LeakTest(unittest.TestCase):
    def test_a_thousand_clients_leave_nothing(self):
        weights = {"w": numpy.ones(16, numpy.float32)}

        def cycle():
            with cluster.client() as client:
                client.register("leak", weights, preset="adamw").refresh()

        with kaon.local_cluster(shards=1) as cluster:
            for _ in range(WARM_UP):
                cycle()
            before = allocated_bytes(), count("task"), count("fd")
            for _ in range(CYCLES):
                cycle()
            grown = (allocated_bytes() - before[0]) / CYCLES
            print(f"{CYCLES} cycles: {grown:.0f} bytes each, at most {MAX_BYTES_PER_CYCLE}; threads {before[1]} -> "
                  f"{count('task')}, descriptors {before[2]} -> {count('fd')}", flush=True)
            self.assertLess(grown, MAX_BYTES_PER_CYCLE)
            # gRPC has a few threads and descriptors of its own that come and go.
            self.assertLess(count("task"), before[1] + 20)
            self.assertLess(count("fd"), before[2] + 20)


if __name__ == "__main__":
    unittest.main()
