"""Client, Job, Worker and Step: the C++ library's classes for Python, with numpy arrays or torch tensors.

    client = kaon.Client("127.0.0.1:7700", tls_dir="tls")
    job = client.register("gpt", {"weight": weight, "bias": bias}, preset="moonlight", lr=3e-4)
    worker = job.join(rank=0)
    if not job.refresh().weights_loaded:
        worker.load_weights({"weight": weight, "bias": bias})
    step = job.wait_for_weights()
    job.pull(step, {"weight": weight, "bias": bias})
    record = worker.run_step(step + 1, gradients, weights, loss=loss)

Any threads may use these objects concurrently; a Worker has one open Step at a time. Waits release the GIL, and Ctrl-C
ends them. Exceptions are those of kaon.errors.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import math
import os
import threading
import time
import weakref
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple, Union

from . import _handles, _library
from ._handles import Future, Handle, call, interruptible, new_handle
from ._library import library
from ._tensors import Place, View, pack, place_of, to_float32, to_read, to_write, write_back
from .definition import Parameter, Shapes, definition_json
from .errors import CancelledError, DeadlineExceededError, Error, InvalidArgumentError, UnavailableError

# W3C traceparent of the trainer's span, such as 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01, or a function
# that returns it. None: there is no span.
Traceparent = Union[None, str, Callable[[], Optional[str]]]

_TRANSPORTS = {"auto": 0, "grpc": 1, "shm": 2}

# Closed at the exit: a callback must not come when the interpreter is gone.
_open_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()

# Clusters of `with kaon.local_cluster()`, innermost last: the default of Client().
default_clusters: List[Any] = []


@dataclass(frozen=True)
class Progress:
    """State of a job. `applied_step`: the newest decided step, which is the version to pull."""

    timeline: int
    applied_step: int
    weights_loaded: bool


@dataclass(frozen=True)
class Norm:
    """Norm and clipping of a group in one step. None: not computed or not reported."""

    norm: Optional[float]
    live_norm: Optional[float]
    clip_factor: float
    exempt: bool


@dataclass(frozen=True)
class StepRecord:
    """The decision of a step (client/kaon/step_record.h)."""

    step: int
    applied: bool
    # Why the step was skipped.
    reason: str
    ranks: Tuple[int, ...]
    grad_norm: Optional[float]
    live_norm: Optional[float]
    loss: Optional[float]
    next_loss_scale: float
    applied_updates: int
    # Digest of weights and optimizer state before this step.
    state_digest: int
    groups: Dict[str, Norm]
    norm_groups: Dict[str, Norm]


def _optional(value: float) -> Optional[float]:
    return None if math.isnan(value) else value


def _norms(items: Any, number: int) -> Dict[str, Norm]:
    return {items[i].name.decode(): Norm(_optional(items[i].norm), _optional(items[i].live_norm),
                                         items[i].clip_factor, bool(items[i].exempt)) for i in range(number)}


def _record_of(raw: _library.StepRecord) -> StepRecord:
    return StepRecord(
        step=raw.step, applied=bool(raw.applied), reason=raw.reason.decode(errors="replace"),
        ranks=tuple(raw.ranks[:raw.num_ranks]), grad_norm=_optional(raw.grad_norm), live_norm=_optional(raw.live_norm),
        loss=_optional(raw.loss), next_loss_scale=raw.next_loss_scale, applied_updates=raw.applied_updates,
        state_digest=raw.state_digest, groups=_norms(raw.groups, raw.num_groups),
        norm_groups=_norms(raw.norm_groups, raw.num_norm_groups))


def _tls_files(tls_dir: str, rank: int) -> Tuple[str, str, str]:
    """Returns the files of a directory of deploy/certificates.sh: those of the rank, or of any rank."""
    name = f"worker-{rank}"
    if not os.path.exists(os.path.join(tls_dir, name + ".crt")):
        name = "worker"
    return os.path.join(tls_dir, "ca.crt"), os.path.join(tls_dir, name + ".crt"), os.path.join(tls_dir, name + ".key")


def environment_tls_dir() -> Optional[str]:
    """Returns the directory of certificates that the environment names."""
    if os.environ.get("KAON_TLS_DIR"):
        return os.environ["KAON_TLS_DIR"]
    return os.path.join(os.environ["KAON_DIR"], "tls") if os.environ.get("KAON_DIR") else None


def _tls_dir_of_environment(rank: int) -> Optional[str]:
    """Returns the directory if it has a certificate of this rank, which the library takes only if KAON_RANK says so."""
    if any(os.environ.get(name) for name in ("KAON_RANK", "KAON_CA", "KAON_CERT", "KAON_KEY")):
        return None
    directory = environment_tls_dir()
    return directory if directory and os.path.exists(os.path.join(directory, f"worker-{rank}.crt")) else None


def _traceparent_bytes(traceparent: Traceparent) -> Optional[bytes]:
    if callable(traceparent):
        traceparent = traceparent()
    if traceparent is None:
        return None
    if not isinstance(traceparent, str):
        raise InvalidArgumentError(f"traceparent is {traceparent!r:.100}, expecting a string, None, or a function that "
                                   "returns one")
    return traceparent.encode("ascii", "replace")


def _answer(ask: Callable[[], Any]) -> Any:
    """Returns ask(), a call that ends once a coordinator answers. UnavailableError after its deadline."""
    try:
        return interruptible(ask)
    except DeadlineExceededError as error:
        raise UnavailableError(error.message) from None


def check_transport(transport: str) -> None:
    if transport not in _TRANSPORTS:
        raise InvalidArgumentError(f"transport is {transport!r}, expecting {', '.join(_TRANSPORTS)}")


class _Joins:
    """The joins of one rank by this process. An interrupted one goes on in the library until its deadline. So the next
    one waits for it, and would otherwise lose the rank to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Of the newest join, unless that was interrupted.
        self._newest: Optional[object] = None

    def run(self, join: Callable[[], Handle]) -> Handle:
        this = self._newest = object()

        def claim() -> Handle:
            with self._lock:
                if self._newest is not this:
                    raise CancelledError("another join of this rank has replaced this one")
                return join()
        try:
            return interruptible(claim)
        except BaseException:
            if self._newest is this:
                self._newest = None
            raise


class Client:
    """A connection to a cluster. Without endpoints: the innermost kaon.local_cluster(), or else the environment
    variables KAON_ENDPOINTS, KAON_TLS_DIR and KAON_RANK, or KAON_DIR.

    `endpoints`: host:port of every coordinator, a list or separated by commas. `tls_dir`: directory of ca.crt and the
    worker's certificate; `rank` chooses worker-RANK.crt in it, as KAON_RANK does. `transport`: auto, grpc or shm.
    `nccl`: network interface or subnet for NCCL, which carries tensors of the CUDA device `nccl_device` (OnDevice).
    Without endpoints KAON_NCCL is the default. It needs transport auto.
    Deadlines are in seconds; 0 is the library's default. `on_rewind(timeline, step)` is called on any thread when the
    job went back to a checkpoint; it must not block, and must not call the library.

    UnavailableError: no coordinator serves within a deadline. It has the number of tries and the newest error of each
    address. Calls that also wait for shards or other ranks ask a coordinator after their deadline, for at most
    `call_deadline` more. They raise UnavailableError if none serves, and otherwise DeadlineExceededError.
    """

    def __init__(self, endpoints: Union[None, str, Sequence[str]] = None, *, tls_dir: Optional[str] = None,
                 rank: int = 0, transport: str = "auto", lanes: int = 0, call_deadline: float = 0,
                 step_deadline: float = 0, on_rewind: Optional[Callable[[int, int], None]] = None,
                 nccl: Optional[str] = None, nccl_device: int = 0) -> None:
        if endpoints is None and default_clusters:
            endpoints = default_clusters[-1].endpoints
            tls_dir = tls_dir or default_clusters[-1].tls_dir
        check_transport(transport)
        if transport != "auto":
            # Not that of the environment either.
            nccl = ""
        options = _library.ClientOptions(size=ctypes.sizeof(_library.ClientOptions), lanes=lanes,
                                         transport=_TRANSPORTS[transport],
                                         call_deadline_ms=math.ceil(call_deadline * 1000),
                                         step_deadline_ms=math.ceil(step_deadline * 1000),
                                         nccl=None if nccl is None else nccl.encode(), nccl_device=nccl_device)
        if endpoints is not None:
            endpoints = endpoints if isinstance(endpoints, str) else ",".join(endpoints)
            options.endpoints = endpoints.encode()
        elif tls_dir is None:
            tls_dir = _tls_dir_of_environment(rank)
        # None: from the environment.
        self.endpoints = endpoints
        if tls_dir is not None:
            files = [os.fsencode(file) for file in _tls_files(os.fspath(tls_dir), rank)]
            options.tls_ca, options.tls_certificate, options.tls_private_key = files
        # The library calls it until the client is freed.
        self._on_rewind = _library.RewindFunction(
            (lambda _, timeline, step: on_rewind(timeline, step)) if on_rewind else 0)
        options.on_rewind = self._on_rewind
        _handles.check_not_forked()
        self._handle = _answer(lambda: new_handle("client", "kaon_client_connect", None, ctypes.byref(options),
                                                  kept=self._on_rewind))
        _handles.note_connected()
        # Its jobs, workers and steps: they keep connections open.
        self._children: "weakref.WeakSet[Handle]" = weakref.WeakSet()
        # By job and rank.
        self._joins: Dict[Tuple[str, int], _Joins] = {}
        _open_clients.add(self)

    def register(self, name: str, parameters: Shapes, **fields: Any) -> "Job":
        """Creates the job, or attaches to an equal one. `parameters`: {name: array or shape} in the order of their
        ids, or dictionaries with the fields of ParameterSpec. `fields`: the fields of JobDefinition in
        proto/kaon/v1/parameters.proto, such as preset, groups and max_grad_norm, with enumerators in short
        (rule="adamw"); also lr and weight_decay for the groups of the preset.

        AlreadyExistsError names the first difference, InvalidArgumentError the field, ResourceExhaustedError what does
        not fit."""
        definition = definition_json(name, parameters, fields).encode()
        return Job(self, _answer(lambda: new_handle("job", "kaon_client_register", self._handle, definition)))

    def attach(self, name: str) -> "Job":
        """Attaches to a registered job. NotFoundError if no job has that name."""
        return Job(self, _answer(lambda: new_handle("job", "kaon_client_attach", self._handle, name.encode())))

    def check_device(self, device: int) -> None:
        """InvalidArgumentError says why no tensor may be on that CUDA device. It does not ask the shards: a step passes
        the tensors to those without NCCL through host memory."""
        call("kaon_client_check_device", self._handle, device)

    def transfer_totals(self) -> Dict[str, int]:
        """Returns what was sent and received since the connect: bytes, retries and so on (client/kaon/client.h)."""
        totals = _library.TransferTotals(size=ctypes.sizeof(_library.TransferTotals))
        call("kaon_client_transfer_totals", self._handle, ctypes.byref(totals))
        return {field[0]: getattr(totals, field[0]) for field in totals._fields_ if field[0] != "size"}

    def close(self) -> None:
        """Waits for calls of register and attach by other threads, which end with their deadline. Then it cancels what
        runs, waits for the library's threads and closes jobs, workers and steps. Any thread may call it. Ctrl-C ends
        the wait, and the rest is done by another thread."""
        self._close(waits_for_calls=True)

    def _close(self, waits_for_calls: bool) -> None:
        _open_clients.discard(self)

        def close() -> None:
            self._handle.close()
            if waits_for_calls:
                self._handle.wait_until_freed()
            for child in list(self._children):
                child.close()
            _handles.close_dropped()
        interruptible(close)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: Any = None, *_: Any) -> None:
        self._close(not is_interrupt(kind))


def is_interrupt(kind: Any) -> bool:
    """Whether a `with` ends by Ctrl-C or the like: the interrupted call itself may go on until its deadline."""
    return kind is not None and not issubclass(kind, Exception)


def close_all(endpoints: Optional[str] = None, waits_for_calls: bool = False) -> None:
    """Closes the clients of a cluster, or all of them at the exit, where calls of other threads end with the
    process."""
    for client in list(_open_clients):
        if endpoints is None or client.endpoints == endpoints:
            client._close(waits_for_calls)
    _handles.await_dropped()


atexit.register(close_all)


class Job:
    """A registered job: parameters, weights and ranks."""

    def __init__(self, client: Client, handle: Handle) -> None:
        # Keeps the client open, whose threads the job needs.
        self.client = client
        self._handle = handle
        client._children.add(handle)
        text = ctypes.c_void_p()
        call("kaon_job_description", handle, ctypes.byref(text))
        try:
            self.description: Dict[str, Any] = json.loads(ctypes.string_at(text))
        finally:
            library().kaon_string_free(text)
        self.name: str = self.description["definition"]["name"]
        self.parameters: List[Parameter] = []
        routes = self.description["routes"]
        for id, spec in enumerate(self.description["definition"]["parameters"]):
            route = routes[id]
            shape = tuple(int(size) for size in spec.get("shape", ()))
            self.parameters.append(Parameter(
                spec["name"], shape, id, route["group"], route["reason"], route["shard"], spec.get("frozen", False),
                spec.get("tied_to", ""), math.prod(shape)))
        self._by_name = {parameter.name: parameter for parameter in self.parameters}

    @property
    def groups(self) -> Dict[str, Dict[str, Any]]:
        """Groups as registered, with every default written out, by name."""
        return {group["name"]: group for group in self.description["definition"]["groups"]}

    def parameter(self, name: str) -> Parameter:
        """InvalidArgumentError if the job has no parameter of that name."""
        parameter = self._by_name.get(name)
        if parameter is None:
            raise InvalidArgumentError(f"job {self.name} has no parameter {name}")
        return parameter

    def refresh(self) -> Progress:
        """Asks the coordinator. DataLossError if the job stopped."""
        def ask() -> Progress:
            progress = _library.Progress(size=ctypes.sizeof(_library.Progress))
            call("kaon_job_refresh", self._handle, ctypes.byref(progress))
            return Progress(progress.timeline, progress.applied_step, bool(progress.weights_loaded))
        return _answer(ask)

    def _waited(self, wait: Callable[[], Any]) -> Any:
        """Returns wait(). After its deadline it asks a coordinator whether the cluster serves: if not, UnavailableError
        has both reasons."""
        try:
            return wait()
        except DeadlineExceededError as late:
            try:
                self.refresh()
            except UnavailableError as down:
                raise UnavailableError(f"{late.message}; {down.message}") from None
            except Error:
                pass
            raise

    def wait_for_weights(self, timeout: float = 300) -> int:
        """Returns the applied step once the job has weights: the version to pull. DeadlineExceededError after
        `timeout` seconds."""
        end = time.monotonic() + timeout
        while True:
            rest_ms = max(0, math.ceil((end - time.monotonic()) * 1000))

            def wait() -> int:
                step = ctypes.c_uint64()
                # A slice is the deadline of a call, and the time that its thread outlives Ctrl-C.
                call("kaon_job_wait_for_weights", self._handle, min(rest_ms, 2000), ctypes.byref(step))
                return step.value
            if rest_ms <= 2000:
                return self._waited(lambda: interruptible(wait))
            with contextlib.suppress(DeadlineExceededError):
                return interruptible(wait)

    def join(self, rank: int = 0) -> "Worker":
        """Claims a rank. An earlier process of that rank loses it: its calls raise AbortedError. After Ctrl-C a further
        join of the rank waits until the interrupted one has ended."""
        joins = self.client._joins.setdefault((self.name, rank), _Joins())
        return Worker(self, self._waited(lambda: joins.run(
            lambda: new_handle("worker", "kaon_job_join", self._handle, rank))), rank)

    def pull(self, step: int, weights: Optional[Mapping[str, Any]] = None) -> Mapping[str, Any]:
        """Reads version `step` of the weights into arrays, by name, and returns them; 0 is the initial version.
        Without `weights` it returns new float32 arrays of all parameters. An error leaves their contents undefined."""
        if weights is None:
            import numpy

            weights = {parameter.name: numpy.empty(parameter.shape, numpy.float32) for parameter in self.parameters}
        self.start_pull(step, weights)()
        return weights

    def start_pull(self, step: int, weights: Mapping[str, Any]) -> Callable[[], None]:
        """As pull, but returns at once; call what it returns to wait for the weights."""
        # By device and dtype.
        pulls: Dict[Tuple[int, int], List[View]] = {}
        kept, copies = [], []
        for name, array in weights.items():
            view, owner, is_copy = to_write(self.parameter(name), array)
            # The third is the dtype.
            pulls.setdefault((place_of(array)[0], view[2]), []).append(view)
            kept.append(owner)
            if is_copy:
                copies.append((array, owner))
        futures: List[Future] = []

        def end() -> None:
            """The library no longer writes afterwards."""
            for future in futures:
                future.end()
        try:
            for (device, _), views in pulls.items():
                raw = pack(views)
                futures.append(Future((kept, raw)))
                futures[-1].fill("kaon_job_pull_to_device", self._handle, step, raw, len(raw), device)
        except BaseException:
            end()
            raise

        def finish() -> None:
            try:
                for future in futures:
                    self._waited(future.result)
            finally:
                end()
            for array, received in copies:
                write_back(array, received)
        return finish


class Worker:
    """A rank of a job that this process has claimed."""

    def __init__(self, job: Job, handle: Handle, rank: int) -> None:
        self.job = job
        self.rank = rank
        self._handle = handle
        job.client._children.add(handle)
        # The newest step that the library knows to be decided.
        self._decided_step: Optional[int] = None

    @property
    def loss_scale(self) -> float:
        """Multiply the next loss by this."""
        return self._handle.use("kaon_worker_loss_scale")

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        """Loads version 0 of all weights, by name. Rank 0 of a job without weights calls it once;
        FailedPreconditionError otherwise."""
        views, kept = [], []
        for parameter in self.job.parameters:
            if parameter.name not in weights:
                raise InvalidArgumentError(f"parameter {parameter.name} has no weights")
            view, owner = to_read(parameter, to_float32(weights[parameter.name]))
            views.append(view)
            kept.append(owner)
        raw = pack(views)
        future = Future((kept, raw))
        future.fill("kaon_worker_load_weights", self._handle, raw, len(raw))
        self.job._waited(future.result)

    def begin(self, step: int, *, token_weight: float = 1, micro_batches: int = 1, lr_multiplier: float = 1,
              group_multipliers: Optional[Mapping[str, float]] = None, traceparent: Traceparent = None) -> "Step":
        """Opens a step: the applied step + 1. `token_weight` is this worker's weight in the mean over the ranks;
        lr_multiplier and group_multipliers are factors on the groups' learning rates, equal on all workers. The step
        becomes a part of the trace in `traceparent` if the coordinator exports traces; the lowest rank's counts."""
        factors = [_library.GroupFactor(name.encode(), factor) for name, factor in (group_multipliers or {}).items()]
        raw = (_library.GroupFactor * len(factors))(*factors)
        options = _library.BeginOptions(ctypes.sizeof(_library.BeginOptions), step, token_weight, lr_multiplier, raw,
                                        len(factors), micro_batches, _traceparent_bytes(traceparent))

        # A step that nothing refers to is open until then.
        _handles.await_dropped()

        def begin() -> Handle:
            return new_handle("step", "kaon_worker_begin", self._handle, ctypes.byref(options))
        # The library asks the coordinator if the step is not the one that it expects, which may take until a deadline.
        is_next = self._decided_step is not None and step == self._decided_step + 1
        return Step(self, begin() if is_next else _answer(begin))

    def run_step(self, step: int, gradients: Mapping[str, Any], weights: Optional[Mapping[str, Any]] = None, *,
                 loss: Optional[float] = None, **options: Any) -> StepRecord:
        """Runs a whole step: pushes the gradients, waits for the decision, and pulls the new weights into `weights`.
        A parameter without an entry in `gradients` has no gradient in this step. `options` are those of begin."""
        with self.begin(step, **options) as open_step:
            open_step.push_all(gradients)
            record = open_step.finish(loss=loss)
        if weights is not None:
            self.job.pull(step, weights)
        return record

    def close(self) -> None:
        """Frees the worker, whose later calls raise FailedPreconditionError."""
        self._handle.close()


class Step:
    """An open step. Leave each pushed array unmodified until finish() returns."""

    def __init__(self, worker: Worker, handle: Handle) -> None:
        self._worker = worker
        # Memory that the library reads until the step has ended.
        self._kept: List[Any] = []
        handle.kept = self._kept
        self._handle = handle
        worker.job.client._children.add(handle)
        self._lock = threading.Lock()
        # Set by finish().
        self._decided: Optional[Future] = None
        # The ids of the parameters that have a gradient.
        self._pushed: Set[int] = set()

    def push(self, name: str, gradient: Any, micro_batch: int = 0) -> None:
        """Queues a gradient and returns at once. InvalidArgumentError names a wrong parameter, shape or dtype."""
        self.push_all({name: gradient}, micro_batch)

    def push_all(self, gradients: Mapping[str, Any], micro_batch: int = 0) -> None:
        """Queues gradients by name, as push does, in less time. If one is refused, others may be queued: close the
        step."""
        job = self._worker.job
        owners = []
        by_place: Dict[Place, List[View]] = {}
        for name, gradient in gradients.items():
            view, owner = to_read(job.parameter(name), gradient)
            by_place.setdefault(place_of(owner), []).append(view)
            owners.append(owner)
        with self._lock:
            self._kept.append(owners)
        for place, views in by_place.items():
            raw = pack(views)
            call("kaon_step_push_on_device", self._handle, raw, len(raw), micro_batch, *place)
            with self._lock:
                self._pushed.update(view[3] for view in views)

    def finish(self, *, loss: Optional[float] = None) -> StepRecord:
        """Waits for the decision. Parameters that were not pushed have no gradient in this step. Errors:
        UnavailableError (the cluster is down), DeadlineExceededError (another rank is late), DataLossError (the job
        stopped), AbortedError (another process has this rank), FailedPreconditionError (the job went back to a
        checkpoint)."""
        missing = [parameter.id for parameter in self._worker.job.parameters
                   if parameter.id not in self._pushed and not parameter.frozen]
        ids = (ctypes.c_uint32 * len(missing))(*missing)
        # A loss that is not finite is none: the gradients decide whether the step is skipped.
        reported = math.nan if loss is None or not math.isfinite(loss) else float(loss)
        options = _library.FinishOptions(ctypes.sizeof(_library.FinishOptions), reported, ids, len(missing))
        with self._lock:
            future = self._decided = Future(self._kept)
            future.fill("kaon_step_finish", self._handle, ctypes.byref(options))
        record = _record_of(self._worker.job._waited(future.record))
        self._worker._decided_step = record.step
        self.close()
        return record

    def close(self) -> None:
        """Stops the step if it was not decided. The library no longer reads its arrays afterwards."""
        with self._lock:
            decided = self._decided
        if decided is None:
            # It waits until the library no longer reads the step's arrays.
            interruptible(self._handle.close)
            # Another thread may have begun finish() meanwhile.
            with self._lock:
                decided = self._decided
        if decided is not None:
            # The library would go on after finish(), even if the handle is freed. Ctrl-C does not end this wait: the
            # next backward would change what may be decided. A finish() of another thread still takes the result.
            decided.end()
            self._handle.close()
        self._kept = []

    def __enter__(self) -> "Step":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
