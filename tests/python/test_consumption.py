"""What a consumer checks before it takes a capsule, in the order of docs/c-abi.md.

Each test plants a capsule. One that is refused is as it was: its name is the producer's own string,
and its list is still its own to destroy.
"""

import ctypes
import gc
import threading

import foreign_producer as foreign
import numpy as np
import pytest
from foreign_producer import Buffer, Offer, Producer, with_row
from placed import aligned

import hurray


@pytest.fixture
def array() -> np.ndarray:
    array = aligned(64)
    array[:] = np.arange(64)
    return array


@pytest.fixture
def descriptor(array: np.ndarray) -> bytes:
    return hurray.Tensor(array, hurray.uint8, [64]).descriptor.encode()


def refuse(
    producer: Producer, error: type[Exception], *words: str, context: int | None = None
) -> None:
    """The capsule is refused with these words, stays as it was and destroys its list once."""
    capsule = producer.capsule(context=context)
    name = foreign.get_name(capsule)
    with pytest.raises(error) as raised:
        hurray.from_hurray(Offer(capsule))
    assert raised.type is error
    for word in words:
        assert word in str(raised.value)
    assert foreign.get_name(capsule) == name, "the producer's own name pointer is put back"
    assert ctypes.string_at(name) == b"hurray_buffer"
    assert producer.calls.destroyed == 0
    assert producer.calls.released == []
    del capsule, raised
    gc.collect()
    assert producer.calls.destroyed == 1


def test_an_object_without_the_method():
    with pytest.raises(TypeError, match="int has not"):
        hurray.from_hurray(3)


def test_a_method_that_returns_no_capsule():
    with pytest.raises(TypeError, match="PyCapsule, not list"):
        hurray.from_hurray(Offer([]))


def test_an_error_of_the_method_is_passed_on():
    class Broken:
        def __hurray__(self, stream=None):
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        hurray.from_hurray(Broken())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (b"dltensor", "'dltensor'"),
        (b"hurray_buffer2", "'hurray_buffer2'"),
        (b"", "''"),
        (None, "no name"),
        (b"used_hurray_buffer", "consumed before"),
        (b"hurray_tensor", "pyhurray 0.1.0"),
    ],
)
def test_another_name(name, words):
    # The pointer and the context lie on no page: nothing but the name is read.
    with pytest.raises(hurray.BufferError, match=words):
        hurray.from_hurray(Offer(foreign.capsule_named(name)))


def test_a_null_context(array, descriptor):
    producer = Producer(descriptor, [Buffer.of(array)])
    refuse(producer, hurray.BufferError, "context is NULL", context=0)


@pytest.mark.parametrize("version", [0, 2, 4, 2**32 - 1])
def test_another_version_is_refused_before_anything_is_followed(array, descriptor, version):
    producer = Producer(descriptor, [Buffer.of(array)], abi_version=version, api=foreign.UNMAPPED)
    producer.context.descriptor = foreign.UNMAPPED
    refuse(producer, hurray.UnsupportedError, f"version {version}", "3")


def test_another_version_with_the_list_on_no_page(descriptor):
    version = ctypes.create_string_buffer((4).to_bytes(4, "little"), 4)
    name = ctypes.create_string_buffer(b"hurray_buffer")
    capsule = foreign.new_capsule(foreign.UNMAPPED, ctypes.addressof(name), None)
    foreign.set_context(capsule, ctypes.addressof(version))
    with pytest.raises(hurray.UnsupportedError, match="version 4"):
        hurray.from_hurray(Offer(capsule))
    assert foreign.get_name(capsule) == ctypes.addressof(name)


@pytest.mark.parametrize("size", [0, 8, 31])
def test_a_short_context(array, descriptor, size):
    producer = Producer(descriptor, [Buffer.of(array)], context_size=size)
    refuse(producer, hurray.UnsupportedError, f"{size} bytes", "32")


def test_a_longer_context_is_read(array, descriptor):
    producer = Producer(descriptor, [Buffer.of(array)], context_size=4096)
    assert hurray.from_hurray(producer.offer()).shape == (64,)


def test_a_short_table(array, descriptor):
    table = ctypes.create_string_buffer((8).to_bytes(4, "little"), 8)
    producer = Producer(descriptor, [Buffer.of(array)], keep=table, api=ctypes.addressof(table))
    refuse(producer, hurray.UnsupportedError, "8 bytes")


def test_a_null_table(array, descriptor):
    producer = Producer(descriptor, [Buffer.of(array)], api=0)
    refuse(producer, hurray.UnsupportedError, "NULL")


def test_a_table_that_is_not_the_lists(array, descriptor):
    other = foreign.Api.from_buffer_copy(foreign.API)
    producer = Producer(descriptor, [Buffer.of(array)], keep=other, api=ctypes.addressof(other))
    refuse(producer, hurray.BufferError, "another function table")


def test_a_descriptor_that_does_not_decode(array, descriptor):
    broken = b"HRRX" + descriptor[4:]
    refuse(Producer(broken, [Buffer.of(array)]), hurray.InvalidDescriptorError, "magic")


def test_a_descriptor_that_ends_too_early(array, descriptor):
    refuse(Producer(descriptor[:-1], [Buffer.of(array)]), hurray.InvalidDescriptorError)


def test_bytes_after_the_descriptor(array, descriptor):
    longer = descriptor + bytes(3)
    refuse(Producer(longer, [Buffer.of(array)]), hurray.BufferError, str(len(longer)))


@pytest.mark.parametrize("extra_length", [-1, 1, 2**40])
def test_a_list_of_another_length(array, descriptor, extra_length):
    producer = Producer(descriptor, [Buffer.of(array)], extra_length=extra_length)
    refuse(producer, hurray.BufferError, str(1 + extra_length))


def quantized(array: np.ndarray) -> hurray.Tensor:
    return hurray.Tensor(
        array,
        hurray.int8,
        [4, 16],
        aux_buffers=[aligned(16)],
        quantization=hurray.PerChannelAffine.symmetric(0, 1),
    )


@pytest.mark.parametrize("index", [0, 2, 200])
def test_an_index_that_does_not_resolve(array, index):
    tensor = quantized(array)
    section = tensor.quantization.encode()
    unresolved = hurray.PerChannelAffine.symmetric(0, index).encode()
    descriptor = tensor.descriptor.encode().replace(section, unresolved)
    scales = aligned(16)
    producer = Producer(descriptor, [Buffer.of(array), Buffer.of(scales)])
    refuse(producer, hurray.BufferError, str(index))


@pytest.mark.parametrize(
    "row", [{"device_tag": foreign.CUDA}, {"memory_class": foreign.HOST_PINNED}]
)
def test_colocation(array, row):
    descriptor = with_row(quantized(array).descriptor.encode(), 1, rank=2, **row)
    scales = aligned(16)
    producer = Producer(descriptor, [Buffer.of(array), Buffer.of(scales, **row)])
    refuse(producer, hurray.BufferError, "buffer 1")


def test_colocation_on_two_devices_of_one_kind(array):
    """The number of the device is in no row: a handoff between two GPUs must not collapse to 0."""
    cuda = {"device_tag": foreign.CUDA, "memory_class": foreign.HOST_PINNED}
    descriptor = quantized(array).descriptor.encode()
    for index in range(2):
        descriptor = with_row(descriptor, index, rank=2, **cuda)
    scales = aligned(16)
    buffers = [Buffer.of(array, device_id=0, **cuda), Buffer.of(scales, device_id=1, **cuda)]
    refuse(Producer(descriptor, buffers), hurray.BufferError, "device 1", "device 0")


@pytest.mark.parametrize(
    "said",
    [
        {"device_tag": foreign.CUDA},
        {"memory_class": foreign.HOST_PINNED},
        {
            "device_tag": foreign.CUDA,
            "memory_class": foreign.HOST_PINNED,
            "sync_mode": foreign.EVENT,
        },
    ],
)
def test_a_buffer_unlike_its_row(array, descriptor, said):
    refuse(Producer(descriptor, [Buffer.of(array, **said)]), hurray.BufferError, "row says")


def test_a_mode_unlike_its_row(array, descriptor):
    cuda = {"device_tag": foreign.CUDA, "memory_class": foreign.HOST_PINNED}
    descriptor = with_row(descriptor, 0, rank=1, sync_mode=foreign.EVENT, **cuda)
    buffer = Buffer.of(array, sync_mode=foreign.CONSUMER_STREAM, stream=2, **cuda)
    refuse(Producer(descriptor, [buffer]), hurray.BufferError, "consumer_stream", "event")


@pytest.mark.parametrize(
    ("field", "value"),
    [("device_tag", 0x20), ("memory_class", 0x20), ("sync_mode", 7), ("device_tag", 0xFF)],
)
def test_a_byte_that_does_not_exist(array, descriptor, field, value):
    producer = Producer(descriptor, [Buffer.of(array, **{field: value})])
    refuse(producer, hurray.BufferError, f"{value:#04x}")


def test_a_buffer_smaller_than_its_row(array, descriptor):
    producer = Producer(descriptor, [Buffer(array.ctypes.data, 63)])
    refuse(producer, hurray.BufferError, "63", "64")


def test_a_row_smaller_than_its_shape(array, descriptor):
    producer = Producer(with_row(descriptor, 0, rank=1, byte_size=63), [Buffer.of(array)])
    refuse(producer, hurray.BufferError, "63", "64")


def test_a_buffer_larger_than_its_row(array, descriptor):
    larger = aligned(128)
    producer = Producer(descriptor, [Buffer.of(larger)])
    tensor = hurray.from_hurray(producer.offer())
    assert tensor.buffer_handles[0].byte_size == 64
    assert tensor.buffer(0).shape == (64,)


def test_less_alignment_than_the_format_asks_for(descriptor):
    under = aligned(64, offset=32)
    descriptor = with_row(descriptor, 0, rank=1, alignment=64)
    refuse(Producer(descriptor, [Buffer.of(under)]), hurray.BufferError, "32", "64")


def test_less_alignment_than_declared(descriptor):
    under = aligned(64, offset=128)
    descriptor = with_row(descriptor, 0, rank=1, alignment=4096)
    refuse(Producer(descriptor, [Buffer.of(under)]), hurray.BufferError, "128", "4096")


def test_more_alignment_than_declared(array, descriptor):
    descriptor = with_row(descriptor, 0, rank=1, alignment=64)
    tensor = hurray.from_hurray(Producer(descriptor, [Buffer.of(array)]).offer())
    assert array.ctypes.data % tensor.buffer_handles[0].alignment == 0


def test_null_with_bytes(descriptor):
    refuse(Producer(descriptor, [Buffer(0, 64)]), hurray.BufferError, "NULL")


def test_bytes_past_the_address_space(descriptor):
    refuse(Producer(descriptor, [Buffer(2**64 - 64, 2**63)]), hurray.BufferError)


def test_an_empty_buffer_may_be_nowhere():
    empty = hurray.Tensor(b"", hurray.uint8, [0]).descriptor.encode()
    tensor = hurray.from_hurray(Producer(empty, [Buffer(0, 0)]).offer())
    assert np.asarray(tensor).shape == (0,)


@pytest.mark.parametrize("make", [lambda t: t.__hurray__(), lambda t: hurray.from_hurray(t)])
def test_a_second_consumption(array, make):
    capsule = hurray.Tensor(array, hurray.uint8, [64]).__hurray__()
    hurray.from_hurray(Offer(capsule))
    with pytest.raises(hurray.BufferError, match="consumed before"):
        hurray.from_hurray(Offer(capsule))


def test_a_second_consumption_of_a_foreign_capsule(array, descriptor):
    producer = Producer(descriptor, [Buffer.of(array)])
    offer = producer.offer()
    first = hurray.from_hurray(offer)
    with pytest.raises(hurray.BufferError, match="consumed before"):
        hurray.from_hurray(offer)
    assert producer.calls.released == []
    del first
    assert producer.calls.destroyed == 1


def race(capsule) -> list[object]:
    """What four threads get of one capsule."""
    barrier = threading.Barrier(4)
    results: list[object] = []

    def consume() -> None:
        barrier.wait()
        try:
            results.append(hurray.from_hurray(Offer(capsule)))
        except hurray.BufferError as error:
            results.append(error)

    threads = [threading.Thread(target=consume) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_four_threads_and_one_capsule_of_ours(array):
    for _ in range(50):
        results = race(hurray.Tensor(array, hurray.uint8, [64]).__hurray__())
        assert sum(isinstance(result, hurray.Tensor) for result in results) == 1
        assert sum("consumed before" in str(result) for result in results) == 3


def test_four_threads_and_one_foreign_capsule(array, descriptor):
    # Here the winner gives the interpreter away while it asks the producer's functions.
    for _ in range(50):
        producer = Producer(descriptor, [Buffer.of(array)])
        results = race(producer.capsule())
        assert sum(isinstance(result, hurray.Tensor) for result in results) == 1
        results.clear()
        assert producer.calls.destroyed == 1
        assert producer.calls.released == [(0, 2**64 - 1)]


def test_the_destructor_of_a_used_capsule_reads_its_name_only(array):
    capsule = hurray.Tensor(array, hurray.uint8, [64]).__hurray__()
    used = ctypes.create_string_buffer(b"used_hurray_buffer")
    foreign.set_name(capsule, ctypes.addressof(used))
    list_ = foreign.get_pointer(capsule, b"used_hurray_buffer")
    context = foreign.get_context(capsule)
    # Whoever took the list may have freed the context by now.
    foreign.set_context(capsule, foreign.UNMAPPED)
    del capsule
    # The list was left alone: it can still be consumed.
    name = ctypes.create_string_buffer(b"hurray_buffer")
    again = foreign.new_capsule(list_, ctypes.addressof(name), None)
    foreign.set_context(again, context)
    assert hurray.from_hurray(Offer(again)).shape == (64,)


def test_buffers_are_released_each_on_its_own(array):
    scales = aligned(16)
    producer = Producer(quantized(array).descriptor.encode(), [Buffer.of(array), Buffer.of(scales)])
    tensor = hurray.from_hurray(producer.offer())
    bytes_of_scales = tensor.buffer(1)
    del tensor
    assert producer.calls.released == [(0, 2**64 - 1)]
    assert producer.calls.destroyed == 0
    del bytes_of_scales
    assert producer.calls.released == [(0, 2**64 - 1), (1, 2**64 - 1)]
    assert producer.calls.destroyed == 1


def test_a_failing_function_of_the_producer(array, descriptor):
    @foreign.FILL
    def info(_buffer, _out):
        return -9

    table = foreign.Api.from_buffer_copy(foreign.API)
    table.buffer_info = info
    producer = Producer(descriptor, [Buffer.of(array)], keep=(table, info))
    producer.context.api = producer.list.api = ctypes.addressof(table)
    refuse(producer, hurray.BufferError, "buffer 0", "buffer_info", "nothing failed")


def test_a_read_only_buffer_stays_read_only(array, descriptor):
    producer = Producer(descriptor, [Buffer.of(array, flags=foreign.READ_ONLY)])
    tensor = hurray.from_hurray(producer.offer())
    assert not np.asarray(tensor).flags.writeable
    assert not np.asarray(hurray.from_hurray(tensor)).flags.writeable
