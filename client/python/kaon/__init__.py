"""Kaon: an optimizer-state service. Shard servers keep weights and optimizer state; this trainer pushes gradients and
pulls weights.

    import kaon
    with kaon.local_cluster(shards=2) as cluster, cluster.client() as client:
        job = client.register("regression", weights, preset="adamw", lr=1e-2)
        worker = job.join(rank=0)
        worker.load_weights(weights)
        record = worker.run_step(1, gradients, weights)
"""

from __future__ import annotations

from ._library import library as _library_of
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
           "NotFoundError", "OutOfRangeError", "Parameter", "PermissionDeniedError", "Progress",
           "ResourceExhaustedError", "RewoundError", "SkippedStepWarning", "Step", "StepRecord", "UnauthenticatedError",
           "UnavailableError", "UnimplementedError", "UnknownError", "Worker", "library_version", "local_cluster"]


def library_version() -> str:
    """Returns the version of libkaon.so."""
    return _library_of().kaon_version().decode()
