#!/bin/bash
# T7: the connections between trainers, coordinator and shards break in the middle of training, and no end learns
# it. They become half-open for ever, or lose, repeat or change a few bytes. A process that waits on such a
# connection abandons it and makes another. Training continues within 5 s and ends in the bits of an undisturbed
# run.
# ROUNDS: number of times that each part of the connections loses, repeats or changes bytes.
source tests/integration/real_cluster.sh

# There is no time for so many.
STEPS=100000
OPTIONS=(--workers 2 --split 3,5 --max-grad-norm 0.05)
# Gradients and weights, too, pass through the proxies.
TRANSPORT=grpc
ROUNDS=${ROUNDS:-1}
# A ping after 1 s in which nothing came, 3 s for its answer (client/transport/channel.h), a new connection and five steps. Without the ping
# it took 10 s to 60 s.
MOST_MS=8000
declare -A proxy

# run_proxy NAME TARGET...: writes the ports to NAME.ports.
run_proxy() {
  local name=$1
  shift
  python3 tests/network/chaos_proxy.py --ports "$DIR/$name.ports" --report "$DIR/$name.report" \
    --kinds flip,lose,repeat --faults 0.5 "$@" 2>>"$DIR/$name.errors" &
  proxy[$name]=$!
  wait_for 20 test -e "$DIR/$name.ports" || give_up
}
end_proxies() {
  local name
  for name in "${!proxy[@]}"; do kill -TERM "${proxy[$name]}" 2>/dev/null || true; done
}
trap 'end_proxies; cluster_stop "$DIR" >/dev/null 2>&1 || true' EXIT
now_ms() { echo $(($(date +%s%N) / 1000000)); }
healed() {
  local name
  for name in "$@"; do [ -e "$DIR/$name.report.healed" ] || return 1; done
}
# break_them SIGNAL PROXY...: five steps must follow in time.
break_them() {
  local signal=$1 name before step took allowed
  shift
  wait_for 60 step_reached $(($(step_now) + 10)) || give_up
  for name in "$@"; do
    rm -f "$DIR/$name.report.healed"
    kill "-$signal" "${proxy[$name]}"
  done
  [ "$signal" = USR2 ] || wait_for 20 healed "$@" || give_up
  before=$(now_ms)
  # Messages in flight may still have led to a step or two.
  step=$(step_now)
  wait_for 90 step_reached $((step + 5)) || give_up
  took=$(($(now_ms) - before))
  echo "$signal on $*: five steps after $took ms"
  allowed=$(stretched $MOST_MS)
  [ "$took" -le "$allowed" ] || fail "$signal on $*: $took ms, expecting at most $allowed"
}

rm -rf "$DIR"
mkdir -p -m 700 "$DIR"
deploy/certificates.sh "$DIR/tls" --workers 2
for i in 0 1; do cluster_start_shard "$DIR" $i; done
for i in 0 1; do cluster_wait_port "$DIR" shard-$i; done
run_proxy shards "127.0.0.1:$(cat "$DIR/shard-0.port")" "127.0.0.1:$(cat "$DIR/shard-1.port")"
# The coordinator and its callers know the shards by these ports.
for i in 0 1; do sed -n "$((i + 1))p" "$DIR/shards.ports" >"$DIR/shard-$i.port"; done
cluster_start_coordinator "$DIR" 2
cluster_wait_port "$DIR" coordinator && cluster_wait_serving "$DIR" || give_up
run_proxy calls "127.0.0.1:$(cat "$DIR/coordinator.port")"
CONNECT=127.0.0.1:$(cat "$DIR/calls.ports")
for rank in 0 1; do launch $rank --steps "$STEPS"; done
for round in $(seq "$ROUNDS"); do
  for among in shards calls "shards calls"; do
    # shellcheck disable=SC2086  # names of proxies
    break_them USR1 $among
  done
done
for among in shards calls "shards calls"; do
  # shellcheck disable=SC2086  # names of proxies
  break_them USR2 $among
done
compare_open "$STEPS"
end_proxies
stop
finish
