"""Checkpoints of torch to checkpoints of Kaon and back: weights, state of AdamW, Muon and SGD, and numbers of steps.

    kaon.migrate.import_torch("last.pt", "checkpoints", "start", job="gpt", preset="moonlight", lr=3e-4)
    kaon.migrate.export_torch("checkpoints", "gpt-1-500", "gpt.pt")

`python3 -m kaon import-torch` and `export-torch` do the same. Files are read with weights_only, so nothing in them is
executed. The work is on files; no cluster is asked. Needs torch and kaonctl.
"""

from __future__ import annotations

import fnmatch
import json
import mmap
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch

from . import _kaonctl
from ._tensors import WIRE_NAMES, dtype_of
from .admin import Checkpoint, _row
from .definition import definition_json
from .errors import AlreadyExistsError, InvalidArgumentError, NotFoundError

# Where trainers keep the weights, in the order of the search.
_MODEL_KEYS = ("model", "model_state_dict", "state_dict", "module")
# torch.nn.parallel and torch.compile put these before every name.
_PREFIXES = ("module.", "_orig_mod.")
# State that a shard keeps, too, by torch's names.
_ROLES = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer")


@dataclass(frozen=True)
class TorchState:
    """Weights in the order of the model, and what the optimizer has for each: roles such as exp_avg, and `step`.
    `left_out`: entries of the model that are no parameters."""

    weights: Dict[str, torch.Tensor]
    state: Dict[str, Dict[str, Any]]
    left_out: Tuple[str, ...]


def read_torch(file: Any, *, model_key: Optional[str] = None, optimizer_keys: Optional[Sequence[str]] = None,
               names: Optional[Sequence[str]] = None, exclude: Sequence[str] = (),
               weights_only: bool = False) -> TorchState:
    """Reads a file of torch.save. `model_key` and `optimizer_keys` say where weights and optimizers are; otherwise
    usual places are searched. `names`: a parameter for each number in the optimizers' states, one optimizer after the
    other. They are needed if the file has no names and an optimizer has several groups. `exclude`: patterns of buffers
    and frozen weights. `weights_only` leaves out the optimizers.

    InvalidArgumentError names what is missing or does not fit, NotFoundError a file or key that is not there."""
    if not Path(file).exists():
        raise NotFoundError(f"there is no file {file}")
    try:
        with open(file, "rb") as opened:
            _check_loadable(file, opened)
            content = torch.load(opened, map_location="cpu", weights_only=True)
    except InvalidArgumentError:
        raise
    except Exception as error:
        hint = "" if _torch_version() >= (2, 0) else "; before torch 2.0 it reads no file with floats such as lr"
        raise InvalidArgumentError(f"{file} cannot be read by torch.load with weights_only, which executes nothing: "
                                   f"{error}{hint}") from None
    weights, left_out = _weights_of(_model_of(content, model_key), exclude)
    state: Dict[str, Dict[str, Any]] = {}
    if not weights_only:
        optimizers = _optimizers_of(content, optimizer_keys)
        rest = list(names) if names is not None else None
        for optimizer in optimizers:
            state.update(_state_of(optimizer, list(weights), rest))
        if rest:
            raise InvalidArgumentError(f"names has {len(rest)} more than the optimizers have parameters, "
                                       f"from {rest[0]} on")
    for name, values in state.items():
        if name not in weights:
            raise InvalidArgumentError(f"the optimizer has parameter {name}, which is not among the weights")
        for role in _ROLES:
            if role in values and values[role].shape != weights[name].shape:
                raise InvalidArgumentError(
                    f"parameter {name}: {role} has shape {list(values[role].shape)}, the weights "
                    f"{list(weights[name].shape)}: give the parameters of the optimizer in their order by names")
    return TorchState(weights, state, tuple(left_out))


def _torch_version() -> Tuple[int, ...]:
    return tuple(int(part) for part in torch.__version__.split(".")[:2])


def _check_loadable(file: Any, opened: BinaryIO) -> None:
    """Refuses what older versions of torch.load execute in spite of weights_only."""
    is_zip = opened.read(4) == b"PK\x03\x04"
    opened.seek(0)
    if not is_zip:
        if _torch_version() < (2, 6):
            raise InvalidArgumentError(f"{file} is no zip archive, which only torch 2.6 and later read safely: "
                                       "save it again with torch 1.6 or later, or use torch 2.6")
        return
    # All bytes: readers of zip may differ in which directory of an archive counts, but none compresses names.
    with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content.find(b"constants.pkl") >= 0:
            raise InvalidArgumentError(f"{file} has constants.pkl, so it is a TorchScript archive, which is a program: "
                                       "save its state_dict() by torch.save")


def _at(content: Any, path: str) -> Any:
    for key in path.split("/"):
        if isinstance(content, (list, tuple)) and key.isdigit() and int(key) < len(content):
            content = content[int(key)]
        elif isinstance(content, Mapping) and key in content:
            content = content[key]
        else:
            there = ", ".join(str(name) for name in content) if isinstance(content, Mapping) else "no keys"
            raise NotFoundError(f"the file has no {path}; it has {there}")
    return content


def _is_weights(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value) and all(
        isinstance(key, str) and isinstance(item, torch.Tensor) for key, item in value.items())


def _model_of(content: Any, key: Optional[str]) -> Mapping[str, torch.Tensor]:
    found = _at(content, key) if key else next(
        (content[name] for name in _MODEL_KEYS if isinstance(content, Mapping) and _is_weights(content.get(name))),
        content)
    if not _is_weights(found):
        raise InvalidArgumentError(f"weights are not found at {key or ', '.join(_MODEL_KEYS)}: name their key "
                                   "(--model-key)")
    return found


def _without_prefixes(names: Sequence[str]) -> List[str]:
    names = list(names)
    for prefix in _PREFIXES * 2:
        if names and all(name.startswith(prefix) for name in names):
            names = [name[len(prefix):] for name in names]
    return names


def _weights_of(model: Mapping[str, torch.Tensor],
                exclude: Sequence[str]) -> Tuple[Dict[str, torch.Tensor], List[str]]:
    """Returns the parameters as named_parameters() has them: tied ones once."""
    weights: Dict[str, torch.Tensor] = {}
    left_out = []
    seen = set()
    for name, tensor in zip(_without_prefixes(list(model)), model.values()):
        place = (tensor.data_ptr(), tensor.shape, tensor.stride())
        is_tied = tensor.numel() > 0 and place in seen
        if is_tied or not tensor.is_floating_point() or any(fnmatch.fnmatch(name, one) for one in exclude):
            left_out.append(name)
            continue
        seen.add(place)
        dtype_of(name, tensor)
        weights[name] = tensor
    return weights, left_out


def _is_optimizer(value: Any) -> bool:
    return isinstance(value, Mapping) and "state" in value and "param_groups" in value


def _optimizers_of(content: Any, keys: Optional[Sequence[str]]) -> List[Mapping[str, Any]]:
    if keys:
        found = [_at(content, key) for key in keys]
        for key, value in zip(keys, found):
            if not _is_optimizer(value):
                raise InvalidArgumentError(f"{key} is no state_dict of an optimizer")
        return found
    return list(_search_optimizers(content, 2))


def _search_optimizers(content: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    """Finds the optimizers of a file, also in lists and dictionaries of several."""
    if _is_optimizer(content):
        yield content
    elif depth > 0 and isinstance(content, (Mapping, list, tuple)):
        for item in content.values() if isinstance(content, Mapping) else content:
            yield from _search_optimizers(item, depth - 1)


def _state_of(optimizer: Mapping[str, Any], weights: List[str],
              names: Optional[List[str]]) -> Dict[str, Dict[str, Any]]:
    """Returns the state by parameter, and removes the names that it used."""
    groups = optimizer["param_groups"]
    keys = [key for group in groups for key in group["params"]]
    if names is not None:
        if len(names) < len(keys):
            raise InvalidArgumentError(f"names has {len(names)} more parameters, the optimizer has {len(keys)}")
        named, names[:] = names[:len(keys)], names[len(keys):]
    elif all("param_names" in group for group in groups):
        named = [name for group in groups for name in group["param_names"]]
    elif all(isinstance(key, str) for key in keys):
        named = keys
    elif len(groups) == 1 and len(keys) == len(weights):
        named = weights
    else:
        raise InvalidArgumentError(
            f"an optimizer has {len(keys)} parameters in {len(groups)} groups without names, the model has "
            f"{len(weights)}: give their names in order (--names), leave out what is no parameter (--exclude), or "
            "leave out the optimizers (--weights-only)")
    state = {}
    for key, name in zip(keys, _without_prefixes(named)):
        values = optimizer["state"].get(key, {})
        # SGD without momentum has None.
        state[name] = {role: value for role, value in values.items()
                       if (role in _ROLES or role == "step") and value is not None}
    return state


def import_torch(file: Any, checkpoint_dir: Any, id: str, *, job: Optional[str] = None, definition: Any = None,
                 momentum_form: str = "ema", model_key: Optional[str] = None,
                 optimizer_keys: Optional[Sequence[str]] = None, names: Optional[Sequence[str]] = None,
                 exclude: Sequence[str] = (), weights_only: bool = False, updates: Optional[int] = None,
                 **fields: Any) -> Checkpoint:
    """Makes checkpoint `id` of step 0 in `checkpoint_dir`, from which `kaonctl checkpoint restore` starts the job.

    The job is `job` with the fields of Client.register, such as preset and lr; a trainer that registers with the same
    ones attaches to it. Or `definition` is a file of a JobDefinition (.json or .textproto). `momentum_form` is that of
    the file's Muon buffers: ema for torch.optim.Muon, sum if each step adds the gradient. Numbers of steps continue:
    Adam's bias correction, and the job's schedules. `updates` is the number of steps of optimizers that do not count
    them, as torch's SGD and Muon do not; otherwise the largest number in the file is taken. If it has none, a
    UserWarning says that the job's schedules restart. The other options are those of read_torch.

    InvalidArgumentError names every tensor that does not fit the job's rules. AlreadyExistsError if the id exists."""
    found = read_torch(file, model_key=model_key, optimizer_keys=optimizer_keys, names=names, exclude=exclude,
                       weights_only=weights_only)
    if updates is not None and updates < 1:
        raise InvalidArgumentError(f"updates is {updates}, expecting at least 1")
    if (job is None) == (definition is None):
        raise InvalidArgumentError("name the job, or the file of its definition")
    with tempfile.TemporaryDirectory(prefix="kaon-") as folder:
        if definition is None:
            definition = Path(folder) / "job.json"
            specs = [{"name": name, "shape": list(tensor.shape), "dtype": WIRE_NAMES[dtype_of(name, tensor)]}
                     for name, tensor in found.weights.items()]
            if not fields.get("preset") and not fields.get("groups"):
                fields["preset"] = "default"
            definition.write_text(definition_json(str(job), specs, fields))
        tensors = Path(folder) / "tensors.safetensors"
        with open(tensors, "wb") as to:
            _write_safetensors(to, _tensors_of(found, updates), {"momentum_form": momentum_form})
        return _row(Checkpoint, _kaonctl.run_json("checkpoint", "import", str(tensors), "--job", str(definition),
                                                  "--checkpoint-dir", str(checkpoint_dir), "--id", id))


def _tensors_of(found: TorchState, updates: Optional[int] = None) -> Dict[str, torch.Tensor]:
    """Returns the tensors as kaonctl names them (docs/kaonctl.md)."""
    tensors = dict(found.weights)
    largest = max((int(values["step"]) for values in found.state.values() if "step" in values), default=0)
    has_roles = any(role in values for values in found.state.values() for role in _ROLES)
    is_unknown = False
    for name, values in found.state.items():
        roles = [role for role in _ROLES if role in values]
        # SGD without momentum has no roles, and still steps; a number alone is not enough for other rules.
        if not roles and (updates is None or has_roles):
            continue
        for role in roles:
            tensors[f"{role}:{name}"] = values[role]
        if "step" in values:
            count = int(values["step"])
        else:
            # SGD's first update would replace the momentum, so a parameter with state had at least one.
            count = updates or largest or 1
            is_unknown = is_unknown or not (updates or largest)
        tensors[f"updates_applied:{name}"] = torch.tensor(count, dtype=torch.int64)
    if is_unknown:
        warnings.warn("the file has no number of steps, so the job's schedules restart: give the number by updates "
                      "(--updates)", stacklevel=3)
    return tensors


def _write_safetensors(file: BinaryIO, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """Writes floats as F32, which holds every value of the narrower ones."""
    header: Dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.numel() * (8 if tensor.dtype == torch.int64 else 4)
        header[name] = {"dtype": "I64" if tensor.dtype == torch.int64 else "F32", "shape": list(tensor.shape),
                        "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for tensor in tensors.values():
        dense = tensor.detach() if tensor.dtype == torch.int64 else tensor.detach().to(torch.float32)
        file.write(dense.contiguous().numpy().tobytes())


def _read_safetensors(path: Path) -> Tuple[Dict[str, torch.Tensor], Dict[str, str]]:
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        metadata = header.pop("__metadata__", {})
        tensors = {}
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"][0]):
            begin, end = entry["data_offsets"]
            dtype = {"F32": torch.float32, "I64": torch.int64}[entry["dtype"]]
            content = bytearray(file.read(end - begin))
            flat = torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)
            tensors[name] = flat.reshape(entry["shape"])
    return tensors, metadata


def export_torch(checkpoint_dir: Any, id: str, out: Any) -> Dict[str, Any]:
    """Writes a checkpoint as a file of torch.save, and returns its content: `model` with the fp32 weights; `optimizers`
    with a state_dict for each rule of the job: adamw, muon or sgd of torch.optim, with the parameters' names; and
    `kaon` with job and step. Muon's buffers are in the form of torch (ema). A group of the job has one param_group for
    each pair of multipliers of lr and weight decay.

    AlreadyExistsError if `out` exists. InvalidArgumentError names a group and its setting that torch does not have,
    such as a scale of Muon or a mode of decay. NotFoundError names a checkpoint that is not there, DataLossError what
    is damaged."""
    if Path(out).exists():
        raise AlreadyExistsError(f"{out} is there")
    with tempfile.TemporaryDirectory(prefix="kaon-") as folder:
        file = Path(folder) / "state.safetensors"
        _kaonctl.run_json("checkpoint", "export", id, "--state", "--checkpoint-dir", str(checkpoint_dir), "--out",
                          str(file))
        tensors, metadata = _read_safetensors(file)
    registration = json.loads(metadata["registration"])
    definition = registration["definition"]
    names = [spec["name"] for spec in definition["parameters"]]
    routes = {names[int(row["parameter_id"])]: row for row in registration["placement"]["parameters"]}
    rules: Dict[str, Dict[str, Any]] = {}
    for group in definition["groups"]:
        # By multipliers of lr and weight decay, which a group of torch does not have.
        members: Dict[Tuple[float, float], List[str]] = {}
        for name in names:
            route = routes[name]
            if route["group"] == group["name"] and f"updates_applied:{name}" in tensors:
                multipliers = float(route["lr_multiplier"]), float(route["weight_decay_multiplier"])
                members.setdefault(multipliers, []).append(name)
        rule = group["rule"].replace("RULE_", "").lower()
        for multipliers, some in members.items():
            _check_exists_in_torch(rule, group)
            _add_group(rules.setdefault(rule, {"state": {}, "param_groups": []}), rule, group, multipliers, some,
                       tensors)
    content = {"model": {name: tensors[name] for name in names}, "optimizers": rules,
               "kaon": {"job": metadata["job"], "step": int(metadata["step"]), "checkpoint": metadata["checkpoint"]}}
    torch.save(content, out)
    return content


def _check_exists_in_torch(rule: str, group: Mapping[str, Any]) -> None:
    """Refuses settings with which the optimizers of torch would go on in another way."""
    expected: Dict[str, Tuple[Any, ...]] = {}
    if rule == "adamw":
        expected = {"eps_mode": ("ADAM_EPS_MODE_OUTSIDE",), "bias_correction": (True,)}
    elif rule == "muon":
        expected = {"scale": ("UPDATE_SCALE_ORIGINAL", "UPDATE_SCALE_MATCH_RMS_ADAMW"), "scale_extra": (1,)}
    found = {field: group[rule][field] for field in expected}
    modes = {"adamw": ("DECAY_MODE_DECOUPLED", "DECAY_MODE_L2"), "muon": ("DECAY_MODE_DECOUPLED",),
             "sgd": ("DECAY_MODE_L2",)}
    if float(group["weight_decay"]) != 0 and rule in modes:
        expected["decay_mode"], found["decay_mode"] = modes[rule], group["decay_mode"]
    for field, values in expected.items():
        if found[field] not in values:
            raise InvalidArgumentError(
                f"group {group['name']}: {field} is {found[field]}, which {rule} of torch.optim does not have, but "
                f"{' or '.join(map(str, values))}: `kaonctl checkpoint export` writes the weights alone")


def _add_group(optimizer: Dict[str, Any], rule: str, group: Mapping[str, Any], multipliers: Tuple[float, float],
               members: List[str], tensors: Mapping[str, torch.Tensor]) -> None:
    """Adds one param_group and the state of its members, in the order of the job's parameters."""
    first = len(optimizer["state"])
    written = {"params": list(range(first, first + len(members))), "param_names": members, "name": group["name"]}
    written.update(_settings_of(rule, group))
    written["lr"] *= multipliers[0]
    written["weight_decay"] *= multipliers[1]
    optimizer["param_groups"].append(written)
    factor = 1.0
    if rule == "muon" and group["muon"]["momentum_form"] == "MOMENTUM_FORM_SUM":
        factor = 1 - float(group["muon"]["momentum"])
    for index, name in zip(written["params"], members):
        state: Dict[str, Any] = {role: tensors[f"{role}:{name}"] * (factor if role == "momentum_buffer" else 1)
                                 for role in _ROLES if f"{role}:{name}" in tensors}
        if rule == "adamw":
            state["step"] = tensors[f"updates_applied:{name}"].to(torch.float32)
        optimizer["state"][index] = state


def _settings_of(rule: str, group: Mapping[str, Any]) -> Dict[str, Any]:
    """Returns a group's settings by the names of torch.optim; torch fills in the others."""
    settings: Dict[str, Any] = {"lr": float(group["lr"]), "weight_decay": float(group["weight_decay"])}
    own = group.get(rule, {})
    if rule == "adamw":
        settings.update(betas=(float(own["beta1"]), float(own["beta2"])), eps=float(own["eps"]),
                        amsgrad=own["amsgrad"], decoupled_weight_decay=group["decay_mode"] != "DECAY_MODE_L2")
    elif rule == "sgd":
        settings.update(momentum=float(own["momentum"]), dampening=float(own["dampening"]), nesterov=own["nesterov"])
    elif rule == "muon":
        settings.update(momentum=float(own["momentum"]), nesterov=own["nesterov"], ns_steps=int(own["ns_steps"]),
                        # torch's default, which is Kaon's `jordan`; other coefficients are set by hand.
                        ns_coefficients=(3.4445, -4.775, 2.0315), eps=1e-7,
                        adjust_lr_fn=own["scale"].replace("UPDATE_SCALE_", "").lower())
    return settings
