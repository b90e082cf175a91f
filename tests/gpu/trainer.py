#!/usr/bin/env python3
"""Trains the GPT of docs/examples/train_gpt.py on CUDA tensors: the section `trainer` of tests/gpu/run.sh.

    trainer.py --device cuda:0 --directory DIR --programs DIR [--small]

Four trainers, one after the other: torch's fused AdamW with its Muon (`torch`), kaon.Optimizer with two shards on the
host's CPUs (`kaon_cpu`), with two shards on the device (`kaon_gpu`), and with one there over NCCL (`kaon_nccl`). Prints one
JSON line per figure: the loss of the last step that all of them printed, steps per second after the first step, and the
largest GPU memory of the trainer. The check `losses` compares the losses of all steps that two trainers printed. The check
`over_nccl` says that NCCL carried gradients and weights.
--small trains a tiny model on the CPU and reports host memory instead, to test this program.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys

import cluster

HERE = os.path.dirname(os.path.abspath(__file__))
# 124,591,424 parameters.
SIZE = ["--width", "928", "--layers", "12", "--lr", "3e-4"]
SMALL = ["--width", "64", "--layers", "2"]
# A trainer stops after the step that ends later than this, and is killed after that.
SECONDS, KILL_SECONDS = 18, 45
STEPS, SMALL_STEPS, EVERY = 30, 6, 3
# Both compute Newton-Schulz in bf16.
TOLERANCE = 0.01
SHARD_BYTES = 8 << 30
DONE = re.compile(r"(\d+) parameters: (\S+) steps/s, peak memory (\d+) MiB(?:, peak GPU memory (\d+) MiB)?")


def emit(name, **fields):
    print(json.dumps({"section": "trainer", "name": name, **fields}), flush=True)


def beside(*places):
    """Returns the first of these paths that is there: in a bundle beside this script, or in the repository."""
    return next((path for path in (os.path.join(HERE, place) for place in places) if os.path.exists(path)), "")


def environment(programs):
    """Returns the environment of a trainer that finds the package kaon, and outside of a bundle libkaon.so of the
    build."""
    package = beside("python", "../../client/python")
    # The model is on the GPU, or small.
    found = {**os.environ, "OMP_NUM_THREADS": "1",
             "PYTHONPATH": os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))}
    library = os.path.join(programs.folder, "deploy/library/libkaon.so")
    if os.path.exists(library):
        found["KAON_LIBRARY"] = library
    return {name: value for name, value in found.items() if name not in ("RANK", "WORLD_SIZE", "KAON_DIR", "KAON_RANK")}


def last_line_of(script, env):
    """Returns nothing, or the last line of the error that a Python program ends with."""
    done = subprocess.run([sys.executable, "-c", script], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, check=False)
    return "" if done.returncode == 0 else (done.stderr.decode("utf-8", "replace").strip() or "it died").splitlines()[-1]


def why_no_torch(env, small):
    """Returns why no trainer can run here, or nothing."""
    script = "import sys, torch\ntorch.optim.Muon"
    return last_line_of(script if small else script + "\ntorch.zeros(1, device='cuda')", env)


def train(env, options):
    """Returns the losses by step, steps/s and MiB of a trainer's peak, on the GPU if it has one."""
    done = subprocess.run([sys.executable, beside("train_gpt.py", "../../docs/examples/train_gpt.py"), *options], env=env,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=KILL_SECONDS,
                          check=False)
    errors = done.stderr.decode("utf-8", "replace")
    end = DONE.search(errors)
    if done.returncode != 0 or end is None:
        raise RuntimeError(f"train_gpt.py ended with {done.returncode}: {errors.strip()[-300:]}")
    losses = {int(step): float(loss) for step, loss in re.findall(r"step (\d+) loss (\S+)", done.stdout.decode())}
    return {"losses": losses, "rate": float(end[2]), "peak": int(end[4] or end[3]), "parameters": int(end[1])}


def named(servers):
    """Returns the environment that names a cluster."""
    return {"KAON_ENDPOINTS": servers.address, "KAON_TLS_DIR": servers.file("tls")}


def train_all(programs, directory, device, small):
    """Yields the name of each trainer with what train() returns."""
    env = environment(programs)
    corpus = beside("corpus")
    options = [*(SMALL if small else SIZE), "--steps", str(SMALL_STEPS if small else STEPS), "--every", str(EVERY), "--seconds", str(SECONDS),
               "--device", "cpu" if small else "cuda"] + (["--text", corpus] if corpus else [])
    yield "torch", train(env, ["--optimizer", "torch", *options])
    missing = last_line_of("import torch, kaon; kaon.library_version()", env)
    if missing:
        emit("kaon", skipped=missing)
        return
    for name, shard_options in (("kaon_cpu", []), ("kaon_gpu", device)):
        with cluster.Cluster(programs, os.path.join(directory, name), shard_options, job="gpt") as servers:
            yield name, train({**env, **named(servers)}, ["--optimizer", "kaon", "--overlap", *options])
    reason = cluster.why_no_nccl(programs, device)
    if reason:
        for name in ("over_nccl", *(f"{figure}_kaon_nccl" for figure in ("rate", "loss", "peak"))):
            emit(name, skipped=reason)
        return
    # The trainer loads NCCL and cuBLASLt from where the shard does.
    folders = filter(None, [programs.environment["LD_LIBRARY_PATH"], os.environ.get("KAON_CUDA_LIBS")])
    there = {**env, "LD_LIBRARY_PATH": os.pathsep.join(folders), "KAON_NCCL": "lo"}
    with cluster.Cluster(programs, os.path.join(directory, "kaon_nccl"), device, nccl="lo", job="gpt") as servers:
        run = train({**there, **named(servers), **servers.nccl_settings("trainer")},
                    ["--optimizer", "kaon", "--overlap", *options])
    # The shard has ended, and with it every session.
    transfers = servers.transfers()
    emit("over_nccl", ok=min(transfers) > 0, detail=f"transfers of gradients and weights over NCCL {transfers}")
    yield "kaon_nccl", run


def compare(runs):
    """Emits the losses of the last step that all have, and whether Kaon's are those of torch."""
    step = max(set.intersection(*(set(run["losses"]) for run in runs.values())))
    for name, run in runs.items():
        emit(f"loss_{name}", value=run["losses"][step], unit=f"at step {step}")
    torch = runs.pop("torch")["losses"]
    for name, run in runs.items():
        worst = max((abs(loss / torch[at] - 1), at) for at, loss in run["losses"].items() if at in torch)
        emit(f"losses {name}", ok=worst[0] <= TOLERANCE and step > 1,
             detail=f"differ from torch's by at most {worst[0]:.2e}, at step {worst[1]}; the last common step is {step}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--device", "--directory", "--programs"):
        parser.add_argument(name, required=True)
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    programs = cluster.Programs(args.programs)
    device = [] if args.device == "cpu" else ["--device", args.device, "--device-memory-bytes", str(SHARD_BYTES)]
    reason = why_no_torch(environment(programs), args.small)
    if reason:
        emit("", skipped=f"python3 cannot train with torch: {reason}")
        return 0
    runs = {}
    try:
        for name, run in train_all(programs, args.directory, device, args.small):
            emit(f"rate_{name}", value=run["rate"], unit="steps/s", parameters=run["parameters"])
            emit(f"peak_{name}", value=run["peak"], unit="MiB")
            runs[name] = run
    except FileNotFoundError as error:
        emit("kaon", skipped=str(error))
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        print(error, file=sys.stderr)
        emit("losses", ok=False, detail=str(error)[-300:])
    if runs:
        compare(runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
