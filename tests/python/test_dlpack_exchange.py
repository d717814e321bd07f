"""The C exchange API of DLPack 1.3, both ways."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from dlpack_producer import array_at, capsule_name, capsule_pointer, new_capsule

import hurray


@contextmanager
def python_protocol_of(class_: Any) -> Iterator[list[str]]:
    """Lists the calls of a class's `__dlpack__`."""
    calls: list[str] = []
    own = class_.__dlpack__

    def counting(self: Any, *arguments: Any, **keywords: Any) -> Any:
        calls.append("__dlpack__")
        return own(self, *arguments, **keywords)

    class_.__dlpack__ = counting
    try:
        yield calls
    finally:
        class_.__dlpack__ = own


def test_the_capsule_is_on_the_type() -> None:
    # K1: dmlc/dlpack#179, pytorch/pytorch#169724.
    capsule = vars(hurray.Tensor)["__dlpack_c_exchange_api__"]
    assert capsule_name(capsule) == "dlpack_exchange_api"
    table = capsule_pointer(capsule)
    words = ctypes.cast(table, ctypes.POINTER(ctypes.c_uint32))
    assert words[0] == 1
    pointers = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))
    # The allocator, both ways and the stream; a borrowed view is not offered.
    assert [bool(pointers[i]) for i in range(2, 7)] == [True, True, True, False, True]


def test_tvm_ffi_takes_tensors_through_it() -> None:
    tvm_ffi = pytest.importorskip("tvm_ffi")
    array = array_at(0, 16)
    array[:] = np.arange(16)
    out = tvm_ffi.from_dlpack(hurray.from_numpy(array))
    assert out.data_ptr() == array.ctypes.data
    read_only = array.view()
    read_only.flags.writeable = False
    # The legacy protocol, which cannot say read-only, would refuse this.
    tvm_ffi.from_dlpack(hurray.from_numpy(read_only))


def test_torchs_tensors_come_through_it(torch: Any) -> None:
    hurray.from_dlpack(torch.zeros(1))
    with python_protocol_of(torch.Tensor) as calls:
        weights = torch.arange(1024.0)
        taken = hurray.from_dlpack(weights)
    assert calls == []
    assert np.asarray(taken).ctypes.data == weights.data_ptr()


def test_subclasses_are_asked_themselves(torch: Any) -> None:
    # K3: torch.nn.Parameter and user subclasses inherit the capsule.
    class Sub(torch.Tensor):
        pass

    with python_protocol_of(torch.Tensor) as calls:
        taken = hurray.from_dlpack(torch.ones(16).as_subclass(Sub))
    assert calls
    assert (np.asarray(taken) == 1).all()
    with pytest.raises(BufferError, match="gradient"):
        hurray.from_dlpack(torch.nn.Parameter(torch.ones(16)))


def test_torchs_own_checks_are_not_passed_by(torch: Any) -> None:
    with pytest.raises(BufferError, match="gradient"):
        hurray.from_dlpack(torch.ones(16, requires_grad=True))
    values = torch.arange(8).to(torch.complex64) * (1 + 2j)
    with pytest.raises(BufferError, match="conjugate"):
        hurray.from_dlpack(values.conj())
    # Torch itself exports these bytes as if they were the values.
    with pytest.raises(BufferError, match="resolve_neg"):
        hurray.from_dlpack(values.conj().imag)
    # G4: apache/tvm#18474: a sparse tensor has no storage of its own.
    with pytest.raises((BufferError, RuntimeError)):
        hurray.from_dlpack(torch.eye(3).to_sparse())


def test_a_table_that_is_none_is_as_no_table() -> None:
    # K1: apache/tvm-ffi#301: the attribute was an int once.
    for attribute in [12345, None, "no"]:

        class Named(np.ndarray):
            __dlpack_c_exchange_api__ = attribute

        taken = hurray.from_dlpack(array_at(0, 16).view(Named))
        assert taken.shape == (16,)


_KEEP: list[Any] = []


def _table(major: int, previous: int = 0) -> Any:
    """A header: version, then the older table; then five functions that must not be called."""
    words = (ctypes.c_uint64 * 7)(major, previous, 0, 0, 0, 0, 0)
    _KEEP.append(words)
    return words


NAME = b"dlpack_exchange_api"


@pytest.mark.parametrize("name", [NAME, b"another"])
def test_an_unknown_major_version_is_as_no_table(name: bytes) -> None:
    # K1: the chain is walked, and ends, even if it is a circle.
    circle = _table(7)
    circle[1] = ctypes.addressof(circle)
    for words in [_table(2), _table(2, ctypes.addressof(_table(3))), circle]:

        class Future(np.ndarray):
            __dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(words), name)

        assert hurray.from_dlpack(array_at(0, 16).view(Future)).shape == (16,)


def test_an_older_table_in_the_chain_is_used() -> None:
    real = capsule_pointer(vars(hurray.Tensor)["__dlpack_c_exchange_api__"])
    newer = _table(2, real)

    class Newer(np.ndarray):
        """Its table is ours, which does not know it: the error has `__dlpack__` asked."""

        __dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(newer), NAME)

    assert hurray.from_dlpack(array_at(0, 16).view(Newer)).shape == (16,)
