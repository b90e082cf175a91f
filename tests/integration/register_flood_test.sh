#!/bin/bash
# P17: a worker's certificate registers a costly definition again and again by two callers. Training goes on, because a
# caller gets a twentieth of the coordinator's time.
source tests/integration/real_cluster.sh

newest() { grep -c '^step ' "$TEST_TMPDIR/trainer" || true; }
beyond() { [ "$(newest)" -ge "$1" ]; }

# steps_in SECONDS: how many steps the trainer takes in that time.
steps_in() {
  local before
  before=$(newest)
  sleep "$1"
  echo $(($(newest) - before))
}

KAON_EXTRA_CERTIFICATES=attacker=worker/kaon-train/7 start 1 2
: >"$TEST_TMPDIR/trainer"
train "$TEST_TMPDIR/trainer" --steps 1000000 &
trainer=$!
wait_for 60 beyond 3 || { cat "$TEST_TMPDIR/trainer"; cluster_show_logs "$DIR"; give_up; }
alone=$(steps_in 4)
tls=$DIR/tls
coproc FLOOD { tests/integration/register_flood "127.0.0.1:$(cat "$DIR/coordinator.port")" "$tls/ca.crt" \
  "$tls/attacker.crt" "$tls/attacker.key" kaon-train; }
read -r -t 60 said <&"${FLOOD[0]}" && [ "$said" = begun ] || fail "no flood"
# The attacker's first half second is a burst.
attacked=$(steps_in 8)
flood_pid=$FLOOD_PID
exec {FLOOD[1]}>&-
read -r -t 60 said <&"${FLOOD[0]}" || said="nothing"
wait "$flood_pid" || fail "the flood failed"
echo "$alone steps in 4 s alone, $attacked in 8 s of the attack; $said"
# Both share this machine's processors with the attacker, who may also take some.
[ "$attacked" -ge $((2 * alone * 4 / 10)) ] || fail "$attacked steps, at least $((2 * alone * 4 / 10)) expected"
kill "$trainer" && wait "$trainer" || true
stop
finish
