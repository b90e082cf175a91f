#!/usr/bin/python3
"""Packs the Python package and a relocatable installation into a wheel.

Usage: deploy/wheel.py TREE OUTPUT

TREE is the tree that deploy/package.sh packs into its archive. The wheel has its servers, kaonctl, scripts and
libraries in kaon/installation/, so that `pip install` alone is enough for a local cluster. Writes
OUTPUT/kaon-VERSION-...whl and prints its path. Equal inputs give equal bytes.
"""

import base64
import hashlib
import os
import sys
import time
import zipfile
from pathlib import Path

ROOT = Path(os.path.abspath(__file__)).parent.parent
# The programs and libraries of Debian 12 need its C library or a later one.
TAG = "py3-none-manylinux_2_36_x86_64"
PROGRAMS = ("kaon-coordinator", "kaon-shard", "kaonctl")

METADATA = """Metadata-Version: 2.1
Name: kaon
Version: {version}
Summary: Python client of the Kaon optimizer-state service, with its servers
License: Apache-2.0
Requires-Python: >=3.9
Requires-Dist: numpy
Provides-Extra: pandas
Requires-Dist: pandas; extra == "pandas"
Provides-Extra: plot
Requires-Dist: matplotlib; extra == "plot"
Provides-Extra: torch
Requires-Dist: torch>=1.13; extra == "torch"
"""

WHEEL = """Wheel-Version: 1.0
Generator: deploy/wheel.py
Root-Is-Purelib: false
Tag: {tag}
"""


# As in client/python/pyproject.toml.
COMMANDS = """[console_scripts]
kaon = kaon.__main__:main
kaonctl = kaon._kaonctl:main
"""


def installed_files(tree):
    """(path in the wheel, file) of what the package uses of the tree. A wheel has no links, so a library has the name
    that others load."""
    wanted = [tree / "bin" / name for name in PROGRAMS]
    wanted += [path for path in sorted((tree / "lib").glob("*.so*")) if not path.name.startswith("libkaon")]
    wanted += sorted(path for folder in ("share/kaon/deploy", "share/doc/kaon") for path in (tree / folder).rglob("*")
                     if path.is_file())
    for path in wanted:
        yield f"kaon/installation/{path.relative_to(tree)}", path
    # libkaon.so.0.1, and neither libkaon.so nor libkaon.so.0.1.0.
    soname, = (path for path in (tree / "lib").glob("libkaon.so.*.*") if path.name.count(".") == 3)
    yield f"kaon/installation/lib/{soname.name}", soname


def main(tree, output):
    version = (ROOT / "VERSION").read_text().strip()
    files = {f"kaon/{path.name}": path.read_bytes() for path in sorted((ROOT / "client/python/kaon").iterdir())
             if path.suffix == ".py" or path.name == "py.typed"}
    executable = set()
    for name, path in installed_files(tree):
        files[name] = path.read_bytes()
        if os.access(path, os.X_OK):
            executable.add(name)
    about = f"kaon-{version}.dist-info"
    files[f"{about}/METADATA"] = METADATA.format(version=version).encode()
    files[f"{about}/WHEEL"] = WHEEL.format(tag=TAG).encode()
    files[f"{about}/entry_points.txt"] = COMMANDS.encode()
    record = f"{about}/RECORD"
    lines = [f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip('=')},"
             f"{len(content)}" for name, content in files.items()]
    files[record] = "\n".join(lines + [f"{record},,", ""]).encode()
    # A zip knows no time before 1980.
    date = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", 0)), 315532800))[:6]
    path = output / f"kaon-{version}-{TAG}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, date)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if name in executable else 0o100644) << 16
            wheel.writestr(entry, content)
    print(f"{path}: {path.stat().st_size >> 20} MiB")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
