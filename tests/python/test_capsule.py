"""The capsule that `__hurray__` returns, and the way back through `from_hurray`."""

import ctypes
import gc
import inspect
import weakref

import foreign_producer as foreign
import numpy as np
import pytest
from foreign_producer import Api, Buffer, Context, Info, Offer, Producer
from placed import aligned

import hurray


def address(tensor) -> int:
    return np.asarray(tensor).__array_interface__["data"][0]


def quantized() -> hurray.Tensor:
    return hurray.Tensor(
        aligned(64),
        hurray.dtype.int4,
        [4, 32],
        aux_buffers=[aligned(16), aligned(16)],
        quantization=hurray.PerBlockAffine.asymmetric(1, 32, 1, 2, hurray.float32),
        statistics=hurray.Statistics(nnz=3),
        shard=hurray.Shard([8, 32], [4, 0]),
    )


def test_the_capsule_as_c_sees_it():
    tensor = quantized()
    capsule = tensor.__hurray__()
    assert ctypes.string_at(foreign.get_name(capsule)) == b"hurray_buffer"
    context = Context.from_address(foreign.get_context(capsule))
    assert context.abi_version == 3
    assert context.struct_size == ctypes.sizeof(Context)
    encoded = ctypes.string_at(context.descriptor, context.descriptor_len)
    assert encoded == tensor.descriptor.encode()

    list_ = foreign.get_pointer(capsule, b"hurray_buffer")
    assert ctypes.c_void_p.from_address(list_).value == context.api, "the table comes first"
    api = Api.from_address(context.api)
    assert (api.abi_version, api.struct_size) == (3, ctypes.sizeof(Api))
    length = ctypes.c_uint64()
    assert api.list_len(list_, ctypes.byref(length)) == 0
    assert length.value == 3
    for i in range(3):
        handle = ctypes.c_void_p()
        assert api.list_get(list_, i, ctypes.byref(handle)) == 0
        assert ctypes.c_void_p.from_address(handle.value).value == context.api
        info = Info(ctypes.sizeof(Info))
        assert api.buffer_info(handle, ctypes.addressof(info)) == 0
        assert info.data == address(tensor.buffer(i))
        assert info.byte_size == tensor.buffer_handles[i].byte_size
        assert info.alignment == tensor.buffer_handles[i].alignment
        assert (info.device_tag, info.memory_class, info.sync_mode, info.flags) == (0, 0, 0, 0)
    assert api.list_get(list_, 3, ctypes.byref(ctypes.c_void_p())) == foreign.OUT_OF_BOUNDS


def test_the_signature():
    parameters = inspect.signature(hurray.Tensor.__hurray__).parameters
    assert parameters["stream"].default is None
    assert hasattr(quantized(), "__hurray__")


def test_everything_crosses_and_no_byte_moves():
    tensor = quantized()
    with hurray.copies() as log:
        received = hurray.from_hurray(tensor)
    assert log == []
    assert received is not tensor
    assert received.descriptor == tensor.descriptor
    assert received.descriptor.encode() == tensor.descriptor.encode()
    assert received.quantization == tensor.quantization
    assert received.statistics == tensor.statistics
    assert received.shard == tensor.shard
    assert received.buffer_handles == tensor.buffer_handles
    for i in range(3):
        assert address(received.buffer(i)) == address(tensor.buffer(i))


def test_any_object_may_offer():
    tensor = quantized()

    class Producer:
        def __hurray__(self, stream=None):
            return tensor.__hurray__(stream)

    assert hurray.from_hurray(Producer()).descriptor == tensor.descriptor


def test_an_attribute_error_inside_the_method_is_not_taken_for_its_absence():
    class Broken:
        def __hurray__(self, stream=None):
            return self.missing

    with pytest.raises(AttributeError, match="missing"):
        hurray.from_hurray(Broken())


def test_each_call_gives_a_capsule_of_its_own():
    tensor = quantized()
    first, second = tensor.__hurray__(), tensor.__hurray__()
    assert hurray.from_hurray(Offer(first)).shape == hurray.from_hurray(Offer(second)).shape


def test_the_consumer_keeps_the_memory_alive():
    owners = [aligned(64), aligned(16), aligned(16)]
    references = [weakref.ref(owner) for owner in owners]
    codes, *parameters = owners
    tensor = hurray.Tensor(
        codes,
        hurray.dtype.int4,
        [4, 32],
        aux_buffers=parameters,
        quantization=hurray.PerBlockAffine.asymmetric(1, 32, 1, 2, hurray.float32),
    )
    capsule = tensor.__hurray__()
    del tensor, owners, codes, parameters
    assert all(reference() is not None for reference in references)
    received = hurray.from_hurray(Offer(capsule))
    del capsule
    assert all(reference() is not None for reference in references)
    scales = received.buffer(1)
    del received
    gc.collect()
    alive = [reference() is not None for reference in references]
    assert alive == [False, True, False], "a view keeps its own buffer's owner only"
    assert np.asarray(scales).nbytes == 16
    del scales
    gc.collect()
    assert references[1]() is None


def test_an_unconsumed_capsule_lets_go():
    owner = aligned(64)
    reference = weakref.ref(owner)
    capsule = hurray.from_numpy(owner).__hurray__()
    del owner
    gc.collect()
    assert reference() is not None
    del capsule
    gc.collect()
    assert reference() is None


def test_a_consumed_capsule_holds_nothing():
    owner = aligned(64)
    reference = weakref.ref(owner)
    capsule = hurray.from_numpy(owner).__hurray__()
    received = hurray.from_hurray(Offer(capsule))
    del owner, received
    gc.collect()
    assert reference() is None
    del capsule


def test_handles_pin_nothing():
    owners = [aligned(64) for _ in range(10)]
    many = [hurray.from_numpy(owner) for owner in owners]
    references = [weakref.ref(thing) for thing in owners + many]
    handles = [handle for tensor in many for handle in tensor.buffer_handles]
    del owners, many
    gc.collect()
    assert all(reference() is None for reference in references)
    assert [handle.byte_size for handle in handles] == [64] * 10
    assert all(handle.device is hurray.device.cpu for handle in handles)


def test_ten_thousand_exchanges_leak_nothing():
    # pytorch/pytorch#9261, tensorflow/tensorflow#40061
    owner = aligned(64)
    tensor = hurray.from_numpy(owner)
    for _ in range(10_000):
        tensor = hurray.from_hurray(tensor)
        tensor.__hurray__()
    reference = weakref.ref(owner)
    del owner, tensor
    gc.collect()
    assert reference() is None


def test_the_most_buffers():
    parts = [aligned(64, boundary=64) for _ in range(255)]
    tensor = hurray.Tensor(
        parts[0],
        hurray.uint8,
        [64],
        aux_buffers=parts[1:],
        layout=hurray.PrivateExtensionLayout(0xF0, 7),
    )
    received = hurray.from_hurray(tensor)
    assert received.buffer_count == 255
    assert [address(received.buffer(i)) for i in range(255)] == [p.ctypes.data for p in parts]
    with pytest.raises((hurray.BufferError, hurray.InvalidDescriptorError)):
        hurray.Tensor(
            parts[0],
            hurray.uint8,
            [64],
            aux_buffers=parts,
            layout=hurray.PrivateExtensionLayout(0xF0, 7),
        )


def test_an_exception_on_its_way_survives_a_capsule_that_dies():
    class Raises:
        def __init__(self):
            self.capsule = hurray.from_numpy(aligned(64)).__hurray__()

        def __hurray__(self, stream=None):
            capsule = self.capsule
            del self.capsule
            raise ZeroDivisionError(str(capsule)[:8])

    with pytest.raises(ZeroDivisionError):
        hurray.from_hurray(Raises())


@pytest.mark.parametrize("hold", [lambda t: t, lambda t: t.__hurray__()])
def test_an_exception_on_its_way_survives_what_another_producer_takes_back(hold):
    """An argument that a failing call lets go of dies while the exception is on its way."""

    def foreign():
        tensor = hurray.from_numpy(aligned(64))
        buffers = [Buffer.of(np.asarray(tensor))]
        producer = Producer(tensor.descriptor.encode(), buffers, keep=tensor)
        return producer, hold(hurray.from_hurray(producer.offer()))

    producer, last = foreign()
    lent = [last]
    del last
    with pytest.raises(TypeError, match=r"has no len\(\)"):
        len(lent.pop())
    assert producer.calls.destroyed == 1
