#!/usr/bin/env python3
"""T3: a shard or a trainer that kills itself while data travel over NCCL loses no step.

There is one case for each point of proto/failpoint.h on the way of a gradient that a process passes again and again.
In a case, two workers train on one shard, and their sessions of NCCL carry pushes and pulls when the victim dies. It
is started again, and the training must end in the bits of an undisturbed one. By turns, the shard computes on
the host or on the device of the link. A library over sockets takes the place of NCCL.
"""

import argparse
import functools
import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import crash_cycles  # noqa: E402  (found in this folder)
import servers  # noqa: E402

# With adamw alone, host and device compute the same bits.
ADAMW = ["--hidden", "8", "--embedding", "4", "--context", "6", "--blocks", "1", "--batch-size", "16", "--preset", "adamw",
         "--report-every", "1", "--steps", "14"]
MUON = servers.MODEL + ["--steps", "14"]
ON_THE_WAY = re.compile("(shard|worker|apply|speculation|journal|disk)_")
# A process passes these when it starts, before it has a session.
BEFORE_SESSIONS = re.compile("shard_(serving|promise|state)|worker_joined|journal_(open|read_back)")
LIBRARIES = {"libkaon_cuda.so": "kernels/cuda/libkaon_cuda_on_host.so", "libnccl.so.2": "tests/testing/libsocket_nccl.so"}
# The victim dies at the first of these passes at which it has sessions. Some points are passed more than ten times a
# step. How often others are passed depends on the snapshots, of which a busy machine takes fewer.
PASSES = (6, 24, 48, 96, 3, 2)


def points_on_the_way(header):
    """Returns (process, name) of each point that a training passes while there are sessions."""
    return [(process, name) for process, when, name in crash_cycles.read_points(header)
            if when == "run" and ON_THE_WAY.match(name) and not BEFORE_SESSIONS.match(name)]


def nccl_environment(folder):
    """Makes a folder in which a process finds the device on the host, and the library in place of NCCL."""
    os.makedirs(folder)
    for name, source in LIBRARIES.items():
        os.symlink(os.path.abspath(os.path.join(os.environ.get("KAON_BINARIES", "."), source)), os.path.join(folder, name))
    return {"LD_LIBRARY_PATH": folder, "KAON_NCCL": "lo"}


class Case:
    """One training, one death."""

    def __init__(self, folder, shared, train, environment):
        self.cluster = servers.Cluster(folder, shared, shards=1, train=train + ["--nccl", "lo"])
        self.cluster.transports = ["grpc"]
        self.environment = {**crash_cycles.ENVIRONMENT, **environment, "KAON_DURABILITY": "journal"}
        self.workers = [self.cluster.processes[name] for name in self.cluster.workers]

    def has_ended(self):
        return not any(worker.running() for worker in self.workers)

    def dies_with_sessions(self, name, point, nth):
        """Returns whether the victim died at the nth pass, with sessions for pushes and for pulls."""
        shard, victim = self.cluster.processes["shard-0"], self.cluster.processes[name]
        for other in self.cluster.processes:
            armed = {"KAON_FAILPOINT": f"{point}:{nth}"} if other == name else {}
            self.cluster.start(other, {**self.environment, **armed})
        servers.wait_until(f"the death of {name} at pass {nth}", lambda: not victim.running() or self.has_ended(), 90)
        if victim.running() or victim.child.returncode == 0:
            return False
        if victim.failpoint() != point:
            raise servers.Failure(f"{name} ended with status {victim.child.returncode}, armed was {point}:{nth}")
        # Those of the victim: the shard has sessions with a rank, worker-0 its own.
        ranks = "0" if victim is not shard else "[01]"
        said = shard.said()
        if victim is shard and b" ended after " in said:
            return False
        return all(re.search(f"NCCL session .* as rank {ranks}{pulls}\n".encode(), said) for pulls in ("", ", for pulls"))

    def finish(self, name, digest):
        """Starts the victim again, and checks the end of the training."""
        self.cluster.start(name, self.environment)
        servers.wait_until("the end of the training", self.has_ended, 90)
        for worker in self.workers:
            if (there := servers.summary_of(worker.said())["weights_digest"]) != digest:
                raise servers.Failure(f"{worker.name} ended with digest {there}, undisturbed it is {digest}")
        self.cluster.check_snapshots()
        self.cluster.remove()


def sweep_point(folder, shared, train, digest, environment, process, point):
    """Returns the pass at which the victim died with sessions."""
    name = "shard-0" if process == "shard" else "worker-0"
    for nth in PASSES:
        case = Case(os.path.join(folder, f"pass-{nth}"), shared, train, environment)
        try:
            if case.dies_with_sessions(name, point, nth):
                case.finish(name, digest)
                return nth
        except servers.Failure as failure:
            case.cluster.show_logs()
            raise servers.Failure(f"{point}: {failure}") from failure
        finally:
            case.cluster.kill()
    raise servers.Failure(f"{point}: no death with sessions at passes {PASSES}")


def run(options, folder):
    points = points_on_the_way(options.points)
    if unknown := set(options.only or []) - {name for _, name in points}:
        raise servers.Failure(f"--only {' '.join(sorted(unknown))}: expecting some of {' '.join(name for _, name in points)}")
    points = [(process, name) for process, name in points if name in (options.only or name)]
    shared = os.path.join(folder, "shared")
    servers.Cluster.prepare(shared)
    libraries = nccl_environment(os.path.join(folder, "libraries"))
    digest_of = functools.lru_cache(lambda muon: servers.undisturbed_digest(shared, 2, MUON if muon else ADAMW))
    start = time.monotonic()
    for number, (process, point) in enumerate(points):
        # The shard computes no other update before its decision.
        muon = point.startswith("speculation")
        device = "cpu" if muon or number % 2 else "cuda:0"
        nth = sweep_point(os.path.join(folder, point), shared, MUON if muon else ADAMW, digest_of(muon),
                          {**libraries, "KAON_DEVICE": device}, process, point)
        print(f"{point}, shard on {device}: died at pass {nth}, {time.monotonic() - start:.0f} s", flush=True)
    seconds = time.monotonic() - start
    print(f"crashes over NCCL: at {len(points)} points, {seconds / len(points):.2f} s each")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--only", nargs="+", help="these points alone")
    parser.add_argument("--points", default="proto/failpoint.h")
    servers.run_suite("kaon-nccl.", run, parser.parse_args())


if __name__ == "__main__":
    main()
