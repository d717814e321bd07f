"""CuPy, torch and JAX, played by a few lines that do to the driver and to DLPack what they do."""

from textwrap import dedent

import pytest
import simulated
from simulated import PRELUDE

pytest.importorskip("cuda.bindings.driver")

LIBRARIES = """
import sys, types
from types import SimpleNamespace
from dlpack_producer import Fields

# The current stream of both; 0 is what they call the legacy default stream.
current = [p]

class Taken:
    # An array over another library's memory: it keeps the capsule until it goes.
    def __init__(self, array):
        device = array.__dlpack_device__()
        assert device[0] == 2
        stream = current[0] or 1
        self.capsule = array.__dlpack__(stream=stream, max_version=(1, 0))
        self.address = Fields(self.capsule).data

cupy = types.ModuleType("cupy")
class ndarray(CudaArray):
    dtype, device = np.dtype(np.uint8), SimpleNamespace(id=0)
cupy.ndarray, cupy.from_dlpack = ndarray, Taken
cupy.cuda = SimpleNamespace(
    get_current_stream=lambda device=-1: SimpleNamespace(
        ptr=current[0], device_id=device, synchronize=None
    )
)

torch = types.ModuleType("torch")
class Tensor:
    is_cuda, device = True, SimpleNamespace(type="cuda", index=0)
    def __init__(self, source):
        self.inner, self.streams = written(source), []
    def is_neg(self):
        return False
    def __dlpack_device__(self):
        return (2, 0)
    def __dlpack__(self, *, stream=None, **arguments):
        self.streams.append(stream)
        return self.inner.__dlpack__(stream=stream, **arguments)
torch.Tensor, torch.from_dlpack = Tensor, Taken
torch.cuda = SimpleNamespace(
    is_initialized=lambda: True,
    current_stream=lambda device=None: SimpleNamespace(
        cuda_stream=current[0], device_index=0, synchronize=None
    ),
)
"""

PROGRAMS = {
    "from_cupy": """
        sys.modules["cupy"] = cupy
        source = ndarray(gpu, p)
        freed, address = source.freed, source.address
        tensor = hurray.from_cupy(source)
        del source
        # CuPy is not asked to wait.
        assert modes(tensor) == ["consumer_stream"] and calls() == (0, 0)
        reader = Consumer(gpu, c)
        ordered = tensor.order(c)
        assert calls() == (1, 1)
        reader.read(address)
        del tensor, ordered
        let_go(freed)
        reader.check()
    """,
    "from_torch": """
        sys.modules["torch"] = torch
        source = CudaArray(gpu, p)
        freed, address = source.freed, source.address
        theirs = torch.Tensor(source)
        tensor = hurray.from_torch(theirs)
        # torch is told its own stream, and waits for nothing.
        assert theirs.streams == [p]
        assert modes(tensor) == ["consumer_stream"] and calls() == (0, 0)
        del source, theirs
        reader = Consumer(gpu, c)
        ordered = tensor.order(c)
        reader.read(address)
        del tensor, ordered
        let_go(freed)
        reader.check()
    """,
    "to_cupy": """
        sys.modules["cupy"] = cupy
        source = CudaArray(gpu, p)
        freed, address = source.freed, source.address
        tensor = written(source)
        del source
        current[0] = c
        theirs = tensor.to_cupy()
        assert theirs.address == address and calls() == (1, 1)
        reader = Consumer(gpu, c)
        reader.read(address)
        del tensor, theirs
        let_go(freed)
        reader.check()
    """,
    "to_torch": """
        sys.modules["torch"] = torch
        source = CudaArray(gpu, p)
        freed, address = source.freed, source.address
        tensor = written(source).record(p)
        del source
        current[0] = 0
        before = calls()
        theirs = [tensor.to_torch()]
        assert calls() == (before[0], before[1] + 1)
        reader = Consumer(gpu, 1)
        reader.read(address)
        del tensor
        # torch's autograd threads let go of what they held.
        thread = threading.Thread(target=theirs.clear)
        thread.start(), thread.join()
        let_go(freed)
        reader.check()
    """,
    "an array of CuPy's as a tensor's buffer": """
        sys.modules["cupy"] = cupy
        source = ndarray(gpu, p)
        freed, address = source.freed, source.address
        current[0] = c
        # CuPy's current stream is made to wait for the one that the array names.
        tensor = hurray.Tensor(source, hurray.uint8, [LEN])
        del source
        assert modes(tensor) == ["consumer_stream"] and calls() == (1, 1)
        view = hurray.from_hurray(tensor, stream=c)
        assert calls() == (1, 1)
        reader = Consumer(gpu, c)
        reader.read(address)
        del tensor, view
        let_go(freed)
        reader.check()
    """,
}
# The producer frees in the order of `p`, on which torch gives the tensor back.
NEEDLESS = {"from_torch": {("cuEventRecord", 3)}}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_call_is_needed(name):
    program = PRELUDE + LIBRARIES + dedent(PROGRAMS[name]) + "gpu.close()\n"
    _, unnoticed = simulated.sweep(program)
    assert unnoticed == NEEDLESS.get(name, set())


def test_a_consumer_that_never_lets_go():
    """It ends with the process, whose memory the driver takes back: no defect, no message."""
    program = """
        sys.modules["cupy"] = cupy
        tensor = hurray.from_cupy(ndarray(gpu, p))
        current[0] = c
        theirs = tensor.to_cupy()
        Consumer(gpu, c).read(theirs.address)
        sys.theirs = theirs
    """
    outcome = simulated.run(PRELUDE + LIBRARIES + dedent(program))
    assert (outcome.status, outcome.stderr, outcome.defects) == (0, "", [])


def test_what_the_libraries_do_not_take():
    program = """
        sys.modules["cupy"] = cupy
        refused(TypeError, "cupy.ndarray", lambda: hurray.from_cupy(CudaArray(gpu, p)))
        host = hurray.Tensor(bytes(64), hurray.uint8, [64])
        refused(hurray.UnsupportedError, '.to("cuda")', host.to_cupy)
        tensor = quantized(arrays(2))
        for way in (tensor.to_cupy, tensor.to_jax):
            refused(hurray.UnsupportedError, "codes", way)
        assert calls() == (0, 0)
        bools = ndarray(gpu, p, typestr="|b1")
        refused(hurray.UnsupportedError, "packs", lambda: hurray.from_cupy(bools))
        del bools, tensor, way
        gpu.close()
    """
    simulated.run(PRELUDE + LIBRARIES + dedent(program)).assert_clean()


def test_a_library_that_is_missing_is_named():
    program = """
        import sys
        import hurray
        from cuda_programs import refused
        sys.modules["cupy"] = sys.modules["jax"] = sys.modules["jax.dlpack"] = None
        tensor = hurray.Tensor(bytes(64), hurray.uint8, [64])
        for name, ways in [
            ("cupy", (tensor.to_cupy, lambda: hurray.from_cupy(None))),
            ("jax", (tensor.to_jax, lambda: hurray.from_jax(None))),
        ]:
            for way in ways:
                refused(ImportError, f"pip install {name}", way)
    """
    simulated.run(dedent(program)).assert_clean()


def test_jax_on_the_host():
    import numpy as np
    from placed import aligned

    jax = pytest.importorskip("jax")
    import hurray

    source = aligned(64)
    source[:] = range(64)
    tensor = hurray.from_numpy(source)
    array = tensor.to_jax()
    assert isinstance(array, jax.Array) and np.array_equal(array, source)
    assert array.unsafe_buffer_pointer() == source.ctypes.data
    again = hurray.from_jax(array)
    assert np.shares_memory(np.asarray(again), source)
    assert not np.asarray(again).flags.writeable
    with pytest.raises(TypeError, match=r"jax\.Array"):
        hurray.from_jax(source)
