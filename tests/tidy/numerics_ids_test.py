#!/usr/bin/env python3
"""docs/numerics.md has a line for every rule and edge case of the specification, and each line names tests that exist and say so.

Reads the real tree, not the copies that Bazel makes."""

import os
import re
import sys
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

# What waits for a part of Kaon that is not there yet; its line says which. Nothing else may be without a test.
LATER = {"edge 15", "edge 23", "edge 25", "edge 32", "edge 37"}

_ROW = re.compile(r"^\| (\[[A-Z]\d+b?\]|edge \d+|routing \d) \| (.+) \| (.+) \|$", re.MULTILINE)


def ids_of(specification):
    """Every id that the specification defines: [N5], routing 3, edge 12."""
    ids = [f"[{name}]" for name in re.findall(r"\*\*\[([A-Z]\d+b?)\]", specification)]
    _, routing, rest = re.split(r"^# 2\. ROUTING|^- Anchors", specification, maxsplit=2, flags=re.MULTILINE)
    ids += [f"routing {n}" for n in re.findall(r"(?:^|\s)([1-7])\. ", routing)]
    ids += [f"edge {n}" for n in re.findall(r"^(\d+)\. ", rest.split("# 4. EDGE CASES")[1], re.MULTILINE)]
    return ids


def mentioned_in(text):
    """The ids that a test says it shows: [N5], [L1]-[L6], [routing 3], edge 12, edge case 13, edges 14, 15 and 16."""
    ids = set(re.findall(r"\[[A-Z]\d+b?\]", text))
    for letter, first, last in re.findall(r"\[([A-Z])(\d+)\]-\[\1(\d+)\]", text):
        ids |= {f"[{letter}{n}]" for n in range(int(first), int(last) + 1)}
    ids |= {f"routing {n}" for n in re.findall(r"\[routing (\d)\]", text)}
    for listed in re.findall(r"\b[Ee]dges?(?: cases?)? (\d+(?:(?:, | and |, and )\d+)*)", text):
        ids |= {f"edge {n}" for n in re.findall(r"\d+", listed)}
    return ids


def claims_of(path, text):
    """What of a test file says which ids it shows: its lines from the first one of code on, without comments that no code follows.

    A mention in the file's opening comment, or above nothing, would outlive the test it speaks of."""
    comment = re.compile(r"^\s*#(?!include|define|if|endif)" if path.endswith((".py", ".sh")) else r"^\s*//")
    claims = []
    pending = []
    in_code = False
    for line in text.splitlines():
        if comment.match(line):
            pending.append(line)
            continue
        if line.strip() and not re.match(r"\s*(#include|#ifndef|#define|import |from |set -)", line):
            in_code = True
            claims += pending
        if in_code:
            claims.append(line)
        pending = []
    return "\n".join(claims)


def findings(specification, table, tests):
    """What is wrong, one line each. `tests` is path under tests/ -> text."""
    ids = ids_of(specification)
    rows = {match[0]: match[2] for match in _ROW.findall(table)}
    by_stem = {}
    for path, text in tests.items():
        by_stem.setdefault(os.path.splitext(path)[0], []).append(mentioned_in(claims_of(path, text)))
    for name in ids:
        if name not in rows:
            yield f"{name}: docs/numerics.md has no line for it"
            continue
        if rows[name].startswith("later: "):
            if name not in LATER:
                yield f"{name}: is put off, but is not in the list of what may be"
            continue
        if name in LATER:
            yield f"{name}: has tests, take it out of the list of what may be put off"
        named = re.findall(r"`([^`]+)`", rows[name])
        if not named:
            yield f"{name}: its line names no test"
        for stem in named:
            if stem not in by_stem:
                yield f"{name}: tests/{stem} does not exist"
            elif not any(name in mentioned for mentioned in by_stem[stem]):
                yield f"{name}: tests/{stem} does not mention it"
    for name in rows:
        if name not in ids:
            yield f"{name}: is not in the specification"


def read_tests(root):
    tests = {}
    for folder, folders, names in os.walk(os.path.join(root, "tests")):
        folders[:] = [f for f in folders if not f.startswith((".", "__")) and f != "corpus"]
        for name in names:
            if name.endswith((".cc", ".h", ".py", ".sh")):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as file:
                    tests[os.path.relpath(path, os.path.join(root, "tests")).replace(os.sep, "/")] = file.read()
    return tests


SPECIFICATION = """- **[N1] One.** **[T2b]** more
# 2. ROUTING (first match wins)
1. Explicit.
2. Rules. 3. frozen -> nothing.
- Anchors: none
# 4. EDGE CASES our tests must cover
1. Zero.
15. Straddling.
"""
TABLE = """| [N1] | x | `a/one_test` |
| [T2b] | x | `a/one_test` |
| routing 1 | x | `a/one_test` |
| routing 2 | x | `a/one_test` |
| routing 3 | x | `a/one_test` |
| edge 1 | x | `a/one_test` |
| edge 15 | x | later: no such matrices yet |
"""
TESTS = {"a/one_test.cc": "// [N1], [T2b] and [routing 1]; [routing 2] [routing 3]; edges 1, 7 and 8\nTEST(One, Test) {}\n"}
MENTIONS = "[L2]-[L4], [T2b]; [routing 6]; edge 5; Edge case 6; edges 1, 2 and 3, not 4; edge cases 8, and 9; ledge 7"


class NumericsIdsTest(unittest.TestCase):
    def found(self, table=TABLE, tests=None):
        return list(findings(SPECIFICATION, table, tests or TESTS))

    def test_finds_every_id_of_a_specification(self):
        self.assertEqual(ids_of(SPECIFICATION), ["[N1]", "[T2b]", "routing 1", "routing 2", "routing 3", "edge 1", "edge 15"])
        self.assertEqual(self.found(), [])

    def test_reads_what_tests_mention(self):
        self.assertEqual(mentioned_in(MENTIONS), {"[L2]", "[L3]", "[L4]", "[T2b]", "routing 6"} | {
            f"edge {n}" for n in (1, 2, 3, 5, 6, 8, 9)})

    def test_a_missing_line_is_found(self):
        self.assertEqual(self.found(TABLE.replace("| edge 1 |", "| edges 1 |")),
                         ["edge 1: docs/numerics.md has no line for it"])

    def test_a_test_that_does_not_exist_is_found(self):
        self.assertEqual(self.found(TABLE.replace("| [N1] | x | `a/one", "| [N1] | x | `a/two")),
                         ["[N1]: tests/a/two_test does not exist"])
        self.assertEqual(self.found(TABLE.replace("| [N1] | x | `a/one_test`", "| [N1] | x | none")),
                         ["[N1]: its line names no test"])

    def test_a_test_that_does_not_mention_its_id_is_found(self):
        self.assertEqual(self.found(tests={"a/one_test.cc": TESTS["a/one_test.cc"].replace("edges 1,", "edges 6,")}),
                         ["edge 1: tests/a/one_test does not mention it"])

    def test_a_comment_above_no_test_shows_nothing(self):
        comment = TESTS["a/one_test.cc"].splitlines()[0]
        everything = [f"{name}: tests/a/one_test does not mention it" for name in
                      ("[N1]", "[T2b]", "routing 1", "routing 2", "routing 3", "edge 1")]
        self.assertEqual(self.found(tests={"a/one_test.cc": comment + "\n#include <x>\nTEST(One, Test) {}\n"}), everything)
        self.assertEqual(self.found(tests={"a/one_test.cc": "TEST(One, Test) {}\n" + comment + "\n\n}\n"}), everything)

    def test_only_what_is_listed_may_be_put_off(self):
        self.assertEqual(self.found(TABLE.replace("| edge 1 | x | `a/one_test`", "| edge 1 | x | later: tired")),
                         ["edge 1: is put off, but is not in the list of what may be"])

    def test_an_id_that_was_never_specified_is_found(self):
        self.assertEqual(self.found(TABLE + "| edge 99 | x | `a/one_test` |\n"), ["edge 99: is not in the specification"])

    def test_the_real_table_is_complete(self):
        with open(os.path.join(ROOT, "docs/design/numerics.md"), encoding="utf-8") as file:
            specification = file.read()
        with open(os.path.join(ROOT, "docs/numerics.md"), encoding="utf-8") as file:
            table = file.read()
        ids = ids_of(specification)
        self.assertEqual(len(ids), len(set(ids)))
        self.assertGreater(len(ids), 110)
        problems = list(findings(specification, table, read_tests(ROOT)))
        self.assertEqual(problems, [], "\n" + "\n".join(problems))


if __name__ == "__main__":
    unittest.main()
