#!/usr/bin/env python3
"""T4: a shard killed at its kth write, sync, rename, truncation, removal or send, with no help from its code.

For each kind of system call and each k: a short training in which strace kills one of the two shards as it enters that call
(strace counts for each thread), and the shard is started again on what is on the disk. The training must end in the bits
of an undisturbed one. k goes up until the shard survives the training.
"""

import argparse
import collections
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import servers  # noqa: E402  (found beside this file)

STEPS = 5
CALLS = ["pwritev", "fdatasync", "fsync", "renameat", "ftruncate", "unlinkat", "sendmsg"]
# So small that the journal goes on to a second segment.
ENVIRONMENT = {"KAON_JOURNAL_SEGMENT_BYTES": "16384"}
VICTIM = "shard-0"


def strace(what, log="/dev/null"):
    """What a command is put behind, so that its calls of one kind are tampered with. Not --seccomp-bpf: with it strace 6.1
    injects no signal."""
    call = what.split(":")[0]
    return ["strace", "-f", "-qq", "-o", log, "-e", f"trace={call}", "-e", f"inject={what}"]


def why_no_ptrace():
    """Why nothing can be traced here, or ""."""
    if shutil.which("strace") is None:
        return "strace is not installed; deploy/install_packages.sh --test installs it"
    tried = subprocess.run(strace("fsync:error=EIO:when=1") + ["true"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           check=False)
    return "" if tried.returncode == 0 else f"strace: {tried.stdout.decode('utf-8', 'replace').strip()}"


class Sweep:
    """What was swept so far."""

    def __init__(self, folder, stride, seed):
        self.folder = folder
        self.stride = stride
        self.rng = random.Random(seed)
        self.shared = os.path.join(folder, "shared")
        servers.Cluster.prepare(self.shared, workers=1)
        self.options = servers.MODEL + ["--steps", str(STEPS)]
        self.digest = servers.undisturbed_digest(self.shared, 1, self.options)
        self.killed = collections.Counter()
        self.cluster = None

    def sweep(self, call):
        """Every stride-th k from the first on, as some calls are made once only, until the victim survives."""
        k = 1
        while self.train(f"{call}:signal=SIGKILL:when={k}"):
            self.killed[call] += 1
            k += self.stride

    def train(self, what):
        """Whether the victim was killed."""
        self.cluster = servers.Cluster(os.path.join(self.folder, "cluster"), self.shared, self.rng, workers=1,
                                       train=self.options)
        for name in self.cluster.processes:
            self.cluster.start(name, ENVIRONMENT, strace(what) if name == VICTIM else None)
        worker = self.cluster.processes["worker-0"]
        victim = self.cluster.processes[VICTIM]
        killed = False
        deadline = time.monotonic() + 60
        while worker.running():
            if not victim.running():
                if killed or victim.child.returncode != -signal.SIGKILL:
                    raise servers.Failure(f"{what}: {VICTIM} ended with status {victim.child.returncode}")
                killed = True
                self.cluster.start(VICTIM, ENVIRONMENT)
            if time.monotonic() > deadline:
                raise servers.Failure(f"{what}: no end of the training within 60 s")
            time.sleep(0.003)
        if worker.child.returncode != 0:
            raise servers.Failure(f"{what}: kaon-train ended with status {worker.child.returncode}")
        summary = servers.summary_of(worker.said())
        if (summary["last_step"], summary["weights_digest"]) != (STEPS, self.digest):
            raise servers.Failure(f"{what}: step {summary['last_step']}, digest {summary['weights_digest']}, expecting "
                                  f"{STEPS} with {self.digest}")
        self.cluster.remove()
        return killed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--stride", type=int, default=8, help="take every Nth call")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if why := why_no_ptrace():
        print(f"not run: {why}")
        return
    folder = tempfile.mkdtemp(prefix="kaon-sweep.", dir=os.environ.get("TEST_TMPDIR"))
    start = time.monotonic()
    sweep = Sweep(folder, options.stride, options.seed)
    try:
        for call in CALLS:
            sweep.sweep(call)
    except servers.Failure as failure:
        sweep.cluster.show_logs()
        print(f"FAILED: {failure}")
        sys.exit(1)
    finally:
        if sweep.cluster is not None:
            sweep.cluster.kill()
    counts = ", ".join(f"{sweep.killed[call]} at {call}" for call in CALLS)
    print(f"syscall kills: {sum(sweep.killed.values())} ({counts}), every {options.stride}th, "
          f"{time.monotonic() - start:.0f} s")
    for call in ("pwritev", "fdatasync", "sendmsg"):
        if sweep.killed[call] == 0:
            print(f"FAILED: no kill at {call}")
            sys.exit(1)
    shutil.rmtree(folder)
    print("all passed")


if __name__ == "__main__":
    main()
