#!/bin/bash
# Tests how deploy/quickstart.sh starts and stops, with fakes of the four programs: the order of steps, exit
# statuses, and that no process and no directory is left behind.
set -euo pipefail

quickstart=$PWD/deploy/quickstart.sh
stop=$PWD/deploy/local_cluster.sh
export LOCAL= FAKE=$TEST_TMPDIR/fake TMPDIR=$TEST_TMPDIR/tmp
failures=0

fail() {
  echo "FAILED: $current: $*"
  failures=$((failures + 1))
}

# fake PATH BODY: a program that writes its pid to $FAKE/pids and then does BODY.
fake() {
  mkdir -p "$(dirname "$FAKE/bin/$1")"
  printf '#!/bin/bash\necho $$ >>"$FAKE/pids"\n%s\n' "$2" >"$FAKE/bin/$1"
  chmod +x "$FAKE/bin/$1"
}

serve='
while [ $# -gt 0 ]; do [ "$1" != --port-file ] || echo 1234 >"$2"; shift; done
echo "serving as $0"
exec -a "$0" sleep 1000'

# The answer of kaonctl to every question, and the trainer's last line.
answer='echo "{\"holder\": true, \"parameters\": [
  {\"name\": \"hidden.weight\", \"route\": \"muon\", \"newton_schulz_updates\": ${COUNTED:-1}},
  {\"name\": \"hidden.bias\", \"route\": \"adamw\", \"newton_schulz_updates\": 0}]}"'
summary='SUMMARY {"steps": 1, "newton_schulz_updates": {"hidden.weight": 1}}'

begin() {
  current=$1
  rm -rf "$FAKE" "$TMPDIR"
  mkdir -p "$FAKE" "$TMPDIR"
  touch "$FAKE/pids"
  fake server/coordinator/kaon-coordinator "$serve"
  fake server/shard/kaon-shard "$serve"
  fake server/admin_cli/kaonctl "$answer"
  fake client/train/kaon-train "echo 'step 1'; echo '$summary'"
}

run() {
  result=0
  "$quickstart" --binaries "$FAKE/bin" "$@" >"$FAKE/out" 2>"$FAKE/err" || result=$?
}

# wait_for COMMAND...: polls until the command succeeds, 30 seconds at most.
wait_for() {
  local deadline=$((SECONDS + 30))
  until "$@"; do
    [ $SECONDS -lt $deadline ] || { fail "waited in vain for: $*"; return 0; }
    sleep 0.05
  done
}

nothing_runs() {
  local pid
  while read -r pid; do
    [[ $(ps -o stat= -p "$pid") =~ ^[^Z] ]] && return 1
  done <"$FAKE/pids"
  return 0
}

expect_status() { [ "$result" -eq "$1" ] || fail "exit status $result, expecting $1: $(cat "$FAKE/err")"; }
expect_no_process() { nothing_runs || fail "a process is left"; }
expect_no_directory() { [ -z "$(ls -A "$TMPDIR")" ] || fail "left behind: $(ls -A "$TMPDIR")"; }

begin "a run that succeeds"
run
expect_status 0
expect_no_process
expect_no_directory
[ "$(tail -n 1 "$FAKE/out")" = "$summary" ] || fail "last line: $(tail -n 1 "$FAKE/out")"
[ "$(grep -c SUMMARY "$FAKE/out")" -eq 1 ] || fail "the summary is printed more than once"
[ "$(wc -l <"$FAKE/pids")" -ge 6 ] || fail "fewer programs ran than 2 shards, coordinator, trainer and kaonctl"

begin "the words at the end"
fake client/train/kaon-train "echo 'step     1  loss 4.5643  |adamw| 2.0'; echo 'step   120  loss 1.7011'; echo '$summary'"
run
expect_status 0
[ "$(tail -n 3 "$FAKE/out" | head -n 1)" = \
  "==> It worked: 2 workers trained a model on 2 shards; the training loss went from 4.5643 to 1.7011." ] || fail "$(cat "$FAKE/out")"
[[ $(tail -n 2 "$FAKE/out" | head -n 1) = "==> Next: "* ]] || fail "it is not said what to do next: $(cat "$FAKE/out")"

# build_copy: the quickstart in a checkout of its own, with a bazel whose first command starts a server.
build_copy() {
  mkdir -p "$FAKE/root/deploy" "$FAKE/path" "$FAKE/home"
  cp deploy/*.sh "$FAKE/root/deploy/"
  printf '#!/bin/bash\n' >"$FAKE/root/deploy/install_packages.sh"
  printf '#!/bin/bash\necho /cache\n' >"$FAKE/root/deploy/disk_cache.sh"
  cat >"$FAKE/path/bazel" <<'BAZEL'
#!/bin/bash
echo "$1" >>"$FAKE/bazel"
[ "$1" = build ] || exit 0
touch "$FAKE/building"
exec sleep 1000
BAZEL
  chmod +x "$FAKE"/root/deploy/*.sh "$FAKE/path/bazel"
}

for server in none there; do
  begin "Ctrl-C while building, Bazel server: $server"
  build_copy
  place=$FAKE/home/.cache/bazel/_bazel_tester/$(printf %s "$FAKE/root" | md5sum | cut -c1-32)/server
  mkdir -p "$place"
  [ "$server" = none ] || echo $$ >"$place/server.pid.txt"
  HOME=$FAKE/home USER=tester PATH=$FAKE/path:$PATH python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$FAKE/root/deploy/quickstart.sh" >"$FAKE/out" 2>"$FAKE/err" &
  pid=$!
  wait_for test -e "$FAKE/building"
  kill -s INT "$pid"
  result=0
  wait "$pid" || result=$?
  expect_status 130
  wanted=build
  [ "$server" = there ] || wanted+=" shutdown"
  [ "$(tr '\n' ' ' <"$FAKE/bazel" | sed 's/ $//')" = "$wanted" ] || fail "bazel was called: $(cat "$FAKE/bazel"), expecting $wanted"
done

begin "as many shards and steps as asked for"
fake client/train/kaon-train "echo \"\$*\"; echo '$summary'"
run --shards 3 --workers 1 --steps 7
expect_status 0
grep -q -e "--workers 1 --steps 7" "$FAKE/out" || fail "$(cat "$FAKE/out")"

begin "a trainer that fails"
fake client/train/kaon-train 'echo "out of luck" >&2; exit 3'
run
expect_status 1
expect_no_process
grep -q "out of luck" "$FAKE/err" || fail "the trainer's words are not shown"
grep -q "serving as" "$FAKE/err" || fail "the servers' logs are not shown"
[ -n "$(ls -A "$TMPDIR")" ] || fail "the logs are gone"

begin "shards that counted other updates than the trainer says"
COUNTED=3 run
expect_status 1
expect_no_process
grep -q "parameter hidden.weight: the summary says 1 Newton-Schulz updates, the shards counted 3" "$FAKE/err" ||
  fail "it is not said which: $(cat "$FAKE/err")"
grep -q "serving as" "$FAKE/err" || fail "the servers' logs are not shown"

begin "a matrix that the trainer does not know, and one that the shards do not"
fake client/train/kaon-train "echo '${summary/hidden.weight/output.weight}'"
run
expect_status 1
grep -q "parameter hidden.weight: the summary says nothing, the shards counted 1" "$FAKE/err" || fail "$(cat "$FAKE/err")"
grep -q "parameter output.weight: the summary says 1 Newton-Schulz updates, the shards counted nothing" "$FAKE/err" ||
  fail "$(cat "$FAKE/err")"

begin "a cluster without any matrix"
fake server/admin_cli/kaonctl 'echo "{\"holder\": true, \"parameters\": []}"'
fake client/train/kaon-train 'echo "SUMMARY {\"steps\": 1, \"newton_schulz_updates\": {}}"'
run
expect_status 1
grep -q "no parameter goes to Muon" "$FAKE/err" || fail "$(cat "$FAKE/err")"

begin "a shard that dies while starting"
fake server/shard/kaon-shard 'echo "no memory"; exit 1'
run
expect_status 1
expect_no_process
grep -q "no memory" "$FAKE/err" || fail "the shard's words are not shown"

begin "a coordinator that never holds the shards and dies"
fake server/coordinator/kaon-coordinator "${serve/sleep 1000/sleep 1}"
fake server/admin_cli/kaonctl 'echo "{\"holder\": false}"'
run
expect_status 1
expect_no_process

for signal in INT:130 TERM:143 HUP:129; do
  begin "signal ${signal%:*} while training"
  fake client/train/kaon-train 'touch "$FAKE/training"; exec -a "$0" sleep 1000'
  # A background job of a script ignores SIGINT, so a new process restores its handling.
  python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$quickstart" --binaries "$FAKE/bin" >"$FAKE/out" 2>"$FAKE/err" &
  pid=$!
  wait_for test -e "$FAKE/training"
  kill -s "${signal%:*}" "$pid"
  result=0
  wait "$pid" || result=$?
  expect_status "${signal#*:}"
  grep -q "stopped by SIG${signal%:*}" "$FAKE/err" || fail "it is not said why: $(cat "$FAKE/err")"
  expect_no_process
  expect_no_directory
done

begin "SIGKILL while training"
fake client/train/kaon-train 'touch "$FAKE/training"; exec -a "$0" sleep 1000'
"$quickstart" --binaries "$FAKE/bin" >"$FAKE/out" 2>"$FAKE/err" &
pid=$!
wait_for test -e "$FAKE/training"
kill -KILL "$pid"
wait "$pid" 2>/dev/null || true
wait_for nothing_runs

begin "a server that ignores SIGTERM"
fake server/shard/kaon-shard "trap '' TERM
$serve"
export KAON_STOP_SECONDS=2
run --shards 1
unset KAON_STOP_SECONDS
expect_status 1
expect_no_process
grep -q "did not stop within 2 s" "$FAKE/err" || fail "$(cat "$FAKE/err")"

# Takes steps only as servers return, and ends with the digest that it gets.
chaotic='
log=
case "$*" in *--local*) echo "SUMMARY {\"weights_digest\": \"$LOCAL\"}"; exit ;; esac
while [ $# -gt 0 ]; do [ "$1" != --log-jsonl ] || log=$2; shift; done
started() { [ "$(cat "$FAKE/servers" 2>/dev/null | wc -l)" -ge "$1" ]; }
for step in 1 2 3 4 5 6 7 8 9; do
  echo "{\"type\": \"step\", \"step\": $step}" >>"$log"
  [ $step -ne 3 ] || until started 4; do sleep 0.05; done
  [ $step -ne 6 ] || until started 6; do sleep 0.05; done
done
echo "SUMMARY {\"weights_digest\": \"00ff\", \"newton_schulz_updates\": {\"hidden.weight\": 1}}"'

begin_chaos() {
  begin "$1"
  fake client/train/kaon-train "$chaotic"
  for server in coordinator/kaon-coordinator shard/kaon-shard; do
    fake "server/$server" "echo \"\$*\" >>\"\$FAKE/servers\"$serve"
  done
}

begin_chaos "--chaos that ends in the same bits"
LOCAL=00ff run --chaos --steps 9
expect_status 0
expect_no_process
expect_no_directory
grep -q "killing shard-1 with -9 after step 3" "$FAKE/out" || fail "$(cat "$FAKE/out")"
grep -q "killing shard-0 coordinator with -9 after step 6" "$FAKE/out" || fail "$(cat "$FAKE/out")"
[ "$(grep -c "training goes on after" "$FAKE/out")" -eq 2 ] || fail "recovery is not timed: $(cat "$FAKE/out")"
grep -q "weights digest 00ff with 3 kills, 00ff undisturbed" "$FAKE/out" || fail "$(cat "$FAKE/out")"
[ "$(tail -n 1 "$FAKE/out")" = "$(grep '^SUMMARY' "$FAKE/out")" ] || fail "last line: $(tail -n 1 "$FAKE/out")"
# Two shards and a coordinator start, and then all three again, with the same data and the same port.
[ "$(wc -l <"$FAKE/servers")" -eq 6 ] || fail "started: $(cat "$FAKE/servers")"
[ "$(grep -c -e "--listen 127.0.0.1:1234" "$FAKE/servers")" -eq 3 ] || fail "started: $(cat "$FAKE/servers")"
[ "$(grep -o -e "--data-dir [^ ]*" "$FAKE/servers" | sort -u | wc -l)" -eq 2 ] || fail "started: $(cat "$FAKE/servers")"

begin_chaos "--chaos that ends in other bits"
LOCAL=00fe run --chaos --steps 9
expect_status 1
expect_no_process
grep -q "weights digest '00ff' with kills, '00fe' undisturbed" "$FAKE/err" || fail "$(cat "$FAKE/err")"

# The trainer makes no step after step 4, or after step 2.
for ending in "5 6 7 8 9:1" "3 4 5 6 7 8 9:0"; do
  begin_chaos "--chaos and a training that ends after ${ending#*:} of the kills"
  fake client/train/kaon-train "${chaotic/${ending%:*}/}"
  LOCAL=00ff run --chaos --steps 9
  expect_status 1
  expect_no_process
  grep -q "training ended after ${ending#*:} of 3 kills" "$FAKE/err" || fail "$(cat "$FAKE/err")"
  grep -q "the same bits" "$FAKE/out" && fail "compared all the same: $(cat "$FAKE/out")"
done

begin_chaos "--chaos and a shard that does not come back"
fake server/shard/kaon-shard "echo \"\$*\" >>\"\$FAKE/servers\"
[ \"\$(wc -l <\"\$FAKE/servers\")\" -le 3 ] || { echo 'no disk'; exit 1; }$serve"
LOCAL=00ff run --chaos --steps 9
expect_status 1
expect_no_process
grep -q "no disk" "$FAKE/err" || fail "the shard's words are not shown: $(cat "$FAKE/err")"

begin "--keep-running"
run --keep-running --dir "$FAKE/cluster"
expect_status 0
nothing_runs && fail "nothing is left running"
"$stop" stop "$FAKE/cluster"
expect_no_process
[ -e "$FAKE/cluster/tls/ca.crt" ] || fail "the directory that was asked for is gone"

begin "a directory whose cluster runs"
run --keep-running --dir "$FAKE/cluster"
run --dir "$FAKE/cluster"
expect_status 1
grep -q "already has a running cluster" "$FAKE/err" || fail "$(cat "$FAKE/err")"
nothing_runs && fail "it was stopped"
"$stop" stop "$FAKE/cluster"
expect_no_process

begin "a directory whose coordinator alone has ended"
run --keep-running --dir "$FAKE/cluster"
kill -KILL "$(cat "$FAKE/cluster/coordinator.pid")"
run --dir "$FAKE/cluster"
expect_status 1
grep -q "already has a running cluster" "$FAKE/err" || fail "$(cat "$FAKE/err")"
[ -e "$FAKE/cluster/shard-1.pid" ] || fail "the files of running shards are gone"
"$stop" stop "$FAKE/cluster"
expect_no_process

begin "ports of servers that do not listen yet"
ports=$(
  # shellcheck source=deploy/local_cluster.sh
  source "$stop"
  KAON_SHARD=kaon-shard KAON_COORDINATOR=kaon-coordinator
  cluster_spawn() { echo "$*" | grep -o -e "--listen [^ ]*"; }
  # Each shard draws the same ports.
  for i in 0 1; do RANDOM=7 && cluster_start_shard "$FAKE" $i; done
  RANDOM=7 && cluster_start_coordinator "$FAKE" 0
  # Drawn in a subshell, a port would be forgotten, and the draws above would differ by themselves.
  [ "$(wc -w <<<"$KAON_GIVEN_PORTS")" -eq 3 ] || echo "not all are remembered:$KAON_GIVEN_PORTS"
)
[[ $ports != *remembered* && $(sort -u <<<"$ports" | wc -l) -eq 3 ]] || fail "$ports"

begin "bad command lines"
for line in "--shards 0" "--shards" "--steps x" "--explode" "--chaos --steps 2"; do
  # shellcheck disable=SC2086
  run $line
  expect_status 2
done
run --help
expect_status 0

[ "$failures" -eq 0 ] || { echo "$failures failures"; exit 1; }
