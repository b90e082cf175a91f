"""Definitions of jobs as the JSON that the library reads (proto/kaon/v1/parameters.proto has every field)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple, Union

from ._tensors import WIRE_NAMES, dtype_of, shape_of
from .errors import InvalidArgumentError

# Enumerations by field: "muon" means RULE_MUON.
_PREFIXES = {
    "rule": "RULE_",
    "ns_coefficients": "NEWTON_SCHULZ_COEFFICIENTS_",
    "custom_repeat": "NEWTON_SCHULZ_REPEAT_",
    "norm_mode": "NORM_MODE_",
    "form": "NEWTON_SCHULZ_FORM_",
    "scale": "UPDATE_SCALE_",
    "ns_dtype": "NEWTON_SCHULZ_DTYPE_",
    "momentum_form": "MOMENTUM_FORM_",
    "decay_mode": "DECAY_MODE_",
    "momentum_dtype": "STATE_DTYPE_",
    "exp_avg_sq_dtype": "STATE_DTYPE_",
    "eps_mode": "ADAM_EPS_MODE_",
    "clip_policy": "CLIP_POLICY_",
    "missing_gradient": "MISSING_GRADIENT_",
    "tier": "TIER_",
    "clip_scope": "CLIP_SCOPE_",
    "report_norms": "REPORT_NORMS_",
    "worker_loss": "WORKER_LOSS_POLICY_",
    "dtype": "DTYPE_",
}
# `kind` is of a schedule or of a layout.
_KINDS = {"schedule": "SCHEDULE_KIND_", "layout": "MATRIX_LAYOUT_KIND_"}

# The rule that steps each of a preset's groups (docs/routing.md).
_PRESET_RULES = {"matrices": "RULE_MUON", "scalars": "RULE_ADAMW"}

Shapes = Union[Mapping[str, Any], Iterable[Mapping[str, Any]]]


@dataclass(frozen=True)
class Parameter:
    """A parameter of a registered job and its route."""

    name: str
    shape: Tuple[int, ...]
    id: int
    # Empty for a frozen parameter.
    group: str
    # Why it has that group.
    reason: str
    shard: int
    frozen: bool
    tied_to: str
    num_elements: int


def with_enums(value: Any, parent: str = "") -> Any:
    """Returns the value with the short names of enumerators written out, in all its dictionaries."""
    if isinstance(value, Mapping):
        written = {}
        for field, item in value.items():
            prefix = _KINDS.get(parent) if field == "kind" else _PREFIXES.get(field)
            if prefix and isinstance(item, str) and not item.startswith(prefix):
                item = prefix + item.upper()
            written[field] = with_enums(item, field)
        return written
    if isinstance(value, (list, tuple)):
        return [with_enums(item, parent) for item in value]
    return value


def parameter_specs(parameters: Shapes) -> List[Dict[str, Any]]:
    """Takes {name: array or shape}, or dictionaries with the fields of ParameterSpec."""
    if not isinstance(parameters, Mapping):
        return [dict(with_enums(spec)) for spec in parameters]
    specs = []
    for name, value in parameters.items():
        if hasattr(value, "shape"):
            spec = {"name": name, "shape": list(shape_of(value)), "dtype": WIRE_NAMES[dtype_of(name, value)]}
        else:
            spec = {"name": name, "shape": [int(size) for size in value], "dtype": "DTYPE_FLOAT32"}
        specs.append(spec)
    return specs


def preset_groups(preset: str, lr: Union[None, float, Mapping[str, float]],
                  weight_decay: Optional[float]) -> List[Dict[str, Any]]:
    """Returns the groups that give a preset other values: one learning rate for all groups, or one for each name."""
    if lr is None and weight_decay is None:
        return []
    # Only this preset has no matrices.
    names = ["scalars"] if preset == "adamw" else ["matrices", "scalars"]
    if isinstance(lr, Mapping):
        unknown = [name for name in lr if name not in names]
        if unknown:
            raise InvalidArgumentError(f"lr: preset {preset} has no group {unknown[0]}, but {' and '.join(names)}")
    groups = []
    for name in names:
        group: Dict[str, Any] = {"name": name, "rule": _PRESET_RULES[name]}
        value = lr.get(name) if isinstance(lr, Mapping) else lr
        if value is not None:
            group["lr"] = float(value)
        if weight_decay is not None:
            group["weight_decay"] = float(weight_decay)
        groups.append(group)
    return groups


def definition_json(name: str, parameters: Shapes, fields: Mapping[str, Any]) -> str:
    """Returns the JSON of a JobDefinition. `fields` are its other fields, and `lr` and `weight_decay` for the groups
    of a preset."""
    fields = dict(fields)
    lr, weight_decay = fields.pop("lr", None), fields.pop("weight_decay", None)
    if lr is not None or weight_decay is not None:
        if fields.get("groups"):
            raise InvalidArgumentError("lr and weight_decay are for the groups of a preset: set them in `groups`")
        fields["preset"] = fields.get("preset") or "default"
        fields["groups"] = preset_groups(fields["preset"], lr, weight_decay)
    definition = {"name": name, "world_size": 1, "parameters": parameter_specs(parameters)}
    definition.update((field, value) for field, value in fields.items() if value is not None)
    return json.dumps(with_enums(definition))
