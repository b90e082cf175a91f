#!/usr/bin/env python3
"""T6, P18: a shard whose disk fails at the kth read ends at once, names the file, and does not use older data
instead.

For each way to read (a file's bytes, a name, a size, a directory) and each k, one of two shards gets kill -9. At
its start strace makes that call of its recovery fail with EIO. It must end and name the file. Then it starts on a
healthy disk; every few faults a further step is trained. k rises until the recovery makes fewer calls. In mode
interval(K) the other shard's death makes the victim also look for the snapshot of the rollback, and fail to read
it.

At the end of each the training must have the bits of an undisturbed one.
"""

import argparse
import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import servers  # noqa: E402  (found beside this file)
import syscall_sweep  # noqa: E402

VICTIM = "shard-0"
OTHER = "shard-1"
CALLS = ["pread64", "openat", "newfstatat", "getdents64"]
# A segment ends, and a snapshot is taken for nearly each step.
ENVIRONMENT = {"KAON_JOURNAL_SEGMENT_BYTES": "8192", "KAON_SNAPSHOT_JOURNAL_BYTES": "8192"}
FIRST_STEPS = 6
# The learning rate is scheduled for so many steps; trainers stop before.
LAST_STEP = 1000
FAULTS_PER_STEP = 8


class Training:
    """A training that grows by a few steps at a time, each time with a new trainer."""

    def __init__(self, folder, shared, durability):
        self.shared = shared
        self.durability = durability
        self.cluster = servers.Cluster(folder, shared, workers=1)
        self.environment = {**ENVIRONMENT, "KAON_DURABILITY": durability}
        self.log = os.path.join(folder, "strace")
        self.step = 0
        self.faults = {}
        for name in self.cluster.ports:
            self.cluster.start(name, self.environment)
        self.train(FIRST_STEPS)

    def train(self, steps):
        self.step += steps
        self.cluster.train_options = self.options()
        self.cluster.start("worker-0")
        worker = self.cluster.processes["worker-0"]
        servers.wait_until(f"{self.durability}: step {self.step}", lambda: not worker.running(), 60)
        summary = servers.summary_of(worker.said())
        if summary["last_step"] != self.step:
            raise servers.Failure(f"{self.durability}: ended at step {summary['last_step']}, expecting {self.step}")
        return summary["weights_digest"]

    def options(self):
        return servers.MODEL + ["--steps", str(LAST_STEP), "--stop-after", str(self.step)]

    def serve(self, name):
        self.cluster.start(name, self.environment)
        servers.wait_until(f"a serving {name}", lambda: self.cluster.serving(name))

    def paths(self):
        """Returns the files that the victim's recovery reads."""
        folder = self.cluster.data_dir(VICTIM)
        return [folder] + [os.path.join(folder, name) for name in sorted(os.listdir(folder))]

    def fault(self, call, k):
        """Makes the kth such call of the recovery fail. Returns True if the recovery reached it."""
        what = f"{call}:error=EIO:when={k}"
        victim = self.cluster.processes[VICTIM]
        victim.kill()
        options = [option for path in self.paths() for option in ("-P", path)]
        if os.path.exists(self.log):
            os.remove(self.log)
        self.cluster.start(VICTIM, self.environment, ["strace", "-f", "-qq", "--seccomp-bpf", "-y", "-o", self.log,
                                                      "-e", f"trace={call}", "-e", f"inject={what}"] + options)
        servers.wait_until(f"{what}: {VICTIM} serving or ended",
                           lambda: self.cluster.serving(VICTIM) or not victim.running(), 60)
        serving = victim.running()
        if serving:
            victim.kill()
        injected = self.injected()
        if injected and serving:
            raise servers.Failure(f"{self.durability}, {what}: {VICTIM} went on although {injected} could not be read")
        if not serving:
            self.check_said(what, injected)
        self.serve(VICTIM)
        return not serving

    def injected(self):
        """Returns the path that could not be read, or ""."""
        if not os.path.exists(self.log):
            return ""
        with open(self.log, encoding="utf-8", errors="replace") as file:
            lines = [line for line in file if "(INJECTED)" in line]
        if not lines:
            return ""
        # The path is that of a descriptor, or a name below it.
        path = re.search(r"<([^>]*)>", lines[0])
        name = re.search(r'\(\S+, "([^"]+)"', lines[0]) if not lines[0].split()[1].startswith("pread64") else None
        path = path.group(1) if path else ""
        return os.path.join(path, name.group(1)) if name and name.group(1) != "." else path

    def check_said(self, what, path):
        victim = self.cluster.processes[VICTIM]
        said = victim.said().decode("utf-8", "replace")
        if not path:
            raise servers.Failure(f"{self.durability}, {what}: {VICTIM} ended with status {victim.child.returncode} before "
                                  f"the fault: {said[-1000:]}")
        if victim.child.returncode == 0 or path not in said or "Input/output error" not in said:
            raise servers.Failure(f"{self.durability}, {what}: {VICTIM} ended with status {victim.child.returncode} and does "
                                  f"not name {path}: {said[-1000:]}")

    def sweep(self, call, stride):
        k = 1
        while self.fault(call, k):
            self.faults[call] = self.faults.get(call, 0) + 1
            if sum(self.faults.values()) % FAULTS_PER_STEP == 0:
                self.train(1)
            k += stride

    def fault_at_rollback(self):
        """The other shard forgets steps. The victim looks for the earlier snapshot, and cannot read it."""
        # The first two reads are those of the directory's identity and of that file's end.
        what = "pread64:error=EIO:when=3"
        victim = self.cluster.processes[VICTIM]
        self.train(1)
        tracer = syscall_sweep.attach(victim.child.pid, syscall_sweep.thread_of(victim.child.pid, "checkpoints"), what)
        self.cluster.processes[OTHER].kill()
        self.serve(OTHER)
        servers.wait_until(f"{what}, at a rollback: the end of {VICTIM}", lambda: not victim.running())
        tracer.communicate()
        said = victim.said().decode("utf-8", "replace")
        if not re.search(r"snapshot: DATA_LOSS: reading \S*/snapshot-\S+: Input/output error", said):
            raise servers.Failure(f"at a rollback: {VICTIM} does not name the snapshot: {said[-1000:]}")
        self.serve(VICTIM)
        self.faults["rollback"] = 1

    def check_end(self):
        digest = self.train(2)
        expected = servers.undisturbed_digest(self.shared, 1, self.options())
        if digest != expected:
            raise servers.Failure(f"{self.durability}: step {self.step} with digest {digest}, undisturbed it is {expected}")
        self.cluster.check_snapshots()
        self.cluster.remove()


def run(options, folder):
    if why := syscall_sweep.why_no_ptrace() or syscall_sweep.why_no_attach():
        return servers.leave_out("failing reads", why)
    shared = os.path.join(folder, "shared")
    servers.Cluster.prepare(shared, workers=1)
    start = time.monotonic()
    total = 0
    training = None
    try:
        for durability in ("journal", "interval(2)"):
            training = Training(os.path.join(folder, durability), shared, durability)
            for call in CALLS:
                training.sweep(call, options.stride)
            if durability != "journal":
                training.fault_at_rollback()
            training.check_end()
            total += sum(training.faults.values())
            print(f"{durability}: " + ", ".join(f"{count} at {call}" for call, count in training.faults.items()))
            if missing := [call for call in CALLS if call not in training.faults]:
                raise servers.Failure(f"{durability}: no fault at {', '.join(missing)}")
    except servers.Failure:
        training.cluster.show_logs()
        raise
    finally:
        if training is not None:
            training.cluster.kill()
    print(f"failed reads: {total}, each named, every {options.stride}th, {time.monotonic() - start:.0f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--stride", type=int, default=6, help="take every Nth call")
    options = parser.parse_args()
    servers.run_suite("kaon-reads.", run, options)


if __name__ == "__main__":
    main()
