"""Runs kaonctl, whose JSON has stable keys (docs/kaonctl.md), and turns its errors into exceptions."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Mapping, NoReturn, Optional

from ._library import checkout, prefixes
from .errors import Error, NotFoundError, UnknownError, class_named

# A flag for the addresses beats --dir, but one for the certificates' directory does not beat these.
_FILES = ("KAON_CA", "KAON_CERT", "KAON_KEY")


def program_in(binaries: Path, name: str) -> Path:
    """`name` is the program's place below server/ of a bazel-bin."""
    built = binaries / "server" / name
    return built if built.exists() else binaries / Path(name).name


def find_kaonctl() -> Path:
    """Returns the program: in $KAON_BINARIES, the checkout's build, or an installation."""
    folders = [Path(os.environ.get("KAON_BINARIES") or checkout() / ".bazel" / "bin")]
    folders += [prefix / "bin" for prefix in prefixes()]
    for folder in folders:
        program = program_in(folder, "admin_cli/kaonctl")
        if program.exists():
            return program
    raise NotFoundError("kaonctl is not found: install Kaon (deploy/install.sh), or name its prefix in KAON_PREFIX, or "
                        "the folder of the programs in KAON_BINARIES")


def main() -> NoReturn:
    """The command kaonctl of a virtual environment: becomes the program."""
    try:
        program = find_kaonctl()
    except NotFoundError as error:
        sys.exit(str(error))
    os.execv(program, ["kaonctl", *sys.argv[1:]])


def environment_without_files() -> Dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _FILES}


def _error_of(text: str, exit_status: int) -> Error:
    """Returns the exception of what kaonctl wrote to stderr; text that is no error object stands before it."""
    begins = re.search(r'^\{\s*"error"', text, re.MULTILINE)
    try:
        error = json.loads(text[begins.start():])["error"] if begins else None
    except ValueError:
        error = None
    if error is None:
        return UnknownError(f"kaonctl: exit status {exit_status}: {text.strip()}")
    return class_named(error["code"])(error["message"])


def run_json(*arguments: str, env: Optional[Mapping[str, str]] = None) -> Any:
    """Returns the answer of a command. Raises its error, also if only a part of the answer is unknown; `partial` of
    the exception is the part that is known, or None. Ctrl-C ends the command."""
    done = subprocess.run([str(find_kaonctl()), "-o", "json", *arguments], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False, env=env)
    try:
        answer = json.loads(done.stdout) if done.stdout.strip() else None
    except ValueError:
        answer = None
    if done.returncode != 0:
        error = _error_of(done.stderr, done.returncode)
        error.partial = answer
        raise error
    return answer
