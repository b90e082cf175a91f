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
    code = 1


class UnknownError(Error):
    code = 2


class InvalidArgumentError(Error, ValueError):
    code = 3


class DeadlineExceededError(Error):
    code = 4
    retriable = True


class NotFoundError(Error):
    code = 5


class AlreadyExistsError(Error):
    code = 6


class PermissionDeniedError(Error):
    code = 7


class ResourceExhaustedError(Error):
    code = 8
    retriable = True


class FailedPreconditionError(Error):
    code = 9


class AbortedError(Error):
    code = 10


class OutOfRangeError(Error):
    code = 11


class UnimplementedError(Error):
    code = 12


class InternalError(Error):
    code = 13


class UnavailableError(Error):
    code = 14
    retriable = True


class DataLossError(Error):
    code = 15


class UnauthenticatedError(Error):
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
