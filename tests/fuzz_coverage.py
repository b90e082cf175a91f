#!/usr/bin/env python3
"""T12: how many of its lines each parser of bytes runs over the saved corpus of its fuzz target.

    tests/fuzz_coverage.py [--config NAME] [TARGET]...

Builds the targets of tests/fuzz as they are fuzzed (--config=fuzz), runs each once over each file of its corpus - nothing
is changed or drawn - and prints one line for each source of a parser; of files that also write, the functions that read.
The last line is `N of M parsers reach 90 % of their lines`. Exit status: 0 if all do.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile

LIMIT = 0.90
# (target, source, functions that are left out: they write, or are reached by no bytes).
PARSERS = (
    ("decode_push", "proto/tensor_stream.cc", "WireSizeOf|EncodeChunkHeader|AppendVarint|VerifyChecksum|Crc32c"),
    ("parse_identity", "proto/identity.cc", ""),
    ("read_journal", "server/journal/frame.cc", "EncodeFrameHeader|DescribePayload|FramePadding|3Put"),
    ("read_journal", "server/journal/entry_codec.cc", "6Encode|EncodeEntry|DescribeGradient|BytesOf"),
    ("read_journal", "server/journal/segment_reader.cc", ""),
    ("read_journal", "server/journal/log_reader.cc", ""),
    ("private_files", "server/journal/journal_start.cc", "WriteStart"),
    ("private_files", "server/journal/durable_mark.cc", "DurableMarkFile5Write|DurableMarkFile4Open"),
    ("private_files", "server/journal/identity_file.cc", "WriteIdentity"),
    ("private_files", "server/journal/incarnation_marker.cc", "IncarnationMarker5Write|SyncDirectory|8Describe"),
    ("safetensors_header", "server/checkpoint/safetensors/safetensors_header.cc", "LayOut"),
    ("safetensors_header", "server/checkpoint/safetensors/safetensors_json.cc", ""),
    ("manifest", "server/checkpoint/manifest_file.cc", "FormatManifest"),
    ("manifest", "server/checkpoint/manifest.cc",
     "BuildManifest|CheckParts|AddFiles|OrderOf|RestoredDigest|SumsOf|SetSums"),
    ("snapshot_meta", "server/shard/snapshot/snapshot_file.cc", ""),
    ("config_file", "server/config/server_config.cc",
     "IsSwitch|Resolve|ParseNumber|SetField|FlagName|EnvironmentName|4Fail|ParseCommandLine"),
    ("pull_chunks", "client/transport/pull_assembler.cc", ""),
    ("shm_ring", "proto/shm_ring.cc", ""),
)


def bazel(*arguments):
    cache = subprocess.run(["deploy/disk_cache.sh"], stdout=subprocess.PIPE, check=True).stdout.decode("utf-8").strip()
    options = ["--noshow_progress", "--ui_event_filters=-info", f"--disk_cache={cache}"]
    if arguments[0] == "query":
        options = ["--noshow_progress"]
    done = subprocess.run(["bazel", arguments[0], *options, *arguments[1:]], stdout=subprocess.PIPE, check=True)
    return done.stdout.decode("utf-8").split()


def corpus_of(target):
    labels = bazel("query", f"labels(data, //tests/fuzz:{target}_test)")
    return [label[2:].replace(":", "/") for label in labels]


def run(target, corpus, folder):
    """The lcov trace of the target over its corpus."""
    binary = f".bazel/bin/tests/fuzz/{target}_fuzz"
    raw, merged = os.path.join(folder, target + ".profraw"), os.path.join(folder, target + ".profdata")
    done = subprocess.run([binary, *corpus], env={**os.environ, "LLVM_PROFILE_FILE": raw}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        sys.exit(f"{target}: status {done.returncode}: {done.stdout.decode('utf-8', 'replace')[-2000:]}")
    subprocess.run(["llvm-profdata-14", "merge", "-o", merged, raw], check=True)
    exported = subprocess.run(["llvm-cov-14", "export", "-format=lcov", f"-instr-profile={merged}", binary],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if exported.returncode != 0:
        sys.exit(f"{target}: {exported.stderr.decode('utf-8', 'replace')}")
    return exported.stdout.decode("utf-8").splitlines()


def read_lines(trace, source):
    """[(line, runs)] and [(first line, name)] of one source."""
    inside = False
    lines, functions = {}, set()
    for entry in trace:
        if entry.startswith("SF:"):
            inside = entry.endswith("/" + source)
        elif inside and entry.startswith("FN:"):
            line, name = entry[3:].split(",", 1)
            functions.add((int(line), name))
        elif inside and entry.startswith("DA:"):
            line, runs = entry[3:].split(",")[:2]
            lines[int(line)] = int(runs)
    return sorted(lines.items()), sorted(functions)


def measure(trace, source, left_out):
    """(lines, lines that ran, those that did not)."""
    lines, functions = read_lines(trace, source)
    missed, total = [], 0
    for line, runs in lines:
        names = [name for first, name in functions if first <= line]
        if left_out and names and re.search(left_out, names[-1]):
            continue
        total += 1
        if runs == 0:
            missed.append(line)
    return total, total - len(missed), missed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--config", default="fuzz", help="Bazel configuration to build with")
    parser.add_argument("--missed", action="store_true", help="also print the lines that did not run")
    parser.add_argument("targets", nargs="*")
    options = parser.parse_args()
    os.chdir(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parsers = [one for one in PARSERS if not options.targets or one[0] in options.targets]
    targets = sorted({target for target, _, _ in parsers})
    bazel("build", f"--config={options.config}", *(f"//tests/fuzz:{target}_fuzz" for target in targets))
    traces = {}
    print("| target | parser | corpus files | lines | run | share |\n|---|---|---|---|---|---|")
    good = 0
    with tempfile.TemporaryDirectory(prefix="kaon-coverage.") as folder:
        corpora = {target: corpus_of(target) for target in targets}
        for target in targets:
            traces[target] = run(target, corpora[target], folder)
        for target, source, left_out in parsers:
            total, ran, missed = measure(traces[target], source, left_out)
            if total == 0:
                sys.exit(f"{target}: no line of {source} is in the trace")
            print(f"| {target} | {source} | {len(corpora[target])} | {total} | {ran} | {100 * ran / total:.1f} % |")
            if options.missed:
                print(f"  not run: {', '.join(map(str, missed))}")
            good += ran >= LIMIT * total
    print(f"{good} of {len(parsers)} parsers reach {100 * LIMIT:.0f} % of their lines")
    return 0 if good == len(parsers) else 1


if __name__ == "__main__":
    sys.exit(main())
