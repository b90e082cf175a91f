"""A stand-in for the functions of torch.cuda that kaon uses, for machines without a GPU. Streams are queues of work on
host tensors, which run as late as CUDA allows: when somebody waits for an event. So a missing wait shows as old values."""

import contextlib

import torch
from kaon import _staging


class Stream:
    def __init__(self):
        self._work = []
        self.num_done = 0

    def queue(self, work):
        self._work.append(work)

    def mark(self):
        return len(self._work)

    def run(self, mark):
        while self.num_done < mark:
            self.num_done += 1
            self._work[self.num_done - 1]()

    def wait_stream(self, other):
        mark = other.mark()
        self.queue(lambda: other.run(mark))


class Event:
    def __init__(self):
        self._stream, self._mark = None, 0

    @property
    def cuda_event(self):
        """The library gets no handle, and so reads at once."""
        self.synchronize()
        return 0

    def record(self, stream):
        self._stream, self._mark = stream, stream.mark()

    def query(self):
        return self._stream is None or self._stream.num_done >= self._mark

    def synchronize(self):
        if self._stream is not None:
            self._stream.run(self._mark)


class FakeCuda(_staging.Cuda):
    def __init__(self):
        # The stream of the model.
        self.current = Stream()
        self.streams = [self.current]
        # (address, stream) of keep_for.
        self.kept = []

    def new_stream(self, device):
        self.streams.append(Stream())
        return self.streams[-1]

    def current_stream(self, device):
        return self.current

    @contextlib.contextmanager
    def on(self, stream):
        self.current, before = stream, self.current
        yield
        self.current = before

    def new_event(self):
        return Event()

    def new_buffer(self, tensor):
        return torch.full(tensor.shape, float("nan"), dtype=tensor.dtype)

    def copy(self, target, source):
        self.current.queue(lambda: target.copy_(source))

    def keep_for(self, tensor, stream):
        self.kept.append((tensor.data_ptr(), stream))


class FakeStaging(_staging.Staging):
    """Takes every tensor for one of device 0."""

    def __init__(self, check_device=None):
        self.cuda = FakeCuda()
        super().__init__(check_device, self.cuda)

    def _number_of(self, tensor):
        return 0
