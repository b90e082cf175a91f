#!/bin/bash
# run.sh over programs that only pretend: sections run, resume, hang and fail as its table says.
set -uo pipefail

run=$PWD/tests/gpu/run.sh
work=$TEST_TMPDIR
programs=$work/programs
failures=0
mkdir -p "$programs"

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# expect WHAT FILE PATTERN: a line of the file has the pattern.
expect() { grep -qE "$3" "$2" || { fail "$1: no line has $3 in"; cat "$2"; }; }
expect_not() { ! grep -qE "$3" "$2" || { fail "$1: a line has $3 in"; cat "$2"; }; }

# The check program writes down its sections. Section `products` fails a check, `determinism` hangs until somebody ends
# it, and `twins` ends with an error.
cat >"$programs/kaon-gpu-check-on-host" <<TEXT
#!/bin/bash
echo "\$1" >>"$work/called"
case "\$1" in
  conformance) echo '{"section": "conformance", "name": "backend a", "ok": true}' ;;
  products) echo '{"section": "products", "name": "a", "ok": false, "detail": "too large"}'; exit 1 ;;
  determinism)
    [ ! -e "$work/healed" ] || exit 0
    echo '{"section": "determinism", "name": "a", "ok": true}'
    sleep 1000 & echo \$! >"$work/sleeper"; wait ;;
  twins) echo "twins are broken" >&2; exit 7 ;;
  bench) printf '{"section": "bench", "name": "%s", "value": %s, "unit": "%s"}\n' copy 1000 GB/s adamw 950 GB/s lion 100 GB/s \
    ns_4096x4096 2 ms ns_dense_4096x4096 3 ms step_1g 10 ms step_1g_kernels 9 ms ;;
esac
TEXT
chmod +x "$programs/kaon-gpu-check-on-host"

# sections OUT NAMES OPTIONS...: runs them; output in $work/output, exit status in $status.
sections() {
  local out=$1 names=$2
  shift 2
  bash "$run" --cpu-smoke --programs "$programs" --out "$work/$out" --sections "$names" "$@" >"$work/output" 2>&1
  status=$?
}

# Figures and checks become rows with verdicts.
sections a conformance,bench
[ $status -eq 1 ] || fail "a low row gives exit status $status"
expect "a check that passed" "$work/a/table.md" '^\| CUDA backend against the CPU backend \| 1 of 1 \| all \| - \| ok \|'
expect "a rate above its floor" "$work/a/table.md" '^\| AdamW fp32 256 Mi \| 950 GB/s \| >= 0.90 x copy \| 0.95 \| ok \|'
expect "a rate below its floor" "$work/a/table.md" '^\| Lion fp32 256 Mi \| 100 GB/s \| >= 0.90 x copy \| 0.100 \| low \|'
expect "a time" "$work/a/table.md" '^\| NS5 4096\^2 \| 2 ms \| >= 1.25 x own dense form \| 1.50 \| ok \|'
expect "a time with an upper bound" "$work/a/table.md" '^\| step of .* \| 10 ms \| <= 1.15 .* \| 1.11 \| ok \|'
expect "a row without its peer" "$work/a/table.md" '^\| NS5 64 x 256\^2 \| - \| .* torch eager \| - \| not measured \|'
expect "a row of a section that did not run" "$work/a/table.md" '^\| products against fp64 .* not measured \|'
expect "figures of a run" "$work/a/results.jsonl" '"section": "facts".*"command": "tests/gpu/run.sh'

# A second run skips what is done, unless it is asked for again.
: >"$work/called"
sections a conformance,bench --again bench
expect "a finished section" "$work/output" '^conformance: done before'
[ "$(cat "$work/called")" = bench ] || fail "the second run called $(tr '\n' ' ' <"$work/called")"

# A failed check, and a section that ends with an error.
sections b products,twins
[ $status -eq 1 ] || fail "a failed check gives exit status $status"
expect "a failed check" "$work/b/table.md" '^\| products against fp64 \| 0 of 1 \| all \| - \| failed \|'
expect "a failed check by name" "$work/output" '^failed: products: a: too large'
expect "a section with an error" "$work/b/table.md" '^\| twins .* \| exit status 7 \| all \| - \| failed \|'
expect "its last words" "$work/output" '^twins are broken'

# A section that hangs is cut with everything that it started, and runs again the next time.
sections c determinism,conformance --budget 5
expect "a section that hangs" "$work/c/table.md" '^\| one digest .* \| cut after [1-5] s \| all \| - \| failed \|'
expect "the section after it" "$work/c/table.md" '^\| CUDA backend .* \| no time was left \| all \| - \| not measured \|'
! kill -0 "$(cat "$work/sleeper")" 2>/dev/null || fail "a child of the section is still there"
touch "$work/healed"
sections c determinism,conformance
[ $status -eq 0 ] || fail "the resumed run gives exit status $status"
expect "the resumed section" "$work/c/table.md" '^\| CUDA backend .* \| 1 of 1 \| all \| - \| ok \|'
expect_not "the resumed section" "$work/c/table.md" 'cut after'

# Figures of a smoke run go to no page.
printf 'before\n<!-- results: begin -->\n<!-- results: end -->\nafter\n' >"$work/page.md"
sections c conformance --write "$work/page.md"
expect "a page after --cpu-smoke" "$work/output" 'they mean nothing'
python3 tests/gpu/report.py --empty --write "$work/page.md"
expect "an empty table" "$work/page.md" '^\| AdamW fp32 256 Mi \| - \| >= 0.90 x copy \| - \| not measured \|'
expect "an empty table" "$work/page.md" '^Nothing in this table has run on a GPU yet.'
expect "the rest of the page" "$work/page.md" '^after'

# Programs that were not built are no error.
rm "$programs/kaon-gpu-check-on-host"
sections d conformance,cluster,peers
expect "a missing program" "$work/d/table.md" '^\| CUDA backend .* kaon-gpu-check-on-host was not built .* not measured \|'
expect "a missing server" "$work/d/table.md" '^\| AdamW on 2 GPU shards.* kaon-shard was not built .* not measured \|'

# The trainer needs a torch that imports.
mkdir "$work/python" && echo 'raise ImportError("no torch here")' >"$work/python/torch.py"
PYTHONPATH=$work/python sections e trainer
[ $status -eq 0 ] || fail "the trainer without torch gives exit status $status"
expect "a trainer without torch" "$work/e/table.md" \
  '^\| GPT of .*, fused AdamW .* cannot train with torch: ImportError: no torch here .* not measured \|'

for script in bundle.sh launcher.sh sources.sh; do bash -n "tests/gpu/$script" || fail "$script"; done
[ $failures -eq 0 ] || { echo "$failures failures"; exit 1; }
echo "all passed"
