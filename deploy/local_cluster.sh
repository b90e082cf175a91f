#!/bin/bash
# A Kaon cluster on this machine's loopback addresses: one coordinator and some shards, mTLS between all of them.
# Run it, or source it and use its functions (deploy/quickstart.sh and the tests do).
#
# A cluster's directory (mode 0700) holds tls/ with the certificates, and for each of `coordinator`, `shard-0`, ...
# NAME.port, NAME.pid and NAME.log; shards also have a data directory shard-N/. With KAON_METRICS=1 each server serves metrics
# at the port in NAME.metrics-port, and metrics.token is their token.

local_cluster_usage() {
  cat <<'TEXT'
Usage: deploy/local_cluster.sh start DIR [OPTION]...
       deploy/local_cluster.sh run DIR [OPTION]...
       deploy/local_cluster.sh stop DIR

start   makes DIR with new certificates, starts the servers, waits until they serve, and leaves them running
run     the same, but ends them at the first line or the end of the standard input, and then exits
stop    ends them

  --shards N             number of shards (2)
  --workers N|any        certificates for N ranks (2), or one for every rank
  --checkpoint-dir PATH  where the servers keep checkpoints; made if it is not there (none)
  --fresh                removes the weights of an earlier cluster in DIR, which is refused otherwise
  --binaries BIN         where the programs are

BIN is a bazel-bin of `bazel build //server/... //client/train:kaon-train`, or the bin/ of deploy/install.sh
(default: this checkout's, or that of the installation which has this script).
TEXT
}

KAON_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

cluster_say() { echo "local_cluster: $*" >&2; }

# cluster_find_binaries [BIN]: sets KAON_COORDINATOR, KAON_SHARD, KAONCTL and KAON_TRAIN.
cluster_find_binaries() {
  local bin=${1:-$KAON_ROOT/.bazel/bin} binary
  # deploy/install.sh puts this script into share/kaon/deploy.
  [ -n "${1:-}" ] || [ ! -x "$KAON_ROOT/../../bin/kaon-shard" ] || bin=$(cd "$KAON_ROOT/../../bin" && pwd)
  KAON_COORDINATOR=$bin/server/coordinator/kaon-coordinator
  KAON_SHARD=$bin/server/shard/kaon-shard
  KAONCTL=$bin/server/admin_cli/kaonctl
  KAON_TRAIN=$bin/client/train/kaon-train
  if [ -x "$bin/kaon-shard" ]; then
    KAON_COORDINATOR=$bin/kaon-coordinator
    KAON_SHARD=$bin/kaon-shard
    KAONCTL=$bin/kaonctl
    KAON_TRAIN=$bin/kaon-train
  fi
  for binary in "$KAON_COORDINATOR" "$KAON_SHARD" "$KAONCTL"; do
    if [ ! -x "$binary" ]; then
      cluster_say "$binary is missing: build it first"
      return 1
    fi
  done
}

# cluster_alive DIR NAME: whether that server runs.
cluster_alive() {
  local pid state parent
  pid=$(cat "$1/$2.pid" 2>/dev/null) || return 1
  read -r state parent < <(ps -o stat=,ppid= -p "$pid" 2>/dev/null) || return 1
  [[ $state != Z* ]] || return 1
  # The pid of a child cannot be used again before it is waited for; any other might be somebody else's by now.
  [ "$parent" = $$ ] || tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -q kaon-
}

# cluster_spawn DIR NAME COMMAND...: starts a server in a session of its own, so that Ctrl-C reaches this script alone
# and the servers are stopped in order. Unless KAON_CLUSTER_DETACHED is set, a server ends when this shell dies.
cluster_spawn() {
  local dir=$1 name=$2
  shift 2
  rm -f "$dir/$name.port"
  local bind=(setpriv --pdeathsig TERM)
  [ -z "${KAON_CLUSTER_DETACHED:-}" ] || bind=()
  setsid ${bind[@]+"${bind[@]}"} "$@" </dev/null >>"$dir/$name.log" 2>&1 &
  echo $! >"$dir/$name.pid"
}

# cluster_wait_port DIR NAME: waits until the server has written its port; fails when it died or after a minute.
cluster_wait_port() {
  local dir=$1 name=$2 deadline=$((SECONDS + 60))
  until [ -s "$dir/$name.port" ]; do
    if ! cluster_alive "$dir" "$name" && [ ! -s "$dir/$name.port" ]; then
      cluster_say "$name ended while starting"
      return 1
    fi
    if [ $SECONDS -ge $deadline ]; then
      cluster_say "$name did not serve within 60 s"
      return 1
    fi
    sleep 0.05
  done
}

# cluster_listen [LISTEN]: sets KAON_LISTEN to that, or to a port that this shell has given to no server, as one that is starting
# does not listen yet, and that nobody listens on, outside of the range from which outgoing connections get theirs: a server that
# is started again must find it free, while its clients try to reach it.
KAON_GIVEN_PORTS=" "
cluster_listen() {
  local port
  KAON_LISTEN=${1:-}
  [ -z "$KAON_LISTEN" ] || return 0
  while true; do
    port=$((20000 + RANDOM % 12000))
    [[ $KAON_GIVEN_PORTS != *" $port "* ]] || continue
    (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
  done
  KAON_GIVEN_PORTS+="$port "
  KAON_LISTEN=127.0.0.1:$port
}

# cluster_metrics DIR NAME: sets the array KAON_METRICS_FLAGS. With KAON_METRICS=1 a server serves metrics, on the port that
# it had before if it is started again.
cluster_metrics() {
  local dir=$1 name=$2 listen=$KAON_LISTEN
  KAON_METRICS_FLAGS=()
  [ -n "${KAON_METRICS:-}" ] || return 0
  [ -s "$dir/metrics.token" ] || (umask 077 && openssl rand -hex 24 >"$dir/metrics.token")
  cluster_listen "$([ ! -s "$dir/$name.metrics-port" ] || echo "127.0.0.1:$(cat "$dir/$name.metrics-port")")"
  KAON_METRICS_FLAGS=(--metrics-address "$KAON_LISTEN" --metrics-port-file "$dir/$name.metrics-port"
    --metrics-token-file "$dir/metrics.token")
  KAON_LISTEN=$listen
}

# cluster_status_link DIR: prints the link of the status page, with its token.
cluster_status_link() { echo "http://127.0.0.1:$(cat "$1/coordinator.metrics-port")/?token=$(cat "$1/metrics.token")"; }

# cluster_start_shard DIR N [LISTEN]: with KAON_NVME_BYTES the shard keeps parameters in NAME-nvme/ too.
cluster_start_shard() {
  local dir=$1 name=shard-$2 disk=()
  cluster_listen "${3:-}"
  mkdir -p -m 700 "$dir/$name"
  if [ -n "${KAON_NVME_BYTES:-}" ]; then
    mkdir -p "$dir/$name-nvme"
    disk=(--nvme-dirs "$dir/$name-nvme")
  fi
  cluster_metrics "$dir" "$name"
  cluster_spawn "$dir" "$name" "$KAON_SHARD" --listen "$KAON_LISTEN" --data-dir "$dir/$name" \
    --port-file "$dir/$name.port" --tls-ca-file "$dir/tls/ca.crt" \
    --tls-certificate-file "$dir/tls/shard.crt" --tls-private-key-file "$dir/tls/shard.key" "${disk[@]}" \
    "${KAON_METRICS_FLAGS[@]}"
}

# cluster_start_coordinator DIR SHARDS [LISTEN]: the shards must serve already.
cluster_start_coordinator() {
  local dir=$1 shards=$2 addresses= i
  cluster_listen "${3:-}"
  for ((i = 0; i < shards; i++)); do
    addresses+=${addresses:+,}127.0.0.1:$(cat "$dir/shard-$i.port")
  done
  cluster_metrics "$dir" coordinator
  cluster_spawn "$dir" coordinator "$KAON_COORDINATOR" --listen "$KAON_LISTEN" --shards "$addresses" \
    --port-file "$dir/coordinator.port" --tls-ca-file "$dir/tls/ca.crt" \
    --tls-certificate-file "$dir/tls/coordinator.crt" \
    --tls-private-key-file "$dir/tls/coordinator.key" "${KAON_METRICS_FLAGS[@]}"
}

# cluster_wait_serving DIR: waits until the coordinator holds every shard, as kaonctl sees it.
cluster_wait_serving() {
  local dir=$1 deadline=$((SECONDS + 60)) status=
  until status=$("$KAONCTL" --dir "$dir" --timeout 5 -o json status 2>&1) &&
    [[ $status == *'"holder": true'* && $status != *'"connected": false'* ]]; do
    if ! cluster_alive "$dir" coordinator || [ $SECONDS -ge $deadline ]; then
      cluster_say "the coordinator does not hold all shards; last answer: $status"
      return 1
    fi
    sleep 0.1
  done
}

# cluster_claim DIR: fails, and says why, if a server of a cluster already runs there. Its shards outlive a coordinator.
cluster_claim() {
  local file
  for file in "$1"/coordinator.pid "$1"/shard-*.pid; do
    cluster_alive "$1" "$(basename "$file" .pid)" || continue
    cluster_say "$1 already has a running cluster; stop it with deploy/local_cluster.sh stop $1"
    return 1
  done
}

# cluster_start DIR SHARDS WORKERS: certificates, shards, coordinator; returns when they serve.
cluster_start() {
  local dir=$1 shards=$2 workers=$3 i extra extras=()
  mkdir -p -m 700 "$dir" || return 1
  rm -rf "$dir"/tls "$dir"/shard-* "$dir"/coordinator.* "$dir"/metrics.token
  # KAON_EXTRA_CERTIFICATES: more client certificates, such as "reader=reader checkpointer=checkpointer".
  for extra in ${KAON_EXTRA_CERTIFICATES:-}; do extras+=(--extra "$extra"); done
  "$KAON_ROOT/deploy/certificates.sh" "$dir/tls" --workers "$workers" ${extras[@]+"${extras[@]}"} >/dev/null || return 1
  for ((i = 0; i < shards; i++)); do cluster_start_shard "$dir" "$i"; done
  for ((i = 0; i < shards; i++)); do cluster_wait_port "$dir" "shard-$i" || return 1; done
  cluster_start_coordinator "$dir" "$shards"
  cluster_wait_port "$dir" coordinator && cluster_wait_serving "$dir"
}

# cluster_end DIR NAME...: ends these servers concurrently. One that is still there after KAON_STOP_SECONDS (40) is killed,
# which is an error. A shard ends within 22 s (docs/design/operations.md).
cluster_end() {
  local dir=$1 name pid deadline failed=0 patience=${KAON_STOP_SECONDS:-40}
  shift
  for name; do
    if cluster_alive "$dir" "$name"; then kill -TERM "$(cat "$dir/$name.pid")" 2>/dev/null || true; fi
  done
  deadline=$((SECONDS + patience))
  for name; do
    [ -e "$dir/$name.pid" ] || continue
    pid=$(cat "$dir/$name.pid")
    while cluster_alive "$dir" "$name"; do
      if [ $SECONDS -ge $deadline ]; then
        cluster_say "$name (pid $pid) did not stop within $patience s; killing it"
        kill -KILL "$pid" 2>/dev/null || true
        failed=1
        break
      fi
      sleep 0.05
    done
    wait "$pid" 2>/dev/null || true
    rm -f "$dir/$name.pid"
  done
  return $failed
}

# cluster_stop DIR: ends the coordinator first, so that it does not report shards that go, and then all shards.
cluster_stop() {
  local dir=$1 file failed=0 shards=()
  for file in "$dir"/shard-*.pid; do
    [ ! -e "$file" ] || shards+=("$(basename "$file" .pid)")
  done
  cluster_end "$dir" coordinator || failed=1
  cluster_end "$dir" "${shards[@]}" || failed=1
  return $failed
}

# cluster_kill DIR NAME: ends a server as a crash would.
cluster_kill() {
  local pid
  pid=$(cat "$1/$2.pid")
  kill -KILL "$pid" 2>/dev/null || true
  wait "$pid" 2>/dev/null || true
}

# cluster_revive_shard DIR N: starts a killed shard again on its data and its port; returns when it serves.
cluster_revive_shard() {
  local dir=$1 port
  port=$(cat "$dir/shard-$2.port")
  cluster_start_shard "$dir" "$2" "127.0.0.1:$port"
  cluster_wait_port "$dir" "shard-$2"
}

# cluster_revive_coordinator DIR SHARDS: the same of the coordinator; the shards must serve.
cluster_revive_coordinator() {
  local dir=$1 port
  port=$(cat "$dir/coordinator.port")
  cluster_start_coordinator "$dir" "$2" "127.0.0.1:$port"
  cluster_wait_port "$dir" coordinator
}

# cluster_show_logs DIR: the end of every server's log.
cluster_show_logs() {
  local log
  for log in "$1"/*.log; do
    [ -e "$log" ] || continue
    echo "--- $log"
    tail -n 25 "$log"
  done >&2
}

local_cluster_main() {
  set -euo pipefail
  local action=${1:-} dir=${2:-} shards=2 workers=2 binaries= fresh=
  case "$action" in
    --help | -h) local_cluster_usage; return 0 ;;
    start | run | stop) ;;
    *) local_cluster_usage >&2; return 2 ;;
  esac
  if [ -z "$dir" ]; then
    local_cluster_usage >&2
    return 2
  fi
  shift 2
  while [ $# -gt 0 ]; do
    case "$1" in
      --shards) shards=${2:?}; shift 2 ;;
      --workers) workers=${2:?}; shift 2 ;;
      --binaries) binaries=${2:?}; shift 2 ;;
      --checkpoint-dir) KAON_CHECKPOINT_DIR=$(realpath -m "${2:?}"); export KAON_CHECKPOINT_DIR; shift 2 ;;
      --fresh) fresh=1; shift ;;
      *) local_cluster_usage >&2; return 2 ;;
    esac
  done
  if [ "$action" = stop ]; then
    cluster_stop "$dir"
    return
  fi
  dir=$(realpath -m "$dir")
  cluster_find_binaries "$binaries"
  [ "$action" = run ] || KAON_CLUSTER_DETACHED=1
  cluster_claim "$dir"
  if [ -z "$fresh" ] && compgen -G "$dir/shard-*/" >/dev/null; then
    cluster_say "$dir has the weights of an earlier cluster; name another directory, or remove them by --fresh"
    return 1
  fi
  [ -z "${KAON_CHECKPOINT_DIR:-}" ] || mkdir -p -m 700 "$KAON_CHECKPOINT_DIR"
  if ! cluster_start "$dir" "$shards" "$workers"; then
    cluster_show_logs "$dir"
    cluster_stop "$dir" || true
    # Nothing was trained there, so the next start need not be --fresh.
    rm -rf "$dir"/shard-*/
    return 1
  fi
  if [ "$action" = run ]; then
    echo "Serving on 127.0.0.1:$(cat "$dir/coordinator.port") until the standard input has a line or ends"
    read -r || true
    cluster_stop "$dir"
    return
  fi
  echo "Serving on 127.0.0.1:$(cat "$dir/coordinator.port"); stop with: deploy/local_cluster.sh stop $dir"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  local_cluster_main "$@"
fi
