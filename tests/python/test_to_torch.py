"""Tensors as PyTorch's."""

import gc
import weakref

import numpy as np
import pytest
from placed import aligned

import hurray

# fmt: off
NATIVE = [
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
]
# fmt: on


def shared(shape=(3, 4), dtype=np.float32) -> np.ndarray:
    dtype = np.dtype(dtype)
    array = aligned(int(np.prod(shape)) * dtype.itemsize).view(dtype).reshape(shape)
    array[...] = np.arange(array.size).reshape(shape).astype(dtype)
    return array


@pytest.mark.parametrize("name", NATIVE)
def test_types_that_numpy_has(torch, name):
    array = shared(dtype=name)
    with hurray.copies() as log:
        found = hurray.from_numpy(array).to_torch()
    assert log == []
    assert found.dtype is getattr(torch, name)
    assert found.data_ptr() == array.ctypes.data
    assert np.array_equal(found.numpy(), array)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("bfloat16", "bfloat16"),
        ("float8_e4m3", "float8_e4m3fn"),
        ("float8_e5m2", "float8_e5m2"),
        ("float8_e8m0", "float8_e8m0fnu"),
    ],
)
def test_types_that_numpy_lacks(torch, dtype, name):
    memory = aligned(64)
    found = hurray.Tensor(memory, getattr(hurray.dtype, dtype), [32]).to_torch()
    assert found.dtype is getattr(torch, name)
    assert found.data_ptr() == memory.ctypes.data


def test_fp4_leaves_in_pairs(torch):
    # dmlc/dlpack#158
    memory = aligned(64)
    memory[:] = np.arange(64)
    found = hurray.Tensor(memory, hurray.dtype.float4_e2m1, [8, 16]).to_torch()
    assert found.dtype is torch.float4_e2m1fn_x2
    assert found.shape == (8, 8)
    assert found.data_ptr() == memory.ctypes.data
    assert found.view(torch.uint8).flatten().tolist() == list(range(64))


def test_an_odd_number_of_fp4_elements(torch):
    tensor = hurray.Tensor(aligned(64), hurray.dtype.float4_e2m1, [4, 7])
    with pytest.raises(hurray.UnsupportedError):
        tensor.to_torch()


def test_bool_is_unpacked(torch):
    # pytorch/pytorch#67081: never re-tagged as uint8
    tensor = hurray.from_numpy(np.array([[True, False, True], [False, True, True]]))
    with hurray.copies() as log:
        found = tensor.to_torch()
    assert found.dtype is torch.bool
    assert found.tolist() == [[True, False, True], [False, True, True]]
    assert [c.reason for c in log] == ["packing"]


@pytest.mark.parametrize(
    "dtype", ["int4", "uint4", "int2", "uint2", "float6_e2m3", "float6_e3m2", "float128"]
)
def test_types_that_torch_lacks(torch, dtype):
    tensor = hurray.Tensor(aligned(64), getattr(hurray.dtype, dtype), [4])
    with pytest.raises(hurray.UnsupportedError, match=dtype):
        tensor.to_torch()
    assert tensor.buffer(0).to_torch().dtype is torch.uint8


@pytest.mark.parametrize("view", [lambda a: a.T, lambda a: a[:, ::2], lambda a: a[1:, 1:]])
def test_strides_and_offsets(torch, view):
    # pytorch/pytorch#168177: the offset is part of the address
    array = shared((4, 8))
    tensor = hurray.from_numpy(view(array), copy=False)
    found = tensor.to_torch()
    assert found.data_ptr() == view(array).ctypes.data
    assert np.array_equal(found.numpy(), view(array))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1)])
def test_shapes_at_the_edge(torch, shape):
    found = hurray.from_numpy(shared(shape)).to_torch()
    assert tuple(found.shape) == shape


def test_the_memory_outlives_the_tensor(torch):
    array = shared()
    reference = weakref.ref(array)
    found = hurray.from_numpy(array).to_torch()
    del array
    gc.collect()
    assert reference() is not None
    assert found.sum() == 66
    del found
    gc.collect()
    assert reference() is None


def test_there_and_back(torch):
    array = shared((5, 6))
    found = hurray.from_torch(hurray.from_numpy(array).to_torch(), copy=False)
    assert np.asarray(found).ctypes.data == array.ctypes.data
    assert found.layout == hurray.RowMajorLayout()


def test_parts_of_a_quantized_tensor(torch):
    codes, scales = shared((4, 16), np.int8), shared((4,))
    tensor = hurray.Tensor(
        codes,
        hurray.int8,
        codes.shape,
        aux_buffers=[scales],
        quantization=hurray.PerChannelAffine.symmetric(0, 1),
    )
    with pytest.raises(hurray.UnsupportedError, match="codes"):
        tensor.to_torch()
    weights = tensor.codes.to_torch() * tensor.buffer(1).to_torch().view(torch.float32)[:, None]
    assert np.array_equal(weights.numpy(), codes * scales[:, None])


def test_a_sparse_tensor(torch):
    tensor = hurray.Tensor(
        shared((2,)),
        hurray.float32,
        [4, 4],
        aux_buffers=[bytes(16), bytes(40)],
        layout=hurray.CsrLayout(nnz=2),
    )
    with pytest.raises(hurray.UnsupportedError, match="values"):
        tensor.to_torch()
    assert tensor.values.to_torch().tolist() == [0, 1]
