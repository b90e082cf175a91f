#!/bin/bash
# The status page in a real browser (Chromium) while a cluster trains, while a shard is down, and after a skipped step:
# contrast, names for screen readers, no error of the console, live values. Screenshots are kept as outputs of the test.
source tests/integration/real_cluster.sh

command -v chromium >/dev/null || { echo "FAILED: no chromium: deploy/install_packages.sh --monitor"; exit 1; }
SHOTS=${TEST_UNDECLARED_OUTPUTS_DIR:-$TEST_TMPDIR}
look() { python3 tests/integration/check_status_page.py "$(cluster_status_link "$DIR")" "$SHOTS" "$1" || fail "the page while $1"; }

KAON_METRICS=1 start 2 2
train "$TEST_TMPDIR/train" --workers 2 --steps 100000 &
trainer_pid=$!
wait_for 300 step_reached 200
look train
cluster_kill "$DIR" shard-1
look down
kill -TERM $trainer_pid
wait $trainer_pid || true
stop

KAON_METRICS=1 start 2 2
train "$TEST_TMPDIR/skip" --workers 2 --steps 30 --poison-step 20 || { cat "$TEST_TMPDIR/skip"; exit 1; }
look skip
finish
