"""What a user of the Python package has: trains on a cluster of its own, and prints the loss before and after."""

import kaon
import numpy

x = numpy.sin(numpy.arange(96.0)).reshape(8, 12)
weights = {"matrix": numpy.zeros((4, 12), numpy.float32)}


def loss_and_gradient():
    error = x @ weights["matrix"].T - numpy.cos(x[:, :4])
    return (error**2).mean(), (2 * error.T @ x / error.size).astype(numpy.float32)


first = loss_and_gradient()[0]
with kaon.local_cluster(shards=2) as cluster, cluster.client() as client:
    worker = client.register("trial", weights, preset="default", lr=0.05).join(0)
    worker.load_weights(weights)
    for step in range(1, 21):
        worker.run_step(step, {"matrix": loss_and_gradient()[1]}, weights)
last = loss_and_gradient()[0]
print(f"Kaon {kaon.library_version()}: loss {first:.3f}, then {last:.3f}")
assert last < 0.8 * first, (first, last)
