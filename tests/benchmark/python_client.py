#!/usr/bin/python3
"""Push + step + pull of a 124 M parameter model in 150 tensors by the Python client and by the C++ client, by turns on
one local cluster; and what Python itself does in a step. The ratio is the median over the rounds of turns.

    bazel build --config=opt //tests/benchmark:client_rate //deploy/library:libkaon.so //tests/integration:cluster
    tests/benchmark/python_client.py [--elements N] [--steps N] [--rounds N] [--torch]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "client/python"))

import numpy  # noqa: E402

import kaon  # noqa: E402

NUM_TENSORS = 150
WARM_UP = 2


def shapes_of(elements):
    """GPT-2 has 50 matrices of different sizes and 100 vectors; here a tensor is a vector of 1/50, or of 768."""
    large = (elements - 100 * 768) // 50
    return {f"p{index:03}": (large if index % 3 == 0 else 768,) for index in range(NUM_TENSORS)}


def arrays_of(shapes, value, as_torch):
    if as_torch:
        import torch
        return {name: torch.full(shape, value) for name, shape in shapes.items()}
    return {name: numpy.full(shape, value, numpy.float32) for name, shape in shapes.items()}


def run(worker, step, steps, gradients, weights):
    """Returns seconds and processor seconds of this thread of each step."""
    times, own = [], []
    for number in range(step + 1, step + steps + 1):
        start, start_own = time.perf_counter(), time.thread_time()
        worker.run_step(number, gradients, weights, loss=1.0)
        times.append(time.perf_counter() - start)
        own.append(time.thread_time() - start_own)
    return times, own


def by_cpp(cluster, steps):
    environment = {**os.environ, "KAON_ENDPOINTS": cluster.endpoints, "KAON_TLS_DIR": cluster.tls_dir, "KAON_RANK": "0"}
    program = os.path.join(ROOT, ".bazel/bin/tests/benchmark/client_rate")
    done = subprocess.run([program, "rate", str(steps)], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [float(line) for line in done.stdout.split()]


def start_job(elements, as_torch):
    shapes = shapes_of(elements)
    gradients, weights = arrays_of(shapes, 1e-3, as_torch), arrays_of(shapes, 0.5, as_torch)
    job = kaon.Client().register("rate", weights, preset="adamw", report_norms="off")
    worker = job.join(0)
    worker.load_weights(weights)
    return job, worker, gradients, weights


def compare(options):
    """Returns the seconds of each step of Python and of C++, by rounds of a turn of each."""
    with kaon.local_cluster(shards=options.shards) as cluster:
        job, _, gradients, weights = start_job(options.elements, options.torch)
        pairs = []
        for _ in range(options.rounds):
            # Each turn joins anew, and so takes the rank from the other.
            python = run(job.join(0), job.refresh().applied_step, options.steps + WARM_UP, gradients, weights)[0]
            pairs.append((python[WARM_UP:], by_cpp(cluster, options.steps + WARM_UP)[WARM_UP:]))
        job.client.close()
    return pairs


def own_time(options):
    """With small tensors nearly all processor time of the calling thread is Python's, and the library's queueing."""
    with kaon.local_cluster(shards=1):
        job, worker, gradients, weights = start_job(100 * 768 + 50 * 8, options.torch)
        times, own = run(worker, 0, 200, gradients, weights)
        job.client.close()
    return statistics.median(times[50:]), statistics.median(own[50:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=124_000_000)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--torch", action="store_true", help="torch tensors in place of numpy arrays")
    options = parser.parse_args()
    whole, own = own_time(options)
    print(json.dumps({"name": "python_own_ms", "value": round(own * 1000, 3), "limit": 2,
                      "step_ms": round(whole * 1000, 3), "tensors": NUM_TENSORS,
                      "arrays": "torch" if options.torch else "numpy"}), flush=True)
    pairs = compare(options)
    python, cpp = ([seconds for pair in pairs for seconds in pair[side]] for side in (0, 1))
    # Other work on the machine slows both turns of a round.
    ratios = sorted(statistics.median(pair[1]) / statistics.median(pair[0]) for pair in pairs)
    print(json.dumps({"name": "python_client", "python_seconds": round(statistics.median(python), 3),
                      "python_min": round(min(python), 3), "cpp_seconds": round(statistics.median(cpp), 3),
                      "cpp_min": round(min(cpp), 3), "ratio": round(statistics.median(ratios), 3),
                      "ratios": [round(ratio, 3) for ratio in ratios], "floor": 0.9, "elements": options.elements,
                      "shards": options.shards, "steps": len(python)}))


if __name__ == "__main__":
    main()
