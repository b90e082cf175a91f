#!/usr/bin/env python3
"""Every script that calls Bazel names the one cache for what was built, and needs no HOME for that.

Those that build for users name the commit."""

import os
import pwd
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SCRIPTS = (
    ["tests/run.sh"],
    ["tests/nightly.sh", "--suite", "ubsan"],
    ["tests/nightly.sh", "--suite", "coverage"],
    ["tests/mutation.sh"],
    ["tests/protocol_mutation.sh"],
    ["tests/benchmark/run.sh"],
    ["deploy/quickstart.sh"],
    ["deploy/install.sh"],
)
FOR_USERS = (["deploy/quickstart.sh"], ["deploy/install.sh"])
BESIDE = ("deploy/bazel_server.sh", "deploy/commit.sh", "deploy/disk_cache.sh", "deploy/local_cluster.sh",
          "deploy/progress.sh", "tests/mutation_driver.sh", "tests/fuzz_coverage.py", "tests/count_results.py")
# Builds nothing.
BAZEL = """#!/bin/bash
echo "$*" >>"$CALLS"
exit 1
"""
MUTATION = "  kOne = 1,  // kernels/one.cc\n"


class DiskCacheTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = directory.name
        for path in {script[0] for script in SCRIPTS} | set(BESIDE):
            self.put(path)
            shutil.copy(os.path.join(ROOT, path), os.path.join(self.root, path))
        self.put("deploy/install_packages.sh", "#!/bin/bash\n")
        self.put("bin/bazel", BAZEL)
        self.put("kernels/mutation.h", MUTATION)
        self.put("server/mutated.cc", '#include "server/mutation/mutation.h"\n')
        self.put("tests/simulation/mutated.cc", '#include "server/mutation/mutation.h"\n')

    def put(self, path, text=""):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)

    def told(self, script, environment, option):
        """The values of an option that the script gives to Bazel."""
        calls = os.path.join(self.root, "calls")
        environment = {"CALLS": calls, "TMPDIR": self.root, "PATH": self.root + "/bin:" + os.environ["PATH"], **environment}
        with open(calls, "w", encoding="utf-8"):
            pass
        done = subprocess.run([os.path.join(self.root, script[0]), *script[1:]], env=environment, cwd=self.root,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        with open(calls, encoding="utf-8") as file:
            told = [word[len(option):] for word in file.read().split() if word.startswith(option)]
        self.assertTrue(told, done.stdout.decode("utf-8"))
        return set(told)

    def test_is_in_the_users_home_directory_without_home(self):
        home = pwd.getpwuid(os.getuid()).pw_dir
        for script in SCRIPTS:
            with self.subTest(" ".join(script)):
                self.assertEqual(self.told(script, {}, "--disk_cache="), {home + "/.cache/kaon-bazel"})

    def test_is_where_caches_are_to_be(self):
        for environment, expected in (({"HOME": "/h"}, "/h/.cache/kaon-bazel"),
                                      ({"HOME": "/h", "XDG_CACHE_HOME": "/c"}, "/c/kaon-bazel")):
            for script in SCRIPTS:
                with self.subTest(" ".join(script)):
                    self.assertEqual(self.told(script, environment, "--disk_cache="), {expected})

    def test_commit_is_named_where_users_build(self):
        for script in FOR_USERS:
            with self.subTest(" ".join(script)):
                self.assertEqual(self.told(script, {"KAON_REVISION": "abc"}, "--define=kaon_commit="), {"abc"})


if __name__ == "__main__":
    unittest.main()
