"""Affine quantization with NumPy, as the format stores it.

A weight is stored as a code q of few bits, with x = scale * (q - zero_point). Codes, scales
(float32) and zero points (int32) are three arrays. Zero is inside every range, so that each zero
point is itself a code.
"""

import numpy as np


def affine(groups, bits):
    """Codes, scales and zero points of float32 `groups` [n, k], one scale and zero point a row.

    Codes are int8 [n, k] in -2**(bits-1) .. 2**(bits-1) - 1, scales float32 [n], zero points
    int32 [n]. No value is further than half its scale, and rounding, from the value its code means.
    """
    lowest, highest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    low = np.minimum(groups.min(axis=1), 0)
    high = np.maximum(groups.max(axis=1), 0)
    scales = (high - low) / np.float32(highest - lowest)
    scales[scales == 0] = 1  # nothing but zeros: any scale will do, but 0 is not one
    zeros = (lowest - np.rint(low / scales)).astype(np.int32)
    codes = np.rint(groups / scales[:, None])
    codes += zeros[:, None]
    np.clip(codes, lowest, highest, out=codes)
    return codes.astype(np.int8), scales, zeros


def per_channel(weights, bits=8):
    """Codes [rows, columns], scales [rows] and zero points [rows] of a float32 matrix."""
    return affine(weights, bits)


def per_block(weights, block, bits=4):
    """Codes [rows, columns], scales and zero points [rows, ceil(columns / block)] of a matrix.

    A block is a run of `block` columns of one row; the last of a row may be shorter.
    """
    rows, columns = weights.shape
    per_row = -(-columns // block)
    # Zeros change no range, and the codes of the padding are dropped again: none is stored.
    padded = np.zeros((rows, per_row * block), np.float32)
    padded[:, :columns] = weights
    codes, scales, zeros = affine(padded.reshape(-1, block), bits)
    codes = np.ascontiguousarray(codes.reshape(rows, -1)[:, :columns])
    return codes, scales.reshape(rows, per_row), zeros.reshape(rows, per_row)


def pack_int4(codes):
    """Two int4 codes a byte, the first in the low bits: uint8 [ceil(codes.size / 2)]."""
    nibbles = codes.reshape(-1).view(np.uint8) & 0x0F
    packed = nibbles[0::2].copy()
    packed[: nibbles.size // 2] |= nibbles[1::2] << 4
    return packed
