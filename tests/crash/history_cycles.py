#!/usr/bin/env python3
"""T10: one log in one order explains what the clients of a cluster called and were told while its processes died.

Rounds as those of crash_cycles.py, of the simulator's tiny job: each life of a worker computes other gradients, and logs each
call and each answer with its time. At the end the shards are asked for their records; the check that the simulator's histories
go through carries them out one after the other, and every answer, pulled weight and instant must fit. An answer that was
never seen may have been given or not. Changed logs of the first round must be refused.
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
# The check multiplies matrices as they are defined. No snapshot: shards then have every record.
ENVIRONMENT = {"KAON_JOURNAL_SEGMENT_BYTES": "8192", "KAON_GEMM": "reference"}
HISTORY = re.compile(r"^history: (\d+) operations, (\d+) of them unanswered, explained by (\d+) entries$", re.MULTILINE)


class Cluster(servers.Cluster):
    """Its workers log what they do."""

    last_step = STEPS

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

    def check(self, shard, logs):
        return subprocess.run([servers.binary("check_history"), "--shard", f"127.0.0.1:{self.ports[shard]}",
                               "--tls-dir", os.path.join(self.shared, "tls"), "--workers", str(self.num_workers), *logs],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


class Round(crash_cycles.Round):
    """One training, and the check of its history."""

    def __init__(self, cycles, folder, shared):
        super().__init__(cycles, folder, shared, digest=None)
        shutil.rmtree(folder)
        self.cluster = Cluster(folder, shared)
        self.mode = ENVIRONMENT
        self.environment = {**self.mode, **self.cluster.checkpoint_environment(crash_cycles.CHECKPOINT_EVERY_STEPS)}
        # (operations, of them unanswered, entries)
        self.checked = None

    def check_end(self):
        for name in self.cluster.workers:
            summary = servers.summary_of(self.cluster.processes[name].said())
            if summary["last_step"] != STEPS:
                raise servers.Failure(f"{name} ended at step {summary['last_step']}, expecting {STEPS}")
        for name in self.cluster.ports:
            self.cluster.processes[name].kill()
            self.cluster.start(name, self.mode)
        servers.wait_until("serving servers", lambda: all(map(self.cluster.serving, self.cluster.ports)))
        for shard in self.cluster.shards:
            self.explain(shard)

    def explain(self, shard):
        deadline = time.monotonic() + 20
        while True:
            done = self.cluster.check(shard, self.cluster.logs())
            said = done.stdout.decode("utf-8", "replace")
            if done.returncode == 0:
                self.checked = tuple(map(int, HISTORY.search(said).groups()))
                return
            # A shard whose newest decision was not on disk yet is told it again before long.
            if time.monotonic() > deadline:
                raise servers.Failure(f"history of {shard}: {said}")
            time.sleep(0.1)


def last(lines, of_type, what=None):
    """Index of the last line of a kind."""
    return max(i for i, line in enumerate(lines) if line["type"] == of_type and what in (None, line.get("what")))


def other_weights(lines):
    at = last(lines, "pulled")
    digits = lines[at]["weights"][1]
    lines[at]["weights"][1] = digits[:-1] + ("0" if digits[-1] != "0" else "1")


def other_version(lines):
    call = lines[last(lines, "pulled")]["call"]
    next(line for line in lines if line["type"] == "call" and line["call"] == call)["step"] -= 1


def other_outcome(lines):
    lines[last(lines, "step")]["told"] += "!"


def unknown_step(lines):
    lines[last(lines, "step")]["step"] = STEPS + 1


def never_begun(lines):
    call = lines[last(lines, "call", "begin")]["call"]
    lines[:] = [line for line in lines if line["call"] != call]


def answered_too_early(lines):
    lines[last(lines, "step")]["at"] = lines[0]["at"]


def refuses(cluster, folder, doctor):
    """Whether the change of the last life of rank 0 is found."""
    logs = cluster.logs()
    path = cluster.step_log("worker-0", cluster.processes["worker-0"].lives)
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    doctor(lines)
    doctored = os.path.join(folder, "doctored.jsonl")
    with open(doctored, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    done = cluster.check("shard-0", [doctored if log == path else log for log in logs])
    said = done.stdout.decode("utf-8", "replace").strip()
    print(f"{doctor.__name__}: {said.splitlines()[-1] if said else ''}")
    return done.returncode == 1 and "CONTRADICTION: " in said


DOCTORS = (other_weights, other_version, other_outcome, unknown_step, never_begun, answered_too_early)


def run(options, folder):
    shared = os.path.join(folder, "shared")
    servers.Cluster.prepare(shared)
    cycles = crash_cycles.Cycles(options.seed, crash_cycles.read_points(options.points), interval=0)
    start = time.monotonic()
    totals = [0, 0, 0]
    refused = 0
    current = None
    try:
        while cycles.total() < options.cycles and time.monotonic() - start < options.seconds:
            current = Round(cycles, os.path.join(folder, f"round-{cycles.rounds + 1}"), shared)
            current.run()
            totals = [total + one for total, one in zip(totals, current.checked)]
            # A life that has seen steps is one that can be changed.
            if cycles.rounds == 1:
                refused = sum(refuses(current.cluster, folder, doctor) for doctor in DOCTORS)
            current.cluster.remove()
        if refused != len(DOCTORS):
            raise servers.Failure(f"{refused} of {len(DOCTORS)} changed histories were refused")
    except servers.Failure:
        current.cluster.show_logs()
        print(f"seed {options.seed}, round {cycles.rounds}")
        raise
    finally:
        current.cluster.kill()
    print(f"histories: {cycles.rounds} checked, {cycles.rounds} explained: {totals[0]} operations, {totals[1]} unanswered, "
          f"{totals[2]} entries, {cycles.total()} deaths, {time.monotonic() - start:.0f} s")
    print(f"changed histories: {len(DOCTORS)} tried, {refused} refused")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--cycles", type=int, default=120)
    parser.add_argument("--seconds", type=float, default=60, help="begin no round after this long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--points", default="proto/failpoint.h")
    servers.run_suite("kaon-history.", run, parser.parse_args())


if __name__ == "__main__":
    main()
