"""kaon.Optimizer: a torch.optim.Optimizer whose state and step are on the shards."""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple, Union

import torch

from ._staging import Staged, Staging
from ._tensors import WIRE_NAMES, dtype_of
from .client import Client, Step, StepRecord, Traceparent, check_transport
from .data_parallel import Ranks, Result, without_ddp_prefix
from .errors import (Error, FailedPreconditionError, InvalidArgumentError, RewoundError, SkippedStepWarning,
                     UnimplementedError)

NamedParameters = Union[torch.nn.Module, Iterable[Tuple[str, torch.Tensor]]]


def _trained(named_parameters: NamedParameters) -> List[Tuple[str, torch.Tensor]]:
    """Returns the parameters of the job: a tied one once, under its first name; no frozen one."""
    if isinstance(named_parameters, torch.nn.Module):
        named_parameters = named_parameters.named_parameters()
    trained: List[Tuple[str, torch.Tensor]] = []
    seen = set()
    for item in named_parameters:
        if not isinstance(item, tuple):
            raise InvalidArgumentError("kaon.Optimizer needs names: pass model.named_parameters()")
        name, parameter = item
        if id(parameter) in seen or not parameter.requires_grad:
            continue
        seen.add(id(parameter))
        dtype_of(name, parameter)
        trained.append((name, parameter))
    if not trained:
        raise InvalidArgumentError("no parameter requires a gradient")
    return trained


def _call_when_accumulated(parameter: torch.Tensor, ready: Callable[..., None]) -> Tuple[Any, Any]:
    """Calls ready() with any arguments once a backward pass has accumulated the parameter's gradient. Returns the hook,
    and what must live as long as it."""
    if hasattr(parameter, "register_post_accumulate_grad_hook"):
        return parameter.register_post_accumulate_grad_hook(ready), None
    # Before torch 2.1: a hook of the node that accumulates, which only a weak reference of the parameter leads to.
    with torch.enable_grad():
        node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
    return node.register_hook(ready), node


class Optimizer(torch.optim.Optimizer):
    """Trains a model's parameters through a Kaon cluster. Registers the job and loads the model's weights, or attaches
    to the job and pulls its weights into the model.

    `preset`, `lr` (one for all groups, or {group: lr}), `weight_decay`, `groups` and further `fields` define the job
    as Client.register says. There is one param_group for each group of the job; a scheduler may change its lr, and
    the shards step with the changed value. `rank` and `world_size` are RANK and WORLD_SIZE of torch.distributed, or 0
    and 1. step() sends the gradients. With `overlap` the last of `micro_batches` backward passes sends each one as soon
    as it is ready. Then they must not be changed through .data or numpy afterwards, which nobody notices; after other
    changes, such as clip_grad_norm_, step() sends all again.
    `transport` auto: if the client has `nccl`, CUDA tensors go over NCCL, and the weights come back to the parameters.
    Otherwise, and with grpc, they are copied through pinned host memory of the model's size, on a stream of its own;
    `overlap` starts these copies in backward.
    `aggregate`: the ranks of `process_group`, of torch.distributed's default group if None, aggregate their gradients
    themselves, and each gradient is sent to the shards once (kaon.data_parallel says what is computed). "averaged": the
    gradients are means over the ranks, as DistributedDataParallel leaves them. "reduce": step() reduces them. Then
    `rank` and `world_size` are those of the group, all ranks call step() and pull() alike, an error of one is raised on
    all, and `module.` is removed if every parameter's name begins with it.
    `traceparent`, which is also an attribute, is as in Worker.begin. A function is called when the step begins: in
    step(), or with `overlap` in backward, perhaps on a thread of autograd.

    `client`, or else `endpoints`, `tls_dir` and further `connection` options, are as in kaon.Client. Other ranks wait
    `weights_timeout` seconds for the weights that rank 0 loads. One thread uses an optimizer at a time; the hooks may
    run on the threads of autograd.
    """

    def __init__(self, named_parameters: NamedParameters, job: str, *, preset: Optional[str] = None,
                 lr: Union[None, float, Mapping[str, float]] = None, weight_decay: Optional[float] = None,
                 rank: Optional[int] = None, world_size: Optional[int] = None, micro_batches: int = 1,
                 overlap: bool = False, traceparent: Traceparent = None, transport: str = "auto",
                 aggregate: Optional[str] = None, process_group: Any = None,
                 client: Optional[Client] = None, endpoints: Any = None, tls_dir: Optional[str] = None,
                 connection: Optional[Mapping[str, Any]] = None, weights_timeout: float = 300,
                 **fields: Any) -> None:
        self._trained = _trained(named_parameters)
        if micro_batches < 1:
            raise InvalidArgumentError(f"micro_batches is {micro_batches}, expecting at least 1")
        self.micro_batches = micro_batches
        self._overlap = overlap
        # May change from step to step.
        self.traceparent = traceparent
        rank = int(os.environ.get("RANK", 0)) if rank is None else rank
        world_size = int(os.environ.get("WORLD_SIZE", 1)) if world_size is None else world_size
        # The ranks that aggregate gradients themselves, if they do.
        self._ranks: Optional[Ranks] = None
        if aggregate is not None:
            if overlap:
                raise InvalidArgumentError("overlap needs aggregate=None: DistributedDataParallel and "
                                           "aggregate=\"averaged\" reduce gradients during backward")
            self._trained = without_ddp_prefix(self._trained)
            self._ranks = Ranks(aggregate, process_group, [parameter for _, parameter in self._trained], rank,
                                world_size, fields.get("worker_loss"))
        self._owns_client = client is None
        check_transport(transport)
        devices = [parameter.device.index for _, parameter in self._trained if parameter.is_cuda]
        # A client with NCCL pushes from host memory over one connection, and not over shared memory.
        nccl = {"nccl_device": devices[0]} if devices else {"nccl": ""}
        self.client = client or Client(endpoints, tls_dir=tls_dir, rank=rank, **{
            "transport": transport, **nccl, **(connection or {})})
        self._staging = Staging(self.client.check_device if transport == "auto" else None)
        specs = [{"name": name, "shape": list(parameter.shape), "dtype": WIRE_NAMES[dtype_of(name, parameter)]}
                 for name, parameter in self._trained]
        if preset is None and not fields.get("groups"):
            preset = "default"
        self.job = self.client.register(job, specs, preset=preset, lr=lr, weight_decay=weight_decay,
                                        world_size=world_size, **fields)
        self.worker = self.job.join(rank)
        if rank == 0 and not self.job.refresh().weights_loaded:
            self.worker.load_weights(dict(self._trained))
        self.applied_step = self.job.wait_for_weights(weights_timeout)
        self.timeline = self._together(self.job.refresh, lambda progress: progress.timeline).timeline
        # The newest decision; None before the first step.
        self.last_record: Optional[StepRecord] = None
        # Weight of this worker's gradients in the mean over the ranks, such as its number of tokens. Set it before
        # the backward pass: a later change sends all gradients again.
        self.token_weight = 1.0
        self._init_groups()
        self._init_step()
        self.pull()

    def _set_base(self) -> None:
        """Takes the settings of the groups, which the param_groups' values are compared with."""
        self._base_lr: Dict[str, float] = {name: float(group.get("lr", 0)) for name, group in self.job.groups.items()}
        self._base_decay: Dict[str, float] = {name: float(group.get("weight_decay", 0))
                                              for name, group in self.job.groups.items()}

    def _init_groups(self) -> None:
        """One param_group for each group that has parameters."""
        self._set_base()
        members: Dict[str, List[torch.Tensor]] = {name: [] for name in self._base_lr}
        for name, parameter in self._trained:
            members[self.job.parameter(name).group].append(parameter)
        self._may_add_groups = True
        super().__init__([{"params": params, "name": name, "lr": self._base_lr[name],
                           "weight_decay": self._base_decay[name]}
                          for name, params in members.items() if params], {"lr": 0.0, "weight_decay": 0.0})
        self._may_add_groups = False

    def _init_step(self) -> None:
        self._lock = threading.RLock()
        self._open: Optional[Step] = None
        self._begun_with: Any = None
        # Gradients that are copied to host memory for the open step and not sent yet, by index, oldest first.
        self._staged: Dict[int, Staged] = {}
        # (gradient, its version) that the open step sends, by index.
        self._pushed: Dict[int, Tuple[torch.Tensor, int]] = {}
        # What the open step sends in place of the gradients of ranks that aggregate, by index.
        self._aggregated: Dict[int, torch.Tensor] = {}
        # A step is decided, and its weights are not in the parameters yet.
        self._is_unpulled = False
        # The worker was not told the next loss scale: by the record of a step, or by a step that ended as rewound.
        self._must_join = False
        # An error that may come of a rewind, which is not followed to its end yet.
        self._unfollowed: Optional[FailedPreconditionError] = None
        self._num_backward = [0] * len(self._trained)
        # An error of a hook, which step() raises: autograd would lose its class.
        self._hook_error: Optional[Error] = None
        self._hooks: List[Tuple[Any, Any]] = []
        if self._overlap:
            this = weakref.ref(self)
            for index, (_, parameter) in enumerate(self._trained):
                def ready(*_: Any, index: int = index) -> None:
                    optimizer = this()
                    if optimizer is not None:
                        optimizer._on_gradient(index)
                self._hooks.append(_call_when_accumulated(parameter, ready))

    def _on_gradient(self, index: int) -> None:
        """A gradient is complete after the last micro-batch; after one more, what was sent is out of date."""
        with self._lock:
            self._num_backward[index] += 1
            if self._num_backward[index] == self.micro_batches and self._hook_error is None:
                try:
                    self._push([index])
                except Error as error:
                    self._hook_error = error

    def _options(self) -> Dict[str, Any]:
        """Options of begin: the param_groups' learning rates as factors on the job's."""
        factors = {}
        for group in self.param_groups:
            base, lr = self._base_lr[group["name"]], float(group["lr"])
            decay = self._base_decay[group["name"]]
            if float(group["weight_decay"]) != decay:
                raise InvalidArgumentError(f"group {group['name']}: weight_decay is {group['weight_decay']}, but the "
                                           f"job's is {decay}: change it with kaonctl group set")
            if lr == base:
                continue
            if base == 0:
                raise InvalidArgumentError(f"group {group['name']}: lr is {lr}, but the job's is 0, which no factor "
                                           "changes: register it with another one")
            factors[group["name"]] = lr / base
        return {"token_weight": float(self.token_weight), "group_multipliers": factors}

    def _push(self, indices: List[int]) -> None:
        """Starts to copy these gradients, and sends those in host memory."""
        if self._open is None:
            self._begun_with = self._options()
            self._open = self.worker.begin(self.applied_step + 1, traceparent=self.traceparent, **self._begun_with)
        gradients = [(index, self._aggregated.get(index, self._trained[index][1].grad)) for index in indices]
        self._staged.update(self._staging.read(gradients))
        self._pushed.update({index: (gradient, gradient._version) for index, gradient in gradients})
        self._send()

    def _send(self, wait: bool = False) -> None:
        """Sends the gradients whose copies are complete, in the order of their copies; with `wait` all of them."""
        while self._staged:
            complete: Dict[int, Any] = {}
            for index, staged in self._staged.items():
                if not staged.is_ready():
                    # Those before need not wait for this one.
                    if complete or not wait:
                        break
                    staged.wait()
                complete[index] = staged.source
            if not complete:
                return
            assert self._open is not None
            self._open.push_all({self._trained[index][0]: source for index, source in complete.items()})
            for index in complete:
                del self._staged[index]

    def _is_current(self) -> bool:
        """Whether the open step sends the gradients as they are now, with the options as they are now."""
        if self._begun_with != self._options():
            return False
        for index, (gradient, version) in self._pushed.items():
            if self._trained[index][1].grad is not gradient or gradient._version != version:
                return False
        return True

    def _drop_step(self) -> None:
        step, self._open = self._open, None
        self._pushed = {}
        self._staged = {}
        self._aggregated = {}
        if step is not None:
            step.close()

    def _decide(self, loss: Optional[float]) -> StepRecord:
        with self._lock:
            error, self._hook_error = self._hook_error, None
            if error is not None:
                raise error
            if self._open is not None and not self._is_current():
                self._drop_step()
            if self._ranks is not None:
                self._aggregated = self._ranks.gradients(float(self.token_weight))
                # A rank may own none of them.
                self._push(list(self._aggregated))
            rest = [index for index, (_, parameter) in enumerate(self._trained)
                    if parameter.grad is not None and index not in self._pushed and self._ranks is None]
            if rest:
                self._push(rest)
            self._send(wait=True)
            if self._open is None:
                raise FailedPreconditionError("no parameter has a gradient: call backward() before step()")
            return self._open.finish(loss=loss)

    def _together(self, call: Callable[[], Result], number_of: Callable[[Result], int] = lambda _: 0) -> Result:
        """Returns call(); of ranks that aggregate, on all or on none."""
        return call() if self._ranks is None else self._ranks.together(call, number_of)

    def _decide_together(self, loss: Optional[float]) -> StepRecord:
        try:
            return self._together(lambda: self._decide(loss), lambda record: record.step)
        except Error:
            if self._ranks is not None and self._ranks.newest > self.applied_step:
                # Another rank knows the decision. So the next step() pulls on all of them.
                self.applied_step, self._is_unpulled, self._must_join = self._ranks.newest, True, True
            raise

    def step(self, closure: Optional[Callable[[], Any]] = None, *, loss: Any = None) -> Any:
        """Waits for the decision of all ranks and pulls the new weights into the parameters. A parameter without a
        gradient is left alone, or stepped with zeros, as the group's missing_gradient says. `loss`, or what the
        closure returns, is recorded with the step.

        A skipped step warns with kaon.SkippedStepWarning; `last_record` has the reason. RewoundError: the job went back
        to a checkpoint, whose weights are in the model now. After another exception step() may be called again: if the
        step was decided, it only pulls."""
        if self._unfollowed is not None:
            # These gradients may be of the weights before.
            self._drop_step()
            self._hook_error = None
            self._num_backward = [0] * len(self._trained)
            self._follow_rewind(self._unfollowed)
        if self._is_unpulled:
            # These gradients were used already.
            self.pull()
            return loss
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        try:
            record = self._decide_together(None if loss is None else float(getattr(loss, "detach", lambda: loss)()))
        except FailedPreconditionError as error:
            self._drop_step()
            self._follow_rewind(error)
            raise
        finally:
            self._drop_step()
            self._num_backward = [0] * len(self._trained)
        self.last_record = record
        self.applied_step = record.step
        self._is_unpulled = record.applied
        if self._ranks is not None:
            self._ranks.check_members(record)
        if record.applied:
            self.pull()
        else:
            warnings.warn(f"job {self.job.name}: step {record.step} was skipped: {record.reason}", SkippedStepWarning,
                          stacklevel=2)
        return loss

    def refresh_groups(self) -> None:
        """Takes the learning rates and weight decays of the job as they are now, after `kaonctl group set`. The shards
        use them from their next step on in any case, times each param_group's lr / the lr that the optimizer knows. A
        param_group keeps that factor. A scheduler later sets the lr that it says. Every rank calls it after the same
        step."""
        old = self._base_lr
        self.job = self._together(lambda: self.client.attach(self.job.name))
        self._set_base()
        for group in self.param_groups:
            name = group["name"]
            group["weight_decay"] = self._base_decay[name]
            # Ranks' factors must be equal to the last bit.
            if self._base_lr[name] != old[name]:
                group["lr"] = self._base_lr[name] * (group["lr"] / old[name] if old[name] else 1.0)

    def pull(self) -> None:
        """Reads the weights of `applied_step` into the parameters."""
        try:
            self._read(self.applied_step)
        except FailedPreconditionError as error:
            self._follow_rewind(error)
            raise

    def _follow_rewind(self, error: FailedPreconditionError) -> None:
        """Returns if the job did not go back to a checkpoint; otherwise reads its weights and raises RewoundError.
        After another exception the next step() calls it again."""
        self._unfollowed = error
        now = self._together(self.job.refresh, lambda progress: progress.timeline)
        if now.timeline == self.timeline:
            self._unfollowed = None
            return
        self._must_join = True
        self._read(now.applied_step)
        # The checkpoint may be older than a change of groups.
        self.refresh_groups()
        self.timeline, self.applied_step = now.timeline, now.applied_step
        self._unfollowed = None
        raise RewoundError(error.message, now.timeline, now.applied_step) from None

    def _join_again(self) -> None:
        old, self.worker = self.worker, self.job.join(self.worker.rank)
        old.close()

    def _read(self, step: int) -> None:
        if self._must_join:
            self._together(self._join_again)
            self._must_join = False
        # The keys of read(): gradient and weights share a buffer. The others get the weights from their owner.
        parameters = [(index, parameter) for index, (_, parameter) in enumerate(self._trained)
                      if self._ranks is None or self._ranks.owns(index)]

        def pull() -> int:
            targets = self._staging.targets(parameters)
            self.job.pull(step, {self._trained[index][0]: target for index, target in targets.items()})
            return step
        self._together(pull, int)
        self._staging.write(parameters)
        if self._ranks is not None:
            self._ranks.broadcast_weights()
        self._is_unpulled = False
        # As other optimizers' steps do: autograd refuses a backward pass through older weights.
        increment_version = getattr(torch.autograd.graph, "increment_version", None)
        if increment_version is not None:
            for _, parameter in self._trained:
                increment_version(parameter)

    @property
    def loss_scale(self) -> float:
        """Multiply the loss by this before backward(); the shards divide by it. It is 1 without a loss_scaler."""
        return self.worker.loss_scale

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """Returns loss * loss_scale: optimizer.scale(loss).backward()."""
        return loss * self.loss_scale

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Refused with UnimplementedError: the parameters of a registered job do not change."""
        if not self._may_add_groups:
            raise UnimplementedError(f"job {self.job.name} is registered, and its parameters do not change: make the "
                                     "optimizer with all of them, under another job name")
        super().add_param_group(param_group)

    def state_dict(self) -> Dict[str, Any]:
        """Returns job, timeline, step and param_groups. The optimizer's state is on the shards; kaon.checkpoint() saves
        it there."""
        state = super().state_dict()
        state["kaon"] = {"job": self.job.name, "timeline": self.timeline, "step": self.applied_step}
        return state

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Takes the learning rates. InvalidArgumentError if it is of another job or optimizer.
        FailedPreconditionError if the job is at another step: restore the checkpoint of that step first."""
        saved = state_dict.get("kaon")
        if saved is None or saved["job"] != self.job.name:
            what = "of another optimizer" if saved is None else f"of job {saved['job']}"
            raise InvalidArgumentError(f"the state_dict is {what}, expecting job {self.job.name}")
        if saved["step"] != self.applied_step:
            raise FailedPreconditionError(
                f"the state_dict is of step {saved['step']}, job {self.job.name} is at step {self.applied_step}: "
                "restore a checkpoint of that step (kaonctl checkpoint restore), or go on without the state_dict")
        super().load_state_dict({key: value for key, value in state_dict.items() if key != "kaon"})

    def close(self) -> None:
        """Removes the hooks, and disconnects unless the caller passed a client."""
        for hook, _ in self._hooks:
            hook.remove()
        self._hooks = []
        self._drop_step()
        self.worker.close()
        if self._owns_client:
            self.client.close()
