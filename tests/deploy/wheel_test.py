#!/usr/bin/python3
"""deploy/wheel.py packs a tree into a wheel that pip accepts: names, hashes, modes, and the same bytes again."""

import base64
import csv
import hashlib
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

TREE = {"bin/kaon-shard": 0o755, "bin/kaon-coordinator": 0o755, "bin/kaonctl": 0o755, "bin/kaon-train": 0o755,
        "lib/libkaon.so.0.1.0": 0o644, "lib/libkaon_client.so.0.1.0": 0o644, "lib/libgrpc.so.29": 0o644,
        "lib/libkaon_client.a": 0o644, "share/kaon/deploy/local_cluster.sh": 0o755,
        "share/doc/kaon/LICENSE": 0o644, "share/kaon/proto/kaon/v1/step.proto": 0o644}


class WheelTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = Path(folder.name) / "tree"
        for name, mode in TREE.items():
            path = self.tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"content of {name}")
            path.chmod(mode)
        for link, name in (("libkaon.so.0.1", "libkaon.so.0.1.0"), ("libkaon.so", "libkaon.so.0.1")):
            (self.tree / "lib" / link).symlink_to(name)

    def pack(self):
        output = Path(tempfile.mkdtemp(dir=self.tree.parent))
        subprocess.run([sys.executable, "deploy/wheel.py", str(self.tree), str(output)], check=True,
                       stdout=subprocess.DEVNULL, env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"})
        wheel, = output.iterdir()
        return wheel

    def test_holds_what_a_local_cluster_needs_under_the_names_that_others_load(self):
        with zipfile.ZipFile(self.pack()) as wheel:
            modes = {entry.filename: entry.external_attr >> 16 & 0o777 for entry in wheel.infolist()}
            library = wheel.read("kaon/installation/lib/libkaon.so.0.1")
        installed = {name.split("installation/")[1]: mode for name, mode in modes.items() if "installation" in name}
        self.assertEqual(installed, {
            "bin/kaon-shard": 0o755, "bin/kaon-coordinator": 0o755, "bin/kaonctl": 0o755,
            "lib/libkaon.so.0.1": 0o644, "lib/libgrpc.so.29": 0o644, "share/kaon/deploy/local_cluster.sh": 0o755,
            "share/doc/kaon/LICENSE": 0o644})
        self.assertEqual(library, b"content of lib/libkaon.so.0.1.0")
        for name in ("kaon/__init__.py", "kaon/optimizer.py", "kaon/py.typed"):
            self.assertIn(name, modes)

    def test_records_the_hash_of_each_file_and_names_its_version(self):
        path = self.pack()
        version = Path("VERSION").read_text().strip()
        self.assertEqual(path.name, f"kaon-{version}-py3-none-manylinux_2_36_x86_64.whl")
        with zipfile.ZipFile(path) as wheel:
            about = f"kaon-{version}.dist-info"
            recorded = {row[0]: row[1:] for row in csv.reader(wheel.read(f"{about}/RECORD").decode().splitlines())}
            self.assertEqual(set(recorded), set(wheel.namelist()))
            for name in wheel.namelist():
                content = wheel.read(name)
                digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
                wanted = ["", ""] if name.endswith("/RECORD") else [f"sha256={digest}", str(len(content))]
                self.assertEqual(recorded[name], wanted, name)
            self.assertIn(f"Version: {version}\n", wheel.read(f"{about}/METADATA").decode())

    def test_has_the_commands_of_the_project(self):
        project = Path("client/python/pyproject.toml").read_text().split("[project.scripts]\n")[1].split("\n\n")[0]
        with zipfile.ZipFile(self.pack()) as wheel:
            name, = (name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))
            commands = wheel.read(name).decode()
        self.assertEqual(commands, "[console_scripts]\n" + project.replace('"', "") + "\n")

    def test_equal_trees_give_equal_bytes(self):
        self.assertEqual(self.pack().read_bytes(), self.pack().read_bytes())


if __name__ == "__main__":
    unittest.main()
