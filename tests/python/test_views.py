"""Tensors over the buffers of another: no byte moves, and only what is needed lives on."""

import numpy as np
import pytest
from placed import aligned

import hurray


def address(tensor) -> int:
    return np.asarray(tensor).__array_interface__["data"][0]


@pytest.fixture
def quantized() -> hurray.Tensor:
    codes = aligned(12)
    codes[:] = np.arange(12)
    return hurray.Tensor(
        codes.view(np.int8),
        hurray.int8,
        [3, 4],
        aux_buffers=[aligned(12), aligned(12)],
        quantization=hurray.PerChannelAffine.asymmetric(0, 1, 2),
        statistics=hurray.Statistics(nnz=3),
        shard=hurray.Shard([6, 4], [3, 0]),
    )


@pytest.fixture
def csr() -> hurray.Tensor:
    return hurray.Tensor(
        np.array([5, 7, 9], np.float32),
        hurray.float32,
        [2, 4],
        aux_buffers=[np.array([0, 3, 1], np.uint64), np.array([0, 2, 3], np.uint64)],
        layout=hurray.CsrLayout(nnz=3),
    )


@pytest.fixture
def coo() -> hurray.Tensor:
    return hurray.Tensor(
        np.array([5, 7], np.float32),
        hurray.float32,
        [2, 4],
        aux_buffers=[np.array([[0, 1], [1, 3]], np.uint64)],
        layout=hurray.CooLayout(nnz=2),
    )


def test_buffer(quantized):
    for i in range(3):
        view = quantized.buffer(i)
        assert isinstance(view, hurray.Tensor)
        assert view.dtype is hurray.uint8
        assert view.shape == (12,)
        assert view.layout == hurray.RowMajorLayout()
        assert view.quantization is None
        assert view.buffer_handles == quantized.buffer_handles[i : i + 1]
    assert np.asarray(quantized.buffer(0)).tolist() == list(range(12))


@pytest.mark.parametrize("index", [3, 255, 2**64, -1, -(2**70)])
def test_no_such_buffer(quantized, index):
    with pytest.raises(IndexError, match=f"index {index}; this tensor has 3"):
        quantized.buffer(index)


@pytest.mark.parametrize("index", ["0", None, 0.0])
def test_what_is_no_index(quantized, index):
    with pytest.raises(TypeError):
        quantized.buffer(index)


def test_an_index_like_numpys(quantized):
    assert quantized.buffer(np.int64(1)).shape == (12,)


def test_buffer_of_a_slice_is_the_whole_buffer_decision_19():
    whole = aligned(256)
    tensor = hurray.from_numpy(whole[100:])
    assert address(tensor.buffer(0)) == whole.ctypes.data + 64
    assert tensor.buffer(0).shape == (256 - 64,)


def test_buffer_views_are_memory():
    memory = aligned(16)
    view = memoryview(hurray.Tensor(memory, hurray.float32, [4]).buffer(0))
    assert (view.format, view.itemsize, view.shape, view.readonly) == ("B", 1, (16,), False)
    view[3] = 200
    assert memory[3] == 200
    assert bytes(view) == memory.tobytes()


def test_codes(quantized):
    with hurray.copies() as log:
        codes = quantized.codes
        assert address(codes) == address(quantized.buffer(0))
    assert log == []
    assert codes.quantization is None
    assert codes.statistics is None
    assert codes.buffer_count == 1
    assert codes.shard == quantized.shard
    assert codes.shape == quantized.shape
    assert np.asarray(codes).tolist() == np.arange(12).reshape(3, 4).tolist()
    assert codes.dtype is hurray.int8


def test_codes_of_a_quantized_sparse_tensor(csr):
    tensor = hurray.Tensor(
        np.array([5, 7, 9], np.int8),
        hurray.int8,
        [2, 4],
        aux_buffers=[csr.buffer(1), csr.buffer(2), np.ones(2, np.float32)],
        layout=hurray.CsrLayout(nnz=3),
        quantization=hurray.PerChannelAffine.symmetric(0, 3),
    )
    assert tensor.codes.buffer_count == 3
    assert tensor.codes.layout == hurray.CsrLayout(nnz=3)
    assert np.asarray(tensor.codes.values).tolist() == [5, 7, 9]
    with pytest.raises(hurray.UnsupportedError, match=r"codes\.values"):
        _ = tensor.values


def test_codes_of_a_slice():
    array = np.arange(64, dtype=np.int8)
    with hurray.aligned_allocator():
        array = array.copy()
    tensor = hurray.Tensor(
        array[10:20], hurray.int8, [10], quantization=hurray.PerTensorAffine(0.5, 0)
    )
    assert np.asarray(tensor.codes).tolist() == list(range(10, 20))


def test_codes_of_a_tensor_that_is_not_quantized(csr):
    assert not hasattr(csr, "codes")
    with pytest.raises(AttributeError, match="not quantized"):
        _ = csr.codes


def test_transpose_of_row_major():
    array = aligned(48).view(np.float32).reshape(3, 4)
    array[:] = np.arange(12).reshape(3, 4)
    tensor = hurray.from_numpy(array)
    assert tensor.T.layout == hurray.ColMajorLayout()
    assert tensor.T.shape == (4, 3)
    assert np.array_equal(np.asarray(tensor.T), array.T)
    assert address(tensor.T) == address(tensor)
    assert tensor.T.T.descriptor == tensor.descriptor


@pytest.mark.parametrize("axes", [(0, 1, 2), (1, 0, 2), (2, 0, 1)])
def test_transpose_reverses_all_axes(axes):
    array = np.arange(24).reshape(2, 3, 4).transpose(axes)[:, ::-1]
    tensor = hurray.from_numpy(array)
    assert np.array_equal(np.asarray(tensor.T), array.T)


def test_transpose_of_packed_elements():
    array = np.random.default_rng(0).integers(0, 2, (5, 7)).astype(bool)
    assert np.array_equal(np.asarray(hurray.from_numpy(array).T), array.T)


@pytest.mark.parametrize("shape", [(), (3,)])
def test_transpose_of_less_than_two_axes(shape):
    tensor = hurray.from_numpy(np.zeros(shape))
    assert tensor.T.descriptor == tensor.descriptor


def test_transpose_of_a_quantized_tensor(quantized):
    transposed = quantized.T
    assert transposed.quantization == hurray.PerChannelAffine.asymmetric(1, 1, 2)
    assert transposed.shard == hurray.Shard([4, 6], [0, 3])
    assert np.array_equal(np.asarray(transposed.codes), np.asarray(quantized.codes).T)
    assert transposed.buffer_handles == quantized.buffer_handles


def test_transpose_of_a_block_wise_tensor():
    tensor = hurray.Tensor(
        bytes(64),
        hurray.int8,
        [2, 32],
        aux_buffers=[bytes(8)],
        quantization=hurray.PerBlockAffine.symmetric(1, 32, 1, hurray.float32),
    )
    with pytest.raises(hurray.UnsupportedError, match=r"codes\.T"):
        _ = tensor.T
    assert tensor.codes.T.shape == (32, 2)


def test_transpose_of_csr_is_csc(csr):
    csc = csr.T
    assert csc.layout == hurray.CscLayout(nnz=3)
    assert csc.shape == (4, 2)
    assert address(csc.row_indices) == address(csr.col_indices)
    assert address(csc.col_ptr) == address(csr.row_ptr)
    assert csc.T.descriptor == csr.descriptor


def test_layouts_without_a_transpose(coo):
    tiled = hurray.Tensor(bytes(64), hurray.float32, [4, 4], layout=hurray.TiledLayout([2, 2]))
    for tensor in (coo, tiled):
        with pytest.raises(hurray.UnsupportedError, match=tensor.layout.name):
            _ = tensor.T


def test_components_of_csr(csr):
    with hurray.copies() as log:
        assert np.asarray(csr.values).tolist() == [5, 7, 9]
        assert np.asarray(csr.col_indices).tolist() == [0, 3, 1]
        assert np.asarray(csr.row_ptr).tolist() == [0, 2, 3]
    assert log == []
    assert csr.nnz == 3
    assert csr.values.dtype is hurray.float32
    assert csr.col_indices.dtype is csr.row_ptr.dtype is hurray.uint64
    assert address(csr.values) == address(csr.buffer(0))
    assert address(csr.row_ptr) == address(csr.buffer(2))


def test_components_of_csc(csr):
    csc = csr.T
    assert np.asarray(csc.values).tolist() == [5, 7, 9]
    assert np.asarray(csc.row_indices).tolist() == [0, 3, 1]
    assert np.asarray(csc.col_ptr).tolist() == [0, 2, 3]


def test_components_of_coo(coo):
    assert np.asarray(coo.values).tolist() == [5, 7]
    assert np.asarray(coo.indices).tolist() == [[0, 1], [1, 3]]
    assert coo.nnz == 2


COMPONENTS = {"values", "indices", "col_indices", "row_ptr", "row_indices", "col_ptr", "nnz"}


def test_components_that_a_layout_lacks(coo, csr):
    """`hasattr` tells."""
    has = {
        coo: {"values", "indices", "nnz"},
        csr: {"values", "col_indices", "row_ptr", "nnz"},
        csr.T: {"values", "row_indices", "col_ptr", "nnz"},
        hurray.Tensor(bytes(16), hurray.float32, [4]): set(),
    }
    for tensor, names in has.items():
        assert {name for name in COMPONENTS if hasattr(tensor, name)} == names
        for name in COMPONENTS - names:
            with pytest.raises(AttributeError, match=f"'{name}'.*{tensor.layout.name}"):
                getattr(tensor, name)


def test_components_leave_out_what_the_buffers_have_more():
    tensor = hurray.Tensor(
        bytes(400),
        hurray.float32,
        [2, 4],
        aux_buffers=[bytes(400), bytes(400)],
        layout=hurray.CsrLayout(nnz=3),
    )
    assert tensor.values.shape == tensor.col_indices.shape == tensor.row_ptr.shape == (3,)
    assert tensor.buffer(0).shape == (400,)


def test_no_stored_elements():
    tensor = hurray.Tensor(
        b"",
        hurray.float32,
        [2, 4],
        aux_buffers=[b"", bytes(24)],
        layout=hurray.CsrLayout(nnz=0),
    )
    assert tensor.values.shape == tensor.col_indices.shape == (0,)
    assert np.asarray(tensor.values).size == 0
    assert hurray.from_hurray(tensor).descriptor == tensor.descriptor


def test_views_are_read_only_where_the_source_is():
    array = aligned(16).view(np.float32)
    array.flags.writeable = False
    tensor = hurray.from_numpy(array)
    for view in (tensor.buffer(0), tensor.T, hurray.from_hurray(tensor).buffer(0)):
        assert not np.asarray(view).flags.writeable
        assert memoryview(view).readonly
    writable = hurray.from_numpy(aligned(16))
    assert np.asarray(writable.buffer(0)).flags.writeable


def test_views_of_views(quantized):
    view = quantized.codes.T.T.buffer(0).T.buffer(0)
    assert address(view) == address(quantized.buffer(0))
