#!/usr/bin/env python3
"""tests/benchmark/check.py on small tables."""

import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import check  # noqa: E402  (found beside this file)

TABLE = """
## Ratios
| benchmark | settings | ratio | floor | to |
|---|---|---|---|---|
| `push` | 256 MiB, 1 workers | 0.80 | 0.70 | raw TCP |
| `pull` | 256 MiB, 1 workers | 0.50 | 0.80 | raw TCP |
"""


def measured(**ratios):
    rows = [{"name": name, "settings": "256 MiB, 1 workers", "ratio": ratio} for name, ratio in ratios.items()]
    return check.read_measured("\n".join(json.dumps(row) for row in rows))


class CheckTest(unittest.TestCase):
    def test_a_ratio_may_be_a_tenth_lower(self):
        self.assertEqual(check.compare(check.read_table(TABLE), measured(push=0.73, pull=0.46)), [])

    def test_names_what_is_slower_with_both_ratios(self):
        self.assertEqual(check.compare(check.read_table(TABLE), measured(push=0.75, pull=0.44)),
                         ["pull, 256 MiB, 1 workers: ratio 0.44, in docs/benchmarks.md it is 0.50"])

    def test_a_floor_that_is_reached_stays_reached(self):
        table = check.read_table(TABLE.replace("| 0.70 |", "| 0.78 |"))
        self.assertEqual(check.compare(table, measured(push=0.75, pull=0.46)), [])
        self.assertEqual(check.compare(table, measured(push=0.74, pull=0.46)),
                         ["push, 256 MiB, 1 workers: ratio 0.74, below its floor of 0.78"])

    def test_names_what_was_not_measured(self):
        self.assertEqual(check.compare(check.read_table(TABLE), measured(push=0.8)), ["pull, 256 MiB, 1 workers: not measured"])

    def test_names_what_is_in_no_row_but_for_the_processors_share(self):
        table = check.read_table(TABLE)
        self.assertEqual(check.unlisted(table, measured(push=0.8, push_cpu=0.5, step_push=0.4, push_shm=0.6)),
                         ["push_shm, 256 MiB, 1 workers: in no row of the table"])

    def test_the_headline_and_other_sections_are_no_rows(self):
        self.assertEqual(len(check.read_table(TABLE + "## Memory\n| `adamw` | 6 | 417.7 | 343.8 | 448.6 |\n")), 2)

    def test_muon_is_compared_with_what_the_machine_has(self):
        table = TABLE + "".join(f"{title}\n| `muon_step` | 64x64 | {ratio} | 0.50 | peak |\n"
                                for title, ratio in ((check.WITH_TILES, "0.90"), (check.WITHOUT_TILES, "1.25")))
        for limit_name, ratio in (("tiles fed from the first cache", 0.9), ("library's product X X^T", 1.25)):
            other = check.other_subsection(json.dumps({"limit_name": limit_name}) + "\n")
            self.assertEqual(check.read_table(table, other)["muon_step", "64x64"], (ratio, 0.5))

    def test_says_that_the_table_is_of_another_processor(self):
        table = "## Ratios\nMachine: 2 virtual CPUs (family 26 model 2: bf16 products), idle\n"
        processor = "vendor_id : AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n"
        self.assertEqual(check.other_machine(table, processor),
                         ["the table is of family 26 model 2, this machine is family 25 model 17: "
                          "what is short here need not have become slower"])
        self.assertEqual(check.other_machine(table, processor.replace("25", "26").replace("17", "2")), [])
        # Other architectures have no such lines.
        self.assertEqual(check.other_machine(table, "CPU implementer : 0x41\n"), [])
        self.assertEqual(check.other_machine("## Ratios\n", processor), [])

    def test_of_three_runs_each_row_s_middle_one_counts(self):
        runs = [measured(push=0.8, pull=0.3), measured(push=0.6, pull=0.5), measured(push=0.8, pull=0.45)]
        self.assertEqual(check.compare(check.read_table(TABLE), check.middle(runs)), [])
        self.assertEqual(check.middle(runs[:2]), measured(push=0.6, pull=0.3))

    def test_names_the_files_with_a_row_that_falls_short(self):
        table = check.read_table(TABLE)
        runs = {"1/pushes": measured(push=0.6), "1/pulls": measured(pull=0.5)}
        self.assertEqual(check.short(table, runs), ["1/pushes"])
        runs["2/pushes"] = runs["3/pushes"] = measured(push=0.8)
        self.assertEqual(check.short(table, runs), [])

    def test_the_table_has_rows_of_both_kinds_of_machine(self):
        path = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../docs/benchmarks.md")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for other in (check.WITH_TILES, check.WITHOUT_TILES):
            names = {name for name, _ in check.read_table(text, other)}
            self.assertLessEqual({"adamw_step", "push", "step_e2e", "muon_step", "muon_error"}, names)
        # And says of which processor it is.
        self.assertEqual(len(check.other_machine(text, "cpu family : 1\nmodel : 1\n")), 1)


if __name__ == "__main__":
    unittest.main()
