#!/bin/bash
# The sample configurations in deploy/config name every field of the configuration, and the servers accept them.
source tests/integration/real_cluster.sh

TLS=$TEST_TMPDIR/tls
deploy/certificates.sh "$TLS"

# fields_of MESSAGE: prints the fields of that message of config.proto.
fields_of() {
  awk -v message="$1" '
    $1 == "message" { inside = $2 == message }
    inside && $NF ~ /^[0-9]+;$/ && $1 != "reserved" { print $(NF - 2) }' proto/kaon/v1/config.proto
}

# check NAME PROGRAM MESSAGE OPTIONS...
check() {
  local name=$1 program=$2 message=$3 file=deploy/config/$1.textproto all=$TEST_TMPDIR/$1.textproto field fields
  shift 3
  fields=$(fields_of "$message"; fields_of TlsConfig)
  [ "$(wc -l <<<"$fields")" -ge 13 ] || fail "$message has fewer fields than it should: $fields"
  for field in $fields; do
    grep -qE "^ *#?$field(:| \{)" "$file" || fail "$file does not name $field"
  done
  "$program" --config "$file" --check-config --tls-ca-file "$TLS/ca.crt" --tls-certificate-file "$TLS/$name.crt" \
    --tls-private-key-file "$TLS/$name.key" "$@" || fail "$file is refused"
  # As the file has it, but for the fields that are examples of what this machine may lack.
  sed 's/^#\([a-z_]*:\)/\1/' "$file" >"$all"
  "$program" --config "$all" --print-config >"$TEST_TMPDIR/printed" || fail "$file is refused with all its fields set"
  # A field without a comment before it explains nothing.
  awk -v file="$file" '
    /^ *#? *[a-z_]+: / && !/^ *# / && !($1 in seen) && before !~ /^ *# / && before !~ /^[a-z]/ { print file ": " $0 " has no comment"; bad = 1 }
    { before = $0; seen[$1] = 1 }
    END { exit bad }' "$file" || fail "a field has no comment"
}

check shard "$KAON_SHARD" ShardConfig --data-dir "$TEST_TMPDIR/data"
check coordinator "$KAON_COORDINATOR" CoordinatorConfig
finish
