#!/usr/bin/env python3
"""Tests of run.sh over a bazel that only writes down how it was called, and one passed case."""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
INSTALL = """#!/bin/bash
echo "install $*" >>"$CALLS"
"""
BAZEL = """#!/bin/bash
echo "bazel $*" >>"$CALLS"
[ "$1" != shutdown ] || exit 0
for argument in "$@"; do
  case "$argument" in --build_event_json_file=*) events=${argument#*=} ;; esac
done
printf '<testsuites><testcase name="x"/></testsuites>' >"$CALLS.xml"
echo "[7 / 9] Compiling a.cc" >&2
sleep ${BAZEL_SECONDS:-0}
echo "a.cc:1: warning" >&2
cat >"$events" <<EVENTS
{"id":{"testResult":{"label":"//a:t"}},"testResult":{"status":"PASSED","testActionOutput":[\
{"name":"test.xml","uri":"file://$CALLS.xml"}],"testAttemptDurationMillis":"1500"}}
{"id":{"buildFinished":{}},"finished":{"exitCode":{"code":0}}}
EVENTS
"""


class RunTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = directory.name
        for name in ("tests", "deploy", "bin"):
            os.mkdir(os.path.join(self.root, name))
        for name in ("tests/run.sh", "tests/count_results.py", "deploy/bazel_server.sh", "deploy/disk_cache.sh",
                     "deploy/progress.sh"):
            shutil.copy(os.path.join(HERE, "..", name), os.path.join(self.root, name))
        for name, text in (("deploy/install_packages.sh", INSTALL), ("bin/bazel", BAZEL)):
            path = os.path.join(self.root, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(path, 0o755)

    def run_sh(self, *arguments, **environment):
        """(exit status, lines of output, lines of how the stand-ins were called)"""
        calls = os.path.join(self.root, "calls")
        environment = {**os.environ, "CALLS": calls, "HOME": self.root,
                       "PATH": os.path.join(self.root, "bin") + ":" + os.environ["PATH"], **environment}
        done = subprocess.run(["bash", os.path.join(self.root, "tests/run.sh"), *arguments], env=environment,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        lines = []
        if os.path.exists(calls):
            with open(calls, encoding="utf-8") as file:
                lines = file.read().splitlines()
        return done.returncode, done.stdout.decode("utf-8").splitlines(), lines

    def test_tests_everything_in_one_optimized_build(self):
        status, output, (install, test) = self.run_sh()
        self.assertEqual((status, install), (0, "install --test"))
        self.assertRegex(test, r"^bazel test .*--config=opt .* //\.\.\.$")
        self.assertEqual(output, ["a.cc:1: warning", "slowest tests:", "    1.5 s  //a:t", "1 passed, 0 failed"])

    def test_shows_progress_between_warnings(self):
        _, output, _ = self.run_sh(BAZEL_SECONDS="3", PROGRESS_SECONDS="2")
        self.assertRegex(output[0], r"^tests: 7 of 9, 0:0[2-9] Compiling a.cc$")
        self.assertIn("a.cc:1: warning", output)

    def test_tests_only_the_named_targets(self):
        self.assertRegex(self.run_sh("//b:t", "//c/...")[2][1], r"--config=opt .* //b:t //c/\.\.\.$")

    def test_runs_a_failed_test_again_but_never_what_shows_a_lost_step(self):
        general, single = re.findall(r"--flaky_test_attempts=(\S+)", self.run_sh()[2][1])
        self.assertEqual(general, "2")
        # Bazel takes the last that fits.
        pattern, attempts = single.split("@")
        self.assertEqual(attempts, "1")
        for label in ("//tests/crash:crash_cycles_test", "//tests/crash:history_network_test", "//tests/simulation:a_test",
                      "//tests/simulation/deeper:a_test"):
            self.assertRegex(label, pattern)
        # What measures times may do so again.
        for label in ("//tests/crash:recovery_time_test", "//tests/network:chaos_test", "//tests/crashes:a_test",
                      "//tests/integration:a_test", "//tests/tidy:crash"):
            self.assertNotRegex(label, pattern)

    def interrupted(self, bazel_server):
        """(exit status, whether the server was shut down) after Ctrl-C; the pid of Bazel's server or None"""
        place = os.path.join(self.root, ".cache/bazel/_bazel_tester", hashlib.md5(self.root.encode()).hexdigest(), "server")
        os.makedirs(place)
        if bazel_server:
            with open(os.path.join(place, "server.pid.txt"), "w", encoding="utf-8") as file:
                file.write(str(bazel_server))
        calls = os.path.join(self.root, "calls")
        environment = {**os.environ, "CALLS": calls, "HOME": self.root, "USER": "tester", "BAZEL_SECONDS": "1000",
                       "PROGRESS_SECONDS": "1",
                       "PATH": os.path.join(self.root, "bin") + ":" + os.environ["PATH"]}
        running = subprocess.Popen(["bash", os.path.join(self.root, "tests/run.sh")], env=environment,
                                   stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
        # The stand-in says that it builds.
        for line in running.stderr:
            if b"Compiling" in line:
                break
        os.killpg(running.pid, signal.SIGINT)
        running.communicate(timeout=60)
        with open(calls, encoding="utf-8") as file:
            return running.returncode, "bazel shutdown\n" in file.readlines()

    def test_leaves_no_bazel_server_behind_after_an_interrupt(self):
        self.assertEqual(self.interrupted(None), (130, True))

    def test_keeps_a_bazel_server_that_was_there(self):
        self.assertEqual(self.interrupted(os.getpid()), (130, False))

    def test_refuses_an_unknown_option(self):
        status, output, calls = self.run_sh("--config", "opt")
        self.assertEqual((status, calls), (2, []))
        self.assertEqual(output, ["run.sh: unknown option --config; see --help"])


if __name__ == "__main__":
    unittest.main()
