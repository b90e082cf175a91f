"""A cluster's state, history, settings and checkpoints, as dataclasses: what kaonctl shows and does.

    cluster = kaon.admin.Cluster("127.0.0.1:7700", tls_dir="tls")    # or that of kaon.local_cluster()
    print(cluster.status().phase)
    history = cluster.steps(limit=1000).to_pandas()
    cluster.group_set("scalars", lr=0.002)
    cluster.checkpoints.create("before-decay")

Each call runs `kaonctl -o json`, so tls_dir needs the certificate of an admin, or of a reader for calls that change
nothing, or of a checkpointer to take checkpoints. docs/kaonctl.md says what each value means. Exceptions are those of
kaon.errors. Objects are immutable; any threads may use them concurrently.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from dataclasses import dataclass, field
from typing import Any, Dict, Generic, List, Mapping, Optional, Tuple, Type, TypeVar, Union

from . import _kaonctl
from . import client as _client
from .errors import FailedPreconditionError

T = TypeVar("T")


@dataclass(frozen=True)
class _Row:
    """An object of kaonctl's JSON. `raw` has all of its keys; later releases add some."""

    raw: Mapping[str, Any] = field(repr=False, compare=False)


@dataclass(frozen=True)
class Shard(_Row):
    """A shard. The values after `problem` are None while it does not answer."""

    shard: int
    address: str
    connected: bool
    # Empty when all is well.
    problem: str
    applied_step: Optional[int]
    # Counted since the shard started.
    applied_steps: Optional[int]
    skipped_steps: Optional[int]
    durability: Optional[str]
    parameters: Optional[int]
    capacity_bytes: Optional[int]
    used_bytes: Optional[int]
    staging_bytes: Optional[int]
    journal_bytes: Optional[int]
    backend: Optional[str]
    device_class: Optional[str]
    events: Optional[Mapping[str, int]]


@dataclass(frozen=True)
class Member(_Row):
    """A worker that has joined. `begun_step` is 0 if no step is open."""

    rank: int
    attempt: str
    begun_step: int
    grad_norm: Optional[float]
    grad_norm_outliers: int


@dataclass(frozen=True)
class Status(_Row):
    """What the service is doing. `phase` also says what blocks the job."""

    job: str
    phase: str
    applied_step: int
    weights_digest: Optional[str]
    holder: bool
    holder_address: str
    shards: Tuple[Shard, ...]
    # None if the coordinator that was asked does not hold the shards.
    workers: Optional[Tuple[Member, ...]]
    # Of the coordinator that was asked.
    events: Mapping[str, int]


@dataclass(frozen=True)
class Parameter(_Row):
    """Route, home and state of a parameter. The last values are None while its shard does not answer."""

    parameter_id: int
    name: str
    # The rule, or `frozen`.
    route: str
    reason: str
    group: str
    shard: int
    shape: Tuple[int, ...]
    dtype: str
    lr_multiplier: float
    weight_decay_multiplier: float
    state_bytes: Optional[int]
    tier: Optional[str]
    updates_applied: Optional[int]


@dataclass(frozen=True)
class ParameterStats(_Row):
    """Norms of a parameter in its newest step; None where they were not computed."""

    name: str
    group: str
    shard: int
    weight_norm: Optional[float]
    grad_norm: Optional[float]
    update_norm: Optional[float]
    update_to_weight_ratio: Optional[float]
    momentum_norm: Optional[float]
    orthogonality_error: Optional[float]
    updates_applied: Optional[int]


@dataclass(frozen=True)
class ParameterSample(_Row):
    """Statistics of a parameter at one step; None where there is no such value."""

    step: int
    weight_norm: float
    grad_norm: Optional[float]
    update_norm: Optional[float]
    update_to_weight_ratio: Optional[float]
    orthogonality_error: Optional[float]
    stable_rank: Optional[float]


@dataclass(frozen=True)
class GroupNorm(_Row):
    """Norm and clipping of a group in one step. `exempt`: norm clipping leaves it alone."""

    group: str
    norm: Optional[float]
    exempt: bool
    clip_factor: Optional[float]


@dataclass(frozen=True)
class NormGroup(_Row):
    """Norm and clipping of the groups that are clipped together."""

    norm_group: str
    norm: Optional[float]
    live_norm: Optional[float]
    clip_factor: Optional[float]


@dataclass(frozen=True)
class Step(_Row):
    """A decided entry of the job's history. `kind`: load_weights, train, group_change, restore or rollback. Only a
    train step has a step, loss, rates and norms."""

    position: int
    kind: str
    decided: Optional[str]
    step: Optional[int]
    # apply or skip; `reason` says why it was skipped.
    outcome: Optional[str]
    reason: Optional[str]
    loss: Optional[float]
    grad_norm: Optional[float]
    live_norm: Optional[float]
    norms: Optional[Mapping[str, GroupNorm]]
    norm_groups: Optional[Mapping[str, NormGroup]]
    applied_updates: Optional[int]
    loss_scale: Optional[float]
    # Learning rates by group.
    rates: Optional[Mapping[str, float]]
    timeline: Optional[int]


@dataclass(frozen=True)
class Tier(_Row):
    """Where a shard keeps weights and state. Only a disk has the values after capacity_bytes."""

    shard: int
    tier: str
    parameters: int
    used_bytes: int
    capacity_bytes: int
    read_bytes: Optional[int]
    written_bytes: Optional[int]
    hit_rate: Optional[float]
    waited_seconds: Optional[float]


@dataclass(frozen=True)
class Event(_Row):
    """How often a server has counted something since it started. `server`: coordinator, shard 0, ..."""

    server: str
    event: str
    count: int


@dataclass(frozen=True)
class Checkpoint(_Row):
    """A checkpoint. One with a problem has no other value than its id."""

    id: str
    job: Optional[str]
    timeline: Optional[int]
    position: Optional[int]
    step: Optional[int]
    bytes: Optional[int]
    shards: Optional[int]
    weights_digest: Optional[str]
    state_digest: Optional[str]
    created: Optional[str]
    problem: Optional[str]


@dataclass(frozen=True)
class Restored(_Row):
    """The job goes on from `checkpoint` as `timeline`."""

    checkpoint: Checkpoint
    timeline: int
    position: int


class Table(Tuple[T, ...], Generic[T]):
    """A tuple of dataclasses."""

    def to_pandas(self) -> Any:
        """Returns a DataFrame with a column for each value; nested ones are `norms.scalars.norm`.
        FailedPreconditionError if pandas is not installed."""
        try:
            import pandas
        except ImportError:
            raise FailedPreconditionError("to_pandas() needs pandas, which is not installed: pip install "
                                          "pandas") from None
        return pandas.DataFrame([_flat(row) for row in self])


def _flat(value: Any, prefix: str = "") -> Dict[str, Any]:
    """Returns the values of a dataclass or dictionary, with the path to each as its name."""
    if dataclasses.is_dataclass(value):
        items: List[Tuple[str, Any]] = [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)
                                        if f.name != "raw"]
    else:
        items = list(value.items())
    columns: Dict[str, Any] = {}
    for name, item in items:
        if dataclasses.is_dataclass(item) or isinstance(item, Mapping):
            columns.update(_flat(item, f"{prefix}{name}."))
        else:
            columns[prefix + name] = item
    return columns


def _typed(hint: Any, value: Any) -> Any:
    """Returns a value of JSON as the type of its field."""
    if value is None:
        return None
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Union:
        return _typed(arguments[0], value)
    if origin is tuple:
        return tuple(_typed(arguments[0], item) for item in value)
    if dataclasses.is_dataclass(hint):
        return _row(typing.cast(type, hint), value)
    if isinstance(value, list):
        # Rows of a mapping begin with their key.
        return {next(iter(item.values())): _typed(arguments[1], item) for item in value}
    return value


# It compiles every annotation of a class.
_hints = functools.lru_cache(maxsize=None)(typing.get_type_hints)


def _row(cls: Type[T], value: Mapping[str, Any]) -> T:
    """A key that is absent is None."""
    values = {name: _typed(hint, value.get(name)) for name, hint in _hints(cls).items() if name != "raw"}
    return typing.cast(Any, cls)(raw=value, **values)


def _table(cls: Type[T], rows: List[Mapping[str, Any]]) -> "Table[T]":
    return Table(_row(cls, row) for row in rows)


class Cluster:
    """A cluster, asked through kaonctl. Without endpoints: the innermost kaon.local_cluster(), or else the environment
    variables of kaonctl. `endpoints`: host:port of every coordinator, a list or separated by commas. `tls_dir`:
    directory of ca.crt and the admin's, reader's or checkpointer's certificate. `timeout`: seconds for each call.
    `job`: the job's name, if calls shall fail for another one."""

    def __init__(self, endpoints: Union[None, str, List[str]] = None, *, tls_dir: Optional[str] = None,
                 timeout: float = 10, job: Optional[str] = None) -> None:
        if endpoints is None and _client.default_clusters:
            endpoints = _client.default_clusters[-1].endpoints
            tls_dir = tls_dir or _client.default_clusters[-1].tls_dir
        self._arguments = ["--timeout", str(timeout)]
        if endpoints is not None:
            self._arguments += ["--endpoints", endpoints if isinstance(endpoints, str) else ",".join(endpoints)]
        if tls_dir is not None:
            self._arguments += ["--tls-dir", str(tls_dir)]
        if job is not None:
            self._arguments += ["--job", job]
        self._env = None if tls_dir is None else _kaonctl.environment_without_files()
        self.checkpoints = Checkpoints(self)

    def call(self, *arguments: str) -> Any:
        """Returns the JSON of any command of kaonctl: call("job", "show")."""
        return _kaonctl.run_json(*self._arguments, *arguments, env=self._env)

    def status(self) -> Status:
        """Returns phase, shards, workers and counted events."""
        return _row(Status, self.call("status"))

    def parameters(self, filter: Optional[str] = None) -> "Table[Parameter]":
        """`filter`: only names that contain this RE2. UnavailableError while a shard does not answer."""
        arguments = ["parameters"] + (["--filter", filter] if filter is not None else [])
        return _table(Parameter, self.call(*arguments)["parameters"])

    def parameter_stats(self, name: str) -> ParameterStats:
        """NotFoundError if the job has no such parameter."""
        return _row(ParameterStats, self.call("parameter", "stats", name))

    def parameter_history(self, name: str) -> "Table[ParameterSample]":
        """Returns samples since the parameter's shard started, oldest first. NotFoundError as parameter_stats."""
        return _table(ParameterSample, self.call("parameter", "history", name)["samples"])

    def parameter_read(self, name: str, tensor: str = "weight", *, offset: int = 0,
                       count: int = 16) -> List[Optional[float]]:
        """Returns committed values of a tensor from element `offset` on, in row-major order: at most 262144. None
        stands for NaN and infinity. NotFoundError names the tensors that there are."""
        return self.call("parameter", "read", name, "--tensor", tensor, "--offset", str(offset),
                         "--count", str(count))["values"]

    def steps(self, limit: int = 100) -> "Table[Step]":
        """Returns the newest decisions, at most 1000, oldest first."""
        return _table(Step, self.call("steps", "--limit", str(limit))["steps"])

    def events(self) -> "Table[Event]":
        """Returns what the coordinator that was asked and every shard have counted."""
        status = self.call("status")
        servers = [("coordinator", status)] + [(f"shard {shard['shard']}", shard) for shard in status["shards"]]
        return _table(Event, [{"server": server, "event": event, "count": count} for server, counted in servers
                              for event, count in counted.get("events", {}).items()])

    def tiers(self) -> "Table[Tier]":
        """Returns what each shard keeps in memory and on disk."""
        return _table(Tier, self.call("tiers")["tiers"])

    def group_set(self, group: str, settings: Optional[Mapping[str, Any]] = None, **fields: Any) -> Mapping[str, Any]:
        """Changes fields of a group from the next step on, all or none, and returns the group as it is then:
        group_set("matrices", {"muon.momentum": 0.9}, lr=0.01)."""
        return self.call("group", "set", group, *_settings(settings, fields))["group"]

    def job_set(self, settings: Optional[Mapping[str, Any]] = None, **fields: Any) -> Mapping[str, Any]:
        """Changes fields of the job, such as world_size, and returns kaonctl's answer."""
        return self.call("job", "set", *_settings(settings, fields))


def _settings(settings: Optional[Mapping[str, Any]], fields: Mapping[str, Any]) -> List[str]:
    written = {**(settings or {}), **fields}
    return [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in written.items()]


class Checkpoints:
    """Checkpoints in the coordinator's directory: Cluster(...).checkpoints."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def create(self, id: Optional[str] = None) -> Checkpoint:
        """Writes the state of the job as it is, while it goes on. AlreadyExistsError if the id exists."""
        return _row(Checkpoint, self._cluster.call("checkpoint", "create", *([id] if id else [])))

    def list(self) -> "Table[Checkpoint]":
        """Newest first, those with a problem last."""
        return _table(Checkpoint, self._cluster.call("checkpoint", "list")["checkpoints"])

    def verify(self, id: str) -> Checkpoint:
        """Reads every byte. DataLossError names what is damaged; NotFoundError if there is no such checkpoint."""
        return _row(Checkpoint, self._cluster.call("checkpoint", "verify", id))

    def restore(self, id: Optional[str] = None, *, expect_step: Optional[int] = None,
                allow_other_build: bool = False) -> Restored:
        """Continues the job from a checkpoint, by default the newest good one, or starts its job. Later steps are
        lost. It does not ask. FailedPreconditionError if the job is at an earlier step than expect_step."""
        options = ["--yes"] + (["--allow-other-build"] if allow_other_build else [])
        if expect_step is not None:
            options += ["--expect-step", str(expect_step)]
        return _row(Restored, self._cluster.call("checkpoint", "restore", *([id] if id else []), *options))

    def delete(self, id: str) -> Checkpoint:
        """Removes a checkpoint. It does not ask."""
        return _row(Checkpoint, self._cluster.call("checkpoint", "delete", id, "--yes")["deleted"])


def checkpoint(id: Optional[str] = None, **cluster: Any) -> Checkpoint:
    """Saves weights and optimizer state of the job under a name, while training goes on. `cluster` has the arguments
    of Cluster; the certificate is an admin's. AlreadyExistsError if the id exists."""
    return Cluster(**cluster).checkpoints.create(id)
