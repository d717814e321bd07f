"""Run by test_c_programs.py under AddressSanitizer: hurray meets tests/c/producer.c and consumer.c.

Its arguments are the two as shared libraries.
"""

import ctypes
import gc
import sys
from ctypes import (
    POINTER,
    Structure,
    byref,
    c_char_p,
    c_int32,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
    py_object,
)

import numpy as np

import hurray

NAME, USED_NAME = b"hurray_buffer", b"used_hurray_buffer"

python = ctypes.pythonapi
python.PyCapsule_New.argtypes = [c_void_p, c_char_p, c_void_p]
python.PyCapsule_New.restype = py_object
python.PyCapsule_SetContext.argtypes = [py_object, c_void_p]
python.PyCapsule_GetContext.argtypes = [py_object]
python.PyCapsule_GetContext.restype = c_void_p
python.PyCapsule_GetPointer.argtypes = [py_object, c_char_p]
python.PyCapsule_GetPointer.restype = c_void_p
python.PyCapsule_SetName.argtypes = [py_object, c_char_p]


class ProducerBuffer(Structure):
    """As in tests/c/producer.h."""

    _fields_ = (
        ("byte_size", c_uint64),
        ("offset", c_uint64),
        ("flags", c_uint32),
        ("device_id", c_uint32),
        ("device_tag", c_uint8),
        ("memory_class", c_uint8),
        ("sync_mode", c_uint8),
        ("fill", c_uint8),
    )


class Producer:
    """The C producer as an object with `__hurray__`."""

    def __init__(self, path: str, descriptor: bytes, buffers: list[ProducerBuffer]) -> None:
        self.library = ctypes.CDLL(path)
        self.descriptor = descriptor
        self.buffers = (ProducerBuffer * len(buffers))(*buffers)
        self.library.producer_list_destroy.argtypes = [POINTER(c_void_p)]
        for name in ("live_lists", "live_buffers", "live_events", "double_releases"):
            getattr(self.library, f"producer_{name}").restype = c_uint64

    def __hurray__(self, stream: object = None) -> object:
        handle, context = c_void_p(), c_void_p()
        new = self.library.producer_list_new
        new.argtypes = [
            c_char_p,
            c_uint64,
            POINTER(ProducerBuffer),
            c_uint64,
            POINTER(c_void_p),
            POINTER(c_void_p),
        ]
        new.restype = c_int32
        size, count = len(self.descriptor), len(self.buffers)
        status = new(self.descriptor, size, self.buffers, count, byref(handle), byref(context))
        assert status == 0
        capsule = python.PyCapsule_New(handle, NAME, None)
        python.PyCapsule_SetContext(capsule, context)
        return capsule

    def live(self) -> tuple[int, int, int, int]:
        """Lists, buffers, events, and double releases."""
        gc.collect()
        library = self.library
        return (
            library.producer_live_lists(),
            library.producer_live_buffers(),
            library.producer_live_events(),
            library.producer_double_releases(),
        )


class Offer:
    """An object with this capsule."""

    def __init__(self, capsule: object) -> None:
        self.capsule = capsule

    def __hurray__(self, stream: object = None) -> object:
        return self.capsule


def aligned(size: int, fill: int) -> np.ndarray:
    with hurray.aligned_allocator():
        return np.full(size, fill, np.uint8)


def quantized(codes: object, scales: object, zeros: object) -> hurray.Tensor:
    scheme = hurray.PerChannelAffine.asymmetric(0, 1, 2)
    return hurray.Tensor(
        codes, hurray.int8, [4, 32], aux_buffers=[scales, zeros], quantization=scheme
    )


def we_consume(path: str) -> None:
    descriptor = quantized(aligned(128, 0), aligned(16, 0), aligned(16, 0)).descriptor.encode()
    sizes = (128, 16, 16)
    producer = Producer(
        path,
        descriptor,
        [ProducerBuffer(byte_size=size, fill=number) for number, size in enumerate(sizes, 1)],
    )
    tensor = hurray.from_hurray(producer)
    assert producer.live() == (1, 3, 0, 0)
    for number, size in enumerate(sizes):
        assert np.asarray(tensor.buffer(number)).tobytes() == (bytes([number + 1]) * size)
    scales = tensor.buffer(1)
    again = hurray.from_hurray(tensor)
    del tensor
    assert producer.live() == (1, 3, 0, 0)
    del again
    assert producer.live() == (1, 1, 0, 0), "a view keeps its own buffer only"
    del scales
    assert producer.live() == (0, 0, 0, 0)

    short = Producer(path, descriptor, [ProducerBuffer(byte_size=128)])
    capsule = short.__hurray__()
    try:
        hurray.from_hurray(Offer(capsule))
    except hurray.BufferError as error:
        assert "1" in str(error)
        assert "3" in str(error)
    else:
        raise AssertionError("a list of one buffer was taken for three")
    handle = c_void_p(python.PyCapsule_GetPointer(capsule, NAME))
    assert short.live() == (1, 1, 0, 0), "what is refused is as it was"
    assert short.library.producer_list_destroy(byref(handle)) == 0
    assert short.live() == (0, 0, 0, 0)


def we_are_consumed(path: str) -> None:
    consume = ctypes.CDLL(path).consume
    consume.argtypes = [c_void_p, c_void_p, POINTER(c_uint64), POINTER(c_char_p)]
    consume.restype = c_int32
    buffers = [aligned(128, 1), aligned(16, 2), aligned(16, 3)]
    tensor = quantized(*buffers)
    before = [sys.getrefcount(buffer) for buffer in buffers]
    for _ in range(10):
        capsule = tensor.__hurray__()
        handle = python.PyCapsule_GetPointer(capsule, NAME)
        context = python.PyCapsule_GetContext(capsule)
        python.PyCapsule_SetName(capsule, USED_NAME)
        total, problem = c_uint64(), c_char_p()
        assert consume(handle, context, byref(total), byref(problem)) == 0, problem.value
        assert total.value == 128 + 2 * 16 + 3 * 16
        del capsule
    assert [sys.getrefcount(buffer) for buffer in buffers] == before


if __name__ == "__main__":
    _, producer_path, consumer_path = sys.argv
    we_consume(producer_path)
    we_are_consumed(consumer_path)
