"""A DLPack producer whose every field a test can choose, and NumPy arrays at chosen addresses."""

import ctypes
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

READ_ONLY, IS_COPIED, PADDED = 1, 2, 4

_NAMES = {
    False: (b"dltensor", b"used_dltensor"),
    True: (b"dltensor_versioned", b"used_dltensor_versioned"),
}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_uint32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Legacy(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", _Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


# Not `ctypes.pythonapi`, which shares its functions with whoever sets other types on them.
_api = ctypes.PyDLL(None)
_new = _api.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_is_valid = _api.PyCapsule_IsValid
_is_valid.restype = ctypes.c_int
_is_valid.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_pointer = _api.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_name = _api.PyCapsule_GetName
_name.restype = ctypes.c_char_p
_name.argtypes = (ctypes.c_void_p,)

# What managed tensors point to, until they are deleted.
_alive: dict[int, tuple[Any, "Producer"]] = {}


@_Deleter
def _delete(address: int) -> None:
    _, producer = _alive.pop(address)
    producer.deleted += 1


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _destroy(capsule: int) -> None:
    for name, _ in _NAMES.values():
        if _is_valid(capsule, name):
            _delete(_pointer(capsule, name))


class Producer:
    """Hands out capsules with the fields it was given.

    `deleted` counts deleter calls, `calls` lists what `__dlpack__` was called with. `version` None
    is a legacy capsule.
    """

    def __init__(
        self,
        data: NDArray[Any] | int,
        shape: tuple[int, ...] = (4,),
        strides: tuple[int, ...] | None = None,
        *,
        dtype: tuple[int, int, int] = (2, 32, 1),
        device: tuple[int, int] = (1, 0),
        announced: tuple[int, int] | None = None,
        byte_offset: int = 0,
        flags: int = 0,
        version: tuple[int, int] | None = (1, 1),
        ndim: int | None = None,
    ) -> None:
        self.keep = data
        self.address = data if isinstance(data, int) else data.ctypes.data
        self.shape, self.strides, self.dtype, self.device = shape, strides, dtype, device
        self.announced = device if announced is None else announced
        self.byte_offset, self.flags, self.version, self.ndim = byte_offset, flags, version, ndim
        self.calls: list[dict[str, Any]] = []
        self.deleted = 0

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.announced

    def __dlpack__(self, **arguments: Any) -> Any:
        self.calls.append(arguments)
        return self.capsule()

    def capsule(self) -> Any:
        rank = len(self.shape)
        numbers = ctypes.c_int64 * rank
        shape = numbers(*self.shape)
        tensor = _Tensor(
            self.address,
            *self.device,
            rank if self.ndim is None else self.ndim,
            *self.dtype,
            ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)),
            None,
            self.byte_offset,
        )
        strides = None
        if self.strides is not None:
            strides = numbers(*self.strides)
            tensor.strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
        managed: _Legacy | _Versioned
        if self.version is None:
            managed = _Legacy(tensor, None, _delete)
        else:
            managed = _Versioned(*self.version, None, _delete, self.flags, tensor)
        address = ctypes.addressof(managed)
        _alive[address] = ((managed, shape, strides), self)
        name = _NAMES[self.version is not None][0]
        return _new(address, name, ctypes.cast(_destroy, ctypes.c_void_p))


def capsule_name(capsule: Any) -> str:
    """The name that a capsule has now."""
    return _name(id(capsule)).decode()


def capsule_pointer(capsule: Any) -> int:
    """The pointer that a capsule holds."""
    return _pointer(id(capsule), _name(id(capsule)))


def new_capsule(address: int, name: bytes) -> Any:
    """A capsule that frees nothing; `name` must outlive it."""
    return _new(address, name, None)


class Fields:
    """What a capsule of ours says, read without taking it."""

    def __init__(self, capsule: Any) -> None:
        self.name = capsule_name(capsule)
        kind = _Versioned if self.name == "dltensor_versioned" else _Legacy
        managed = kind.from_address(capsule_pointer(capsule))
        self.flags = managed.flags if kind is _Versioned else None
        self.version = (managed.major, managed.minor) if kind is _Versioned else None
        tensor = managed.tensor
        self.data = tensor.data
        self.byte_offset = tensor.byte_offset
        self.device = (tensor.device_type, tensor.device_id)
        self.dtype = (tensor.code, tensor.bits, tensor.lanes)
        self.shape = tuple(tensor.shape[: tensor.ndim])
        self.strides = tuple(tensor.strides[: tensor.ndim])


def array_at(
    offset: int, shape: int | tuple[int, ...], dtype: DTypeLike = np.float32
) -> NDArray[Any]:
    """Zeros, `offset` bytes past a 4096-byte boundary, that own nothing before their first byte."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    block = np.zeros(size + offset + 4096, np.uint8)
    start = -block.ctypes.data % 4096 + offset
    # Through a memoryview, which hides from NumPy that the block begins earlier.
    return np.frombuffer(memoryview(block)[start : start + size], dtype).reshape(shape)
