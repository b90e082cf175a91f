# Ends a Bazel server that a script started, so that an interrupted build leaves none behind. To be sourced by bash scripts.

# bazel_server_runs ROOT: whether Bazel's server for this checkout runs.
bazel_server_runs() {
  local user_root=~/.cache/bazel/_bazel_${USER:-$(id -un)} pid
  pid=$(cat "$user_root/$(printf %s "$1" | md5sum | cut -c1-32)/server/server.pid.txt" 2>/dev/null) &&
    kill -0 "$pid" 2>/dev/null
}

# bazel_server_begin ROOT: call it before the first bazel command.
bazel_server_begin() {
  BAZEL_SERVER_ROOT=
  bazel_server_runs "$1" || BAZEL_SERVER_ROOT=$1
}

# bazel_server_end: ends the server if it did not run at bazel_server_begin. Does nothing when called again.
bazel_server_end() {
  [ -n "${BAZEL_SERVER_ROOT:-}" ] || return 0
  (cd "$BAZEL_SERVER_ROOT" && bazel shutdown) >/dev/null 2>&1 || true
  BAZEL_SERVER_ROOT=
}
