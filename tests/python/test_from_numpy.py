"""NumPy arrays in: types, strides, order, alignment and copies.

No test assumes what NumPy's allocator gives: `aligned` makes the offset that a test needs.
"""

import sys
import threading

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from placed import aligned, at

import hurray


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


NUMPY_TYPES = {
    np.int8: hurray.int8,
    np.uint8: hurray.uint8,
    np.int16: hurray.int16,
    np.uint16: hurray.uint16,
    np.int32: hurray.int32,
    np.uint32: hurray.uint32,
    np.int64: hurray.int64,
    np.uint64: hurray.uint64,
    np.longlong: hurray.int64,
    np.ulonglong: hurray.uint64,
    np.float16: hurray.float16,
    np.float32: hurray.float32,
    np.float64: hurray.float64,
    np.complex64: hurray.dtype.complex64,
    np.complex128: hurray.dtype.complex128,
    ml_dtypes.bfloat16: hurray.bfloat16,
    ml_dtypes.float8_e4m3fn: hurray.dtype.float8_e4m3,
    ml_dtypes.float8_e5m2: hurray.dtype.float8_e5m2,
    ml_dtypes.float8_e8m0fnu: hurray.dtype.float8_e8m0,
}


@pytest.mark.parametrize(("scalar", "dtype"), NUMPY_TYPES.items())
def test_types_of_whole_bytes_are_shared(scalar, dtype):
    array = at(0, (2, 3), scalar)
    with hurray.copies() as log:
        tensor = hurray.from_numpy(array, copy=False)
    assert log == []
    assert tensor.dtype is dtype
    assert tensor.shape == (2, 3)
    back = np.asarray(tensor)
    assert address(back) == address(array)
    # `longlong` is `int64` here, under another number.
    assert back.dtype == array.dtype
    assert back.tobytes() == array.tobytes()


PACKED_TYPES = {
    np.bool_: (hurray.bool, 1),
    ml_dtypes.int2: (hurray.dtype.int2, 2),
    ml_dtypes.uint2: (hurray.dtype.uint2, 2),
    ml_dtypes.int4: (hurray.dtype.int4, 4),
    ml_dtypes.uint4: (hurray.dtype.uint4, 4),
    ml_dtypes.float4_e2m1fn: (hurray.dtype.float4_e2m1, 4),
    ml_dtypes.float6_e2m3fn: (hurray.dtype.float6_e2m3, 6),
    ml_dtypes.float6_e3m2fn: (hurray.dtype.float6_e3m2, 6),
}


@pytest.mark.parametrize("scalar", PACKED_TYPES)
def test_one_bit_one_byte_decision_18(scalar):
    dtype, bits = PACKED_TYPES[scalar]
    values = np.arange(21).reshape(3, 7) % 2**bits
    array = values.astype(np.uint8).view(np.bool_) if bits == 1 else values.astype(scalar)
    if array.dtype != scalar:
        array = array.astype(scalar)
    with hurray.copies() as log:
        tensor = hurray.from_numpy(array)
    assert tensor.dtype is dtype
    needed = hurray.buffer_size_bytes(dtype, 21)
    assert [handle.byte_size for handle in tensor.buffer_handles] == [needed]
    assert [(copy.bytes, copy.reason) for copy in log] == [(needed, "packing")]

    codes = array.reshape(-1).view(np.uint8) & (2**bits - 1)
    stream = np.unpackbits(codes[:, None], axis=1, bitorder="little")[:, :bits].reshape(-1)
    packed = np.packbits(stream, bitorder="little")
    found = np.asarray(tensor.buffer(0))
    assert found[: len(packed)].tolist() == packed.tolist()
    assert not found[len(packed) :].any()

    with hurray.copies() as log:
        back = tensor.__array__()
    assert back.dtype == scalar
    assert np.array_equal(back, array)
    assert [(copy.bytes, copy.reason) for copy in log] == [(21, "packing")]


@pytest.mark.parametrize("scalar", PACKED_TYPES)
def test_packing_is_what_copy_false_names_decision_18(scalar):
    array = at(0, (8,), np.uint8).view(scalar) if scalar is np.bool_ else np.zeros(8, scalar)
    with pytest.raises(hurray.CopyRequiredError, match="pack"):
        hurray.from_numpy(array, copy=False)
    tensor = hurray.from_numpy(array)
    with pytest.raises(hurray.CopyRequiredError, match="pack"):
        np.asarray(tensor, copy=False)


def test_packed_elements_are_taken_in_the_order_of_their_indices():
    array = np.array([[True, False, True], [False, True, True]])
    for view in (array, array.T, array[:, ::-1], np.broadcast_to(array[0], (4, 3))):
        assert np.array_equal(np.asarray(hurray.from_numpy(view)), view)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (np.longdouble, "longdouble"),
        (np.clongdouble, "clongdouble"),
        (object, "object"),
        ("U3", "str"),
        ("S3", "bytes"),
        ("V4", "void"),
        ("M8[s]", "datetime64"),
        ("m8[s]", "timedelta64"),
        ([("a", "i4"), ("b", "f4")], "void"),
        (ml_dtypes.float8_e4m3, "float8_e4m3"),
        (ml_dtypes.float8_e4m3b11fnuz, "float8_e4m3b11fnuz"),
        (ml_dtypes.float8_e5m2fnuz, "float8_e5m2fnuz"),
    ],
)
def test_types_that_the_format_lacks_are_refused_by_name(dtype, name):
    for copy in (None, False, True):
        with pytest.raises(hurray.UnsupportedError, match=name):
            hurray.from_numpy(np.zeros(3, dtype), copy=copy)


@pytest.mark.parametrize("dtype", [">f4", ">i2", ">u8", ">c16"])
def test_byte_swapped_numbers(dtype):
    # As in dlpack.h: numbers are in the machine's own order.
    for copy in (None, False, True):
        with pytest.raises(hurray.UnsupportedError, match=dtype):
            hurray.from_numpy(np.zeros(3, dtype), copy=copy)


@pytest.mark.parametrize("thing", [[1, 2], (), "text", b"bytes", 3, None, memoryview(b"1234")])
def test_what_is_no_array(thing):
    with pytest.raises(TypeError, match="ndarray"):
        hurray.from_numpy(thing)


@pytest.mark.parametrize("copy", [1, 0, "no", 1.0])
def test_what_copy_can_be(copy):
    with pytest.raises(TypeError, match="copy is None, False or True"):
        hurray.from_numpy(at(0, (4,)), copy=copy)


def test_a_scalar_is_copied():
    tensor = hurray.from_numpy(np.float32(3))
    assert tensor.shape == ()
    assert np.asarray(tensor) == 3


VIEWS = {
    "whole": (lambda a: a, hurray.RowMajorLayout()),
    "transposed": (lambda a: a.T, hurray.ColMajorLayout()),
    "axes moved": (lambda a: a.transpose(1, 0, 2), hurray.StridedLayout([5, 20, 1])),
    "reversed": (lambda a: a[::-1, ::-1, ::-1], hurray.StridedLayout([-20, -5, -1])),
    "one axis reversed": (lambda a: a[:, ::-1], hurray.StridedLayout([20, -5, 1])),
    "every other": (lambda a: a[:, ::2], hurray.StridedLayout([20, 10, 1])),
    "broadcast": (
        lambda a: np.broadcast_to(a[:, :1], (3, 4, 5)),
        hurray.StridedLayout([20, 0, 1]),
    ),
    "broadcast wide": (
        lambda a: np.broadcast_to(a[0, 0, :1], (1000, 1000)),
        hurray.StridedLayout([0, 0]),
    ),
}


@pytest.mark.parametrize("offset", [0, 4, 16, 32, 60])
@pytest.mark.parametrize("name", VIEWS)
def test_strides_stay(name, offset):
    """Also in a copy, while the gaps between elements are no larger than the elements."""
    view, layout = VIEWS[name]
    array = view(at(offset, (3, 4, 5)))
    tensor = hurray.from_numpy(array)
    assert tensor.layout == layout
    assert tensor.shape == array.shape
    back = np.asarray(tensor)
    assert back.strides == array.strides
    assert np.array_equal(back, array)


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_aligned_memory_are_shared(name):
    array = VIEWS[name][0](at(0, (3, 4, 5)))
    with hurray.copies() as log:
        tensor = hurray.from_numpy(array, copy=False)
    assert log == []
    assert address(np.asarray(tensor)) == address(array)


def test_a_broadcast_array_is_not_densified():
    tensor = hurray.from_numpy(np.broadcast_to(at(16, (1,)), (1 << 20, 1 << 20)))
    assert tensor.buffer_handles[0].byte_size == 4


def test_a_sparse_slice_is_copied_without_its_gaps():
    array = at(16, (64, 64))[:, 0]
    with hurray.copies() as log:
        tensor = hurray.from_numpy(array)
    assert [copy.bytes for copy in log] == [64 * 4]
    assert tensor.layout == hurray.RowMajorLayout()
    assert np.array_equal(np.asarray(tensor), array)


def test_a_stride_that_is_no_multiple_of_the_element():
    # numpy/numpy#20336, wjakob/nanobind#487
    records = np.zeros(4, [("a", "u1"), ("b", "f4")])
    for copy in (None, False, True):
        with pytest.raises(hurray.UnsupportedError, match=r"stride of 5 bytes.*4-byte"):
            hurray.from_numpy(records["b"], copy=copy)


def test_the_stride_of_one_element_means_nothing():
    records = np.zeros(1, [("a", "u1"), ("b", "u1"), ("c", "u2")])
    assert hurray.from_numpy(records["c"]).shape == (1,)


@pytest.mark.parametrize("offset", range(0, 64))
def test_every_offset(offset):
    """Memory on the boundary is shared, other memory is copied or refused, with its numbers."""
    array = at(offset, (100,), np.uint8)
    measured = 64 if offset == 0 else offset & -offset
    if offset == 0:
        assert address(np.asarray(hurray.from_numpy(array, copy=False))) == address(array)
    else:
        with pytest.raises(hurray.CopyRequiredError, match=f"aligned to {measured} bytes"):
            hurray.from_numpy(array, copy=False)
    with hurray.copies() as log:
        tensor = hurray.from_numpy(array)
    assert np.array_equal(np.asarray(tensor), array)
    assert address(np.asarray(tensor)) % 64 == 0
    assert [(c.bytes, c.reason, c.call) for c in log] == (
        [(100, "alignment", "from_numpy")] if offset else []
    )


@pytest.mark.parametrize("offset", range(1, 64))
def test_a_slice_begins_before_its_first_element_decision_19(offset):
    whole = at(0, (256,), np.uint8)
    part = whole[128 + offset :]
    with hurray.copies() as log:
        tensor = hurray.from_numpy(part, copy=False)
    assert log == []
    assert tensor.descriptor.byte_offset == offset
    (handle,) = tensor.buffer_handles
    assert handle.byte_size == len(part) + offset
    assert handle.alignment >= 64
    assert address(np.asarray(tensor.buffer(0))) == address(whole) + 128
    assert address(np.asarray(tensor)) == address(part)
    received = hurray.from_hurray(tensor)
    assert address(np.asarray(received)) == address(part)


def test_a_slice_of_memory_that_begins_between_boundaries_decision_19():
    # The memory begins at 16: what lies between is not its owner's.
    whole = at(16, (64,))
    with pytest.raises(hurray.CopyRequiredError, match="aligned to 4 bytes"):
        hurray.from_numpy(whole[1:], copy=False)
    with pytest.raises(hurray.CopyRequiredError):
        hurray.from_numpy(whole[11:], copy=False)
    # 16 + 12 × 4 is the next boundary.
    assert hurray.from_numpy(whole[12:], copy=False).descriptor.byte_offset == 0
    assert hurray.from_numpy(whole[13:], copy=False).descriptor.byte_offset == 4


def test_a_reversed_slice_decision_19():
    whole = at(0, (64,))
    part = whole[20:3:-2]
    tensor = hurray.from_numpy(part, copy=False)
    # The lowest element is 4, at byte 16; element 0 is 20, at byte 80.
    assert tensor.descriptor.byte_offset == 80
    assert tensor.layout == hurray.StridedLayout([-2])
    assert np.array_equal(np.asarray(tensor), part)


def test_a_base_that_lies_elsewhere_decision_19():
    """An array keeps its place when the array it is a view of is given other memory."""
    memory = aligned(1 << 22, offset=4)
    base = np.frombuffer(memoryview(memory), np.uint8)
    part = base[:]
    base.__setstate__((1, (16,), np.dtype(np.uint8), False, bytes(16)))
    assert part.base is base and address(part) == address(memory)
    with pytest.raises(hurray.CopyRequiredError, match="aligned to 4 bytes"):
        hurray.from_numpy(part, copy=False)


def test_a_view_made_by_hand_reaches_no_further_than_itself_decision_19():
    whole = at(0, (64,))
    # Such a view does not say which array it lies in.
    part = np.lib.stride_tricks.as_strided(whole[1:], (8,), (8,))
    assert not isinstance(part.base, np.ndarray)
    with pytest.raises(hurray.CopyRequiredError, match="aligned to 4 bytes"):
        hurray.from_numpy(part, copy=False)
    assert np.array_equal(np.asarray(hurray.from_numpy(part)), whole[1:17:2])
    overlapping = np.lib.stride_tricks.as_strided(whole, (8, 4), (4, 4))
    assert np.array_equal(np.asarray(hurray.from_numpy(overlapping, copy=False)), overlapping)


def test_copy_true_always_copies():
    array = at(0, (4, 4))
    with hurray.copies() as log:
        tensor = hurray.from_numpy(array, copy=True)
    assert [(copy.bytes, copy.reason) for copy in log] == [(64, "request")]
    array[:] = 0
    assert np.asarray(tensor)[3, 3] == 15
    assert np.asarray(tensor).flags.writeable


def test_read_only_arrays_stay_read_only():
    # numpy/numpy#20742, pytorch/pytorch#5442
    array = at(0, (4,))
    array.flags.writeable = False
    shared = np.asarray(hurray.from_numpy(array, copy=False))
    assert not shared.flags.writeable
    assert not np.asarray(hurray.from_hurray(hurray.from_numpy(array))).flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        shared[0] = 1
    assert np.asarray(hurray.from_numpy(array, copy=True)).flags.writeable


def test_writes_show_on_both_sides():
    array = at(0, (4,))
    tensor = hurray.from_numpy(array)
    np.asarray(tensor)[1] = 7
    assert array[1] == 7
    array[2] = 9
    assert np.asarray(hurray.from_hurray(tensor))[2] == 9


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), (2, 0, 5)])
def test_no_elements(shape):
    # pytorch/pytorch#41182
    for array in (at(0, shape), at(4, shape), np.zeros(shape)[..., ::-1]):
        tensor = hurray.from_numpy(array, copy=False)
        assert tensor.shape == shape
        assert tensor.size == 0
        (handle,) = tensor.buffer_handles
        assert (handle.byte_size, handle.alignment, handle.is_empty) == (0, 1, True)
        assert np.asarray(tensor).shape == shape
        assert hurray.from_hurray(tensor).shape == shape


def test_no_dimensions():
    tensor = hurray.from_numpy(at(0, ()), copy=False)
    assert (tensor.shape, tensor.ndim, tensor.size) == ((), 0, 1)
    assert tensor.layout == hurray.RowMajorLayout()
    assert np.asarray(tensor).shape == ()


def test_the_most_dimensions():
    shape = (1,) * 62 + (2, 3)
    array = at(0, (6,)).reshape(shape)
    assert np.asarray(hurray.from_numpy(array)).shape == shape


def test_subclasses(tmp_path):
    path = tmp_path / "array.bin"
    np.arange(1024, dtype=np.float32).tofile(path)
    mapped = np.memmap(path, np.float32, mode="r")
    tensor = hurray.from_numpy(mapped, copy=False)
    assert address(np.asarray(tensor)) == address(mapped)
    assert not np.asarray(tensor).flags.writeable
    part = hurray.from_numpy(mapped[3:], copy=False)
    assert part.descriptor.byte_offset == 12
    del mapped
    assert np.asarray(tensor)[1023] == 1023


def test_masked_arrays_give_their_data_and_records_are_refused():
    """As np.asarray has it: the mask is another array."""
    masked = np.ma.array(at(0, (4,)), mask=[0, 0, 1, 1])
    tensor = hurray.from_numpy(masked, copy=False)
    assert np.array_equal(np.asarray(tensor), [0, 1, 2, 3])
    for records in (np.zeros(4, "u1,f4"), np.zeros(4, "u1,f4").view(np.recarray)):
        with pytest.raises(hurray.UnsupportedError, match=r"void|record"):
            hurray.from_numpy(records)


def test_an_array_that_is_lent_is_not_resized():
    with hurray.aligned_allocator():
        array = np.zeros(100, np.uint8)
    tensor = hurray.from_numpy(array, copy=False)
    with pytest.raises(ValueError, match="resize"):
        array.resize(10_000_000)
    del tensor
    array.resize(10_000)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 63, 64, 65, 1000, 1001, 1007])
@pytest.mark.parametrize(
    "scalar", [np.bool_, ml_dtypes.int2, ml_dtypes.uint2, ml_dtypes.int4, ml_dtypes.uint4]
)
def test_runs_of_narrow_elements_are_packed_and_unpacked(scalar, count):
    array = (np.arange(count) % 7 % 2).astype(scalar)
    tensor = hurray.from_numpy(array)
    assert np.array_equal(np.asarray(tensor), array)
    bits = 1 if scalar is np.bool_ else int(scalar.__name__[-1])
    values = np.asarray(array.astype(np.uint8))
    wide = (values[:, None] >> np.arange(bits)) & 1
    expected = np.packbits(wide.astype(np.uint8), bitorder="little")
    assert np.array_equal(np.asarray(tensor.buffer(0)), expected)


@pytest.mark.parametrize("size", [(32 << 20) - 1, 32 << 20, (37 << 20) + 3])
def test_a_copy_of_many_parts_has_all_bytes(size):
    whole = np.frombuffer(memoryview(aligned(size, offset=1)), np.uint8)
    whole[:] = np.arange(size, dtype=np.uint32) * 2654435761 >> 24
    assert np.array_equal(np.asarray(hurray.from_numpy(whole)), whole)


def test_a_large_copy_lets_other_threads_run():
    array = np.frombuffer(memoryview(aligned(1 << 26, offset=16)), np.uint8)
    go, ran = threading.Event(), []

    def work():
        go.wait()
        ran.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    interval = sys.getswitchinterval()
    # From here on another thread runs only where this one gives the interpreter away.
    sys.setswitchinterval(1000)
    try:
        go.set()
        hurray.from_numpy(array)
        assert ran
    finally:
        sys.setswitchinterval(interval)
        thread.join()


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_any_view_reads_the_same(data):
    shape = data.draw(st.lists(st.integers(0, 5), min_size=0, max_size=4), label="shape")
    dtype = data.draw(st.sampled_from([np.uint8, np.float32, np.complex128, np.bool_]))
    offset = data.draw(st.sampled_from([0, 16, 48]))
    array = at(offset, tuple(shape), dtype)
    axes = data.draw(st.permutations(range(len(shape))), label="axes")
    array = array.transpose(axes)
    index = tuple(
        slice(
            data.draw(st.integers(-n, n) | st.none()),
            data.draw(st.integers(-n, n) | st.none()),
            data.draw(st.sampled_from([1, 2, -1, -2, None])),
        )
        for n in array.shape
    )
    array = array[index]
    copy = data.draw(st.sampled_from([None, True]))
    tensor = hurray.from_numpy(array, copy=copy)
    assert np.array_equal(np.asarray(tensor), array)
    received = hurray.from_hurray(tensor)
    assert received.descriptor == tensor.descriptor
    assert np.array_equal(np.asarray(received), array)
    for handle in tensor.buffer_handles:
        assert handle.alignment >= 64 or handle.is_empty
