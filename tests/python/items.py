"""Tensors and composites of every kind, made with what the published release offers as well.

Run by that release's interpreter, this file answers questions about files and streams: see
test_peer_files.py.
"""

import json
import math
import struct
import sys

import hurray

DTYPES = [
    getattr(hurray.dtype, name) for name in sorted(dir(hurray.dtype)) if not name.startswith("_")
]


def filled(nbytes: int) -> bytes:
    """Bytes that differ from their neighbours."""
    return bytes(7 * i % 251 for i in range(nbytes))


def plain(dtype, shape, **sections):
    count = hurray.buffer_size_bytes(dtype, math.prod(shape))
    return hurray.Tensor(filled(count), dtype, shape, **sections)


def integers(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def dense():
    f4 = hurray.float32
    return {
        "row_major": plain(f4, [2, 3]),
        "col_major": plain(f4, [2, 3], layout=hurray.ColMajorLayout()),
        "strided": hurray.Tensor(filled(60), f4, [3, 4], layout=hurray.StridedLayout([1, 3])),
        "tiled": plain(f4, [4, 4], layout=hurray.TiledLayout([2, 2])),
        "tiled twice": plain(
            f4,
            [8, 8],
            layout=hurray.TiledLayout(
                [4, 4], "row_major", "tiled", inner_tiled=hurray.TiledLayout([2, 2])
            ),
        ),
        "morton": plain(f4, [4, 4], layout=hurray.MortonLayout([2, 2])),
        "hilbert": plain(f4, [4, 4], layout=hurray.HilbertLayout(2, 2)),
        "scalar": plain(f4, []),
        "empty": plain(f4, [0, 3]),
        "a/b.c\0\N{SNOWMAN} ": plain(hurray.int64, [1]),
    }


def typed():
    return {f"of {dtype.name}": plain(dtype, [3, 5]) for dtype in DTYPES}


def indexed():
    f4, values = hurray.float32, floats(1, 2, 3)
    return {
        "coo": hurray.Tensor(
            values,
            f4,
            [4, 5],
            aux_buffers=[integers(0, 1, 2, 0, 3, 4)],
            layout=hurray.CooLayout(3, is_sorted=True),
        ),
        "csr": hurray.Tensor(
            values,
            f4,
            [4, 5],
            aux_buffers=[integers(1, 0, 4), integers(0, 1, 1, 2, 3)],
            layout=hurray.CsrLayout(3),
        ),
        "csc": hurray.Tensor(
            values,
            f4,
            [5, 4],
            aux_buffers=[integers(1, 0, 4), integers(0, 1, 1, 2, 3)],
            layout=hurray.CscLayout(3),
        ),
        "csr of nothing": hurray.Tensor(
            b"",
            f4,
            [2, 2],
            aux_buffers=[b"", integers(0, 0, 0)],
            layout=hurray.CsrLayout(0),
        ),
        "csf": hurray.Tensor(
            values,
            f4,
            [2, 3, 4],
            aux_buffers=[
                integers(0, 2),
                integers(0, 1),
                integers(0, 1, 2),
                integers(1, 2),
                integers(0, 1, 3),
                integers(0, 1, 3),
            ],
            layout=hurray.CsfLayout(3, [0, 1, 2]),
        ),
        "paged": hurray.Tensor(
            filled(4 * 2 * 2 * 3 * 2),
            hurray.float16,
            [5, 2, 3],
            aux_buffers=[struct.pack("<3I", 3, 0, 2), struct.pack("<3I", 0, 2, 3)],
            layout=hurray.BlockPagedLayout(2, 4, 0, 2, "value", layer_index=3),
        ),
        "private": hurray.Tensor(
            filled(5),
            hurray.uint8,
            [8],
            aux_buffers=[filled(3), b""],
            layout=hurray.PrivateExtensionLayout(0xF1, 7, b"opaque"),
        ),
    }


def quantized():
    def tensor(dtype, shape, scheme, *parameters):
        return plain(dtype, shape, aux_buffers=list(parameters), quantization=scheme)

    zeros = struct.pack("<3i", 1, 2, 3)
    return {
        "per tensor": tensor(hurray.uint8, [3, 4], hurray.PerTensorAffine(0.5, 128)),
        "per channel": tensor(
            hurray.int8, [3, 4], hurray.PerChannelAffine.symmetric(0, 1), floats(1, 2, 3)
        ),
        "per channel, zero points": tensor(
            hurray.int8, [3, 4], hurray.PerChannelAffine.asymmetric(0, 1, 2), floats(1, 2, 3), zeros
        ),
        "per block": tensor(
            hurray.dtype.int4,
            [3, 4],
            hurray.PerBlockAffine.symmetric(1, 4, 1, hurray.float32),
            floats(1, 2, 3),
        ),
        "per block, zero points": tensor(
            hurray.int8,
            [3, 4],
            hurray.PerBlockAffine.asymmetric(1, 4, 1, 2, hurray.float32),
            floats(1, 2, 3),
            zeros,
        ),
        "nf4": tensor(hurray.dtype.uint4, [2, 64], hurray.NF4(1, 64, 1), floats(1, 2)),
        "mxfp": tensor(hurray.dtype.float8_e4m3, [2, 32], hurray.MXFP(1, 32, 1), bytes([127, 128])),
    }


def sections():
    statistics = hurray.Statistics(
        nnz=5, value_mean=0.5, value_stddev=0.25, has_nan=False, has_inf=True
    )
    return {
        "statistics": plain(hurray.float32, [2, 3], statistics=statistics),
        "shard": plain(hurray.float32, [2, 3], shard=hurray.Shard([4, 3], [2, 0])),
        "extension type": hurray.Tensor(
            filled(12),
            hurray.Dtype.from_tag(0xF1),
            [2, 3],
            extension_type=hurray.ExtensionType(
                16, is_float=True, sign_bits=1, exponent_bits=6, mantissa_bits=9, exponent_bias=31
            ),
        ),
        "all sections": plain(
            hurray.uint8,
            [2, 3],
            statistics=statistics,
            shard=hurray.Shard([4, 3], [2, 0]),
            quantization=hurray.PerTensorAffine(0.5, 0),
        ),
    }


def tile(row: int):
    return plain(hurray.float32, [2, 2], shard=hurray.Shard([4, 2], [row, 0]))


def composites():
    f4 = hurray.float32
    base = plain(f4, [4, 2], shard=hurray.Shard([4, 2], [0, 0]))
    partition = hurray.Composite("partition", shape=[4, 2], dtype=f4, members=[tile(0), tile(2)])
    overlay = hurray.Composite(
        "overlay", shape=[4, 2], dtype=f4, members=[base, tile(2)], combine_op="add"
    )
    members = [quantized()["nf4"], partition, indexed()["csr"], overlay]
    return {
        "partition": partition,
        "overlay": overlay,
        "group": hurray.Composite("group", shape=[4], dtype=f4, members=members),
        "group of nothing": hurray.Composite("group", shape=[], dtype=f4, members=[]),
    }


def items():
    return dense() | typed() | indexed() | quantized() | sections() | composites()


METADATA = {
    "text": "\N{SNOWMAN}",
    "int": -(2**63),
    "float": 0.1,
    "bool": True,
    "bytes": b"\0\xff",
    "texts": ["a", ""],
    "ints": [2**63 - 1, -1],
    "floats": [1.5, -0.0],
    "bools": [True, False],
    "byte strings": [b"", b"\0"],
}


def shown(item):
    """Everything that an item is, as a stream has it."""
    writer = hurray.StreamWriter()
    writer.write(item)
    writer.finish()
    return writer.getvalue().hex()


def answer(question):
    match question:
        case ["save", path]:
            hurray.save(path, items(), kv=METADATA)
        case ["load", path]:
            return {name: shown(item) for name, item in hurray.load(path).items()}
        case ["load_kv", path]:
            return repr(hurray.load_kv(path))
        case ["write", path]:
            with hurray.StreamWriter(path) as writer:
                for item in items().values():
                    writer.write(item)
        case ["read", path]:
            return [shown(item) for item in hurray.StreamReader(path)]


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
