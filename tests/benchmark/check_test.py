#!/usr/bin/env python3
"""tests/benchmark/check.py and ratio_table.py on small tables."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import check  # noqa: E402  (found in the folder of this file)
import ratio_table  # noqa: E402

EPYC = "AMD EPYC (family 26 model 2), 2 CPUs"
XEON = "Intel Xeon (family 6 model 207), 2 CPUs, AMX"
SETTINGS = "256 MiB, 1 workers"
DOCUMENT = f"""# Benchmarks
| {EPYC} | 2026-11-25 | abc1234 | `outside` | of the markers | 1.00 | - |
{ratio_table.BEGIN}
{ratio_table.HEAD}| {EPYC} | 2026-11-25 | abc1234 | `push` | {SETTINGS} | 0.80 | 0.70 |
| {EPYC} | 2026-11-25 | abc1234 | `pull` | {SETTINGS} | 0.50 | 0.80 |
| {EPYC} | 2026-11-25 | abc1234 | `muon_step` | 64x64 | 1.25 | 0.50 |
| {XEON} | 2026-11-25 | abc1234 | `muon_step` | 64x64 | 0.90 | 0.50 |
{ratio_table.END}
after
"""
CPUINFO = ("processor\t: 0\ncpu family\t: 6\nmodel\t\t: 207\nmodel name\t: Intel(R) Xeon(R) Processor @ 2.7GHz\n"
           "flags\t\t: fpu avx512_bf16 amx_bf16 amx_tile\nprocessor\t: 1\n")


def transfers(document=DOCUMENT):
    return {row: entry for row, entry in ratio_table.read_for(document, EPYC).items() if row[1] == SETTINGS}


def measured(**ratios):
    return {(name, SETTINGS): ratio for name, ratio in ratios.items()}


class CheckTest(unittest.TestCase):
    def test_a_ratio_may_be_a_tenth_lower(self):
        self.assertEqual(check.compare(transfers(), measured(push=0.73, pull=0.46)), {})

    def test_names_what_is_slower_with_both_ratios(self):
        self.assertEqual(check.compare(transfers(), measured(push=0.75, pull=0.44)),
                         {("pull", SETTINGS): "ratio 0.44, in docs/benchmarks.md it is 0.50"})

    def test_a_floor_that_is_reached_stays_reached(self):
        table = transfers(DOCUMENT.replace("| 0.70 |", "| 0.78 |"))
        self.assertEqual(check.compare(table, measured(push=0.75, pull=0.46)), {})
        self.assertEqual(check.compare(table, measured(push=0.74, pull=0.46)),
                         {("push", SETTINGS): "ratio 0.74, below its floor of 0.78"})

    def test_names_what_was_not_measured(self):
        self.assertEqual(check.compare(transfers(), measured(push=0.8)), {("pull", SETTINGS): "not measured"})

    def test_a_benchmark_that_runs_by_name_only_may_be_missing(self):
        torch = transfers(DOCUMENT.replace("`pull`", "`step_vs_torch`"))
        self.assertEqual(list(check.guarded(torch, measured(push=0.8))), [("push", SETTINGS)])
        self.assertEqual(check.guarded(torch, measured(step_vs_torch=0.2)), torch)

    def test_names_what_is_in_no_row_but_for_the_processors_share(self):
        self.assertEqual(check.unlisted(transfers(), measured(push=0.8, push_cpu=0.5, step_push=0.4, push_shm=0.6)),
                         [f"push_shm, {SETTINGS}: in no row of the table"])

    def test_says_that_a_row_that_falls_short_is_of_another_processor(self):
        table = transfers()
        problems = check.compare(table, measured(push=0.1, pull=0.1))
        self.assertEqual(check.other_machines(table, problems, XEON),
                         [f"the table is of {EPYC}, this machine is {XEON}: what is short here need not have become slower"])
        self.assertEqual(check.other_machines(table, problems, EPYC), [])
        self.assertEqual(check.other_machines(table, {}, XEON), [])

    def test_of_three_runs_each_row_s_median_counts(self):
        runs = [measured(push=0.8, pull=0.3), measured(push=0.6, pull=0.5), measured(push=0.8, pull=0.45)]
        self.assertEqual(check.compare(transfers(), check.middle(runs)), {})
        self.assertEqual(check.middle(runs[:2]), measured(push=0.6, pull=0.3))

    def test_names_the_files_with_a_row_that_falls_short(self):
        runs = {"1/pushes": measured(push=0.6), "1/pulls": measured(pull=0.5)}
        self.assertEqual(check.short(transfers(), runs), ["1/pushes"])
        runs["2/pushes"] = runs["3/pushes"] = measured(push=0.8)
        self.assertEqual(check.short(transfers(), runs), [])


class RatioTableTest(unittest.TestCase):
    def test_reads_only_what_is_between_the_markers(self):
        self.assertEqual(len(ratio_table.read(DOCUMENT)), 4)

    def test_muon_is_compared_with_what_the_machine_has(self):
        for machine, ratio in ((EPYC, 1.25), (XEON, 0.90)):
            table = ratio_table.read_for(DOCUMENT, machine)
            self.assertEqual(table["muon_step", "64x64"].ratio, ratio)
            self.assertEqual(len(table), 3)

    def test_names_a_processor(self):
        self.assertEqual(ratio_table.machine_of(CPUINFO), XEON)
        self.assertEqual(ratio_table.machine_of("CPU implementer : 0x41\n"), "unknown (family unknown model unknown), 0 CPUs")

    def test_writes_what_was_measured_and_keeps_the_rest(self):
        entries = [{"name": name, "settings": settings, "ratio": ratio} for name, settings, ratio in (
            ("push", SETTINGS, 0.912), ("push_cpu", SETTINGS, 0.4), ("muon_step", "64x64", 0.95), ("new", "small", 2))]
        document = ratio_table.updated(DOCUMENT, entries, XEON, "2027-01-02", "def5678")
        rows = DOCUMENT.splitlines(keepends=True)
        rows[5] = f"| {XEON} | 2027-01-02 | def5678 | `push` | {SETTINGS} | 0.91 | 0.70 |\n"
        rows[8] = f"| {XEON} | 2027-01-02 | def5678 | `muon_step` | 64x64 | 0.95 | 0.50 |\n"
        rows.insert(9, f"| {XEON} | 2027-01-02 | def5678 | `new` | small | 2.00 | - |\n")
        self.assertEqual(document, "".join(rows))
        self.assertEqual(ratio_table.updated(document, [], EPYC, "2027-01-03", "0000000"), document)
        with self.assertRaises(ValueError):
            ratio_table.updated("no table", entries, XEON, "2027-01-02", "def5678")

    def test_the_table_has_rows_of_both_kinds_of_machine(self):
        path = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../docs/benchmarks.md")
        with open(path, encoding="utf-8") as file:
            document = file.read()
        for machine in (EPYC, XEON):
            names = {name for name, _ in ratio_table.read_for(document, machine)}
            self.assertLessEqual({"adamw_step", "push", "step_e2e", "muon_step", "muon_error"}, names)


if __name__ == "__main__":
    unittest.main()
