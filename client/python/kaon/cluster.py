"""A cluster on this machine for trials and notebooks: kaon.local_cluster()."""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import shutil
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from typing import IO, Any, Optional, Tuple

from . import client as _client
from ._kaonctl import program_in
from ._library import checkout, prefixes
from .errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, UnavailableError

_START_SECONDS = 120
# local_cluster.sh waits 40 s for the coordinator, and then 40 s for all shards, before it kills them.
_STOP_SECONDS = 120
_MARKER = "kaon-local-cluster"


def find_programs() -> Tuple[Path, Path]:
    """Returns local_cluster.sh and the folder of the programs: a bazel-bin, or the bin/ of an installation.
    $KAON_BINARIES names the folder; otherwise it is this checkout's, or that of the installation."""
    script = checkout() / "deploy" / "local_cluster.sh"
    binaries = Path(os.environ.get("KAON_BINARIES") or checkout() / ".bazel" / "bin")
    if script.exists() and program_in(binaries, "shard/kaon-shard").exists():
        return script, binaries
    for prefix in prefixes():
        script = prefix / "share" / "kaon" / "deploy" / "local_cluster.sh"
        if script.exists():
            return script, Path(os.environ.get("KAON_BINARIES") or prefix / "bin")
    raise NotFoundError("no Kaon programs are found: install Kaon (deploy/install.sh), or name its prefix in "
                        "KAON_PREFIX, or the folder of the programs in KAON_BINARIES")


def _claim(directory: Path) -> None:
    """Marks a directory, whose servers' files every start removes. It must be new, empty or marked."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    marker = directory / _MARKER
    if any(directory.iterdir()) and not marker.exists():
        raise FailedPreconditionError(f"{directory} has files of others, and a local cluster would remove some: name "
                                      "a new or empty directory")
    marker.touch()


class LocalCluster:
    """One coordinator and some shards on loopback addresses, with certificates of their own. They end with close(),
    at the end of the `with`, or when this process ends in any way. Clients are closed with them, and data is
    removed. Checkpoints stay if `directory` is named. Inside the `with`, kaon.Client(), kaon.Optimizer and
    kaon.admin.Cluster() use this cluster."""

    def __init__(self, shards: int = 2, directory: Optional[str] = None) -> None:
        if shards < 1:
            raise InvalidArgumentError(f"shards is {shards}, expecting at least 1")
        script, binaries = find_programs()
        self._owns_directory = directory is None
        self.directory = Path(directory or tempfile.mkdtemp(prefix="kaon-"))
        _claim(self.directory)
        self._kaonctl = program_in(binaries, "admin_cli/kaonctl")
        # Where its checkpoints are.
        self.checkpoint_dir = Path(os.environ.get("KAON_CHECKPOINT_DIR") or self.directory / "checkpoints")
        command = [str(script), "run", str(self.directory), "--fresh", "--shards", str(shards), "--workers", "any",
                   "--binaries", str(binaries), "--checkpoint-dir", str(self.checkpoint_dir)]
        self._log = tempfile.TemporaryFile()
        self._owner = os.getpid()
        # In a session of its own: Ctrl-C in a terminal is for this process, which then ends the servers.
        self._process: Optional[subprocess.Popen] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, start_new_session=True)
        atexit.register(self.close)
        try:
            self._wait_serving(self._process.stdout)
            port = (self.directory / "coordinator.port").read_text().strip()
        except BaseException:
            self.close()
            raise
        self.endpoints = f"127.0.0.1:{port}"
        self.tls_dir = str(self.directory / "tls")

    def _wait_serving(self, output: Optional[IO[bytes]]) -> None:
        """The script prints one line when all serve, and ends before if they cannot."""
        assert output is not None
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if select.select([output], [], [], 0.1)[0]:
                if output.readline():
                    return
                break
        self._log.seek(0)
        raise UnavailableError(f"the local cluster in {self.directory} did not start:\n"
                               f"{self._log.read().decode(errors='replace')[-4000:]}")

    def close(self) -> None:
        """Ends the servers; does nothing the second time, or in a forked child."""
        self._close(waits_for_calls=True)

    def _close(self, waits_for_calls: bool) -> None:
        atexit.unregister(self.close)
        process, self._process = self._process, None
        if process is None or os.getpid() != self._owner:
            return
        # They would look for its certificates.
        if hasattr(self, "endpoints"):
            _client.close_all(self.endpoints, waits_for_calls)
        # The script stops the servers when its input ends.
        assert process.stdin is not None and process.stdout is not None
        # A forked child may still have this pipe.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(b"\n")
            process.stdin.close()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        if process.returncode != 0 and hasattr(self, "endpoints"):
            self._log.seek(0)
            warnings.warn(f"the local cluster in {self.directory} did not stop cleanly:\n"
                          f"{self._log.read().decode(errors='replace')[-4000:]}", RuntimeWarning, stacklevel=2)
        self._log.close()
        if self._owns_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def client(self, **options: Any) -> "_client.Client":
        """Connects to this cluster; takes the options of kaon.Client."""
        return _client.Client(self.endpoints, tls_dir=self.tls_dir, **options)

    def kaonctl(self, *arguments: str) -> str:
        """Runs kaonctl for this cluster and returns what it prints: kaonctl("checkpoint", "create", "first").
        FailedPreconditionError with its words if it fails. docs/kaonctl.md has the commands."""
        done = subprocess.run([str(self._kaonctl), "--dir", str(self.directory), *arguments], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise FailedPreconditionError(f"kaonctl {' '.join(arguments)}: exit status {done.returncode}: "
                                          f"{(done.stderr or done.stdout).strip()}")
        return done.stdout

    def __enter__(self) -> "LocalCluster":
        _client.default_clusters.append(self)
        return self

    def __exit__(self, kind: Any = None, *_: Any) -> None:
        _client.default_clusters.remove(self)
        self._close(not _client.is_interrupt(kind))


def local_cluster(shards: int = 2, directory: Optional[str] = None) -> LocalCluster:
    """Starts a cluster on this machine and returns it, serving: `with kaon.local_cluster(shards=2):`. NotFoundError if
    no programs are installed; UnavailableError says why they did not start."""
    return LocalCluster(shards, directory)
