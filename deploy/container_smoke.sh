#!/bin/bash
# Shows that the image and deploy/compose.yaml work: trains there while containers are killed and stopped.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: deploy/container_smoke.sh [--binaries BIN] [--base IMAGE] [--steps N]

Builds the image, starts deploy/compose.yaml (two coordinators, three shards, two workers) and trains. Meanwhile it kills
one shard's container and starts it again, drains another, and stops the coordinator that leads. Training must end in the
same bits as an undisturbed run of `kaon-train --local` in the same image. Then it removes everything.

  --binaries BIN   programs of this bazel-bin (default: built by Bazel now)
  --base IMAGE     Debian 12 with apt-get (default: one that mmdebstrap makes, so that no registry is needed)
  --steps N        training steps, 30 .. 100000 (default 600)

Uses docker with its compose plugin, or else podman and podman-compose with storage of its own. Needs root with podman.
`deploy/install_packages.sh --containers` installs these.
TEXT
}

die() {
  echo "container_smoke.sh: $*" >&2
  exit "${status:-1}"
}

root=$(cd "$(dirname "$0")/.." && pwd)
binaries=""
base=""
steps=600
project=kaonsmoke
while [ $# -gt 0 ]; do
  case "$1" in
    --help | -h) usage; exit 0 ;;
    --binaries) binaries=${2:?--binaries needs a directory} ;;
    --base) base=${2:?--base needs an image} ;;
    --steps) steps=${2:?--steps needs a number} ;;
    *) status=2 die "unknown option $1; see --help" ;;
  esac
  shift 2
done
[[ $steps =~ ^[0-9]{2,6}$ && $steps -ge 30 && $steps -le 100000 ]] || status=2 die "--steps is $steps, must be 30 .. 100000"

work=$(mktemp -d "${TMPDIR:-/var/tmp}/kaon-smoke.XXXXXX")
started=
say() { echo "==> $*"; }

# Engine and compose command; containers are PROJECT_NAME_1 with podman-compose, PROJECT-NAME-1 with docker.
if docker compose version >/dev/null 2>&1 && docker info >/dev/null 2>&1; then
  engine=docker compose=(docker compose) joint=-
else
  for program in podman podman-compose runc; do
    command -v $program >/dev/null || die "$program is not installed; see --help"
  done
  engine=podman compose=(podman-compose) joint=_
  printf '%s\n' '[containers]' 'default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]' '[engine]' 'runtime = "runc"' \
    'cgroup_manager = "cgroupfs"' 'events_logger = "file"' '[network]' 'network_backend = "netavark"' \
    "network_config_dir = \"$work/networks\"" >"$work/containers.conf"
  printf '%s\n' '[storage]' 'driver = "vfs"' "graphroot = \"$work/storage\"" "runroot = \"$work/run\"" >"$work/storage.conf"
  export CONTAINERS_CONF=$work/containers.conf CONTAINERS_STORAGE_CONF=$work/storage.conf BUILDAH_ISOLATION=chroot
fi
export KAON_IMAGE=localhost/kaon:smoke KAON_CERTIFICATES_IMAGE=localhost/kaon-certificates:smoke KAON_STEPS=$steps

compose() { "${compose[@]}" -p "$project" -f "$root/deploy/compose.yaml" "$@"; }
name() { echo "$project$joint$1${joint}1"; }
quiet() { "$@" >"$work/log" 2>&1 || { tail -n 40 "$work/log" >&2; die "failed: $*"; }; }

finish() {
  local state=$?
  trap - EXIT
  if [ -n "$started" ]; then
    if [ $state -ne 0 ]; then
      for server in coordinator-0 coordinator-1 shard-0 shard-1 shard-2 worker-0; do
        echo "--- $server" >&2
        $engine logs --tail 15 "$(name $server)" >&2 || true
      done
    fi
    compose down -v >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; state=1; }
  fi
  rm -rf "$work"
  exit $state
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

build_image() {
  local program version commit=
  if [ -z "$binaries" ]; then
    commit=$("$root/deploy/commit.sh")
    say "building the programs"
    (cd "$root" && bazel build --config=opt "--disk_cache=$(deploy/disk_cache.sh)" "--define=kaon_commit=$commit" \
      --noshow_progress //server/shard:kaon-shard //server/coordinator:kaon-coordinator //server/admin_cli:kaonctl //client/train:kaon-train)
    binaries=$root/.bazel/bin
  fi
  mkdir -p "$work/context/bin" "$work/context/deploy"
  for program in server/shard/kaon-shard server/coordinator/kaon-coordinator server/admin_cli/kaonctl client/train/kaon-train; do
    install -s "$binaries/$program" "$work/context/bin/" || die "$binaries/$program is missing: build it first"
  done
  cp "$root"/deploy/*.sh "$work/context/deploy/"
  cp "$root/LICENSE" "$work/context/"
  if [ -z "$base" ]; then
    say "making a base image by mmdebstrap"
    base=localhost/kaon-base:smoke
    quiet mmdebstrap --variant=minbase bookworm "$work/base.tar"
    quiet $engine import "$work/base.tar" $base
  fi
  say "building the image"
  local options=(--network host --build-arg "BASE=$base" -f "$root/deploy/Dockerfile")
  quiet $engine build "${options[@]}" --target certificates -t "$KAON_CERTIFICATES_IMAGE" "$work/context"
  quiet $engine build "${options[@]}" --build-arg "REVISION=$("$root/deploy/commit.sh")" \
    -t "$KAON_IMAGE" "$work/context"
  say "image: $($engine image inspect -f '{{.Size}}' "$KAON_IMAGE" | awk '{ printf "%.0f", $1 / 1e6 }') MB"
  version=$($engine run --rm --read-only --network none "$KAON_IMAGE" kaonctl --version)
  say "$version"
  [[ $version = *"(commit $commit"* ]] || die "the image's programs are not of commit $commit"
}

# The newest step that worker 0 has reported; 0 before the first.
steps_done() {
  local last
  last=$($engine logs "$(name worker-0)" 2>&1 | grep -oE '^ *step +[0-9]+' | tail -n 1 | grep -oE '[0-9]+') || last=0
  echo "$last"
}

# state NAME: running, exited 0, ...
state() { $engine inspect -f '{{.State.Status}} {{.State.ExitCode}}' "$(name "$1")"; }

# await_step N: polls until it is done.
await_step() {
  local deadline=$((SECONDS + 300))
  until [ "$(steps_done)" -ge "$1" ]; do
    [[ $(state worker-0) = running* ]] || [ "$(steps_done)" -ge "$1" ] || die "worker-0 ended before step $1"
    [ $SECONDS -lt $deadline ] || die "step $1 was not reached within 300 s"
    sleep 0.2
  done
}

# disturb HOW NAME: then training goes on.
disturb() {
  local step
  step=$(steps_done)
  [ "$step" -lt "$steps" ] || die "training ended before '$*'; more --steps leave time for it"
  say "$1 $2 after step $step"
  quiet $engine "$1" "$(name "$2")"
  if [ "$1" = stop ]; then
    [[ $(state "$2") = *" 0" ]] || die "$2 was stopped and ended as: $(state "$2")"
    say "$2 exited with status 0"
  fi
}

# await_return: training goes on after the last disturbance.
await_return() {
  local start=$SECONDS step
  step=$(steps_done)
  [ "$step" -lt "$steps" ] || die "training ended during the disturbance; more --steps leave time for it"
  await_step $((step + 1))
  say "training went on after $((SECONDS - start)) s"
}

kaonctl() { $engine exec "$(name "$1")" kaonctl "${@:2}"; }

train() {
  local worker leader other
  say "starting deploy/compose.yaml by ${compose[*]}"
  started=1
  quiet compose up -d
  await_step $((steps / 4))
  disturb kill shard-1
  quiet $engine start "$(name shard-1)"
  await_return
  await_step $((steps / 2))
  say "drain shard-2 after step $(steps_done)"
  kaonctl coordinator-0 shard drain 2 --wait
  await_return
  await_step $((steps * 3 / 4))
  leader=$(kaonctl coordinator-0 -o json status | grep -oE '"holder_address": *"coordinator-[01]' | grep -oE 'coordinator-[01]')
  other=coordinator-$((1 - ${leader#coordinator-}))
  disturb stop "$leader"
  await_return
  for worker in worker-0 worker-1; do
    [ "$($engine wait "$(name $worker)")" = 0 ] || die "$worker ended as: $(state $worker)"
  done
  say "trained $steps steps; $other leads:"
  kaonctl "$other" --timeout 60 status
}

digest() { grep -oE '"weights_digest": *"[0-9a-f]+"' | tail -n 1 | grep -oE '[0-9a-f]{16}'; }

compare() {
  local disturbed undisturbed
  disturbed=$($engine logs "$(name worker-0)" 2>&1 | digest)
  undisturbed=$($engine run --rm --read-only --cap-drop ALL --user 65532:65532 --network none "$KAON_IMAGE" \
    kaon-train --local --workers 2 --steps "$steps" 2>&1 | digest)
  if [ -z "$disturbed" ] || [ "$disturbed" != "$undisturbed" ]; then
    die "weights digest '$disturbed' with disturbances, '$undisturbed' undisturbed"
  fi
  say "weights digest $disturbed with disturbances, $undisturbed undisturbed: the same bits"
}

build_image
train
compare
say "removing everything"
echo "4 of 4 checks passed"
