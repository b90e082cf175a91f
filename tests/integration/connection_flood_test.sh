#!/bin/bash
# A stranger opens more connections than a coordinator and a shard have descriptors, holds them, and closes them
# all. Training continues meanwhile, others can connect, and a coordinator that starts then gets the shards. Runs
# with three limits of open files.
source tests/integration/real_cluster.sh

SHARD=$KAON_SHARD COORDINATOR=$KAON_COORDINATOR

# limited NAME LIMIT PROGRAM: makes a script that runs the program with that limit.
limited() {
  printf '#!/bin/bash\nulimit -n %s\nexec %q "$@"\n' "$2" "$3" >"$TEST_TMPDIR/$1"
  chmod +x "$TEST_TMPDIR/$1"
}

# Prints the newest step that the trainer has reported.
newest() { grep -c '^step ' "$TEST_TMPDIR/trainer" || true; }

beyond() { [ "$(newest)" -ge "$1" ]; }

serving() { "$KAONCTL" --dir "$DIR" --timeout 5 health >"$TEST_TMPDIR/health" 2>&1; }

# flooded LIMIT: runs the test with that limit.
flooded() {
  limited shard "$1" "$SHARD" && KAON_SHARD=$TEST_TMPDIR/shard
  limited coordinator "$1" "$COORDINATOR" && KAON_COORDINATOR=$TEST_TMPDIR/coordinator
  start 2 2
  : >"$TEST_TMPDIR/trainer"
  train "$TEST_TMPDIR/trainer" --steps 1000000 &
  local trainer=$! said
  wait_for 60 beyond 3 || { cat "$TEST_TMPDIR/trainer"; cluster_show_logs "$DIR"; }

  coproc FLOOD { python3 tests/integration/flood.py $(($1 * 3 / 2)) "$(cat "$DIR/coordinator.port")" "$(cat "$DIR/shard-0.port")"; }
  read -r -t 60 said <&"${FLOOD[0]}" && [ "$said" = open ] || fail "no flood"
  wait_for 60 beyond $(($(newest) + 20))
  wait_for 60 serving || cat "$TEST_TMPDIR/health"
  cluster_kill "$DIR" coordinator
  cluster_revive_coordinator "$DIR" 2 && cluster_wait_serving "$DIR" || fail "no coordinator gets the shards"
  wait_for 60 beyond $(($(newest) + 20))
  exec {FLOOD[1]}>&-
  wait "$FLOOD_PID"

  wait_for 60 serving || cat "$TEST_TMPDIR/health"
  "$KAONCTL" --dir "$DIR" status --events >"$TEST_TMPDIR/events" || fail "no status after the flood"
  grep -q connection_cut "$TEST_TMPDIR/events" || fail "no connection was cut: $(cat "$TEST_TMPDIR/events")"
  kill "$trainer" && wait "$trainer" || true
  stop
  echo "limit $1: $(newest) steps; $(grep -h connection_ "$TEST_TMPDIR/events" | tr -s ' ' | tr '\n' ';')"
}

for limit in 64 256 1024; do flooded $limit; done
finish
