"""A tensor as an array: `__array__`, `__array_interface__` and the buffer protocol."""

import gc
import hashlib
import io
import weakref

import ml_dtypes
import numpy as np
import pytest
from placed import aligned, at

import hurray

NATIVE = [
    np.int8,
    np.uint8,
    np.int16,
    np.uint16,
    np.int32,
    np.uint32,
    np.int64,
    np.uint64,
    np.float16,
    np.float32,
    np.float64,
    np.complex64,
    np.complex128,
]


def shared(shape=(3, 4), dtype=np.float32) -> tuple[np.ndarray, hurray.Tensor]:
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    array = aligned(count * dtype.itemsize).view(dtype).reshape(shape)
    array[...] = np.arange(count).reshape(shape).astype(dtype)
    return array, hurray.from_numpy(array, copy=False)


@pytest.mark.parametrize("dtype", NATIVE)
@pytest.mark.parametrize("way", ["__array__", "memoryview", "interface", "asarray"])
def test_every_type_that_numpy_has(dtype, way):
    array, tensor = shared(dtype=dtype)
    if way == "__array__":
        found = tensor.__array__()
    elif way == "memoryview":
        found = np.asarray(memoryview(tensor))
    elif way == "interface":

        class Thing:
            __array_interface__ = tensor.__array_interface__

        found = np.asarray(Thing())
    else:
        found = np.asarray(tensor)
    assert found.dtype == dtype
    assert found.ctypes.data == array.ctypes.data
    assert np.array_equal(found, array)
    assert found.flags.writeable


@pytest.mark.parametrize(
    "view", [lambda a: a.T, lambda a: a[::-1], lambda a: a[:, 1::2], lambda a: a[1:, ::-1]]
)
def test_strides(view):
    array, _ = shared()
    tensor = hurray.from_numpy(view(array), copy=False)
    for found in (tensor.__array__(), np.asarray(memoryview(tensor))):
        assert found.strides == view(array).strides
        assert np.array_equal(found, view(array))
    assert tensor.__array_interface__["strides"] == view(array).strides


def test_interface():
    array, tensor = shared()
    interface = tensor.__array_interface__
    assert interface == {
        "version": 3,
        "shape": (3, 4),
        "typestr": "<f4",
        "data": (array.ctypes.data, False),
        "strides": (16, 4),
    }
    array.flags.writeable = False
    assert hurray.from_numpy(array).__array_interface__["data"][1] is True


@pytest.mark.parametrize(
    "tensor",
    [
        hurray.from_numpy(np.zeros(8, bool)),
        hurray.from_numpy(np.zeros(8, ml_dtypes.bfloat16)),
        hurray.from_numpy(np.zeros(8, ml_dtypes.int4)),
        hurray.Tensor(bytes(16), hurray.dtype.float128, [1]),
    ],
)
def test_types_without_a_code_have_no_interface(tensor):
    assert not hasattr(tensor, "__array_interface__")
    # np.asarray goes on to __array__ only because the error is an AttributeError.
    if tensor.dtype is not hurray.dtype.float128:
        assert np.asarray(tensor).shape == (8,)


def test_types_without_a_code_have_no_buffer_either():
    tensor = hurray.from_numpy(np.zeros(8, ml_dtypes.bfloat16))
    with pytest.raises(BufferError, match=r"bfloat16; buffer\(0\)"):
        memoryview(tensor)


@pytest.mark.parametrize("dtype", [hurray.dtype.float128, hurray.Dtype.from_tag(0xF3)])
def test_types_that_no_array_has(dtype):
    extension = None
    if dtype.name == "extension":
        extension = hurray.ExtensionType(bit_width=128)
    tensor = hurray.Tensor(bytes(16), dtype, [1], extension_type=extension)
    with pytest.raises(hurray.UnsupportedError, match=r"buffer\(0\)"):
        tensor.__array__()


def test_the_array_keeps_the_memory_alive():
    array, tensor = shared()
    reference = weakref.ref(array)
    for found in (tensor.__array__(), np.asarray(memoryview(tensor)), np.asarray(tensor)):
        assert found.base is not None
    del tensor
    found = hurray.from_numpy(array).__array__()
    del array
    gc.collect()
    assert found[2, 3] == 11
    del found
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_the_array_is_read_only_where_the_source_is(dtype):
    """By `__array__` itself: np.asarray prefers the buffer protocol where the type has a code."""
    array = at(0, (4,), dtype)
    assert hurray.from_numpy(array, copy=False).__array__().flags.writeable
    array.flags.writeable = False
    tensor = hurray.from_numpy(array, copy=False)
    assert not tensor.__array__().flags.writeable
    assert not np.asarray(tensor).flags.writeable
    assert tensor.__array__(copy=True).flags.writeable


def test_dtype_casts_and_reports():
    _, tensor = shared()
    with hurray.copies() as log:
        assert tensor.__array__(np.float32).dtype == np.float32
        assert tensor.__array__("f4", copy=False).dtype == np.float32
    assert log == []
    with hurray.copies() as log:
        found = tensor.__array__(np.float64)
    assert found.dtype == np.float64
    assert [(copy.bytes, copy.reason, copy.call) for copy in log] == [(96, "request", "__array__")]
    with pytest.raises(hurray.CopyRequiredError, match="float64"):
        tensor.__array__(np.float64, copy=False)
    with pytest.raises(ValueError, match="copy"):
        np.asarray(tensor, np.float64, copy=False)


def test_copy_true_copies():
    array, tensor = shared()
    with hurray.copies() as log:
        found = tensor.__array__(copy=True)
    assert [copy.reason for copy in log] == ["request"]
    assert not np.shares_memory(found, array)
    assert np.array_equal(found, array)
    with hurray.copies() as log:
        hurray.from_numpy(np.ones(9, bool)).__array__(copy=True)
    assert [copy.reason for copy in log] == ["packing", "packing"], "unpacked once, not twice"


def test_a_bad_dtype():
    _, tensor = shared()
    with pytest.raises(TypeError):
        tensor.__array__("no such type")


def test_numpy_functions_take_tensors():
    array, tensor = shared()
    assert np.sum(tensor) == array.sum()
    assert (np.asarray(tensor) @ np.asarray(tensor.T)).shape == (3, 3)
    assert np.array_equal(np.array(tensor), array)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 2, 4)])
def test_no_elements(shape):
    _, tensor = shared(shape)
    assert tensor.__array__().shape == shape
    assert np.asarray(tensor).shape == shape
    view = memoryview(tensor)
    assert (view.shape, view.nbytes) == (shape, 0)
    assert np.asarray(view).shape == shape


def test_no_dimensions():
    array, tensor = shared(())
    assert tensor.__array__().shape == ()
    assert memoryview(tensor).shape == ()
    assert np.asarray(memoryview(tensor)).ctypes.data == array.ctypes.data


def test_memoryview():
    array, tensor = shared()
    view = memoryview(tensor)
    assert (view.format, view.itemsize, view.ndim) == ("f", 4, 2)
    assert (view.shape, view.strides) == ((3, 4), (16, 4))
    assert view.c_contiguous and not view.f_contiguous
    assert view[2, 3] == 11
    view[2, 3] = 5
    assert array[2, 3] == 5
    assert view.obj is tensor
    assert bytes(tensor) == array.tobytes()


def test_memoryview_of_a_view():
    array, _ = shared()
    assert memoryview(hurray.from_numpy(array.T)).f_contiguous
    strided = hurray.from_numpy(array[:, ::2], copy=False)
    assert memoryview(strided).tolist() == array[:, ::2].tolist()
    assert bytes(memoryview(strided)) == array[:, ::2].tobytes()


def test_requests_that_cannot_be_met():
    array, _ = shared()
    strided = hurray.from_numpy(array[:, ::2], copy=False)
    with pytest.raises(BufferError, match="contiguous"):
        hashlib.sha256(strided)
    assert hashlib.sha256(hurray.from_numpy(array)).digest() == hashlib.sha256(array).digest()
    array.flags.writeable = False
    read_only = hurray.from_numpy(array)
    assert memoryview(read_only).readonly
    with pytest.raises(TypeError, match="read-write"):
        io.BytesIO(b"abcd").readinto(read_only)
    assert io.BytesIO(bytes(48)).readinto(hurray.from_numpy(aligned(48))) == 48


def test_refusals_of_the_buffer_protocol_are_both_errors():
    tensor = hurray.Tensor(bytes(4), hurray.int8, [4], quantization=hurray.PerTensorAffine(1, 0))
    with pytest.raises(BufferError):
        memoryview(tensor)
    with pytest.raises(hurray.UnsupportedError):
        memoryview(tensor)


def test_many_views_and_releases():
    _, tensor = shared()
    views = [memoryview(tensor) for _ in range(1000)]
    for view in views:
        view.release()
    assert memoryview(tensor)[0, 0] == 0
