"""What both processes of the side-by-side bench measure on."""

import mmap

import numpy as np

SHAPE = (384, 384)  # an int4 matrix, a scale and a zero point for each BLOCK of a row
BLOCK = 32
HANDLES = 64  # buffers of the tensor with many
COPIED = 256 << 20
LAZY = 1 << 30


def under_aligned(size):
    """uint8 [size] at 16 bytes past a page boundary, in an owner that has no byte before it."""
    array = np.frombuffer(memoryview(mmap.mmap(-1, size + 16))[16:], np.uint8)
    array[:] = 1  # every page is there before anything is timed
    return array
