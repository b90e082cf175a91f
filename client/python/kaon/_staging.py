"""Host memory that the library reads gradients from and writes weights to. A tensor in host memory is used itself. A
CUDA tensor has a pinned buffer, and copies run on a stream of their own. No call waits for a whole device.

    staged = staging.read(key, gradient)       # the copy starts
    staged.wait(); push(staged.host)           # do not read() the key again before the library is done with it
    pull(staging.target(key, parameter))
    staging.write([(key, parameter)])          # later work of the current stream sees the weights

One thread at a time uses an object. Buffers live as long as the object: they have the size of the parameters.
"""

from __future__ import annotations

from typing import Any, ContextManager, Dict, Hashable, List, Optional, Sequence, Tuple

import torch


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
    """A gradient on its way to host memory."""

    def __init__(self, host: torch.Tensor, event: Optional[Any] = None) -> None:
        self.host = host
        self._event = event

    def is_ready(self) -> bool:
        return self._event is None or self._event.query()

    def wait(self) -> None:
        """Blocks until `host` has the gradient; the GIL is released."""
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

    def write(self, tensors: Sequence[Tuple[Hashable, torch.Tensor]]) -> None:
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


class HostStaging:
    """Staging of parameters on any devices."""

    def __init__(self, cuda: Optional[Cuda] = None) -> None:
        self._cuda = cuda or Cuda()
        self._devices: Dict[torch.device, _DeviceStaging] = {}

    def _is_staged(self, tensor: torch.Tensor) -> bool:
        return tensor.is_cuda

    def _of(self, tensor: torch.Tensor) -> _DeviceStaging:
        staging = self._devices.get(tensor.device)
        if staging is None:
            staging = self._devices[tensor.device] = _DeviceStaging(self._cuda, tensor.device)
        return staging

    def read(self, key: Hashable, tensor: torch.Tensor) -> Staged:
        """Starts to copy a gradient, after the work that the current stream has now."""
        return self._of(tensor).read(key, tensor) if self._is_staged(tensor) else Staged(tensor)

    def target(self, key: Hashable, tensor: torch.Tensor) -> torch.Tensor:
        """Returns where to pull the weights of a parameter to; call write() afterwards."""
        return self._of(tensor).target(key, tensor) if self._is_staged(tensor) else tensor

    def write(self, tensors: Sequence[Tuple[Hashable, torch.Tensor]]) -> None:
        """Queues the copies of pulled weights to their parameters. The current stream waits for them, not the host."""
        by_device: Dict[torch.device, List[Tuple[Hashable, torch.Tensor]]] = {}
        for key, tensor in tensors:
            if self._is_staged(tensor):
                by_device.setdefault(tensor.device, []).append((key, tensor))
        for items in by_device.values():
            self._of(items[0][1]).write(items)
