"""Owners of the library's handles, and waits that Ctrl-C ends."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any, Callable, List, Optional

from ._library import StepRecord, check, library
from .errors import FailedPreconditionError

# Python runs its signal handlers between two waits.
_SLICE_MS = 50

# True in a child of fork() whose parent had connected: the library's threads are not there.
_forked_after_connect = False
_connected = False


def note_connected() -> None:
    """Remembers that this process has a client: its children have none."""
    global _connected
    _connected = True


def _after_fork() -> None:
    global _forked_after_connect
    _forked_after_connect = _forked_after_connect or _connected


os.register_at_fork(after_in_child=_after_fork)


def is_forked() -> bool:
    return _forked_after_connect


def check_not_forked() -> None:
    """Raises FailedPreconditionError in a child of a process that had connected."""
    if _forked_after_connect:
        raise FailedPreconditionError("this process was forked after its parent connected to Kaon: connect after the "
                                      "fork, or start the process by spawn (multiprocessing.set_start_method)")


class Handle:
    """A handle of the library, freed once: by close(), or when nothing refers to it. `with handle as pointer` keeps it
    from being freed meanwhile, so that any thread may close it."""

    def __init__(self, kind: str, pointer: int) -> None:
        self._free: Callable[[int], None] = getattr(library(), f"kaon_{kind}_free")
        self._kind = kind
        self._pointer = pointer
        self._lock = threading.Lock()
        self._num_users = 0
        # What must live until the handle is freed.
        self.kept: Any = None
        self._is_closed = False

    def __enter__(self) -> int:
        """FailedPreconditionError after close()."""
        with self._lock:
            if self._is_closed:
                raise FailedPreconditionError(f"the {self._kind} is closed")
            self._num_users += 1
        return self._pointer

    def __exit__(self, *_: Any) -> None:
        with self._lock:
            self._num_users -= 1
            is_last = self._is_closed and self._num_users == 0
        if is_last:
            self._free(self._pointer)

    def close(self) -> None:
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
            is_used = self._num_users > 0
        if not was_closed and not is_used:
            self._free(self._pointer)

    def __del__(self) -> None:
        # An exception in __init__ leaves no lock.
        if hasattr(self, "_is_closed"):
            self.close()


def call(function: str, handle: Handle, *arguments: Any) -> None:
    """Calls a function of a handle that returns a status."""
    with handle as pointer:
        check(getattr(library(), function)(pointer, *arguments))


def new_handle(kind: str, function: str, owner: Optional[Handle], *arguments: Any) -> Handle:
    """Calls a function of `owner` whose last argument receives a handle of that kind."""
    check_not_forked()
    pointer = ctypes.c_void_p()
    if owner is None:
        check(getattr(library(), function)(*arguments, ctypes.byref(pointer)))
    else:
        call(function, owner, *arguments, ctypes.byref(pointer))
    assert pointer.value is not None
    return Handle(kind, pointer.value)


def interruptible(call: Callable[[], Any]) -> Any:
    """Returns call(), which may block for long in the library. On the main thread it runs on a thread of its own, so
    that Ctrl-C is seen at once. That thread ends with its deadline, and what it returns is dropped. What `call` refers
    to lives as long."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    outcome: List[Any] = []
    failure: List[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            outcome.append(call())
        except BaseException as error:  # Raised again on the caller's thread.
            failure.append(error)
        done.set()

    try:
        threading.Thread(target=run, name="kaon-call", daemon=True).start()
    except RuntimeError:
        # The interpreter ends, and starts no thread.
        return call()
    # A signal that comes just before a wait does not end it.
    while not done.wait(_SLICE_MS / 1000):
        pass
    if failure:
        raise failure[0]
    return outcome[0]


class Future:
    """Result of a call that goes on; `kept` is what must live until then."""

    def __init__(self, handle: Handle, kept: Any) -> None:
        self._handle = handle
        self._kept = kept

    def _wait(self, timeout_ms: int) -> bool:
        with self._handle as pointer:
            return bool(library().kaon_future_wait(pointer, timeout_ms))

    def ready(self) -> bool:
        return self._wait(0)

    def cancel(self) -> None:
        """Asks the operation to stop; result() then raises CancelledError, unless it was done."""
        with self._handle as pointer:
            library().kaon_future_cancel(pointer)

    def wait(self) -> None:
        """Waits for the result. Ctrl-C cancels the operation and waits until it no longer uses its memory."""
        check_not_forked()
        try:
            while not self._wait(_SLICE_MS):
                pass
        except BaseException:
            self.cancel()
            self._wait(-1)
            raise

    def result(self) -> None:
        """Waits, and raises the error of the operation."""
        self.wait()
        self._kept = None
        call("kaon_future_result", self._handle, None)

    def record(self) -> StepRecord:
        """Waits for the decision of a step; its pointers live as long as this future."""
        self.wait()
        self._kept = None
        record = StepRecord(size=ctypes.sizeof(StepRecord))
        call("kaon_future_result", self._handle, ctypes.byref(record))
        return record

    def __del__(self) -> None:
        # The memory in `kept` is in use until the result is there. In a forked child nobody uses it.
        if getattr(self, "_kept", None) is not None and not _forked_after_connect and not self.ready():
            self.cancel()
            self._wait(-1)
