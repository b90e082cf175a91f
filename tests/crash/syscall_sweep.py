#!/usr/bin/env python3
"""T4: a server dies at its kth write, sync, rename, truncation, removal or send, without help from its code.

For each kind of system call and each k there is a short training with snapshots and checkpoints. strace kills one
of the two shards, or the coordinator, as it enters that call (strace counts for each thread). The process is
started again on its disk. The training must end in the bits of an undisturbed one, and every checkpoint must be
whole. k rises until the victim survives the training.

The journal's calls come before those of other threads. So the calls on snapshot files, and those of the checkpoint
thread, are counted separately as well.
"""

import argparse
import collections
import os
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import servers  # noqa: E402  (found beside this file)

STEPS = 5
CALLS = ["pwritev", "fdatasync", "fsync", "renameat", "ftruncate", "unlinkat", "sendmsg"]
# A segment ends, a snapshot is taken for nearly each step, and there are more checkpoints than are kept.
ENVIRONMENT = {"KAON_JOURNAL_SEGMENT_BYTES": "8192", "KAON_SNAPSHOT_JOURNAL_BYTES": "8192"}
CHECKPOINT_EVERY_STEPS = 1
SHARD = "shard-0"
COORDINATOR = "coordinator"
# Positions: registration, weights, steps.
POSITIONS = range(1, STEPS + 3)


def snapshot_paths(cluster):
    """Returns every name of a snapshot's file that strace may see; renames and removals have relative ones."""
    names = [name for position in POSITIONS for name in (
        f"snapshot-{position:016x}.shard-00000-of-00002.0000.safetensors", f"snapshot-{position:016x}.meta.tmp",
        f"snapshot-{position:016x}.meta")] + ["start.tmp", "history.tmp"]
    return names + [os.path.join(cluster.data_dir(SHARD), name) for name in names]


# (what is counted, victim, calls, on which paths, of which thread). The names of a checkpoint's files are unknown
# before they exist, because each attempt draws its own.
SWEEPS = [
    ("", SHARD, CALLS, None, None),
    ("snapshots ", SHARD, ["pwritev", "fdatasync", "renameat", "unlinkat"], snapshot_paths, None),
    ("checkpoints ", SHARD, ["pwritev", "fdatasync", "fsync"], None, "checkpoints"),
    ("coordinator ", COORDINATOR, ["pwritev", "fdatasync", "fsync", "renameat", "unlinkat"], None, None),
]


def strace(what, log="/dev/null", paths=(), follow=("-f",)):
    """Returns the prefix of a command whose calls of one kind are tampered with, on those paths if there are any.
    Does not use --seccomp-bpf, with which strace 6.1 injects no signal."""
    call = what.split(":")[0]
    options = [option for path in paths for option in ("-P", path)]
    return ["strace", *follow, "-qq", "-o", log, "-e", f"trace={call}", "-e", f"inject={what}"] + options


def thread_of(pid, name):
    """Returns the id of the one thread of that name."""
    found = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/comm", encoding="utf-8") as comm:
            if comm.read().strip() == name:
                found.append(thread)
    if len(found) != 1:
        raise servers.Failure(f"process {pid} has {len(found)} threads called {name}, expecting 1")
    return found[0]


def attach(pid, thread, what):
    """Returns a tracer of that one thread, which ends with it; calls of other threads do not count."""
    tracer = subprocess.Popen(strace(what, follow=("-p", thread)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def is_attached():
        if tracer.poll() is not None:
            raise servers.Failure(f"strace: {tracer.stdout.read().decode('utf-8', 'replace').strip()}")
        with open(f"/proc/{pid}/task/{thread}/status", encoding="utf-8") as status:
            return f"TracerPid:\t{tracer.pid}\n" in status.read()

    servers.wait_until("a tracer", is_attached)
    return tracer


def why_no_ptrace():
    """Returns the reason why nothing can be traced here, or ""."""
    if shutil.which("strace") is None:
        return "strace is not installed; deploy/install_packages.sh --test installs it"
    tried = subprocess.run(strace("fsync:error=EIO:when=1") + ["true"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           check=False)
    return "" if tried.returncode == 0 else f"strace: {tried.stdout.decode('utf-8', 'replace').strip()}"


def why_no_attach():
    """Returns the reason why a running process cannot be traced here, or ""."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        try:
            tracer = attach(child.pid, str(child.pid), "fsync:error=EIO:when=1")
        except servers.Failure as failure:
            return str(failure)
        finally:
            child.kill()
        tracer.communicate()
    return ""


class Sweep:
    """Counts of the sweeps so far."""

    def __init__(self, folder, stride):
        self.folder = folder
        self.stride = stride
        self.shared = os.path.join(folder, "shared")
        servers.Cluster.prepare(self.shared, workers=1)
        self.options = servers.MODEL + ["--steps", str(STEPS)]
        self.digest = servers.undisturbed_digest(self.shared, 1, self.options)
        self.killed = collections.Counter()
        self.checkpoints = 0
        self.environment = {}
        self.cluster = None

    def sweep(self, kind, victim, call, paths, thread):
        """Tries every stride-th k from the first on, because some calls are made only once, until the victim
        survives."""
        k = 1
        while self.train(victim, f"{call}:signal=SIGKILL:when={k}", paths, thread):
            self.killed[kind + call] += 1
            k += self.stride

    def start(self, victim_name, what, paths, thread):
        """Starts the processes, with a tracer of the victim's thread if one is named, else around the whole victim.
        The tracer is attached before anything is written. Returns the tracer of the thread, or None."""
        wrapper = strace(what, paths=paths(self.cluster) if paths is not None else ())
        for name in self.cluster.ports:
            self.cluster.start(name, self.environment, wrapper if name == victim_name and thread is None else None)
        tracer = None
        if thread is not None:
            servers.wait_until("a serving victim", lambda: self.cluster.serving(victim_name))
            pid = self.cluster.processes[victim_name].child.pid
            tracer = attach(pid, thread_of(pid, thread), what)
        for name in self.cluster.workers:
            self.cluster.start(name, self.environment)
        return tracer

    def train(self, victim_name, what, paths, thread):
        """Runs one training. Returns True if the victim was killed."""
        self.cluster = servers.Cluster(os.path.join(self.folder, "cluster"), self.shared, workers=1,
                                       train=self.options)
        self.environment = {**ENVIRONMENT, **self.cluster.checkpoint_environment(CHECKPOINT_EVERY_STEPS)}
        tracer = self.start(victim_name, what, paths, thread)
        worker = self.cluster.processes["worker-0"]
        victim = self.cluster.processes[victim_name]
        killed = False
        deadline = time.monotonic() + 60
        while worker.running():
            if not victim.running():
                if killed or victim.child.returncode != -signal.SIGKILL:
                    raise servers.Failure(f"{what}: {victim_name} ended with status {victim.child.returncode}")
                killed = True
                self.cluster.start(victim_name, self.environment)
            if time.monotonic() > deadline:
                raise servers.Failure(f"{what}: no end of the training within 60 s")
            time.sleep(0.003)
        if worker.child.returncode != 0:
            raise servers.Failure(f"{what}: kaon-train ended with status {worker.child.returncode}")
        summary = servers.summary_of(worker.said())
        if (summary["last_step"], summary["weights_digest"]) != (STEPS, self.digest):
            raise servers.Failure(f"{what}: step {summary['last_step']}, digest {summary['weights_digest']}, expecting "
                                  f"{STEPS} with {self.digest}")
        if killed:
            self.check_files()
        self.cluster.remove()
        if tracer is not None:
            tracer.communicate()
        return killed

    def check_files(self):
        """Checks the files through servers without a tracer. They take no further checkpoint, which would remove an
        old one."""
        for name in self.cluster.ports:
            self.cluster.processes[name].kill()
            self.cluster.start(name, {**ENVIRONMENT, **self.cluster.checkpoint_environment()})
        servers.wait_until("serving servers", lambda: all(map(self.cluster.serving, self.cluster.ports)))
        self.checkpoints += self.cluster.verify_checkpoints()
        servers.wait_until("all shards", lambda: self.cluster.kaonctl("digest").returncode == 0)
        self.cluster.check_snapshots()


def run(options, folder):
    if why := why_no_ptrace() or why_no_attach():
        return servers.leave_out("crashes at system calls", why)
    start = time.monotonic()
    sweep = Sweep(folder, options.stride)
    try:
        for kind, victim, calls, paths, thread in SWEEPS:
            for call in calls:
                sweep.sweep(kind, victim, call, paths, thread)
    except servers.Failure:
        sweep.cluster.show_logs()
        raise
    finally:
        if sweep.cluster is not None:
            sweep.cluster.kill()
    kinds = [kind + call for kind, _, calls, _, _ in SWEEPS for call in calls]
    counts = ", ".join(f"{sweep.killed[kind]} at {kind}" for kind in kinds)
    print(f"syscall kills: {sum(sweep.killed.values())} ({counts}), every {options.stride}th, "
          f"{time.monotonic() - start:.0f} s; checkpoints verified: {sweep.checkpoints}")
    # A short training may lack the other kinds.
    for kind in kinds:
        if sweep.killed[kind] == 0 and kind.split()[-1] not in ("ftruncate", "unlinkat", "renameat"):
            raise servers.Failure(f"no kill at {kind}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--stride", type=int, default=8, help="take every Nth call")
    options = parser.parse_args()
    servers.run_suite("kaon-sweep.", run, options)


if __name__ == "__main__":
    main()
