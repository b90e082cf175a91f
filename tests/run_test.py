#!/usr/bin/env python3
"""Tests of run.sh over a bazel that only writes down how it was called, and one passed case."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
INSTALL = """#!/bin/bash
echo "install $*" >>"$CALLS"
"""
BAZEL = """#!/bin/bash
echo "bazel $*" >>"$CALLS"
for argument in "$@"; do
  case "$argument" in --build_event_json_file=*) events=${argument#*=} ;; esac
done
printf '<testsuites><testcase name="x"/></testsuites>' >"$CALLS.xml"
echo "Base64: AAEC" >"$CALLS.log"
cat >"$events" <<EVENTS
{"id":{"testResult":{"label":"//a:t"}},"testResult":{"status":"PASSED","testActionOutput":[\
{"name":"test.xml","uri":"file://$CALLS.xml"},{"name":"test.log","uri":"file://$CALLS.log"}]}}
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
        for name in ("tests/run.sh", "tests/count_results.py", "tests/keep_logs.py", "deploy/disk_cache.sh"):
            shutil.copy(os.path.join(HERE, "..", name), os.path.join(self.root, name))
        for name, text in (("deploy/install_packages.sh", INSTALL), ("bin/bazel", BAZEL)):
            path = os.path.join(self.root, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(path, 0o755)

    def run_sh(self, *arguments, seconds=0, part_seconds=0):
        """(exit status, lines of output, lines of how the stand-ins were called); a part takes part_seconds."""
        calls = os.path.join(self.root, "calls")
        # SECONDS is the clock of bash.
        clock = os.path.join(self.root, "clock")
        with open(clock, "w", encoding="utf-8") as file:
            file.write(f'bazel() {{ command bazel "$@"; SECONDS=$((SECONDS + {part_seconds})); }}\n')
        environment = {**os.environ, "CALLS": calls, "HOME": self.root, "SECONDS": str(seconds), "BASH_ENV": clock,
                       "PATH": os.path.join(self.root, "bin") + ":" + os.environ["PATH"]}
        done = subprocess.run(["bash", os.path.join(self.root, "tests/run.sh"), *arguments], env=environment,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        lines = []
        if os.path.exists(calls):
            with open(calls, encoding="utf-8") as file:
                lines = file.read().splitlines()
        return done.returncode, done.stdout.decode("utf-8").splitlines(), lines

    def test_runs_the_fuzz_targets_then_everything_as_used_and_as_built_without_the_long_trouble(self):
        status, output, (install, fuzz, opt, fastbuild) = self.run_sh()
        self.assertEqual((status, output[-1]), (0, "3 passed, 0 failed"))
        self.assertEqual(install, "install --test --sanitizers")
        self.assertRegex(fuzz, r"^bazel test .*--config=fuzz .*--build_tests_only //tests/fuzz/\.\.\.$")
        self.assertRegex(opt, r"^bazel test .*--config=opt .*//\.\.\.$")
        self.assertNotIn("opt_only", opt)
        self.assertNotIn("--config", fastbuild)
        self.assertRegex(fastbuild, r"--test_tag_filters=-nightly,-gpu,-opt_only .*//\.\.\.$")

    def test_keeps_the_logs_of_every_part(self):
        self.run_sh()
        for part in ("fuzz", "opt", "fastbuild"):
            self.assertTrue(os.path.isfile(os.path.join(self.root, ".bazel/kept", part, "a/t/test.log")), part)

    def test_prints_the_input_that_a_fuzz_target_failed_on(self):
        self.assertIn(".bazel/kept/fuzz/a/t/test.log:Base64: AAEC", self.run_sh()[1])

    def test_only_the_named_part_of_the_named_targets(self):
        _, output, (install, opt) = self.run_sh("--config", "opt", "//b:t")
        self.assertEqual(output[-1], "1 passed, 0 failed")
        self.assertEqual(install, "install --test")
        self.assertRegex(opt, r"--config=opt .* //b:t$")

    def test_named_targets_are_no_fuzz_targets(self):
        _, output, calls = self.run_sh("//b:t")
        self.assertEqual(output[-1], "2 passed, 0 failed")
        self.assertNotIn("--config=fuzz", " ".join(calls))

    def test_begins_no_part_too_late_and_says_which(self):
        self.assertEqual(self.run_sh("--within", "30")[1][-1], "3 passed, 0 failed")
        status, output, _ = self.run_sh("--within", "30", seconds=1800)
        self.assertEqual(status, 1)
        self.assertEqual(output, [f"NOT RUN  {part}: 30 minutes were over before it could begin"
                                  for part in ("fuzz", "opt", "fastbuild")]
                         + [f"BUILD  {part}.json: it was interrupted" for part in ("fuzz", "opt")] + ["0 passed, 2 failed"])

    def test_does_not_pass_without_a_part_that_no_other_stands_for(self):
        for part_seconds, left_out, end in ((1000, ["fastbuild"], (0, "2 passed, 0 failed")),
                                            (1800, ["opt", "fastbuild"], (1, "1 passed, 1 failed"))):
            with self.subTest(left_out):
                status, output, _ = self.run_sh("--within", "30", part_seconds=part_seconds)
                self.assertEqual((status, output[-1]), end)
                self.assertEqual([line.split()[2] for line in output if line.startswith("NOT RUN")],
                                 [f"{part}:" for part in left_out])

    def test_tries_failed_tests_again_but_never_those_that_draw_other_inputs(self):
        _, _, (_, fuzz, opt, fastbuild) = self.run_sh("--attempts", "2")
        self.assertNotIn("flaky", fuzz)
        self.assertIn("--flaky_test_attempts=2 ", opt)
        self.assertIn("--flaky_test_attempts=2 ", fastbuild)

    def test_never_tries_again_what_shows_a_lost_step(self):
        _, _, (_, _, *parts) = self.run_sh("--attempts", "2")
        for part in parts:
            general, single = re.findall(r"--flaky_test_attempts=(\S+)", part)
            self.assertEqual(general, "2")
            # Bazel takes the last that fits.
            pattern, attempts = single.split("@")
            self.assertEqual(attempts, "1")
            for label in ("//tests/crash:crash_cycles_test", "//tests/crash:history_network_test", "//tests/simulation:a_test",
                          "//tests/fuzz:a_test", "//tests/simulation/deeper:a_test"):
                self.assertRegex(label, pattern)
            # What measures times may do so again.
            for label in ("//tests/crash:recovery_time_test", "//tests/network:chaos_test", "//tests/crashes:a_test",
                          "//tests/integration:a_test", "//tests/tidy:crash"):
                self.assertNotRegex(label, pattern)

    def test_refuses_what_is_no_number(self):
        for arguments in (("--within", "soon"), ("--attempts", "0"), ("--attempts",)):
            with self.subTest(arguments):
                status, output, calls = self.run_sh(*arguments)
                self.assertEqual((status, calls), (2, []))
                self.assertIn("must be a number", output[-1])


if __name__ == "__main__":
    unittest.main()
