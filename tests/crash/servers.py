"""Real processes of one cluster on loopback: shards, a coordinator and one trainer process for each rank.

Used by the crash suites. Every process of a cluster has a name (`shard-0`, `coordinator`, `worker-1`) and one log
to which all its lives append. A server keeps one port in all its lives. A process may be wrapped (strace) and get
an environment (a failpoint).
"""

import contextlib
import ctypes
import glob
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

# The model is small, because these suites test the service.
MODEL = ["--hidden", "8", "--embedding", "4", "--context", "6", "--blocks", "1", "--batch-size", "16",
         "--max-grad-norm", "0.5", "--report-every", "1"]
FAILPOINT_SAID = b"KAON_FAILPOINT "
# Constant of <linux/prctl.h>.
PR_SET_CHILD_SUBREAPER = 36
# Cases that this process has left out.
LEFT_OUT = []


class Failure(Exception):
    """Error that ends a suite; the logs of all processes are shown."""


def binary(name):
    """Returns a program of the test's runfiles."""
    folders = {"kaon-shard": "server/shard", "kaon-coordinator": "server/coordinator", "kaonctl": "server/admin_cli",
               "kaon-train": "client/train", "history_trainer": "tests/crash", "check_history": "tests/crash",
               "puller": "tests/crash"}
    return os.path.abspath(os.path.join(os.environ.get("KAON_BINARIES", "."), folders[name], name))


# Ports of a block that one process has at a time, outside of the range from which outgoing connections get theirs.
PORTS = range(20000, 32000)
BLOCK = 100
# By this process: a socket on the first port of its block.
CLAIMED = []


def claim_block():
    """The other ports of a block that no other process draws from: a test that runs at the same time would otherwise take the
    port of a server that is down."""
    while not CLAIMED:
        first = random.SystemRandom().choice(PORTS[::BLOCK])
        claim = socket.socket()
        try:
            claim.bind(("127.0.0.1", first))
            CLAIMED.append(claim)
        except OSError:
            claim.close()
    first = CLAIMED[0].getsockname()[1]
    return range(first + 1, first + BLOCK)


def free_ports(count):
    """So many different ports that nobody listens on."""
    block = claim_block()
    with contextlib.ExitStack() as probes:
        ports = []
        while len(ports) < count:
            port = random.SystemRandom().choice(block)
            # Held until all are found, so that none is given twice.
            probe = probes.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                ports.append(port)
        return ports


def write_corpus(folder):
    """Writes a text that a model learns in milliseconds."""
    os.makedirs(folder)
    rng = random.Random(7)
    words = ["the", "shard", "votes", "once", "and", "keeps", "what", "it", "said", "until", "every", "step", "is", "done"]
    for name, count in (("training", 400), ("Artistic", 40)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(" ".join(rng.choice(words) for _ in range(count)))


class Process:
    """The lives of one program, one after the other."""

    def __init__(self, name, log):
        self.name = name
        self.log = log
        self.lives = 0
        self.child = None
        self.log_offset = 0

    def start(self, command, environment, stdin=subprocess.DEVNULL):
        # A process whose tracer was killed becomes this process's child, which can then wait for its end.
        if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise Failure("prctl(PR_SET_CHILD_SUBREAPER) failed")
        self.lives += 1
        self.log_offset = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(command, stdin=stdin, stdout=log, stderr=log,
                                          env={**os.environ, **environment}, start_new_session=True)

    def running(self):
        return self.child is not None and self.child.poll() is None

    def kill(self, how=signal.SIGKILL):
        """Kills the whole session, because a process survives the kill of its tracer."""
        if self.child is None:
            return
        try:
            os.killpg(self.child.pid, how)
        except ProcessLookupError:
            pass
        if how == signal.SIGKILL:
            self.child.wait()
            self._await_orphans()

    def _await_orphans(self):
        """Waits for a process that lost its tracer: while it dies it holds its directory and port."""
        while True:
            try:
                os.waitpid(-self.child.pid, 0)
            except ChildProcessError:
                return

    def said(self):
        """Returns the log of this life so far."""
        with open(self.log, "rb") as log:
            log.seek(self.log_offset)
            return log.read()

    def failpoint(self):
        """Returns the point at which this life killed itself, or None."""
        if self.child.returncode != -signal.SIGKILL:
            return None
        at = self.said().rfind(FAILPOINT_SAID)
        return None if at < 0 else self.said()[at + len(FAILPOINT_SAID):].split(b":")[0].decode()


class Cluster:
    """All processes of one cluster, in a directory of their own. Several clusters may share certificates and corpus."""

    # Rank 0 uses the network, whose system calls are swept. Odd ranks use shared memory if they get a session.
    transports = ["grpc", "auto"]

    def __init__(self, folder, shared, shards=2, workers=2, train=None, shard_options=None):
        self.folder = folder
        self.shared = shared
        self.train_options = train or MODEL
        self.shard_options = shard_options or []
        self.num_workers = workers
        # A server gets this directory from its environment only: checkpoint_environment.
        self.checkpoints = os.path.join(folder, "checkpoints")
        os.makedirs(self.checkpoints)
        names = [f"shard-{i}" for i in range(shards)] + ["coordinator"]
        self.ports = dict(zip(names, free_ports(len(names))))
        names += [f"worker-{i}" for i in range(workers)]
        self.processes = {name: Process(name, os.path.join(folder, name + ".log")) for name in names}
        self.shards = names[:shards]
        self.workers = names[shards + 1:]

    @staticmethod
    def prepare(shared, workers=2):
        """Makes certificates and corpus."""
        os.makedirs(shared)
        subprocess.run(["deploy/certificates.sh", os.path.join(shared, "tls"), "--workers", str(workers)], check=True,
                       stdout=subprocess.DEVNULL)
        write_corpus(os.path.join(shared, "corpus"))

    def _server(self, program, name, role):
        tls = os.path.join(self.shared, "tls")
        return [binary(program), "--listen", f"127.0.0.1:{self.ports[name]}", "--port-file", self.port_file(name),
                "--tls-ca-file", f"{tls}/ca.crt", "--tls-certificate-file", f"{tls}/{role}.crt",
                "--tls-private-key-file", f"{tls}/{role}.key"]

    def address(self, name):
        """Returns the address at which the cluster's own processes reach a server."""
        return f"127.0.0.1:{self.ports[name]}"

    def port_file(self, name):
        return os.path.join(self.folder, name + ".port")

    def data_dir(self, name):
        return os.path.join(self.folder, name)

    def step_log(self, name, life):
        return os.path.join(self.folder, f"{name}.{life}.jsonl")

    def transport(self, rank):
        return self.transports[int(rank) % len(self.transports)]

    def command(self, name):
        """Returns the command that starts `name`."""
        if name in self.shards:
            os.makedirs(self.data_dir(name), mode=0o700, exist_ok=True)
            return self._server("kaon-shard", name, "shard") + ["--data-dir", self.data_dir(name)] + self.shard_options
        if name == "coordinator":
            addresses = ",".join(self.address(shard) for shard in self.shards)
            return self._server("kaon-coordinator", name, "coordinator") + [
                "--shards", addresses, "--heartbeat-ms", "20", "--takeover-ms", "60"]
        rank = name.split("-")[1]
        return [binary("kaon-train"), "--connect", self.address("coordinator"),
                "--tls-dir", os.path.join(self.shared, "tls"), "--corpus-dir", os.path.join(self.shared, "corpus"),
                "--workers", str(self.num_workers), "--rank", rank, "--transport", self.transport(rank),
                "--log-jsonl", self.step_log(name, self.processes[name].lives + 1)] + self.train_options

    def start(self, name, environment=None, wrapper=None):
        if name in self.ports and os.path.exists(self.port_file(name)):
            os.remove(self.port_file(name))
        self.processes[name].start((wrapper or []) + self.command(name), environment or {})

    def serving(self, name):
        return os.path.exists(self.port_file(name))

    def kill(self):
        for process in self.processes.values():
            process.kill()

    def steps(self, name):
        """Returns the steps that the lives of a worker logged, one list for each."""
        lives = []
        for life in range(1, self.processes[name].lives + 1):
            steps = []
            if os.path.exists(self.step_log(name, life)):
                with open(self.step_log(name, life), encoding="utf-8") as log:
                    for line in log:
                        # The last line may be cut off.
                        if line.endswith("\n") and '"type":"step"' in line.replace('": "', '":"'):
                            steps.append(json.loads(line)["step"])
            lives.append(steps)
        return lives

    def newest_step(self):
        """Returns the newest step that any worker has finished."""
        return max([0] + [step for name in self.workers for life in self.steps(name) for step in life])

    def checkpoint_environment(self, every_steps=0, keep=2):
        """Returns the environment that makes servers write checkpoints; automatic ones if `every_steps` is not 0."""
        return {"KAON_CHECKPOINT_DIR": self.checkpoints, "KAON_CHECKPOINT_EVERY_STEPS": str(every_steps),
                "KAON_CHECKPOINT_KEEP": str(keep)}

    def verify_checkpoints(self):
        """P9: everything with a manifest is whole, and nothing else counts as a checkpoint. Returns their number."""
        names = os.listdir(self.checkpoints)
        ids = sorted(name[:-len(".manifest")] for name in names if name.endswith(".manifest"))
        for checkpoint in ids:
            verified = self.kaonctl("checkpoint", "verify", checkpoint)
            if verified.returncode != 0:
                raise Failure(f"checkpoint {checkpoint}: {verified.stdout.decode('utf-8', 'replace')}")
        listed = self.kaonctl("-o", "json", "checkpoint", "list")
        if listed.returncode != 0:
            raise Failure(f"checkpoint list: {listed.stdout.decode('utf-8', 'replace')}")
        rows = [row["id"] for row in json.loads(listed.stdout)["checkpoints"] if not row["problem"]]
        # A checkpoint whose removal a death interrupted before its manifest was gone is whole, too. It is listed
        # with that problem.
        staying = [checkpoint for checkpoint in ids if f"{checkpoint}.removing" not in names]
        if sorted(rows) != staying:
            raise Failure(f"checkpoint list: {rows}, there are manifests without a mark of removal of {staying}")
        return len(ids)

    def check_snapshots(self):
        """P6: a crash loses nothing that was written, so no start may have to skip a snapshot."""
        for shard in self.described_shards():
            if shard["snapshot_problem"]:
                raise Failure(f"shard {shard['shard']}: {shard['snapshot_problem']}")

    def described_shards(self):
        """Returns the shards of `kaonctl status` once every one is listed with its description. A shard that has just
        restarted may be listed without one."""
        newest = []

        def are_described():
            answer = self.kaonctl("-o", "json", "status")
            if answer.returncode != 0:
                newest[:] = [answer.stdout.decode("utf-8", "replace").strip()]
                return False
            newest[:] = json.loads(answer.stdout)["shards"]
            return len(newest) == len(self.shards) and all("applied_position" in shard for shard in newest)

        def missing():
            listed = [shard for shard in newest if not isinstance(shard, dict) or "applied_position" not in shard]
            return f"every shard described by kaonctl status, which says {listed or newest}"

        wait_until(missing, are_described)
        return newest

    def kaonctl_command(self, *arguments):
        return [binary("kaonctl"), "--endpoints", f"127.0.0.1:{self.ports['coordinator']}",
                "--tls-dir", os.path.join(self.shared, "tls"), *arguments]

    def kaonctl(self, *arguments):
        return subprocess.run(self.kaonctl_command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)

    def show_logs(self):
        for path in sorted(glob.glob(os.path.join(self.folder, "*.log"))):
            with open(path, encoding="utf-8", errors="replace") as log:
                print(f"--- {path}\n{''.join(log.readlines()[-25:])}", flush=True)

    def remove(self):
        self.kill()
        shutil.rmtree(self.folder)


def leave_out(what, why):
    """Reports a case that cannot run on this machine. A suite of tests/nightly.sh, whose purpose is to run it, fails
    unless KAON_ALLOW_SKIPS is 1."""
    LEFT_OUT.append(what)
    print(f"{what}: not run: {why}", flush=True)
    if os.environ.get("KAON_SKIPS_FAIL") == "1" and os.environ.get("KAON_ALLOW_SKIPS") != "1":
        raise Failure(f"{what}: not run (KAON_ALLOW_SKIPS=1 would allow that): {why}")


def run_suite(prefix, run, *arguments):
    """Calls `run(*arguments, folder)` with a new folder, which is kept if it fails."""
    folder = tempfile.mkdtemp(prefix=prefix, dir=os.environ.get("TEST_TMPDIR"))
    try:
        run(*arguments, folder)
    except Failure as failure:
        print(f"FAILED: {failure}")
        sys.exit(1)
    shutil.rmtree(folder)
    print(f"passed, without {', '.join(LEFT_OUT)}" if LEFT_OUT else "all passed")


def wait_until(what, predicate, seconds=30):
    """Polls. `what` is a text, or a function that returns the text after a timeout."""
    deadline = time.monotonic() + seconds
    while not predicate():
        if time.monotonic() > deadline:
            raise Failure(f"waited in vain for {seconds} s: {what() if callable(what) else what}")
        time.sleep(0.003)


def summary_of(text):
    """Returns the SUMMARY that a trainer ended with."""
    lines = [line for line in text.decode("utf-8", "replace").splitlines() if line.startswith("SUMMARY ")]
    if not lines:
        raise Failure(f"no SUMMARY in: {text[-2000:]}")
    return json.loads(lines[-1][len("SUMMARY "):])


def undisturbed_digest(shared, workers, options):
    """Returns the weights digest of the same training in one process, without any server."""
    done = subprocess.run([binary("kaon-train"), "--local", "--workers", str(workers),
                           "--corpus-dir", os.path.join(shared, "corpus"), *options], stdout=subprocess.PIPE, check=True)
    return summary_of(done.stdout)["weights_digest"]


def percentile(values, share):
    """Returns the smallest measured value that so large a share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def stretch():
    """Returns how many times longer than on an idle machine a computation takes here now."""
    begin, cpu = time.monotonic(), time.process_time()
    while time.process_time() - cpu < 0.05:
        pass
    return max(1.0, (time.monotonic() - begin) / (time.process_time() - cpu))
