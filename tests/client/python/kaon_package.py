"""Finds the package kaon, libkaon.so and the programs in the test's runfiles. Import this before kaon."""

import os
import sys

ROOT = os.getcwd()
sys.path.insert(0, os.path.join(ROOT, "client/python"))
os.environ["KAON_LIBRARY"] = os.path.join(ROOT, "deploy/library/libkaon.so")
os.environ["KAON_BINARIES"] = ROOT
for name in ("KAON_ENDPOINTS", "KAON_DIR", "KAON_TLS_DIR", "KAON_RANK", "RANK", "WORLD_SIZE"):
    os.environ.pop(name, None)
