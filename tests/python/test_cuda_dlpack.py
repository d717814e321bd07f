"""DLPack's rows of `docs/sync.md`, and copies between places, on the stand-in driver.

Each program runs once more with each wait and each record swallowed and with each free early: all
must be noticed, save those that are listed with the reason.
"""

import pytest
import simulated

pytest.importorskip("cuda.bindings.driver")

PRODUCER = """
class Producer:
    # A library of its own: its array is written on `stream`, and it orders what stream it is told.
    def __init__(self, array, stream, device=(2, 0)):
        self.tensor = written(array)
        self.calls, self.current, self.device = [], [], device

    def __dlpack__(self, **arguments):
        self.calls.append(arguments)
        self.current.append(int(call(driver.cuCtxGetDevice())))
        return self.tensor.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.device
"""

# Each program, and the calls that it does not need: (function, n).
PROGRAMS = {
    "__dlpack__(stream=s)": """
        source = CudaArray(gpu, p)
        freed, address = source.freed, source.address
        tensor = written(source)
        del source
        reader = Consumer(gpu, c)
        capsule = tensor.__dlpack__(stream=c, max_version=(1, 3))
        assert calls() == (1, 1)
        del tensor
        reader.read(address)
        del capsule
        let_go(freed)
        reader.check()
    """,
    "__dlpack__(stream=s) whose deleter another thread calls": """
        source = CudaArray(gpu, p)
        freed, address = source.freed, source.address
        reader = Consumer(gpu, c)
        capsules = [written(source).__dlpack__(stream=c)]
        del source
        reader.read(address)
        thread = threading.Thread(target=capsules.clear)
        thread.start(), thread.join()
        let_go(freed)
        reader.check()
    """,
    "__dlpack__() orders the legacy default stream": """
        source = CudaArray(gpu, p)
        freed, address = source.freed, source.address
        reader = Consumer(gpu, 1)
        capsule = written(source).__dlpack__()
        del source
        assert calls() == (1, 1)
        reader.read(address)
        del capsule
        let_go(freed)
        reader.check()
    """,
    "from_dlpack(stream=s)": """
        source = CudaArray(gpu, p)
        freed, address = source.freed, source.address
        producer = Producer(source, p)
        del source
        tensor = hurray.from_dlpack(producer, stream=c)
        assert producer.calls == [{"stream": c, "max_version": (1, 3)}]
        assert modes(tensor) == ["consumer_stream"] and calls() == (1, 1)
        reader = Consumer(gpu, c)
        reader.read(address)
        # The producer's bytes stay until both have let go.
        del producer, tensor
        let_go(freed)
        reader.check()
    """,
    "from_dlpack() takes the current stream": """
        source = CudaArray(gpu, p)
        freed, address = source.freed, source.address
        producer = Producer(source, p)
        del source
        with hurray.cuda.Stream(c):
            tensor = hurray.from_dlpack(producer)
        assert producer.calls[0]["stream"] == c
        reader = Consumer(gpu, c)
        reader.read(address)
        del producer, tensor
        let_go(freed)
        reader.check()
    """,
    "__dlpack_c_exchange_api__": """
        import sys
        # It looks for torch, and torch for devices.
        sys.modules["torch"] = None
        import tvm_ffi
        source = CudaArray(gpu, p)
        freed, address = source.freed, source.address
        tensor = written(source)
        del source
        with hurray.cuda.Stream(c):
            # Its consumers work on the stream that the table reports: the current one.
            taken = tvm_ffi.from_dlpack(tensor)
        assert taken.data_ptr() == address and str(taken.device) == "cuda:0"
        reader = Consumer(gpu, c)
        reader.read(address)
        del tensor, taken
        let_go(freed)
        reader.check()
    """,
    "to() copies on a stream": """
        source = CudaArray(gpu, p)
        freed = source.freed
        tensor = written(source)
        del source
        there = tensor.to("cuda:0", stream=c, copy=True)
        assert modes(there) == ["consumer_stream"] and calls() == (2, 1)
        del tensor
        reader = Consumer(gpu, c)
        reader.read(there.extents()[0][0])
        let_go(freed)
        del there
        reader.check()
    """,
    "to() page-locked memory": """
        source = CudaArray(gpu, p, byte=7)
        freed = source.freed
        tensor = written(source)
        del source
        pinned = tensor.to("cuda:0/host_pinned", stream=c)
        assert modes(pinned) == ["consumer_stream"] and gpu.host_waits() == waits
        refused(hurray.UnsupportedError, "synchronize", lambda: np.asarray(pinned))
        assert (np.asarray(pinned.synchronize()) == 7).all()
        del tensor
        until(lambda: freed)
    """,
    "from_dlpack() of memory that begins anywhere copies on the device": """
        source = CudaArray(gpu, p, byte=3)
        freed = source.freed
        producer = Producer(source, p)
        producer.tensor = hurray.Tensor(written(source), hurray.uint8, [LEN - 1], byte_offset=1)
        del source
        with hurray.copies() as log:
            tensor = hurray.from_dlpack(producer, stream=c)
        found = [(copy.bytes, copy.reason, copy.to) for copy in log]
        assert found == [(LEN - 1, "alignment", hurray.device.cuda)]
        del producer
        reader = Consumer(gpu, c, LEN - 1)
        reader.read(tensor.extents()[0][0])
        let_go(freed)
        del tensor
        reader.check(3)
    """,
    "empty(device=) is used on its stream": """
        tensor = hurray.empty((LEN,), dtype=hurray.uint8, device="cuda:0", stream=p, alignment=4096)
        address = tensor.extents()[0][0]
        assert tensor.buffer_handles[0].alignment == 4096 and modes(tensor) == ["consumer_stream"]
        gpu.fill(address, 6, p)
        reader = Consumer(gpu, c)
        ordered = tensor.order(c)
        reader.read(address)
        del tensor, ordered
        again = hurray.empty((LEN,), dtype=hurray.uint8, device="cuda:0", stream=p)
        gpu.fill(again.extents()[0][0], 8, p)
        assert gpu.host_waits() == waits
        reader.check(6)
    """,
}

# The host waits for the copy before it is let go; what an import copied from comes back twice, to
# the import and to the producer.
NEEDLESS = {
    "to() page-locked memory": {("cuEventRecord", 2)},
    "from_dlpack() of memory that begins anywhere copies on the device": {
        ("cuEventRecord", 2),
        ("cuEventRecord", 3),
    },
}

# What ends in pageable host memory waits on the host for it, and so needs little of what orders it.
TO_THE_HOST = {
    "to() a device and back": """
        values = np.random.default_rng(0).integers(0, 255, LEN, np.uint8)
        with hurray.copies() as log:
            tensor = hurray.from_numpy(values).to("cuda:0", stream=p)
            there = [(copy.from_, copy.to, copy.reason, copy.call) for copy in log][-1]
        assert there == (hurray.device.cpu, hurray.device.cuda, "device", "to")
        assert modes(tensor) == ["consumer_stream"]
        assert tensor.to("cuda:0").extents() == tensor.extents()
        # Host memory that the device does not reach is read by now.
        values[:] = 0
        other = tensor.to("cuda:0", stream=c, copy=True)
        back = other.to("cpu")
        assert modes(back) == ["producer_synced"]
        expected = np.random.default_rng(0).integers(0, 255, LEN, np.uint8)
        assert (np.asarray(back) == expected).all()
    """,
    "to() carries all buffers": """
        tensor = quantized(arrays(2))
        with hurray.copies() as log:
            there = tensor.to("cuda:0", stream=c, copy=True)
        assert [copy.bytes for copy in log] == [LEN, LEN]
        assert there.quantization == tensor.quantization
        # One event for both buffers' one stream, and one when the sources are given back.
        assert calls() == (2, 1)
        del tensor
        back = there.to("cpu")
        assert all((np.asarray(back.buffer(i)) == 1).all() for i in range(2))
    """,
    "__dlpack__(dl_device=(1, 0)) copies": """
        tensor = written(CudaArray(gpu, p, byte=4))
        with hurray.copies() as log:
            array = np.from_dlpack(tensor, device="cpu")
        assert [(copy.bytes, copy.reason) for copy in log] == [(LEN, "device")]
        refused(BufferError, "copy=False", lambda: tensor.__dlpack__(dl_device=(1, 0), copy=False))
        assert (array == 4).all()
    """,
}


def whole(body: str) -> str:
    return simulated.whole(body, PRODUCER)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_call_is_needed(name):
    _, unnoticed = simulated.sweep(whole(PROGRAMS[name]))
    assert unnoticed == NEEDLESS.get(name, set())


def test_a_tensor_of_ours_comes_where_it_is_wanted():
    program = whole("""
        host = hurray.from_numpy(np.full(LEN, 5, np.uint8))
        for copy in (None, True):
            with hurray.copies() as log:
                there = hurray.from_dlpack(host, device="cuda:0", copy=copy)
            assert [str(copy.to) for copy in log] == ["cuda:0"]
            assert there.device == hurray.Device("cuda", 0)
            with hurray.copies() as log:
                back = hurray.from_dlpack(there, device="cpu", copy=copy)
            assert [str(copy.from_) for copy in log] == ["cuda:0"]
            assert (np.asarray(back) == 5).all()
        forbidden = lambda: hurray.from_dlpack(host, device="cuda:0", copy=False)
        refused(hurray.CopyRequiredError, "copy=False", forbidden)
    """)
    simulated.run(program).assert_clean()


def test_memory_that_begins_anywhere_is_not_shared():
    program = whole("""
        source = CudaArray(gpu, p)
        producer = Producer(source, p)
        producer.tensor = hurray.Tensor(written(source), hurray.uint8, [LEN - 1], byte_offset=1)
        shared = lambda: hurray.from_dlpack(producer, copy=False)
        refused(hurray.CopyRequiredError, "aligned to 1", shared)
    """)
    simulated.run(program).assert_clean()


@pytest.mark.parametrize("name", TO_THE_HOST)
def test_bytes_reach_the_host_whole(name):
    program = whole(TO_THE_HOST[name])
    for outcome in simulated.run_all(program, [{"seed": seed} for seed in range(8)]):
        outcome.assert_clean()


def test_d1_a_producer_is_asked_with_its_device_current():
    """pytorch/pytorch#169567: torch exports what is on its current device only."""
    program = whole("""
        other = Gpu(1)
        source = CudaArray(other, other.stream())
        with hurray.cuda.Stream(source.stream, device=1):
            tensor = hurray.Tensor(source, hurray.uint8, [LEN])
        producer = Producer(CudaArray(gpu, p), p, device=(2, 1))
        producer.tensor = tensor
        gpu.make_current()
        taken = hurray.from_dlpack(producer)
        assert producer.current == [1] and int(call(driver.cuCtxGetDevice())) == 0
        assert taken.device == hurray.Device("cuda", 1)
        assert taken.__dlpack_device__() == (2, 1)
        del producer, tensor, taken, source
        other.close()
        gpu.make_current()
    """)
    simulated.run(program, devices=2).assert_clean()
