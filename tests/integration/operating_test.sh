#!/bin/bash
# Executes the commands of docs/operating.md, section by section.
source tests/integration/page_commands.sh

page=docs/operating.md
admin=$work/home/${ADDRESS[admin]}/kaon

# served ADDRESS: serial number of the certificate that a server shows.
served() { ip netns exec "$prefix-admin" openssl s_client -connect "$1" </dev/null 2>/dev/null | openssl x509 -noout -serial; }

# The servers show the renewed certificates without a restart.
check_rotation() {
  local deadline=$((SECONDS + 60)) server renewed
  for server in 10.77.0.1:7701/shard 10.77.0.2:7701/shard 10.77.0.3:7701/shard 10.77.0.1:7700/coordinator; do
    renewed=$(openssl x509 -noout -serial -in "$admin/tls/${server#*/}.crt")
    until [ "$(served "${server%/*}" || true)" = "$renewed" ]; do
      [ $SECONDS -lt $deadline ] || fail "$server still shows its old certificate"
      sleep 0.2
    done
  done
}

run_section $page "Three machines"
run_section $page "Size"
said "the job fits"
run_section $page "Rolling restart"
said SUMMARY
run_section $page "By openssl"
run_section $page "Rotation"
said '"final_step": *30|SUMMARY'
check_rotation
run_section $page "Standby coordinator"
said "10.77.0.1:7700 holds the shards"
stop node-1 coordinator
admin_does kaon-train --steps 35 --batch-size 96 --hidden 48 >"$work/last.log" 2>&1 || fail "the standby does not take over"
echo 'cd ~/kaon && exec kaon-coordinator --config coordinator.textproto --advertise 10.77.0.1:7700' >"$work/again"
start node-1 coordinator "$work/again"

# The checkpoints are lost after they were copied.
before_block() { [ "$1" -ne 3 ] || rm "$work/checkpoints"/nightly.*; }
run_section $page "Backup"
said "restored step 35 of checkpoint nightly"
before_block() { :; }

# The directory of the third shard is that of another build. The shard says so before it is started again.
before_block() {
  local tries=600
  case "$1" in
    4) sed -i 's/^build .*/build another/' "$work/home/${ADDRESS[node-3]}/kaon/data/written_by" ;;
    6)
      until grep -q "written_by says 'kaon written_by 1..build another" "$work/node-3-shard.log"; do
        ((tries-- > 0)) || fail "no refusal of another build"
        sleep 0.1
      done
      ;;
  esac
}
run_section $page "Upgrade"
said SUMMARY
[ $blocks -eq "$(grep -c '^```sh ' $page)" ] || fail "only $blocks blocks of $page ran"
for pid in "$work"/*.pid; do kill -0 "$(cat "$pid")" || fail "$(basename "$pid" .pid) has ended"; done

# Each entry of the runbook has a test.
grep '^### ' docs/runbook.md | while read -r _ entry; do
  grep -qF "\"$entry\"" tests/integration/BUILD || fail "docs/runbook.md: no test of: $entry"
done
echo "$blocks blocks passed"
