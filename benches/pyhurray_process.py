"""The published release's side of side_by_side.py, in a process and an environment of its own.

Reads a line of JSON, {"statement": ..., "number": ...}, and answers with the nanoseconds that
`number` runs of the statement took. The names a statement may use are those of `names`.
"""

import json
import sys
import timeit

import numpy as np
from arrays import BLOCK, COPIED, HANDLES, SHAPE, under_aligned

import hurray


def names():
    codes, scales, zeros = (bytes(n) for n in (SHAPE[0] * SHAPE[1] // 2, *[SHAPE[0] * 48] * 2))
    with hurray.aligned_allocator():
        array = np.zeros(1024, np.float32)
    return {
        "array": array,
        "hurray": hurray,
        "many": hurray.Tensor(
            bytes(64),
            hurray.uint8,
            [64],
            aux_buffers=[bytes(64)] * (HANDLES - 1),
            layout=hurray.PrivateExtensionLayout(0xF0, 7),
        ),
        "np": np,
        "tensor": hurray.from_numpy(array, copy=False),
        "three": hurray.Tensor(
            codes,
            hurray.dtype.int4,
            list(SHAPE),
            aux_buffers=[scales, zeros],
            quantization=hurray.PerBlockAffine.asymmetric(1, BLOCK, 1, 2, hurray.float32),
        ),
        "under": under_aligned(COPIED),
    }


def main():
    known = names()
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        seconds = timeit.Timer(task["statement"], globals=known).timeit(task["number"])
        print(json.dumps(seconds * 1e9), flush=True)


if __name__ == "__main__":
    main()
