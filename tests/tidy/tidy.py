#!/usr/bin/env python3
"""The style guide as a test: the rules that a program can check, over every source file of the repository.

Usage: tidy.py ROOT

Prints `path:line: [rule] what is wrong` for every finding; the exit status is 0 if there is none. A rule that must give
way somewhere has its exemption, with the reason, in exemptions.py.
"""

import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import exemptions  # noqa: E402  (found beside this file)
from call_deadline import check_deadlines  # noqa: E402
from source_file import SourceFile  # noqa: E402

MAX_COLUMNS = 100
MAX_HEADER_LINES = 200
MAX_BODY_LINES = 500
MAX_FUNCTION_LINES = 70
MAX_PAIRS = 25
BANNED_WORDS = {"manager", "helper", "util", "utils", "common", "base", "handler", "data", "info", "fast", "new"}
CPP = (".h", ".cc", ".cu", ".cuh")
# Prose is not among them: it may speak of unfinished work.
TEXT = CPP + (".proto", ".py", ".sh", ".bzl")

# What a folder may include from; `kaon/v1/*.pb.h` belongs to proto.
FOLDERS = {
    "proto": {"proto"},
    "kernels": {"kernels"},
    "job": {"proto", "kernels", "job"},
    "client": {"proto", "kernels", "job", "client"},
    "server": {"proto", "kernels", "job", "client", "server"},
    "deploy": set(),
    "tests": {"proto", "kernels", "job", "client", "server", "tests"},
}
# The same inside server/: leaves, and the two programs that are built of them and never of each other.
SERVER_FOLDERS = {
    "tier": {"disk", "mutation", "tier"},
    "disk": {"disk"},
    "mutation": {"mutation"},
    "journal": {"disk", "journal", "mutation"},
    "checkpoint": {"disk", "checkpoint"},
    "auth": {"auth"},
    "config": {"config"},
    "monitor": {"config", "monitor"},
    "listener": {"auth", "listener", "monitor"},
    "process": {"auth", "config", "monitor", "process"},
    "admin_cli": {"disk", "checkpoint", "config", "monitor", "admin_cli", "preflight"},
    "preflight": {"config", "coordinator", "preflight", "shard"},
    "shard": {"tier", "disk", "journal", "checkpoint", "auth", "config", "listener", "monitor", "mutation", "process",
              "shard"},
    "coordinator": {"disk", "checkpoint", "auth", "config", "coordinator", "listener", "monitor", "mutation",
                    "process"},
}
# The state machines: everything that is not in their messages comes in as an argument.
PURE = re.compile(
    r"^(server/coordinator/machine/\w+|server/shard/agreement/\w+|server/shard/gradients/(chunk_check|gradient_\w+)"
    r"|client/worker_session|client/wire/job_conversion|job/\w+|proto/ballot)\.(h|cc)$"
)

# (rule, pattern, where it applies, what to use instead)
EVERYWHERE = re.compile(".")
# T9: whoever sets the machine's time moves no timer and no deadline. Certificates and logs are OpenSSL's and glog's.
CORE = re.compile("^(proto|kernels|job|client|server)/")
NOT_FOR_SLEEP = re.compile(r"^(server|tests)/")
BANNED_CODE = (
    ("mutex", r"\babsl::Mutex(Lock)?\b|\bstd::(mutex|lock_guard|unique_lock|scoped_lock|condition_variable)\b",
     EVERYWHERE, "kernels/mutex.h: Mutex, MutexLock, CondVar"),
    ("sleep", r"\b(SleepFor|sleep_for|sleep_until|usleep|nanosleep|sleep)\s*\(", NOT_FOR_SLEEP,
     "an injected clock, or a condition to wait for"),
    ("assert", r"(?<!static_)\bassert\s*\(", EVERYWHERE, "CHECK for our bugs, absl::Status for the world"),
    # Allowed where an owner takes it at once: the constructor is private, or the owner is a std::shared_ptr's.
    ("new", r"(?:\b(?:unique|shared)_ptr<[^;{}]*>\s*\w*\(\s*|\bWrapUnique\(\s*|\breset\(\s*)?\bnew\s+[\w:(]", EVERYWHERE,
     "std::make_unique or a container"),
    ("delete", r"(?<!=\s)(?<!=)\bdelete\b(\s*\[\s*\])?\s+[\w(*]", EVERYWHERE, "an owner that frees it"),
    ("throw", r"\bthrow\b", EVERYWHERE, "absl::Status"),
    ("random", r"\b(rand|srand|drand48)\s*\(", EVERYWHERE, "a generator with a seed"),
    ("using-namespace", r"\busing\s+namespace\b", EVERYWHERE, "the names that are used"),
    ("clock", r"\bsteady_clock::now\b|\bSteadyNow\b|\bstd::random_device\b", PURE,
     "the time and randomness that are passed in"),
    ("wall-clock", r"\b(system_clock|CLOCK_REALTIME|GPR_CLOCK_REALTIME|gettimeofday)\b|\babsl::(Now|GetCurrentTimeNanos)\b"
     r"|\bstd::time\s*\(|(?<![\w.>:])time\s*\(\s*(nullptr|NULL|0|&\w+)\s*\)", CORE,
     "kernels/steady_clock.h: SteadyNow; proto/grpc_deadline.h: DeadlineAfter"),
    ("thread", r"\bstd::(thread|async)\b", PURE, "nothing: state machines are single-threaded"),
    ("skipped-test", r"\bDISABLED_\w|\bGTEST_SKIP\b", re.compile("^tests/"), "a Bazel tag"),
)


def finding(file, line, rule, what):
    return file.path, line, rule, what


def words_of(name):
    """snake_case and CamelCase names as lower-case words."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return [word.lower() for word in re.split(r"[_\-.]", spaced) if word]


def folder_of(included):
    return "proto" if included.startswith("kaon/v1/") else included.split("/")[0]


def check_includes(file):
    folder = file.path.split("/")[0]
    if folder not in FOLDERS:
        return
    for line, included, quoted in file.includes():
        target = folder_of(included)
        if target in FOLDERS and target not in FOLDERS[folder]:
            yield finding(file, line, "include-folder", f"{folder}/ may not include {included}")
        parts, wanted = file.path.split("/"), included.split("/")
        if folder == "server" == wanted[0] and wanted[1] not in SERVER_FOLDERS.get(parts[1], set()):
            yield finding(file, line, "include-folder", f"server/{parts[1]} may not include {included}")
        is_rpc = included.startswith(("grpc", "google/protobuf", "kaon/v1/"))
        if folder == "kernels" and is_rpc:
            yield finding(file, line, "include-rpc", f"kernels/ knows no RPC or protobuf, includes {included}")
        if file.path.startswith("client/kaon/") and (is_rpc or (quoted and not included.startswith("kaon/"))
                                                     or included.startswith("absl/")):
            yield finding(file, line, "include-public", f"public headers use the standard library only, not {included}")
        if PURE.match(file.path) and included.startswith("grpc"):
            yield finding(file, line, "include-rpc", f"a state machine knows no gRPC, includes {included}")


def check_sizes(file):
    is_header = file.path.endswith((".h", ".cuh"))
    limit = MAX_HEADER_LINES if is_header else MAX_BODY_LINES
    if len(file.lines) > limit:
        yield finding(file, limit + 1, "file-length", f"{len(file.lines)} lines, at most {limit}: split at a noun")
    for first, last, head in file.functions():
        if last - first + 1 > MAX_FUNCTION_LINES:
            name = " ".join(head.split())[:60]
            yield finding(file, first, "function-length", f"{last - first + 1} lines, at most {MAX_FUNCTION_LINES}: {name}")


def check_columns(file):
    for number, text in enumerate(file.lines, 1):
        if len(text) > MAX_COLUMNS:
            yield finding(file, number, "columns", f"{len(text)} columns, at most {MAX_COLUMNS}")


def check_proto_comments(file):
    """What a .proto declares is read by people who have no code: each name has a comment of its own above it."""
    start = 0
    for match in re.finditer(r"[;{}]", file.code):
        statement = file.code[start:match.start()]
        first = start + len(statement) - len(statement.lstrip())
        start = match.end()
        head = statement.split()
        # A oneof is no name on the wire; its fields are.
        if not head or head[0] in ("syntax", "package", "import", "option", "reserved", "oneof"):
            continue
        line = file.line_of(first)
        opens_line = not file.code[file.code.rfind("\n", 0, first) + 1:first].strip()
        above = file.lines[line - 2].strip() if line > 1 else ""
        if not opens_line or not re.match(r"//.*\w", above):
            name = " ".join(statement.split("=")[0].split("(")[0].split())
            yield finding(file, line, "proto-comment", f"'{name}' has no comment above it: unit, range, errors")


def check_header(file):
    if not file.path.endswith((".h", ".cuh")):
        return
    opening = []
    for text in file.lines:
        if not text.startswith("//"):
            break
        opening.append(text[2:].strip())
    if len(" ".join(opening)) < 40:
        yield finding(file, 1, "opening", "a header opens with what it is, who owns it, which threads may call it")
    guard = "KAON_" + re.sub(r"[^A-Za-z0-9]", "_", file.path).upper() + "_"
    if f"#ifndef {guard}\n#define {guard}\n" not in file.text:
        yield finding(file, 1, "include-guard", f"the include guard is not {guard}")


def check_names(file):
    for word in words_of(os.path.splitext(os.path.basename(file.path))[0]):
        if word in BANNED_WORDS:
            yield finding(file, 1, "file-name", f"'{word}' says nothing: name the thing")
    declared = r"\b(?:class|struct|union|enum(?:\s+class)?)\s+(?:\[\[\w+\]\]\s*)?(\w+)|\busing\s+(\w+)\s*="
    for line, match in file.find(declared):
        name = match.group(1) or match.group(2)
        for word in words_of(name):
            if word in BANNED_WORDS:
                yield finding(file, line, "type-name", f"'{word}' in {name} says nothing: name the thing")


def check_code(file):
    for rule, pattern, where, instead in BANNED_CODE:
        if not where.search(file.path):
            continue
        for line, match in file.find(pattern):
            if rule == "new" and not match.group(0).startswith("new"):
                continue
            yield finding(file, line, rule, f"'{match.group(0).strip()}' is banned; use {instead}")
    for line, _ in file.find(r"\.IgnoreError\(\)"):
        if "//" not in file.lines[line - 1] and "//" not in file.lines[line - 2]:
            yield finding(file, line, "ignored-error", "a status is dropped without a comment that says why")


def check_markers(file):
    # Written in two parts so that this file passes its own rule.
    for number, text in enumerate(file.lines, 1):
        if re.search(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b", text):
            yield finding(file, number, "marker", "unfinished work belongs in the tracker, not in the code")


def check_tests_exist(files):
    """Every .cc of the product has its mirrored test; programs do not."""
    for path, file in files.items():
        if not path.endswith(".cc") or path.split("/")[0] not in ("proto", "kernels", "client", "server"):
            continue
        if re.search(r"\bint\s+main\s*\(", file.code):
            continue
        mirror = "tests/" + path[:-len(".cc")] + "_test.cc"
        if mirror not in files:
            yield finding(file, 1, "mirrored-test", f"{mirror} is missing")


def check_targets(files, builds):
    """Every C++ file is named in the BUILD file of its folder, or in that of a folder above."""
    for path, file in files.items():
        if not path.endswith(CPP):
            continue
        folder = os.path.dirname(path)
        while folder and folder not in builds:
            folder = os.path.dirname(folder)
        name = os.path.relpath(path, folder or ".")
        build = builds.get(folder, "")
        globbed = any(re.fullmatch(re.escape(glob).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*"), name)
                      for glob in re.findall(r'"([^"\n]*\*[^"\n]*)"', build))
        # BUILD files may form the name of a test from that of what it tests.
        stem = re.sub(r"_test$", "", os.path.splitext(name)[0])
        if f'"{name}"' not in build and f'"{stem}"' not in build and not globbed:
            yield finding(file, 1, "target", f"no target of {folder or '.'}/BUILD names {name}")


def check_folder_sizes(files):
    """A folder of more than MAX_PAIRS C++ files (a header and its body count as one) hides what it holds."""
    pairs = {}
    for path in files:
        if path.endswith(CPP):
            pairs.setdefault(os.path.dirname(path), set()).add(os.path.splitext(path)[0])
    for folder, stems in pairs.items():
        if len(stems) > MAX_PAIRS:
            yield folder, 1, "folder-size", f"{len(stems)} pairs of files, at most {MAX_PAIRS}: make a room of some"


def check_doors(files, builds):
    """A header among a library's srcs is private to its folder; tests may look inside."""
    private = {f"{folder}/{header}" for folder, build in builds.items()
               for sources in re.findall(r"\bsrcs = \[([^\]]*)\]", build)
               for header in re.findall(r'"([\w/]+\.h)"', sources)}
    for path, file in files.items():
        if not path.endswith(CPP) or path.startswith("tests/"):
            continue
        for line, included, _ in file.includes():
            if included in private and os.path.dirname(included) != os.path.dirname(path):
                yield finding(file, line, "door", f"{included} is private to its folder: include a header of its hdrs")


def read_tree(root):
    """(path -> SourceFile, folder -> text of its BUILD); hidden folders and build outputs are left out."""
    files, builds = {}, {}
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if not f.startswith((".", "bazel-", "__")))
        for name in sorted(names):
            full = os.path.join(folder, name)
            path = os.path.relpath(full, root).replace(os.sep, "/")
            if os.path.islink(full) or not (name.endswith(TEXT) or name == "BUILD"):
                continue
            with open(full, encoding="utf-8") as stream:
                text = stream.read()
            if name == "BUILD":
                builds[os.path.dirname(path)] = text
            else:
                files[path] = SourceFile(path, text)
    return files, builds


def check_tree(root, exempt=None, without_deadline=None):
    """Every finding of the tree that is not exempt, in order; and every exemption that no finding needs."""
    exempt = exemptions.EXEMPT if exempt is None else exempt
    without_deadline = exemptions.WITHOUT_DEADLINE if without_deadline is None else without_deadline
    files, builds = read_tree(root)
    findings = []
    for file in files.values():
        findings += check_markers(file)
        if file.path.endswith(CPP):
            for check in (check_includes, check_sizes, check_columns, check_header, check_names, check_code):
                findings += check(file)
        elif file.path.endswith(".proto"):
            for check in (check_names, check_columns, check_proto_comments):
                findings += check(file)
    findings += check_tests_exist(files)
    findings += check_targets(files, builds)
    findings += check_folder_sizes(files)
    findings += check_doors(files, builds)
    findings += check_deadlines(files, without_deadline)
    used = {(rule, path) for path, _, rule, _ in findings if (rule, path) in exempt}
    left = [f for f in findings if (f[2], f[0]) not in exempt]
    left += [(path, 1, "exemption", f"the exemption from {rule} is not needed") for rule, path in exempt
             if (rule, path) not in used]
    return sorted(left)


def main(arguments):
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    findings = check_tree(arguments[0])
    for path, line, rule, what in findings:
        print(f"{path}:{line}: [{rule}] {what}")
    print(f"{len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
