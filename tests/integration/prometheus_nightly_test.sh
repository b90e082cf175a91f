#!/bin/bash
# A real Prometheus scrapes a training cluster by the rules of deploy/prometheus: the recording rules have values, no alert
# fires, and one does once a shard is killed.
source tests/integration/real_cluster.sh

command -v prometheus >/dev/null || { echo "FAILED: no prometheus: deploy/install_packages.sh --monitor"; exit 1; }
HOME_OF_IT=$TEST_TMPDIR/prometheus

# ask PATH PYTHON: prints what the expression makes of `data` of the answer.
ask() {
  python3 -c '
import json, sys, urllib.request
data = json.load(urllib.request.urlopen(sys.argv[1], timeout=20))["data"]
print(eval(sys.argv[2]))' "http://$LISTEN/api/v1/$1" "$2" 2>/dev/null
}
value() { ask "query?query=$1" 'float(data["result"][0]["value"][1])'; }
is_above() { python3 -c 'import sys; sys.exit(not float(sys.argv[1] or "nan") > float(sys.argv[2]))' "$(value "$1")" "$2"; }
firing() { ask alerts '" ".join(sorted(a["labels"]["alertname"] for a in data["alerts"] if a["state"] == "firing"))'; }
fires() { [[ " $(firing) " == *" $1 "* ]]; }

start_prometheus() {
  local targets="" i
  mkdir -p "$HOME_OF_IT"
  cp deploy/prometheus/rules.yml "$HOME_OF_IT/"
  for i in 0 1; do targets+="\"127.0.0.1:$(cat "$DIR/shard-$i.metrics-port")\", "; done
  # As deploy/prometheus/prometheus.yml, on loopback and faster.
  cat >"$HOME_OF_IT/prometheus.yml" <<TEXT
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [rules.yml]
scrape_configs:
  - {job_name: kaon-coordinator, static_configs: [{targets: ["127.0.0.1:$(cat "$DIR/coordinator.metrics-port")"]}]}
  - {job_name: kaon-shard, static_configs: [{targets: [$targets]}]}
TEXT
  cluster_listen
  LISTEN=$KAON_LISTEN
  prometheus --config.file="$HOME_OF_IT/prometheus.yml" --storage.tsdb.path="$HOME_OF_IT/data" \
    --web.listen-address="$LISTEN" >"$HOME_OF_IT/log" 2>&1 &
  prometheus_pid=$!
}

KAON_METRICS=1 start 2 2
train "$TEST_TMPDIR/train" --workers 2 --steps 100000 &
trainer_pid=$!
start_prometheus
trap 'kill $prometheus_pid $trainer_pid 2>/dev/null || true; cluster_stop "$DIR" >/dev/null 2>&1 || true' EXIT
wait_for 60 is_above kaon_job_applied_step 100 || tail -n 20 "$HOME_OF_IT/log"
wait_for 60 is_above kaon:job_steps:rate5m 0 || fail "no rate of steps"
wait_for 60 is_above 'sum(kaon:shard_phase_seconds:per_step)' 0 || fail "no phases"
wait_for 60 is_above 'kaon:shard_step_seconds:p99' 0 || fail "no time of a step"
wait_for 60 is_above 'sum(kaon:shard_transfer_bytes:rate5m)' 0 || fail "no transfers"
[ "$(ask targets 'sum(t["health"] == "up" for t in data["activeTargets"])')" = 3 ] || fail "not every server is scraped"
# The certificates of a local cluster last for less than the 14 days of that alert.
alerts=$(firing | tr ' ' '\n' | sort -u | tr '\n' ' ')
[ "$alerts" = "KaonCertificateExpires " ] || fail "a cluster that trains has alerts: $alerts"
cluster_kill "$DIR" shard-1
wait_for 120 fires KaonShardDown || ask alerts data
wait_for 120 fires KaonServerDown || ask alerts data
cluster_revive_shard "$DIR" 1
wait_for 60 is_above 'min(kaon_coordinator_shard_up)' 0 || fail "the shard is not back"
kill -TERM $trainer_pid
wait $trainer_pid || true
kill $prometheus_pid
stop
finish
