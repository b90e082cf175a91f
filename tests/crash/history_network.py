#!/usr/bin/env python3
"""T10 with T7 and T8: one log in one order explains the calls and results of clients through bad connections.

The training is that of history_cycles.py without any death, with tests/network/chaos_proxy.py between workers,
coordinator and shards. By the schedule of a seed it delays, throttles, freezes, resets, refuses and doubles
connections for as long as the training takes. A worker that gives up is started again with other gradients. At the
end every shard's log must explain every answer, and the check must reject forged logs.
"""

import argparse
import collections
import json
import os
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import history_cycles  # noqa: E402  (found beside this file)
import servers  # noqa: E402

# The training takes less time.
FAULTS_SECONDS = 600
# Stops in one training.
MOST_STOPS = 4
DOCTORS = (history_cycles.other_weights, history_cycles.other_outcome, history_cycles.answered_too_early)


class Proxy:
    """One process between callers and some servers."""

    def __init__(self, folder, name, seed, targets):
        self.ports_file = os.path.join(folder, name + ".ports")
        self.report_file = os.path.join(folder, name + ".report")
        self.child = subprocess.Popen(
            [sys.executable, "tests/network/chaos_proxy.py", "--ports", self.ports_file, "--report", self.report_file,
             "--seed", str(seed), "--faults", str(FAULTS_SECONDS), *targets], stdin=subprocess.DEVNULL)
        servers.wait_until("a proxy", lambda: os.path.exists(self.ports_file))
        with open(self.ports_file, encoding="utf-8") as file:
            self.ports = [int(line) for line in file]

    def end(self):
        """Ends the proxy and returns the faults that were over by then, by kind."""
        self.child.send_signal(signal.SIGTERM)
        self.child.wait()
        with open(self.report_file, encoding="utf-8") as file:
            return collections.Counter(event["kind"] for event in json.load(file)["events"])


class Stops:
    """Stops servers, one at a time; they continue as if no time had passed."""

    def __init__(self, cluster, seed):
        self.cluster = cluster
        self.random = random.Random(seed)
        self.counts = collections.Counter()
        self.stopped = None
        self.next = time.monotonic()

    def tick(self):
        now = time.monotonic()
        if now < self.next:
            return
        if self.stopped is not None:
            return self.end()
        # With bad connections and more stops, training would hardly continue.
        if sum(self.counts.values()) == MOST_STOPS:
            return
        # Stops alternate, so that a short training has both.
        shards = self.counts["shard"] > self.counts["coordinator"]
        self.stopped = "coordinator" if shards else self.random.choice(self.cluster.shards)
        self.counts[self.stopped.split("-")[0]] += 1
        self.cluster.processes[self.stopped].kill(signal.SIGSTOP)
        self.next = now + self.random.uniform(0.3, 2.5)

    def end(self):
        if self.stopped is not None:
            self.cluster.processes[self.stopped].kill(signal.SIGCONT)
        self.stopped = None
        self.next = time.monotonic() + self.random.uniform(0.2, 0.8)


class Cluster(history_cycles.Cluster):
    """A cluster whose processes reach one another through proxies, once there are some."""

    # Shared memory would bypass the proxies.
    transports = ["grpc"]

    def __init__(self, folder, shared, last_step):
        super().__init__(folder, shared)
        self.last_step = last_step
        self.proxied = {}
        self.proxies = []

    def address(self, name):
        return f"127.0.0.1:{self.proxied.get(name, self.ports[name])}"

    def interpose(self, name, seed, between):
        targets = [self.address(server) for server in between]
        self.proxies.append(Proxy(self.folder, name, seed, targets))
        self.proxied.update(zip(between, self.proxies[-1].ports))

    def begin_trouble(self):
        for proxy in self.proxies:
            proxy.child.send_signal(signal.SIGUSR1)

    def end_trouble(self):
        kinds = sum((proxy.end() for proxy in self.proxies), collections.Counter())
        self.proxies = []
        return kinds


def has_stops(seed):
    return seed % 2 == 0


def train(cluster, seed, seconds):
    """Trains to the end. Returns the faults and the stops, by kind."""
    stops = Stops(cluster, seed) if has_stops(seed) else None
    for name in cluster.shards:
        cluster.start(name, history_cycles.ENVIRONMENT)
    servers.wait_until("serving shards", lambda: all(map(cluster.serving, cluster.shards)))
    cluster.interpose("shards", seed, cluster.shards)
    cluster.start("coordinator", history_cycles.ENVIRONMENT)
    servers.wait_until("a serving coordinator", lambda: cluster.serving("coordinator"))
    cluster.interpose("calls", seed + 1000, ["coordinator"])
    for name in cluster.workers:
        cluster.start(name)
    servers.wait_until("a step", lambda: cluster.newest_step() > 0)
    cluster.begin_trouble()
    deadline = time.monotonic() + seconds
    left = set(cluster.workers)
    while left:
        if stops is not None:
            stops.tick()
        if time.monotonic() > deadline:
            raise servers.Failure(f"no end of the training within {seconds} s, at step {cluster.newest_step()}")
        for name in [name for name in left if not cluster.processes[name].running()]:
            if cluster.processes[name].child.returncode == 0:
                left.remove(name)
            else:
                cluster.start(name)
        time.sleep(0.01)
    if stops is not None:
        stops.end()
    return cluster.end_trouble(), (stops.counts if stops is not None else collections.Counter())


def run_seed(options, folder, shared, seed):
    """Returns (operations, unanswered, entries), the faults, stops, and lives of workers."""
    cluster = Cluster(os.path.join(folder, f"seed-{seed}"), shared, options.steps)
    try:
        trouble, stops = train(cluster, seed, options.limit)
        for shard in cluster.shards:
            done = cluster.check([shard], cluster.logs())
            said = done.stdout.decode("utf-8", "replace")
            if done.returncode != 0:
                raise servers.Failure(f"history of {shard}: {said}")
        counts = tuple(map(int, history_cycles.HISTORY.search(said).groups()))
        refused = sum(bool(history_cycles.refuses(cluster, folder, doctor)) for doctor in DOCTORS)
        if refused != len(DOCTORS):
            raise servers.Failure(f"{refused} of {len(DOCTORS)} changed histories were refused")
        lives = sum(cluster.processes[name].lives for name in cluster.workers)
        cluster.remove()
        return counts, trouble, stops, lives
    except servers.Failure:
        cluster.show_logs()
        print(f"seed {seed}")
        raise
    finally:
        for proxy in cluster.proxies:
            proxy.child.kill()
        cluster.kill()


def run(options, folder):
    shared = os.path.join(folder, "shared")
    servers.Cluster.prepare(shared)
    start = time.monotonic()
    trouble = collections.Counter()
    stops = collections.Counter()
    seed = options.seed
    while seed < options.seed + options.seeds and time.monotonic() - start < options.seconds:
        counts, one, stopped, lives = run_seed(options, folder, shared, seed)
        print(f"seed {seed}: {counts[0]} operations, {counts[1]} unanswered, explained by {counts[2]} entries, {lives} lives of "
              f"workers, {sum(one.values())} kinds of trouble, {sum(stopped.values())} stops, {time.monotonic() - start:.0f} s")
        trouble += one
        stops += stopped
        seed += 1
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(trouble.items()))
    print(f"histories beside network faults: {seed - options.seed} checked and explained; {kinds}; "
          f"{stops['shard']} stops of shards, {stops['coordinator']} of the coordinator")
    if not trouble:
        raise servers.Failure("no trouble had an end before the training had")
    # A fast machine may have ended the trainings of one or two seeds before both were stopped.
    if options.seeds >= 4 and any(map(has_stops, range(options.seed, seed))) and not (stops["shard"] and stops["coordinator"]):
        raise servers.Failure(f"stopped were {dict(stops)}, expecting shards and the coordinator")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no seed after this long")
    # A shard keeps 1,000 records.
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--limit", type=float, default=300, help="seconds that one training may take")
    servers.run_suite("kaon-history.", run, parser.parse_args())


if __name__ == "__main__":
    main()
