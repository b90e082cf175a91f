"""Checks exported weights in the given folder against the servers' report. Uses struct and json alone, by the text of
docs/formats.md about safetensors files and digests. Writes the definition of a job with the same parameters."""

import json
import math
import os
import struct
import sys

MASK = (1 << 64) - 1
BLOCK = 512
WEIGHT_SLOT = 0


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


MULTIPLIERS = [mix(j) >> 32 | 0x80000001 for j in range(BLOCK)]


def digest_of(parameter_id, words):
    key = mix(mix(0x4B616F6E54656E73) ^ (parameter_id << 32 | WEIGHT_SLOT)) | 1
    total = key * len(words)
    for block in range(0, len(words), BLOCK):
        products = sum(word * multiplier for word, multiplier in zip(words[block:block + BLOCK], MULTIPLIERS))
        total += products * (mix(key ^ block // BLOCK) | 1)
    return total & MASK


def read_safetensors(path):
    """Returns name -> (dtype, shape, bytes)."""
    with open(path, "rb") as file:
        content = file.read()
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8:8 + length])
    header.pop("__metadata__", None)
    data = content[8 + length:]
    assert sum(entry["data_offsets"][1] - entry["data_offsets"][0] for entry in header.values()) == len(data), path
    return {name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])]) for name, entry in header.items()}


def to_bfloat16(bits):
    """Rounds to nearest, ties to even."""
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


def check_tensor(row, stats, exact, rounded):
    """Checks one parameter: the report of `kaonctl`, and its tensors in the fp32 and in the bf16 file. Returns its
    words as fp32."""
    name, count = row["name"], math.prod(row["shape"])
    assert exact[:2] == ("F32", row["shape"]), (name, exact[:2], row["shape"])
    assert rounded[:2] == ("BF16", row["shape"]), (name, rounded[:2], row["shape"])
    words = struct.unpack(f"<{count}I", exact[2])
    assert struct.unpack(f"<{count}H", rounded[2]) == tuple(to_bfloat16(word) for word in words), name
    norm = math.sqrt(math.fsum(value * value for value in struct.unpack(f"<{count}f", exact[2])))
    assert norm > 0 and math.isclose(norm, stats["weight_norm"], rel_tol=1e-5), (name, norm, stats["weight_norm"])
    return words


def write_job(path, rows):
    """Returns another job, which has only the names and shapes of these rows."""
    job = {
        "name": "begun", "world_size": 1, "matrix_group": "matrices", "scalar_group": "scalars",
        "groups": [{"name": "matrices", "rule": "RULE_MUON", "lr": 0.02}, {"name": "scalars", "rule": "RULE_ADAMW", "lr": 0.001}],
        "parameters": [{"name": row["name"], "shape": row["shape"], "dtype": "DTYPE_FLOAT32"} for row in rows],
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(job, file)


def main(folder):
    def load(name):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            return json.load(file)

    rows = sorted(load("parameters")["parameters"], key=lambda row: row["parameter_id"])
    with open(os.path.join(folder, "stats"), encoding="utf-8") as file:
        text, stats, at = file.read(), {}, 0
    decoder = json.JSONDecoder()
    while at < len(text.rstrip()):
        one, at = decoder.raw_decode(text, at)
        at += len(text[at:]) - len(text[at:].lstrip())
        stats[one["name"]] = one
    exact = read_safetensors(os.path.join(folder, "float32.safetensors"))
    rounded = read_safetensors(os.path.join(folder, "bfloat16.safetensors"))
    names = {row["name"] for row in rows}
    assert len(rows) >= 4 and set(exact) == names and set(rounded) == names, (names, set(exact), set(rounded))

    held = load("digest")
    digests = {shard["shard"]: 0 for shard in held["shards"]}
    for row in rows:
        words = check_tensor(row, stats[row["name"]], exact[row["name"]], rounded[row["name"]])
        digests[row["shard"]] += digest_of(row["parameter_id"], words)
    for shard in held["shards"]:
        own = f"{digests[shard['shard']] & MASK:016x}"
        assert own == shard["weights_digest"], (shard, own)
    total = f"{sum(digests.values()) & MASK:016x}"
    assert total == held["weights_digest"], (held["weights_digest"], total)
    print(f"{len(rows)} tensors, {sum(math.prod(row['shape']) for row in rows)} elements, weights digest {total}")
    write_job(os.path.join(folder, "job.json"), rows)


main(sys.argv[1])
