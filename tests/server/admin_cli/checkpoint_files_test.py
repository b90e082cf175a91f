#!/usr/bin/env python3
"""Tests `kaonctl checkpoint import` and `export` on files that this script writes and reads with struct and json
alone. The exported weights equal the imported ones: bit for bit as float32, and rounded to nearest even as
bfloat16."""

import json
import os
import random
import struct
import subprocess
import sys
import tempfile

KAONCTL = os.path.join(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"], "server/admin_cli/kaonctl")

JOB = """
name: "run" world_size: 1 matrix_group: "matrices" scalar_group: "scalars"
groups { name: "matrices" rule: RULE_MUON lr: 0.02 }
groups { name: "scalars" rule: RULE_ADAMW lr: 0.001 }
parameters { name: "hidden.weight" shape: 300 shape: 1000 dtype: DTYPE_FLOAT32 }
parameters { name: "hidden.bias" shape: 1000 dtype: DTYPE_FLOAT32 }
parameters { name: "norm" shape: 7 dtype: DTYPE_FLOAT32 }
"""
SHAPES = {"hidden.weight": [300, 1000], "hidden.bias": [1000], "norm": [7]}


def write_safetensors(path, tensors):
    """tensors: name -> (dtype, shape, bytes)."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    with open(path, "rb") as file:
        content = file.read()
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8:8 + length])
    metadata = header.pop("__metadata__", {})
    data = content[8 + length:]
    tensors = {name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])]) for name, entry in header.items()}
    return tensors, metadata


def bits_of(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def to_bfloat16(bits):
    """Rounds to nearest, ties to even. The value and the result are finite."""
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


def kaonctl(*arguments, status=0):
    done = subprocess.run([KAONCTL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout if status == 0 else done.stderr


def main(folder):
    random.seed(20261121)
    masters = {}
    for name, shape in SHAPES.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        masters[name] = [bits_of(random.gauss(0, 1)) for _ in range(count)]
    # These are ties, which round to even on both sides.
    masters["norm"] = [0x3F808000, 0x3F818000, 0x3F808001, 0xBF807FFF, 0x00000000, 0x80000000, 0x00000001]
    # norm is bfloat16 in one of the imported files.
    given = {
        "norm": ("F32", SHAPES["norm"], struct.pack("<7I", *masters["norm"])),
        "hidden.bias": ("BF16", SHAPES["hidden.bias"], struct.pack("<1000H", *(to_bfloat16(b) for b in masters["hidden.bias"]))),
        "hidden.weight": ("F32", SHAPES["hidden.weight"], struct.pack("<300000I", *masters["hidden.weight"])),
    }
    masters["hidden.bias"] = [to_bfloat16(b) << 16 for b in masters["hidden.bias"]]
    source, job, checkpoints = (os.path.join(folder, name) for name in ("in.safetensors", "job.textproto", "ckpt"))
    write_safetensors(source, given)
    with open(job, "w", encoding="utf-8") as file:
        file.write(JOB)
    os.mkdir(checkpoints, 0o700)

    made = json.loads(kaonctl("-o", "json", "checkpoint", "import", source, "--job", job, "--checkpoint-dir", checkpoints, "--id", "start"))
    assert made["step"] == 0 and made["timeline"] == 1 and made["position"] == 1 and made["job"] == "run", made

    for dtype, name, code in (("float32", "F32", "I"), ("bfloat16", "BF16", "H")):
        out = os.path.join(folder, dtype)
        told = json.loads(kaonctl("-o", "json", "checkpoint", "export", "start", "--checkpoint-dir", checkpoints, "--out", out, "--dtype", dtype))
        digest = subprocess.run(["sha256sum", out], stdout=subprocess.PIPE, text=True, check=True).stdout.split()[0]
        assert told["sha256"] == digest and told["bytes"] == os.path.getsize(out), (told, digest)
        tensors, metadata = read_safetensors(out)
        assert set(tensors) == set(SHAPES), tensors.keys()
        assert metadata["job"] == "run" and metadata["step"] == "0" and metadata["format"] == "pt", metadata
        for parameter, (stored, shape, content) in tensors.items():
            assert (stored, shape) == (name, SHAPES[parameter]), (parameter, stored, shape)
            expected = masters[parameter] if dtype == "float32" else [to_bfloat16(b) for b in masters[parameter]]
            assert content == struct.pack(f"<{len(expected)}{code}", *expected), (parameter, dtype)

    del given["norm"]
    given["extra"] = ("F32", [1], b"\0\0\0\0")
    write_safetensors(source, given)
    why = kaonctl("checkpoint", "import", source, "--job", job, "--checkpoint-dir", checkpoints, "--id", "other", status=2)
    assert "tensor 'norm' is missing; tensor 'extra' is no parameter of the job" in why, why
    assert not [name for name in os.listdir(checkpoints) if name.startswith("other")]
    why = kaonctl("checkpoint", "export", "absent", "--checkpoint-dir", checkpoints, "--out", os.path.join(folder, "x"), status=3)
    assert "NOT_FOUND" in why and "absent.manifest" in why, why


with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as temporary:
    main(temporary)
