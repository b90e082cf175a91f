#!/usr/bin/python3
"""Trains a small network of JAX through Kaon, without an adapter. Gradients are sent as numpy views of JAX's arrays, and
weights are pulled into numpy arrays, which JAX reads.

    pip install jax
    jax_training.py --steps 200     # a cluster of its own, unless KAON_ENDPOINTS or KAON_DIR names one

It prints the loss of every 10th step.
"""

import argparse
import contextlib
import os

import jax
import jax.numpy as jnp
import numpy

import kaon

WIDTH = 64


def initial_weights(generator):
    """Nested parameters work as well: give each leaf a name, such as jax.tree_util.keystr(path)."""
    return {
        "hidden.weight": generator.standard_normal((WIDTH, 8)).astype(numpy.float32) / 8**0.5,
        "hidden.bias": numpy.zeros(WIDTH, numpy.float32),
        "last.weight": generator.standard_normal((1, WIDTH)).astype(numpy.float32) / WIDTH**0.5,
        "last.bias": numpy.zeros(1, numpy.float32),
    }


@jax.jit
@jax.value_and_grad
def loss_and_gradients(weights, x, y):
    hidden = jnp.tanh(x @ weights["hidden.weight"].T + weights["hidden.bias"])
    error = (hidden @ weights["last.weight"].T + weights["last.bias"])[:, 0] - y
    return jnp.mean(error**2)


def batch(generator):
    x = generator.standard_normal((256, 8)).astype(numpy.float32)
    return x, numpy.sin(x.sum(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    is_named = "KAON_ENDPOINTS" in os.environ or "KAON_DIR" in os.environ
    generator = numpy.random.default_rng(1)
    weights = initial_weights(generator)
    with contextlib.nullcontext() if is_named else kaon.local_cluster(), kaon.Client() as client:
        job = client.register("jax", weights, preset="moonlight", lr=0.02)
        worker = job.join(rank=0)
        if not job.refresh().weights_loaded:
            worker.load_weights(weights)
        first = job.wait_for_weights()
        job.pull(first, weights)
        for step in range(first + 1, first + options.steps + 1):
            loss, gradients = loss_and_gradients(weights, *batch(generator))
            # On a CPU numpy.asarray copies nothing. It waits for JAX, which then no longer reads `weights`.
            views = {name: numpy.asarray(gradient) for name, gradient in gradients.items()}
            record = worker.run_step(step, views, weights, loss=float(loss))
            if step % 10 == 0 or not record.applied:
                print(f"step {step} loss {record.loss:.6f} {record.reason}".strip(), flush=True)


if __name__ == "__main__":
    main()
