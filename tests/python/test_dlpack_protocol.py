"""`__dlpack__`, `__dlpack_device__` and `from_dlpack`: arguments, flags, versions, refusals."""

import gc
import re
from typing import Any

import numpy as np
import pytest
from dlpack_producer import IS_COPIED, READ_ONLY, Fields, Producer, array_at, capsule_name

import hurray


def tensor(shape: Any = 16, dtype: Any = np.float32) -> hurray.Tensor:
    return hurray.from_numpy(array_at(0, shape, dtype))


# Out.


@pytest.mark.parametrize(
    ("max_version", "version"),
    [(None, None), ((0, 8), None), ((1, 0), (1, 3)), ((1, 3), (1, 3)), ((2, 0), (1, 3))],
)
def test_max_version_chooses_the_capsule(max_version: Any, version: Any) -> None:
    assert Fields(tensor().__dlpack__(max_version=max_version)).version == version


def test_a_capsule_says_what_the_tensor_is() -> None:
    array = array_at(0, (8, 16))
    view = array[1:, ::2]
    fields = Fields(hurray.from_numpy(view).__dlpack__(max_version=(1, 0)))
    assert fields.data == view.ctypes.data
    assert fields.byte_offset == 0
    assert (fields.shape, fields.strides) == ((7, 8), (16, 2))
    assert fields.dtype == (2, 32, 1)
    assert fields.device == (1, 0)
    assert fields.flags == 0


def test_the_device_is_dlpacks_not_ours() -> None:
    assert tensor().__dlpack_device__() == (1, 0)


@pytest.mark.parametrize("copy", [None, False])
def test_no_copy_has_no_flag(copy: Any) -> None:
    with hurray.copies() as log:
        fields = Fields(tensor().__dlpack__(max_version=(1, 0), copy=copy))
    assert fields.flags == 0
    assert not log


def test_a_copy_is_flagged_and_reported() -> None:
    source = tensor()
    with hurray.copies() as log:
        fields = Fields(source.__dlpack__(max_version=(1, 0), copy=True))
    assert fields.flags == IS_COPIED
    assert fields.data % 64 == 0
    assert [(c.bytes, c.reason, c.call) for c in log] == [(64, "request", "__dlpack__")]


def test_unpacking_booleans_is_a_reported_copy() -> None:
    source = hurray.from_numpy(np.array([True, False, True]))
    with hurray.copies() as log:
        fields = Fields(source.__dlpack__(max_version=(1, 0)))
    assert fields.dtype == (6, 8, 1)
    assert fields.flags == IS_COPIED
    assert [(c.bytes, c.reason) for c in log] == [(3, "packing")]
    with pytest.raises(BufferError, match="copy=False"):
        source.__dlpack__(copy=False)


def test_numpy_asks_for_copies() -> None:
    array = array_at(0, 16)
    source = hurray.from_numpy(array)
    assert np.from_dlpack(source, copy=True).ctypes.data != array.ctypes.data
    assert np.from_dlpack(source, copy=False).ctypes.data == array.ctypes.data
    assert np.from_dlpack(source, device="cpu").ctypes.data == array.ctypes.data


@pytest.mark.parametrize("stream", [None, -1])
def test_memory_of_the_cpu_has_no_stream(stream: Any) -> None:
    assert capsule_name(tensor().__dlpack__(stream=stream)) == "dltensor"


# E1: pytorch/pytorch#67618, cupy/cupy#5970: stream 0 is ambiguous; the CPU has none at all.
@pytest.mark.parametrize("stream", [0, 1, 2, -2, 12345, True, False, 1.0, "1", object()])
def test_another_stream_is_a_value_error(stream: Any) -> None:
    with pytest.raises(ValueError, match="stream must be None or -1"):
        tensor().__dlpack__(stream=stream)
    with pytest.raises(ValueError, match="stream must be None or -1"):
        hurray.from_dlpack(Producer(array_at(0, 4)), stream=stream)
    with pytest.raises(ValueError, match="stream must be None or -1"):
        hurray.from_dlpack(array_at(0, 4), stream=stream)


# E2: data-apis/array-api#974: None and no argument are the same here.
def test_no_stream_and_none_are_the_same() -> None:
    source = tensor()
    assert Fields(source.__dlpack__()).data == Fields(source.__dlpack__(stream=None)).data


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_version": 1},
        {"max_version": (1,)},
        {"max_version": ("1", "0")},
        {"copy": 2},
        {"copy": "no"},
        {"dl_device": 1},
        {"dl_device": (1,)},
        {"dl_device": (-1, 0)},
    ],
)
def test_bad_arguments_are_value_errors(arguments: dict[str, Any]) -> None:
    # C7: a TypeError would have consumers call again without the arguments.
    with pytest.raises(ValueError, match=next(iter(arguments))):
        tensor().__dlpack__(**arguments)


def test_unknown_arguments_are_type_errors() -> None:
    with pytest.raises(TypeError):
        tensor().__dlpack__(colour="red")


@pytest.mark.parametrize("device", [(2, 0), (1, 1), (3, 0), (99, 0)])
def test_another_device_is_a_buffer_error(device: Any) -> None:
    with pytest.raises(BufferError, match="was asked for") as caught:
        tensor().__dlpack__(dl_device=device)
    assert isinstance(caught.value, hurray.UnsupportedError)
    assert tensor().__dlpack__(dl_device=(1, 0)) is not None


def test_what_has_no_such_form_is_refused() -> None:
    quantized = hurray.Tensor(
        array_at(0, 16, np.int8), hurray.int8, [16], quantization=hurray.PerTensorAffine(0.5, 0)
    )
    sparse = hurray.Tensor(
        array_at(0, 2),
        hurray.float32,
        [4, 4],
        aux_buffers=[array_at(0, 2, np.uint64), array_at(0, 5, np.uint64)],
        layout=hurray.CsrLayout(2),
    )
    wide = hurray.Tensor(array_at(0, 16, np.uint8), hurray.dtype.float128, [1])
    for source, text in [(quantized, "quantized"), (sparse, "CSR"), (wide, "float128")]:
        with pytest.raises(BufferError, match=text) as caught:
            source.__dlpack__()
        assert isinstance(caught.value, hurray.UnsupportedError)


def test_a_capsule_that_nobody_takes_lets_go() -> None:
    array = array_at(0, 16)
    import weakref

    gone = weakref.ref(array)
    source = hurray.from_numpy(array)
    capsules = [source.__dlpack__(), source.__dlpack__(max_version=(1, 0))]
    del array, source
    gc.collect()
    assert gone() is not None
    del capsules
    assert gone() is None


# In.


def test_memory_on_a_boundary_is_shared() -> None:
    producer = Producer(array_at(64, 16), (16,))
    with hurray.copies() as log:
        taken = hurray.from_dlpack(producer)
    assert not log
    assert producer.deleted == 0
    assert np.asarray(taken).ctypes.data == producer.address
    del taken
    assert producer.deleted == 1


@pytest.mark.parametrize("version", [None, (1, 0)])
@pytest.mark.parametrize("offset", [4, 16, 32, 60])
def test_memory_off_a_boundary_is_copied(version: Any, offset: int) -> None:
    array = array_at(offset, 16)
    array[:] = np.arange(16)
    producer = Producer(array, (16,), version=version)
    with hurray.copies() as log:
        taken = hurray.from_dlpack(producer)
    assert [(c.bytes, c.reason, c.call) for c in log] == [(64, "alignment", "from_dlpack")]
    assert producer.deleted == 1
    assert np.array_equal(np.asarray(taken), np.arange(16))
    alignment = offset & -offset
    with pytest.raises(hurray.CopyRequiredError, match=f"aligned to {alignment} bytes"):
        hurray.from_dlpack(producer, copy=False)
    assert producer.deleted == 2


def test_a_wanted_copy_is_one_copy() -> None:
    array = array_at(0, 16)
    producer = Producer(array, (16,))
    with hurray.copies() as log:
        taken = hurray.from_dlpack(producer, copy=True)
    assert [c.reason for c in log] == ["request"]
    assert producer.deleted == 1
    array[:] = 1
    assert (np.asarray(taken) == 0).all()
    # C4: dmlc/dlpack#134: a flag that is there is believed, one that is not is not missed.
    producer = Producer(array, (16,), flags=IS_COPIED)
    with hurray.copies() as log:
        hurray.from_dlpack(producer, copy=True)
    assert not log
    with pytest.raises(hurray.CopyRequiredError, match="IS_COPIED"):
        hurray.from_dlpack(producer, copy=False)


def test_booleans_are_packed() -> None:
    array = array_at(0, 9, np.uint8)
    array[:] = [1, 0, 1, 0, 0, 0, 0, 0, 1]
    producer = Producer(array, (9,), dtype=(6, 8, 1))
    with hurray.copies() as log:
        taken = hurray.from_dlpack(producer)
    assert [(c.bytes, c.reason) for c in log] == [(2, "packing")]
    assert taken.dtype is hurray.dtype.bool
    assert np.array_equal(np.asarray(taken), array.astype(bool))
    with pytest.raises(hurray.CopyRequiredError, match="packs"):
        hurray.from_dlpack(producer, copy=False)


def test_read_only_stays() -> None:
    array = array_at(0, 16)
    producer = Producer(array, (16,), flags=READ_ONLY)
    taken = hurray.from_dlpack(producer)
    assert not np.from_dlpack(taken).flags.writeable
    assert Fields(taken.__dlpack__(max_version=(1, 0))).flags == READ_ONLY
    assert np.from_dlpack(hurray.from_dlpack(Producer(array, (16,)))).flags.writeable


def test_jaxs_arrays_never_change() -> None:
    jax = pytest.importorskip("jax")
    taken = hurray.from_dlpack(jax.numpy.arange(16, dtype=np.float32))
    assert not np.from_dlpack(taken).flags.writeable


def test_a_producer_is_asked_once() -> None:
    producer = Producer(array_at(0, 4))
    hurray.from_dlpack(producer)
    assert producer.calls == [{"max_version": (1, 3)}]
    producer.calls.clear()
    hurray.from_dlpack(producer, copy=False)
    assert producer.calls == [{"max_version": (1, 3), "copy": False}]


class Old(Producer):
    """Of before `max_version`, and without a device."""

    def __dlpack__(self, stream: Any = None) -> Any:  # type: ignore[override]
        return super().__dlpack__()


def test_old_producers_are_asked_without_arguments() -> None:
    producer = Old(array_at(0, 4), version=None)
    hurray.from_dlpack(producer)
    assert producer.calls == [{}]


def test_a_producers_own_type_error_is_raised_after_one_more_call() -> None:
    class Broken(Producer):
        def __dlpack__(self, **arguments: Any) -> Any:
            self.calls.append(arguments)
            raise TypeError("my own defect")

    producer = Broken(array_at(0, 4))
    with pytest.raises(TypeError, match="my own defect"):
        hurray.from_dlpack(producer)
    assert producer.calls == [{"max_version": (1, 3)}, {}]


def test_what_is_no_producer_is_a_type_error() -> None:
    for thing in [None, 3, [1, 2], object()]:
        with pytest.raises(TypeError, match="no DLPack producer"):
            hurray.from_dlpack(thing)


def test_a_consumed_capsule_is_refused() -> None:
    capsule = Producer(array_at(0, 4)).capsule()

    class Twice:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __dlpack__(self, **arguments: Any) -> Any:
            return capsule

    taken = hurray.from_dlpack(Twice())
    assert capsule_name(capsule) == "used_dltensor_versioned"
    with pytest.raises(hurray.BufferError, match="consumed"):
        hurray.from_dlpack(Twice())
    del taken

    class NoCapsule(Twice):
        def __dlpack__(self, **arguments: Any) -> Any:
            return 3

    with pytest.raises(ValueError, match="capsule"):
        hurray.from_dlpack(NoCapsule())


def test_devices_that_need_a_layer_are_refused_before_anything_is_made() -> None:
    for device in [(10, 0), (8, 0)]:
        producer = Producer(array_at(0, 4), device=device)
        with pytest.raises(BufferError, match="device layer") as caught:
            hurray.from_dlpack(producer)
        assert isinstance(caught.value, hurray.UnsupportedError)
        assert producer.calls == []


def test_cuda_arrays_are_refused_without_a_driver_before_anything_is_made() -> None:
    for device in [(2, 0), (13, 0)]:
        producer = Producer(array_at(0, 4), device=device)
        with pytest.raises(hurray.DeviceError, match=re.escape(hurray.cuda.why_not() or "")):
            hurray.from_dlpack(producer)
        assert producer.calls == []


def test_a_tensor_of_ours_is_itself() -> None:
    source = tensor()
    assert hurray.from_dlpack(source) is source
    assert hurray.from_dlpack(source, copy=False) is source
    assert hurray.from_dlpack(source, device="cpu") is source
    copied = hurray.from_dlpack(source, copy=True)
    assert np.asarray(copied).ctypes.data != np.asarray(source).ctypes.data


def test_a_tensor_of_ours_is_not_itself_elsewhere() -> None:
    with pytest.raises(hurray.DeviceError, match="driver"):
        hurray.from_dlpack(tensor(), device="cuda:0")
    with pytest.raises(hurray.CopyRequiredError, match="copy=False"):
        hurray.from_dlpack(tensor(), device="cuda:0", copy=False)
    with pytest.raises(hurray.UnsupportedError, match="rocm:0"):
        hurray.from_dlpack(tensor(), device="rocm:0")


def test_a_constructor_takes_any_producer(torch: Any) -> None:
    weights = torch.arange(16.0)
    made = hurray.Tensor(weights, hurray.float32, [4, 4])
    assert np.asarray(made)[3, 3] == 15
