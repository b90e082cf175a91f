#!/usr/bin/env python3
"""The table of tests/gpu/run.sh: compares the figures of its sections with the floors of the project.

    report.py DIR                    reads DIR/*.jsonl and DIR/*.failed; writes DIR/results.jsonl and DIR/table.md, prints the table
    report.py DIR --write PAGE       also replaces the table of PAGE (docs/gpu-verification.md)
    report.py --empty --write PAGE   writes the table of a run that measured nothing

A section writes one JSON object per line: {"section", "name", "value", "unit"} is a figure, {"section", "name", "ok"} a
check, {"section", "name", "skipped"} a reason why there is neither. The line of section "facts" describes the machine.
The exit status is 1 if a check failed, a section failed or a ratio is below its floor.
"""

import argparse
import collections
import glob
import json
import os
import re
import sys

BEGIN = "<!-- results: begin -->"
END = "<!-- results: end -->"
NOT_MEASURED = "not measured"
NEVER = "Nothing in this table has run on a GPU yet.\n"

# A line of the table. `verdict` is ok, low, failed or not measured.
Line = collections.namedtuple("Line", "row measured floor ratio verdict")


class Results:
    """Everything that the sections wrote."""

    def __init__(self, entries, failed):
        self.entries = entries
        # Section -> the reason why it did not finish.
        self.failed = failed
        self.figures = {(e["section"], e["name"]): e for e in entries if "value" in e}

    def value(self, section, name):
        entry = self.figures.get((section, name))
        return entry["value"] if entry else None

    def checks(self, section, prefix=""):
        return [e for e in self.entries if e.get("section") == section and "ok" in e and e["name"].startswith(prefix)]

    def reason(self, section, prefix=""):
        """Why a section has no such line; empty if nothing says so. A reason without a name is that of all rows."""
        for entry in self.entries:
            if entry.get("section") == section and "skipped" in entry and (
                    not entry["name"] or entry["name"].startswith(prefix)):
                return entry["skipped"]
        return self.failed.get(section, "")

    def facts(self):
        return next((e for e in self.entries if e.get("section") == "facts"), {})


class Check:
    """A row that counts the checks of a section whose names begin with `prefix`."""

    def __init__(self, row, section, prefix=""):
        self.row, self.section, self.prefix = row, section, prefix

    def line(self, results):
        checks = results.checks(self.section, self.prefix)
        passed = sum(1 for check in checks if check["ok"])
        measured = f"{passed} of {len(checks)}" if checks else ""
        if self.section in results.failed or passed < len(checks):
            return Line(self.row, results.failed.get(self.section) or measured, "all", "", "failed")
        if not checks:
            return Line(self.row, results.reason(self.section, self.prefix), "all", "", NOT_MEASURED)
        return Line(self.row, measured, "all", "", "ok")


def ratio_text(ratio, passed):
    """Two digits; a third where two would hide that the ratio misses its floor."""
    return f"{ratio:.2f}" if passed else f"{ratio:.3f}"


class Fact:
    """A row that shows a figure or a word, without a floor."""

    def __init__(self, row, section, name):
        self.row, self.section, self.name = row, section, name

    def line(self, results):
        entry = results.figures.get((self.section, self.name))
        if entry is None:
            return Line(self.row, results.reason(self.section, self.name), "-", "", NOT_MEASURED)
        return Line(self.row, f"{text_of(entry['value'])} {entry.get('unit', '')}".strip(), "-", "", "ok")


class Ratio:
    """A row that compares one figure with a limit.

    `limits` are (section, name): the best of those that exist counts. Times compare as limit / figure, rates as figure
    / limit, so that more is always better. With `above`, less is better: figure / limit must not exceed the floor.
    """

    def __init__(self, row, figure, limits, floor, words, above=False):
        self.row, self.figure, self.limits, self.floor, self.words, self.above = row, figure, limits, floor, words, above

    def line(self, results):
        floor = f"{'<=' if self.above else '>='} {self.floor:.2f} x {self.words}"
        entry = results.figures.get(self.figure)
        limits = [limit for limit in (results.value(*key) for key in self.limits) if limit]
        if entry is None or not entry["value"]:
            reason = results.reason(*self.figure)
            return Line(self.row, reason, floor, "", "failed" if self.figure[0] in results.failed else NOT_MEASURED)
        measured = f"{text_of(entry['value'])} {entry['unit']}"
        if not limits:
            reasons = [results.reason(*key) for key in self.limits]
            reason = next((one for one in reasons if one), "no figure")
            return Line(self.row, f"{measured}; {self.words}: {reason}", floor, "", NOT_MEASURED)
        is_time = entry["unit"] in ("ms", "us", "s")
        limit = min(limits) if is_time else max(limits)
        ratio = limit / entry["value"] if is_time and not self.above else entry["value"] / limit
        passed = ratio <= self.floor if self.above else ratio >= self.floor
        return Line(self.row, measured, floor, ratio_text(ratio, passed), "ok" if passed else "low")


class Transfer:
    """Pushes or pulls of a GPU shard: 0.8 of the CPU shard's rate, or 0.7 of the PCIe limit where that is lower."""

    def __init__(self, row, name, bus):
        self.row, self.name, self.bus = row, name, bus

    def line(self, results):
        words = ">= 1.00 x min(0.8 of the CPU shard, 0.7 of PCIe)"
        own, cpu = results.value("cluster", self.name + "_gpu"), results.value("cluster", self.name + "_cpu")
        bus = results.value("bench", self.bus) or results.value("peers", self.bus)
        if not own or not cpu or not bus:
            reason = results.reason("cluster", self.name)
            return Line(self.row, reason, words, "", "failed" if "cluster" in results.failed else NOT_MEASURED)
        ratio = own / min(0.8 * cpu, 0.7 * bus)
        measured = f"{text_of(own)} GB/s (CPU shard {text_of(cpu)}, PCIe {text_of(bus)})"
        return Line(self.row, measured, words, ratio_text(ratio, ratio >= 1), "ok" if ratio >= 1 else "low")


def of_copy(row, name, floor):
    return Ratio(row, ("bench", name), [("bench", "copy")], floor, "copy")


def of_torch(row, name, peers, floor, words):
    return Ratio(row, ("bench", name), [("peers", peer) for peer in peers], floor, words)


def best_of_torch(shape):
    return [f"ns_eager_{shape}", f"ns_compile_{shape}"]


def of_torch_muon(row, name, peer, floor):
    return of_torch(row, name, [f"muon_torch_{peer}"], floor, "torch.optim.Muon")


TRAINERS = {"torch": "fused AdamW and Muon of torch", "kaon_cpu": "Kaon with 2 shards on the CPUs",
            "kaon_gpu": "Kaon with 2 shards on the GPU", "kaon_nccl": "Kaon over NCCL with 1 shard on the GPU"}

ROWS = [
    Fact("cuBLASLt algorithms that fill one triangle (UPLO_SUPPORT)", "probe", "uplo_support"),
    Check("twins of the instructions against silicon", "twins"),
    Check("CUDA backend against the CPU backend", "conformance", "backend"),
    Check("kaonctl verify-numerics on cuda", "conformance", "numerics"),
    Check("products against fp64", "products"),
    Check("one digest in 20 repeats", "determinism"),
    Check("compute-sanitizer memcheck", "sanitizer", "memcheck"),
    Check("compute-sanitizer racecheck", "sanitizer", "racecheck"),
    Fact("device copy", "bench", "copy"),
    Fact("cuBLASLt bf16 8192^3", "bench", "gemm_8192"),
    Fact("torch bf16 8192^3", "peers", "gemm_8192"),
    of_copy("AdamW fp32 256 Mi", "adamw", 0.90),
    Fact("AdamW, int8 exp_avg, root uint8 exp_avg_sq, 256 Mi", "bench", "adamw_compact"),
    of_copy("SGD fp32 256 Mi", "sgd", 0.90),
    of_copy("Lion fp32 256 Mi", "lion", 0.90),
    of_torch("AdamW fp32 256 Mi", "adamw_ms", ["adamw_fused"], 1.15, "torch AdamW fused"),
    of_copy("fold bf16 -> fp32", "fold", 0.85),
    of_copy("mean + norm + digest", "mean_kernel", 0.85),
    Fact("mean + norm + digest, with the host's sum", "bench", "mean"),
    Ratio("NS5 4096^2", ("bench", "ns_4096x4096"), [("bench", "ns_dense_4096x4096")], 1.25, "own dense form"),
    Ratio("NS5 8192^2", ("bench", "ns_8192x8192"), [("bench", "ns_dense_8192x8192")], 1.40, "own dense form"),
    of_torch("NS5 4096^2", "ns_4096x4096", best_of_torch("4096x4096"), 1.50, "best of torch"),
    of_torch("NS5 8192^2", "ns_8192x8192", best_of_torch("8192x8192"), 1.50, "best of torch"),
    of_torch_muon("Muon 4096^2", "muon_4096x4096", "4096x4096", 1.50),
    of_torch_muon("Muon 8192^2", "muon_8192x8192", "8192x8192", 1.50),
    of_torch_muon("Muon 4096x14336 Gram", "muon_gram_4096x14336", "4096x14336", 1.50),
    Ratio("NS5 4096x14336 Gram", ("bench", "ns_gram_4096x14336"), [("bench", "ns_dense_4096x14336")], 1.90,
          "own dense form"),
    of_torch("NS5 64 x 256^2", "ns_64x256x256", ["ns_eager_64x256x256"], 5.0, "torch eager"),
    of_torch("NS5 64 x 256^2", "ns_64x256x256", ["ns_batched_64x256x256"], 1.5, "torch batched"),
    of_torch_muon("Muon 64 x 256^2", "muon_64x256x256", "64x256x256", 5.0),
    of_torch("NS5 126 small matrices", "ns_126", ["ns_eager_126"], 5.0, "torch eager"),
    of_torch("NS5 126 small matrices", "ns_126", ["ns_batched_126"], 1.5, "torch batched"),
    of_torch_muon("Muon 126 small matrices", "muon_126", "126", 5.0),
    Ratio("step of a 1 G parameter half-Muon job", ("bench", "step_1g"), [("bench", "step_1g_kernels")], 1.15,
          "sum of its kernels", above=True),
    Check("training with 2 shards on the GPU: one digest in two runs", "cluster", "repeated"),
    Check("both GPU shards killed after step 3: the same digest", "cluster", "killed"),
    Check("host tensors, Newton-Schulz on the GPU: digest of GPU tensors", "cluster", "host_memory"),
    Check("tensors in a file, Newton-Schulz on the GPU: digest of GPU tensors", "cluster", "nvme"),
    Check("AdamW on 2 GPU shards: digest of the CPU", "cluster", "adamw"),
    Check("gradients over NCCL, 3 processes on one card: digest of gRPC", "cluster", "nccl"),
    Check("a worker killed while it sends over NCCL: the same digest", "cluster", "nccl_killed"),
    Transfer("pushes to a GPU shard, shared memory", "push", "transfer_h2d"),
    Transfer("pulls from a GPU shard, shared memory", "pull", "transfer_d2h"),
    *(Fact(f"GPT of 124.6 M parameters on the GPU, {words}{what}", "trainer", f"{figure}_{trainer}")
      for figure, words in (("rate", ""), ("loss", "loss, "), ("peak", "peak GPU memory of the trainer, "))
      for trainer, what in TRAINERS.items()),
    Check("the losses of this GPT through Kaon: within 1 % of torch's", "trainer", "losses"),
    Check("kaon.Optimizer sends CUDA tensors over NCCL", "trainer", "over_nccl"),
]


def text_of(value):
    return value if isinstance(value, str) else f"{value:.4g}"


def read(directory):
    entries, failed = [], {}
    for path in sorted(glob.glob(os.path.join(directory, "*.jsonl"))):
        if os.path.basename(path) == "results.jsonl":
            continue
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    entry = json.loads(line)
                except ValueError:
                    # The last line of a section that its time limit cut.
                    continue
                if isinstance(entry, dict) and "section" in entry:
                    entries.append(entry)
    for path in glob.glob(os.path.join(directory, "*.failed")):
        with open(path, encoding="utf-8") as file:
            failed[os.path.basename(path)[:-len(".failed")]] = file.read().strip()
    return Results(entries, failed)


def failures(results):
    """One line for each failed check and section."""
    lines = [f"{e['section']}: {e['name']}: {e.get('detail', 'failed')}"
             for e in results.entries if e.get("ok") is False]
    return lines + [f"{section}: {reason}" for section, reason in sorted(results.failed.items())]


def markdown(lines, facts):
    text = ""
    if facts:
        text += "; ".join(f"{name} {facts[name]}" for name in sorted(facts) if name not in ("section", "name")) + "\n\n"
    text += "| row | measured | floor | ratio | verdict |\n|---|---|---|---|---|\n"
    for line in lines:
        text += "| " + " | ".join(cell.replace("|", "/").replace("\n", " ") or "-" for cell in line) + " |\n"
    return text


def aligned(lines):
    lines = [Line("row", "measured", "floor", "ratio", "verdict")] + lines
    widths = [min(60, max(len(line[i]) for line in lines)) for i in range(5)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)


def replace_table(page, card, table):
    """Puts the table in the place of the card's last one; without a card, in the place of all."""
    with open(page, encoding="utf-8") as file:
        before, begin, rest = file.read().partition(BEGIN)
    old, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"report.py: {page} has no lines {BEGIN} and {END}")
    _, *parts = re.split(r"^### (.*)\n", old, flags=re.MULTILINE)
    tables = dict(zip(parts[::2], (text.strip("\n") for text in parts[1::2])))
    tables[card] = table.strip("\n")
    text = "".join(f"### {card}\n\n{table}\n\n" for card, table in tables.items()) if card else table + "\n"
    with open(page, "w", encoding="utf-8") as file:
        file.write(f"{before}{begin}\n{text.strip()}\n{end}{after}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", metavar="DIR")
    parser.add_argument("--write", metavar="PAGE")
    parser.add_argument("--empty", action="store_true", help="a table without any figure")
    args = parser.parse_args()
    if args.empty == bool(args.directory):
        parser.error("give either DIR or --empty")
    results = Results([], {}) if args.empty else read(args.directory)
    lines = [row.line(results) for row in ROWS]
    table = markdown(lines, results.facts())
    if args.write and results.facts().get("smoke"):
        sys.exit("report.py: these figures are of --cpu-smoke; they mean nothing")
    if args.write:
        replace_table(args.write, results.facts().get("card"), NEVER + "\n" + table if args.empty else table)
    if args.empty:
        return 0
    with open(os.path.join(args.directory, "table.md"), "w", encoding="utf-8") as file:
        file.write(table)
    with open(os.path.join(args.directory, "results.jsonl"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps(entry) + "\n" for entry in results.entries)
    print(aligned(lines))
    for line in failures(results):
        print("failed: " + line)
    return 1 if any(line.verdict in ("low", "failed") for line in lines) or failures(results) else 0


if __name__ == "__main__":
    sys.exit(main())
