"""Kaon: an optimizer-state service. Shard servers keep weights and optimizer state; this trainer pushes gradients and
pulls weights.

    import kaon
    with kaon.local_cluster(shards=2):
        optimizer = kaon.Optimizer(model.named_parameters(), job="gpt", preset="moonlight", lr=3e-4)
        for batch in batches:
            loss = model(batch); loss.backward(); optimizer.step(); optimizer.zero_grad()

kaon.Optimizer needs torch; everything else works with numpy arrays alone.
"""

from __future__ import annotations

import importlib
from typing import Any

from ._library import library as _library_of
from ._tensors import OnDevice
from .client import Client, Job, Norm, Progress, Step, StepRecord, Worker
from .cluster import LocalCluster, local_cluster
from .definition import Parameter
from .errors import (AbortedError, AlreadyExistsError, CancelledError, DataLossError, DeadlineExceededError, Error,
                     FailedPreconditionError, InternalError, InvalidArgumentError, NotFoundError, OutOfRangeError,
                     PermissionDeniedError, ResourceExhaustedError, RewoundError, SkippedStepWarning,
                     UnauthenticatedError, UnavailableError, UnimplementedError, UnknownError)

__version__ = "0.1.0"

__all__ = ["AbortedError", "AlreadyExistsError", "CancelledError", "Client", "DataLossError", "DeadlineExceededError",
           "Error", "FailedPreconditionError", "InternalError", "InvalidArgumentError", "Job", "LocalCluster", "Norm",
           "NotFoundError", "OnDevice", "Optimizer", "OutOfRangeError", "Parameter", "PermissionDeniedError",
           "Progress", "ResourceExhaustedError", "RewoundError", "SkippedStepWarning", "Step", "StepRecord",
           "UnauthenticatedError", "UnavailableError", "UnimplementedError", "UnknownError", "Worker", "checkpoint",
           "library_version", "local_cluster"]


_SUBMODULES = ("admin", "migrate", "plot")


def library_version() -> str:
    """Returns the version of libkaon.so."""
    return _library_of().kaon_version().decode()


def __getattr__(name: str) -> Any:
    # torch is imported by those who use the optimizer, and by nobody else.
    if name == "Optimizer":
        from .optimizer import Optimizer

        return Optimizer
    if name == "checkpoint":
        from .admin import checkpoint

        return checkpoint
    if name in _SUBMODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module kaon has no attribute {name}")
