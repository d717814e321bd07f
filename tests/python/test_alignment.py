"""A declared alignment is always a measured one, whatever way the memory came in."""

import mmap

import foreign_producer as foreign
import numpy as np
import pytest
from foreign_producer import Buffer, Producer
from placed import aligned, at

import hurray


def check(tensor: hurray.Tensor) -> None:
    """What every row of a tensor says of alignment is true of its buffer's address."""
    for i, handle in enumerate(tensor.buffer_handles):
        address = np.asarray(tensor.buffer(i)).__array_interface__["data"][0]
        if handle.byte_size == 0:
            assert handle.alignment == 1
            continue
        assert handle.alignment >= hurray.MIN_BUFFER_ALIGNMENT
        assert address % handle.alignment == 0


@pytest.mark.parametrize("boundary", [64, 128, 256, 512, 1024, 2048, 4096, 8192])
def test_measured_up_to_a_page(boundary):
    memory = aligned(16384, offset=boundary, boundary=16384)[:64]
    tensor = hurray.from_numpy(memory, copy=False)
    assert tensor.buffer_handles[0].alignment == min(boundary, 4096)
    assert tensor.descriptor.buffer_handles[0].alignment == min(boundary, 4096)
    check(tensor)


@pytest.mark.parametrize("offset", range(0, 129))
def test_every_offset_into_numpy_memory(offset):
    # apache/arrow-rs#2882: whatever the offset, what is declared is true
    whole = aligned(512)
    array = whole[offset : offset + 100]
    array[:] = np.arange(100)
    tensor = hurray.from_numpy(array, copy=False)
    check(tensor)
    check(hurray.from_hurray(tensor))
    assert np.array_equal(np.asarray(tensor), array)


@pytest.mark.parametrize("offset", range(0, 129))
def test_every_offset_into_other_memory(offset):
    whole = memoryview(bytearray(aligned(512).tobytes()))
    tensor = hurray.Tensor(whole[offset : offset + 100], hurray.uint8, [100])
    check(tensor)
    tensor = hurray.Tensor(at(offset % 64, (100,), np.uint8), hurray.uint8, [100])
    check(tensor)


@pytest.mark.parametrize("length", [1, 63, 64, 65, 4095, 4096, 4097, 1 << 20])
def test_copies(length):
    tensor = hurray.from_numpy(np.ones(length, np.uint8), copy=True)
    check(tensor)
    if length >= 4096:
        assert tensor.buffer_handles[0].alignment == hurray.PAGE_ALIGNMENT


@pytest.mark.parametrize(
    "make",
    [
        lambda: hurray.Tensor(bytes(100), hurray.uint8, [100]),
        lambda: hurray.Tensor(mmap.mmap(-1, 4096), hurray.uint8, [4096]),
        lambda: hurray.from_numpy(np.zeros(0)),
        lambda: hurray.from_numpy(np.zeros(100, bool)),
        lambda: hurray.from_numpy(np.zeros((5, 7))[::-1, ::2]),
        lambda: hurray.from_hurray(hurray.from_numpy(np.zeros(100))),
        lambda: hurray.Tensor(
            bytes(8),
            hurray.float32,
            [4, 4],
            aux_buffers=[bytes(16), bytes(40)],
            layout=hurray.CsrLayout(nnz=2),
        ),
    ],
)
def test_ways_in(make):
    tensor = make()
    check(tensor)
    check(tensor.T)
    if hasattr(tensor, "values"):
        for view in (tensor.values, tensor.col_indices, tensor.row_ptr):
            check(view)


def test_a_foreign_row_says_less_than_the_memory_has():
    """A relayed row stays as it came: true and weaker."""
    array = aligned(64)
    descriptor = hurray.Tensor(array, hurray.uint8, [64]).descriptor.encode()
    descriptor = foreign.with_row(descriptor, 0, rank=1, alignment=64)
    received = hurray.from_hurray(Producer(descriptor, [Buffer.of(array)], keep=array).offer())
    assert received.buffer_handles[0].alignment == 64
    assert received.descriptor.encode() == descriptor
    # A view's row is its own, and measured.
    assert received.buffer(0).buffer_handles[0].alignment == 4096
    check(received)


def test_which_allocator_is_in_force():
    multiarray = pytest.importorskip("numpy._core.multiarray")
    outside = multiarray.get_handler_name()
    with hurray.aligned_allocator():
        arrays = [np.zeros(n, np.uint8) for n in range(1, 200)]
        assert multiarray.get_handler_name(arrays[0]) != outside
    for array in arrays:
        check(hurray.from_numpy(array, copy=False))
    assert multiarray.get_handler_name() == outside
