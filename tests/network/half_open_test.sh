#!/bin/bash
# T7: all connections between trainers, coordinator and shards become half-open in the middle of training, and stay so for ever: no
# byte passes any more, nobody is told, and what is sent is acknowledged by the host in between. Whoever waits on one must give it up by
# himself and make another: training goes on within the time of a keepalive, and ends in the bits of an undisturbed run.
source tests/integration/real_cluster.sh

# More than there is time for.
STEPS=100000
OPTIONS=(--workers 2 --split 3,5 --max-grad-norm 0.05)
# Gradients and weights, too, pass through the proxies.
TRANSPORT=grpc
# A ping after 10 s in which nothing came, 20 s for its answer (client/channel.cc), and what a pause between two tries takes. All at
# once, as connections without a call are pinged too.
MOST_MS=45000
declare -A proxy

# run_proxy NAME TARGET...: its ports are then in NAME.ports.
run_proxy() {
  local name=$1
  shift
  python3 tests/network/chaos_proxy.py --ports "$DIR/$name.ports" --report "$DIR/$name.report" "$@" 2>>"$DIR/$name.errors" &
  proxy[$name]=$!
  wait_for 20 test -e "$DIR/$name.ports" || give_up
}
end_proxies() {
  local name
  for name in "${!proxy[@]}"; do kill -TERM "${proxy[$name]}" 2>/dev/null || true; done
}
trap 'end_proxies; cluster_stop "$DIR" >/dev/null 2>&1 || true' EXIT
now_ms() { echo $(($(date +%s%N) / 1000000)); }

rm -rf "$DIR"
mkdir -p -m 700 "$DIR"
deploy/make_certificates.sh "$DIR/tls" --workers 2
for i in 0 1; do cluster_start_shard "$DIR" $i; done
for i in 0 1; do cluster_wait_port "$DIR" shard-$i; done
run_proxy shards "127.0.0.1:$(cat "$DIR/shard-0.port")" "127.0.0.1:$(cat "$DIR/shard-1.port")"
# The coordinator and whoever asks it know the shards by these.
for i in 0 1; do sed -n "$((i + 1))p" "$DIR/shards.ports" >"$DIR/shard-$i.port"; done
cluster_start_coordinator "$DIR" 2
cluster_wait_port "$DIR" coordinator && cluster_wait_serving "$DIR" || give_up
run_proxy calls "127.0.0.1:$(cat "$DIR/coordinator.port")"
CONNECT=127.0.0.1:$(cat "$DIR/calls.ports")
for among in "shards" "calls" "shards calls"; do
  if [ "$among" = shards ]; then
    for rank in 0 1; do launch $rank --steps "$STEPS"; done
  fi
  wait_for 60 step_reached $(($(step_now) + 10)) || give_up
  before=$(now_ms)
  for name in $among; do kill -USR2 "${proxy[$name]}"; done
  # What was on its way may still have led to a step or two.
  step=$(step_now)
  wait_for 90 step_reached $((step + 5)) || give_up
  took=$(($(now_ms) - before))
  echo "half-open connections of $among: five steps after $took ms"
  [ "$took" -le $MOST_MS ] || fail "$among: $took ms, expecting at most $MOST_MS"
done
compare_open "$STEPS"
end_proxies
stop
finish
