#!/usr/bin/env python3
"""A coordinator that dies while only one of two shards has a control change never leaves them split.

There are four kinds of change: the registration of a job, `kaonctl group set` and `kaonctl job delete` between two
halves of a training, and the rollback of an interval job after a kill of everything. The coordinator dies when its
message of each kind has reached the first shard or both, or when it has heard of one shard or of both. In some cases the second shard
dies, too, right before it votes for the change or applies it, so that only the first one has it.

Then the processes are started again; in every second case all others are killed first. A client that made a change
retries it, and it takes effect once. A client that was killed in the middle finds it made everywhere or nowhere.
Training continues and ends in the bits of an undisturbed run with the change, or of one without it. Shards with
different hyper-parameters would end in the bits of neither.
"""

import argparse
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import servers  # noqa: E402  (found beside this file)

STEPS = 10
# Name of the job of kaon-train.
JOB = "kaon-train"
# The change is made after so many steps.
HALF = 4
INTERVAL = 2
GROUP = "adamw"
# Both shards have parameters of this group, and take the option from their own registration; a step's rate is in
# its plan. The job is still at its registration, the first entry.
CHANGE = ["group", "set", GROUP, "adamw.beta1=0.5", "--expect-revision", "1"]
# Nothing else is planned or decided during a change, so the nth passing is the change's nth message.
POINTS = [f"coordinator_{point}:{nth}" for point in
          ("plan_sent", "prepared_received", "decision_sent", "applied_received") for nth in (1, 2)]
# Points at which shard 1 dies, too, and the coordinator when it hears of shard 0.
ALONE = [("coordinator_prepared_received:1", "shard_plan_received:1"),
         ("coordinator_prepared_received:1", "shard_prepare_appended:1"),
         ("coordinator_applied_received:1", "shard_decision_received:1")]
# Changes that no client retries, in every run. All shards have voted for the first one, which is made everywhere;
# one shard has not voted for the second, which is made nowhere.
MADE = ("coordinator_decision_sent:1", None)
WITHDRAWN = ALONE[0]


class Cluster(servers.Cluster):
    """A job that is trained in two halves."""

    def __init__(self, folder, shared, environment=None):
        super().__init__(folder, shared)
        self.environment = environment or {}

    def launch(self, names, armed=None):
        for name in names:
            point = (armed or {}).get(name)
            self.start(name, {**self.environment, **({"KAON_FAILPOINT": point} if point else {})})

    def begin_training(self, last):
        self.train_options = servers.MODEL + ["--steps", str(STEPS), "--stop-after", str(last)]
        self.launch(self.workers)

    def end_training(self, last):
        """Waits for the end of the training. Returns the digest of the weights."""
        workers = [self.processes[name] for name in self.workers]
        servers.wait_until(f"the training up to step {last}", lambda: not any(worker.running() for worker in workers))
        summaries = [servers.summary_of(worker.said()) for worker in workers]
        told = {(summary["last_step"], summary["weights_digest"]) for summary in summaries}
        if len(told) != 1 or summaries[0]["last_step"] != last:
            raise servers.Failure(f"workers ended at {told}, expecting step {last}")
        return summaries[0]["weights_digest"]

    def train(self, last):
        self.begin_training(last)
        return self.end_training(last)

    def ask(self, *arguments):
        """Returns the answer of kaonctl, which retries until a server answers."""
        answers = []

        def is_answered():
            done = self.kaonctl("-o", "json", *arguments)
            if done.returncode == 0:
                answers.append(json.loads(done.stdout))
            return bool(answers)

        servers.wait_until(f"kaonctl {' '.join(arguments)}", is_answered)
        return answers[0]


class Case:
    """One change and one death of the coordinator."""

    def __init__(self, cluster, point, second, all_at_once):
        self.cluster = cluster
        self.all_at_once = all_at_once
        self.armed = {"coordinator": point, **({"shard-1": second} if second else {})}

    def die(self):
        """Waits for the deaths and restarts the dead processes."""
        for name, point in self.armed.items():
            process = self.cluster.processes[name]
            # The coordinator may have died before its message left for this shard. Then the next one sends it.
            repeat_at = time.monotonic() + 5 if name != "coordinator" else float("inf")

            def is_dead(process=process):
                nonlocal repeat_at
                if process.running() and time.monotonic() > repeat_at:
                    repeat_at = float("inf")
                    self.cluster.launch(["coordinator"])
                return not process.running()

            servers.wait_until(f"the death of {name} at {point}", is_dead)
            if process.failpoint() != point.split(":")[0]:
                raise servers.Failure(f"{name} ended with status {process.child.returncode}, armed was {point}")
        names = list(self.cluster.ports) if self.all_at_once else list(self.armed)
        for name in names:
            self.cluster.processes[name].kill()
        self.cluster.launch(names)

    def rearm(self):
        """Restarts the armed servers between two halves. A shard ends in order, so that nothing has to be decided
        again."""
        names = [name for name in self.cluster.ports if name in self.armed]
        for name in names:
            if name in self.cluster.shards:
                self.cluster.processes[name].child.terminate()
                self.cluster.processes[name].child.wait()
            self.cluster.processes[name].kill()
        self.cluster.launch(names, self.armed)

    def check(self, kind, expected):
        """Checks that every shard is at the same entry with as many such changes behind it. Returns how many."""
        self.cluster.ask("digest")
        positions = {shard["applied_position"] for shard in self.cluster.described_shards()}
        if len(positions) != 1:
            raise servers.Failure(f"shards are at positions {positions}")
        made = sum(record["kind"] == kind for record in self.cluster.ask("steps", "--limit", "100")["steps"])
        if made not in expected:
            raise servers.Failure(f"{made} entries of kind {kind}, expecting {' or '.join(map(str, expected))}")
        return made


def registration(case, digests):
    cluster = case.cluster
    cluster.launch(cluster.ports, case.armed)
    cluster.begin_training(STEPS)
    case.die()
    if (digest := cluster.end_training(STEPS)) != digests["plain"]:
        raise servers.Failure(f"digest {digest}, expecting {digests['plain']}")
    case.check("group_change", [0])


def group_set(case, digests, asks_again=True):
    cluster = case.cluster
    cluster.launch(cluster.ports)
    cluster.train(HALF)
    case.rearm()
    asking = subprocess.Popen(cluster.kaonctl_command(*CHANGE, "--timeout", "30"), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
    if asks_again:
        case.die()
        said = asking.communicate()[0].decode("utf-8", "replace")
        if asking.returncode != 0:
            raise servers.Failure(f"group set ended with status {asking.returncode}: {said}")
    else:
        servers.wait_until("the coordinator's death", lambda: not cluster.processes["coordinator"].running())
        asking.kill()
        asking.communicate()
        case.die()
    # No client retries. The next step at the latest finishes the rest of the change, or withdraws it.
    digest = cluster.train(STEPS)
    made = case.check("group_change", [1] if asks_again else [0, 1])
    expected = digests["changed" if made else "plain"]
    if digest != expected:
        raise servers.Failure(f"digest {digest} with {made} changes, expecting {expected} of {digests}")
    return made


def group_set_once(case, digests):
    return group_set(case, digests, asks_again=False)


def deletion(case, digests, asks_again=True):
    """Deletes the job after half of its training, then trains the whole of it as another job."""
    cluster = case.cluster
    cluster.launch(cluster.ports)
    cluster.train(HALF)
    case.rearm()
    asking = subprocess.Popen(cluster.kaonctl_command("job", "delete", JOB, "--yes", "--timeout", "30"),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if asks_again:
        case.die()
        said = asking.communicate()[0].decode("utf-8", "replace")
        if asking.returncode != 0:
            raise servers.Failure(f"job delete ended with status {asking.returncode}: {said}")
        if jobs := cluster.ask("job", "list")["jobs"]:
            raise servers.Failure(f"jobs {jobs} after the deletion")
    else:
        servers.wait_until("the coordinator's death", lambda: not cluster.processes["coordinator"].running())
        asking.kill()
        asking.communicate()
        case.die()
    # From the first step, or from half of the training where the deletion was not made.
    if (digest := cluster.train(STEPS)) != digests["plain"]:
        raise servers.Failure(f"digest {digest}, expecting {digests['plain']}")
    case.check("group_change", [0])
    timeline = cluster.ask("digest")["timeline"]
    if asks_again and timeline != 2:
        raise servers.Failure(f"the next job is in timeline {timeline}, expecting 2")
    return int(timeline == 2)


def deletion_once(case, digests):
    return deletion(case, digests, asks_again=False)


def interval_deletion(case, digests):
    case.cluster.environment = {"KAON_DURABILITY": f"interval({INTERVAL})"}
    return deletion(case, digests)


def rollback(case, digests):
    cluster = case.cluster
    cluster.environment = {"KAON_DURABILITY": f"interval({INTERVAL})"}
    cluster.launch(cluster.ports)
    cluster.train(HALF)
    for name in cluster.ports:
        cluster.processes[name].kill()
    cluster.launch(cluster.ports, case.armed)
    case.die()
    if (digest := cluster.train(STEPS)) != digests["plain"]:
        raise servers.Failure(f"digest {digest}, expecting {digests['plain']}")
    # Shards that are killed after a rollback are rolled back again, perhaps to the same state.
    case.check("rollback", [1, 2])


def reference(cluster):
    """Returns the digest of an undisturbed run with the change."""
    cluster.launch(cluster.ports)
    cluster.train(HALF)
    holders = {parameter["shard"] for parameter in cluster.ask("parameters")["parameters"] if parameter["group"] == GROUP}
    if len(holders) != len(cluster.shards):
        raise servers.Failure(f"group {GROUP} is on shards {holders}: the other would not know of a change")
    cluster.ask(*CHANGE)
    digest = cluster.train(STEPS)
    cluster.remove()
    return digest


def run_case(folder, shared, digests, change, point, second, all_at_once):
    """Runs one case and returns its result."""
    cluster = Cluster(folder, shared)
    try:
        made = change(Case(cluster, point, second, all_at_once), digests)
        cluster.remove()
        return made
    except servers.Failure:
        cluster.show_logs()
        how = f"coordinator at {point}" + (f", shard-1 at {second}" if second else "") + (", then all" if all_at_once else "")
        print(f"{change.__name__}, {how}")
        raise
    finally:
        cluster.kill()


def run(options, folder):
    shared = os.path.join(folder, "shared")
    servers.Cluster.prepare(shared)
    digests = {"plain": servers.undisturbed_digest(shared, 2, servers.MODEL + ["--steps", str(STEPS)]),
               "changed": reference(Cluster(os.path.join(folder, "reference"), shared))}
    if len(set(digests.values())) != len(digests):
        raise servers.Failure(f"the change changes nothing: {digests}")
    start = time.monotonic()
    deaths = [(point, None) for point in POINTS] + ALONE
    changes = (registration, group_set, group_set_once, rollback, deletion, deletion_once, interval_deletion)
    # An interval shard that is armed restarts, and a rollback comes before the deletion.
    cases = [(change, point, second, all_at_once) for change in changes
             for number, (point, second) in enumerate(deaths) if not (second and change is interval_deletion)
             for all_at_once in (False, True) if options.each_way or all_at_once == (number % 2 == 1)][::options.stride]
    pinned = {(change, *death, False): made for change in (group_set_once, deletion_once)
              for death, made in ((MADE, 1), (WITHDRAWN, 0))}
    cases += [case for case in pinned if case not in cases]
    once = []
    for number, case in enumerate(cases):
        made = run_case(os.path.join(folder, f"case-{number}"), shared, digests, *case)
        if case[0] in (group_set_once, deletion_once):
            once.append(made)
        if pinned.get(case, made) != made:
            raise servers.Failure(f"{case[0].__name__}, coordinator at {case[1]}, shard-1 at {case[2]}: {made} made, "
                                  f"expecting {pinned[case]}")
    print(f"crashes in control changes: {len(cases)} at {len(deaths)} moments, {(time.monotonic() - start) / len(cases):.2f} s "
          f"each; of {len(once)} changes that nobody asked for again {sum(once)} were made on all shards, "
          f"{len(once) - sum(once)} on none")
    # The cases would prove little if all had one result.
    if not 0 < sum(once) < len(once):
        raise servers.Failure("all of them, or none, were made")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--each-way", action="store_true", help="each moment both alone and all at once, not in turns")
    parser.add_argument("--stride", type=int, default=1, help="take every Nth case")
    servers.run_suite("kaon-control.", run, parser.parse_args())


if __name__ == "__main__":
    main()
