"""CuPy and JAX; the first played by a few lines that do to the driver what it does."""

from textwrap import dedent

import pytest
import simulated
from test_cuda_handoff import PRELUDE

pytest.importorskip("cuda.bindings.driver")

LIBRARIES = """
import sys, types
from types import SimpleNamespace

# CuPy's current stream; 0 is what it calls the legacy default stream.
current = [p]

cupy = types.ModuleType("cupy")
class ndarray(CudaArray):
    dtype, device = np.dtype(np.uint8), SimpleNamespace(id=0)
cupy.ndarray = ndarray
cupy.cuda = SimpleNamespace(
    get_current_stream=lambda device=-1: SimpleNamespace(
        ptr=current[0], device_id=device, synchronize=None
    )
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


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_call_is_needed(name):
    program = PRELUDE + LIBRARIES + dedent(PROGRAMS[name]) + "gpu.close()\n"
    _, unnoticed = simulated.sweep(program)
    assert unnoticed == set()


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
