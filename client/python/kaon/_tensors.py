"""Views of numpy arrays and torch tensors as the library takes them: pointer, elements, dtype."""

from __future__ import annotations

import sys
from typing import Any, Dict, Optional, Sequence, Tuple

from ._library import PACKED_TENSOR, Tensor
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


def _dense_pointer(array: Any) -> int:
    """Returns the address of the elements, or 0 if they are not dense in host memory; also of an array without any."""
    if is_torch(array):
        if array.is_cpu and array.layout is sys.modules["torch"].strided and array.is_contiguous():
            return array.data_ptr()
        return 0
    return array.__array_interface__["data"][0] if array.flags.c_contiguous else 0


def to_float32(array: Any) -> Any:
    """Returns a dense float32 copy in host memory, or the array itself if it is one."""
    array = _as_array(array)
    if is_torch(array):
        return array.detach().to(device="cpu", dtype=sys.modules["torch"].float32).contiguous()
    import numpy

    return numpy.ascontiguousarray(array, dtype=numpy.float32).reshape(array.shape)


def _dense_copy(array: Any) -> Any:
    if not is_torch(array):
        import numpy

        return numpy.ascontiguousarray(array)
    if array.layout is not sys.modules["torch"].strided:
        array = array.to_dense()
    return array.detach().to("cpu").contiguous()


# What the library reads or writes: address, number of elements, dtype, parameter id.
View = Tuple[int, int, int, int]
# Number of a device, -1 for host memory, and the cudaEvent_t that a gradient there is ready after.
Place = Tuple[int, Optional[int]]
_HOST: Place = (-1, None)


class OnDevice:
    """A dense tensor of torch in memory of a CUDA device, for a client with `nccl`. The library reads a gradient after
    `event`, a recorded torch.cuda.Event; None: it is ready. When weights are pulled into a tensor, no kernel that was
    queued before may still use it."""

    __slots__ = ("tensor", "event", "place")

    def __init__(self, tensor: Any, device: int, event: Any = None) -> None:
        self.tensor = tensor
        # The library asks for the event until the step ends.
        self.event = event
        self.place: Place = (device, None if event is None else event.cuda_event)

    def view(self, parameter: Any) -> View:
        check_shape(parameter.name, self.tensor, parameter.shape)
        if not self.tensor.is_contiguous():
            raise InvalidArgumentError(f"parameter {parameter.name}: the tensor on device {self.place[0]} has strides, "
                                       "expecting dense elements: call contiguous()")
        return self.tensor.data_ptr(), parameter.num_elements, dtype_of(parameter.name, self.tensor), parameter.id


def place_of(array: Any) -> Place:
    return array.place if isinstance(array, OnDevice) else _HOST


def to_read(parameter: Any, array: Any) -> Tuple[View, Any]:
    """Returns the view of an array to send, and the owner of its memory: the array, or a dense copy of it."""
    if isinstance(array, OnDevice):
        return array.view(parameter), array
    array = _as_array(array)
    check_shape(parameter.name, array, parameter.shape)
    dtype = dtype_of(parameter.name, array)
    pointer = _dense_pointer(array)
    if not pointer:
        array = _dense_copy(array)
        pointer = _dense_pointer(array)
    return (pointer, parameter.num_elements, dtype, parameter.id), array


def to_write(parameter: Any, array: Any) -> Tuple[View, Any, bool]:
    """Returns the view of an array to receive, the owner of its memory, and whether that is a copy whose elements
    write_back must put into the array."""
    if isinstance(array, OnDevice):
        return array.view(parameter), array, False
    check_shape(parameter.name, array, parameter.shape)
    dtype = dtype_of(parameter.name, array)
    if not is_torch(array) and not array.flags.writeable:
        raise InvalidArgumentError(f"parameter {parameter.name}: the array is read-only")
    pointer = _dense_pointer(array)
    if pointer:
        return (pointer, parameter.num_elements, dtype, parameter.id), array, False
    if is_torch(array):
        torch = sys.modules["torch"]
        target = torch.empty(array.shape, dtype=array.dtype, device="cpu")
    else:
        import numpy

        target = numpy.empty(array.shape, array.dtype)
    return (_dense_pointer(target), parameter.num_elements, dtype, parameter.id), target, True


def pack(views: Sequence[View]) -> Any:
    """Returns a ctypes array of the views."""
    packed = PACKED_TENSOR.pack
    return (Tensor * len(views)).from_buffer_copy(b"".join([packed(*view) for view in views]))


def write_back(array: Any, received: Any) -> None:
    """Copies what was pulled to an array that could not receive it itself."""
    if is_torch(array):
        array.detach().copy_(received)
    else:
        array[...] = received
