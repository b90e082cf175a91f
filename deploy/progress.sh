# Shows how far a long command is. To be sourced by bash scripts.

# Options with which Bazel writes the lines that show_progress reads.
PROGRESS_OF_BAZEL=(--curses=no --color=no --show_progress --show_progress_rate_limit=1)

# show_progress WHAT: Copies stdin to stderr, but not progress lines: `[N / M] TEXT`, and what Bazel writes before it knows its
# actions and after them. Shows the newest one and the elapsed time: in one changing line on a terminal, elsewhere in a new line every
# PROGRESS_SECONDS (default 30).
show_progress() {
  local line='' part done='' now='' ended='' start=$SECONDS shown=$SECONDS
  local every=${PROGRESS_SECONDS:-30} width=119 clear='' end=$'\n' text status
  if [ -t 2 ]; then
    every=1 clear=$'\r\e[K' end='' width=$(stty size <&2 2>/dev/null || true)
    width=$((${width#* } - 1))
    [ "$width" -gt 0 ] || width=79
  fi
  while [ -z "$ended" ]; do
    status=0
    IFS= read -r -t 1 part || status=$?
    line+=$part
    # More than 128: the line did not end within a second.
    [ "$status" -eq 0 ] || [ "$status" -gt 128 ] || ended=1
    if [[ $status -eq 0 && $line =~ ^\[([0-9,]+)\ /\ ([0-9,]+)\]\ *(.*) ]]; then
      done="${BASH_REMATCH[1]} of ${BASH_REMATCH[2]}, " now=" ${BASH_REMATCH[3]}" line=''
    elif [[ $status -eq 0 && $line =~ ^(Loading:|Analyzing:|INFO:|\ +(currently\ loading|Fetching)) ]]; then
      line=''
    elif [ "$status" -eq 0 ] || [ -n "$ended" -a -n "$line" ]; then
      printf '%s%s\n' "$clear" "$line" >&2
      line=''
    fi
    if [ $((SECONDS - shown)) -ge "$every" ]; then
      shown=$SECONDS
      text=$(printf '%s: %s%d:%02d%s' "$1" "$done" $(((shown - start) / 60)) $(((shown - start) % 60)) "$now")
      printf '%s%s%s' "$clear" "${text:0:width}" "$end" >&2
    fi
  done
  printf '%s' "$clear" >&2
}

# with_progress WHAT COMMAND...: Runs COMMAND and shows what it writes to stderr by show_progress. Returns its exit status.
# PROGRESS_RUNNER: the function that runs COMMAND, if not this shell.
with_progress() {
  local what=$1 lines shower status=0
  shift
  exec {lines}> >(show_progress "$what")
  shower=$!
  ${PROGRESS_RUNNER:-progress_run} progress_exec "$lines" "$@" || status=$?
  exec {lines}>&-
  wait "$shower"
  return "$status"
}
progress_run() { ("$@"); }
# COMMAND alone holds the other end, so that a server it leaves behind does not keep it open.
progress_exec() {
  local lines=$1
  shift
  exec "$@" 2>&"$lines" {lines}>&-
}
