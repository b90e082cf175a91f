#!/usr/bin/env python3
"""T6, P18: a shard on a full disk is read-only and continues by itself; one whose disk fails ends at once.

Full: by RLIMIT_FSIZE, and on a small tmpfs where mounting is permitted. Failing: strace injects EIO at a write and
at a sync of the journal, of a snapshot, and of a checkpoint. A failing checkpoint alone does not end the shard.
Each time the training must end in the bits of an undisturbed one.
"""

import json
import os
import re
import resource
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import servers  # noqa: E402  (found beside this file)
import syscall_sweep  # noqa: E402

STEPS = 120
VICTIM = "shard-0"
TMPFS_BYTES = 4 << 20
# The first tensors of a shard's snapshots: registration and first weights are entries 1 and 2.
SNAPSHOT = "snapshot-0000000000000002.shard-00000-of-00002.0000.safetensors"
# P18: "EIO/failed fsync ends the process at once".
END_SECONDS = 1.0


class Training:
    """One training that is disturbed, with access to the disk of the victim."""

    def __init__(self, folder, shared, steps=STEPS):
        self.options = servers.MODEL + ["--steps", str(steps)]
        self.cluster = servers.Cluster(folder, shared, workers=1, train=self.options)
        self.steps = steps
        self.digest = servers.undisturbed_digest(shared, 1, self.options)

    def start(self, wrapper=None, environment=None):
        for name in self.cluster.processes:
            self.cluster.start(name, environment, wrapper if name == VICTIM else None)

    def reached(self, step):
        return self.cluster.newest_step() >= step or not self.cluster.processes["worker-0"].running()

    def await_step(self, step):
        servers.wait_until(f"step {step}", lambda: self.reached(step))

    def read_only_reason(self):
        status = self.cluster.kaonctl("-o", "json", "status")
        if status.returncode != 0:
            return ""
        return json.loads(status.stdout)["shards"][0].get("read_only_reason", "")

    def await_read_only(self, path):
        reasons = []

        def is_read_only():
            reasons.append(self.read_only_reason())
            return reasons[-1] != ""

        servers.wait_until("read-only status", is_read_only)
        if path not in reasons[-1]:
            raise servers.Failure(f"the reason does not name {path}: {reasons[-1]}")
        health = self.cluster.kaonctl("health")
        if health.returncode != 4 or health.stdout.count(b"NOT_SERVING") != 1:
            raise servers.Failure(f"the read-only shard alone should be NOT_SERVING: {health.stdout}")
        why = re.search(rb"NOT_SERVING +read-only: (.*)", health.stdout)
        if why is None or path.encode() not in why.group(1):
            raise servers.Failure(f"health does not say that {path} is full: {health.stdout}")
        return reasons[-1]

    def pull(self):
        """Runs a trainer that has nothing left to train: it pulls the weights and ends."""
        step = self.cluster.newest_step()
        name = "worker-0"
        self.cluster.processes[name].kill()
        self.cluster.train_options = servers.MODEL + ["--steps", str(step)]
        self.cluster.start(name)
        servers.wait_until("a pull from a read-only shard", lambda: not self.cluster.processes[name].running())
        summary = servers.summary_of(self.cluster.processes[name].said())
        if summary["last_step"] != step:
            raise servers.Failure(f"pulled step {summary['last_step']}, expecting {step}")
        self.cluster.train_options = self.options
        return step

    def check_end(self):
        worker = self.cluster.processes["worker-0"]
        servers.wait_until("the end of the training", lambda: not worker.running(), 60)
        summary = servers.summary_of(worker.said())
        if (summary["last_step"], summary["weights_digest"]) != (self.steps, self.digest):
            raise servers.Failure(f"ended at step {summary['last_step']} with digest {summary['weights_digest']}, "
                                  f"undisturbed it is {self.steps} with {self.digest}")


def newest_segment(folder):
    """Returns path and size of the file that the journal grows in."""
    names = sorted(name for name in os.listdir(folder) if os.path.getsize(os.path.join(folder, name)) > 4096)
    path = os.path.join(folder, names[-1])
    return path, os.path.getsize(path)


def full_disk(training, fill, free, path, environment=None):
    """Fills the disk twice: the job continues by itself with the same trainer, and pulls work while the disk is full."""
    training.start(environment=environment)
    training.await_step(10)
    fill()
    print(f"full: {training.await_read_only(path)}")
    stopped_at = training.cluster.newest_step()
    free()
    training.await_step(stopped_at + 10)
    print(f"full disk: read-only at step {stopped_at}, went on by itself")
    fill()
    training.await_read_only(path)
    print(f"full disk: version {training.pull()} was pulled meanwhile")
    free()
    training.cluster.start("worker-0")
    training.check_end()
    if training.read_only_reason() != "":
        raise servers.Failure(f"still read-only: {training.read_only_reason()}")


def full_by_limit(training):
    """No file of the victim may grow: EFBIG."""
    folder = training.cluster.data_dir(VICTIM)
    process = training.cluster.processes[VICTIM]

    def limit(size):
        resource.prlimit(process.child.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    full_disk(training, lambda: limit(newest_segment(folder)[1] + 3000), lambda: limit(resource.RLIM_INFINITY), folder)


def full_tmpfs(training, environment=None):
    """A file next to the journal takes all the room: ENOSPC."""
    folder = training.cluster.data_dir(VICTIM)
    filler = os.path.join(folder, "filler")

    def fill():
        with open(filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 12))
            except OSError:
                pass

    os.makedirs(folder, mode=0o700)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={TMPFS_BYTES},mode=700", "kaon-test", folder],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if mounted.returncode != 0:
        return servers.leave_out("tmpfs", mounted.stdout.decode("utf-8", "replace").strip())
    try:
        full_disk(training, fill, lambda: os.remove(filler), folder, environment)
    finally:
        training.cluster.kill()
        subprocess.run(["umount", folder], check=True)


def faulty(training, what, path):
    """Returns the prefix of the victim's command, and its log. Calls fail as `what` says; if `path` is given, only
    those about it."""
    log = os.path.join(training.cluster.folder, "strace")
    return ["strace", "-f", "-qq", "-ttt", "--seccomp-bpf", "-y", "-o", log, "-e", f"trace={what.split(':')[0]}",
            "-e", f"inject={what}"] + (["-P", path] if path else []), log


def failing(training, what, name=""):
    """Expects the victim to end by itself and say why, and its next life to continue. If `name` is given, the fault
    is that file's."""
    path = os.path.join(training.cluster.data_dir(VICTIM), name) if name else ""
    wrapper, log = faulty(training, what, path)
    # A snapshot of the first weights is the first one.
    training.start(wrapper, {"KAON_SNAPSHOT_JOURNAL_BYTES": "1"} if name else None)
    victim = training.cluster.processes[VICTIM]
    servers.wait_until(f"{what}: the end of {VICTIM}", lambda: not victim.running())
    ended = time.time()
    with open(log, encoding="utf-8", errors="replace") as file:
        injected = [line for line in file if "(INJECTED)" in line]
    if not injected:
        raise servers.Failure(f"{what}: {VICTIM} ended with status {victim.child.returncode} before the fault")
    seconds = ended - float(injected[0].split()[1])
    path = re.search(r"<([^>]*)>", injected[0]).group(1)
    said = victim.said().decode("utf-8", "replace")
    if path not in said or "Input/output error" not in said:
        raise servers.Failure(f"{what}: the log does not name {path}")
    # A busy machine gets as much longer as any computation takes.
    allowed = END_SECONDS * servers.stretch()
    if seconds > allowed:
        raise servers.Failure(f"{what}: ended {seconds:.2f} s after the fault, expecting at most {allowed:.2f} s")
    training.cluster.start(VICTIM)
    training.check_end()
    print(f"{what}: ended after {seconds:.3f} s naming {os.path.basename(path)}; went on when started again")


def failing_checkpoint(training, what):
    """Nothing depends on a checkpoint: it is abandoned, and the job continues with the same processes."""
    environment = training.cluster.checkpoint_environment()
    wrapper, log = faulty(training, what, environment["KAON_CHECKPOINT_DIR"])
    training.start(wrapper, environment)
    training.await_step(5)
    created = training.cluster.kaonctl("checkpoint", "create", "bad", "--timeout", "60")
    said = created.stdout.decode("utf-8", "replace")
    with open(log, encoding="utf-8", errors="replace") as file:
        if "(INJECTED)" not in file.read():
            raise servers.Failure(f"{what}: the checkpoint ended before the fault: {said}")
    if created.returncode == 0 or environment["KAON_CHECKPOINT_DIR"] not in said or "Input/output error" not in said:
        raise servers.Failure(f"{what}: kaonctl ended with status {created.returncode}: {said}")
    training.check_end()
    if training.cluster.processes[VICTIM].lives != 1 or not training.cluster.processes[VICTIM].running():
        raise servers.Failure(f"{what}: {VICTIM} has ended")
    print(f"{what}: ended the checkpoint alone: {said.strip()}")


def run(folder):
    shared = os.path.join(folder, "shared")
    servers.Cluster.prepare(shared, workers=1)
    cases = [("limit", full_by_limit, STEPS), ("tmpfs", full_tmpfs, STEPS),
             ("tmpfs, interval", lambda training: full_tmpfs(training, {"KAON_DURABILITY": "interval(2)"}), STEPS)]
    if why := syscall_sweep.why_no_ptrace():
        servers.leave_out("failing disks", why)
    else:
        # The faults hit the middle of the training on any thread; the journal's own thread makes nearly all of
        # these calls.
        for what in ("pwritev:error=EIO:when=40", "fdatasync:error=EIO:when=9"):
            cases.append((what, lambda training, what=what: failing(training, what), 40))
        for what in ("pwritev:error=EIO:when=1", "fdatasync:error=EIO:when=1"):
            cases.append((f"snapshot, {what}", lambda training, what=what: failing(training, what, SNAPSHOT), 40))
        what = "fsync:error=EIO:when=1"
        cases.append((f"checkpoint, {what}", lambda training: failing_checkpoint(training, what), 60))
    failures = []
    for number, (name, case, steps) in enumerate(cases):
        training = Training(os.path.join(folder, f"case-{number}"), shared, steps)
        try:
            case(training)
            training.cluster.remove()
        except servers.Failure as failure:
            training.cluster.show_logs()
            training.cluster.kill()
            failures.append(f"{name}: {failure}")
    if failures:
        raise servers.Failure("; ".join(failures))


def main():
    servers.run_suite("kaon-disk.", run)


if __name__ == "__main__":
    main()
