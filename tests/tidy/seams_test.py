#!/usr/bin/env python3
"""Every test that docs/seams.md names exists. Reads the real tree, not the copies that Bazel makes."""

import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))


def declared_tests(root):
    names = set()
    for folder, _, files in os.walk(os.path.join(root, "tests"), followlinks=True):
        for file in files:
            if not file.endswith((".cc", ".h")):
                continue
            with open(os.path.join(folder, file), encoding="utf-8") as source:
                for suite, name in re.findall(r"TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", source.read()):
                    names.add(f"{suite}.{name}")
    return names


def main():
    root = ROOT
    with open(os.path.join(root, "docs", "seams.md"), encoding="utf-8") as page:
        named = re.findall(r"`(\w+Test\.\w+)`", page.read())
    missing = sorted(set(named) - declared_tests(root))
    for name in missing:
        print(f"docs/seams.md names {name}, which no test declares")
    if len(named) < 10:
        print(f"docs/seams.md names only {len(named)} tests")
        return 1
    return 1 if missing else 0


sys.exit(main())
