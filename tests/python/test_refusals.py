"""Bytes that are not given out: tensors that are not ready, and tensors that are not plain."""

import foreign_producer as foreign
import numpy as np
import pytest
from foreign_producer import Buffer, Producer, with_row
from placed import aligned

import hurray

PINNED = {"device_tag": foreign.CUDA, "memory_class": foreign.HOST_PINNED}
# The mode as it is on the wire, its name, and what goes with it.
MODES = [
    (foreign.EVENT, "event", {"event": 0x1234}),
    (foreign.CONSUMER_STREAM, "consumer_stream", {"stream": 2}),
]
# Every way to the bytes of a tensor.
BYTE_PATHS = {
    "buffer": lambda t: t.buffer(0),
    "__array__": lambda t: t.__array__(),
    "asarray": np.asarray,
    "__array_interface__": lambda t: t.__array_interface__,
    "memoryview": memoryview,
    "__dlpack__": lambda t: t.__dlpack__(),
    "from_dlpack": np.from_dlpack,
    "to_torch": lambda t: t.to_torch(),
}


def not_ready(mode: int, **lent) -> tuple[hurray.Tensor, Producer]:
    array = aligned(64)
    row = {**PINNED, "sync_mode": mode}
    descriptor = hurray.Tensor(array, hurray.float32, [16]).descriptor.encode()
    buffer = Buffer.of(array, **row, **lent)
    producer = Producer(with_row(descriptor, 0, rank=1, **row), [buffer], keep=array)
    return hurray.from_hurray(producer.offer()), producer


@pytest.mark.parametrize("way", BYTE_PATHS)
@pytest.mark.parametrize(("mode", "name", "lent"), MODES)
def test_bytes_that_are_not_ready(way, mode, name, lent):
    tensor, producer = not_ready(mode, **lent)
    with pytest.raises(hurray.UnsupportedError, match=name):
        BYTE_PATHS[way](tensor)
    assert producer.calls.events_released == [], "refused before anything happens"


@pytest.mark.parametrize(("mode", "name", "lent"), MODES)
def test_a_tensor_that_is_not_ready_is_relayed_unchanged(mode, name, lent):
    tensor, producer = not_ready(mode, **lent)
    encoded = tensor.descriptor.encode()
    relayed = hurray.from_hurray(hurray.from_hurray(tensor))
    assert relayed.descriptor.encode() == encoded
    assert relayed.buffer_handles == tensor.buffer_handles
    assert relayed.buffer_handles[0].sync_mode == name
    assert relayed.device == hurray.Device("cuda", 0, "host_pinned")
    with pytest.raises(hurray.UnsupportedError, match=name):
        relayed.buffer(0)
    del tensor
    assert producer.calls.destroyed == 0
    del relayed
    assert producer.calls.destroyed == 1
    assert producer.calls.events_released == ([0] if mode == foreign.EVENT else [])


@pytest.mark.parametrize(("mode", "name", "lent"), MODES)
def test_views_have_the_mode_of_what_they_view(mode, name, lent):
    tensor, _ = not_ready(mode, **lent)
    view = tensor.T
    assert view.buffer_handles[0].sync_mode == name
    with pytest.raises(hurray.UnsupportedError, match=name):
        np.asarray(view)


@pytest.mark.parametrize(("mode", "name", "lent"), MODES)
def test_repr_reads_nothing(mode, name, lent):
    tensor, _ = not_ready(mode, **lent)
    assert repr(tensor) == (
        f"hurray.Tensor(shape=(16,), dtype=float32, device=cuda:0/host_pinned, sync_mode='{name}')"
    )


@pytest.mark.parametrize(("mode", "name", "lent"), MODES)
def test_a_stream_that_would_have_to_wait(mode, name, lent):
    tensor, _ = not_ready(mode, **lent)
    for stream in (None, -1):
        assert tensor.__hurray__(stream=stream)
    with pytest.raises(hurray.UnsupportedError, match=name):
        tensor.__hurray__(stream=1)


def test_a_tensor_made_of_bytes_that_are_not_ready_is_not_ready():
    tensor, _ = not_ready(foreign.EVENT, event=1)
    again = hurray.Tensor(tensor, hurray.uint8, [64], tensor.device)
    assert again.buffer_handles[0].sync_mode == "event"
    with pytest.raises(hurray.UnsupportedError, match="event"):
        again.buffer(0)


def test_bytes_that_are_not_ready_are_not_copied_either():
    """Elements between boundaries would have to be copied to be a buffer of their own."""
    array, row = aligned(64), {**PINNED, "sync_mode": foreign.EVENT}
    plain = hurray.Tensor(array, hurray.float32, [15], byte_offset=4)
    descriptor = with_row(plain.descriptor.encode(), 0, rank=1, **row)
    producer = Producer(descriptor, [Buffer.of(array, event=1, **row)], keep=array)
    scales = hurray.from_hurray(producer.offer())
    with hurray.copies() as log, pytest.raises(hurray.UnsupportedError, match="event"):
        hurray.Tensor(
            aligned(15),
            hurray.int8,
            [15, 1],
            aux_buffers=[scales],
            quantization=hurray.PerChannelAffine.symmetric(0, 1),
        )
    assert log == []


def test_one_buffer_that_is_not_ready():
    """The mode is each buffer's own: the codes can be read while the scales are on their way."""
    codes, scales = aligned(64), aligned(16)
    tensor = hurray.Tensor(
        codes,
        hurray.int8,
        [4, 16],
        aux_buffers=[scales],
        quantization=hurray.PerChannelAffine.symmetric(0, 1),
    )
    descriptor = tensor.descriptor.encode()
    for index in range(2):
        descriptor = with_row(descriptor, index, rank=2, **PINNED)
    descriptor = with_row(descriptor, 1, rank=2, sync_mode=foreign.EVENT)
    buffers = [
        Buffer.of(codes, **PINNED),
        Buffer.of(scales, sync_mode=foreign.EVENT, event=1, **PINNED),
    ]
    received = hurray.from_hurray(Producer(descriptor, buffers).offer())
    assert np.shares_memory(np.asarray(received.buffer(0)), codes)
    assert np.asarray(received.codes).shape == (4, 16)
    with pytest.raises(hurray.UnsupportedError, match="buffer 1 is `event`"):
        received.buffer(1)


@pytest.mark.parametrize("way", BYTE_PATHS)
def test_declared_bytes(way):
    """A stream or file that was read has its bytes in host memory, whatever its rows say."""
    array = aligned(64)
    row = {"device_tag": foreign.CUDA, "sync_mode": foreign.EVENT}
    descriptor = hurray.Tensor(array, hurray.float32, [16]).descriptor.encode()
    descriptor = with_row(descriptor, 0, rank=1, **row)
    buffer = Buffer.of(array, flags=foreign.DECLARED)
    tensor = hurray.from_hurray(Producer(descriptor, [buffer], keep=array).offer())
    assert tensor.device == hurray.Device("cuda")
    assert tensor.buffer_handles[0].device is tensor.device
    assert tensor.buffer_handles[0].sync_mode == "event"
    with pytest.raises(hurray.UnsupportedError, match="event"):
        BYTE_PATHS[way](tensor)
    relayed = hurray.from_hurray(tensor)
    assert relayed.descriptor == tensor.descriptor
    with pytest.raises(hurray.UnsupportedError, match="event"):
        BYTE_PATHS[way](relayed)


def test_memory_that_the_host_does_not_reach():
    # The address is a device's: nothing reads it.
    descriptor = hurray.Tensor(aligned(64), hurray.float32, [16]).descriptor.encode()
    descriptor = with_row(descriptor, 0, rank=1, device_tag=foreign.CUDA, alignment=64)
    address = 0x7F00_0000_0000
    buffer = Buffer(address, 64, device_tag=foreign.CUDA, device_id=3)
    tensor = hurray.from_hurray(Producer(descriptor, [buffer]).offer())
    assert tensor.device == hurray.Device("cuda", 3)
    assert "device=cuda:3" in repr(tensor)
    assert tensor.buffer(0).device == tensor.device
    with pytest.raises(hurray.UnsupportedError, match="cuda:3"):
        tensor.__array__()
    assert not hasattr(tensor, "__array_interface__")
    with pytest.raises(BufferError, match="cuda:3"):
        memoryview(tensor)
    assert hurray.from_hurray(tensor).device == tensor.device


def test_pinned_memory_that_is_ready_is_given_out():
    array = aligned(64)
    array[:] = 3
    descriptor = hurray.Tensor(array, hurray.uint8, [64]).descriptor.encode()
    descriptor = with_row(descriptor, 0, rank=1, **PINNED)
    tensor = hurray.from_hurray(Producer(descriptor, [Buffer.of(array, **PINNED)]).offer())
    assert np.shares_memory(np.asarray(tensor), array)
    assert memoryview(tensor)[5] == 3


INDICES = [np.zeros(2, np.uint64), np.zeros(5, np.uint64)]
# Tensors that are not plain (decision 16), and what a refusal says would work.
NOT_PLAIN = {
    "quantized per tensor": (
        lambda: hurray.Tensor(
            bytes(4), hurray.int8, [4], quantization=hurray.PerTensorAffine(0.5, 0)
        ),
        ["codes", "buffer(i)"],
    ),
    "quantized per channel": (
        lambda: hurray.Tensor(
            bytes(16),
            hurray.int8,
            [4, 4],
            aux_buffers=[bytes(16)],
            quantization=hurray.PerChannelAffine.symmetric(0, 1),
        ),
        ["codes", "buffer(i)"],
    ),
    "coo": (
        lambda: hurray.Tensor(
            bytes(8),
            hurray.float32,
            [4, 4],
            aux_buffers=[np.zeros((2, 2), np.uint64)],
            layout=hurray.CooLayout(nnz=2),
        ),
        ["values", "indices"],
    ),
    "csr": (
        lambda: hurray.Tensor(
            bytes(8),
            hurray.float32,
            [4, 4],
            aux_buffers=INDICES,
            layout=hurray.CsrLayout(nnz=2),
        ),
        ["values", "col_indices", "row_ptr"],
    ),
    "csc": (
        lambda: hurray.Tensor(
            bytes(8),
            hurray.float32,
            [4, 4],
            aux_buffers=INDICES,
            layout=hurray.CscLayout(nnz=2),
        ),
        ["values", "row_indices", "col_ptr"],
    ),
    "paged": (
        lambda: hurray.Tensor(
            bytes(2 * 4 * 2 * 4 * 4),
            hurray.float32,
            [5, 2, 4],
            aux_buffers=[np.zeros(2, np.uint32), np.array([0, 2], np.uint32)],
            layout=hurray.BlockPagedLayout(page_size=4, num_pages=2, paged_axis=0, num_seqs=1),
        ),
        ["buffer(0)", "buffer(1)", "buffer(2)"],
    ),
    "tiled": (
        lambda: hurray.Tensor(bytes(64), hurray.float32, [4, 4], layout=hurray.TiledLayout([2, 2])),
        ["buffer(0)"],
    ),
    "morton": (
        lambda: hurray.Tensor(
            bytes(64), hurray.float32, [4, 4], layout=hurray.MortonLayout([2, 2])
        ),
        ["buffer(0)"],
    ),
    "private": (
        lambda: hurray.Tensor(
            bytes(64), hurray.float32, [4, 4], layout=hurray.PrivateExtensionLayout(0xF0, 7)
        ),
        ["buffer(0)"],
    ),
}
PLAIN_PATHS = ["__array__", "asarray", "memoryview", "__dlpack__", "from_dlpack"]


@pytest.mark.parametrize("way", PLAIN_PATHS)
@pytest.mark.parametrize("kind", NOT_PLAIN)
def test_a_tensor_that_is_not_plain_does_not_look_plain_decision_16(kind, way):
    make, words = NOT_PLAIN[kind]
    tensor = make()
    with pytest.raises(hurray.UnsupportedError) as raised:
        BYTE_PATHS[way](tensor)
    if "dlpack" not in way:
        for word in words:
            assert word in str(raised.value)


@pytest.mark.parametrize("kind", NOT_PLAIN)
def test_a_tensor_that_is_not_plain_has_no_array_interface(kind):
    tensor = NOT_PLAIN[kind][0]()
    assert not hasattr(tensor, "__array_interface__")


@pytest.mark.parametrize("kind", NOT_PLAIN)
def test_a_tensor_that_is_not_plain_crosses_whole(kind):
    tensor = NOT_PLAIN[kind][0]()
    received = hurray.from_hurray(tensor)
    assert received.descriptor == tensor.descriptor
    for i in range(tensor.buffer_count):
        assert np.shares_memory(np.asarray(received.buffer(i)), np.asarray(tensor.buffer(i)))


@pytest.mark.parametrize("kind", NOT_PLAIN)
def test_the_bytes_of_a_tensor_that_is_not_plain_are_reached_by_buffer(kind):
    tensor = NOT_PLAIN[kind][0]()
    for i, handle in enumerate(tensor.buffer_handles):
        assert np.asarray(tensor.buffer(i)).nbytes == handle.byte_size


@pytest.mark.parametrize(
    ("stream", "error"),
    [
        (0, ValueError),
        (True, ValueError),
        (False, ValueError),
        (-2, ValueError),
        (2**200, ValueError),
        ("1", TypeError),
        (1.0, TypeError),
    ],
)
def test_what_is_no_stream(stream, error):
    # pytorch/pytorch#67618, cupy/cupy#5970: 0 means different streams in different compilations
    tensor = hurray.Tensor(bytes(16), hurray.float32, [4])
    with pytest.raises(error, match="1 is the legacy default stream, 2 the per-thread"):
        tensor.__hurray__(stream=stream)


@pytest.mark.parametrize("stream", [None, -1, 1, 2, 0x7F00_0000])
def test_a_stream_is_of_no_consequence_while_all_is_ready(stream):
    tensor = hurray.Tensor(bytes(16), hurray.float32, [4])
    assert "hurray_buffer" in repr(tensor.__hurray__(stream))
