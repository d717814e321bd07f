"""When memory goes back, and on which thread: callbacks, captures, forks, the interpreter's end."""

from textwrap import dedent

import pytest
import simulated
from simulated import PRELUDE

pytest.importorskip("cuda.bindings.driver")


def clean(program: str, **settings: object) -> simulated.Outcome:
    program = PRELUDE + dedent(program)
    return simulated.run(program, **settings).assert_clean()


def test_a_stream_holds_one_event_however_often_bytes_are_out_on_it():
    outcome = clean(
        """
        source = CudaArray(gpu, p, stream=None)
        freed = source.freed
        call(driver.cuStreamSynchronize(p))
        weight = hurray.Tensor(source, hurray.uint8, [LEN])
        del source
        for _ in range(2000):
            view = hurray.from_hurray(weight, stream=c)
            assert modes(view) == ["producer_synced"]
        del view, weight
        until(lambda: freed)
        gpu.close()
        """
    )
    # Ready bytes are not waited for, and events are used again.
    assert outcome.calls("cuStreamWaitEvent").total == 0
    assert outcome.calls("cuEventCreate").total <= 4


def test_ready_bytes_and_equal_streams_need_no_call():
    clean(
        """
        source = CudaArray(gpu, p)
        tensor = written(source)
        held = [tensor.order(p), hurray.from_hurray(tensor, stream=p), tensor.buffer(0, stream=p)]
        held.append(tensor.__hurray__(stream=p))
        assert calls() == (0, 0)
        assert modes(tensor.order(c).order(c)) == ["consumer_stream"] and calls()[1] == 1
        ready = tensor.synchronize()
        assert modes(ready) == ["producer_synced"] and ready.synchronize() is ready
        before = calls()
        held += [ready.order(c), ready.buffer(0), ready.buffer(0, stream=c), ready.T]
        assert [modes(view) for view in held[-4:]] == [["producer_synced"]] * 4
        assert calls() == before
        del source, tensor, held, ready
        gpu.close()
        """
    )


def test_refusals_come_before_any_call():
    clean(
        """
        from placed import aligned
        tensor = written(CudaArray(gpu, p))
        before = gpu.calls("cuEventRecord"), gpu.calls("cuStreamWaitEvent")
        events = gpu.calls("cuEventCreate")
        refuse = lambda text, call: refused(hurray.UnsupportedError, text, call)
        refuse("consumer_stream", lambda: tensor.buffer(0))
        refuse("synchronize()", lambda: np.asarray(tensor))
        refuse("consumer_stream", lambda: memoryview(tensor))
        refuse("consumer_stream", lambda: tensor.__array_interface__)
        for stream in (0, True, -2):
            for way in (tensor.order, tensor.record, tensor.record_stream, tensor.__hurray__,
                        tensor.order_after_readers, lambda s: tensor.buffer(0, stream=s),
                        lambda s: hurray.from_hurray(tensor, stream=s)):
                refused(ValueError, "1 is the legacy default stream", lambda: way(stream))
        for way in (tensor.order, tensor.record, tensor.record_stream, tensor.order_after_readers):
            refused(ValueError, "-1", lambda: way(-1))
            refused(TypeError, "stream", lambda: way(None))
        host = hurray.Tensor(aligned(64), hurray.uint8, [64])
        for way in (host.record, host.record_stream, host.order_after_readers):
            refuse("memory of the cpu", lambda: way(c))
        closed = hurray.cuda.Stream()
        closed.close()
        for way in (tensor.order, tensor.record, tensor.record_stream):
            refused(hurray.DeviceError, "the stream is closed", lambda: way(closed))
        assert calls() == before and gpu.calls("cuEventCreate") == events
        del tensor, way
        gpu.close()
        """
    )


def test_a_second_device():
    """An export from device 1 works while device 0 is current, and on no stream of device 0."""
    clean(
        """
        far = Gpu(1)
        q, d = far.stream(), far.stream()
        source = CudaArray(far, q)
        freed, address = source.freed, source.address
        gpu.make_current()
        with hurray.cuda.Stream(q):
            tensor = hurray.Tensor(source, hurray.uint8, [LEN])
        del source
        assert tensor.device == hurray.Device("cuda:1") and modes(tensor) == ["consumer_stream"]
        for way in (tensor.order, tensor.record, tensor.record_stream, tensor.__hurray__,
                    lambda s: tensor.buffer(0, stream=s)):
            try:
                way(c)
            except hurray.DeviceError as error:
                assert "device 1" in str(error) and "device 0" in str(error)
            else:
                raise AssertionError(way)
        view = hurray.from_hurray(hurray.from_hurray(tensor), stream=d)
        assert view.device == hurray.Device("cuda:1")
        assert view.buffer_handles[0].device is view.device
        current = call(driver.cuCtxGetCurrent())
        assert int(current) == int(gpu.context)
        far.make_current()
        reader = Consumer(far, d)
        reader.read(address)
        gpu.make_current()
        del tensor, view, way
        until(lambda: freed)
        far.make_current()
        reader.check()
        assert hurray.cuda.stats()["kept"] == 0
        gpu.close(), far.close()
        """,
        devices=2,
    )


def test_e13_events_are_of_the_device_whose_stream_they_are_recorded_on():
    clean(
        """
        far = Gpu(1)
        streams = []
        for device in (gpu, far):
            device.make_current()
            streams.append((device.stream(), device.stream()))
        freed = []
        for n in range(40):
            device = (gpu, far)[n % 2]
            writer, reader = streams[n % 2]
            source = CudaArray(device, writer)
            source.freed = freed
            with hurray.cuda.Stream(writer, device=n % 2):
                tensor = hurray.Tensor(source, hurray.uint8, [LEN]).record(writer)
            (far, gpu)[n % 2].make_current()
            del source
            tensor = hurray.from_hurray(tensor, stream=reader)
        del tensor
        until(lambda: len(freed) == 40)
        gpu.close(), far.close()
        """,
        devices=2,
    )


def test_owners_are_let_go_attached_and_never_by_the_driver():
    """A deleter that the driver calls, in a host function, may call neither it nor Python."""
    program = dedent(
        """
        import ctypes
        source = CudaArray(gpu, p)
        freed, address = source.freed, source.address
        view = written(source).order(c)
        del source
        reader = Consumer(gpu, c)
        reader.read(address)
        held = [view]
        del view

        @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        def let_it_go(_):
            held.clear()
        function = driver.CUhostFn(_ptr=ctypes.addressof(let_it_go))
        call(driver.cuLaunchHostFunc(c, function, 0))
        until(lambda: not held)
        until(lambda: freed)
        # By the reclaimer, in Python: a host function's thread is not it.
        assert freed[0].name.startswith("Dummy")
        reader.check()
        gpu.close()
        """
    )
    outcome = simulated.run(PRELUDE + program)
    assert (outcome.status, outcome.stderr) == (0, "")
    # The driver is asked, says that it may not be, and nothing more is tried there.
    assert all(
        kind == "host-function-call" and text.startswith("cuCtxGetCurrent ")
        for kind, text in outcome.defects
    )


def test_the_interpreter_is_free_while_a_call_waits():
    """What the device waits for needs the interpreter: holding it would be a deadlock."""
    clean(
        """
        import ctypes
        @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        def slow(_):
            sum(range(1000))
        function = driver.CUhostFn(_ptr=ctypes.addressof(slow))
        tensor = written(CudaArray(gpu, p))
        for wait in (tensor.synchronize, hurray.cuda.Stream(p).synchronize):
            call(driver.cuLaunchHostFunc(p, function, 0))
            wait()
        event = hurray.cuda.Event()
        call(driver.cuLaunchHostFunc(p, function, 0))
        event.record(p)
        event.synchronize()
        view = tensor.order(c)
        call(driver.cuLaunchHostFunc(c, function, 0))
        del tensor, view, wait, event
        hurray.cuda.empty_cache()
        gpu.close()
        """
    )


def test_threads_hand_over_and_let_go():
    clean(
        """
        import queue
        freed, inbox, target = [], queue.SimpleQueue(), Consumer(gpu, c)
        lock = threading.Lock()
        def produce():
            gpu.make_current()
            for _ in range(100):
                with lock:
                    source = CudaArray(gpu, p)
                source.freed, address = freed, source.address
                capsule = written(source).__hurray__()
                # What this thread let go of later, it would have to wait for itself.
                del source
                inbox.put((capsule, address))
                del capsule
        class Offer:
            def __init__(self, capsule):
                self.capsule = capsule
            def __hurray__(self, stream=None):
                return self.capsule
        def consume():
            gpu.make_current()
            while (item := inbox.get()) is not None:
                tensor = hurray.from_hurray(Offer(item[0]), stream=c)
                with lock:
                    target.read(item[1])
                del tensor, item
        producers = [threading.Thread(target=produce) for _ in range(3)]
        consumers = [threading.Thread(target=consume) for _ in range(3)]
        for thread in producers + consumers:
            thread.start()
        for thread in producers:
            thread.join()
        for _ in consumers:
            inbox.put(None)
        for thread in consumers:
            thread.join()
        until(lambda: len(freed) == 300)
        assert gpu.host_waits() == waits
        target.check()
        gpu.close()
        """
    )


def test_a_per_thread_stream_is_never_kept():
    clean(
        """
        source = CudaArray(gpu, p)
        freed, address = source.freed, source.address
        view = written(source).order(2)
        del source
        assert modes(view) == ["event"]
        reader = Consumer(gpu, 2)
        reader.read(address)
        # Another thread lets go: what stands for the stream there waits for all threads'.
        held = [view]
        del view
        thread = threading.Thread(target=held.clear)
        thread.start(), thread.join()
        let_go(freed)
        reader.check()
        gpu.close()
        """
    )


def test_a_child_leaks_what_belongs_to_a_device():
    clean(
        """
        import os
        source = CudaArray(gpu, p)
        freed = source.freed
        tensor = written(source).order(c)
        ready = tensor.synchronize()
        del source
        if os.fork() == 0:
            from placed import aligned
            device = lambda call: refused(hurray.DeviceError, "fork", call)
            try:
                for way in (ready.order, ready.record, ready.record_stream, tensor.order,
                            ready.__hurray__, tensor.order_after_readers):
                    device(lambda: way(c))
                device(tensor.synchronize)
                assert ready.synchronize() is ready
                again = hurray.from_hurray(tensor)
                assert modes(again) == ["consumer_stream"]
                host = hurray.Tensor(aligned(64), hurray.uint8, [64])
                assert np.asarray(hurray.from_hurray(host)).size == 64
                del tensor, ready, again, way
                gc.collect()
                assert not freed
            except BaseException:
                import traceback
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        assert os.wait()[1] == 0
        del tensor, ready
        until(lambda: freed)
        gpu.close()
        """
    )


CAPTURE = """
def begin(stream):
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    call(driver.cuStreamBeginCapture(stream, mode))
def end(stream):
    return call(driver.cuStreamEndCapture(stream))
def launch(graph, stream):
    executable = call(driver.cuGraphInstantiate(graph, 0))
    call(driver.cuGraphLaunch(executable, stream))
    return executable
"""


def test_what_a_graph_reads_lives_as_long_as_the_graph():
    """E4: a tensor that is let go while its stream is captured breaks nothing."""
    clean(
        CAPTURE
        + dedent("""
        source = CudaArray(gpu, p, stream=None)
        freed, address = source.freed, source.address
        call(driver.cuStreamSynchronize(p))
        tensor = hurray.Tensor(source, hurray.uint8, [LEN])
        del source
        reader = Consumer(gpu, c)
        begin(c)
        view = hurray.from_hurray(tensor, stream=c)
        reader.read(address)
        del view, tensor
        # The reclaimer is busy meanwhile.
        other = CudaArray(gpu, p)
        gone = other.freed
        hurray.from_hurray(written(other), stream=p)
        del other
        until(lambda: gone)
        graph = end(c)
        executable = launch(graph, c)
        assert not freed
        reader.check()
        call(driver.cuGraphExecDestroy(executable)), call(driver.cuGraphDestroy(graph))
        until(lambda: freed)
        gpu.close()
        """)
    )


def test_order_across_a_capture_is_refused_before_it_breaks():
    clean(
        CAPTURE
        + dedent("""
        tensor = written(CudaArray(gpu, p))
        q = gpu.stream()
        ready = written(CudaArray(gpu, q)).synchronize()
        begin(c)
        for way in (tensor.order, tensor.record, tensor.__hurray__,
                    lambda s: tensor.buffer(0, stream=s)):
            refused(hurray.DeviceError, ".synchronize()", lambda: way(c))
        # Neither waits for anything outside.
        held = [ready.order(c), tensor.order(p)]
        graph = end(c)
        call(driver.cuGraphDestroy(graph))
        del held, tensor, ready, way
        gpu.close()
        """)
    )


EXIT = {
    "tensors that nobody let go of": "held = written(CudaArray(gpu, p)).order(c)",
    "work that nobody waited for": """
        source = CudaArray(gpu, p)
        address = source.address
        tensor = written(source).order(c)
        Consumer(gpu, c).read(address)
        del source, tensor
    """,
    "capsules and views": """
        tensor = written(CudaArray(gpu, p))
        held = [tensor.__hurray__(), tensor.__hurray__(stream=c), tensor.T, tensor.record(p)]
    """,
    "a thread that hands over": """
        def run():
            while True:
                hurray.from_hurray(tensor, stream=c)
        tensor = written(CudaArray(gpu, p))
        threading.Thread(target=run, daemon=True).start()
        time.sleep(0.05)
    """,
    "a thread that lets go": """
        def run():
            gpu.make_current()
            while True:
                written(CudaArray(gpu, p)).order(c)
        threading.Thread(target=run, daemon=True).start()
        time.sleep(0.05)
    """,
    "owners that would say that they are let go too late": """
        import os, sys
        class Loud(CudaArray):
            def __del__(self):
                if sys.is_finalizing():
                    os.write(2, b"let go after the handlers")
        # In a global, on the device, and in the reclaimer's hands.
        held = written(Loud(gpu, p)).order(c)
        for _ in range(20):
            source = Loud(gpu, p)
            address = source.address
            tensor = written(source).order(c)
            del source
            Consumer(gpu, c).read(address)
            del tensor
    """,
    "a stream in force": "hurray.cuda.Stream().__enter__()",
}


@pytest.mark.parametrize("name", EXIT)
def test_the_interpreter_ends_with_status_0_and_no_message(name):
    """Python owners are not let go once the handlers have run, whatever the device still does."""
    program = PRELUDE + "import time\n" + dedent(EXIT[name])
    for seed in range(3):
        outcome = simulated.run(program, seed=seed)
        assert (outcome.status, outcome.stdout, outcome.stderr) == (0, "", ""), outcome
        assert outcome.defects == []
