#!/usr/bin/env python3
"""T19: the time until a shard with 64 MiB of state serves the pull of every weight after kill -9.

One shard, one worker and AdamW train some steps. Then repeat: kill -9, start the shard on its data, and pull all
weights as soon as it serves. The client has done nothing before except to ask for the placement (puller.cc), so
neither its start nor a worker's retries count. Each recovery reads back everything the shard wrote; a further step
now and then makes it more.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import servers  # noqa: E402  (found beside this file)

# Weights and two moments of 5.6 million parameters.
MODEL = ["--hidden", "1182", "--embedding", "4", "--context", "6", "--blocks", "4", "--batch-size", "4", "--preset", "adamw",
         "--report-every", "1"]
BYTES_PER_PARAMETER = 12
STEPS = 4
# The limit of T19 on an idle machine. A busy machine gets as much longer as any computation takes.
LIMIT_SECONDS = 2.0


class Recovery:
    """The cluster and the measured times."""

    # No training takes longer.
    TRAIN_SECONDS = 120

    def __init__(self, folder, model, environment=None):
        self.model = model
        self.environment = environment or {}
        self.shared = os.path.join(folder, "shared")
        servers.Cluster.prepare(self.shared, workers=1)
        self.cluster = servers.Cluster(os.path.join(folder, "cluster"), self.shared, shards=1, workers=1)
        self.puller = servers.Process("puller", os.path.join(self.cluster.folder, "puller.log"))
        self.cluster.processes["puller"] = self.puller
        self.serving = []
        self.pulled = []
        self.stretch = []
        self.state_bytes = 0
        self.digest = None

    def train(self, steps):
        """Runs a trainer up to that step and returns its digest."""
        self.cluster.train_options = self.model + ["--steps", str(steps)]
        self.cluster.start("worker-0")
        worker = self.cluster.processes["worker-0"]
        servers.wait_until("the end of the trainer", lambda: not worker.running(), self.TRAIN_SECONDS)
        summary = servers.summary_of(worker.said())
        if summary["last_step"] != steps:
            raise servers.Failure(f"trained up to step {summary['last_step']}, expecting {steps}")
        return summary

    def start(self):
        for name in self.cluster.ports:
            self.cluster.start(name, self.environment)
        summary = self.train(STEPS)
        listed = json.loads(self.cluster.kaonctl("-o", "json", "parameters").stdout)["parameters"]
        self.state_bytes = BYTES_PER_PARAMETER * sum(math.prod(parameter["shape"]) for parameter in listed)
        self.digest = summary["weights_digest"]

    def recover(self, steps):
        self.stretch.append(servers.stretch())
        self.puller.start([servers.binary("puller"), "--connect", self.cluster.address("coordinator"),
                           "--tls-dir", os.path.join(self.shared, "tls")], {}, subprocess.PIPE)
        servers.wait_until("an attached client", lambda: b"ATTACHED" in self.puller.said())
        self.cluster.processes["shard-0"].kill()
        begin = time.monotonic()
        self.cluster.start("shard-0")
        servers.wait_until("a serving shard", lambda: self.cluster.serving("shard-0"), 60)
        self.serving.append(time.monotonic() - begin)
        self.puller.child.communicate(b"pull\n")
        self.pulled.append(time.monotonic() - begin)
        summary = servers.summary_of(self.puller.said())
        if (summary["last_step"], summary["weights_digest"]) != (steps, self.digest):
            raise servers.Failure(f"step {summary['last_step']} with digest {summary['weights_digest']} after the recovery, "
                                  f"before it was {steps} with {self.digest}")


def run(options, folder):
    recovery = Recovery(folder, MODEL)
    steps = STEPS
    try:
        recovery.start()
        for number in range(options.recoveries):
            if number % 10 == 9:
                steps += 1
                recovery.digest = recovery.train(steps)["weights_digest"]
            recovery.recover(steps)
    except servers.Failure:
        recovery.cluster.show_logs()
        raise
    finally:
        recovery.cluster.kill()
    report(recovery)


def report(recovery):
    """Prints the times, and fails if the slowest are too long."""
    waited = {"the shard serves": recovery.serving, "every weight is pulled": recovery.pulled}
    print(f"recovery: {recovery.state_bytes} bytes of state, {len(recovery.pulled)} kills, " + "; ".join(
        f"until {what} p50 {servers.percentile(seconds, 0.5):.3f} s, p99 {servers.percentile(seconds, 0.99):.3f} s"
        for what, seconds in waited.items()))
    busy = servers.percentile(recovery.stretch, 0.5)
    print(f"computations take {busy:.1f} times as long as alone on this machine now")
    for what, seconds in waited.items():
        p99 = servers.percentile(seconds, 0.99)
        if p99 > LIMIT_SECONDS * busy:
            raise servers.Failure(f"until {what}: p99 {p99:.3f} s, expecting at most {LIMIT_SECONDS} s (T19)")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--recoveries", type=int, default=12)
    servers.run_suite("kaon-recovery.", run, parser.parse_args())


if __name__ == "__main__":
    main()
