"""Ten thousand tensors over the memory of another library through three stages, by capsules."""

from textwrap import dedent

import pytest
import simulated
from simulated import PRELUDE

pytest.importorskip("cuda.bindings.driver")

PROGRAM = """
q = gpu.stream()
TENSORS, IN_FLIGHT = 10_000, 64
alive = []

class Array(CudaArray):
    def __init__(self):
        super().__init__(gpu, p, byte=1, nbytes=64)
        alive.append(self.address)
    def __del__(self):
        super().__del__()
        alive.remove(self.address)

class Offer:
    def __init__(self, tensor):
        self.tensor = tensor
    def __hurray__(self, stream=None):
        return self.tensor.__hurray__(stream=stream)

def produced(count):
    with hurray.cuda.Stream(p):
        parts = [hurray.Tensor(Array(), hurray.uint8, [64]) for _ in range(count)]
    if count == 1:
        return parts[0]
    first, *others = parts
    if count == 2:
        scheme = hurray.PerChannelAffine.symmetric(0, 1)
        return hurray.Tensor(first, hurray.int8, [16, 4], aux_buffers=others, quantization=scheme)
    if count == 3:
        layout = hurray.CsrLayout(nnz=8)
        return hurray.Tensor(first, hurray.uint8, [7, 64], aux_buffers=others, layout=layout)
    return hurray.Composite("group", shape=[1], dtype=hurray.uint8, members=parts)

reader = Consumer(gpu, c, nbytes=64)
for n in range(TENSORS):
    tensor = produced(1 + n % 4)
    address = alive[-1]
    # The second stage adds to the bytes in place, and says so with an event.
    middle = hurray.from_hurray(Offer(tensor), stream=q)
    gpu.add(address, address, q, by=1, nbytes=64)
    if isinstance(middle, hurray.Tensor):
        middle = middle.record(q)
    last = hurray.from_hurray(Offer(middle), stream=c)
    reader.read(address)
    del tensor, middle, last
    if len(alive) > IN_FLIGHT:
        until(lambda: len(alive) <= IN_FLIGHT)
assert gpu.host_waits() == waits
until(lambda: not alive)
assert hurray.cuda.stats()["kept"] == hurray.cuda.stats()["pending"] == 0
reader.check(2)
gpu.close()
"""


def test_nobody_waits_on_the_host_nothing_races_and_memory_is_bounded():
    outcome = simulated.run(PRELUDE + dedent(PROGRAM), memory=1 << 20).assert_clean()
    assert outcome.calls("peak-bytes-0").program < 1 << 20
    # Events are used again.
    assert outcome.calls("cuEventCreate").total < 1000
