#!/bin/bash
# P17: a reader's certificate opens pulls and reads nothing: 2,400 of four parameters, and 4,000 of 2,000 parameters.
# Training goes on, and the shard never has more resident than its budget and a tenth.
source tests/integration/real_cluster.sh
export KAON_SHM_SESSIONS=0 KAON_HOST_MEMORY_BYTES=$((160 << 20)) KAON_STAGING_BYTES=$((64 << 20))
SMALL=(--hidden 512 --blocks 4 --embedding 16 --batch-size 16 --report-every 1)
allowed=$(((224 << 20) * 11 / 10))

newest() { grep -c '^step ' "$TEST_TMPDIR/trainer" || true; }
beyond() { [ "$(newest)" -ge "$1" ]; }

KAON_EXTRA_CERTIFICATES=reader=reader start 1 2
: >"$TEST_TMPDIR/trainer"
train "$TEST_TMPDIR/trainer" --steps 1000000 &
trainer=$!
wait_for 60 beyond 3 || { cat "$TEST_TMPDIR/trainer"; cluster_show_logs "$DIR"; give_up; }
job=$("$KAONCTL" --dir "$DIR" -o json status | python3 -c 'import json, sys; print(json.load(sys.stdin)["job"])')
for attack in "2400 4" "4000 2000"; do
  read -r pulls parameters <<<"$attack"
  coproc FLOOD { tests/integration/pull_flood "127.0.0.1:$(cat "$DIR/shard-0.port")" "$DIR/tls" "$job" "$pulls" "$parameters"; }
  read -r -t 120 said <&"${FLOOD[0]}" && [ "$said" = open ] || fail "no flood"
  # A message that nobody reads gives its place up after 2 s.
  wait_for 120 beyond $(($(newest) + 20)) || cluster_show_logs "$DIR"
  flood_pid=$FLOOD_PID
  exec {FLOOD[1]}>&-
  read -r -t 60 said <&"${FLOOD[0]}" || said="nothing"
  wait "$flood_pid" || fail "the flood failed"
  peak=$(awk '$1 == "VmHWM:" {printf "%.0f", 1024 * $2}' "/proc/$(cat "$DIR/shard-0.pid")/status")
  echo "$pulls pulls of $parameters: $said; $((peak >> 20)) MiB resident at most, $((allowed >> 20)) allowed"
  [ "$peak" -le "$allowed" ] || fail "$peak bytes resident, $allowed allowed"
done
kill "$trainer" && wait "$trainer" || true
stop
finish
