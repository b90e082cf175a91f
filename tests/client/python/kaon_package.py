"""Finds the package kaon, libkaon.so and the programs in the test's runfiles. Import this before kaon."""

import os
import signal
import sys

ROOT = os.getcwd()
sys.path.insert(0, os.path.join(ROOT, "client/python"))
os.environ["KAON_LIBRARY"] = os.path.join(ROOT, "deploy/library/libkaon.so")
os.environ["KAON_BINARIES"] = ROOT
for name in ("KAON_ENDPOINTS", "KAON_DIR", "KAON_TLS_DIR", "KAON_RANK", "KAON_NCCL", "RANK", "WORLD_SIZE"):
    os.environ.pop(name, None)


def stop(process):
    """Stops a server until SIGCONT. A thread that still runs might answer, so it waits for all of them."""
    def is_stopped(thread):
        try:
            with open(f"/proc/{process}/task/{thread}/stat", encoding="utf-8") as stat:
                return stat.read().rpartition(")")[2].split()[0] == "T"
        except FileNotFoundError:  # It has ended.
            return True
    os.kill(process, signal.SIGSTOP)
    while not all(is_stopped(thread) for thread in os.listdir(f"/proc/{process}/task")):
        pass
