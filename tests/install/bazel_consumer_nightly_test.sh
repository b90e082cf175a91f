#!/bin/bash
# A trainer in a Bazel workspace of its own has Kaon's sources as an external repository, builds, and trains against a
# cluster. Takes minutes: another repository's name makes other objects.
set -euo pipefail

kaon=$(dirname "$(realpath VERSION)")
[ -e "$kaon/WORKSPACE" ] || { echo "FAILED: $kaon is not the repository"; exit 1; }
workspace=$TEST_TMPDIR/workspace
mkdir -p "$workspace"
cp tests/install/consumers/trainer.cc "$workspace/"
cat >"$workspace/WORKSPACE" <<TEXT
workspace(name = "consumer")

local_repository(
    name = "kaon",
    path = "$kaon",
)

# Kaon loads nothing from it; Bazel 4.2.3 wants it for tools of its own.
local_repository(
    name = "rules_cc",
    path = "$kaon/bazel/rules_cc",
)

local_repository(
    name = "remote_coverage_tools",
    path = "$kaon/bazel/coverage_tools",
)

local_repository(
    name = "rules_java",
    path = "/usr/share/bazel/rules/java",
)

local_repository(
    name = "rules_proto",
    path = "/usr/share/bazel/rules/proto",
)

local_repository(
    name = "bazel_skylib",
    path = "/usr/share/bazel/tools/skylib",
)

local_repository(
    name = "platforms",
    path = "/usr/share/bazel/tools/platforms",
)
TEXT
cat >"$workspace/BUILD" <<'TEXT'
cc_binary(
    name = "trainer",
    srcs = ["trainer.cc"],
    copts = ["-std=c++17"],
    deps = ["@kaon//client:kaon_client"],
)
TEXT
echo 'build --cxxopt=-std=c++20' >"$workspace/.bazelrc"

# shellcheck source=tests/integration/real_cluster.sh
source tests/integration/real_cluster.sh
(
  cd "$workspace"
  bazel --output_user_root="$TEST_TMPDIR/output" --batch build -c opt --spawn_strategy=local --noshow_progress \
    "--disk_cache=$("$kaon/deploy/disk_cache.sh")" //:trainer </dev/null
) || { echo "FAILED: the workspace does not build"; exit 1; }
start 2 1
"$workspace/bazel-bin/trainer" "127.0.0.1:$(<"$DIR/coordinator.port")" "$DIR/tls" || fail "the trainer"
stop
finish
