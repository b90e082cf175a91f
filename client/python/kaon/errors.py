"""Exceptions: one class for each code of a kaon_status, with the words of the C++ library."""

from __future__ import annotations

from typing import Any, Dict, Type


class Error(Exception):
    """A call failed. `retriable`: the same call may succeed later."""

    code = 2
    retriable = False

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        # Of kaon.admin: the part of the answer that is known.
        self.partial: Any = None


class CancelledError(Error):
    """The call was cancelled by Ctrl-C or close(), or another join of the rank has replaced it."""

    code = 1


class UnknownError(Error):
    """The code is none that this package knows."""

    code = 2


class InvalidArgumentError(Error, ValueError):
    """An argument does not fit. The text names it, its value and what is expected."""

    code = 3


class DeadlineExceededError(Error):
    """The cluster serves, but shards or other ranks were late."""

    code = 4
    retriable = True


class NotFoundError(Error):
    """There is no such job, checkpoint, parameter, library or file."""

    code = 5


class AlreadyExistsError(Error):
    """The name is taken. For a job of another model the text names the first difference."""

    code = 6


class PermissionDeniedError(Error):
    """The certificate does not allow this call."""

    code = 7


class ResourceExhaustedError(Error):
    """A limit is reached, such as the memory of the shards."""

    code = 8
    retriable = True


class FailedPreconditionError(Error):
    """The state of the job, or of the object, does not allow this call."""

    code = 9


class AbortedError(Error):
    """Another process has taken this rank."""

    code = 10


class OutOfRangeError(Error):
    """A position is outside of what there is."""

    code = 11


class UnimplementedError(Error):
    """This release cannot do it. The text says what to do instead."""

    code = 12


class InternalError(Error):
    """A server or the library has a bug; the servers' logs say more."""

    code = 13


class UnavailableError(Error):
    """No coordinator serves, or a server is gone. The text has the newest error of each address."""

    code = 14
    retriable = True


class DataLossError(Error):
    """Data is damaged or lost, or the job stopped. The text says what to do."""

    code = 15


class UnauthenticatedError(Error):
    """The server knows no certificate of this process."""

    code = 16


class RewoundError(FailedPreconditionError):
    """The job went back to a checkpoint during a step. kaon.Optimizer has pulled the weights of `step` already:
    compute new gradients and go on."""

    def __init__(self, message: str, timeline: int, step: int) -> None:
        super().__init__(message)
        self.timeline = timeline
        self.step = step


class SkippedStepWarning(UserWarning):
    """A step left the weights as they were; the text says why."""


_BY_CODE: Dict[int, Type[Error]] = {
    cls.code: cls
    for cls in (CancelledError, UnknownError, InvalidArgumentError, DeadlineExceededError, NotFoundError,
                AlreadyExistsError, PermissionDeniedError, ResourceExhaustedError, FailedPreconditionError,
                AbortedError, OutOfRangeError, UnimplementedError, InternalError, UnavailableError, DataLossError,
                UnauthenticatedError)
}


def error_of(code: int, message: str) -> Error:
    """Returns the exception of a code."""
    return _BY_CODE.get(code, UnknownError)(message)


def class_named(code: str) -> Type[Error]:
    """Returns the class of a code by its canonical name, such as NOT_FOUND."""
    name = code.title().replace("_", "") + "Error"
    return next((cls for cls in _BY_CODE.values() if cls.__name__ == name), UnknownError)
