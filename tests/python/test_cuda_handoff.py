"""Every way in and out of `docs/sync.md`, on the stand-in driver.

A program hands bytes over in one way. Then it runs once with each wait and each record swallowed
and with each free early: all must be noticed, save those that are listed with the reason.
"""

from textwrap import dedent

import pytest
import simulated
from simulated import PRELUDE

pytest.importorskip("cuda.bindings.driver")

# Each program, and the calls that it does not need: (function, n).
PROGRAMS = {
    "E6: __hurray__(stream=s), and the consumer lets go while its kernel reads": """
        source = CudaArray(gpu, p)
        freed, address = source.freed, source.address
        tensor = written(source)
        del source
        assert modes(tensor) == ["consumer_stream"] and calls() == (0, 0)
        reader = Consumer(gpu, c)
        capsule = tensor.__hurray__(stream=c)
        assert calls() == (1, 1)
        del tensor
        reader.read(address)
        del capsule
        let_go(freed)
        reader.check()
    """,
    "from_hurray(stream=s)": """
        source = CudaArray(gpu, p)
        freed, address = source.freed, source.address
        reader = Consumer(gpu, c)
        tensor = hurray.from_hurray(written(source), stream=c)
        del source
        assert modes(tensor) == ["consumer_stream"] and calls() == (1, 1)
        reader.read(address)
        del tensor
        let_go(freed)
        reader.check()
    """,
    "from_hurray(stream=s) of a producer that relays": """
        class Relay:
            def __init__(self, tensor):
                self.tensor = tensor
            def __hurray__(self, stream=None):
                assert stream == c
                return self.tensor.__hurray__()
        source = CudaArray(gpu, p)
        freed, address = source.freed, source.address
        reader = Consumer(gpu, c)
        tensor = hurray.from_hurray(Relay(written(source)), stream=c)
        del source
        assert modes(tensor) == ["consumer_stream"] and calls() == (1, 1)
        reader.read(address)
        del tensor
        let_go(freed)
        reader.check()
    """,
    "__hurray__() relays a stream": """
        source = CudaArray(gpu, p)
        freed, address = source.freed, source.address
        reader = Consumer(gpu, c)
        for stream in (None, -1):
            tensor = hurray.from_hurray(hurray.from_hurray(written(source)))
            capsule = tensor.__hurray__(stream=stream)
        assert modes(tensor) == ["consumer_stream"] and calls() == (0, 0)
        del source, capsule
        ordered = tensor.order(c)
        assert modes(tensor) == modes(ordered) == ["consumer_stream"] and calls() == (1, 1)
        reader.read(address)
        del tensor, ordered
        let_go(freed)
        reader.check()
    """,
    "__hurray__() relays an event": """
        source = CudaArray(gpu, p)
        freed, address = source.freed, source.address
        reader = Consumer(gpu, c)
        recorded = written(source).record(p)
        tensor = hurray.from_hurray(recorded)
        del source, recorded
        assert modes(tensor) == ["event"]
        before = calls()
        ordered = hurray.from_hurray(tensor, stream=c)
        assert calls() == (before[0], before[1] + 1)
        assert modes(tensor) == ["event"] and modes(ordered) == ["consumer_stream"]
        reader.read(address)
        del tensor, ordered
        let_go(freed)
        reader.check()
    """,
    "buffers that share an event": """
        sources = arrays(2)
        freed, addresses = [s.freed for s in sources], [s.address for s in sources]
        tensor = quantized(sources).record(p)
        del sources
        assert modes(tensor) == ["event", "event"]
        readers = [Consumer(gpu, c), Consumer(gpu, c)]
        before = calls()
        ordered = tensor.order(c)
        assert calls() == (before[0], before[1] + 1)
        for reader, address in zip(readers, addresses):
            reader.read(address)
        del tensor, ordered
        let_go(freed[0]), let_go(freed[1])
        for reader in readers:
            reader.check()
    """,
    "E9: buffers of one tensor that differ": """
        q = gpu.stream()
        codes, scales = CudaArray(gpu, p), CudaArray(gpu, q)
        freed, addresses = [codes.freed, scales.freed], [codes.address, scales.address]
        with hurray.cuda.Stream(q):
            scales = hurray.Tensor(scales, hurray.uint8, [LEN]).record(q)
        with hurray.cuda.Stream(p):
            tensor = hurray.Tensor(
                codes, hurray.int8, [1024, 4], aux_buffers=[scales],
                quantization=hurray.PerChannelAffine.symmetric(0, 1),
            )
        del codes, scales
        assert modes(tensor) == ["consumer_stream", "event"]
        readers = [Consumer(gpu, c), Consumer(gpu, c)]
        before = calls()
        ordered = hurray.from_hurray(tensor, stream=c)
        assert modes(ordered) == ["consumer_stream"] * 2
        assert calls() == (before[0] + 1, before[1] + 2)
        for reader, address in zip(readers, addresses):
            reader.read(address)
        del tensor, ordered
        let_go(freed[0]), let_go(freed[1])
        for reader in readers:
            reader.check()
    """,
    "buffer(i, stream=s)": """
        sources = arrays(2)
        freed, address = sources[1].freed, sources[1].address
        tensor = quantized(sources)
        del sources
        refused(hurray.UnsupportedError, "`buffer(1, stream=)`", lambda: tensor.buffer(1))
        assert calls() == (0, 0)
        view = tensor.buffer(1, stream=c)
        assert modes(view) == ["consumer_stream"] and calls() == (1, 1)
        del tensor
        reader = Consumer(gpu, c)
        reader.read(address)
        del view
        let_go(freed)
        reader.check()
    """,
    "views keep the mode": """
        sources = arrays(2)
        freed, address = sources[0].freed, sources[0].address
        tensor = quantized(sources).order(c)
        del sources
        view = tensor.codes.T
        assert modes(view) == ["consumer_stream"] and modes(tensor.T) == ["consumer_stream"] * 2
        before = calls()
        again = hurray.from_hurray(view, stream=c)
        assert calls() == before
        del tensor, view
        reader = Consumer(gpu, c)
        reader.read(address)
        del again
        let_go(freed)
        reader.check()
    """,
    "__cuda_array_interface__ out": """
        source = CudaArray(gpu, p)
        freed, address = source.freed, source.address
        tensor = written(source)
        del source
        interface = tensor.__cuda_array_interface__
        assert interface == {
            "version": 3, "shape": (LEN,), "typestr": "|u1", "data": (address, False),
            "strides": (1,), "stream": 1,
        }
        assert calls() == (1, 1)
        reader = Consumer(gpu, 1)
        reader.read(interface["data"][0])
        del tensor
        let_go(freed)
        reader.check()
    """,
    "__cuda_array_interface__ in": """
        source = CudaArray(gpu, p)
        freed, address = source.freed, source.address
        with hurray.cuda.Stream(c):
            tensor = hurray.Tensor(source, hurray.uint8, [LEN])
        del source
        assert modes(tensor) == ["consumer_stream"] and calls() == (1, 1)
        reader = Consumer(gpu, c)
        ordered = tensor.order(c)
        assert calls() == (1, 1)
        reader.read(address)
        del tensor, ordered
        let_go(freed)
        reader.check()
    """,
    "record": """
        source = CudaArray(gpu, p)
        freed, address = source.freed, source.address
        tensor = written(source)
        del source
        # Written once more, on another stream, through a view that was ordered there.
        q = gpu.stream()
        view = tensor.order(q)
        gpu.fill(address, 5, q)
        tensor = view.record(q)
        del view
        assert modes(tensor) == ["event"]
        reader = Consumer(gpu, c)
        ordered = tensor.order(c)
        reader.read(address)
        del tensor, ordered
        let_go(freed)
        reader.check(5)
    """,
    "order_after_readers": """
        source = CudaArray(gpu, p)
        freed, address = source.freed, source.address
        tensor = written(source)
        del source
        reader = Consumer(gpu, c)
        view = tensor.order(c)
        reader.read(address)
        del view
        tensor.order_after_readers(p)
        gpu.fill(address, 9, p)
        last = Consumer(gpu, p)
        last.read(address)
        tensor.record_stream(p)
        del tensor
        let_go(freed)
        reader.check(), last.check(9)
    """,
    "record_stream": """
        source = CudaArray(gpu, p)
        freed, address = source.freed, source.address
        tensor = written(source)
        del source
        tensor.record_stream(c)
        assert calls() == (1, 1)
        reader = Consumer(gpu, c)
        reader.read(address)
        del tensor
        let_go(freed)
        reader.check()
    """,
    "a composite": """
        sources = arrays(2)
        freed, addresses = [s.freed for s in sources], [s.address for s in sources]
        composite = hurray.Composite(
            "group", shape=[1], dtype=hurray.uint8, members=[written(s) for s in sources]
        )
        del sources
        ordered = hurray.from_hurray(composite, stream=c)
        assert calls() == (1, 1)
        assert [modes(member) for member in ordered.members] == [["consumer_stream"]] * 2
        readers = [Consumer(gpu, c), Consumer(gpu, c)]
        for reader, address in zip(readers, addresses):
            reader.read(address)
        del composite, ordered
        let_go(freed[0]), let_go(freed[1])
        for reader in readers:
            reader.check()
    """,
}
# Records that a program does not need: what comes back from one stream is covered by a later record
# there, by a reader that waits for it, or by the producer, who frees in the order of `p`.
NEEDLESS = {
    "views keep the mode": {("cuEventRecord", 2), ("cuEventRecord", 3)},
    "order_after_readers": {("cuEventRecord", 3)},
    "record": {("cuEventRecord", 3)},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_call_is_needed(name):
    program = PRELUDE + dedent(PROGRAMS[name]) + "gpu.close()\n"
    _, unnoticed = simulated.sweep(program)
    assert unnoticed == NEEDLESS.get(name, set())
