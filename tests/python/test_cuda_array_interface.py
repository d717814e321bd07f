"""The CUDA array interface, both ways, on the stand-in driver."""

from textwrap import dedent

import pytest
import simulated

import hurray

pytest.importorskip("cuda.bindings.driver")

PRELUDE = """
import numpy as np
import hurray
from cuda_programs import *

gpu = Gpu()
p, c = gpu.stream(), gpu.stream()

def given(source, dtype=hurray.uint8, shape=(LEN,)):
    with hurray.cuda.Stream(c):
        return hurray.Tensor(source, dtype, list(shape))

def calls():
    return gpu.calls("cuEventRecord"), gpu.calls("cuStreamWaitEvent")
"""


def clean(program: str, **settings: object) -> simulated.Outcome:
    return simulated.run(PRELUDE + dedent(program), **settings).assert_clean()


def test_what_the_stream_entry_means():
    clean(
        """
        sources = [CudaArray(gpu, p) for _ in range(7)]
        for source, entries, mode, new in [
            (sources[0], {"stream": None}, "producer_synced", (0, 0)),
            (sources[1], {"stream": p}, "consumer_stream", (1, 1)),
            (sources[2], {"stream": c}, "consumer_stream", (0, 0)),
            (sources[3], {"stream": 1}, "consumer_stream", (1, 1)),
            (sources[4], {"stream": 2}, "consumer_stream", (1, 1)),
            # Before version 3 there was no such entry.
            (sources[5], {"version": 2}, "consumer_stream", (1, 1)),
            (sources[6], {"version": 3}, "producer_synced", (0, 0)),
        ]:
            interface = source.__cuda_array_interface__ | entries
            if "version" in entries:
                del interface["stream"]
            source.__cuda_array_interface__ = interface
            before = calls()
            tensor = given(source)
            found = tuple(now - then for now, then in zip(calls(), before))
            assert (modes(tensor), found) == ([mode], new), entries
            assert tensor.device == hurray.device.cuda
        for stream in (0, -1, -2, True, False):
            source.__cuda_array_interface__ = interface | {"stream": stream}
            refused(ValueError, "names a stream that is none", lambda: given(source))
        refused(ValueError, "names a stream", lambda: given(CudaArray(gpu, p, stream="1")))
        del sources, source, tensor
        gpu.close()
        """
    )


def test_shapes_strides_and_types():
    clean(
        """
        def at(offset=0, **entries):
            source = CudaArray(gpu, p, stream=None, **entries)
            data = (source.address + offset, False)
            source.__cuda_array_interface__ |= {"data": data} | entries
            return source

        call(driver.cuStreamSynchronize(p))
        def interface(source, dtype, shape):
            return given(source, dtype, shape).__cuda_array_interface__

        for name in ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]:
            dtype = np.dtype(name)
            ours = getattr(hurray.dtype, dtype.name)
            source = at(typestr=dtype.str, shape=(3, 5))
            found = interface(source, ours, (3, 5))
            assert found["data"] == (source.address, False)
            assert found["typestr"] == dtype.str and found["stream"] is None
            assert found["shape"] == (3, 5)
            assert found["strides"] == (5 * dtype.itemsize, dtype.itemsize)
        # Up to 63 bytes after a boundary, and read-only.
        source = at(offset=20, shape=(3,), typestr="<f4")
        source.__cuda_array_interface__["data"] = (source.address + 20, True)
        tensor = given(source, hurray.float32, (3,))
        assert tensor.descriptor.byte_offset == 20 and tensor.buffer_handles[0].byte_size == 32
        assert tensor.__cuda_array_interface__["data"] == (source.address + 20, True)
        # Column-major memory, and strides backwards.
        source = at(shape=(4, 4), strides=(1, 4))
        assert given(source, hurray.uint8, (16,)).shape == (16,)
        source = at(offset=15, shape=(16,), strides=(-1,))
        refused(hurray.BufferError, "not contiguous", lambda: given(source, hurray.uint8, (16,)))
        # Nothing at all may be nowhere.
        empty = at(shape=(0,))
        empty.__cuda_array_interface__["data"] = (0, False)
        assert given(empty, hurray.uint8, (0,)).size == 0
        del source, tensor, empty
        gpu.close()
        """
    )


def test_memory_that_is_not_what_it_is_said_to_be():
    clean(
        """
        from placed import aligned
        def lying(**entries):
            source = CudaArray(gpu, p)
            source.__cuda_array_interface__ |= {"stream": None} | entries
            return source

        host = aligned(LEN)
        address = CudaArray(gpu, p).address
        for entries, error, text in [
            ({"data": (host.ctypes.data, False)}, hurray.BufferError, "does not know it"),
            ({"data": (64, False)}, hurray.BufferError, "does not know it"),
            ({"shape": (2 * LEN,)}, hurray.BufferError, "only"),
            ({"shape": (2, LEN), "strides": (LEN, 1)}, hurray.BufferError, "only"),
            ({"shape": (2**62, 2**62)}, Exception, ""),
            ({"shape": (-1,)}, hurray.BufferError, "has no shape"),
            ({"shape": None}, hurray.BufferError, "has no shape"),
            ({"strides": (1, 1)}, Exception, ""),
            ({"strides": "x"}, hurray.BufferError, "strides"),
            ({"data": None}, hurray.BufferError, "has no data"),
            ({"typestr": None}, hurray.BufferError, "has no typestr"),
            ({"typestr": "|b1"}, hurray.UnsupportedError, "packs them"),
            ({"typestr": ">i4"}, hurray.UnsupportedError, "no element type"),
            ({"typestr": "|V3"}, hurray.UnsupportedError, "no element type"),
            ({"mask": object()}, hurray.UnsupportedError, "mask"),
            ({"typestr": "<i4", "shape": (4, 4), "strides": (6, 4)}, hurray.UnsupportedError, "6"),
        ]:
            refused(error, text, lambda: given(lying(**entries)))

        class Odd:
            __cuda_array_interface__ = 5
        refused(hurray.BufferError, "must be a dict", lambda: given(Odd()))
        class Failing:
            @property
            def __cuda_array_interface__(self):
                raise KeyError("mine")
        refused(KeyError, "mine", lambda: given(Failing()))
        gpu.close()
        """
    )


def test_tensors_without_such_a_form_do_not_have_the_attribute():
    clean(
        """
        from placed import aligned
        def has(tensor):
            return hasattr(tensor, "__cuda_array_interface__")

        source = CudaArray(gpu, p, stream=None)
        gpu.read(source.address, p)
        assert has(given(source))
        assert not has(hurray.Tensor(aligned(64), hurray.uint8, [64]))
        assert not has(hurray.Tensor(source, hurray.dtype.bfloat16, [LEN // 2]))
        assert not has(hurray.Tensor(source, hurray.bool, [LEN * 8]))
        quantized = hurray.Tensor(
            source, hurray.int8, [LEN], quantization=hurray.PerTensorAffine(0.5, 0)
        )
        assert not has(quantized) and has(quantized.codes)
        morton = hurray.MortonLayout([3, 3])
        assert not has(hurray.Tensor(source, hurray.uint8, [8, 8], layout=morton))
        del source, quantized
        gpu.close()
        """
    )


def test_a_host_array_is_not_asked_for_it():
    # NumPy arrays come first: no driver is looked for.
    assert not hasattr(hurray.Tensor(bytes(64), hurray.uint8, [64]), "__cuda_array_interface__")


def test_pinned_and_managed_memory():
    """Memory that both reach: its class is the driver's word."""
    clean(
        """
        import ctypes

        class Memory:
            def __init__(self, address, stream):
                self.__cuda_array_interface__ = {
                    "version": 3, "shape": (64,), "typestr": "|u1", "data": (address, False),
                    "stream": stream,
                }
        pinned = int(call(driver.cuMemHostAlloc(4096, 0)))
        managed = int(call(driver.cuMemAllocManaged(4096, 1)))
        ctypes.memset(pinned, 7, 64), ctypes.memset(managed, 8, 64)
        for address, class_, byte in [(pinned, "host_pinned", 7), (managed, "unified", 8)]:
            tensor = hurray.Tensor(Memory(address, None), hurray.uint8, [64])
            assert tensor.device == hurray.Device("cuda", 0, class_)
            assert (np.asarray(tensor) == byte).all()
            busy = hurray.Tensor(Memory(address, p), hurray.uint8, [64])
            refused(hurray.UnsupportedError, "synchronize", lambda: np.asarray(busy))
            assert (np.asarray(busy.synchronize()) == byte).all()
            del tensor, busy
        hurray.cuda.empty_cache()
        call(driver.cuMemFreeHost(pinned)), call(driver.cuMemFree(managed))
        gpu.close()
        """
    )
