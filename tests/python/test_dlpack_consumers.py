"""Each real consumer and producer of DLPack, in both directions, for every type that both have."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from dlpack_producer import array_at
from numpy.typing import NDArray

import hurray

# Our name, NumPy's or ml_dtypes' type.
TYPES: dict[str, Any] = {
    "bool": np.bool_,
    "int8": np.int8,
    "uint8": np.uint8,
    "int16": np.int16,
    "uint16": np.uint16,
    "int32": np.int32,
    "uint32": np.uint32,
    "int64": np.int64,
    "uint64": np.uint64,
    "float16": np.float16,
    "float32": np.float32,
    "float64": np.float64,
    "complex64": np.complex64,
    "complex128": np.complex128,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e8m0": ml_dtypes.float8_e8m0fnu,
}
NUMPY = list(TYPES)[:14]
TORCH = list(TYPES)
TVM = [name for name in TYPES if not name.startswith("complex")]
ARROW = [n for n in NUMPY if n != "bool" and not n.startswith("complex")]


def values(name: str) -> NDArray[Any]:
    array = array_at(0, (4, 6), TYPES[name])
    array[...] = np.array([0, 1, 2, 4] * 6).reshape(4, 6).astype(TYPES[name])
    return array


def same(found: NDArray[Any], expected: NDArray[Any]) -> bool:
    return found.shape == expected.shape and found.tobytes() == expected.tobytes()


def of_torch(tensor: Any) -> NDArray[Any]:
    import torch

    return tensor.contiguous().view(torch.uint8).numpy()


@pytest.fixture(scope="module")
def jax() -> Any:
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    return jax


@pytest.mark.parametrize("name", NUMPY)
def test_numpy(name: str) -> None:
    array = values(name)
    tensor = hurray.from_numpy(array)
    out = np.from_dlpack(tensor)
    assert out.dtype == array.dtype
    assert same(out, array)
    assert (out.ctypes.data == array.ctypes.data) == (name != "bool")

    back = hurray.from_dlpack(array)
    assert back.dtype is getattr(hurray.dtype, name)
    assert same(np.asarray(back), array)


@pytest.mark.parametrize("name", NUMPY)
def test_numpy_through_its_capsule(name: str) -> None:
    class Sub(np.ndarray):
        """Not exactly an ndarray, so that `__dlpack__` is called."""

    array = values(name)
    back = hurray.from_dlpack(array.view(Sub))
    assert back.dtype is getattr(hurray.dtype, name)
    assert same(np.asarray(back), array)


@pytest.mark.parametrize("name", TORCH)
def test_torch(name: str, torch: Any) -> None:
    array = values(name)
    tensor = hurray.from_numpy(array)
    out = torch.from_dlpack(tensor)
    assert tuple(out.shape) == array.shape
    assert of_torch(out).tobytes() == array.tobytes()
    assert (out.data_ptr() == array.ctypes.data) == (name != "bool")

    back = hurray.from_dlpack(out.clone())
    assert back.dtype is getattr(hurray.dtype, name)
    assert same(np.asarray(back), array)


@pytest.mark.parametrize("name", TORCH)
def test_jax(name: str, jax: Any) -> None:
    array = values(name)
    tensor = hurray.from_numpy(array)
    out = jax.dlpack.from_dlpack(tensor)
    assert same(np.asarray(out), array)
    if name != "bool":
        assert out.unsafe_buffer_pointer() == array.ctypes.data

    back = hurray.from_dlpack(jax.numpy.asarray(array))
    assert back.dtype is getattr(hurray.dtype, name)
    assert same(np.asarray(back), array)


@pytest.mark.parametrize("name", TVM)
def test_tvm_ffi(name: str, torch: Any) -> None:
    tvm_ffi = pytest.importorskip("tvm_ffi")
    array = values(name)
    tensor = hurray.from_numpy(array)
    out = tvm_ffi.from_dlpack(tensor)
    assert tuple(out.shape) == array.shape
    assert of_torch(torch.from_dlpack(out)).tobytes() == array.tobytes()

    back = hurray.from_dlpack(out)
    assert back.dtype is getattr(hurray.dtype, name)
    assert same(np.asarray(back), array)


@pytest.mark.parametrize("name", ARROW)
def test_pyarrow(name: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    array = values(name)
    tensor = hurray.from_numpy(array)
    assert same(pyarrow.Tensor.from_dlpack(tensor).to_numpy(), array)
    row = array[0]
    assert same(pyarrow.Array.from_dlpack(hurray.from_numpy(row)).to_numpy(), row)

    for producer in [pyarrow.array(array.reshape(-1)), pyarrow.Tensor.from_numpy(array)]:
        back = hurray.from_dlpack(producer)
        assert back.dtype is getattr(hurray.dtype, name)
        assert np.asarray(back).tobytes() == array.tobytes()


CONSUMERS: dict[str, Callable[[Any], int]] = {
    "numpy": lambda t: np.from_dlpack(t).ctypes.data,
    "torch": lambda t: __import__("torch").from_dlpack(t).data_ptr(),
}


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_strides_and_offsets_arrive(consumer: str, torch: Any) -> None:
    array = array_at(0, (8, 16))
    array[...] = np.arange(128).reshape(8, 16)
    for view in [array.T, array[1:, ::2], array[3], array[:, 5:6], array[2:2]]:
        tensor = hurray.from_dlpack(view)
        out = np.from_dlpack(tensor) if consumer == "numpy" else torch.from_dlpack(tensor).numpy()
        assert out.shape == view.shape
        assert np.array_equal(out, view)
        if view.size:
            assert CONSUMERS[consumer](tensor) == view.ctypes.data


def test_scalars_and_empty_arrays(torch: Any, jax: Any) -> None:
    scalar = hurray.from_dlpack(np.array(7.0))
    empty = hurray.from_dlpack(np.zeros((0, 4), np.float32))
    assert np.from_dlpack(scalar) == 7.0
    assert torch.from_dlpack(scalar).item() == 7.0
    assert jax.dlpack.from_dlpack(scalar) == 7.0
    assert np.from_dlpack(empty).shape == (0, 4)
    assert tuple(torch.from_dlpack(empty).shape) == (0, 4)
    assert jax.dlpack.from_dlpack(empty).shape == (0, 4)
    for producer in [torch.tensor(7.0), jax.numpy.float32(7.0)]:
        assert np.asarray(hurray.from_dlpack(producer)) == 7.0
    for producer in [torch.zeros(0, 4), jax.numpy.zeros((0, 4))]:
        assert hurray.from_dlpack(producer).shape == (0, 4)


def test_a_chain_of_libraries_holds_the_first_ones_memory(torch: Any) -> None:
    tvm_ffi = pytest.importorskip("tvm_ffi")
    array = array_at(0, 1024)
    array[:] = np.arange(1024)
    address = array.ctypes.data
    last = tvm_ffi.from_dlpack(hurray.from_dlpack(torch.from_dlpack(hurray.from_numpy(array))))
    del array
    out = np.from_dlpack(last)
    assert out.ctypes.data == address
    assert out.sum() == 1023 * 512


def test_torch_writes_are_seen(torch: Any) -> None:
    array = array_at(0, 16)
    torch.from_dlpack(hurray.from_numpy(array)).add_(3)
    assert (array == 3).all()
