#!/usr/bin/env python3
"""Compiles every .cu of kernels/cuda for each architecture and holds its kernels to budgets.json.

A budget is the most registers of a thread; "default" counts for kernels that the file does not name. No kernel may spill
or have a stack. Warnings of the compiler, such as products that it serialises, are failures. Without nvcc there is
nothing to compile.
"""

import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

# The repository itself: its headers are more than the runfiles have.
HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", "..", ".."))
FOLDER = os.path.join(ROOT, "kernels", "cuda")
ARCHITECTURES = ("sm_80", "sm_90a", "sm_100")
PLACES = ("/usr/local/cuda/bin", "/usr/lib/cuda/bin", "/opt/cuda/bin")
FLAGS = ("-std=c++20", "--fmad=false", "-Xcompiler", "-ffp-contract=off", "-Xptxas", "-v", "-cubin")
FUNCTION = re.compile(r"Compiling entry function '(\w+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")


def find_nvcc():
    return shutil.which("nvcc", path=os.pathsep.join((os.environ.get("PATH", ""),) + PLACES))


def name_of(symbol):
    """Returns the kernel's own name: the last of the lengths and names that a mangled symbol starts with."""
    at = len("_ZN") if symbol.startswith("_ZN") else len("_Z")
    name = symbol
    while number := re.match(r"\d+", symbol[at:]):
        begin = at + number.end()
        at = begin + int(number.group())
        name = symbol[begin:at]
    return name


def parse(output):
    """Yields (kernel, registers, bytes of stack, bytes spilled) of what ptxas -v prints."""
    kernel, stack = "", (0, 0, 0)
    for line in output.split("\n"):
        if match := FUNCTION.search(line):
            kernel = name_of(match.group(1))
        elif match := STACK.search(line):
            stack = tuple(map(int, match.groups()))
        elif match := REGISTERS.search(line):
            yield kernel, int(match.group(1)), stack[0], stack[1] + stack[2]


def findings(file, rows, budgets):
    """Yields a sentence for each row over its budget."""
    for kernel, registers, stack, spilled in rows:
        budget = budgets.get(file, {}).get(kernel, budgets["default"])
        if registers > budget:
            yield f"{file}: {kernel} uses {registers} registers, more than {budget}"
        if stack or spilled:
            yield f"{file}: {kernel} has a stack of {stack} bytes and spills {spilled}"


def compile_file(nvcc, file, architecture, folder):
    """Returns what the compiler prints."""
    output = os.path.join(folder, f"{os.path.basename(file)}.{architecture}.cubin")
    run = subprocess.run([nvcc, *FLAGS, f"-arch={architecture}", f"-I{ROOT}", os.path.join(FOLDER, file), "-o", output],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if run.returncode != 0:
        raise RuntimeError(f"{file} for {architecture}:\n{run.stdout}")
    return run.stdout


class CompileTest(unittest.TestCase):
    def test_parses_the_assembler(self):
        output = """ptxas info    : Compiling entry function '_ZN4kaon4cuda53_GLOBAL__N__0dd24328_20_symmetric_kernels_cu_a255b8d18AddPartsILNS0_5DTypeE3EEEvNS2_15FinishArgumentsE' for 'sm_90a'
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers
"""
        self.assertEqual(list(parse(output)), [("AddParts", 32, 8, 16)])

    def test_finds_what_is_over_its_budget(self):
        budgets = {"default": 40, "a.cu": {"Large": 168}}
        self.assertEqual(list(findings("a.cu", [("Large", 168, 0, 0), ("Small", 40, 0, 0)], budgets)), [])
        self.assertEqual(list(findings("a.cu", [("Small", 41, 0, 0)], budgets)),
                         ["a.cu: Small uses 41 registers, more than 40"])
        self.assertEqual(list(findings("b.cu", [("Large", 32, 8, 16)], budgets)),
                         ["b.cu: Large has a stack of 8 bytes and spills 16"])

    def test_kernels_stay_within_their_budgets(self):
        nvcc = find_nvcc()
        if nvcc is None:
            print(f"not compiled: no nvcc on PATH or in {', '.join(PLACES)}")
            return
        with open(os.path.join(HERE, "budgets.json"), encoding="utf-8") as file:
            budgets = json.load(file)
        files = sorted(os.path.relpath(os.path.join(folder, name), FOLDER)
                       for folder, _, names in os.walk(FOLDER) for name in names if name.endswith(".cu"))
        self.assertTrue(files)
        failures = []
        print(f"{'file':24} {'kernel':28} {'arch':7} {'registers':>9} {'stack':>5} {'spilled':>7}")
        with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
            runs = [(file, architecture, pool.submit(compile_file, nvcc, file, architecture, folder))
                    for file in files for architecture in ARCHITECTURES]
            for file, architecture, run in runs:
                output = run.result()
                rows = list(parse(output))
                for kernel, *numbers in rows:
                    print("{:24} {:28} {:7} {:9} {:5} {:7}".format(file, kernel, architecture, *numbers))
                failures += [f"{architecture}: {finding}" for finding in findings(file, rows, budgets)]
                failures += [f"{architecture}: {file}: {line}" for line in output.split("\n")
                             if re.search(r"warning|Performance Loss", line)]
        self.assertFalse(failures, "\n" + "\n".join(failures))


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    unittest.main()
