#!/usr/bin/env python3
"""A shard that gets SIGTERM leaves a snapshot behind, and has almost nothing to replay when it starts again.

First one shard stops in the middle of a training, then both after its end; these have nothing to replay. Then a
shard kills itself while it stops, at each point of the last snapshot. It replays more and loses nothing. Every
training must end in the bits of an undisturbed one.
"""

import os
import re
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import crash_cycles  # noqa: E402  (found beside this file)
import servers  # noqa: E402

STEPS = 60
VICTIM = "shard-0"
# No snapshot is taken before the last one.
ENVIRONMENT = {"KAON_SNAPSHOT_JOURNAL_BYTES": str(1 << 30)}
# A snapshot of this small state takes at most so long on a busy machine.
END_SECONDS = 5.0
RECOVERY = re.compile(rb"recovery: snapshot of position (\d+).* at position (\d+), (\d+) of them replayed")


class Training:
    """One training, and shards that stop in the middle of it."""

    def __init__(self, folder, shared, digest):
        self.cluster = servers.Cluster(folder, shared, workers=1, train=servers.MODEL + ["--steps", str(STEPS)])
        self.digest = digest

    def start(self, failpoint=""):
        for name in self.cluster.processes:
            self.cluster.start(name, {**ENVIRONMENT, "KAON_FAILPOINT": failpoint if name == VICTIM else ""})

    def end(self, name):
        """Sends SIGTERM to a server and waits for its end. Returns how many seconds that took."""
        process = self.cluster.processes[name]
        begin = time.monotonic()
        process.kill(signal.SIGTERM)
        servers.wait_until(f"the end of {name}", lambda: not process.running())
        return time.monotonic() - begin

    def end_well(self, name):
        seconds = self.end(name)
        status = self.cluster.processes[name].child.returncode
        allowed = END_SECONDS * servers.stretch()
        if status != 0 or seconds > allowed:
            raise servers.Failure(f"{name} ended with status {status} after {seconds:.2f} s, expecting at most {allowed:.2f} s")

    def restart(self, name):
        """Starts the server again. Returns the position of its snapshot, and how many entries after it were replayed."""
        self.cluster.start(name, ENVIRONMENT)
        servers.wait_until(f"{name} serves", lambda: self.cluster.serving(name))
        said = RECOVERY.search(self.cluster.processes[name].said())
        return int(said.group(1)), int(said.group(3))

    def await_step(self, step):
        servers.wait_until(f"step {step}", lambda: self.cluster.newest_step() >= step)

    def check_end(self):
        worker = self.cluster.processes["worker-0"]
        servers.wait_until("the end of the training", lambda: not worker.running(), 60)
        summary = servers.summary_of(worker.said())
        if (summary["last_step"], summary["weights_digest"]) != (STEPS, self.digest):
            raise servers.Failure(f"ended at step {summary['last_step']} with digest {summary['weights_digest']}, "
                                  f"undisturbed it is {STEPS} with {self.digest}")


def ends_cleanly(training):
    training.start()
    training.await_step(10)
    training.end_well(VICTIM)
    position, replayed = training.restart(VICTIM)
    # Registration and weights are positions, too. A decision that arrived during the stop may not be in the
    # snapshot.
    if position < 10 or replayed > 1:
        raise servers.Failure(f"started from the snapshot of position {position} and replayed {replayed} entries")
    training.check_end()
    digest = training.cluster.kaonctl("digest").stdout
    for name in training.cluster.shards:
        training.end_well(name)
    counts = [training.restart(name) for name in training.cluster.shards]
    if any(replayed > 0 or position < STEPS for position, replayed in counts):
        raise servers.Failure(f"snapshots and replayed entries after the training: {counts}")
    servers.wait_until("the digest of before", lambda: training.cluster.kaonctl("digest").stdout == digest)
    # Without news there is nothing to write.
    snapshots = sorted(os.listdir(training.cluster.data_dir(VICTIM)))
    training.end_well(VICTIM)
    if sorted(os.listdir(training.cluster.data_dir(VICTIM))) != snapshots:
        raise servers.Failure("a shard in which nothing happened wrote another snapshot")


def dies_ending(training, point):
    training.start(failpoint=point)
    training.await_step(10)
    training.end(VICTIM)
    if training.cluster.processes[VICTIM].failpoint() != point:
        raise servers.Failure(f"{VICTIM} ended with status {training.cluster.processes[VICTIM].child.returncode}")
    training.restart(VICTIM)
    training.check_end()
    training.cluster.check_snapshots()


def run(folder):
    shared = os.path.join(folder, "shared")
    servers.Cluster.prepare(shared, workers=1)
    digest = servers.undisturbed_digest(shared, 1, servers.MODEL + ["--steps", str(STEPS)])
    points = [name for process, when, name in crash_cycles.read_points("proto/failpoint.h")
              if process == "shard" and (when == "stop" or name.startswith("snapshot_"))]
    # These points belong to a second snapshot, to a removal, or to a start.
    others = ("snapshot_found", "snapshot_tensor_read", "snapshot_read_back", "snapshot_unfinished_removed",
              "snapshot_retain_begin", "snapshot_meta_removed", "snapshot_removal_durable", "snapshot_files_removed")
    points = [point for point in points if point not in others]
    cases = [("", ends_cleanly)]
    cases += [(point, lambda training, point=point: dies_ending(training, point)) for point in points]
    for number, (name, case) in enumerate(cases):
        training = Training(os.path.join(folder, f"case-{number}"), shared, digest)
        try:
            case(training)
            training.cluster.remove()
        except servers.Failure as failure:
            training.cluster.show_logs()
            raise servers.Failure(f"{name or 'clean end'}: {failure}") from failure
        finally:
            training.cluster.kill()
    print(f"shards that were asked to end: nothing replayed; {len(points)} died in it, at {', '.join(points)}")


def main():
    servers.run_suite("kaon-stop.", run)


if __name__ == "__main__":
    main()
