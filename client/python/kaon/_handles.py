"""Owners of the library's handles, and waits that Ctrl-C ends."""

from __future__ import annotations

import _thread
import collections
import contextlib
import ctypes
import operator
import os
import threading
from typing import Any, Callable, Deque, List, Optional, Set

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
    """A handle of the library, which the library fills later. It is freed once: by close(), or when nothing refers to
    it. Any thread may close it."""

    def __init__(self, kind: str, kept: Any = None) -> None:
        self._free: Callable[[ctypes.c_void_p], None] = getattr(library(), f"kaon_{kind}_free")
        self._kind = kind
        # What must live until the handle is freed.
        self.kept = kept
        self._lock = threading.Lock()
        # One token for each call of the handle.
        self._users: Set[object] = set()
        self._is_closed = False
        self._freed = threading.Event()
        pointer = ctypes.c_void_p()
        # The first next() takes the pointer and frees it in one call, so Ctrl-C comes before both or after both.
        self._unfreed = iter([pointer])
        self._frees = map(self._free, self._unfreed)
        # The last attribute: __del__ does nothing without it.
        self._pointer = pointer

    def use(self, function: str, *arguments: Any) -> Any:
        """Calls a function of the library with this handle, which is not freed meanwhile. FailedPreconditionError
        after close()."""
        user = object()
        # Ctrl-C may come at any place, and no token may stay.
        try:
            with self._lock:
                if self._is_closed:
                    raise FailedPreconditionError(f"the {self._kind} is closed")
                self._users.add(user)
            return getattr(library(), function)(self._pointer, *arguments)
        finally:
            self._users.discard(user)
            if self._is_closed:
                self._free_unused()

    def fill(self, function: str, owner: Optional["Handle"], *arguments: Any) -> None:
        """Calls a function of `owner` whose last argument receives this handle. After an error the handle is closed:
        Ctrl-C may come when the library has filled it."""
        check_not_forked()
        to = ctypes.byref(self._pointer)
        try:
            if owner is None:
                check(getattr(library(), function)(*arguments, to))
            else:
                call(function, owner, *arguments, to)
        except BaseException:
            self.close()
            raise

    def _free_unused(self) -> None:
        with self._lock:
            if self._users:
                return
        is_mine = True
        # Ctrl-C during the free is raised after it.
        try:
            # Another thread may have taken the pointer.
            is_mine = not self._pointer or next(self._frees, self) is not self
        finally:
            # Ctrl-C may have come before the free. Then __del__ frees the handle.
            if is_mine and not (self._pointer and operator.length_hint(self._unfreed)):
                self.kept = None
                self._freed.set()

    def close(self) -> None:
        """Frees the handle. If calls of it run, the last one frees it."""
        with self._lock:
            self._is_closed = True
        self._free_unused()

    def wait_until_freed(self) -> None:
        """Waits after close() for the calls of the handle that still run."""
        # A forked child lacks the threads of these calls.
        if not _forked_after_connect:
            self._freed.wait()

    def _closes_at_once(self) -> bool:
        """Whether close() waits for no thread."""
        return False

    def __del__(self) -> None:
        # It may run on any thread and at any place: in on_rewind, for which a free would wait, or under a lock.
        # Ctrl-C may have ended close() before the free.
        is_there = getattr(self, "_pointer", None) and operator.length_hint(self._unfreed) > 0
        if not is_there or _forked_after_connect:
            return
        if self._closes_at_once():
            self.close()
            return
        _dropped.append(self)
        # No thread starts when the interpreter ends. The handle then stays, with its memory.
        with contextlib.suppress(RuntimeError):
            _thread.start_new_thread(close_dropped, ())


# Handles that nothing else refers to.
_dropped: Deque[Handle] = collections.deque()
_closing = threading.Lock()


def close_dropped() -> None:
    """Closes the handles that nothing refers to, and waits until other threads have closed theirs. Call it where
    Ctrl-C cannot end it, by interruptible()."""
    if _forked_after_connect:
        return
    with _closing:
        while _dropped:
            _dropped.popleft().close()


def await_dropped() -> None:
    """Waits until the handles that nothing refers to are freed."""
    if _dropped or _closing.locked():
        interruptible(close_dropped)


def call(function: str, handle: Handle, *arguments: Any) -> None:
    """Calls a function of a handle that returns a status."""
    check(handle.use(function, *arguments))


def new_handle(kind: str, function: str, owner: Optional[Handle], *arguments: Any, kept: Any = None) -> Handle:
    """Calls a function of `owner` whose last argument receives a handle of that kind."""
    handle = Handle(kind, kept)
    handle.fill(function, owner, *arguments)
    return handle


def interruptible(call: Callable[[], Any]) -> Any:
    """Returns call(), which may block for long in the library. On the main thread it runs on a thread of its own, so
    that Ctrl-C is seen at once. That thread ends with its deadline, and what it returns is dropped. What `call` refers
    to lives as long."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    outcome: List[Any] = []
    failure: List[BaseException] = []
    done, is_dropped = threading.Event(), threading.Event()

    def run() -> None:
        try:
            outcome.append(call())
        except BaseException as error:  # Raised again on the caller's thread.
            failure.append(error)
        if is_dropped.is_set():
            outcome.clear()
        done.set()

    try:
        try:
            threading.Thread(target=run, name="kaon-call", daemon=True).start()
        except RuntimeError:
            # The interpreter ends, and starts no thread.
            return call()
        # A signal that comes just before a wait does not end it.
        while not done.wait(_SLICE_MS / 1000):
            pass
    except BaseException:
        # The traceback would keep a handle open.
        is_dropped.set()
        outcome.clear()
        raise
    if failure:
        # Not in the list, which the traceback refers to: a cycle keeps all objects of its frames.
        raise failure.pop()
    return outcome.pop()


class Future(Handle):
    """Result of a call that goes on; `kept` is what must live until then. Make it before the call, so that Ctrl-C in
    the call does not lose it."""

    def __init__(self, kept: Any) -> None:
        super().__init__("future", kept)

    def _wait(self, timeout_ms: int) -> bool:
        return bool(self.use("kaon_future_wait", timeout_ms))

    def ready(self) -> bool:
        return self._wait(0)

    def cancel(self) -> None:
        """Asks the operation to stop; result() then raises CancelledError, unless it was done."""
        self.use("kaon_future_cancel")

    def end(self) -> None:
        """Cancels the operation and waits until it no longer uses its memory."""
        # Another thread may have closed it. In a forked child nobody uses it.
        with contextlib.suppress(FailedPreconditionError):
            if self._pointer and self.kept is not None and not _forked_after_connect and not self.ready():
                self.cancel()
                self._wait(-1)
        self.kept = None

    def close(self) -> None:
        self.end()
        super().close()

    def wait(self) -> None:
        """Waits for the result. Ctrl-C cancels the operation and waits until it no longer uses its memory."""
        check_not_forked()
        try:
            while not self._wait(_SLICE_MS):
                pass
        except BaseException:
            self.end()
            raise

    def result(self) -> None:
        """Waits, and raises the error of the operation."""
        self.wait()
        self.kept = None
        call("kaon_future_result", self, None)

    def record(self) -> StepRecord:
        """Waits for the decision of a step; its pointers live as long as this future."""
        self.wait()
        self.kept = None
        record = StepRecord(size=ctypes.sizeof(StepRecord))
        call("kaon_future_result", self, ctypes.byref(record))
        return record

    def _closes_at_once(self) -> bool:
        return self.kept is None
