"""`python3 -m kaon`, or `kaon`: doctor says what this package finds, and whether a cluster answers; import-torch and
export-torch convert checkpoints."""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from typing import Any, List, Optional

from . import Client, Error, __version__, library_version
from ._library import library
from .client import environment_tls_dir
from .cluster import find_programs
from .errors import InvalidArgumentError, NotFoundError, PermissionDeniedError


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


def _nccl(client: Client) -> None:
    try:
        client.check_device(0)
        _line("nccl", "carries tensors of CUDA device 0 to the shards that have it")
    except InvalidArgumentError as error:
        _line("nccl", f"not used: no tensor may be {error}")


def _cluster(options: argparse.Namespace) -> None:
    start = time.monotonic()
    with Client(options.endpoints, tls_dir=options.tls_dir, call_deadline=options.timeout, nccl=options.nccl) as client:
        _line("cluster", f"answers after {(time.monotonic() - start) * 1000:.0f} ms")
        _nccl(client)
        if options.job is None:
            start = time.monotonic()
            try:
                # No job has such a name. The refusal names the job that is there.
                client.attach("?")
            except (NotFoundError, PermissionDeniedError) as error:
                hint = "; name it by --job" if isinstance(error, PermissionDeniedError) else ""
                _line("job", f"{error}{hint}; a round trip takes {(time.monotonic() - start) * 1000:.1f} ms")
            return
        job = client.attach(options.job)
        start = time.monotonic()
        progress = job.refresh()
        _line("job", f"{job.name}: step {progress.applied_step}, timeline {progress.timeline}, "
                     f"{len(job.parameters)} parameters; a round trip takes {(time.monotonic() - start) * 1000:.1f} ms")


def _doctor(options: argparse.Namespace) -> int:
    _line("package", f"kaon {__version__}, Python {platform.python_version()}, numpy {_version_of('numpy')}, "
                     f"torch {_version_of('torch')}")
    failed = False
    checks = [("library", lambda: _line("library", f"{library()._name}, Kaon {library_version()}")),
              ("programs", lambda: _line("programs", f"local clusters by {find_programs()[0]}"))]
    # With endpoints of its own, a client does not read the environment.
    tls_dir = options.tls_dir or (None if options.endpoints else environment_tls_dir())
    if tls_dir:
        checks.append(("certificate", lambda: _certificates(tls_dir)))
    checks.append(("cluster", lambda: _cluster(options)))
    for what, check in checks:
        try:
            check()
        except (Error, OSError) as error:
            failed = True
            _line(what, f"FAILED: {type(error).__name__}: {error}")
    return 1 if failed else 0


def _import_torch(options: argparse.Namespace) -> int:
    from . import migrate

    fields = dict(options.fields)
    fields.update((name, getattr(options, name)) for name in ("preset", "lr", "weight_decay")
                  if getattr(options, name) is not None)
    names = None
    if options.names is not None:
        with open(options.names, encoding="utf-8") as file:
            names = file.read().split()
    made = migrate.import_torch(
        options.file, options.checkpoint_dir, options.id, job=options.job, definition=options.definition,
        momentum_form=options.momentum_form, model_key=options.model_key, optimizer_keys=options.optimizer_key,
        names=names, exclude=options.exclude, weights_only=options.weights_only, updates=options.updates,
        **fields)
    print(f"checkpoint {made.id} of job {made.job}: {made.bytes} bytes; kaonctl checkpoint restore {made.id} starts it")
    return 0


def _export_torch(options: argparse.Namespace) -> int:
    from . import migrate

    content = migrate.export_torch(options.checkpoint_dir, options.id, options.out)
    rules = ", ".join(content["optimizers"]) or "no rule"
    print(f"{options.out}: {len(content['model'])} parameters, state of {rules}")
    return 0


def _add_migrations(commands: Any) -> None:
    command = commands.add_parser("import-torch", help="make a checkpoint of Kaon from a file of torch.save")
    command.add_argument("file", help="weights, and perhaps optimizers; nothing in it is executed")
    command.add_argument("--checkpoint-dir", required=True, help="the directory of the cluster's checkpoints")
    command.add_argument("--id", required=True, help="id of the new checkpoint")
    command.add_argument("--job", help="name of the job, which has the preset and fields below")
    command.add_argument("--definition", help="or a file with the job's definition, .json or .textproto")
    command.add_argument("--preset")
    command.add_argument("--lr", type=float)
    command.add_argument("--weight-decay", type=float)
    command.add_argument("--fields", type=json.loads, default={}, help="further fields of JobDefinition, as JSON")
    command.add_argument("--momentum-form", choices=["ema", "sum"], default="ema", help="of Muon's buffers in the file")
    command.add_argument("--model-key", help="where the weights are, such as model or a/b")
    command.add_argument("--optimizer-key", action="append", help="where an optimizer's state_dict is; may be repeated")
    command.add_argument("--names", help="a file with the name of each parameter of the optimizers, in their order")
    command.add_argument("--exclude", action="append", default=[], metavar="PATTERN",
                         help="buffers and frozen weights to leave out, such as '*.running_mean'; may be repeated")
    command.add_argument("--weights-only", action="store_true", help="leave out the optimizers")
    command.add_argument("--updates", type=int, help="number of steps of optimizers that do not count them (SGD, Muon)")
    command.set_defaults(run=_import_torch)
    command = commands.add_parser("export-torch", help="write a checkpoint of Kaon as a file of torch.save")
    command.add_argument("id")
    command.add_argument("--checkpoint-dir", required=True)
    command.add_argument("--out", required=True, help="the file to write")
    command.set_defaults(run=_export_torch)


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="kaon")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    doctor = commands.add_parser("doctor", help="what this package finds, and whether a cluster answers")
    doctor.add_argument("--endpoints", help="host:port,... of the coordinators (default: the environment)")
    doctor.add_argument("--tls-dir", help="directory of ca.crt and the worker's certificate")
    doctor.add_argument("--job", help="also the state of this job")
    doctor.add_argument("--nccl", help="network of NCCL (default: KAON_NCCL, unless --endpoints is set)")
    doctor.add_argument("--timeout", type=float, default=5, help="seconds for the connection (default 5)")
    doctor.set_defaults(run=_doctor)
    _add_migrations(commands)
    options = parser.parse_args(arguments)
    try:
        return options.run(options)
    except Error as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
