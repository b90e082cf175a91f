"""libkaon.so by ctypes: where it is, its structs and its functions (client/kaon/kaon.h says what they mean)."""

from __future__ import annotations

import ctypes
import os
import struct
from ctypes import (POINTER, Structure, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p)
from pathlib import Path
from typing import Iterator, List

from .errors import NotFoundError, error_of

# The release whose structs are below. Another 0.X may have others, and another soname.
ABI = "0.1"
SONAME = f"libkaon.so.{ABI}"

RewindFunction = ctypes.CFUNCTYPE(None, c_void_p, c_uint64, c_uint64)


class Tensor(Structure):
    _fields_ = [("elements", c_void_p), ("num_elements", c_uint64), ("dtype", c_uint32), ("parameter_id", c_uint32)]


class ClientOptions(Structure):
    _fields_ = [("size", c_size_t), ("endpoints", c_char_p), ("tls_ca", c_char_p), ("tls_certificate", c_char_p),
                ("tls_private_key", c_char_p), ("transport", c_int32), ("lanes", c_uint32),
                ("call_deadline_ms", c_uint64), ("step_deadline_ms", c_uint64), ("wait_log_interval_ms", c_uint64),
                ("max_bytes_in_flight", c_uint64), ("on_rewind", RewindFunction), ("on_rewind_argument", c_void_p),
                ("nccl", c_char_p), ("nccl_device", c_int32)]


class Progress(Structure):
    _fields_ = [("size", c_size_t), ("timeline", c_uint64), ("applied_step", c_uint64), ("weights_loaded", c_int32)]


class GroupFactor(Structure):
    _fields_ = [("group", c_char_p), ("factor", c_double)]


class BeginOptions(Structure):
    _fields_ = [("size", c_size_t), ("step", c_uint64), ("token_weight", c_double),
                ("learning_rate_multiplier", c_double), ("group_factors", POINTER(GroupFactor)),
                ("num_group_factors", c_size_t), ("micro_batches", c_uint32), ("traceparent", c_char_p)]


class FinishOptions(Structure):
    _fields_ = [("size", c_size_t), ("loss", c_double), ("missing_parameters", POINTER(c_uint32)),
                ("num_missing_parameters", c_size_t)]


class Norm(Structure):
    _fields_ = [("name", c_char_p), ("norm", c_double), ("live_norm", c_double), ("clip_factor", c_double),
                ("exempt", c_int32)]


class StepRecord(Structure):
    _fields_ = [("size", c_size_t), ("step", c_uint64), ("reason", c_char_p), ("ranks", POINTER(c_uint32)),
                ("num_ranks", c_size_t), ("groups", POINTER(Norm)), ("num_groups", c_size_t),
                ("norm_groups", POINTER(Norm)), ("num_norm_groups", c_size_t), ("grad_norm", c_double),
                ("live_norm", c_double), ("loss", c_double), ("next_loss_scale", c_double),
                ("applied_updates", c_uint64), ("state_digest", c_uint64), ("applied", c_int32)]


class TransferTotals(Structure):
    _fields_ = [("size", c_size_t), ("push_bytes", c_uint64), ("pull_bytes", c_uint64), ("shm_bytes", c_uint64),
                ("shm_refusals", c_uint64), ("retries", c_uint64), ("infinite_pulled", c_uint64),
                ("nccl_bytes", c_uint64)]


STRUCTS = {"kaon_tensor": Tensor, "kaon_client_options": ClientOptions, "kaon_progress": Progress,
           "kaon_group_factor": GroupFactor, "kaon_begin_options": BeginOptions,
           "kaon_finish_options": FinishOptions, "kaon_norm": Norm, "kaon_step_record": StepRecord,
           "kaon_transfer_totals": TransferTotals}

# Packs a Tensor: filling a Structure field by field takes longer.
PACKED_TENSOR = struct.Struct("=QQII")

_HANDLE = c_void_p
_TO_HANDLE = POINTER(c_void_p)
_STATUS = c_void_p
_FUNCTIONS = {
    "kaon_version": (c_char_p, []),
    "kaon_status_code": (c_int32, [_HANDLE]),
    "kaon_status_message": (c_char_p, [_HANDLE]),
    "kaon_status_retriable": (c_int32, [_HANDLE]),
    "kaon_status_free": (None, [_HANDLE]),
    "kaon_string_free": (None, [c_void_p]),
    "kaon_client_connect": (_STATUS, [POINTER(ClientOptions), _TO_HANDLE]),
    "kaon_client_register": (_STATUS, [_HANDLE, c_char_p, _TO_HANDLE]),
    "kaon_client_attach": (_STATUS, [_HANDLE, c_char_p, _TO_HANDLE]),
    "kaon_client_check_device": (_STATUS, [_HANDLE, c_int32]),
    "kaon_client_transfer_totals": (_STATUS, [_HANDLE, POINTER(TransferTotals)]),
    "kaon_client_free": (None, [_HANDLE]),
    "kaon_job_description": (_STATUS, [_HANDLE, POINTER(c_void_p)]),
    "kaon_job_refresh": (_STATUS, [_HANDLE, POINTER(Progress)]),
    "kaon_job_wait_for_weights": (_STATUS, [_HANDLE, c_uint64, POINTER(c_uint64)]),
    "kaon_job_join": (_STATUS, [_HANDLE, c_uint32, _TO_HANDLE]),
    "kaon_job_pull": (_STATUS, [_HANDLE, c_uint64, POINTER(Tensor), c_size_t, _TO_HANDLE]),
    "kaon_job_pull_to_device": (_STATUS, [_HANDLE, c_uint64, POINTER(Tensor), c_size_t, c_int32, _TO_HANDLE]),
    "kaon_job_free": (None, [_HANDLE]),
    "kaon_worker_load_weights": (_STATUS, [_HANDLE, POINTER(Tensor), c_size_t, _TO_HANDLE]),
    "kaon_worker_begin": (_STATUS, [_HANDLE, POINTER(BeginOptions), _TO_HANDLE]),
    "kaon_worker_loss_scale": (c_double, [_HANDLE]),
    "kaon_worker_free": (None, [_HANDLE]),
    "kaon_step_push": (_STATUS, [_HANDLE, POINTER(Tensor), c_uint32, _TO_HANDLE]),
    "kaon_step_push_all": (_STATUS, [_HANDLE, POINTER(Tensor), c_size_t, c_uint32]),
    "kaon_step_push_on_device": (_STATUS, [_HANDLE, POINTER(Tensor), c_size_t, c_uint32, c_int32, c_void_p]),
    "kaon_step_finish": (_STATUS, [_HANDLE, POINTER(FinishOptions), _TO_HANDLE]),
    "kaon_step_free": (None, [_HANDLE]),
    "kaon_future_wait": (c_int32, [_HANDLE, c_int64]),
    "kaon_future_result": (_STATUS, [_HANDLE, POINTER(StepRecord)]),
    # Not called from here: Python waits instead.
    "kaon_future_on_ready": (_STATUS, [_HANDLE, c_void_p, c_void_p]),
    "kaon_future_cancel": (None, [_HANDLE]),
    "kaon_future_free": (None, [_HANDLE]),
}


def checkout() -> Path:
    """Returns the root of the repository if this package is in it: client/python/kaon."""
    return Path(os.path.abspath(__file__)).parents[3]


def prefixes() -> Iterator[Path]:
    """Where an installation may be: $KAON_PREFIX, the wheel, the prefix of kaon-shard in PATH, and the usual ones."""
    named = os.environ.get("KAON_PREFIX")
    if named:
        yield Path(named)
    # deploy/wheel.py puts it there.
    yield Path(os.path.abspath(__file__)).parent / "installation"
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if folder and os.access(os.path.join(folder, "kaon-shard"), os.X_OK):
            yield Path(folder).resolve().parent
    yield Path("/usr/local")
    yield Path("/usr")


def candidates() -> List[str]:
    """Files that may be the library, best first; the last one is a name that the loader looks for."""
    named = os.environ.get("KAON_LIBRARY")
    if named:
        return [named]
    built = checkout() / ".bazel" / "bin" / "deploy" / "library" / "libkaon.so"
    found = [built] + [prefix / "lib" / SONAME for prefix in prefixes()]
    return [str(path) for path in found if path.exists()] + [SONAME]


def _load() -> ctypes.CDLL:
    failures = []
    for path in candidates():
        try:
            # RTLD_LOCAL, the default: no symbol of ours or of gRPC reaches another module, nor theirs ours.
            library = ctypes.CDLL(path)
            break
        except OSError as error:
            failures.append(str(error))
    else:
        raise NotFoundError(f"libkaon.so cannot be loaded: {'; '.join(failures)}. Install Kaon (deploy/install.sh), "
                            "or name the library in KAON_LIBRARY or its prefix in KAON_PREFIX")
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    version = library.kaon_version().decode()
    if not version.startswith(ABI + "."):
        raise NotFoundError(f"{library._name} is of Kaon {version}, this package needs {ABI}.x")
    return library


_loaded: List[ctypes.CDLL] = []


def library() -> ctypes.CDLL:
    """Returns the library; the first call loads it. NotFoundError says where it was looked for."""
    if not _loaded:
        _loaded.append(_load())
    return _loaded[0]


def check(status: int | None) -> None:
    """Raises the exception of a status that is not NULL, and frees it."""
    if not status:
        return
    lib = library()
    code = lib.kaon_status_code(status)
    message = lib.kaon_status_message(status).decode(errors="replace")
    lib.kaon_status_free(status)
    raise error_of(code, message)
