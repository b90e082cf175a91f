#!/bin/bash
# Installs Kaon, moves the tree elsewhere, builds trainers with it through CMake and pkg-config, and trains against its
# cluster. Checks what the shared library exports and what the headers include.
set -euo pipefail

work=$TEST_TMPDIR
kaon=$work/moved
consumers=$PWD/tests/install/consumers
failures=0

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# refused WHAT OPTIONS...: install.sh says so, and installs nothing.
refused() {
  local status=0
  deploy/install.sh "${@:2}" 2>"$work/refused" || status=$?
  [ $status -eq 2 ] && grep -qF -e "$1" "$work/refused" || fail "install.sh ${*:2}: $status, $(cat "$work/refused")"
}
refused "--prefix here is not an absolute path" --prefix here --binaries "$PWD"
refused "kaon-coordinator is missing: build it first" --prefix "$work/nothing" --binaries "$work"
[ ! -e "$work/nothing" ] || fail "a refused installation leaves files"

DESTDIR=$work/staged deploy/install.sh --prefix /opt/kaon --binaries "$PWD"
mv "$work/staged/opt/kaon" "$kaon"
version=$(<VERSION)

# Files that are installed as they are, and what a program must be able to read.
installed() { cmp "$1" "$kaon/$2" || fail "$2 is not $1"; }
for file in proto/kaon/v1/*.proto; do installed "$file" "share/kaon/$file"; done
installed LICENSE share/doc/kaon/LICENSE
for file in deploy/config/*; do installed "$file" "share/doc/kaon/examples/${file##*/}"; done
for file in deploy/prometheus/*; do installed "$file" "share/doc/kaon/examples/prometheus/${file##*/}"; done
for file in deploy/systemd/*; do installed "$file" "share/kaon/systemd/${file##*/}"; done
(cd "$kaon/share/kaon/proto" && protoc -I . --descriptor_set_out=/dev/null kaon/v1/*.proto) || fail "the protos do not compile"
[ "$(bash -c 'source "$0" && complete -p kaonctl' "$kaon/share/bash-completion/completions/kaonctl")" = \
  "complete -o default -F _kaonctl kaonctl" ] || fail "bash does not complete kaonctl"
[ "$(zsh -fc 'fpath=($1 $fpath); autoload -Uz compinit; compinit -D -u; print $_comps[kaonctl]' zsh \
  "$kaon/share/zsh/site-functions")" = _kaonctl ] || fail "zsh does not complete kaonctl"
for file in "$kaon"/bin/* "$kaon/lib/libkaon_client.so.$version"; do
  sections=$(readelf -SW "$file" | grep -oE '\.(debug_info|symtab)') || continue
  fail "$file is not stripped: it has $sections"
done

# public_names: reads demangled symbols `kaon::Name...`; prints those whose Name is a word of a header, comments aside.
sed 's|//.*||' "$kaon"/include/kaon/*.h | grep -oE '[A-Za-z_]+' | sort -u >"$work/words"
public_names() {
  awk 'NR == FNR { words[$1] = 1; next }
       match($0, /^kaon::[A-Za-z_]+/) && substr($0, 7, RLENGTH - 6) in words' "$work/words" -
}
# A function that the map hides by mistake is missed only by those who call it.
nm -D --defined-only "$kaon/lib/libkaon_client.so" | c++filt | cut -d' ' -f3- | sort -u >"$work/exported"
nm --defined-only "$kaon/lib/libkaon_client.a" 2>/dev/null | awk '$2 == "T"' | c++filt | cut -d' ' -f3- |
  grep '^kaon::[A-Z]' | sort -u | public_names >"$work/wanted"
[ "$(wc -l <"$work/wanted")" -ge 20 ] || fail "the archive has hardly any public function: $(cat "$work/wanted")"
missing=$(comm -13 "$work/exported" "$work/wanted")
[ -z "$missing" ] || fail "deploy/library/kaon_client.map does not export $missing"
extra=$(public_names <"$work/exported" | comm -23 "$work/exported" -)
[ -z "$extra" ] || fail "libkaon_client.so exports what is in no header: $extra"
soname=$(objdump -p "$kaon/lib/libkaon_client.so" | awk '$1 == "SONAME" { print $2 }')
[ "$soname" = "libkaon_client.so.${version%.*}" ] || fail "the soname is $soname"

# Each header compiles alone, as C++17, and includes the standard library only.
for header in "$kaon"/include/kaon/*.h; do
  g++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$kaon/include" -H -x c++ "$header" \
    2>"$work/includes" || fail "$(cat "$work/includes")"
  ! grep -E '^\.+ .*/(grpc|google|absl|glog)' "$work/includes" || fail "$header includes other libraries"
done

export PKG_CONFIG_PATH=$kaon/lib/pkgconfig
[ "$(pkg-config --modversion kaon)" = "$version" ] || fail "kaon.pc has version $(pkg-config --modversion kaon)"
# shellcheck disable=SC2046
g++ -std=c++17 -o "$work/pkg_config" "$consumers/trainer.cc" $(pkg-config --cflags --libs kaon)
# shellcheck disable=SC2046
g++ -std=c++17 -o "$work/pkg_config_static" "$consumers/trainer.cc" \
  $(pkg-config --cflags --libs --static kaon | sed 's/-lkaon_client/-l:libkaon_client.a/')
cmake -S "$consumers/cmake" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$kaon" -DKAON_VERSION="${version%.*}" >"$work/log" &&
  cmake --build "$work/cmake" >>"$work/log" || fail "$(cat "$work/log")"

cluster=$kaon/share/kaon/deploy/local_cluster.sh
trap '"$cluster" stop "$work/cluster" >/dev/null 2>&1 || true' EXIT
"$cluster" start "$work/cluster" --shards 2 --workers 1
coordinator=127.0.0.1:$(<"$work/cluster/coordinator.port")
# The second trainer goes on where the first one ended.
for trainer in pkg_config pkg_config_static cmake/trainer cmake/trainer_static; do
  echo "$trainer:"
  LD_LIBRARY_PATH=$kaon/lib "$work/$trainer" "$coordinator" "$work/cluster/tls" || fail "$trainer"
done
[ "$("$kaon/bin/kaonctl" --dir "$work/cluster" -o json status | grep -oE '"applied_step": *[0-9]+' | head -n 1 |
  grep -oE '[0-9]+$')" = 40 ] || fail "the cluster is not at step 40"
# The Python package finds the library and the programs of the prefix, wherever that is.
KAON_PREFIX=$kaon PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$kaon/share/kaon/python /usr/bin/python3 -m kaon doctor \
  --endpoints "$coordinator" --tls-dir "$work/cluster/tls" --job kaon-train >"$work/doctor" 2>&1 || fail "$(cat "$work/doctor")"
grep -qF "$kaon/lib/libkaon.so.${version%.*}, Kaon $version" "$work/doctor" &&
  grep -qF "$kaon/share/kaon/deploy/local_cluster.sh" "$work/doctor" &&
  grep -qE 'kaon-train: step 40, timeline 1, [0-9]+ parameters' "$work/doctor" || fail "doctor says: $(cat "$work/doctor")"
"$cluster" stop "$work/cluster" || fail "the cluster did not stop"
# Another start does not remove what was trained, unless it is asked to.
if "$cluster" start "$work/cluster" 2>"$work/refusal"; then fail "a start removed the weights of an earlier cluster"; fi
grep -q -- '--fresh' "$work/refusal" && [ -d "$work/cluster/shard-0" ] || fail "the refusal: $(cat "$work/refusal")"
"$cluster" start "$work/cluster" --fresh --shards 1 --checkpoint-dir "$work/checkpoints" || fail "--fresh does not start"
"$kaon/bin/kaonctl" --dir "$work/cluster" checkpoint list || fail "the cluster has no checkpoint directory"
"$cluster" stop "$work/cluster" || fail "the second cluster did not stop"
if ldd "$work/pkg_config_static" | grep kaon; then fail "a static trainer needs libkaon_client.so"; fi

[ "$failures" -eq 0 ] || { echo "$failures failures"; exit 1; }
echo "all passed"
