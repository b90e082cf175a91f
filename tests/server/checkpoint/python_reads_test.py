#!/usr/bin/env python3
"""Python's json and struct read our safetensors files by the format's description, without any code of ours and
without the safetensors package. They find every bit where it belongs, and we read the files that Python writes."""

import json
import os
import struct
import subprocess
import sys
import tempfile

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "safetensors", "safetensors_file")
SIZES = {"F32": 4, "BF16": 2, "F16": 2, "I8": 1, "U8": 1, "I64": 8, "U64": 8}


def pattern(name, count):
    """Returns the bytes that safetensors_file.cc gives the tensor of that name."""
    return bytes((ord(name[0]) * 31 + i * 7 + (i >> 8)) & 0xFF for i in range(count))


def elements(shape):
    count = 1
    for dimension in shape:
        count *= dimension
    return count


def decode(contents):
    """Returns name -> (dtype, shape, bytes), and the metadata. Fails if the file violates the format's description."""
    (length,) = struct.unpack_from("<Q", contents)
    text = contents[8:8 + length]
    assert len(text) == length and text[:1] == b"{", (length, len(text))
    header = json.loads(text.decode("utf-8"))
    metadata = header.pop("__metadata__", {})
    data = contents[8 + length:]
    tensors, end = {}, 0
    for name, entry in header.items():
        begin, stop = entry["data_offsets"]
        assert begin == end, f"{name} begins at {begin}, expecting {end}"
        assert stop - begin == SIZES[entry["dtype"]] * elements(entry["shape"]), name
        assert begin % SIZES[entry["dtype"]] == 0, f"{name} is not aligned"
        tensors[name] = (entry["dtype"], entry["shape"], data[begin:stop])
        end = stop
    assert end == len(data), (end, len(data))
    assert (8 + length) % 4096 == 0, length
    return tensors, metadata


def check_ours(path):
    subprocess.run([PROGRAM, "write", path], check=True)
    with open(path, "rb") as file:
        tensors, metadata = decode(file.read())
    expected = {
        "float": ("F32", [3, 700, 500]), "bfloat": ("BF16", [129]), "half": ("F16", []), "int": ("I8", [2, 2, 2, 2]),
        "unsigned \u03b1 \"q\"": ("U8", [34]), "long": ("I64", [5]), "Unsigned long": ("U64", [1]), "nothing": ("F32", [0, 3]),
    }
    assert set(tensors) == set(expected), set(tensors) ^ set(expected)
    for name, (dtype, shape) in expected.items():
        assert tensors[name][:2] == (dtype, shape), (name, tensors[name][:2])
        assert tensors[name][2] == pattern(name, SIZES[dtype] * elements(shape)), name
    assert metadata == {"job": "tiny", "step": "12"}, metadata


def check_theirs(path):
    """Lays a file out as torch and the safetensors package do: padded to 8 bytes, entries in any order."""
    header = {
        "b": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [12, 20]},
        "__metadata__": {"format": "pt"},
        "a": {"shape": [3], "data_offsets": [0, 12], "dtype": "F32"},
    }
    text = json.dumps(header).encode("utf-8")
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + pattern("a", 12) + pattern("b", 8))
    printed = subprocess.run([PROGRAM, "print", path], check=True, stdout=subprocess.PIPE, text=True).stdout
    expected = f"a F32 {pattern('a', 12).hex()}\nb BF16 {pattern('b', 8).hex()}\n"
    assert printed == expected, printed


with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
    check_ours(os.path.join(folder, "ours.safetensors"))
    check_theirs(os.path.join(folder, "theirs.safetensors"))
