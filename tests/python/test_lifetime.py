"""Who keeps whose memory alive, in which thread it is let go, and that it is let go once."""

import ctypes
import gc
import sys
import threading
import weakref

import foreign_producer as foreign
import numpy as np
import pytest
from foreign_producer import Api, Context, Offer
from placed import aligned

import hurray


def owned() -> tuple[np.ndarray, weakref.ref]:
    owner = aligned(64)
    return owner, weakref.ref(owner)


@pytest.mark.parametrize(
    "hold",
    [
        lambda t: t.T,
        lambda t: t.buffer(0),
        lambda t: t.__array__(),
        lambda t: np.asarray(t),
        lambda t: memoryview(t),
        lambda t: t.__hurray__(),
        lambda t: hurray.from_hurray(t),
        lambda t: hurray.Tensor(t.buffer(0), hurray.float32, [16]),
        lambda t: hurray.Composite("group", shape=[1], dtype=hurray.uint8, members=[t]),
        lambda t: hurray.Composite("group", shape=[1], dtype=hurray.uint8, members=[t]).members,
    ],
)
def test_what_keeps_the_memory_alive(hold):
    owner, reference = owned()
    held = hold(hurray.from_numpy(owner))
    del owner
    gc.collect()
    assert reference() is not None
    del held
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize(
    "hold",
    [
        lambda t: t.buffer_handles,
        lambda t: t.descriptor,
        lambda t: t.device,
        lambda t: t.layout,
        lambda t: t.shape,
        repr,
        lambda t: t.__array_interface__,
        lambda t: t.__array__(copy=True),
        lambda t: hurray.from_numpy(np.asarray(t), copy=True),
    ],
)
def test_what_does_not(hold):
    owner, reference = owned()
    held = hold(hurray.from_numpy(owner))
    del owner
    gc.collect()
    assert reference() is None
    del held


def test_reference_counts_return_to_what_they_were():
    owner = aligned(64)
    before = sys.getrefcount(owner)
    for _ in range(100):
        tensor = hurray.from_numpy(owner)
        view = hurray.from_hurray(tensor).T.buffer(0)
        memoryview(view).release()
    assert sys.getrefcount(owner) == before + 1
    del tensor, view
    assert sys.getrefcount(owner) == before


def test_failures_keep_nothing():
    owner = aligned(64)
    before = sys.getrefcount(owner)
    for arguments in (
        {"shape": [65]},
        {"shape": [64], "device": "cuda"},
        {"shape": [64], "aux_buffers": [owner]},
        {"shape": [64], "aux_buffers": [3]},
    ):
        with pytest.raises((hurray.BufferError, hurray.InvalidDescriptorError)):
            hurray.Tensor(owner, hurray.uint8, **arguments)
    assert sys.getrefcount(owner) == before


def table_of(capsule) -> Api:
    return Api.from_address(Context.from_address(foreign.get_context(capsule)).api)


def taken(capsule) -> ctypes.c_void_p:
    """The list of a capsule, taken as a C consumer takes it."""
    name = ctypes.create_string_buffer(b"used_hurray_buffer")
    list_ = ctypes.c_void_p(foreign.get_pointer(capsule, b"hurray_buffer"))
    foreign.set_name(capsule, ctypes.addressof(name))
    foreign._alive[id(name)] = name
    return list_


def test_a_c_consumer_lets_go_without_the_interpreter():
    # numpy/numpy#22507, dmlc/dlpack#103: consumers let go on threads that Python does not know
    owner, reference = owned()
    capsule = hurray.from_numpy(owner).__hurray__()
    api, list_ = table_of(capsule), taken(capsule)
    del owner, capsule
    gc.collect()
    assert reference() is not None
    # ctypes gives the interpreter away around the call.
    assert api.list_destroy(ctypes.byref(list_)) == 0
    assert list_.value is None
    gc.collect()
    assert reference() is None


def test_a_c_consumer_lets_go_with_the_interpreter():
    owner, reference = owned()
    capsule = hurray.from_numpy(owner).__hurray__()
    table, list_ = table_of(capsule), taken(capsule)
    address = ctypes.cast(table.list_destroy, ctypes.c_void_p).value
    attached = ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))(address)
    del owner, capsule
    assert attached(ctypes.byref(list_)) == 0
    gc.collect()
    assert reference() is None


def test_buffers_that_a_c_consumer_releases_one_by_one():
    codes, scales = aligned(16), aligned(16)
    references = weakref.ref(codes), weakref.ref(scales)
    tensor = hurray.Tensor(
        codes,
        hurray.int8,
        [4, 4],
        aux_buffers=[scales],
        quantization=hurray.PerChannelAffine.symmetric(0, 1),
    )
    capsule = tensor.__hurray__()
    api, list_ = table_of(capsule), taken(capsule)
    del codes, scales, tensor, capsule
    no_stream = 2**64 - 1
    assert api.list_release(list_, 1, no_stream) == 0
    gc.collect()
    assert [reference() is not None for reference in references] == [True, False]
    assert api.list_release(list_, 1, no_stream) != 0, "once"
    assert api.list_destroy(ctypes.byref(list_)) == 0
    gc.collect()
    assert references[0]() is None


def test_a_list_that_lost_a_buffer_is_refused():
    capsule = hurray.from_numpy(aligned(64)).__hurray__()
    api = table_of(capsule)
    list_ = ctypes.c_void_p(foreign.get_pointer(capsule, b"hurray_buffer"))
    assert api.list_release(list_, 0, 2**64 - 1) == 0
    with pytest.raises(hurray.BufferError):
        hurray.from_hurray(Offer(capsule))


def test_threads_that_share_a_tensor():
    owner, reference = owned()
    tensor = hurray.from_numpy(owner)
    del owner
    barrier = threading.Barrier(8)

    def work(mine):
        barrier.wait()
        for _ in range(500):
            mine = hurray.from_hurray(mine)
            mine.T.buffer(0)
            assert np.asarray(mine).size == 64

    threads = [threading.Thread(target=work, args=(tensor,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    del tensor
    for thread in threads:
        thread.join()
    del threads, thread
    gc.collect()
    assert reference() is None


def test_an_owner_whose_end_runs_python_code():
    ended = []

    class Array(np.ndarray):
        def __del__(self):
            ended.append(hurray.from_hurray(hurray.from_numpy(aligned(64))).shape)

    tensor = hurray.from_numpy(aligned(64).view(Array))
    hurray.from_hurray(tensor)
    assert ended == []
    del tensor
    gc.collect()
    assert ended == [(64,)]


def test_an_end_that_raises_is_not_lost_on_the_way(recwarn):
    class Array(np.ndarray):
        def __del__(self):
            raise ZeroDivisionError

    unraisable = []
    hook, sys.unraisablehook = sys.unraisablehook, unraisable.append
    try:
        hurray.from_numpy(aligned(64).view(Array))
    finally:
        sys.unraisablehook = hook
    assert [u.exc_type for u in unraisable] == [ZeroDivisionError]


def test_memory_allocated_under_the_allocator_outlives_everything():
    with hurray.aligned_allocator():
        array = np.arange(1000.0)
    found = np.asarray(hurray.from_hurray(hurray.from_numpy(array, copy=False)))
    del array
    gc.collect()
    assert found.sum() == 499500
