#!/usr/bin/env python3
"""Tests of the tidy rules: a small tree that passes, and one change to it for each rule that must then be found."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import tidy  # noqa: E402  (found beside this file)

OPENING = "// A thing of the tests. Owned by whoever makes it; any thread may read it.\n"


def header(path, body="", opening=OPENING):
    guard = "KAON_" + path.upper().replace("/", "_").replace(".", "_") + "_"
    return f"{opening}#ifndef {guard}\n#define {guard}\n\n{body}\n\n#endif  // {guard}\n"


GOOD = {
    "kernels/norm.h": header("kernels/norm.h", "namespace kaon { class GradNorm {}; }"),
    "kernels/norm.cc": '#include "kernels/norm.h"\n\nint Two() { return 2; }\n',
    "kernels/BUILD": 'srcs = ["norm.cc"], hdrs = ["norm.h"]\n',
    "client/session.cc": '#include "kernels/norm.h"\n#include "kaon/v1/step.pb.h"\n',
    "client/BUILD": 'srcs = glob(["*.cc"])\n',
    "server/shard/loop.cc": '#include "server/tier/store.h"\n#include "client/session.h"\n',
    "server/shard/BUILD": 'srcs = ["loop.cc"]\n',
    "server/shard/shard_main.cc": "int main() { return 0; }\n",
    "tests/kernels/norm_test.cc": '#include "kernels/norm.h"\n',
    "tests/kernels/BUILD": 'srcs = ["norm_test.cc"]\n',
    "tests/client/session_test.cc": "",
    "tests/client/BUILD": '[cc_test(name = n + "_test", srcs = [n + "_test.cc"]) for n in ["session"]]\n',
    "tests/server/shard/loop_test.cc": "",
    "tests/server/shard/BUILD": 'srcs = ["loop_test.cc"]\n',
}
GOOD["server/shard/BUILD"] += 'srcs = ["shard_main.cc"]\n'


class TidyTest(unittest.TestCase):
    def check(self, change=None, exempt=None, without_deadline=None):
        """The rules that are broken by the good tree with `change` (path -> text, None = absent)."""
        tree = {**GOOD, **(change or {})}
        with tempfile.TemporaryDirectory() as root:
            for path, text in tree.items():
                if text is None:
                    continue
                os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            return [(rule, path) for path, _, rule, _ in tidy.check_tree(root, exempt or {}, without_deadline or {})]

    def finds(self, rule, path, text):
        found = self.check({path: text})
        self.assertIn((rule, path), found)
        self.assertEqual({r for r, _ in found} - {"target", "mirrored-test"}, {rule} - {"target", "mirrored-test"})

    def passes(self, path, text):
        self.assertEqual(self.check({path: text}), [])

    def test_a_folder_with_too_many_files(self):
        names = [f"rule_{i}" for i in range(tidy.MAX_PAIRS)]
        full = {f"kernels/rules/{name}.h": header(f"kernels/rules/{name}.h") for name in names}
        full["kernels/rules/BUILD"] = 'hdrs = glob(["*.h"])\n'
        self.assertEqual(self.check(full), [])
        full["kernels/rules/one_more.h"] = header("kernels/rules/one_more.h")
        self.assertEqual(self.check(full), [("folder-size", "kernels/rules")])

    def test_a_private_header_from_outside_its_folder(self):
        inside = {
            "server/tier/file.h": header("server/tier/file.h"),
            "server/tier/store.h": header("server/tier/store.h", '#include "server/tier/file.h"'),
            "server/tier/BUILD": 'srcs = ["file.h"],\nhdrs = ["store.h"]\n',
            "tests/server/shard/loop_test.cc": '#include "server/tier/file.h"\n',
        }
        self.assertEqual(self.check(inside), [])
        inside["server/shard/loop.cc"] = '#include "server/tier/file.h"\n'
        self.assertEqual(self.check(inside), [("door", "server/shard/loop.cc")])

    def test_the_good_tree_passes(self):
        self.assertEqual(self.check(), [])

    def test_folders_include_only_leftwards(self):
        self.finds("include-folder", "kernels/norm.cc", '#include "client/session.h"\n')
        self.finds("include-folder", "client/session.cc", '#include "server/shard/loop.h"\n')
        self.finds("include-folder", "server/shard/loop.cc", '#include "server/coordinator/machine/election.h"\n')
        self.finds("include-folder", "server/shard/loop.cc", '#include "tests/testing/fake.h"\n')

    def test_kernels_know_no_rpc(self):
        self.finds("include-rpc", "kernels/norm.cc", "#include <grpcpp/server.h>\n")
        self.finds("include-rpc", "kernels/norm.cc", "#include <google/protobuf/message.h>\n")

    def test_state_machines_know_no_grpc_clock_or_thread(self):
        path = "job/decide.h"
        self.finds("include-rpc", path, header(path, "#include <grpcpp/server.h>"))
        self.finds("clock", path, header(path, "auto t = std::chrono::steady_clock::now();"))
        self.finds("clock", path, header(path, "auto t = SteadyNow();"))
        self.finds("thread", path, header(path, "std::thread t;"))

    def test_public_headers_use_the_standard_library_only(self):
        path = "client/kaon/client.h"
        self.finds("include-public", path, header(path, '#include "absl/status/status.h"'))
        self.finds("include-public", path, header(path, '#include "proto/identity.h"'))

    def test_sizes(self):
        self.finds("file-length", "kernels/norm.h", header("kernels/norm.h", "//\n" * 200))
        self.finds("file-length", "kernels/norm.cc", "//\n" * 501)
        self.passes("kernels/norm.cc", "//\n" * 500)
        self.finds("columns", "kernels/norm.cc", "// " + "x" * 98 + "\n")
        self.passes("kernels/norm.cc", "// " + "x" * 97 + "\n")

    def test_function_length(self):
        self.passes("kernels/norm.cc", "int F(int a) {\n" + "  a++;\n" * 68 + "}\n")
        long_body = "  a++;\n" * 69 + "}\n"
        self.finds("function-length", "kernels/norm.cc", "int F(int a) {\n" + long_body)
        self.finds("function-length", "kernels/norm.cc", "namespace {\nclass A {\n int F(int a) {\n" + long_body + "};\n}\n")
        self.finds("function-length", "kernels/norm.cc", "A::A(int a)\n    : b_{a}, c_(a) {\n" + long_body)
        # Braces in literals, comments and macros are not braces.
        self.finds("function-length", "kernels/norm.cc", "int F(int a) {\n  // }\n  G(\"}\", '}');\n" + long_body)

    def test_many_short_functions_are_not_one_long_one(self):
        self.passes("kernels/norm.cc", "class A {\n" + " int F() {\n  if (a) { b(); }\n }\n" * 60 + "};\n")

    def test_headers_open_with_what_they_are(self):
        self.finds("opening", "kernels/norm.h", header("kernels/norm.h", opening=""))
        self.finds("opening", "kernels/norm.h", header("kernels/norm.h", opening="// Norms.\n"))

    def test_include_guard_is_the_path(self):
        self.finds("include-guard", "kernels/norm.h", OPENING + "#pragma once\n")

    def test_names_that_say_nothing(self):
        self.finds("file-name", "kernels/norm_utils.cc", "")
        self.finds("file-name", "server/shard/data.proto", 'syntax = "proto3";\n')
        self.finds("type-name", "kernels/norm.cc", "class NormManager {};\n")
        self.finds("type-name", "kernels/norm.cc", "struct NewNorm {};\n")
        self.finds("type-name", "kernels/norm.cc", "enum class FastInfo { kA };\n")
        self.finds("type-name", "kernels/norm.cc", "using BaseNorm = int;\n")
        self.passes("kernels/norm.cc", "class Database {};\nclass Renewal {};\n")

    def test_banned_code(self):
        for rule, code in (
            ("mutex", "absl::Mutex mu;"),
            ("mutex", "std::mutex mu;"),
            ("assert", "void F() { assert(true); }"),
            ("new", "auto* p = new Norm(1);"),
            ("delete", "void F(int* p) { delete p; }"),
            ("delete", "void F(int* p) { delete[] p; }"),
            ("throw", "void F() { throw 1; }"),
            ("random", "int x = rand();"),
            ("using-namespace", "using namespace std;"),
        ):
            with self.subTest(code):
                self.finds(rule, "kernels/norm.cc", code + "\n")

    def test_code_that_only_looks_banned(self):
        for code in (
            "// absl::Mutex, new Norm, delete p, assert(x), throw",
            'const char* kText = "new Norm(1); throw 1;";',
            "static_assert(true);",
            "struct A { A(const A&) = delete; };",
            "std::unique_ptr<Norm> norm(new Norm());",
            "std::shared_ptr<Norm> norm(\n    new Norm());",
            "auto norm = absl::WrapUnique(new Norm());",
            "int operand(int);",
            "int x = operand(1);",
        ):
            with self.subTest(code):
                self.passes("kernels/norm.cc", code + "\n")

    def test_nothing_sleeps_in_servers_and_tests(self):
        for code in ("absl::SleepFor(d);", "std::this_thread::sleep_for(d);", "usleep(1);"):
            self.finds("sleep", "server/shard/loop.cc", f"void F() {{ {code} }}\n")
            self.finds("sleep", "tests/kernels/norm_test.cc", f"void F() {{ {code} }}\n")

    def test_no_time_but_the_one_that_never_jumps(self):
        for code in (
            "auto t = std::chrono::system_clock::now();",
            "auto t = absl::Now();",
            "auto t = time(nullptr);",
            "std::time_t t = std::time(&u);",
            "clock_gettime(CLOCK_REALTIME, &t);",
            "gettimeofday(&t, nullptr);",
        ):
            with self.subTest(code):
                self.finds("wall-clock", "server/shard/loop.cc", f"void F() {{ {code} }}\n")
                self.finds("wall-clock", "client/session.cc", f"void F() {{ {code} }}\n")
        for code in ("auto t = SteadyNow();", "auto t = step.time(0);", "Lifetime(0);", "// absl::Now()"):
            with self.subTest(code):
                self.passes("kernels/norm.cc", code + "\n")

    def test_no_test_is_skipped(self):
        self.finds("skipped-test", "tests/kernels/norm_test.cc", "TEST(A, DISABLED_B) {}\n")
        self.finds("skipped-test", "tests/kernels/norm_test.cc", "TEST(A, B) { GTEST_SKIP(); }\n")

    def test_a_dropped_status_needs_a_reason(self):
        self.finds("ignored-error", "kernels/norm.cc", "int x;\nvoid F() { G().IgnoreError(); }\n")
        self.passes("kernels/norm.cc", "// It failed before.\nvoid F() { G().IgnoreError(); }\n")

    def test_unfinished_work_is_found_in_every_kind_of_file(self):
        marker = "TO" + "DO"
        self.finds("marker", "kernels/norm.cc", f"// {marker}: later\n")
        self.finds("marker", "deploy/run.sh", f"# {marker}\n")
        self.finds("marker", "bazel/rule.bzl", f"# {marker}\n")

    def test_everything_a_proto_declares_has_a_comment_above_it(self):
        path = "proto/kaon/v1/step.proto"
        lines = [
            'syntax = "proto3";',
            "package kaon.v1;",
            "// What can be asked.",
            "service Steps {",
            "  // Asks; see Step.",
            "  rpc Ask(Step) returns (Step);",
            "}",
            "// One step.",
            "message Step {",
            "  reserved 7;",
            "  // Counts from 1.",
            "  uint64 step = 1;",
            "  oneof body {",
            "    // Losses; finite,",
            "    // in nats.",
            "    double loss = 2;",
            "  }",
            "  // How it ended.",
            "  repeated Outcome",
            "      outcomes = 3;",
            "}",
            "// How a step ended.",
            "enum Outcome {",
            "  // Refused.",
            "  OUTCOME_UNSPECIFIED = 0;",
            "}",
        ]
        self.passes(path, "\n".join(lines) + "\n")
        # Without the comment above each of these, that one is found and nothing else.
        for declared in ("service", "  rpc", "message", "  uint64", "    double", "  repeated", "enum", "  OUTCOME"):
            number = next(n for n, text in enumerate(lines) if text.startswith(declared))
            with self.subTest(declared):
                first = number
                while lines[first - 1].strip().startswith("//"):
                    first -= 1
                self.finds("proto-comment", path, "\n".join(lines[:first] + lines[number:]) + "\n")
        for text in (
            "// One step.\nmessage Step { uint64 step = 1; }\n",
            "// One step.\nmessage Step {\n  uint64 step = 1;  // Counts from 1.\n}\n",
            "// One step.\n\nmessage Step {}\n",
            "//\nmessage Step {}\n",
        ):
            with self.subTest(text):
                self.finds("proto-comment", path, text)

    def test_a_proto_keeps_its_columns(self):
        self.finds("columns", "proto/kaon/v1/step.proto", "// " + "x" * 98 + "\n")
        self.passes("proto/kaon/v1/step.proto", "// " + "x" * 97 + "\n")

    def test_every_source_has_its_mirrored_test(self):
        self.assertEqual(self.check({"tests/kernels/norm_test.cc": None}), [("mirrored-test", "kernels/norm.cc")])

    def test_every_source_is_in_a_target(self):
        found = self.check({"tests/kernels/lost_test.cc": ""})
        self.assertEqual(found, [("target", "tests/kernels/lost_test.cc")])

    def test_every_call_has_a_deadline(self):
        path = "client/session.cc"
        member = "class Call {\n void Start() { %s }\n grpc::ClientContext context_;\n};\n"
        for code in (
            "void F() { grpc::ClientContext context; }",
            "void F() { auto context = std::make_unique<grpc::ClientContext>(); }",
            "void F() { Use(std::make_unique<grpc::ClientContext>()); }",
            "using grpc::ClientContext;\nvoid F() { ClientContext context; }",
            # Of another one.
            "void F() { grpc::ClientContext a; grpc::ClientContext b; a.set_deadline(t); }",
            "void F() { { grpc::ClientContext a; } { grpc::ClientContext a; a.set_deadline(t); } }",
            "void F() { grpc::ClientContext a; other.a.set_deadline(t); }",
            "void F() { grpc::ClientContext a;  // a.set_deadline(t);\n}",
            member % "" + member.replace("Call", "Pull") % "context_.set_deadline(t);",
            "class Call { std::optional<grpc::ClientContext> context_; };",
            "class A { class Call { grpc::ClientContext context_; }; void F() { context_.set_deadline(t); } };",
        ):
            with self.subTest(code):
                self.assertEqual(self.check({path: code + "\n"}), [("deadline", path)])
        for code in (
            "void F() { grpc::ClientContext context; context.set_deadline(t); }",
            "void F() { while (true) { grpc::ClientContext context; if (a) { context.set_deadline(t); } } }",
            "void F() { auto context = std::make_unique<grpc::ClientContext>(); context->set_deadline(t); }",
            "void F(grpc::ClientContext* a, const grpc::ClientContext& b) { grpc::ClientContext* c = a; }",
            "using grpc::ClientContext;\nclass ClientContext;",
            member % "context_.set_deadline(t);",
            member % "" + "void Call::Begin() { context_.set_deadline(t); }",
            member % "" + "void F(Call* call) { call->context_.set_deadline(t); }",
            "class Call { void F() { context_->set_deadline(t); } std::optional<grpc::ClientContext> context_; };",
        ):
            with self.subTest(code):
                self.passes(path, code + "\n")
        self.passes("tests/kernels/norm_test.cc", "void F() { grpc::ClientContext context; }\n")

    def test_a_header_and_its_source_are_one_for_deadlines(self):
        path = "client/session.h"
        declared = header(path, "struct Call { grpc::ClientContext context; };")
        self.finds("deadline", path, declared)
        source = "void F() { call->context.set_deadline(t); }\n"
        self.assertNotIn(("deadline", path), self.check({path: declared, "client/session.cc": source}))

    def test_a_call_that_something_else_ends_is_named_with_it(self):
        path = "client/session.cc"
        code = "class Push { grpc::ClientContext context_; };\nclass Pull { grpc::ClientContext context_; };\n"
        self.assertEqual(self.check({path: code}, without_deadline={(path, "Push"): "a reason"}), [("deadline", path)])
        self.assertEqual(self.check({path: code}, without_deadline={(path, "Push"): "a", (path, "Pull"): "b"}), [])
        self.assertEqual(self.check(without_deadline={(path, "Push"): "a reason"}), [("exemption", path)])

    def test_an_exemption_silences_its_rule_in_its_file_only(self):
        exempt = {("throw", "kernels/norm.cc"): "a reason"}
        code = "void F() { throw 1; }\n"
        self.assertEqual(self.check({"kernels/norm.cc": code}, exempt), [])
        self.assertEqual(self.check({"kernels/norm.cc": code, "client/session.cc": code}, exempt),
                         [("throw", "client/session.cc")])

    def test_an_exemption_that_nothing_needs_is_found(self):
        exempt = {("throw", "kernels/norm.cc"): "a reason"}
        self.assertEqual(self.check(exempt=exempt), [("exemption", "kernels/norm.cc")])


if __name__ == "__main__":
    unittest.main()
