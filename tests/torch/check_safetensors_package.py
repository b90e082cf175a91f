"""Reads and writes files of tensors with the reference package of the format, and compares them with the bytes.

read FILE...: the package finds in each file the tensors that its bytes hold, bit for bit.
rounded EXACT ROUNDED: the second file has the tensors of the first, as torch rounds them to bf16.
write FROM TO JOB: the package writes FROM's tensors, in other types, and JOB is the definition of a job that has
them.
same THEIRS OURS: OURS has the values of THEIRS as fp32.
"""

import json
import struct
import sys

import safetensors
import safetensors.torch
import torch

TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "I8": torch.int8, "U8": torch.uint8,
         "I64": torch.int64}


def bytes_of(path):
    """Returns name -> (dtype, shape, bytes), and the metadata, by the format's description without the package."""
    with open(path, "rb") as file:
        contents = file.read()
    (length,) = struct.unpack_from("<Q", contents)
    header = json.loads(contents[8:8 + length])
    metadata = header.pop("__metadata__", None)
    data = contents[8 + length:]
    return {name: (one["dtype"], one["shape"], data[slice(*one["data_offsets"])]) for name, one in header.items()}, metadata


def check_tensor(tensor, described):
    name, shape, data = described
    assert tensor.dtype == TYPES[name] and list(tensor.shape) == shape, (tensor.dtype, tensor.shape, name, shape)
    expected = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    assert torch.equal(tensor.contiguous().reshape(-1).view(torch.uint8), expected), (name, shape)


def read(*paths):
    assert len(paths) >= 4, paths
    for path in paths:
        expected, metadata = bytes_of(path)
        assert expected, path
        with safetensors.safe_open(path, framework="pt") as opened:
            assert set(opened.keys()) == set(expected), path
            assert opened.metadata() == metadata, (path, opened.metadata(), metadata)
            for name, described in expected.items():
                check_tensor(opened.get_tensor(name), described)
        loaded = safetensors.torch.load_file(path)
        assert set(loaded) == set(expected), path
        for name, described in expected.items():
            check_tensor(loaded[name], described)
        print(f"{path}: {len(expected)} tensors of {sorted({one[0] for one in expected.values()})}")


def rounded(exact_path, rounded_path):
    exact, low = safetensors.torch.load_file(exact_path), safetensors.torch.load_file(rounded_path)
    assert len(exact) >= 4 and set(exact) == set(low), (set(exact), set(low))
    for name, tensor in exact.items():
        assert tensor.dtype == torch.float32, name
        assert torch.equal(tensor.to(torch.bfloat16), low[name]), name


def write(from_path, to_path, job_path):
    types = (torch.float32, torch.float16, torch.bfloat16)
    tensors = safetensors.torch.load_file(from_path)
    tensors = {name: tensor.to(types[i % len(types)]) for i, (name, tensor) in enumerate(sorted(tensors.items()))}
    safetensors.torch.save_file(tensors, to_path, metadata={"format": "pt"})
    job = {
        "name": "begun", "world_size": 1, "matrix_group": "matrices", "scalar_group": "scalars",
        "groups": [{"name": "matrices", "rule": "RULE_MUON", "lr": 0.02}, {"name": "scalars", "rule": "RULE_ADAMW", "lr": 0.001}],
        "parameters": [{"name": name, "shape": list(tensor.shape), "dtype": "DTYPE_FLOAT32"} for name, tensor in tensors.items()],
    }
    with open(job_path, "w", encoding="utf-8") as file:
        json.dump(job, file)


def same(their_path, our_path):
    theirs, ours = safetensors.torch.load_file(their_path), safetensors.torch.load_file(our_path)
    assert {tensor.dtype for tensor in theirs.values()} == {torch.float32, torch.float16, torch.bfloat16}
    assert set(theirs) == set(ours), (set(theirs), set(ours))
    for name, tensor in theirs.items():
        assert ours[name].dtype == torch.float32 and torch.equal(tensor.to(torch.float32), ours[name]), name


print(f"safetensors {safetensors.__version__}, torch {torch.__version__}")
{"read": read, "rounded": rounded, "write": write, "same": same}[sys.argv[1]](*sys.argv[2:])
