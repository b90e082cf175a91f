"""What the library reads gradients from and writes weights to. A tensor in host memory is used itself, and so is a CUDA
tensor that the library takes over NCCL. Other CUDA tensors have a pinned buffer each, and copies run on a stream of
their own. No call waits for a whole device.

    staged = staging.read([(key, gradient)])[key]   # the copy starts
    staged.wait(); push(staged.source)              # do not read() the key again before the library is done with it
    pull(staging.targets([(key, parameter)])[key])
    staging.write([(key, parameter)])               # later work of the current stream sees the weights

One thread at a time uses an object. Buffers live as long as the object: they have the size of their parameters.
"""

from __future__ import annotations

from typing import Any, Callable, ContextManager, Dict, Hashable, List, Optional, Sequence, Tuple

import torch

from ._tensors import OnDevice
from .errors import InvalidArgumentError

Items = Sequence[Tuple[Hashable, torch.Tensor]]


class Cuda:
    """What staging needs of torch.cuda. Tests replace it, since there is no CUDA without a GPU."""

    def new_stream(self, device: torch.device) -> Any:
        return torch.cuda.Stream(device)

    def current_stream(self, device: torch.device) -> Any:
        return torch.cuda.current_stream(device)

    def on(self, stream: Any) -> ContextManager[Any]:
        """Makes the stream and its device the current ones."""
        return torch.cuda.stream(stream)

    def new_event(self) -> Any:
        return torch.cuda.Event()

    def new_buffer(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns dense pinned host memory for the elements of a tensor."""
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Queues a copy on the current stream."""
        target.copy_(source, non_blocking=True)

    def keep_for(self, tensor: torch.Tensor, stream: Any) -> None:
        """Keeps freed memory of the tensor from other uses until the stream has done its work of now."""
        tensor.record_stream(stream)


class Staged:
    """A gradient, which may be on its way to host memory."""

    def __init__(self, source: Any, event: Optional[Any] = None) -> None:
        # What to push: a tensor in host memory, or OnDevice.
        self.source = source
        self._event = event

    def is_ready(self) -> bool:
        return self._event is None or self._event.query()

    def wait(self) -> None:
        """Blocks until host memory has the gradient; the GIL is released."""
        if self._event is not None:
            self._event.synchronize()


class _Buffer:
    """Pinned memory of a parameter, and the event after its newest copy."""

    def __init__(self, host: torch.Tensor, event: Any) -> None:
        self.host = host
        self.event = event


class _DeviceStaging:
    """Copies between the tensors of one device and host memory, in the order of the calls."""

    def __init__(self, cuda: Cuda, device: torch.device) -> None:
        self._cuda = cuda
        self._device = device
        self._stream = cuda.new_stream(device)
        self._buffers: Dict[Hashable, _Buffer] = {}

    def _buffer(self, key: Hashable, tensor: torch.Tensor) -> _Buffer:
        buffer = self._buffers.get(key)
        # A gradient may have another dtype than its parameter.
        if buffer is None or buffer.host.shape != tensor.shape or buffer.host.dtype != tensor.dtype:
            buffer = self._buffers[key] = _Buffer(self._cuda.new_buffer(tensor), self._cuda.new_event())
        return buffer

    def read(self, key: Hashable, tensor: torch.Tensor) -> Staged:
        tensor = tensor.detach()
        if tensor.layout is not torch.strided:
            tensor = tensor.to_dense()
        buffer = self._buffer(key, tensor)
        # The gradient's kernels are on the current stream.
        self._stream.wait_stream(self._cuda.current_stream(self._device))
        with self._cuda.on(self._stream):
            self._cuda.copy(buffer.host, tensor)
        # zero_grad() may free it while the copy waits.
        self._cuda.keep_for(tensor, self._stream)
        buffer.event.record(self._stream)
        return Staged(buffer.host, buffer.event)

    def target(self, key: Hashable, tensor: torch.Tensor) -> torch.Tensor:
        buffer = self._buffer(key, tensor)
        # An event that was never recorded is complete.
        buffer.event.synchronize()
        return buffer.host

    def write(self, tensors: Items) -> None:
        current = self._cuda.current_stream(self._device)
        # Kernels that were queued before, such as those of an evaluation, still read the old weights.
        self._stream.wait_stream(current)
        with self._cuda.on(self._stream):
            for key, tensor in tensors:
                buffer = self._buffer(key, tensor)
                self._cuda.copy(tensor.detach(), buffer.host)
                buffer.event.record(self._stream)
        # So the weights, and their memory once it is freed, are used after the copies only.
        current.wait_stream(self._stream)


class Staging:
    """Staging of parameters on any devices. `check_device` is that of the client; without it no CUDA tensor is used
    itself."""

    def __init__(self, check_device: Optional[Callable[[int], None]] = None, cuda: Optional[Cuda] = None) -> None:
        self._check_device = check_device
        self._cuda = cuda or Cuda()
        self._devices: Dict[torch.device, _DeviceStaging] = {}
        # Whether the library takes tensors of a device.
        self._is_taken: Dict[int, bool] = {}

    def _number_of(self, tensor: torch.Tensor) -> Optional[int]:
        """Returns the number of the CUDA device that the tensor is on; None: it is in host memory."""
        return tensor.device.index if tensor.is_cuda else None

    def _is_used_itself(self, tensor: torch.Tensor) -> bool:
        """Whether the library takes the tensor on its device."""
        device = self._number_of(tensor)
        if device is None or self._check_device is None:
            return False
        if device not in self._is_taken:
            try:
                self._check_device(device)
                self._is_taken[device] = True
            except InvalidArgumentError:
                self._is_taken[device] = False
        return self._is_taken[device] and tensor.layout is torch.strided and tensor.is_contiguous()

    def _of(self, tensor: torch.Tensor) -> _DeviceStaging:
        staging = self._devices.get(tensor.device)
        if staging is None:
            staging = self._devices[tensor.device] = _DeviceStaging(self._cuda, tensor.device)
        return staging

    def _event_of(self, device: torch.device) -> Any:
        """Returns an event after the work that the current stream has now."""
        event = self._cuda.new_event()
        event.record(self._cuda.current_stream(device))
        return event

    def read(self, gradients: Items) -> Dict[Hashable, Staged]:
        """Starts to copy gradients, after the work that the current stream has now. The library reads others after an
        event of that stream."""
        staged: Dict[Hashable, Staged] = {}
        events: Dict[torch.device, Any] = {}
        for key, gradient in gradients:
            device = self._number_of(gradient)
            if device is None:
                staged[key] = Staged(gradient)
            elif self._is_used_itself(gradient):
                if gradient.device not in events:
                    events[gradient.device] = self._event_of(gradient.device)
                staged[key] = Staged(OnDevice(gradient.detach(), device, events[gradient.device]))
            else:
                staged[key] = self._of(gradient).read(key, gradient)
        return staged

    def targets(self, parameters: Items) -> Dict[Hashable, Any]:
        """Returns where to pull the weights to, tensors in host memory or OnDevice; call write() afterwards. Waits
        until the current stream no longer uses a parameter that the library writes itself."""
        targets: Dict[Hashable, Any] = {}
        written = set()
        for key, tensor in parameters:
            device = self._number_of(tensor)
            if device is None:
                targets[key] = tensor
            elif self._is_used_itself(tensor):
                written.add(tensor.device)
                targets[key] = OnDevice(tensor.detach(), device)
            else:
                targets[key] = self._of(tensor).target(key, tensor)
        for place in written:
            # Kernels that were queued before, such as those of an evaluation, still read the old weights.
            self._event_of(place).synchronize()
        return targets

    def write(self, parameters: Items) -> None:
        """Queues the copies of pulled weights to their parameters. The current stream waits for them, not the host."""
        by_device: Dict[torch.device, List[Tuple[Hashable, torch.Tensor]]] = {}
        for key, tensor in parameters:
            if self._number_of(tensor) is not None and not self._is_used_itself(tensor):
                by_device.setdefault(tensor.device, []).append((key, tensor))
        for items in by_device.values():
            self._of(items[0][1]).write(items)
