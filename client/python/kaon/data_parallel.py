"""Data-parallel ranks that aggregate their gradients by collectives of torch.distributed (docs/adr/0061). Each
parameter has one owner among the ranks. The owner alone sends its gradient to the shards and pulls its weights, which
it then broadcasts. So each gradient and each weight passes between trainers and shards once, not once for each rank.

The shards compute (docs/design/numerics.md, [T1]), for ranks r of token weight w_r and W = sum_r w_r,

    gradient = sum_r w_r g_r / W / loss_scale

and a rank without a gradient counts as zeros with its weight ([T7]). So the owner o alone sends

    "reduce":    sum_r w_r g_r / w_o     with the sum by torch.distributed.reduce, in float32
    "averaged":  m W / w_o               for means m that all ranks have, such as those of DistributedDataParallel

g_r and m are what is in .grad at step(): sums over the micro-batches, times the loss scale. With token weights of 1 the
factors are 1 and the number of ranks. "averaged" takes m as the mean, whatever the token weights are. A collective
chooses the order in which it adds, and the bits of a step depend on that order.

Ranks send float32. An averaged bfloat16 gradient stays bfloat16 if the factor is a power of two, which is exact.
"""

from __future__ import annotations

import collections
import heapq
import math
import os
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional, Sequence, Tuple, TypeVar

import torch
import torch.distributed as dist

from .client import StepRecord
from .errors import Error, FailedPreconditionError, InvalidArgumentError, UnavailableError

Result = TypeVar("Result")

_MODES = ("averaged", "reduce")
_BUCKET_BYTES = 25 << 20
# Buckets of collectives under way, each of which holds memory.
_NUM_BUCKETS = 4


def owners_of(num_bytes: Sequence[int], num_ranks: int) -> List[int]:
    """Returns the owner of each parameter, the same on every rank: the largest first, to the rank that owns least."""
    owners = [0] * len(num_bytes)
    ranks = [(0, rank) for rank in range(num_ranks)]
    for index in sorted(range(len(num_bytes)), key=lambda index: (-num_bytes[index], index)):
        owned, owners[index] = ranks[0]
        heapq.heapreplace(ranks, (owned + num_bytes[index], owners[index]))
    return owners


def without_ddp_prefix(trained: List[Tuple[str, torch.Tensor]]) -> List[Tuple[str, torch.Tensor]]:
    """Removes `module.`, with which DistributedDataParallel begins every name."""
    if not all(name.startswith("module.") for name, _ in trained):
        return trained
    return [(name[len("module."):], parameter) for name, parameter in trained]


def _check(aggregate: str, group: Any, rank: int, world_size: int, worker_loss: Any) -> None:
    if aggregate not in _MODES:
        raise InvalidArgumentError(f"aggregate is {aggregate!r}, expecting None, {' or '.join(map(repr, _MODES))}")
    if str(worker_loss).lower().endswith("shrink"):
        raise InvalidArgumentError(f"worker_loss is {worker_loss}, expecting wait or fail with aggregate: a step "
                                   "without a rank would leave out the parameters that it owns")
    if not dist.is_available() or not dist.is_initialized():
        raise FailedPreconditionError(f"aggregate={aggregate!r} needs a process group: call "
                                      "torch.distributed.init_process_group() first")
    claimed = os.environ.get("KAON_RANK") or rank
    if not rank == int(claimed) == dist.get_rank(group):
        raise InvalidArgumentError(f"rank is {rank}, KAON_RANK {claimed}, and the rank in the process group "
                                   f"{dist.get_rank(group)}: they must be equal")
    if world_size != dist.get_world_size(group):
        raise InvalidArgumentError(f"world_size is {world_size}, but the process group has "
                                   f"{dist.get_world_size(group)} ranks: they must be equal")


class Ranks:
    """The ranks of a process group. All of them make the same calls in the same order. A rank that makes none, because
    it ended or raised another exception than kaon.Error, leaves the others in a collective until torch's timeout."""

    def __init__(self, aggregate: str, group: Any, parameters: Sequence[torch.Tensor], rank: int, world_size: int,
                 worker_loss: Any) -> None:
        _check(aggregate, group, rank, world_size, worker_loss)
        devices = {parameter.device for parameter in parameters}
        if len(devices) > 1:
            raise InvalidArgumentError(f"aggregate={aggregate!r} needs all parameters of a rank on one device, not on "
                                       f"{' and '.join(sorted(map(str, devices)))}")
        self._aggregate = aggregate
        self._group = group
        self._parameters = parameters
        self._device = devices.pop()
        self._rank = rank
        self._size = world_size
        self._owners = owners_of([p.numel() * p.element_size() for p in parameters], world_size)
        # The largest number_of() of the newest together(), also if that raised.
        self.newest = 0

    def owns(self, index: int) -> bool:
        return self._owners[index] == self._rank

    def check_members(self, record: StepRecord) -> None:
        """`kaonctl job set` may have changed the policy."""
        lost = sorted(set(range(self._size)) - set(record.ranks))
        if lost:
            raise FailedPreconditionError(
                f"step {record.step} was decided without ranks {', '.join(map(str, lost))}, so the parameters that "
                "they own were left out: set worker_loss to wait or fail, and restore a checkpoint")

    def together(self, call: Callable[[], Result], number_of: Callable[[Result], int] = lambda _: 0) -> Result:
        """Returns call() once it has succeeded on all ranks with the same number. Otherwise all ranks raise:
        FailedPreconditionError if one of them has it, which may come of a rewind; else their own error, or
        UnavailableError."""
        error: Optional[Error] = None
        number = None
        try:
            result = call()
            number = number_of(result)
        except Error as caught:
            error = caught
        is_precondition = isinstance(error, FailedPreconditionError)
        # A rank that failed changes neither the largest nor the smallest number.
        numbers = (0, -(1 << 62)) if number is None else (number, -number)
        answers = torch.tensor([error is not None, is_precondition, *numbers], dtype=torch.int64, device=self._device)
        dist.all_reduce(answers, dist.ReduceOp.MAX, self._group)
        any_failed, any_precondition, self.newest, least = answers.tolist()
        if not any_failed and self.newest == -least:
            return result
        if error is not None and is_precondition == bool(any_precondition):
            raise error
        if any_failed:
            text = f"another rank of the process group failed{', this one with ' + error.message if error else ''}"
        else:
            text = f"the ranks of the process group differ: one is at {-least}, another at {self.newest}"
        text += "; call it again on all ranks"
        raise (FailedPreconditionError if any_precondition else UnavailableError)(text) from error

    def gradients(self, token_weight: float) -> Dict[int, torch.Tensor]:
        """Returns what this rank pushes, by index. Raises the same on all ranks."""
        local = [parameter.grad for parameter in self._parameters]
        # The sum of token weights, and how many ranks have each gradient.
        counts = torch.tensor([token_weight, *(gradient is not None for gradient in local)], dtype=torch.float64,
                              device=self._device)
        dist.all_reduce(counts, group=self._group)
        total, *number = counts.tolist()
        used = [index for index, ranks in enumerate(number) if ranks > 0]
        if not used:
            raise FailedPreconditionError("no parameter has a gradient: call backward() before step()")
        with torch.no_grad():
            if self._aggregate == "reduce":
                return self._sums(local, used, token_weight)
            for index in used:
                if number[index] != self._size:
                    raise FailedPreconditionError(
                        f"{number[index]:.0f} of {self._size} ranks have a gradient of parameter {index}, of shape "
                        f"{list(self._parameters[index].shape)}, but all have averaged ones: pass aggregate='reduce'")
            # The step refuses a weight of 0, on all ranks.
            factor = total / token_weight if token_weight else math.nan
            return {index: self._times(local[index], factor) for index in used if self.owns(index)}

    @staticmethod
    def _times(mean: Any, factor: float) -> torch.Tensor:
        if mean.dtype is not torch.bfloat16 or math.frexp(factor)[0] != 0.5:
            mean = mean.float()
        return mean * factor

    def _sums(self, local: Sequence[Optional[torch.Tensor]], used: Sequence[int],
              token_weight: float) -> Dict[int, torch.Tensor]:
        sums: Dict[int, torch.Tensor] = {}

        def start(owner: int, bucket: List[int]) -> Tuple[Any, torch.Tensor]:
            flat = torch.zeros(self._num_elements(bucket), dtype=torch.float32, device=self._device)
            for index, piece in self._pieces(bucket, flat):
                gradient = local[index]
                if gradient is not None:
                    piece.copy_(gradient if gradient.layout is torch.strided else gradient.to_dense())
            flat *= token_weight
            return dist.reduce(flat, self._global(owner), group=self._group, async_op=True), flat

        def end(owner: int, bucket: List[int], flat: torch.Tensor) -> None:
            if owner == self._rank:
                flat /= token_weight
                sums.update(self._pieces(bucket, flat))
        self._for_buckets(used, start, end)
        return sums

    def broadcast_weights(self) -> None:
        """Copies each parameter from its owner to the others, as bytes: gloo of torch 1.13 has no bfloat16."""
        def start(owner: int, bucket: List[int]) -> Tuple[Any, torch.Tensor]:
            if owner == self._rank:
                flat = torch.cat([self._parameters[index].detach().reshape(-1) for index in bucket])
            else:
                flat = torch.empty(self._num_elements(bucket), dtype=self._parameters[bucket[0]].dtype,
                                   device=self._device)
            return dist.broadcast(flat.view(torch.uint8), self._global(owner), self._group, async_op=True), flat

        def end(owner: int, bucket: List[int], flat: torch.Tensor) -> None:
            if owner != self._rank:
                for index, piece in self._pieces(bucket, flat):
                    self._parameters[index].detach().copy_(piece)
        self._for_buckets(range(len(self._parameters)), start, end)

    def _for_buckets(self, indices: Sequence[int], start: Callable[[int, List[int]], Tuple[Any, torch.Tensor]],
                     end: Callable[[int, List[int], torch.Tensor], None]) -> None:
        """Starts a collective for each bucket, and ends them in the same order."""
        running: Deque[Tuple[int, List[int], Any, torch.Tensor]] = collections.deque()

        def end_oldest() -> None:
            owner, bucket, work, flat = running.popleft()
            work.wait()
            end(owner, bucket, flat)
        for owner, bucket in self._buckets(indices):
            running.append((owner, bucket, *start(owner, bucket)))
            if len(running) == _NUM_BUCKETS:
                end_oldest()
        while running:
            end_oldest()

    def _buckets(self, indices: Sequence[int]) -> Iterator[Tuple[int, List[int]]]:
        """Divides parameters by owner and dtype, the same on every rank, into buckets that one collective takes."""
        filling: Dict[Tuple[int, torch.dtype], List[int]] = {}
        filled: Dict[Tuple[int, torch.dtype], int] = collections.defaultdict(int)
        for index in indices:
            parameter = self._parameters[index]
            key = (self._owners[index], parameter.dtype)
            filling.setdefault(key, []).append(index)
            filled[key] += parameter.numel() * parameter.element_size()
            if filled[key] >= _BUCKET_BYTES:
                del filled[key]
                yield key[0], filling.pop(key)
        for (owner, _), bucket in filling.items():
            yield owner, bucket

    def _num_elements(self, bucket: Sequence[int]) -> int:
        return sum(self._parameters[index].numel() for index in bucket)

    def _pieces(self, bucket: Sequence[int], flat: torch.Tensor) -> Iterator[Tuple[int, torch.Tensor]]:
        """Yields the part of each parameter in a bucket, in its shape."""
        parts = flat.split([self._parameters[index].numel() for index in bucket])
        for index, part in zip(bucket, parts):
            yield index, part.view(self._parameters[index].shape)

    def _global(self, rank: int) -> int:
        return rank if self._group is None else dist.get_global_rank(self._group, rank)
