"""PyTorch tensors in."""

import subprocess
import sys

import numpy as np
import pytest
from placed import aligned, at

import hurray

# fmt: off
NATIVE = [
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
]
# fmt: on


def address(tensor) -> int:
    return np.asarray(tensor).__array_interface__["data"][0]


def shared(torch, shape=(3, 4), dtype=np.float32):
    """A torch tensor on the boundary, 0, 1, 2, …"""
    dtype = np.dtype(dtype)
    array = aligned(int(np.prod(shape)) * dtype.itemsize).view(dtype).reshape(shape)
    array[...] = np.arange(array.size).reshape(shape).astype(dtype)
    return torch.from_numpy(array)


@pytest.mark.parametrize("name", NATIVE)
def test_types_that_numpy_has(torch, name):
    tensor = shared(torch, dtype=name)
    with hurray.copies() as log:
        found = hurray.from_torch(tensor, copy=False)
    assert log == []
    assert found.dtype is getattr(hurray.dtype, name)
    assert address(found) == tensor.data_ptr()
    assert np.array_equal(np.asarray(found), tensor.numpy())


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("bfloat16", "bfloat16"),
        ("float8_e4m3fn", "float8_e4m3"),
        ("float8_e5m2", "float8_e5m2"),
        ("float8_e8m0fnu", "float8_e8m0"),
    ],
)
def test_types_that_numpy_lacks(torch, name, dtype):
    codes = shared(torch, (64,), np.uint8)
    found = hurray.from_torch(codes.view(getattr(torch, name)), copy=False)
    assert found.dtype is getattr(hurray.dtype, dtype)
    assert address(found.buffer(0)) == codes.data_ptr()


def test_fp4_pairs_become_elements(torch):
    # dmlc/dlpack#158
    codes = shared(torch, (4, 8), np.uint8)
    found = hurray.from_torch(codes.view(torch.float4_e2m1fn_x2), copy=False)
    assert (found.dtype, found.shape) == (hurray.dtype.float4_e2m1, (4, 16))
    assert address(found.buffer(0)) == codes.data_ptr()


def test_bool_is_packed_decision_18(torch):
    tensor = torch.tensor([True, False, True])
    with hurray.copies() as log:
        found = hurray.from_torch(tensor)
    assert found.dtype is hurray.bool
    assert np.asarray(found.buffer(0)).tolist() == [5]
    assert [(c.reason, c.call) for c in log] == [("packing", "from_torch")]
    with pytest.raises(hurray.CopyRequiredError, match="pack"):
        hurray.from_torch(tensor, copy=False)


@pytest.mark.parametrize(
    "view", [lambda x: x.T, lambda x: x[:, ::2], lambda x: x[0].expand(5, 4), lambda x: x[1:]]
)
def test_strides_stay(torch, view):
    tensor = view(shared(torch))
    found = hurray.from_torch(tensor)
    assert np.array_equal(np.asarray(found), tensor.numpy())


def test_alignment(torch):
    tensor = torch.from_numpy(at(16, (8,)))
    with pytest.raises(hurray.CopyRequiredError, match="aligned to 16 bytes"):
        hurray.from_torch(tensor, copy=False)
    with hurray.copies() as log:
        found = hurray.from_torch(tensor)
    assert [(c.bytes, c.reason, c.call) for c in log] == [(32, "alignment", "from_torch")]
    assert np.array_equal(np.asarray(found), tensor.numpy())


def test_copy_true_copies(torch):
    tensor = shared(torch)
    with hurray.copies() as log:
        found = hurray.from_torch(tensor, copy=True)
    assert [c.reason for c in log] == ["request"]
    assert address(found) != tensor.data_ptr()


def test_writes_show_on_both_sides(torch):
    tensor = shared(torch)
    found = hurray.from_torch(tensor, copy=False)
    tensor[0, 0] = 5
    assert np.asarray(found)[0, 0] == 5
    np.asarray(found)[0, 1] = 6
    assert tensor[0, 1] == 6


def test_the_memory_outlives_the_tensor(torch):
    tensor = torch.arange(1000.0)
    found = hurray.from_torch(tensor)
    total = float(tensor.sum())
    del tensor
    assert np.asarray(found).sum() == total


def test_a_parameter(torch):
    parameter = torch.nn.Parameter(shared(torch))
    with pytest.raises(BufferError, match="detach"):
        hurray.from_torch(parameter)
    assert address(hurray.from_torch(parameter.detach(), copy=False)) == parameter.data_ptr()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "make",
    [
        lambda torch: torch.eye(3).to_sparse(),
        lambda torch: torch.eye(3).to_sparse_csr(),
        lambda torch: torch.zeros(3, dtype=torch.complex64).conj(),
        lambda torch: torch.zeros(3, dtype=torch.complex64).conj().imag,
        lambda torch: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        lambda torch: torch.zeros(3, device="meta"),
    ],
)
def test_what_is_no_plain_memory(torch, make):
    with pytest.raises((BufferError, ValueError, RuntimeError, NotImplementedError)):
        hurray.from_torch(make(torch))


@pytest.mark.parametrize("thing", [3, [1.0], np.zeros(3), b"bytes", None])
def test_what_is_no_tensor(torch, thing):
    with pytest.raises(TypeError, match=r"torch\.Tensor"):
        hurray.from_torch(thing)


@pytest.mark.parametrize("call", ["hurray.from_torch(3)", "tensor.to_torch()"])
def test_without_torch(call):
    program = f"""
import sys
sys.modules["torch"] = None
import hurray
tensor = hurray.Tensor(bytes(16), hurray.float32, [4])
try:
    {call}
except ImportError as error:
    assert "pip install torch" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_torch_is_imported_only_when_it_is_asked_for():
    program = "import sys, hurray; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_tensor_as_a_buffer(torch):
    codes, scales = shared(torch, (4, 16), np.int8), shared(torch, (4,))
    with hurray.copies() as log:
        tensor = hurray.Tensor(
            codes,
            hurray.int8,
            codes.shape,
            aux_buffers=[scales],
            quantization=hurray.PerChannelAffine.symmetric(0, 1),
        )
    assert log == []
    assert address(tensor.buffer(0)) == codes.data_ptr()
    assert address(tensor.buffer(1)) == scales.data_ptr()
    received = hurray.from_hurray(tensor)
    del tensor, codes
    assert np.asarray(received.buffer(0))[63] == 63
