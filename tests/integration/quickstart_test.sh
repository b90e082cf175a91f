#!/bin/bash
# Runs the quickstart with the real programs. Its default run: the model learns what the README says, the last line
# is its summary, and nothing is left behind. With --chaos: servers are killed with -9, and training ends in the
# bits of an undisturbed run.
source tests/integration/real_cluster.sh

export TMPDIR=$TEST_TMPDIR/private
mkdir -p "$TMPDIR"
start=$SECONDS
deploy/quickstart.sh --binaries "$PWD" >"$TEST_TMPDIR/out" 2>&1 || { cat "$TEST_TMPDIR/out"; fail "exit status $?"; finish; }
echo "$((SECONDS - start)) s, of which training $(field "$TEST_TMPDIR/out" seconds) s"
tail -n 1 "$TEST_TMPDIR/out" | python3 -c '
import json, sys
summary = json.loads(sys.stdin.readline()[len("SUMMARY "):])
print({key: summary[key] for key in ("steps", "validation_loss", "bigram_loss", "fivegram_loss", "weights_digest")})
assert summary["validation_loss"] <= 1.85, summary
assert 2.3 < summary["bigram_loss"] < 2.7 and 1.2 < summary["fivegram_loss"] < 1.6, summary
assert summary["applied"] == summary["steps"] and summary["skipped"] == 0, summary
for key in ("newton_schulz_updates", "push_bytes", "pull_bytes"):
    assert summary[key], key
# By default the servers run on the machine of their workers, so all bytes pass through shared memory.
assert summary["shm_bytes"] == summary["push_bytes"] + summary["pull_bytes"], summary
' || fail "the summary: $(tail -n 1 "$TEST_TMPDIR/out")"
[ -z "$(ls -A "$TMPDIR")" ] || fail "left behind: $(ls -A "$TMPDIR")"

start=$SECONDS
deploy/quickstart.sh --binaries "$PWD" --chaos --steps 30 >"$TEST_TMPDIR/chaos" 2>&1 || { cat "$TEST_TMPDIR/chaos"; fail "exit status $?"; finish; }
echo "--chaos: $((SECONDS - start)) s"
grep -q "SUMMARY" "$TEST_TMPDIR/chaos" && grep -q "with 3 kills, .* the same bits" "$TEST_TMPDIR/chaos" || fail "--chaos: $(tail -n 20 "$TEST_TMPDIR/chaos")"
[ -z "$(ls -A "$TMPDIR")" ] || fail "left behind: $(ls -A "$TMPDIR")"

# A healthy cluster is silent but for what begins and ends, and one line every ten minutes of each shard.
deploy/quickstart.sh --binaries "$PWD" --dir "$TEST_TMPDIR/kept" --steps 20 >"$TEST_TMPDIR/out" 2>&1 || fail "exit status $?"
grep -hE '^[0-9TZ:.-]+ [WEF] ' "$TEST_TMPDIR"/kept/*.log && fail "a healthy cluster logs warnings"
for shard in 0 1; do
  lines=$(grep -c ' step [0-9]* .* applied' "$TEST_TMPDIR/kept/shard-$shard.log") || lines=0
  ((lines >= 1 && lines <= 1 + SECONDS / 600)) || fail "shard $shard logged $lines lines about steps"
done
finish
