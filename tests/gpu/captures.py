"""Graph capture, around our calls and across them, in the mode in which any thread may break it."""

import gc
import threading
import time
from contextlib import contextmanager

from device_work import Device, Memory
from races import SIZE, address_of
from row import row

import hurray

CAPTURES = 20


@contextmanager
def busy_reclaimer(device):
    """Python owners are let go of all the while, on a stream of their own: the reclaimer works."""
    stop, released = threading.Event(), []

    def churn():
        device.make_current()
        while not stop.is_set():
            tensor = hurray.Tensor(Token(memory, released), hurray.uint8, (SIZE,))
            view = tensor.buffer(0, stream=stream)
            stream.fill(memory.address, 1, SIZE)
            del view, tensor

    # Made before the capture, which an allocation of a program's own may break.
    memory, stream = Memory(device, SIZE), device.stream()
    thread = threading.Thread(target=churn)
    thread.start()
    try:
        yield released
    finally:
        stop.set()
        thread.join()


class Token:
    """Lends memory that somebody else keeps, and notes when it is let go of."""

    def __init__(self, memory, released):
        self._memory, self._released = memory, released
        self.__cuda_array_interface__ = memory.__cuda_array_interface__

    def __del__(self):
        self._released.append(self._memory.address)


@row("Capture: our calls inside it, and the reclaimer busy on another stream")
def capture_with_a_busy_reclaimer():
    device = Device()
    stream, target = device.stream(), device.alloc(SIZE)
    source = hurray.empty((SIZE,), dtype=hurray.uint8, device="cuda:0", stream=stream)
    address = address_of(source)
    stream.fill(address, 5, SIZE)
    source = source.record(stream).synchronize()
    with busy_reclaimer(device) as released:
        number, end = 0, time.monotonic() + 10
        # Until the reclaimer has let go of something meanwhile.
        while number < CAPTURES or (not released and time.monotonic() < end):
            stream.begin_capture()
            view = source.buffer(0, stream=stream)
            stream.add(target, address, SIZE // 64, number % 100)
            del view
            graph = stream.end_capture()
            graph.launch(stream)
            assert stream.read(target, 4) == bytes([5 + number % 100]) * 4
            graph.close()
            number += 1
        count = len(released)
    assert count, "the reclaimer had nothing to do"
    return f"{number} captures are whole, {count} owners let go of meanwhile"


@row("Capture: what a graph reads lives as long as the graph")
def a_graph_keeps_what_it_reads():
    device = Device()
    stream, target = device.stream(), device.alloc(SIZE)
    freed = threading.Event()
    memory = Memory(device, SIZE, freed=lambda address: freed.set())
    address = memory.address
    stream.fill(address, 7, SIZE)
    stream.synchronize()
    tensor = hurray.Tensor(memory, hurray.uint8, (SIZE,))
    del memory
    stream.begin_capture()
    view = tensor.buffer(0, stream=stream)
    stream.copy(target, address, SIZE)
    del view, tensor
    graph = stream.end_capture()
    gc.collect()
    for _ in range(3):
        stream.fill(target, 0, SIZE)
        graph.launch(stream)
        assert stream.read(target, SIZE) == b"\7" * SIZE
    assert not freed.wait(0.1), "freed while the graph could be launched again"
    graph.close()
    assert freed.wait(10), "kept after the graph"
    return "launched three times after the last reference went; freed with the graph"


@row("Capture: pending bytes are refused inside it, and it goes on")
def pending_bytes_are_refused():
    device = Device()
    a, b, target = device.stream(), device.stream(), device.alloc(SIZE)
    tensor = hurray.empty((SIZE,), dtype=hurray.uint8, device="cuda:0", stream=a)
    address = address_of(tensor)
    a.delay(200_000_000)
    a.fill(address, 3, SIZE)
    b.begin_capture()
    try:
        tensor.order(b)
    except hurray.DeviceError as error:
        text = str(error)
    else:
        raise AssertionError("bytes were handed out that nothing in the graph waits for")
    assert "synchronize" in text, text
    b.fill(target, 4, SIZE)
    graph = b.end_capture()
    graph.launch(b)
    assert b.read(target, SIZE) == b"\4" * SIZE
    graph.close()
    a.synchronize()
    return f"DeviceError: {text}"


@row("Capture: a tensor written inside it is ordered inside it")
def ordered_inside():
    device = Device()
    a, b, target = device.stream(), device.stream(), device.alloc(SIZE)
    tensor = hurray.empty((SIZE,), dtype=hurray.uint8, device="cuda:0", stream=a)
    address = address_of(tensor)
    ready = tensor.synchronize()
    a.begin_capture()
    b.join(a)
    a.fill(address, 6, SIZE)
    written = ready.record(a)
    ordered = written.order(b)
    b.copy(target, address, SIZE)
    joined = ordered.record(b).order(a)
    graph = a.end_capture()
    for _ in range(3):
        a.fill(target, 0, SIZE)
        graph.launch(a)
        assert a.read(target, SIZE) == b"\6" * SIZE
    del written, ordered, joined, ready, tensor
    graph.close()
    return "handed from one captured stream to the other and back, right at each launch"
