"""Memory at addresses that a test names, whatever NumPy's allocator gives."""

import numpy as np


def aligned(nbytes: int, offset: int = 0, boundary: int = 4096) -> np.ndarray:
    """Bytes that begin `offset` past a multiple of `boundary`, in an array that owns more."""
    whole = np.zeros(nbytes + offset + 2 * boundary, np.uint8)
    start = -whole.ctypes.data % boundary + offset
    return whole[start : start + nbytes]


def at(offset: int, shape: tuple[int, ...], dtype=np.float32) -> np.ndarray:
    """0, 1, 2, … in memory that begins `offset` past a multiple of 64 and is known no further."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    memory = aligned(count * dtype.itemsize, offset, boundary=64)
    # What NumPy knows of a memoryview is its own bytes.
    array = np.frombuffer(memoryview(memory), dtype).reshape(shape)
    array[...] = np.arange(count).reshape(shape).astype(dtype)
    return array
