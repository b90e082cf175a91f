#!/usr/bin/env python3
"""T10: one log in one order explains the calls and results of a cluster's clients while its processes died.

Rounds are as those of crash_cycles.py, with the simulator's tiny job. Each life of a worker computes other
gradients in each timeline, and logs each call and each answer with its time. At the end the shards show their
records. The check of the simulator's histories executes them in order, and every answer, pulled weight and instant
must fit. An answer that no client saw may have been given or not.

With --interval K a rollback discards at most K steps. Shards no longer show these steps, so the answers that
clients got stand in for them. The check must reject each kind of forged log: in the first rounds, and in others
until there was a log that can be forged so.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import crash_cycles  # noqa: E402  (found beside this file)
import servers  # noqa: E402

STEPS = 30
# The model skips this step: its weights are those of the step before.
SKIPPED_STEP = 7
NANOS_PER_HOUR = 3600 * 10**9
# No worker has this life.
NO_LIFE = 10**6
# The check multiplies matrices by definition. Without a snapshot, shards have every record.
ENVIRONMENT = {"KAON_JOURNAL_SEGMENT_BYTES": "8192", "KAON_GEMM": "reference"}
# This mode needs snapshots. No segment ends, so that none is removed.
INTERVAL_ENVIRONMENT = {"KAON_GEMM": "reference"}
HISTORY = re.compile(r"^history: (\d+) operations, (\d+) of them unanswered, explained by (\d+) entries, (\d+) of them taken back$",
                     re.MULTILINE)
TAKEN_BACK = re.compile(r"^taken back: step (\d+) of timeline (\d+) by timeline (\d+)$", re.MULTILINE)
# Exit statuses of check_history.
CONTRADICTED = 1
UNKNOWN = 3
# Largest share of histories with a discarded step that no client was told of.
MOST_UNKNOWN = 0.2
# A run of so many cycles loses a step that rank 0 was told of.
ENOUGH_CYCLES = 200


def read_log(path):
    with open(path, encoding="utf-8") as file:
        # The last line may be cut off.
        return [json.loads(line) for line in file if line.endswith("\n")]


def call_of(lines, answer):
    return next(line for line in lines if line["type"] == "call" and line["call"] == answer["call"])


class Cluster(servers.Cluster):
    """A cluster whose workers log their calls."""

    last_step = STEPS
    # Most steps that a rollback may discard.
    interval = 0

    def command(self, name):
        if name not in self.workers:
            return super().command(name)
        life = self.processes[name].lives + 1
        rank = name.split("-")[1]
        return [servers.binary("history_trainer"), "--connect", self.address("coordinator"), "--transport", self.transport(rank),
                "--tls-dir", os.path.join(self.shared, "tls"), "--workers", str(self.num_workers), "--rank", rank,
                "--life", str(life), "--log", self.step_log(name, life), "--steps", str(self.last_step)]

    def logs(self):
        paths = [self.step_log(name, life) for name in self.workers for life in range(1, self.processes[name].lives + 1)]
        return [path for path in paths if os.path.exists(path)]

    def newest_timeline(self):
        """Returns the newest timeline in which a worker was told of a step."""
        newest = 0
        for path in self.logs():
            lines = read_log(path)
            newest = max([newest] + [call_of(lines, line)["timeline"] for line in lines if line["type"] == "step"])
        return newest

    def check(self, shards, logs):
        asked = [argument for shard in shards for argument in ("--shard", f"127.0.0.1:{self.ports[shard]}")]
        return subprocess.run([servers.binary("check_history"), *asked, "--tls-dir", os.path.join(self.shared, "tls"), "--workers", str(self.num_workers),
                               "--interval", str(self.interval), *logs],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


class Round(crash_cycles.Round):
    """One training and the check of its history."""

    def __init__(self, cycles, folder, shared):
        super().__init__(cycles, folder, shared, digest=None)
        shutil.rmtree(folder)
        self.cluster = Cluster(folder, shared)
        self.cluster.interval = cycles.interval
        self.mode = ENVIRONMENT
        if cycles.interval:
            self.mode = {**INTERVAL_ENVIRONMENT, "KAON_DURABILITY": f"interval({cycles.interval})"}
        self.environment = {**self.mode, **self.cluster.checkpoint_environment(crash_cycles.CHECKPOINT_EVERY_STEPS)}
        # (operations, unanswered ones, entries, discarded ones); None if that cannot be told.
        self.checked = None
        # (step, timeline) -> the timeline after it.
        self.taken_back = {}

    def check_end(self):
        for name in self.cluster.workers:
            summary = servers.summary_of(self.cluster.processes[name].said())
            if summary["last_step"] != STEPS:
                raise servers.Failure(f"{name} ended at step {summary['last_step']}, expecting {STEPS}")
        for name in self.cluster.ports:
            self.cluster.processes[name].kill()
            self.cluster.start(name, self.mode)
        servers.wait_until("serving servers", lambda: all(map(self.cluster.serving, self.cluster.ports)))
        if not self.cycles.interval:
            for shard in self.cluster.shards:
                self.explain([shard])
            return
        # Some shard may not know of the rollback yet, or may not have written it.
        servers.wait_until("the last rollback", self.is_taken_back)
        self.explain(self.cluster.shards)

    def is_taken_back(self):
        """Returns True once the job is as after a kill of all its shards."""
        answer = self.cluster.kaonctl("-o", "json", "steps", "--limit", "1000")
        return answer.returncode == 0 and json.loads(answer.stdout)["steps"][-1:] and (
            json.loads(answer.stdout)["steps"][-1]["kind"] == "rollback")

    def explain(self, shards):
        deadline = time.monotonic() + 20
        while True:
            done = self.cluster.check(shards, self.cluster.logs())
            said = done.stdout.decode("utf-8", "replace")
            if done.returncode == 0:
                self.checked = tuple(map(int, HISTORY.search(said).groups()))
                found = [tuple(map(int, one)) for one in TAKEN_BACK.findall(said)]
                # No client was told of anything after the last kill.
                self.taken_back = {(step, timeline): after for step, timeline, after in found
                                   if after <= self.cluster.newest_timeline()}
                return
            # No client was told of some discarded step.
            if done.returncode == UNKNOWN and self.cycles.interval:
                print(f"round {self.cycles.rounds}: {said.strip()}")
                return
            # A shard whose newest decision was not on disk yet learns it again soon.
            if time.monotonic() > deadline:
                raise servers.Failure(f"history of {', '.join(shards)}: {said}")
            time.sleep(0.1)


class Life:
    """The log of one life of a worker, to be forged."""

    def __init__(self, path, others):
        self.path = path
        self.lines = read_log(path)
        # (timeline, step) that other lives of the rank have begun: an entry may have their gradient.
        self.begun_by_others = {step_of(line) for other in others for line in read_log(other) if is_begin(line)}

    def call_of(self, answer):
        return call_of(self.lines, answer)

    def pulled(self):
        """Returns the answers whose weights differ from those of the step before."""
        return [line for line in self.lines if line["type"] == "pulled" and line["step"] not in (0, SKIPPED_STEP)]

    def own_steps(self):
        """Returns the answers of steps with this life's gradient, and no other life's."""
        return [line for line in self.lines if line["type"] == "step"
                and step_of(self.call_of(line)) not in self.begun_by_others]

    def begins_of(self, answer):
        """Returns the calls that an entry may belong to: a refused step may have been retried."""
        return [line for line in self.lines if is_begin(line) and step_of(line) == step_of(self.call_of(answer))]


def is_begin(line):
    return (line["type"], line.get("what")) == ("call", "begin")


def step_of(call):
    return call["timeline"], call["step"]


def other_weights(life):
    weights = life.pulled()[-1]["weights"]
    weights[1] = weights[1][:-1] + ("0" if weights[1][-1] != "0" else "1")


def other_version(life):
    life.call_of(life.pulled()[-1])["step"] -= 1


def other_outcome(life):
    life.own_steps()[-1]["told"] += "!"


def unknown_step(life):
    life.own_steps()[-1]["step"] = STEPS + 1


def never_begun(life):
    """Claims that a life began the step that never existed."""
    for line in life.begins_of(life.own_steps()[-1]):
        line["life"] += NO_LIFE


def answered_too_early(life):
    life.own_steps()[-1]["at"] = life.lines[0]["at"]


def lost(life, answers, taken_back):
    """Returns the last answer about a discarded step that the model does not skip."""
    return [line for line in answers if line["step"] != SKIPPED_STEP
            and (line["step"], life.call_of(line)["timeline"]) in taken_back][-1]


def acknowledged_after_its_rollback(life, taken_back):
    """Claims that a discarded step was begun and answered long after the rollback."""
    answer = lost(life, life.own_steps(), taken_back)
    at = time.monotonic_ns() + NANOS_PER_HOUR
    for line in [answer, *life.begins_of(answer)]:
        line["at"] = at


def read_after_its_rollback(life, taken_back):
    """Claims that the version of a discarded step was pulled in the timeline after it."""
    call = life.call_of(lost(life, life.pulled(), taken_back))
    call["timeline"] = taken_back[call["step"], call["timeline"]]


def refuses(cluster, folder, doctor, *arguments):
    """Returns True if the check finds the forged log of the last life of rank 0 that can be forged so; None if there
    is none."""
    logs = cluster.logs()
    of_rank = [cluster.step_log("worker-0", life) for life in range(1, cluster.processes["worker-0"].lives + 1)]
    of_rank = [path for path in of_rank if path in logs]
    for path in reversed(of_rank):
        life = Life(path, [other for other in of_rank if other != path])
        try:
            doctor(life, *arguments)
            break
        except IndexError:
            pass
    else:
        return None
    doctored = os.path.join(folder, "doctored.jsonl")
    with open(doctored, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in life.lines)
    done = cluster.check(cluster.shards, [doctored if log == path else log for log in logs])
    said = done.stdout.decode("utf-8", "replace").strip()
    print(f"{doctor.__name__}: {said.splitlines()[-1] if said else ''}")
    return done.returncode == CONTRADICTED and "CONTRADICTION: " in said


DOCTORS = [other_weights, other_version, other_outcome, unknown_step, never_begun, answered_too_early]
INTERVAL_DOCTORS = [acknowledged_after_its_rollback, read_after_its_rollback]


class Histories:
    """Results of the rounds of a run."""

    def __init__(self, cycles, options):
        self.cycles = cycles
        self.options = options
        self.explained = 0
        self.unknown = 0
        # Operations, unanswered ones, entries, discarded ones.
        self.totals = [0, 0, 0, 0]
        self.tried = 0
        # Number of rejections by kind of forged log.
        self.refused = {doctor: 0 for doctor in DOCTORS + (INTERVAL_DOCTORS if options.interval else [])}

    def wants_more(self, seconds):
        """Gives a slow machine more time to show the least."""
        if self.explained < self.options.least:
            return seconds < self.options.most_seconds
        return self.cycles.total() < self.options.cycles and seconds < self.options.seconds

    def add(self, checked, folder):
        """Adds a round that has ended."""
        if checked.checked is None:
            self.unknown += 1
            return
        self.totals = [total + one for total, one in zip(self.totals, checked.checked)]
        self.explained += 1
        for doctor, before in self.refused.items():
            if before > 0 and self.explained > self.options.least:
                continue
            found = refuses(checked.cluster, folder, doctor, *([checked.taken_back] if doctor in INTERVAL_DOCTORS else []))
            # None: there was nothing to forge.
            self.tried += found is not None
            if found is False:
                raise servers.Failure(f"a changed history was not refused: {doctor.__name__}")
            self.refused[doctor] += found is True

    def check(self):
        if self.explained < self.options.least:
            raise servers.Failure(f"{self.explained} histories were explained, expecting at least {self.options.least}")
        # Short runs may lose no step that can be forged.
        short = self.cycles.total() < ENOUGH_CYCLES
        if untried := [doctor.__name__ for doctor, refused in self.refused.items()
                       if refused == 0 and not (short and doctor in INTERVAL_DOCTORS)]:
            raise servers.Failure(f"no history could be changed so: {', '.join(untried)}")
        # They may have one that cannot be told.
        if self.unknown > max(1, MOST_UNKNOWN * self.cycles.rounds):
            raise servers.Failure(f"{self.unknown} of {self.cycles.rounds} histories are not to be had")


def run(options, folder):
    shared = os.path.join(folder, "shared")
    servers.Cluster.prepare(shared)
    cycles = crash_cycles.Cycles(options.seed, crash_cycles.read_points(options.points), options.interval)
    histories = Histories(cycles, options)
    start = time.monotonic()
    current = None
    try:
        while histories.wants_more(time.monotonic() - start):
            current = Round(cycles, os.path.join(folder, f"round-{cycles.rounds + 1}"), shared)
            current.run()
            histories.add(current, folder)
            current.cluster.remove()
        histories.check()
    except servers.Failure:
        if current is not None:
            current.cluster.show_logs()
        print(f"seed {options.seed}, round {cycles.rounds}")
        raise
    finally:
        if current is not None:
            current.cluster.kill()
    totals = histories.totals
    print(f"histories: {histories.explained} checked, {histories.explained} explained: {totals[0]} operations, {totals[1]} unanswered, "
          f"{totals[2]} entries, {cycles.total()} deaths, {time.monotonic() - start:.0f} s")
    if options.interval:
        print(f"interval({options.interval}): {totals[3]} steps were taken back; {histories.unknown} histories could not be told")
    refused = sum(histories.refused.values())
    print(f"changed histories: {histories.tried} tried, {refused} refused")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--cycles", type=int, default=120)
    parser.add_argument("--seconds", type=float, default=60, help="begin no round after this long")
    parser.add_argument("--least", type=int, default=3, help="fail with fewer histories that were explained")
    parser.add_argument("--most-seconds", type=float, default=120, help="begin no round after this long, even with fewer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--interval", type=int, default=0, help="durability interval(K) in place of journal")
    parser.add_argument("--points", default="proto/failpoint.h")
    servers.run_suite("kaon-history.", run, parser.parse_args())


if __name__ == "__main__":
    main()
