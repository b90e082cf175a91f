# Sourced by the scripts that build bugs in, one at a time, and look for them. Expects the function
#   find_mutation NUMBER COPT LOG: builds with the Bazel option COPT and looks for the bug; prints where it was found, on
#   one line; status 0 if found, 1 if not, any other when it could not be tried. Its output goes to LOG.
# shellcheck shell=bash

# try_mutations HEADER MACRO [NUMBER]...: all that HEADER lists, as lines `kName = number,  // sources`, or those numbers.
# Prints a line for each, a sum for people and `N/M found`; status 0 if every one was found, 2 if one could not be tried.
try_mutations() {
  local header=$1 macro=$2
  shift 2
  local wanted=" $* " all=$# found=0 tried=0 row number name sources status where log
  local rows
  mapfile -t rows < <(sed -nE 's|^ *(k[A-Za-z0-9]+) = ([0-9]+),  // (.+)$|\2 \1 \3|p' "$header")
  [ ${#rows[@]} -gt 0 ] || { echo "$header lists no mutation" >&2; return 2; }
  log=$(mktemp "${TMPDIR:-/tmp}/kaon-mutation.XXXXXX")
  for row in "${rows[@]}"; do
    read -r number name sources <<<"$row"
    [ "$all" -eq 0 ] || [[ $wanted == *" $number "* ]] || continue
    tried=$((tried + 1))
    status=0
    where=$(find_mutation "$number" "--per_file_copt=^${sources}\.cc\$@-D$macro=$number" "$log") || status=$?
    case "$status" in
      0)
        found=$((found + 1))
        echo "$number $name: found $where"
        ;;
      1) echo "$number $name: NOT FOUND" ;;
      *)
        echo "$number $name: could not be tried" >&2
        tail -n 40 "$log" >&2
        rm -f "$log"
        return 2
        ;;
    esac
  done
  rm -f "$log"
  # For tests/report.py.
  echo "$header: $found of $tried bugs found"
  echo "$found/$tried found"
  [ "$found" -eq "$tried" ]
}
