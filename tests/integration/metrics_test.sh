#!/bin/bash
# Metrics of a real cluster: on loopback by HTTP, elsewhere by HTTPS with a token. They agree with kaonctl. A shard also
# logs JSON, and kaonctl follows the steps.
source tests/integration/real_cluster.sh

STEPS=12

# scrape NAME: prints the metrics of that server.
scrape() {
  python3 -c '
import sys, urllib.request
print(urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/metrics", timeout=20).read().decode(), end="")' \
    "$(cat "$DIR/$1.metrics-port")"
}

# has NAME PATTERN: whether a line of the metrics of that server has the pattern.
has() { scrape "$1" | grep -Eq "^$2$"; }

# secure TOKEN [CA]: prints the metrics of the shard at SECURE, which it trusts by CA.
secure() {
  python3 -c '
import ssl, sys, urllib.request
request = urllib.request.Request(f"https://127.0.0.1:{sys.argv[1]}/metrics")
if sys.argv[2]:
    request.add_header("Authorization", f"Bearer {sys.argv[2]}")
trust = ssl.create_default_context(cafile=sys.argv[3])
print(urllib.request.urlopen(request, timeout=20, context=trust).read().decode(), end="")' \
    "$(cat "$SECURE/metrics-port")" "$1" "${2:-$SECURE/tls/ca.crt}" 2>&1
}

loopback() {
  KAON_METRICS=1 start 2 2
  train "$TEST_TMPDIR/train" --workers 2 --steps $STEPS || { cat "$TEST_TMPDIR/train"; exit 1; }
  local name
  for name in coordinator shard-0 shard-1; do
    wait_for 30 has $name 'kaon_(job|shard)_applied_step '$STEPS || scrape $name
    scrape $name >"$TEST_TMPDIR/$name"
    has $name 'kaon_(job|shard)_steps_total\{outcome="applied"\} '$STEPS || fail "$name counts other steps"
  done
  python3 - "$TEST_TMPDIR" "$("$KAONCTL" --dir "$DIR" -o json steps --limit 1)" <<'PYTHON' || fail "metrics and kaonctl differ"
import json, pathlib, re, sys

def read(name):
    text = (pathlib.Path(sys.argv[1]) / name).read_text()
    return {key: float(value) for key, value in re.findall(r"^([a-z]\S*) (\S+)$", text, re.M)}

step = json.loads(sys.argv[2])["steps"][-1]
coordinator, shards = read("coordinator"), [read("shard-0"), read("shard-1")]
# The text has 6 digits or more of a value.
near = lambda a, b: abs(a - b) <= 1e-4 * abs(b)
assert near(coordinator["kaon_job_loss"], step["loss"]), step
assert near(coordinator["kaon_job_grad_norm"], step["grad_norm"]), step
for norm in step["norms"]:
    label = '{group="%s"}' % norm["group"]
    assert near(coordinator["kaon_job_clip_factor" + label], norm["clip_factor"]), norm
    assert near(coordinator["kaon_job_group_grad_norm" + label], norm["norm"]), norm
for group, rate in step["rates"].items():
    assert near(coordinator['kaon_job_learning_rate{group="%s"}' % group], rate), group
assert coordinator["kaon_job_workers_expected"] == 2
assert coordinator['kaon_coordinator_shard_up{shard="1"}'] == 1
for shard in shards:
    assert shard["kaon_shard_pushed_bytes_total"] > 0
    assert shard["kaon_shard_pulled_bytes_total"] > 0
    assert shard["kaon_shard_journal_bytes"] > 0
    assert shard["kaon_shard_disk_free_bytes"] > 0
    assert shard['kaon_shard_phase_seconds_total{phase="apply"}'] > 0
    assert shard["kaon_shard_memory_used_bytes"] <= shard["kaon_shard_memory_budget_bytes"]
# Workers push every gradient to one of the shards at every step.
print("pushed", [shard["kaon_shard_pushed_bytes_total"] for shard in shards])
PYTHON
  # Each entry once: the job has its steps and the initial weights.
  "$KAONCTL" --dir "$DIR" steps --limit 100 --follow >"$TEST_TMPDIR/followed" &
  follower=$!
  wait_for 30 followed || true
  kill "$follower" && wait "$follower" || true
  python3 -c '
import json, sys
steps = [json.loads(line) for line in open(sys.argv[1])]
assert [step["step"] for step in steps if step["kind"] == "train"] == list(range(1, int(sys.argv[2]) + 1)), steps' \
    "$TEST_TMPDIR/followed" "$STEPS" || fail "kaonctl steps --follow printed $(cat "$TEST_TMPDIR/followed")"
  cluster_kill "$DIR" shard-1
  wait_for 30 has coordinator 'kaon_coordinator_shard_up\{shard="1"\} 0' || scrape coordinator
  stop
}

followed() { [ "$(grep -c '"kind": *"train"' "$TEST_TMPDIR/followed")" -ge "$STEPS" ]; }

elsewhere() {
  local flags=(--data-dir "$SECURE/data" --metrics-address 0.0.0.0:0 --metrics-port-file "$SECURE/metrics-port"
    --port-file "$SECURE/port") refusal seconds end
  deploy/certificates.sh "$SECURE/tls" >/dev/null
  mkdir -p -m 700 "$SECURE/data"
  local tls=(--tls-ca-file "$SECURE/tls/ca.crt" --tls-certificate-file "$SECURE/tls/shard.crt"
    --tls-private-key-file "$SECURE/tls/shard.key")
  refusal=$("$KAON_SHARD" "${flags[@]}" "${tls[@]}" --check-config 2>&1) && fail "no token is asked for"
  [[ $refusal == *"set metrics_token_file to a file with a token, (umask 077;"* ]] || fail "refused with: $refusal"
  (umask 077 && echo 0123456789abcdef-token >"$SECURE/token")
  flags+=(--metrics-token-file "$SECURE/token" --log-format json)
  refusal=$("$KAON_SHARD" "${flags[@]}" --check-config 2>&1) && fail "plaintext is served to other machines"
  [[ $refusal == *"set tls, or use 127.0.0.1"* ]] || fail "refused with: $refusal"
  "$KAON_SHARD" "${flags[@]}" "${tls[@]}" 2>"$SECURE/log" &
  server=$!
  wait_for 30 test -s "$SECURE/metrics-port" || cat "$SECURE/log"
  [[ $(secure "") == *"401"* ]] || fail "metrics without a token"
  [[ $(secure wrong-token-000000) == *"401"* ]] || fail "metrics with a wrong token"
  end=$(openssl x509 -in "$SECURE/tls/shard.crt" -noout -enddate)
  seconds=$(date -d "${end#notAfter=}" +%s)
  secure 0123456789abcdef-token | python3 -c '
import re, sys
found = re.search(r"^kaon_certificate_expiry_timestamp_seconds\{file=\"certificate\"\} (\S+)$", sys.stdin.read(), re.M)
sys.exit(float(found.group(1)) != float(sys.argv[1]))' "$seconds" || fail "the certificate ends at another time"
  # Another certificate of another CA is served once its files are there.
  deploy/certificates.sh "$SECURE/next" >/dev/null
  cp "$SECURE/next/shard.key" "$SECURE/next/shard.crt" "$SECURE/tls/"
  wait_for 30 rotated || cat "$SECURE/log"
  kill -TERM $server
  wait $server || fail "the shard ended with status $?"
  python3 -c '
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
assert len(lines) > 2 and all(line["program"] == "kaon-shard" and line["msg"] for line in lines), lines
assert any("metrics are served" in line["msg"] for line in lines), lines' "$SECURE/log" || { cat "$SECURE/log"; fail "the log is not the JSON that was expected"; }
}

rotated() { secure 0123456789abcdef-token "$SECURE/next/ca.crt" | grep -q '^kaon_build_info'; }

SECURE=$TEST_TMPDIR/secure
mkdir -p "$SECURE"
loopback
elsewhere
finish
