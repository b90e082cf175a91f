#!/usr/bin/env python3
"""Trains on real servers whose shards keep their state on the GPU: the section `cluster` of tests/gpu/run.sh.

    cluster.py --device cuda:0 --directory DIR --programs DIR [--small]

Prints one JSON line per check and figure. Two shards share the device. `repeated`: two runs of Muon and AdamW end in one
digest. So do a run whose shards were killed (`killed`), one whose tensors stay in host memory (`host_memory`), and one
whose tensors stay in a file (`nvme`). `adamw`: a run of AdamW alone ends in the digest of a run on the CPU.
`nccl`: two workers and a shard, three processes, end in the digest of gRPC; `nccl_killed`: also with kill -9 of a worker. `push_*` and
`pull_*`: rates over shared memory of a shard on the device and of one on the CPU.
--device cpu leaves the option away, to test this program.
"""

import argparse
import glob
import json
import os
import re
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
START_SECONDS = 60
SHARDS, WORKERS = 2, 2
# Device memory of a shard: far more than these jobs need.
SHARD_BYTES = 2 << 30
# Of a shard's file.
FILE_BYTES = 256 << 20
FOLDERS = ("", "server/coordinator", "server/shard", "server/admin_cli", "client/train", "tests/benchmark")


def emit(name, **fields):
    print(json.dumps({"section": "cluster", "name": name, **fields}), flush=True)


class Programs:
    """Finds the programs of a bundle or of a build."""

    def __init__(self, folder):
        self.folder = os.path.abspath(folder)
        # A bundle brings the openssl that makes certificates.
        self.environment = {**os.environ, "PATH": self.folder + ":" + os.environ.get("PATH", "/usr/bin:/bin")}

    def path(self, name):
        for folder in FOLDERS:
            path = os.path.join(self.folder, folder, name)
            if os.access(path, os.X_OK):
                return path
        raise FileNotFoundError(f"{name} was not built")

    def run(self, name, *arguments):
        """Returns what the program printed; raises with the end of it if it fails."""
        done = subprocess.run([self.path(name), *arguments], env=self.environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        text = done.stdout.decode("utf-8", "replace")
        if done.returncode != 0:
            raise RuntimeError(f"{name} ended with {done.returncode}: {text[-300:]}")
        return text

    def knows(self, name, option):
        return re.search(rf"{option}\b", self.run(name, "--help")) is not None


class Cluster:
    """Servers in a fresh directory; a context that ends them."""

    def __init__(self, programs, directory, device, in_files=False, nccl="", job="kaon-train"):
        """`in_files`: each shard keeps its tensors in a file in a directory of its own. `nccl`: there is one shard, which
        receives gradients over this interface. `job`: that of the workers' certificates."""
        self.programs, self.directory, self.device, self.in_files, self.job = programs, directory, device, in_files, job
        self.nccl, self.shards = nccl, 1 if nccl else SHARDS
        self.processes = []

    def __enter__(self):
        os.makedirs(self.directory, mode=0o700)
        script = next(path for path in (os.path.join(HERE, "deploy/certificates.sh"),
                                        os.path.join(HERE, "../../deploy/certificates.sh")) if os.path.exists(path))
        subprocess.run(["bash", script, self.file("tls"), "--workers", str(WORKERS), "--job", self.job], env=self.programs.environment,
                       stdin=subprocess.DEVNULL, stdout=sys.stderr, check=True)
        try:
            addresses = [self.start_shard(i, "127.0.0.1:0") for i in range(self.shards)]
            self.address = self.start("coordinator", "kaon-coordinator", "coordinator", ["--shards", ",".join(addresses)])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def file(self, name):
        return os.path.join(self.directory, name)

    def start_shard(self, i, listen):
        options = ["--data-dir", self.file(f"shard-{i}")] + self.device
        if self.in_files:
            files = self.file(f"shard-{i}-files")
            os.makedirs(files, exist_ok=True)
            options += ["--memory-tier", "host", "--nvme-dirs", files, "--nvme-bytes", str(FILE_BYTES)]
        if self.nccl:
            options += ["--nccl", self.nccl]
        return self.start(f"shard-{i}", "kaon-shard", "shard", options, listen)

    def kill_shard(self, i):
        """Kills a shard and starts it again at the same address."""
        port = self.file(f"shard-{i}.port")
        with open(port, encoding="utf-8") as file:
            listen = "127.0.0.1:" + file.read().strip()
        os.unlink(port)
        # Shards come first in the list.
        self.processes[i].kill()
        self.processes[i].wait()
        self.start_shard(i, listen)
        self.processes[i] = self.processes.pop()

    def start(self, name, program, role, options, listen="127.0.0.1:0"):
        """Returns the address of the server once it serves."""
        port, log = self.file(name + ".port"), self.file(name + ".log")
        os.makedirs(self.file(name), mode=0o700, exist_ok=True)
        command = [self.programs.path(program), "--listen", listen, "--port-file", port, "--tls-ca-file", self.file("tls/ca.crt"),
                   "--tls-certificate-file", self.file(f"tls/{role}.crt"), "--tls-private-key-file", self.file(f"tls/{role}.key")]
        with open(log, "wb") as output:
            self.processes.append(subprocess.Popen(command + options, env=self.environment(name),
                                                   stdin=subprocess.DEVNULL, stdout=output, stderr=output))
        deadline = time.monotonic() + START_SECONDS
        while not (os.path.exists(port) and os.path.getsize(port)):
            if self.processes[-1].poll() is not None or time.monotonic() > deadline:
                with open(log, encoding="utf-8", errors="replace") as file:
                    raise RuntimeError(f"{name} does not serve: {file.read()[-300:]}")
            time.sleep(0.05)
        with open(port, encoding="utf-8") as file:
            return "127.0.0.1:" + file.read().strip()

    def nccl_settings(self, process):
        """Processes that share a card must look like different hosts to NCCL, and then use sockets alone."""
        log = self.file(f"{process}.nccl")
        return {"NCCL_HOSTID": process, "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "1",
                "NCCL_DEBUG_FILE": log} if self.nccl else {}

    def environment(self, process):
        return {**self.programs.environment, **self.nccl_settings(process)}

    def start_rank(self, rank, options):
        """Starts one worker as a process of its own. Returns the process and the file that it prints to."""
        path = self.file(f"rank-{rank}.log")
        with open(path, "wb") as output:
            process = subprocess.Popen([self.programs.path("kaon-train"), "--connect", self.address, "--tls-dir", self.file("tls"),
                                        "--rank", str(rank), "--report-every", "1", *options],
                                       env=self.environment(f"rank-{rank}"), stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=subprocess.STDOUT)
        return process, path

    def train_apart(self, options, kill_after=None):
        """Trains with each rank in a process of its own. `kill_after`: rank 1 is killed once, when it has reported so many
        steps."""
        ranks = [self.start_rank(rank, options) for rank in range(WORKERS)]
        try:
            if kill_after is not None:
                deadline = time.monotonic() + START_SECONDS
                while text_of(ranks[1][1]).count("step") < kill_after:
                    if ranks[1][0].poll() is not None or time.monotonic() > deadline:
                        raise RuntimeError(f"rank 1 does not train: {text_of(ranks[1][1])[-300:]}")
                    time.sleep(0.01)
                ranks[1][0].kill()
                ranks[1][0].wait()
                ranks[1] = self.start_rank(1, options)
            for process, path in ranks:
                if process.wait(START_SECONDS) != 0:
                    raise RuntimeError(f"kaon-train ended with {process.returncode}: {text_of(path)[-300:]}")
        finally:
            for process, _ in ranks:
                process.kill()
                process.wait()
        return summary(text_of(ranks[0][1]))["weights_digest"]

    def transfers(self):
        """Returns how many payloads sessions that have ended carried: [of gradients, of weights]."""
        log = text_of(self.file("shard-0.log"))
        pulls = set(re.findall(r"NCCL session (\d+) for .*, for pulls", log))
        counts = [0, 0]
        for session, count in re.findall(r"NCCL session (\d+) of rank \d+ ended after (\d+) transfers", log):
            counts[session in pulls] += int(count)
        return counts

    def train(self, options):
        return summary(self.programs.run("kaon-train", "--connect", self.address, "--tls-dir", self.file("tls"), *options))


def text_of(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def summary(text):
    line = text.strip().splitlines()[-1]
    if not line.startswith("SUMMARY "):
        raise RuntimeError(f"kaon-train printed no SUMMARY: {line[-300:]}")
    return json.loads(line[len("SUMMARY "):])


def training(small):
    size = ["--hidden", "48", "--embedding", "8", "--batch-size", "96", "--steps", "4"] if small else \
        ["--hidden", "512", "--batch-size", "256", "--steps", "12"]
    corpus = os.path.join(HERE, "corpus")
    return ["--workers", str(WORKERS), *size] + (["--corpus-dir", corpus] if os.path.isdir(corpus) else [])


def measure_training(programs, directory, device, small):
    options = training(small)
    runs = []
    for i in range(2):
        with Cluster(programs, os.path.join(directory, f"muon-{i}"), device) as cluster:
            runs.append(cluster.train(options))
    digests = [run["weights_digest"] for run in runs]
    emit("repeated", ok=digests[0] == digests[1] and runs[0]["applied"] > 0, detail=f"digests {digests}")
    with Cluster(programs, os.path.join(directory, "host_memory"), device + ["--memory-tier", "host"]) as cluster:
        there = cluster.train(options)["weights_digest"]
    emit("host_memory", ok=there == digests[0], detail=f"tensors on the host {there}, on the device {digests[0]}")
    with Cluster(programs, os.path.join(directory, "killed"), device) as cluster:
        cluster.train(options + ["--stop-after", "3"])
        for i in range(SHARDS):
            cluster.kill_shard(i)
        there = cluster.train(options)["weights_digest"]
    emit("killed", ok=there == digests[0], detail=f"after kill -9 {there}, undisturbed {digests[0]}")
    with Cluster(programs, os.path.join(directory, "nvme"), device, in_files=True) as cluster:
        there = cluster.train(options + ["--tier", "nvme"])["weights_digest"]
    emit("nvme", ok=there == digests[0], detail=f"tensors in a file {there}, on the device {digests[0]}")
    options = options + ["--preset", "adamw"]
    with Cluster(programs, os.path.join(directory, "adamw"), device) as cluster:
        there = cluster.train(options)["weights_digest"]
    here = summary(programs.run("kaon-train", "--local", *options))["weights_digest"]
    emit("adamw", ok=here == there, detail=f"device {there}, CPU {here}")


def why_no_nccl(programs, device):
    """Returns why gradients over NCCL cannot be tried here, or nothing."""
    if not device or not device[1].startswith("cuda:"):
        return "there is no GPU; nccl_processes_test runs the three processes over sockets in place of NCCL"
    if not programs.knows("kaon-train", "--nccl") or not programs.knows("kaon-shard", "--nccl"):
        return "the programs have no option --nccl"
    folders = [folder for root in sys.path for folder in glob.glob(os.path.join(root, "nvidia", "nccl", "lib"))]
    path = os.pathsep.join(filter(None, [*folders, programs.environment.get("LD_LIBRARY_PATH", "")]))
    programs.environment["LD_LIBRARY_PATH"] = path
    # A loader of its own reads the new path.
    found = subprocess.run([sys.executable, "-c", "import ctypes; ctypes.CDLL('libnccl.so.2')"], env=programs.environment,
                           stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    return "" if found.returncode == 0 else found.stderr.decode("utf-8", "replace").strip().splitlines()[-1]


def measure_nccl(programs, directory, device, small):
    """Two workers and a shard as processes of one card: gradients over NCCL and over gRPC end in one digest, and so does a
    run in which a worker was killed."""
    reason = why_no_nccl(programs, device)
    if reason:
        for name in ("nccl", "nccl_killed"):
            emit(name, skipped=reason)
        return
    options = training(small)
    over_nccl = options + ["--nccl", "lo", "--nccl-device", device[1].partition(":")[2]]
    with Cluster(programs, os.path.join(directory, "nccl-grpc"), device, nccl="lo") as cluster:
        expected = cluster.train_apart(options + ["--transport", "grpc"])
    for name, kill_after in (("nccl", None), ("nccl_killed", 3)):
        with Cluster(programs, os.path.join(directory, name), device, nccl="lo") as cluster:
            there = cluster.train_apart(over_nccl, kill_after)
        # The shard has ended, and with it every session.
        transfers = cluster.transfers()
        emit(name, ok=there == expected and min(transfers) > 0,
             detail=f"transfers of gradients and weights over NCCL {transfers}, digest {there}, over gRPC {expected}")


def measure_transfers(programs, directory, device, small):
    for label, options in (("cpu", []), ("gpu", device)):
        if label == "gpu" and not programs.knows("push_pull", "--device"):
            for name in ("push", "pull"):
                emit(name, skipped="push_pull has no option --device")
            return
        path = os.path.join(directory, label + ".json")
        programs.run("push_pull", "--transports", "shm", "--workers", "1", "--mebibytes", "4" if small else "512", "--json", path,
                     *options[:2])
        with open(path, encoding="utf-8") as file:
            for row in map(json.loads, file):
                if row["unit"] == "GB/s":
                    emit(f"{row['name'].replace('_shm', '')}_{label}", value=row["value"], unit=row["unit"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--device", "--directory", "--programs"):
        parser.add_argument(name, required=True)
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    programs = Programs(args.programs)
    # Both shards share the device.
    device = [] if args.device == "cpu" else ["--device", args.device, "--device-memory-bytes", str(SHARD_BYTES)]
    try:
        if device and not programs.knows("kaon-shard", "--device"):
            emit("", skipped="kaon-shard has no option --device")
            return 0
    except FileNotFoundError as error:
        emit("", skipped=str(error))
        return 0
    failed = 0
    for name, measure in (("training", measure_training), ("nccl", measure_nccl), ("transfers", measure_transfers)):
        try:
            measure(programs, args.directory, device, args.small)
        except FileNotFoundError as error:
            emit("", skipped=str(error))
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            emit(name, ok=False, detail=str(error))
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
