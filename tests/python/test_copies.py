"""`copies()`: every copy of tensor bytes made inside a block, in its context."""

import asyncio
import contextvars
import threading

import numpy as np
import pytest
from placed import aligned, at

import hurray


def copy_something(count: int = 8) -> None:
    hurray.from_numpy(at(1, (count,), np.uint8))


def test_what_an_entry_says():
    with hurray.copies() as log:
        copy_something(8)
    (copy,) = log
    assert copy.bytes == 8
    assert copy.from_ is hurray.device.cpu
    assert copy.to is hurray.device.cpu
    assert copy.reason == "alignment"
    assert copy.call == "from_numpy"
    assert repr(copy) == "Copy(bytes=8, from_=cpu, to=cpu, reason='alignment', call='from_numpy')"


def test_the_reasons():
    with hurray.copies() as log:
        hurray.from_numpy(at(1, (8,), np.uint8))
        hurray.from_numpy(np.zeros(8, bool))
        hurray.from_numpy(aligned(8), copy=True)
        hurray.Tensor(memoryview(at(1, (8,), np.uint8)), hurray.uint8, [8])
        hurray.from_numpy(aligned(8)).__array__(np.float32)
    assert [(copy.reason, copy.call) for copy in log] == [
        ("alignment", "from_numpy"),
        ("packing", "from_numpy"),
        ("request", "from_numpy"),
        ("alignment", "Tensor"),
        ("request", "__array__"),
    ]


def test_a_block_without_copies():
    tensor = hurray.from_numpy(aligned(64))
    with hurray.copies() as log:
        received = hurray.from_hurray(tensor)
        np.asarray(received)
        memoryview(received.buffer(0))
        _ = received.T, received.buffer_handles, repr(received)
    assert log == []


def test_the_log_is_a_list_that_stays():
    with hurray.copies() as log:
        copy_something(3)
        assert [copy.bytes for copy in log] == [3]
        copy_something(4)
    assert isinstance(log, list)
    assert [copy.bytes for copy in log] == [3, 4]


def test_before_and_after():
    copy_something()
    with hurray.copies() as log:
        pass
    copy_something()
    assert log == []


def test_nested_blocks_all_see_a_copy():
    with hurray.copies() as outer:
        copy_something(1)
        with hurray.copies() as inner:
            copy_something(2)
        copy_something(3)
    assert [copy.bytes for copy in outer] == [1, 2, 3]
    assert [copy.bytes for copy in inner] == [2]


def test_an_exception_leaves_the_block():
    with pytest.raises(ZeroDivisionError), hurray.copies() as log:
        copy_something(1)
        raise ZeroDivisionError
    copy_something(2)
    assert [copy.bytes for copy in log] == [1]


def test_a_failed_import_copies_nothing():
    with hurray.copies() as log:
        for array in (np.zeros(3, object), np.zeros(3, ">f4")):
            with pytest.raises(hurray.UnsupportedError):
                hurray.from_numpy(array)
        with pytest.raises(hurray.CopyRequiredError):
            hurray.from_numpy(at(1, (8,), np.uint8), copy=False)
    assert log == []


def test_a_block_is_entered_once():
    block = hurray.copies()
    with block:
        pass
    with pytest.raises(RuntimeError, match="entered before"), block:
        pass


def test_a_new_thread_has_a_context_of_its_own():
    with hurray.copies() as log:
        thread = threading.Thread(target=copy_something)
        thread.start()
        thread.join()
    assert log == []


def test_a_thread_that_runs_in_the_context():
    with hurray.copies() as log:
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(copy_something, 5))
        thread.start()
        thread.join()
    assert [copy.bytes for copy in log] == [5]


def test_two_threads_have_a_block_each():
    barrier = threading.Barrier(2)
    logs = {}

    def work(count):
        with hurray.copies() as log:
            barrier.wait()
            for _ in range(100):
                copy_something(count)
            barrier.wait()
        logs[count] = [copy.bytes for copy in log]

    threads = [threading.Thread(target=work, args=(count,)) for count in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert logs == {1: [1] * 100, 2: [2] * 100}


def test_tasks():
    async def work(count):
        with hurray.copies() as log:
            await asyncio.sleep(0)
            copy_something(count)
            await asyncio.sleep(0)
        return [copy.bytes for copy in log]

    async def main():
        with hurray.copies() as outer:
            inner = await asyncio.gather(work(1), work(2))
        return inner, sorted(copy.bytes for copy in outer)

    # Tasks inherit the context they were made in, and their own blocks are their own.
    assert asyncio.run(main()) == ([[1], [2]], [1, 2])


def test_a_task_that_outlives_the_block_is_not_seen():
    async def main():
        entered = asyncio.Event()

        async def late():
            await entered.wait()
            copy_something(7)

        with hurray.copies() as log:
            task = asyncio.create_task(late())
            await asyncio.sleep(0)
        entered.set()
        await task
        return log

    # Another block is open all the while, so that copies are looked at.
    with hurray.copies() as outer:
        assert asyncio.run(main()) == []
    assert [copy.bytes for copy in outer] == [7]
