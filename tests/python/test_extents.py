"""`extents()`: where a tensor's bytes are, as numbers."""

import numpy as np
import pytest
import simulated
from placed import aligned

import hurray


def test_of_host_memory_they_are_where_numpy_sees_the_bytes():
    arrays = [aligned(256).view(np.int8), aligned(16)]
    tensor = hurray.Tensor(
        arrays[0],
        hurray.int8,
        (4, 64),
        aux_buffers=[arrays[1]],
        quantization=hurray.PerChannelAffine.symmetric(0, 1),
    )
    expected = tuple((array.ctypes.data, array.nbytes, tensor.device) for array in arrays)
    assert tensor.extents() == expected


def test_on_a_device_they_are_given_where_a_stream_is_known():
    pytest.importorskip("cuda.bindings.driver")
    simulated.run(
        """
        from cuda_programs import Gpu, LEN
        import hurray

        class Memory:
            def __init__(self, address):
                interface = dict(shape=(LEN,), typestr="|u1", data=(address, False), version=3)
                self.__cuda_array_interface__ = interface | dict(stream=None)

        gpu = Gpu()
        a, b = gpu.stream(), gpu.stream()
        address = gpu.alloc()
        tensor = hurray.Tensor(Memory(address), hurray.uint8, (LEN,))
        extents = ((address, LEN, hurray.Device("cuda", 0)),)
        assert tensor.extents() == extents
        gpu.fill(address, 1, a)
        written = tensor.record(a)
        try:
            written.extents()
        except hurray.UnsupportedError as error:
            assert "`event`" in str(error) and "order(stream).extents()" in str(error)
        else:
            raise AssertionError("nothing could be ordered after the event")
        ordered = written.order(b)
        assert ordered.extents() == extents
        gpu.add(address, address, b)
        assert (gpu.read(address, b) == 2).all()
        del tensor, written, ordered
        gpu.free(address)
        gpu.close()
        """
    ).assert_clean()
