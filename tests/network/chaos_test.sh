#!/bin/bash
# T7: training through proxies between trainers, coordinator and shards. By the schedule of a seed they delay,
# throttle, freeze, reset, refuse and double connections. Training continues within 5 seconds of the last fault and
# ends in the bits of an undisturbed run. No process answers faults with a storm of calls. Over all schedules, some
# connection met every kind of fault.
# SEEDS: the schedules; FAULTS: seconds of faults in each.
source tests/integration/real_cluster.sh

SEEDS=${SEEDS:-1 2}
FAULTS=${FAULTS:-20}
# There is no time for so many.
STEPS=100000
OPTIONS=(--workers 2 --split 3,5 --max-grad-norm 0.05)
# Shared memory would bypass the proxies.
TRANSPORT=grpc
# Reports of all seeds; each seed has a new cluster directory.
REPORTS=$TEST_TMPDIR/reports
declare -A proxy
counting=

# run_proxy NAME SEED TARGET...: writes the ports to NAME.ports.
run_proxy() {
  local name=$1 seed=$2
  shift 2
  rm -f "$DIR/$name.ports"
  python3 tests/network/chaos_proxy.py --ports "$DIR/$name.ports" --report "$DIR/$name.report" --seed "$seed" \
    --faults "$FAULTS" "$@" 2>>"$DIR/$name.errors" &
  proxy[$name]=$!
  wait_for 20 test -e "$DIR/$name.ports" || give_up
}
end_proxies() {
  local name
  for name in "${!proxy[@]}"; do
    kill -TERM "${proxy[$name]}" 2>/dev/null || true
    wait "${proxy[$name]}" 2>/dev/null || true
  done
  proxy=()
}
end_counting() {
  [ -n "$counting" ] || return 0
  kill "$counting" 2>/dev/null || true
  wait "$counting" 2>/dev/null || true
  counting=
}
trap 'end_counting; end_proxies; cluster_stop "$DIR" >/dev/null 2>&1 || true' EXIT
healed() { [ -e "$DIR/shards.report.healed" ] && [ -e "$DIR/calls.report.healed" ]; }
# counted SECONDS: calls were counted for so long.
counted() {
  [ -s "$DIR/calls" ] && python3 -c '
import json, sys
looks = [json.loads(line)["at"] for line in open(sys.argv[1]) if line.endswith("\n")]
sys.exit(looks[-1] - looks[0] < float(sys.argv[2]))' "$DIR/calls" "$1"
}
now_ms() { echo $(($(date +%s%N) / 1000000)); }

mkdir -p "$REPORTS"
for seed in $SEEDS; do
  rm -rf "$DIR"
  mkdir -p -m 700 "$DIR"
  deploy/certificates.sh "$DIR/tls" --workers 2
  for i in 0 1; do cluster_start_shard "$DIR" $i; done
  for i in 0 1; do cluster_wait_port "$DIR" shard-$i; done
  run_proxy shards "$seed" "127.0.0.1:$(cat "$DIR/shard-0.port")" "127.0.0.1:$(cat "$DIR/shard-1.port")"
  # The coordinator and its callers know the shards by these ports.
  for i in 0 1; do sed -n "$((i + 1))p" "$DIR/shards.ports" >"$DIR/shard-$i.port"; done
  cluster_start_coordinator "$DIR" 2
  cluster_wait_port "$DIR" coordinator && cluster_wait_serving "$DIR" || give_up
  run_proxy calls $((seed + 1000)) "127.0.0.1:$(cat "$DIR/coordinator.port")"
  CONNECT=127.0.0.1:$(cat "$DIR/calls.ports")
  launch 0 --steps "$STEPS"
  launch 1 --steps "$STEPS"
  wait_for 60 step_reached 10 || give_up
  python3 tests/network/count_calls.py "$KAONCTL" "$DIR" "$DIR/calls" &
  counting=$!
  # Counts the usual calls, for comparison.
  wait_for 60 counted 2.5 || give_up
  kill -USR1 "${proxy[shards]}" "${proxy[calls]}"
  wait_for $((${FAULTS%.*} + 30)) healed || give_up
  calm=$(now_ms)
  step=$(step_now)
  wait_for 30 step_reached $((step + 1)) || give_up
  took=$(($(now_ms) - calm))
  allowed=$(stretched 5000)
  [ "$took" -le "$allowed" ] || fail "seed $seed: $took ms until the next step, expecting at most $allowed"
  wait_for 30 step_reached $((step + 20)) || give_up
  end_counting
  python3 tests/network/count_calls.py "$KAONCTL" "$DIR" "$DIR/calls" --once || give_up
  compare_open "$STEPS"
  end_proxies
  stop
  python3 tests/network/check_chaos.py "$seed" "$took" "$step" "$DIR/calls" "$DIR/shards.report" "$DIR/calls.report" ||
    fail "seed $seed: too many calls"
  for name in shards calls; do cp "$DIR/$name.report" "$REPORTS/$seed.$name"; done
done
python3 tests/network/check_chaos.py --kinds "$REPORTS"/* || fail "trouble that was none"
finish
