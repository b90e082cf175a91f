#!/usr/bin/env python3
"""T3: processes that kill themselves at named points and are started again lose no step.

With --interval K they lose at most K steps each time. They end in the bits of an undisturbed run.

A round is one training of two workers on two shards, in processes of their own, with snapshots, a journal that is
truncated after them, and a checkpoint every few steps. Each of the five processes starts with an armed failpoint.
When one has died of it, it is started again with another one armed: alone, or after all others were killed as
well. This goes on until the training has ended. One such death is a cycle. Rounds follow until there were enough
cycles. The next point is drawn among those that were armed least often.
"""

import argparse
import collections
import itertools
import json
import os
import random
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import servers  # noqa: E402  (found beside this file)

STEPS = 10
# A segment ends every few steps of the small model, and a snapshot is taken for nearly each.
ENVIRONMENT = {"KAON_JOURNAL_SEGMENT_BYTES": "8192", "KAON_SNAPSHOT_JOURNAL_BYTES": "8192"}
CHECKPOINT_EVERY_STEPS = 2
# Share of the deaths at which everything else is killed, too.
ALL_AT_ONCE = 0.15
# Kinds of deaths in a cycle.
KINDS = ("shard", "coordinator", "worker", "all at once")
# Any number of crashes at fewer places shows too little (reliability.md, T3).
LEAST_POINTS = 30


def read_points(header):
    """Returns (process, when, name) of each point, in the order of proto/failpoint.h."""
    with open(header, encoding="utf-8") as file:
        return re.findall(r"^  POINT\((\w+), (\w+), (\w+)\)", file.read(), re.MULTILINE)


class Cycles:
    """Counts over all rounds, and the choice of the next point."""

    def __init__(self, seed, points, interval):
        self.rng = random.Random(seed)
        self.points = points
        # Most steps that a death of a shard may lose; 0 in mode journal.
        self.interval = interval
        self.armed = collections.Counter()
        self.reached = collections.Counter()
        self.kinds = collections.Counter()
        self.steps_lost = 0
        self.most_lost_at_once = 0
        self.rollbacks = 0
        self.checkpoints = 0
        self.serving_seconds = []
        self.step_seconds = []
        self.rounds = 0

    def total(self):
        return sum(self.reached.values())

    def draw(self, role, fresh):
        """Returns the next point for a process of `role`, in the form of KAON_FAILPOINT."""
        moments = ("run", "start") if fresh else ("run",)
        usable = [name for process, when, name in self.points if process == role and when in moments]
        if fresh and self.rng.random() < 0.7:
            usable = [name for process, when, name in self.points if process == role and when == "start"] or usable
        # Half of the time, points that were never reached go first: some need more than one chance.
        unreached = [name for name in usable if self.reached[name] == 0]
        if unreached and self.rng.random() < 0.5:
            usable = unreached
        least = min(self.armed[name] for name in usable)
        name = self.rng.choice([name for name in usable if self.armed[name] == least])
        self.armed[name] += 1
        # The first time its first passing; then one of the first passings, in the middle of a step or of a later
        # one.
        nth = 1 if self.reached[name] == 0 else self.rng.choice([1, 1, 2, 3, 4, 6, 9, 14])
        return f"{name}:{nth}"


class Round:
    """One training, from its first process to its last."""

    def __init__(self, cycles, folder, shared, digest):
        self.cycles = cycles
        self.digest = digest
        self.cluster = servers.Cluster(folder, shared, train=servers.MODEL + ["--steps", str(STEPS)])
        self.mode = {**ENVIRONMENT, "KAON_DURABILITY": f"interval({cycles.interval})" if cycles.interval else "journal"}
        self.environment = {**self.mode, **self.cluster.checkpoint_environment(CHECKPOINT_EVERY_STEPS)}
        self.armed = {}
        # When a dead server must serve again, and when training must continue: name -> time of its death.
        self.dead_servers = {}
        self.step_before = None
        # When each worker finished.
        self.finished = {}

    def start(self, name, fresh=False):
        self.armed[name] = self.cycles.draw(name.split("-")[0], fresh)
        self.cluster.start(name, {**self.environment, "KAON_FAILPOINT": self.armed[name]})

    def run(self):
        self.cycles.rounds += 1
        for name in self.cluster.processes:
            self.start(name, fresh=name in self.cluster.shards)
        progress = time.monotonic()
        while len(self.finished) < len(self.cluster.workers):
            died = [name for name in self.cluster.processes if name not in self.finished and self.has_died(name)]
            for name in died:
                self.after_death(name)
            self.note_recovery()
            self.recall()
            if died:
                progress = time.monotonic()
            elif time.monotonic() > progress + 30:
                raise servers.Failure(f"no death and no end for 30 s; armed: {self.armed}")
            time.sleep(0.002)
        self.check_end()

    def has_died(self, name):
        process = self.cluster.processes[name]
        if process.running():
            return False
        if name in self.cluster.workers and process.child.returncode == 0:
            self.finished[name] = time.monotonic()
            return False
        return True

    def after_death(self, name):
        process = self.cluster.processes[name]
        # The process was killed with all others a moment ago.
        if process.running():
            return
        point = process.failpoint()
        if point is None or point != self.armed[name].split(":")[0]:
            raise servers.Failure(f"{name} ended with status {process.child.returncode}, armed was {self.armed[name]}")
        self.cycles.reached[point] += 1
        names = [name]
        if self.cycles.rng.random() < ALL_AT_ONCE:
            names = [other for other in self.cluster.processes if other not in self.finished]
            for other in names:
                self.cluster.processes[other].kill()
        self.cycles.kinds["all at once" if len(names) > 1 else name.split("-")[0]] += 1
        now = time.monotonic()
        if self.step_before is None:
            self.step_before = (now, self.cluster.newest_step())
        for other in names:
            if other in self.cluster.ports:
                self.dead_servers[other] = now
            self.start(other)

    def recall(self):
        """In mode interval a job may roll back after one of its workers finished. The others then wait for that
        worker, so it is restarted."""
        for name in [name for name, since in self.finished.items() if time.monotonic() > since + 3]:
            if self.cycles.interval and len(self.finished) < len(self.cluster.workers):
                del self.finished[name]
                self.start(name)

    def note_recovery(self):
        now = time.monotonic()
        for name in [name for name in self.dead_servers if self.cluster.serving(name)]:
            self.cycles.serving_seconds.append(now - self.dead_servers.pop(name))
        if self.step_before is not None and self.cluster.newest_step() > self.step_before[1]:
            self.cycles.step_seconds.append(now - self.step_before[0])
            self.step_before = None

    def check_end(self):
        for name in self.cluster.workers:
            summary = servers.summary_of(self.cluster.processes[name].said())
            if (summary["last_step"], summary["weights_digest"]) != (STEPS, self.digest):
                raise servers.Failure(f"{name} ended at step {summary['last_step']} with digest "
                                      f"{summary['weights_digest']}, undisturbed it is {STEPS} with {self.digest}")
            self.count_lost(name)
        self.check_history()
        self.cycles.checkpoints += self.cluster.verify_checkpoints()
        self.cluster.check_snapshots()
        self.cluster.remove()

    def count_lost(self, name):
        """Checks that a worker continues from the newest step that it has seen decided and pulled, in later lives as
        well. In mode interval it may continue from at most so many steps before."""
        lives = [steps for steps in self.cluster.steps(name) if steps]
        # A step that was decided when a shard died may have no line: the worker learns it from the rollback to it.
        most = 2 if self.cycles.interval else 1
        for steps in lives:
            if any(after > before + most for before, after in zip(steps, steps[1:])):
                raise servers.Failure(f"{name} saw steps {steps}")
        seen = list(itertools.chain([0], *lives))
        for before, after in zip(seen, seen[1:]):
            lost = max(0, before + 1 - after)
            self.cycles.steps_lost += lost
            self.cycles.most_lost_at_once = max(self.cycles.most_lost_at_once, lost)
            if lost > self.cycles.interval:
                raise servers.Failure(f"{name} saw step {after} after step {before}: {lost} steps lost, of {lives}")

    def check_history(self):
        """Checks that every step is there once and applied, whatever the journals have forgotten. Asks servers
        without failpoints."""
        for name in self.cluster.ports:
            self.cluster.processes[name].kill()
            # The servers take no further checkpoint, which would remove an old one.
            self.cluster.start(name, {**self.mode, **self.cluster.checkpoint_environment()})
        servers.wait_until("serving servers", lambda: all(map(self.cluster.serving, self.cluster.ports)))
        seen = []

        def complete():
            # A shard whose newest decision was not on disk yet learns it again soon.
            answer = self.cluster.kaonctl("-o", "json", "steps", "--limit", "1000")
            if answer.returncode != 0:
                return False
            seen[:] = json.loads(answer.stdout)["steps"]
            if self.cycles.interval:
                # All shards were killed, and the rollback may not have happened yet.
                last = seen[-1] if seen else {"kind": "none"}
                return last["kind"] == "rollback" and last["rolled_back_to_step"] >= STEPS - self.cycles.interval
            return any((record["kind"], record.get("step")) == ("train", STEPS) for record in seen)

        servers.wait_until("the history of the last step", complete)
        if self.cycles.interval:
            self.check_rollbacks(seen)
        # In mode interval the steps between snapshots are gone after a restart.
        steps = [(record["step"], record["outcome"]) for record in seen if record["kind"] == "train"]
        numbers = sorted({step for step, _ in steps}) if self.cycles.interval else range(1, STEPS + 1)
        if steps != [(step, "apply") for step in numbers]:
            raise servers.Failure(f"history: {steps}")

    def check_rollbacks(self, records):
        """Checks how many steps each rollback discarded."""
        rollbacks = [record for record in records if record["kind"] == "rollback"]
        self.cycles.rollbacks += rollbacks[-1]["timeline"] - 1
        for record in rollbacks:
            lost = re.search(r"steps (\d+) \.\. (\d+) are lost", record["reason"])
            if lost is not None and int(lost[2]) - int(lost[1]) >= self.cycles.interval:
                raise servers.Failure(f"rollback: {record['reason']}")


def never_reached(cycles, points):
    return [name for _, when, name in points if when in ("run", "start") and cycles.reached[name] == 0]


def too_few(cycles, least):
    """Returns the reason why a run that its time ended has shown too little, or None; 0 demands nothing."""
    absent = [kind for kind in KINDS if cycles.kinds[kind] == 0]
    if cycles.total() < least:
        return f"{cycles.total()} cycles, expecting at least {least}"
    if least > 0 and absent:
        return f"{cycles.total()} cycles, and none of {', none of '.join(absent)}"
    points = sum(count > 0 for count in cycles.reached.values())
    if least > 0 and points < LEAST_POINTS:
        return f"{cycles.total()} cycles at {points} points, expecting at least {LEAST_POINTS}"
    return None


def has_time(cycles, seconds, options):
    """Gives a slow machine more time to show the least."""
    return seconds < options.seconds or (too_few(cycles, options.least) is not None and seconds < options.most_seconds)


def report(cycles, seconds, points, options):
    kinds = ", ".join(f"{cycles.kinds[kind]} of {kind}" for kind in KINDS)
    print(f"crash cycles: {cycles.total()} of {options.cycles}, at least {options.least} ({kinds}), {cycles.rounds} trainings, "
          f"{seconds / max(1, cycles.total()):.2f} s each")
    missing = never_reached(cycles, points)
    usable = sum(when in ("run", "start") for _, when, _ in points)
    print(f"points reached: {usable - len(missing)} of {usable}{', not ' if missing else ''}{', '.join(missing)}")
    if cycles.interval:
        print(f"interval({cycles.interval}): {cycles.rollbacks} rollbacks, at most {cycles.most_lost_at_once} steps lost at once")
    else:
        print(f"steps lost: {cycles.steps_lost}")
    print(f"checkpoints left by the trainings, all good: {cycles.checkpoints}")
    print(f"until a killed server serves again: p50 {servers.percentile(cycles.serving_seconds, 0.5):.3f} s, "
          f"p99 {servers.percentile(cycles.serving_seconds, 0.99):.3f} s; until the next step is done: "
          f"p50 {servers.percentile(cycles.step_seconds, 0.5):.3f} s, p99 {servers.percentile(cycles.step_seconds, 0.99):.3f} s")


def run(options, folder):
    points = read_points(options.points)
    shared = os.path.join(folder, "shared")
    servers.Cluster.prepare(shared)
    digest = servers.undisturbed_digest(shared, 2, servers.MODEL + ["--steps", str(STEPS)])
    cycles = Cycles(options.seed, points, options.interval)
    start = time.monotonic()
    current = None
    try:
        while cycles.total() < options.cycles and has_time(cycles, time.monotonic() - start, options):
            current = Round(cycles, os.path.join(folder, f"round-{cycles.rounds + 1}"), shared, digest)
            current.run()
        failure = None
    except servers.Failure as found:
        failure = f"seed {options.seed}, round {cycles.rounds}: {found}"
        current.cluster.show_logs()
    finally:
        current.cluster.kill()
    report(cycles, time.monotonic() - start, points, options)
    # In mode interval steps are not written, so the journal's own points may not be reached.
    missing = never_reached(cycles, points) if options.interval == 0 else []
    if failure is None and cycles.total() < options.cycles:
        print(f"stopped after {time.monotonic() - start:.0f} s: {cycles.total()} of {options.cycles} cycles, at least {options.least}")
    # Short runs may miss a point that needs a rare moment.
    if failure is None and missing and cycles.total() >= 8 * len(points):
        failure = f"points never reached: {', '.join(missing)}"
    failure = failure or too_few(cycles, options.least)
    if failure is not None:
        raise servers.Failure(failure)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--cycles", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no round after this long")
    parser.add_argument("--most-seconds", type=float, default=0, help="or after this long, while there were fewer than --least")
    parser.add_argument("--least", type=int, default=0, help="fail with fewer cycles, without one of each kind, or at too few points")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--interval", type=int, default=0, help="durability interval(K) in place of journal")
    parser.add_argument("--points", default="proto/failpoint.h")
    servers.run_suite("kaon-crash.", run, parser.parse_args())


if __name__ == "__main__":
    main()
