"""Views of numpy arrays and torch tensors as the library takes them: pointer, elements, dtype."""

from __future__ import annotations

import sys
from typing import Any, Sequence, Tuple

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
        return array.detach()
    import numpy

    return numpy.asarray(array)


def dtype_of(name: str, array: Any) -> int:
    """InvalidArgumentError names a dtype that the wire does not have."""
    dtype = str(array.dtype).replace("torch.", "")
    if dtype not in _DTYPES:
        raise InvalidArgumentError(f"parameter {name}: dtype is {dtype}, expecting float32, bfloat16 or float16: "
                                   "convert it")
    return _DTYPES[dtype]


def shape_of(array: Any) -> Tuple[int, ...]:
    return tuple(int(size) for size in getattr(array, "shape", ()))


def check_shape(name: str, array: Any, shape: Sequence[int]) -> None:
    if shape_of(array) != tuple(shape):
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
        return array.to(device="cpu", dtype=sys.modules["torch"].float32).contiguous()
    import numpy

    return numpy.ascontiguousarray(array, dtype=numpy.float32).reshape(array.shape)


def to_read(name: str, parameter_id: int, array: Any, shape: Sequence[int]) -> Tuple[Tensor, Any]:
    """Returns the view of an array to send, and the owner of its memory: the array, or a dense copy of it."""
    array = _as_array(array)
    check_shape(name, array, shape)
    dtype = dtype_of(name, array)
    if not _is_dense(array):
        if is_torch(array):
            if array.layout is not sys.modules["torch"].strided:
                array = array.to_dense()
            array = array.to("cpu").contiguous()
        else:
            import numpy

            array = numpy.ascontiguousarray(array)
    return Tensor(_pointer(array), _count(shape), dtype, parameter_id), array


def to_write(name: str, parameter_id: int, array: Any, shape: Sequence[int]) -> Tuple[Tensor, Any, bool]:
    """Returns the view of an array to receive, the owner of its memory, and whether that is a copy whose elements
    write_back must put into the array."""
    check_shape(name, array, shape)
    dtype = dtype_of(name, array)
    target = array.detach() if is_torch(array) else array
    if not is_torch(array) and not array.flags.writeable:
        raise InvalidArgumentError(f"parameter {name}: the array is read-only")
    is_copy = not _is_dense(target)
    if is_copy and is_torch(target):
        torch = sys.modules["torch"]
        target = torch.empty(target.shape, dtype=target.dtype, device="cpu")
    elif is_copy:
        import numpy

        target = numpy.empty(target.shape, target.dtype)
    return Tensor(_pointer(target), _count(shape), dtype, parameter_id), target, is_copy


def write_back(array: Any, received: Any) -> None:
    """Copies what was pulled to an array that could not receive it itself."""
    if is_torch(array):
        array.detach().copy_(received)
    else:
        array[...] = received


def _count(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
