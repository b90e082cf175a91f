#!/bin/bash
# T8: a shard, a worker and the coordinator that holds the shards are stopped in the middle of training (SIGSTOP),
# the coordinator for longer than its replacement takes. They continue (SIGCONT) as if no time had passed. All
# others still answer in time. Late messages, decisions among them, are refused or harmless, and training ends in
# the bits of an undisturbed run.
# FREEZES: seconds of the stops; each process is stopped once for each of them.
source tests/integration/real_cluster.sh

FREEZES=${FREEZES:-0.3 2.5}
# There is no time for so many.
STEPS=100000
# Another coordinator replaces a stopped one within this time.
REPLACED_SECONDS=2.5
MOST_TRIES=12
OPTIONS=(--workers 2 --split 3,5 --max-grad-norm 0.05)

now_ms() { echo $(($(date +%s%N) / 1000000)); }
address() { echo "127.0.0.1:$(cat "$DIR/$1.port")"; }
pid_of() {
  case "$1" in
    rank-*) echo "${trainer[${1#rank-}]}" ;;
    *) cat "$DIR/$1.pid" ;;
  esac
}
# ask COORDINATOR FIELD: prints a field of its status, or nothing if it does not answer in time.
ask() {
  timeout 10 "$KAONCTL" --endpoints "$(address "$1")" --tls-dir "$DIR/tls" --timeout 6 -o json status 2>/dev/null |
    python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$2" 2>/dev/null || true
}
holds() { [ "$(ask "$1" holder)" = True ]; }
stands_by() { [ "$(ask "$1" holder)" = False ]; }
# one_holds NEXT FROZEN SECONDS: NEXT holds the shards, and FROZEN knows it as soon as it hears a shard again. A
# coordinator that was away for about a keepalive, 3 s, has lost its streams and reads the shards under a higher
# ballot when it returns. Of two ballots with the same number, the one with the larger incarnation wins, so either
# may hold the shards.
one_holds() {
  if holds "$1" && stands_by "$2"; then return 0; fi
  [ "$(awk "BEGIN { print ($3 > 2) }")" = 1 ] && holds "$2" && stands_by "$1"
}
holder() { if holds coordinator; then echo coordinator; else echo standby; fi; }
other() { if [ "$1" = coordinator ]; then echo standby; else echo coordinator; fi; }
reached() { [ "$(ask "$1" applied_step)" -ge "$2" ]; }

# freeze NAME SECONDS WITNESS: WITNESS, a coordinator, must answer all the while.
freeze() {
  local name=$1 seconds=$2 witness=$3 pid start asked step answered=0
  pid=$(pid_of "$name")
  start=$(now_ms)
  kill -STOP "$pid"
  while [ $(($(now_ms) - start)) -lt "$(awk "BEGIN { print int($seconds * 1000) }")" ]; do
    asked=$(now_ms)
    step=$(ask "$witness" applied_step)
    # A shard that does not answer is given two seconds.
    [ -n "$step" ] && [ $(($(now_ms) - asked)) -lt "$(stretched 5000)" ] || fail "$witness did not answer in time while $name was stopped"
    answered=$((answered + 1))
  done
  kill -CONT "$pid"
  echo "$name stopped for $(($(now_ms) - start)) ms, $witness answered $answered times"
}
# late_decisions: prints the count of decisions of replaced coordinators, from the shards.
late_decisions() {
  cat "$DIR"/shard-*.log | grep -c 'decision of position [0-9]* of .* refused: REFUSAL_REASON_OLD_BALLOT' || true
}
# late_messages: prints the count of late messages of any kind, from the shards.
late_messages() {
  timeout 10 "$KAONCTL" --endpoints "$(address "$(holder)")" --tls-dir "$DIR/tls" -o json status | python3 -c '
import json, sys
print(sum(shard.get("events", {}).get("control_refused.old_ballot", 0) for shard in json.load(sys.stdin)["shards"]))'
}
refused_late() { [ "$(late_messages)" -gt 0 ]; }
# progress COORDINATOR: waits for two more steps.
progress() {
  local step start
  start=$(now_ms)
  step=$(ask "$1" applied_step)
  wait_for 30 reached "$1" $((step + 2)) || give_up
  echo "going on after $(($(now_ms) - start)) ms"
}

start 2 2
cluster_spawn "$DIR" standby "$KAON_COORDINATOR" --listen 127.0.0.1:0 --shards "$(address shard-0),$(address shard-1)" \
  --port-file "$DIR/standby.port" --tls-ca-file "$DIR/tls/ca.crt" \
  --tls-certificate-file "$DIR/tls/coordinator.crt" --tls-private-key-file "$DIR/tls/coordinator.key"
cluster_wait_port "$DIR" standby
CONNECT="$(address coordinator),$(address standby)"
launch 0 --steps "$STEPS"
launch 1 --steps "$STEPS"
wait_for 60 reached coordinator 5 || give_up

for seconds in $FREEZES; do
  for name in shard-1 rank-1 rank-0; do
    freeze "$name" "$seconds" "$(holder)"
    progress "$(holder)"
  done
  frozen=$(holder)
  next=$(other "$frozen")
  freeze "$frozen" "$seconds" "$next"
  # A coordinator that was away for that long was replaced and steps down.
  if [ "$(awk "BEGIN { print ($seconds > 2) }")" = 1 ]; then
    wait_for 30 one_holds "$next" "$frozen" "$seconds" || { fail "$next does not hold the shards alone"; give_up; }
  fi
  progress "$(holder)"
done

# A coordinator that is stopped during the vote finds the votes when it continues. It decides although another one
# holds the shards by then.
tries=0
until [ "$(late_decisions)" -gt 0 ]; do
  tries=$((tries + 1))
  [ $tries -le "$MOST_TRIES" ] || { fail "no decision came late in $MOST_TRIES tries"; break; }
  frozen=$(holder)
  next=$(other "$frozen")
  freeze "$frozen" "$REPLACED_SECONDS" "$next"
  wait_for 30 one_holds "$next" "$frozen" "$REPLACED_SECONDS" || give_up
  progress "$(holder)"
done
# The answer comes as soon as the shards are described.
wait_for 30 refused_late || give_up
echo "late: the shards refused $(late_messages) messages of replaced coordinators, decisions among them: $(late_decisions)"

# From here on kaonctl asks this coordinator.
cp "$DIR/$(holder).port" "$DIR/holder.port" && mv "$DIR/holder.port" "$DIR/coordinator.port"
compare_open "$STEPS"
kill -TERM "$(cat "$DIR/standby.pid")"
stop
finish
