"""`aligned_allocator()`: where arrays begin, what they cost, where the allocator is in force."""

import asyncio
import contextvars
import gc
import os
import queue
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hurray

try:
    from numpy._core.multiarray import get_handler_name
except ImportError:
    from numpy.core.multiarray import get_handler_name

OURS = "hurray_aligned"
PAGE = hurray.PAGE_ALIGNMENT

# Sizes on both sides of every size at which the allocator or malloc changes its ways.
SIZES = [0, 1, 63, 64, 65, 1023, 4032, 4095, 4096, 4097, 8192, 131_072, 200_000, 4 << 20, 9 << 20]


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def assert_aligned(array: np.ndarray) -> None:
    assert get_handler_name(array) == OURS
    alignment = PAGE if array.nbytes >= PAGE else hurray.MIN_BUFFER_ALIGNMENT
    assert address(array) % alignment == 0, f"{array.nbytes} bytes"


def pattern(size: int) -> np.ndarray:
    return (np.arange(size) % 251).astype(np.uint8)


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(autouse=True)
def handler_outside():
    """The allocator outside every block; each test must leave it in force."""
    name = get_handler_name()
    assert name != OURS
    yield name
    assert get_handler_name() == name


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("make", [np.empty, np.zeros, np.ones])
def test_every_size_is_aligned(make, size):
    with hurray.aligned_allocator():
        arrays = [make(size, np.uint8) for _ in range(3)]
    for array in arrays:
        assert_aligned(array)
    if make is not np.empty:
        assert all((array == make(1, np.uint8)[0]).all() for array in arrays)


@pytest.mark.parametrize("length", [3, 5000])
def test_whatever_makes_an_array_is_aligned(length):
    outside = np.arange(length, dtype=np.float64)
    with hurray.aligned_allocator():
        made = [
            np.array(list(range(length))),
            np.arange(length),
            np.linspace(0, 1, length),
            np.full(length, 7.5),
            np.eye(length // 50 + 1),
            np.concatenate([outside, outside]),
            outside + 1,
            outside[::2].copy(),
            outside.astype(np.float32),
            np.resize(outside, 2 * length),
            np.frombuffer(bytes(length), np.uint8).copy(),
            np.empty((length, 0, 3)),
            np.array(1.0),
            np.zeros(length, dtype=[("name", "U7"), ("value", "i8")]),
        ]
    for array in made:
        owner = array if array.base is None else array.base
        assert_aligned(owner)
    assert (made[5][length:] == outside).all()
    assert (made[9][length:] == outside).all()


def test_an_array_of_outside_stays_what_it_was(handler_outside):
    array = np.zeros(10)
    with hurray.aligned_allocator():
        array += 1
        array.resize(100_000, refcheck=False)
    assert get_handler_name(array) == handler_outside
    assert (array[:10] == 1).all() and not array[10:].any()


def test_zeros_cost_no_memory_until_they_are_used():
    gibibyte = 1 << 30
    with hurray.aligned_allocator():
        before = resident_bytes()
        array = np.zeros(gibibyte, np.uint8)
        assert resident_bytes() - before < 16 << 20
    touched = 128 << 20
    array[:touched:PAGE] = 1
    assert resident_bytes() - before > touched // 2
    assert int(array[: 2 * touched].sum(dtype=np.int64)) == touched // PAGE
    del array
    assert resident_bytes() - before < touched // 2


def test_a_large_array_grows_without_a_copy():
    """Huge-page advice on a part of a mapping would split it, and `mremap` grow it no more."""
    gibibyte = 1 << 30
    with hurray.aligned_allocator():
        array = np.zeros(gibibyte, np.uint8)
    array[-1] = 7
    before = resident_bytes()
    array.resize(gibibyte + (8 << 20), refcheck=False)
    assert resident_bytes() - before < 64 << 20  # a copy would have touched every page
    assert_aligned(array)
    assert array[gibibyte - 1] == 7 and not array[gibibyte:].any()


def test_zeros_in_memory_used_before_are_zeros():
    with hurray.aligned_allocator():
        for size in [100, 5000, 100_000]:
            for _ in range(50):
                np.empty(size, np.uint8).fill(255)
                assert not np.zeros(size, np.uint8).any()


@pytest.mark.parametrize("old", SIZES)
def test_resize_keeps_the_contents(old):
    for new in SIZES:
        with hurray.aligned_allocator():
            array = pattern(old)
        array.resize(new, refcheck=False)  # outside the block: the array keeps its allocator
        assert_aligned(array)
        kept = min(old, new)
        assert (array[:kept] == pattern(kept)).all(), f"{old} to {new} bytes"
        assert not array[kept:].any(), f"{old} to {new} bytes"


def test_resize_step_by_step_over_the_page():
    with hurray.aligned_allocator():
        array = pattern(PAGE - 200)
    for size in [*range(PAGE - 199, PAGE + 200), *range(PAGE + 200, PAGE - 200, -1)]:
        array.resize(size, refcheck=False)
        assert_aligned(array)
        assert (array[: PAGE - 200] == pattern(PAGE - 200)).all()


def test_sizes_beyond_memory_raise_and_lose_nothing():
    with hurray.aligned_allocator():
        array = pattern(5000)
        for size in [1 << 62, (1 << 63) - 1]:
            with pytest.raises(MemoryError):
                np.empty(size, np.uint8)
            with pytest.raises(MemoryError):
                np.zeros(size, np.uint8)
            with pytest.raises(MemoryError):
                array.resize(size, refcheck=False)
    assert (array == pattern(5000)).all()
    assert_aligned(array)


def test_nested_blocks_restore_what_was_before(handler_outside):
    with hurray.aligned_allocator():
        with hurray.aligned_allocator():
            assert get_handler_name() == OURS
        assert get_handler_name() == OURS
        assert_aligned(np.empty(3))
    assert get_handler_name() == handler_outside


def test_an_exception_restores_and_passes_through(handler_outside):
    error = ValueError("inside")
    with pytest.raises(ValueError) as caught, hurray.aligned_allocator():
        raise error
    assert caught.value is error
    assert get_handler_name() == handler_outside


def test_the_block_gives_nothing_and_can_be_used_again(handler_outside):
    block = hurray.aligned_allocator()
    for _ in range(3):
        with block as given:
            assert given is None
            assert get_handler_name() == OURS
        assert get_handler_name() == handler_outside


def test_entering_an_open_block_is_refused():
    block = hurray.aligned_allocator()
    with block:
        with pytest.raises(RuntimeError, match="in use"):
            block.__enter__()
        assert get_handler_name() == OURS


def test_leaving_a_block_that_is_not_open_is_refused():
    block = hurray.aligned_allocator()
    with pytest.raises(RuntimeError, match="not entered"):
        block.__exit__(None, None, None)
    with block:
        pass
    with pytest.raises(RuntimeError, match="not entered"):
        block.__exit__(None, None, None)


def test_leaving_the_outer_block_first_is_refused(handler_outside):
    outer, inner = hurray.aligned_allocator(), hurray.aligned_allocator()
    outer.__enter__()
    inner.__enter__()
    with pytest.raises(RuntimeError, match="2 blocks are open here"):
        outer.__exit__(None, None, None)
    assert get_handler_name() == OURS
    inner.__exit__(None, None, None)
    assert get_handler_name() == OURS
    outer.__exit__(None, None, None)
    assert get_handler_name() == handler_outside


def in_thread(function):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


@pytest.mark.parametrize("blocks_there", [0, 1])
@pytest.mark.parametrize(
    "elsewhere", [in_thread, lambda f: contextvars.Context().run(f)], ids=["thread", "context"]
)
def test_leaving_a_block_elsewhere_is_refused(elsewhere, blocks_there, handler_outside):
    block = hurray.aligned_allocator()

    def leave():
        if blocks_there:
            with hurray.aligned_allocator():
                with pytest.raises(RuntimeError, match="thread and context that entered it"):
                    block.__exit__(None, None, None)
                assert get_handler_name() == OURS
        else:
            with pytest.raises(RuntimeError, match="thread and context that entered it"):
                block.__exit__(None, None, None)
        assert get_handler_name() == handler_outside

    block.__enter__()
    elsewhere(leave)
    assert get_handler_name() == OURS
    block.__exit__(None, None, None)


def test_leaving_a_block_in_a_copy_of_its_context_is_refused():
    block = hurray.aligned_allocator()
    with block:
        copy = contextvars.copy_context()
        with pytest.raises(RuntimeError, match="thread and context that entered it"):
            copy.run(block.__exit__, None, None, None)
        assert copy.run(get_handler_name) == OURS


def test_a_thread_started_inside_does_not_inherit(handler_outside):
    with hurray.aligned_allocator():
        assert in_thread(get_handler_name) == handler_outside
        assert in_thread(lambda: get_handler_name(np.empty(3))) == handler_outside
        context = contextvars.copy_context()
        assert in_thread(lambda: context.run(get_handler_name)) == OURS


def test_a_copied_context_keeps_the_allocator_after_the_block():
    with hurray.aligned_allocator():
        context = contextvars.copy_context()
    assert_aligned(context.run(np.empty, 10_000))


def test_the_workers_of_a_pool_each_have_their_own_block(handler_outside):
    barrier = threading.Barrier(4)

    def work(number):
        barrier.wait()
        for _ in range(200):
            with hurray.aligned_allocator():
                array = pattern(number * 1500)
                assert_aligned(array)
            array.resize(9000, refcheck=False)
            assert (array[: number * 1500] == pattern(number * 1500)).all()
            assert get_handler_name() == handler_outside
        return array

    with ThreadPoolExecutor(4) as pool:
        arrays = list(pool.map(work, range(4)))
    for array in arrays:
        assert_aligned(array)


def test_arrays_are_freed_long_after_the_block_and_in_other_threads():
    def hand_over():
        with hurray.aligned_allocator():
            arrays = [array.copy() for array in patterns for _ in range(10)]
        handed = queue.SimpleQueue()

        def release():
            while (array := handed.get()) is not None:
                assert (array == patterns[SIZES.index(array.size)]).all()
                del array

        with ThreadPoolExecutor(3) as pool:
            released = [pool.submit(release) for _ in range(3)]
            while arrays:
                handed.put(arrays.pop())
            for _ in released:
                handed.put(None)
        for outcome in released:
            outcome.result()

    patterns = [pattern(size) for size in SIZES]
    hand_over()
    before = resident_bytes()
    for _ in range(4):
        hand_over()
    # Each time round hands over 138 MiB.
    assert resident_bytes() - before < 100 << 20


def test_tasks_inherit_and_do_not_disturb_each_other(handler_outside):
    async def child():
        await asyncio.sleep(0)
        return get_handler_name()

    async def with_block(entered, leave):
        with hurray.aligned_allocator():
            entered.set()
            await leave.wait()
            inherited = await asyncio.create_task(child())
            in_worker = await asyncio.to_thread(get_handler_name)
            assert_aligned(np.zeros(5000))
        return inherited, in_worker, get_handler_name()

    async def main():
        entered, leave = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(with_block(entered, leave))
        await entered.wait()
        assert get_handler_name() == handler_outside
        assert await asyncio.create_task(child()) == handler_outside
        leave.set()
        assert await task == (OURS, OURS, handler_outside)

    asyncio.run(main())


def numbered_arrays():
    with hurray.aligned_allocator():
        for number in range(3):
            yield np.full(600, number)


def test_a_generator_shares_its_block_with_its_caller(handler_outside):
    """It runs in its caller's context, so what is in force at its `yield` is so for both."""
    generator = numbered_arrays()
    first = next(generator)
    assert get_handler_name() == OURS
    rest = list(generator)
    assert get_handler_name() == handler_outside
    for array in [first, *rest]:
        assert_aligned(array)

    generator = numbered_arrays()
    next(generator)
    generator.close()
    assert get_handler_name() == handler_outside


def test_closing_a_generator_in_another_thread_is_refused(handler_outside):
    generator = numbered_arrays()
    context = contextvars.copy_context()
    context.run(next, generator)
    with pytest.raises(RuntimeError, match="thread and context that entered it"):
        in_thread(generator.close)
    assert context.run(get_handler_name) == OURS
    assert get_handler_name() == handler_outside


def test_a_block_that_is_never_left_leaks_nothing():
    """A context that dies with an open block in it takes the block along."""

    class Mark:
        alive = 0

        def __init__(self):
            Mark.alive += 1

        def __del__(self):
            Mark.alive -= 1

    mark = contextvars.ContextVar("mark")

    def abandon():
        mark.set(Mark())
        block = hurray.aligned_allocator()
        block.__enter__()

    for _ in range(10):
        contextvars.Context().run(abandon)
    gc.collect()
    assert Mark.alive == 0


def test_many_allocations_leak_nothing():
    def allocate(count):
        for number in range(count):
            array = np.empty(number % 9000, np.uint8)
            array.resize((number * 7) % 9000, refcheck=False)
            np.zeros(number % 300)

    with hurray.aligned_allocator():
        allocate(9000)
        before = resident_bytes()
        allocate(100_000)
        assert resident_bytes() - before < 4 << 20


def test_many_blocks_leak_nothing():
    def enter(count):
        for _ in range(count):
            with hurray.aligned_allocator():
                pass

    enter(1000)
    before = resident_bytes()
    enter(100_000)
    assert resident_bytes() - before < 4 << 20


def test_an_interpreter_that_ends_with_live_arrays_and_open_blocks_ends_well():
    script = """
import threading, numpy as np, hurray
block = hurray.aligned_allocator()
block.__enter__()
arrays = [np.zeros(n) for n in (0, 10, 1000, 100_000, 10_000_000)]
def work():
    with hurray.aligned_allocator():
        while True:
            np.ones(5000)
threading.Thread(target=work, daemon=True).start()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


sizes = st.one_of(st.integers(0, 300), st.integers(PAGE - 100, PAGE + 100), st.integers(0, 300_000))
steps = st.one_of(
    st.tuples(st.sampled_from(["empty", "zeros"]), sizes),
    st.tuples(st.just("resize"), st.integers(0), sizes),
    st.tuples(st.just("free"), st.integers(0)),
)


@settings(deadline=None)
@given(st.lists(steps, max_size=40))
def test_any_sequence_keeps_every_array_whole(sequence):
    live: list[tuple[np.ndarray, bytes]] = []
    for number, (kind, *numbers) in enumerate(sequence):
        fill = number + 1
        if kind in ("empty", "zeros"):
            with hurray.aligned_allocator():
                array = getattr(np, kind)(numbers[0], np.uint8)
            if kind == "zeros":
                assert not array.any()
            array.fill(fill)
            live.append((array, bytes([fill]) * array.size))
        elif live:
            index = numbers[0] % len(live)
            array, model = live.pop(index)
            if kind == "resize":
                size = numbers[1]
                array.resize(size, refcheck=False)
                live.append((array, model[:size].ljust(size, b"\0")))
        for array, model in live:
            assert_aligned(array)
            assert array.tobytes() == model
