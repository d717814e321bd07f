"""A producer of capsules that is not hurray: a table of functions of its own, in ctypes.

Every number it answers can be a lie, which is what the tests of the consumer need.
"""

import ctypes
import itertools
from collections.abc import Sequence
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    byref,
    c_char_p,
    c_int32,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
    cast,
    sizeof,
)
from dataclasses import dataclass, field

import numpy as np

ABI_VERSION = 3
READ_ONLY, DECLARED = 1, 2
CPU, CUDA = 0, 1
STANDARD, HOST_PINNED, UNIFIED = 0, 1, 2
SYNCED, EVENT, CONSUMER_STREAM = 0, 1, 2
OUT_OF_BOUNDS, UNSUPPORTED = -3, -6

# The functions of the table; every handle is passed as an address.
LEN = CFUNCTYPE(c_int32, c_void_p, POINTER(c_uint64))
GET = CFUNCTYPE(c_int32, c_void_p, c_uint64, POINTER(c_void_p))
DESTROY = CFUNCTYPE(c_int32, POINTER(c_void_p))
RELEASE = CFUNCTYPE(c_int32, c_void_p, c_uint64, c_size_t)
RELEASE_AFTER = CFUNCTYPE(c_int32, POINTER(c_void_p), c_size_t)
FILL = CFUNCTYPE(c_int32, c_void_p, c_void_p)
WAIT = CFUNCTYPE(c_int32, c_void_p, c_size_t)
WAIT_HOST = CFUNCTYPE(c_int32, c_void_p)
EVENT_RELEASE = CFUNCTYPE(c_int32, c_void_p, c_uint64)
LAST_ERROR = CFUNCTYPE(c_void_p)
DESTRUCTOR = CFUNCTYPE(None, c_void_p)


class Api(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("abi_version", c_uint32),
        ("list_len", LEN),
        ("list_get", GET),
        ("list_destroy", DESTROY),
        ("list_release", RELEASE),
        ("list_release_after", RELEASE_AFTER),
        ("buffer_info", FILL),
        ("buffer_sync", FILL),
        ("buffer_wait", WAIT),
        ("buffer_wait_host", WAIT_HOST),
        ("event_release", EVENT_RELEASE),
        ("last_error", LAST_ERROR),
    ]


class Context(Structure):
    _fields_ = [
        ("abi_version", c_uint32),
        ("struct_size", c_uint32),
        ("descriptor", c_void_p),
        ("descriptor_len", c_uint64),
        ("api", c_void_p),
    ]


class Info(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("data", c_void_p),
        ("byte_size", c_uint64),
        ("alignment", c_uint32),
        ("device_id", c_uint32),
        ("device_tag", c_uint8),
        ("memory_class", c_uint8),
        ("sync_mode", c_uint8),
        ("reserved", c_uint8 * 5),
    ]


class Sync(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("sync_mode", c_uint8),
        ("reserved", c_uint8 * 3),
        ("event", c_void_p),
        ("stream", c_size_t),
    ]


class Handle(Structure):
    """A list or a buffer: the table first, then what its producer finds it by."""

    _fields_ = [("api", c_void_p), ("key", c_uint64), ("index", c_uint64)]


def python(name, result, *arguments):
    """A function of Python's C API, with a prototype of its own."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


new_capsule = python("PyCapsule_New", ctypes.py_object, c_void_p, c_void_p, c_void_p)
get_name = python("PyCapsule_GetName", c_void_p, ctypes.py_object)
name_of_dying = python("PyCapsule_GetName", c_void_p, c_void_p)
set_name = python("PyCapsule_SetName", c_int32, ctypes.py_object, c_void_p)
get_pointer = python("PyCapsule_GetPointer", c_void_p, ctypes.py_object, c_char_p)
pointer_of_dying = python("PyCapsule_GetPointer", c_void_p, c_void_p, c_void_p)
get_context = python("PyCapsule_GetContext", c_void_p, ctypes.py_object)
set_context = python("PyCapsule_SetContext", c_int32, ctypes.py_object, c_void_p)


@dataclass
class Buffer:
    """What the producer says of a buffer."""

    address: int
    byte_size: int
    device_tag: int = CPU
    device_id: int = 0
    memory_class: int = STANDARD
    sync_mode: int = SYNCED
    flags: int = 0
    event: int = 0
    stream: int = 0

    @classmethod
    def of(cls, array: np.ndarray, **said) -> "Buffer":
        return cls(array.ctypes.data, array.nbytes, **said)


@dataclass
class Calls:
    """What a consumer did to a list."""

    released: list[tuple[int, int]] = field(default_factory=list)
    events_released: list[int] = field(default_factory=list)
    destroyed: int = 0


class Offer:
    """An object whose `__hurray__` gives a planted capsule."""

    def __init__(self, capsule):
        self.capsule = capsule
        self.streams = []

    def __hurray__(self, stream=None):
        self.streams.append(stream)
        return self.capsule


# Everything a capsule points to lives as long as the process, as a producer's functions do.
_alive = {}
_keys = itertools.count(1)
_NAME = ctypes.create_string_buffer(b"hurray_buffer")
_TEXT = ctypes.create_string_buffer(b"nothing failed")


def _list(address):
    return _alive[Handle.from_address(address).key]


def _len(address, out):
    out[0] = len(_list(address).buffers) + _list(address).extra_length
    return 0


def _get(address, index, out):
    producer = _list(address)
    if index >= len(producer.buffers):
        return OUT_OF_BOUNDS
    out[0] = ctypes.addressof(producer.handles[index])
    return 0


def _destroy(variable):
    if variable[0]:
        _list(variable[0]).calls.destroyed += 1
        variable[0] = None
    return 0


def _release(address, index, stream):
    _list(address).calls.released.append((index, stream))
    return 0


def _release_after(variable, _stream):
    return _destroy(variable)


def _info(address, out):
    handle = Handle.from_address(address)
    said = _alive[handle.key].buffers[handle.index]
    info = Info.from_address(out)
    info.struct_size = sizeof(Info)
    info.flags = said.flags
    info.data = said.address
    info.byte_size = said.byte_size
    info.alignment = 64
    info.device_id = said.device_id
    info.device_tag = said.device_tag
    info.memory_class = said.memory_class
    info.sync_mode = said.sync_mode
    return 0


def _sync(address, out):
    handle = Handle.from_address(address)
    said = _alive[handle.key].buffers[handle.index]
    sync = Sync.from_address(out)
    sync.struct_size = sizeof(Sync)
    sync.sync_mode = said.sync_mode
    sync.event = said.event
    sync.stream = said.stream
    return 0


def _event_release(address, index):
    _list(address).calls.events_released.append(index)
    return 0


API = Api(
    sizeof(Api),
    ABI_VERSION,
    LEN(_len),
    GET(_get),
    DESTROY(_destroy),
    RELEASE(_release),
    RELEASE_AFTER(_release_after),
    FILL(_info),
    FILL(_sync),
    WAIT(lambda _buffer, _stream: UNSUPPORTED),
    WAIT_HOST(lambda _buffer: UNSUPPORTED),
    EVENT_RELEASE(_event_release),
    LAST_ERROR(lambda: ctypes.addressof(_TEXT)),
)


@DESTRUCTOR
def _capsule_destructor(capsule):
    name = name_of_dying(capsule)
    if name and ctypes.string_at(name) == b"hurray_buffer":
        variable = c_void_p(pointer_of_dying(capsule, name))
        API.list_destroy(byref(variable))


class Producer:
    """One list, and the capsule that carries it."""

    def __init__(
        self,
        descriptor: bytes,
        buffers: Sequence[Buffer],
        *,
        keep: object = None,
        abi_version: int = ABI_VERSION,
        context_size: int | None = None,
        api: int | None = None,
        extra_length: int = 0,
    ):
        self.buffers = list(buffers)
        self.extra_length = extra_length
        self.calls = Calls()
        self.kept = (keep, ctypes.create_string_buffer(descriptor, len(descriptor)))
        key = next(_keys)
        table = ctypes.addressof(API)
        self.list = Handle(table, key, 0)
        self.handles = [Handle(table, key, index) for index in range(len(self.buffers))]
        self.context = Context(
            abi_version,
            sizeof(Context) if context_size is None else context_size,
            ctypes.addressof(self.kept[1]),
            len(descriptor),
            table if api is None else api,
        )
        _alive[key] = self

    def capsule(self, *, context: int | None = None):
        """A capsule of the list. `context` is another context's address."""
        made = new_capsule(
            ctypes.addressof(self.list),
            ctypes.addressof(_NAME),
            cast(_capsule_destructor, c_void_p),
        )
        own = ctypes.addressof(self.context) if context is None else context
        set_context(made, own)
        return made

    def offer(self) -> Offer:
        return Offer(self.capsule())


def capsule_named(name: bytes | None):
    """A capsule of any name over a pointer that must not be followed."""
    text = None if name is None else ctypes.create_string_buffer(name)
    made = new_capsule(UNMAPPED, None if text is None else ctypes.addressof(text), None)
    _alive[id(text)] = text
    set_context(made, UNMAPPED)
    return made


# No page lies here: whoever follows the address dies of it.
UNMAPPED = 0x10


ROW = 16
DEVICE_BYTE, SYNC_BYTE, CLASS_BYTE = 12, 13, 14


def row_position(descriptor: bytes, index: int, *, rank: int) -> int:
    """Where row `index` begins in the bytes of a row-major descriptor."""
    return 28 + 8 * rank + 1 + ROW * index


def with_row(
    descriptor: bytes,
    index: int,
    *,
    rank: int,
    byte_size: int | None = None,
    alignment: int | None = None,
    device_tag: int | None = None,
    sync_mode: int | None = None,
    memory_class: int | None = None,
) -> bytes:
    """The descriptor with other numbers in a row."""
    at = row_position(descriptor, index, rank=rank)
    changed = bytearray(descriptor)
    if byte_size is not None:
        changed[at : at + 8] = byte_size.to_bytes(8, "little")
    if alignment is not None:
        changed[at + 8 : at + 12] = alignment.to_bytes(4, "little")
    for offset, value in (
        (DEVICE_BYTE, device_tag),
        (SYNC_BYTE, sync_mode),
        (CLASS_BYTE, memory_class),
    ):
        if value is not None:
            changed[at + offset] = value
    return bytes(changed)
