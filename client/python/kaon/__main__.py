"""`python3 -m kaon doctor`: what this package finds, and whether a cluster answers."""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import time
from typing import List, Optional

from . import Client, Error, __version__, library_version
from ._library import library
from .cluster import find_programs


def _line(what: str, found: str) -> None:
    print(f"{what:<12} {found}")


def _version_of(package: str) -> str:
    """Without an import: torch takes seconds to load."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _certificates(tls_dir: str) -> None:
    """Prints the expiry of each certificate, as openssl says."""
    from pathlib import Path

    for file in sorted(Path(tls_dir).glob("*.crt")):
        said = subprocess.run(["openssl", "x509", "-in", str(file), "-noout", "-enddate"], capture_output=True,
                              text=True, check=False)
        _line("certificate", f"{file}: {(said.stdout or said.stderr).strip().replace('notAfter=', 'until ')}")


def _cluster(options: argparse.Namespace) -> None:
    start = time.monotonic()
    with Client(options.endpoints, tls_dir=options.tls_dir, call_deadline=options.timeout) as client:
        _line("cluster", f"answers after {(time.monotonic() - start) * 1000:.0f} ms")
        if options.job is None:
            return
        job = client.attach(options.job)
        start = time.monotonic()
        progress = job.refresh()
        _line("job", f"{job.name}: step {progress.applied_step}, timeline {progress.timeline}, "
                     f"{len(job.parameters)} parameters; a round trip takes {(time.monotonic() - start) * 1000:.1f} ms")


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m kaon")
    parser.add_argument("command", choices=["doctor"])
    parser.add_argument("--endpoints", help="host:port,... of the coordinators (default: the environment)")
    parser.add_argument("--tls-dir", help="directory of ca.crt and the worker's certificate")
    parser.add_argument("--job", help="also a round trip for this job")
    parser.add_argument("--timeout", type=float, default=5, help="seconds for the connection (default 5)")
    options = parser.parse_args(arguments)
    _line("package", f"kaon {__version__}, Python {platform.python_version()}, numpy {_version_of('numpy')}, "
                     f"torch {_version_of('torch')}")
    failed = False
    checks = [("library", lambda: _line("library", f"{library()._name}, Kaon {library_version()}")),
              ("programs", lambda: _line("programs", f"local clusters by {find_programs()[0]}"))]
    if options.tls_dir:
        checks.append(("certificate", lambda: _certificates(options.tls_dir)))
    checks.append(("cluster", lambda: _cluster(options)))
    for what, check in checks:
        try:
            check()
        except Error as error:
            failed = True
            _line(what, f"FAILED: {type(error).__name__}: {error}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
