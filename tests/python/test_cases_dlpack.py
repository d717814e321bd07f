"""What users of DLPack stumbled on: each test names the public report of its case."""

import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from dlpack_producer import IS_COPIED, PADDED, READ_ONLY, Fields, Producer, array_at, capsule_name

import hurray


def numbers(count: int = 16, dtype: Any = np.float32) -> Any:
    array = array_at(0, count, dtype)
    array[:] = np.arange(count)
    return array


# A. Pointer, shape, strides.


@pytest.mark.parametrize("offset", [16, 64])
def test_a1_the_offset_counts(offset: int, torch: Any) -> None:
    # pytorch/pytorch#168177, iree-org/iree#21153, NVIDIA/cuda-python#2592, numpy/numpy#20338
    array = numbers(32)
    first = offset / 4
    taken = hurray.from_dlpack(Producer(array, byte_offset=offset))
    assert np.asarray(taken).tolist() == [first, first + 1, first + 2, first + 3]
    for consumer in (np.from_dlpack, torch.from_dlpack):
        assert consumer(taken)[0] == first
    fields = Fields(hurray.from_numpy(array[offset // 4 :]).__dlpack__())
    assert (fields.data, fields.byte_offset) == (array.ctypes.data + offset, 0)


def test_a4_negative_strides_are_packed_or_refused(torch: Any) -> None:
    # pytorch/pytorch#188023, #188047, scikit-learn/scikit-learn#34307, tensorflow/tensorflow#51598
    array = numbers(16)
    taken = hurray.from_dlpack(Producer(array, (16,), (-1,), byte_offset=60))
    assert np.asarray(taken).tolist() == list(range(15, -1, -1))
    for copy in (None, False):
        with pytest.raises(BufferError, match="copy=True"):
            taken.__dlpack__(copy=copy)
    for consumer in (np.from_dlpack, torch.from_dlpack):
        with pytest.raises(BufferError, match="negative"):
            consumer(taken)
        packed = consumer(taken, copy=True)
        assert list(packed) == list(range(15, -1, -1))
    assert Fields(taken.__dlpack__(copy=True, max_version=(1, 0))).flags == IS_COPIED


@pytest.mark.parametrize(
    ("shape", "strides", "canonical"),
    [
        ((1, 77), (77, 1), (77, 1)),
        ((1, 77), (1, 1), (77, 1)),
        ((1024, 1), (1, 1024), (1, 1)),
        ((1, 3, 1, 4, 1), (0, 4, 0, 1, 0), (12, 4, 4, 1, 1)),
    ],
)
def test_a5_dimensions_of_one_element_have_any_stride(
    shape: Any, strides: Any, canonical: Any, torch: Any
) -> None:
    # pytorch/pytorch#83069, #99803, #163274, mitsuba-renderer/drjit#122,
    # tensorflow/tensorflow#61184, tile-ai/tilelang#1968
    taken = hurray.from_dlpack(Producer(numbers(1024), shape, strides))
    assert taken.layout == hurray.RowMajorLayout()
    assert Fields(taken.__dlpack__()).strides == canonical
    assert torch.from_dlpack(taken).is_contiguous()


@pytest.mark.parametrize("strides", [None, (4, 1), (7, 13), (0, 0), (-1, -1)])
@pytest.mark.parametrize("data", [0, 3])
def test_a7_nothing_is_asked_of_empty_arrays(strides: Any, data: int, torch: Any) -> None:
    # pytorch/pytorch#41182, dmlc/dlpack#133, tensorflow/tensorflow#61184
    producer = Producer(data, (0, 4), strides, byte_offset=99)
    for copy in (None, False, True):
        taken = hurray.from_dlpack(producer, copy=copy)
        assert taken.shape == (0, 4)
        assert not Fields(taken.__dlpack__()).data
        assert np.from_dlpack(taken).shape == tuple(torch.from_dlpack(taken).shape) == (0, 4)
    assert producer.deleted == 3


def test_a9_strides_that_are_no_elements_are_numpys_to_refuse() -> None:
    # numpy/numpy#20336, wjakob/nanobind#487, #489
    pairs = numbers(64).reshape(8, 8)[:, 0:6]
    fields = np.zeros(4, np.dtype([("a", "f4"), ("b", "i1")]))["a"]
    for array in (fields, pairs[:, 1:3].view(np.complex64)):
        if array.dtype == np.complex64 and all(s % 8 == 0 for s in array.strides):
            continue
        with pytest.raises(hurray.UnsupportedError, match="stride"):
            hurray.from_dlpack(array)
    # One that is never walked means nothing.
    assert hurray.from_dlpack(fields[:1]).shape == (1,)


def test_a11_the_extent_has_both_ends() -> None:
    # PaddlePaddle/Paddle#68559, IntelPython/dpctl#1071
    array = numbers(128)
    expected = np.lib.stride_tricks.as_strided(array[11:], (5, 6), (96, -8))
    taken = hurray.from_dlpack(Producer(array, (5, 6), (24, -2), byte_offset=44))
    assert np.array_equal(np.asarray(taken), expected)
    assert taken.buffer_handles[0].byte_size == 5 * 6 * 4
    assert np.array_equal(np.asarray(hurray.from_dlpack(expected)), expected)


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((2**62, 2**62), None),
        ((2**62, 2**62), (1, 1)),
        ((-4,), None),
        ((4, -1), (1, 1)),
        ((2,), (2**63 - 1,)),
        ((2,), (-(2**63),)),
        ((3, 3), (2**63 - 1, 2**63 - 1)),
        ((2**50,), (-1,)),
    ],
)
def test_a14_sizes_that_cannot_be_are_refused(shape: Any, strides: Any) -> None:
    # safetensors' ValidationOverflow; tvm-ffi takes the first and the third
    for version in (None, (1, 0)):
        producer = Producer(numbers(), shape, strides, version=version)
        for copy in (None, True, False):
            with pytest.raises(hurray.BufferError):
                hurray.from_dlpack(producer, copy=copy)
        assert producer.deleted == 3


@pytest.mark.parametrize("ndim", [-1, 65, 2**31 - 1])
def test_a14_ranks_that_cannot_be_are_refused(ndim: int) -> None:
    with pytest.raises((hurray.BufferError, hurray.UnsupportedError), match="dimensions"):
        hurray.from_dlpack(Producer(numbers(), ndim=ndim))


def test_a14_null_data_with_elements_is_refused() -> None:
    with pytest.raises(hurray.BufferError, match="NULL"):
        hurray.from_dlpack(Producer(0))


# B. Types.


def test_b1_booleans_are_bytes_there_and_bits_here(torch: Any) -> None:
    # pytorch/pytorch#67081, jax-ml/jax#4719, NVIDIA/warp#1619, triton-inference-server/server#5166
    values = [True, False, True, True, False, False, False, True, True]
    for producer in (np.array(values), torch.tensor(values)):
        taken = hurray.from_dlpack(producer)
        assert taken.dtype is hurray.dtype.bool
        assert taken.buffer_handles[0].byte_size == 2
        assert Fields(taken.__dlpack__()).dtype == (6, 8, 1)
        assert np.from_dlpack(taken).tolist() == values
        assert torch.from_dlpack(taken).tolist() == values
        assert torch.from_dlpack(taken).dtype == torch.bool


def test_b3_fp4_in_one_lane_two_lanes_or_padded(torch: Any) -> None:
    # dmlc/dlpack#158, pytorch/pytorch#148791: 1, 2, 3, 6 are the bytes 0x42 0x75
    packed = array_at(0, 2, np.uint8)
    packed[:] = [0x42, 0x75]
    padded = array_at(0, 4, np.uint8)
    padded[:] = [2, 4, 5, 7]
    for producer in (
        Producer(packed, (4,), dtype=(17, 4, 1)),
        Producer(packed, (2,), dtype=(17, 4, 2)),
        Producer(padded, (4,), dtype=(17, 4, 1), flags=PADDED),
        torch.from_numpy(packed).view(torch.float4_e2m1fn_x2),
    ):
        taken = hurray.from_dlpack(producer)
        assert (taken.dtype, taken.shape) == (hurray.dtype.float4_e2m1, (4,))
        assert np.asarray(taken).astype(np.float32).tolist() == [1, 2, 3, 6]
        assert Fields(taken.__dlpack__()).dtype == (17, 4, 1)
    with pytest.raises(hurray.BufferError, match="pairs"):
        hurray.from_dlpack(Producer(packed, (2, 2), (1, 2), dtype=(17, 4, 2)))


def test_b3_jaxs_fp4() -> None:
    jax = pytest.importorskip("jax")
    taken = hurray.from_dlpack(jax.numpy.array([1, 2, 3, 6], ml_dtypes.float4_e2m1fn))
    assert np.asarray(taken).astype(np.float32).tolist() == [1, 2, 3, 6]


def test_b5_bfloat16_reaches_numpy_through_ml_dtypes(torch: Any) -> None:
    # numpy/numpy#31256: np.from_dlpack has no type for it
    taken = hurray.from_dlpack(torch.arange(16, dtype=torch.bfloat16))
    array = np.asarray(taken)
    assert array.dtype == ml_dtypes.bfloat16
    assert array.astype(np.float32).tolist() == list(range(16))


def test_b6_swapped_bytes_are_refused() -> None:
    with pytest.raises(hurray.UnsupportedError, match="byte order"):
        hurray.from_dlpack(np.zeros(4, ">f4"))


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ((7, 8, 1), "float8_e3m4"),
        ((8, 8, 1), "float8_e4m3 "),
        ((9, 8, 1), "float8_e4m3b11fnuz"),
        ((11, 8, 1), "float8_e4m3fnuz"),
        ((13, 8, 1), "float8_e5m2fnuz"),
        ((2, 80, 1), "float .*80 bits"),
        ((2, 128, 1), "float .*128 bits"),
        ((2, 32, 4), "4 lanes"),
        ((5, 32, 1), "complex"),
        ((6, 1, 1), "bool"),
        ((3, 64, 1), "opaque handle"),
        ((99, 8, 1), "code 99"),
        ((2, 32, 0), "0 lanes"),
    ],
)
def test_types_without_a_counterpart_are_refused_by_name(dtype: Any, name: str) -> None:
    # decision 14
    producer = Producer(numbers(), dtype=dtype)
    with pytest.raises(BufferError, match=name) as caught:
        hurray.from_dlpack(producer)
    assert isinstance(caught.value, hurray.UnsupportedError)
    assert producer.deleted == 1


@pytest.mark.parametrize(
    ("dtype", "name", "count"),
    [
        ((0, 4, 1), "int4", 2),
        ((1, 4, 1), "uint4", 2),
        ((0, 2, 1), "int2", 4),
        ((1, 2, 1), "uint2", 4),
    ],
)
def test_sub_byte_integers_stay_packed(dtype: Any, name: str, count: int) -> None:
    # decision 14
    array = numbers(64, np.uint8)
    with hurray.copies() as log:
        taken = hurray.from_dlpack(Producer(array, (64 * count,), dtype=dtype))
        fields = Fields(taken.__dlpack__())
    assert not log
    assert taken.dtype is getattr(hurray.dtype, name)
    assert (fields.dtype, fields.shape, fields.data) == (dtype, (64 * count,), array.ctypes.data)


# C. Flags, copies, versions, errors, lifetime.


def test_c1_read_only_is_said_or_refused() -> None:
    # numpy/numpy#20742, data-apis/array-api#191, pytorch/pytorch#5442
    array = numbers()
    array.flags.writeable = False
    taken = hurray.from_dlpack(array)
    assert Fields(taken.__dlpack__(max_version=(1, 0))).flags == READ_ONLY
    assert not np.from_dlpack(taken).flags.writeable
    with pytest.raises(BufferError, match="max_version"):
        taken.__dlpack__()
    assert capsule_name(taken.__dlpack__(copy=True)) == "dltensor"


def test_c2_numpys_views_stay_writable() -> None:
    # numpy/numpy#28599, wjakob/nanobind#1122: NumPy takes every legacy capsule for read-only
    array = numbers()
    np.from_dlpack(hurray.from_numpy(array))[0] = 99
    assert array[0] == 99


def test_c4_a_copy_is_flagged_and_a_view_is_not() -> None:
    # dmlc/dlpack#134, #136
    source = hurray.from_numpy(numbers())
    for copy, flags in ((None, 0), (False, 0), (True, IS_COPIED)):
        assert Fields(source.__dlpack__(copy=copy, max_version=(1, 0))).flags == flags


def test_c7_a_refusal_has_no_side_effect_and_is_no_type_error() -> None:
    # nv-legate/cupynumeric#1239: consumers call again on a TypeError
    source = hurray.from_dlpack(Producer(numbers(), (16,), (-1,), byte_offset=60))
    with hurray.copies() as log:
        for arguments in ({}, {"stream": 7}, {"copy": 3}, {"dl_device": (2, 0)}):
            with pytest.raises((BufferError, ValueError)):
                source.__dlpack__(**arguments)
    assert not log


def test_c8_the_class_says_whose_fault_it_is() -> None:
    # numpy/numpy#30341, data-apis/array-api#498
    source = hurray.from_numpy(numbers())
    with pytest.raises(BufferError):
        source.__dlpack__(dl_device=(2, 0))
    with pytest.raises(ValueError, match="stream"):
        source.__dlpack__(stream=5)
    with pytest.raises(BufferError):
        hurray.from_numpy(np.ones(3, bool)).__dlpack__(copy=False)


@pytest.mark.parametrize("minor", [0, 2, 9, 2**31])
def test_c9_any_minor_version_and_any_flag_is_taken(minor: int) -> None:
    taken = hurray.from_dlpack(Producer(numbers(), version=(1, minor), flags=1 << 40))
    assert np.asarray(taken).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("major", [0, 2, 2**31])
def test_c9_of_another_major_version_only_the_deleter_is_touched(major: int) -> None:
    # A descriptor of rubbish, which nobody may look at.
    producer = Producer(7, (1,), dtype=(99, 99, 99), version=(major, 0), ndim=2**31 - 1)
    with pytest.raises(BufferError, match=f"major version {major}") as caught:
        hurray.from_dlpack(producer)
    assert isinstance(caught.value, hurray.UnsupportedError)
    assert producer.deleted == 1


def test_c10_a_refused_capsule_is_still_its_owners() -> None:
    # dmlc/dlpack#51, danpovey/kaldi#93
    producer = Producer(numbers(), dtype=(2, 128, 1))
    capsules = [producer.capsule()]

    class Holder:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __dlpack__(self, **arguments: Any) -> Any:
            return capsules[0]

    with pytest.raises(BufferError):
        hurray.from_dlpack(Holder())
    assert capsule_name(capsules[0]) == "dltensor_versioned"
    assert producer.deleted == 0
    capsules.clear()
    assert producer.deleted == 1


def test_c12_a_deleter_without_the_interpreter(torch: Any) -> None:
    # numpy/numpy#22507, pytorch/pytorch#88082, dmlc/dlpack#103, CVCUDA/CV-CUDA#298: torch lets go
    # of the interpreter before it drops a storage, on a thread that entered with it.
    for _ in range(1000):
        taken = hurray.from_dlpack(torch.from_dlpack(hurray.from_numpy(numbers(1024))))
        assert np.from_dlpack(taken).sum() == 1023 * 512


def test_c12_exports_hold_nothing_of_python(torch: Any) -> None:
    source = hurray.from_numpy(numbers(), copy=True)
    outs = [torch.from_dlpack(source) for _ in range(100)]
    del source
    thread = threading.Thread(target=outs.clear)
    thread.start()
    thread.join()


# D. Devices.


def test_d3_pinned_memory_is_announced_and_travels_as_the_cpus() -> None:
    # pytorch/pytorch#136250, jax-ml/jax#22346, AMReX-Codes/pyamrex#454
    producer = Producer(numbers(), device=(1, 0), announced=(3, 1))
    taken = hurray.from_dlpack(producer)
    assert repr(taken.device) == "cuda:1/host_pinned"
    assert taken.__dlpack_device__() == (3, 1)
    assert Fields(taken.__dlpack__()).device == (1, 0)
    assert Fields(taken.__dlpack__(dl_device=(3, 1))).device == (1, 0)
    assert Fields(taken.__dlpack__(dl_device=(1, 0))).device == (1, 0)
    assert np.from_dlpack(taken).tolist() == [0, 1, 2, 3]
    assert repr(hurray.from_dlpack(producer, device="cpu").device) == "cpu"
    assert producer.calls[-1]["dl_device"] == (1, 0)


def test_d9_the_two_devices_are_compared() -> None:
    for device, announced in (((2, 0), (1, 0)), ((1, 0), (1, 1)), ((2, 0), (3, 0))):
        producer = Producer(numbers(), device=device, announced=announced)
        with pytest.raises(hurray.BufferError, match="capsule"):
            hurray.from_dlpack(producer)
        assert producer.deleted == 1


# J. What consumers ask of an alignment.


def test_j1_jax_shares_what_is_allocated_here() -> None:
    # jax-ml/jax#29810, #29963, NVIDIA/warp#550, learnsyslab/lsy_drone_racing#49
    jax = pytest.importorskip("jax")
    for source in (
        hurray.from_numpy(array_at(16, 64)),
        hurray.from_numpy(array_at(64, 64)),
        hurray.from_dlpack(Producer(array_at(16, 64), (64,))),
        hurray.from_numpy(np.ones(64, np.float32), copy=True),
    ):
        out = jax.dlpack.from_dlpack(source, copy=False)
        assert out.unsafe_buffer_pointer() == Fields(source.__dlpack__()).data
        assert out.unsafe_buffer_pointer() % 64 == 0
