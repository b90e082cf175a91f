"""Views of numpy arrays and torch tensors as the library takes them: pointer, elements, dtype."""

from __future__ import annotations

import math
import sys
from typing import Any, Dict, Tuple

from ._library import Tensor
from .errors import InvalidArgumentError

FLOAT32, BFLOAT16, FLOAT16 = 1, 2, 3
_DTYPES = {"float32": FLOAT32, "bfloat16": BFLOAT16, "float16": FLOAT16}
WIRE_NAMES = {FLOAT32: "DTYPE_FLOAT32", BFLOAT16: "DTYPE_BFLOAT16", FLOAT16: "DTYPE_FLOAT16"}


def is_torch(array: Any) -> bool:
    """Without importing torch: a tensor exists only if somebody has."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _as_array(array: Any) -> Any:
    """Returns a torch tensor or a numpy array; lists and numbers become arrays."""
    if is_torch(array):
        return array
    import numpy

    return numpy.asarray(array)


# By torch.dtype and numpy.dtype: their names take longer to ask for than the rest of a push.
_known_dtypes: Dict[Any, int] = {}


def dtype_of(name: str, array: Any) -> int:
    """InvalidArgumentError names a dtype that the wire does not have."""
    known = _known_dtypes.get(array.dtype)
    if known is None:
        dtype = str(array.dtype).replace("torch.", "")
        if dtype not in _DTYPES:
            raise InvalidArgumentError(f"parameter {name}: dtype is {dtype}, expecting float32, bfloat16 or float16: "
                                       "convert it")
        known = _known_dtypes[array.dtype] = _DTYPES[dtype]
    return known


def shape_of(array: Any) -> Tuple[int, ...]:
    return tuple(int(size) for size in getattr(array, "shape", ()))


def check_shape(name: str, array: Any, shape: Tuple[int, ...]) -> None:
    # torch.Size is a tuple.
    if array.shape != shape:
        raise InvalidArgumentError(f"parameter {name}: shape is {list(shape_of(array))}, expecting {list(shape)}")


def _pointer(array: Any) -> int:
    return array.data_ptr() if is_torch(array) else array.ctypes.data


def _is_dense(array: Any) -> bool:
    if is_torch(array):
        return array.device.type == "cpu" and array.layout is sys.modules["torch"].strided and array.is_contiguous()
    return bool(array.flags.c_contiguous)


def to_float32(array: Any) -> Any:
    """Returns a dense float32 copy in host memory, or the array itself if it is one."""
    array = _as_array(array)
    if is_torch(array):
        return array.detach().to(device="cpu", dtype=sys.modules["torch"].float32).contiguous()
    import numpy

    return numpy.ascontiguousarray(array, dtype=numpy.float32).reshape(array.shape)


def to_read(name: str, parameter_id: int, array: Any, shape: Tuple[int, ...]) -> Tuple[Tensor, Any]:
    """Returns the view of an array to send, and the owner of its memory: the array, or a dense copy of it."""
    array = _as_array(array)
    check_shape(name, array, shape)
    dtype = dtype_of(name, array)
    if not _is_dense(array):
        if is_torch(array):
            if array.layout is not sys.modules["torch"].strided:
                array = array.to_dense()
            array = array.detach().to("cpu").contiguous()
        else:
            import numpy

            array = numpy.ascontiguousarray(array)
    return Tensor(_pointer(array), math.prod(shape), dtype, parameter_id), array


def to_write(name: str, parameter_id: int, array: Any, shape: Tuple[int, ...]) -> Tuple[Tensor, Any, bool]:
    """Returns the view of an array to receive, the owner of its memory, and whether that is a copy whose elements
    write_back must put into the array."""
    check_shape(name, array, shape)
    dtype = dtype_of(name, array)
    target = array
    if not is_torch(array) and not array.flags.writeable:
        raise InvalidArgumentError(f"parameter {name}: the array is read-only")
    is_copy = not _is_dense(target)
    if is_copy and is_torch(target):
        torch = sys.modules["torch"]
        target = torch.empty(target.shape, dtype=target.dtype, device="cpu")
    elif is_copy:
        import numpy

        target = numpy.empty(target.shape, target.dtype)
    return Tensor(_pointer(target), math.prod(shape), dtype, parameter_id), target, is_copy


def write_back(array: Any, received: Any) -> None:
    """Copies what was pulled to an array that could not receive it itself."""
    if is_torch(array):
        array.detach().copy_(received)
    else:
        array[...] = received
