#!/usr/bin/env python3
"""T3, P9: a shard or a coordinator that kills itself during a restore leaves the job in one timeline, not in two.

There is one case for each point of proto/failpoint.h that only a restore reaches. The victim dies alone or all
servers at once: by turns, or each way. While a training of two workers runs, its job is restored to a checkpoint;
the victim dies and is started again. The restore has then happened, or is requested again. Both workers go back by
themselves, and the training must end in the bits of an undisturbed one.
"""

import argparse
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import crash_cycles  # noqa: E402  (found beside this file)
import servers  # noqa: E402

STEPS = 100
# The checkpoint is taken after so many steps, and the job is restored to it after as many more.
EARLY = 4
VICTIMS = {"shard": "shard-1", "coordinator": "coordinator"}
CHECKPOINT = "early"
# The timeline of a job that was restored once.
RESTORED = 2


class Case:
    """One training, one restore, one death."""

    def __init__(self, folder, shared, digest):
        self.cluster = servers.Cluster(folder, shared, train=servers.MODEL + ["--steps", str(STEPS)])
        self.environment = {**crash_cycles.ENVIRONMENT, **self.cluster.checkpoint_environment()}
        self.digest = digest

    def run(self, process, point, all_at_once):
        name = VICTIMS[process]
        victim = self.cluster.processes[name]
        for other in self.cluster.processes:
            armed = {"KAON_FAILPOINT": point} if other == name else {}
            self.cluster.start(other, {**self.environment, **armed})
        self.await_step(EARLY)
        self.create()
        self.await_step(self.cluster.newest_step() + EARLY)
        restoring = self.ask_for_restore()
        servers.wait_until(f"the death of {name} at {point}", lambda: not victim.running())
        if victim.failpoint() != point:
            raise servers.Failure(f"{name} ended with status {victim.child.returncode}, armed was {point}")
        names = list(self.cluster.ports) if all_at_once else [name]
        for other in names:
            self.cluster.processes[other].kill()
        for other in names:
            self.cluster.start(other, self.environment)
        self.await_restore(restoring)
        self.check_end()

    def create(self):
        """Takes a checkpoint with retries: on a busy machine a shard may be silent for a moment."""
        said = []

        def is_created():
            created = self.cluster.kaonctl("checkpoint", "create", CHECKPOINT)
            said[:] = [created.stdout.decode("utf-8", "replace")]
            if created.returncode != 0 and "UNAVAILABLE" not in said[0]:
                raise servers.Failure(f"create: {said[0]}")
            return created.returncode == 0

        servers.wait_until("a checkpoint", is_created)

    def await_step(self, step):
        servers.wait_until(f"step {step}", lambda: self.cluster.newest_step() >= step)
        if not all(self.cluster.processes[name].running() for name in self.cluster.workers):
            raise servers.Failure(f"the training is over, too early for a restore after step {step}")

    def ask_for_restore(self):
        return subprocess.Popen(self.cluster.kaonctl_command("checkpoint", "restore", CHECKPOINT, "--yes", "--timeout", "30"),
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def timeline(self):
        """Returns the timeline of the job, or 0 while no server can tell."""
        answer = self.cluster.kaonctl("-o", "json", "digest")
        return json.loads(answer.stdout)["timeline"] if answer.returncode == 0 else 0

    def await_restore(self, restoring):
        """Waits for the restore. kaonctl resends the request with the same id until a coordinator answers it."""
        said = restoring.communicate()[0].decode("utf-8", "replace")
        if restoring.returncode != 0 or f"as timeline {RESTORED}," not in said:
            raise servers.Failure(f"kaonctl ended with status {restoring.returncode}: {said}")

    def check_end(self):
        workers = [self.cluster.processes[name] for name in self.cluster.workers]
        servers.wait_until("the end of the training", lambda: not any(worker.running() for worker in workers), 60)
        for worker in workers:
            summary = servers.summary_of(worker.said())
            if (summary["last_step"], summary["weights_digest"]) != (STEPS, self.digest):
                raise servers.Failure(f"{worker.name} ended at step {summary['last_step']} with digest "
                                      f"{summary['weights_digest']}, undisturbed it is {STEPS} with {self.digest}")
            if b"back to step" not in worker.said():
                raise servers.Failure(f"{worker.name} was not taken back")
        if (timeline := self.timeline()) != RESTORED:
            raise servers.Failure(f"the job ended in timeline {timeline}, expecting {RESTORED}: one restore")
        if self.cluster.verify_checkpoints() != 1:
            raise servers.Failure("there is more than one checkpoint")
        self.cluster.check_snapshots()
        self.cluster.remove()


def run(options, folder):
    points = [(process, name) for process, when, name in crash_cycles.read_points(options.points) if when == "restore"]
    shared = os.path.join(folder, "shared")
    servers.Cluster.prepare(shared)
    digest = servers.undisturbed_digest(shared, 2, servers.MODEL + ["--steps", str(STEPS)])
    start = time.monotonic()
    cases = [(process, point, all_at_once) for number, (process, point) in enumerate(points)
             for all_at_once in (False, True) if options.each_way or all_at_once == (number % 2 == 1)]
    for number, (process, point, all_at_once) in enumerate(cases):
        case = Case(os.path.join(folder, f"case-{number}"), shared, digest)
        try:
            case.run(process, point, all_at_once)
        except servers.Failure as failure:
            case.cluster.show_logs()
            raise servers.Failure(f"{point}, {'all at once' if all_at_once else 'alone'}: {failure}") from failure
        finally:
            case.cluster.kill()
    seconds = time.monotonic() - start
    print(f"crashes in restores: {len(cases)} at {len(points)} points, alone or all at once, {seconds / len(cases):.2f} s each")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--each-way", action="store_true", help="at each point both alone and all at once, not in turns")
    parser.add_argument("--points", default="proto/failpoint.h")
    servers.run_suite("kaon-restore.", run, parser.parse_args())


if __name__ == "__main__":
    main()
