#!/bin/bash
# T9: the wall clocks of all servers and trainers jump by an hour, forth and back, in the middle of training. Only
# certificates read them. No process is treated as lost or replaced, no step is redone, and training ends in the
# bits of an undisturbed run.
source tests/integration/real_cluster.sh
# Each step has a line.
export KAON_LOG_LEVEL=debug

# There is no time for so many.
STEPS=100000
OPTIONS=(--workers 2 --split 3,5 --max-grad-norm 0.05)
CLOCK=$TEST_TMPDIR/clock
LIBRARY=$(find /usr/lib -name libfaketimeMT.so.1 2>/dev/null | head -n 1)
[ -n "$LIBRARY" ] || { echo "libfaketimeMT.so.1 is missing: install libfaketime"; exit 1; }

set_clock() { echo "$1" >"$CLOCK.new" && mv "$CLOCK.new" "$CLOCK"; }
# with_clock COMMAND...: the command and its children see the wall clock of set_clock within a second.
with_clock() {
  LD_PRELOAD=$LIBRARY FAKETIME_TIMESTAMP_FILE=$CLOCK FAKETIME_CACHE_DURATION=1 FAKETIME_DONT_FAKE_MONOTONIC=1 "$@"
}
# The ballot changes with every takeover, reopened round and lost worker.
ballot() { "$KAONCTL" --dir "$DIR" -o json status | python3 -c 'import json, sys; print(json.load(sys.stdin)["ballot"])'; }

# Makes certificates that were valid an hour ago as well.
mkdir -p -m 700 "$DIR"
set_clock -2h
with_clock deploy/certificates.sh "$DIR/tls" --workers 2
set_clock +0
for i in 0 1; do with_clock cluster_start_shard "$DIR" $i; done
for i in 0 1; do cluster_wait_port "$DIR" shard-$i || give_up; done
with_clock cluster_start_coordinator "$DIR" 2
cluster_wait_port "$DIR" coordinator && cluster_wait_serving "$DIR" || give_up
with_clock launch 0 --steps "$STEPS"
with_clock launch 1 --steps "$STEPS"
wait_for 60 step_reached 10 || give_up
before=$(ballot)
for jump in +1h -1h +1h +0; do
  step=$(step_now)
  set_clock $jump
  # Every process sees the jump within this time.
  sleep 2
  wait_for 30 step_reached $((step + 20)) || give_up
  echo "wall clock at $jump: from step $step to step $(step_now)"
done
after=$(ballot)
[ "$before" = "$after" ] || fail "ballot $before became $after"
for name in shard-0 shard-1; do
  # Every line of a log begins with the time of day, and each step has lines, so the jumps show.
  hours=$(grep -oE '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}' "$DIR/$name.log" | sort -u | wc -l)
  [ "$hours" -ge 3 ] || fail "$name has seen $hours hours of the day, expecting at least 3"
done
compare_open "$STEPS"
stop
finish
