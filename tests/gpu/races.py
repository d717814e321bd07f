"""Races between two streams of a program's own: read too early, freed too early, overwritten."""

import gc
import threading
import time

from cuda_programs import DLPackOffer, Offer
from device_work import Device, Memory
from hunt import hunt
from row import row

import hurray

SIZE = 1 << 20


def address_of(tensor):
    """Where its first buffer is. It waits on the host, so that nothing it does orders anything."""
    return tensor.synchronize().__cuda_array_interface__["data"][0]


def handoff(take):
    """Hunts with a tensor that stream A writes after a kernel and stream B reads."""
    device = Device()
    a, b = device.stream(), device.stream()
    target = device.alloc(SIZE)

    def attempt(ticks, ordered):
        tensor = hurray.empty((SIZE,), dtype=hurray.uint8, device="cuda:0", stream=a)
        address = address_of(tensor)
        a.fill(address, 0, SIZE)
        a.synchronize()
        a.delay(ticks)
        a.fill(address, 1, SIZE)
        # What was asked for orders B, and names B as a reader until it goes.
        taken = take(tensor, a, b) if ordered else None
        b.copy(target, address, SIZE)
        seen = b.read(target, SIZE)
        del taken
        a.synchronize()
        return seen != b"\1" * SIZE

    return hunt(attempt)


@row("A writes, B reads: `t.order(B)`")
def order():
    return handoff(lambda tensor, a, b: tensor.order(b))


@row("A writes, B reads: `t.record(A)`, the event's tensor ordered on B")
def record_and_order():
    return handoff(lambda tensor, a, b: tensor.record(a).order(b))


@row("A writes, B reads: a capsule, `from_hurray(x, stream=B)`")
def capsule():
    return handoff(lambda tensor, a, b: hurray.from_hurray(Offer(tensor), stream=b))


@row("A writes, B reads: a capsule with an event in it, ordered on B by its consumer")
def capsule_with_event():
    return handoff(lambda tensor, a, b: hurray.from_hurray(Offer(tensor.record(a))).order(b))


@row("A writes, B reads: DLPack, `from_dlpack(x, stream=B)`")
def dlpack():
    return handoff(lambda tensor, a, b: hurray.from_dlpack(DLPackOffer(tensor), stream=b))


@row("A writes, B reads: `t.buffer(0, stream=B)`")
def buffer_on_a_stream():
    return handoff(lambda tensor, a, b: tensor.buffer(0, stream=b))


@row("B reads, the pool's memory is let go of and given out again")
def pool_memory_freed():
    device = Device()
    a, b, c = device.stream(), device.stream(), device.stream()
    target = device.alloc(SIZE)

    def attempt(ticks, ordered):
        tensor = hurray.empty((SIZE,), dtype=hurray.uint8, device="cuda:0", stream=a)
        address = address_of(tensor)
        a.fill(address, 1, SIZE)
        a.synchronize()
        b.delay(ticks)
        view = tensor.buffer(0, stream=b) if ordered else None
        b.copy(target, address, SIZE)
        del view, tensor
        # Long enough for a free that waits for nothing.
        time.sleep(0.002)
        again = []
        for _ in range(16):
            again.append(hurray.empty((SIZE,), dtype=hurray.uint8, device="cuda:0", stream=c))
            c.fill(int(again[-1].order(c).__cuda_array_interface__["data"][0]), 9, SIZE)
        seen = b.read(target, SIZE)
        c.synchronize()
        return seen != b"\1" * SIZE

    return hunt(attempt)


@row("B reads, a Python owner is let go of and its memory used for something else")
def owner_released():
    device = Device()
    b, c = device.stream(), device.stream()
    target = device.alloc(SIZE)

    def attempt(ticks, ordered):
        freed = threading.Event()

        def reuse(address):
            device.make_current()
            c.fill(address, 9, SIZE)
            c.synchronize()
            freed.set()

        memory = Memory(device, SIZE, freed=reuse)
        address = memory.address
        b.fill(address, 1, SIZE)
        b.synchronize()
        tensor = hurray.Tensor(memory, hurray.uint8, (SIZE,))
        del memory
        b.delay(ticks)
        view = tensor.buffer(0, stream=b) if ordered else None
        b.copy(target, address, SIZE)
        del view, tensor
        gc.collect()
        if not ordered:
            assert freed.wait(10), "the owner was named no stream and is kept all the same"
        seen = b.read(target, SIZE)
        assert freed.wait(10), "the owner is kept after its last reader"
        return seen != b"\1" * SIZE

    return hunt(attempt)


@row("B reads pages of a cache, then A overwrites them: `t.order_after_readers(A)`")
def pages_overwritten():
    device = Device()
    a, b = device.stream(), device.stream()
    target = device.alloc(SIZE)

    def attempt(ticks, ordered):
        cache = paged(a)
        address = address_of(cache.buffer(0, stream=a))
        a.fill(address, 1, SIZE)
        cache = cache.record(a)
        view = cache.buffer(0, stream=b)
        b.delay(ticks)
        b.copy(target, address, SIZE)
        del view
        if ordered:
            cache.order_after_readers(a)
        a.fill(address, 9, SIZE)
        seen = b.read(target, SIZE)
        a.synchronize()
        return seen != b"\1" * SIZE

    return hunt(attempt)


def paged(stream):
    """A cache of `SIZE` bytes in 16 pages, for one sequence, on the device."""
    pages, heads, width = 16, 8, 64
    page = SIZE // (pages * heads * width)

    def filled(count, dtype):
        tensor = hurray.empty((count,), dtype=dtype, device="cuda:0", stream=stream)
        stream.fill(address_of(tensor), 0, tensor.buffer_handles[0].byte_size)
        return tensor

    return hurray.Tensor(
        filled(SIZE, hurray.uint8),
        hurray.uint8,
        (pages * page, heads, width),
        aux_buffers=[filled(pages, hurray.uint32), filled(2, hurray.uint32)],
        layout=hurray.BlockPagedLayout(page, pages, 0, 1),
    )
