"""`hurray.cuda`: devices, streams and events, on the stand-in driver."""

import subprocess
import sys

import pytest
import simulated

import hurray

pytest.importorskip("cuda.bindings.driver")


def clean(program: str, **settings: object) -> simulated.Outcome:
    return simulated.run(program, **settings).assert_clean()


def test_devices_are_counted():
    clean(
        """
        import hurray
        assert hurray.cuda.is_available() and hurray.cuda.why_not() is None
        assert hurray.cuda.device_count() == 3
        """,
        devices=3,
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"devices": 0}, "no device"), ({"fail": "cuInit:1+:3"}, "CUDA_ERROR_NOT_INITIALIZED")],
)
def test_a_driver_without_a_device_says_why(settings, words):
    outcome = clean(
        """
        import hurray
        assert not hurray.cuda.is_available() and hurray.cuda.device_count() == 0
        print(hurray.cuda.why_not())
        for ask in (hurray.cuda.Stream, hurray.cuda.Event, hurray.cuda.current_stream):
            try:
                ask()
            except hurray.DeviceError as error:
                assert str(error) == hurray.cuda.why_not()
            else:
                raise AssertionError(ask)
        """,
        **settings,
    )
    assert words in outcome.stdout


def test_without_a_driver_everything_says_so():
    program = """
import hurray
assert not hurray.cuda.is_available() and hurray.cuda.device_count() == 0
assert "libcuda.so" in hurray.cuda.why_not()
assert hurray.cuda.stats() == {"pending": 0, "kept": 0, "unused_events": 0, "pools": {}}
hurray.cuda.empty_cache()
for ask in (hurray.cuda.Stream, hurray.cuda.Event, hurray.cuda.current_stream,
            lambda: hurray.cuda.Stream(1), lambda: hurray.cuda.Event(4096)):
    try:
        ask()
    except hurray.DeviceError as error:
        assert str(error) == hurray.cuda.why_not()
    else:
        raise AssertionError(ask)
for wrong in (0, True, -2):
    try:
        hurray.cuda.Stream(wrong)
    except ValueError as error:
        assert "1 is the legacy default stream" in str(error)
    else:
        raise AssertionError(wrong)
"""
    environment = simulated.environment() | {"LD_LIBRARY_PATH": ""}
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_without_a_driver_nothing_is_ordered_and_ready_bytes_go_over():
    program = """
import ctypes
import foreign_producer as foreign
import hurray
from cuda_programs import modes, refused
from placed import aligned

memory = aligned(64)
plain = hurray.Tensor(memory, hurray.uint8, [64]).descriptor.encode()

def taken(mode, **said):
    said |= {"device_tag": foreign.CUDA, "sync_mode": mode}
    descriptor = foreign.with_row(
        plain, 0, rank=1, device_tag=foreign.CUDA, sync_mode=mode
    )
    return hurray.from_hurray(
        foreign.Producer(descriptor, [foreign.Buffer.of(memory, **said)], keep=memory).offer()
    )

ready = taken(foreign.SYNCED)
for stream in (None, -1, 1, 2, 4096):
    assert modes(hurray.from_hurray(ready, stream=stream)) == ["producer_synced"]
    ready.__hurray__(stream=stream)
    ready.buffer(0, **({} if stream in (None, -1) else {"stream": stream}))
assert ready.synchronize() is ready
assert ready.__cuda_array_interface__["stream"] is None
refused(hurray.DeviceError, "libcuda.so", lambda: ready.order(1))
for tensor in (taken(foreign.EVENT, event=64), taken(foreign.CONSUMER_STREAM, stream=1)):
    nothing = lambda call: refused(hurray.UnsupportedError, "nothing came", call)
    nothing(lambda: tensor.__hurray__(stream=1))
    nothing(lambda: hurray.from_hurray(tensor, stream=1))
    nothing(lambda: tensor.buffer(0, stream=1))
    nothing(tensor.synchronize)
    nothing(lambda: tensor.__cuda_array_interface__)
    # It is relayed, the event or the stream included.
    assert modes(hurray.from_hurray(tensor)) == modes(tensor) != ["producer_synced"]
"""
    environment = simulated.environment() | {"LD_LIBRARY_PATH": ""}
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_import_and_host_tensors_start_no_driver():
    outcome = clean(
        """
        import os
        import numpy as np
        import hurray
        from placed import at

        tensor = hurray.from_numpy(at(0, (16,)))
        again = hurray.from_hurray(tensor)
        hurray.from_dlpack(np.zeros(3)), np.asarray(again), tensor.__dlpack__(), repr(tensor)
        hurray.cuda.stats(), hurray.cuda.empty_cache()
        for stream in (None, -1):
            tensor.__hurray__(stream=stream)
        assert "libcuda" not in open("/proc/self/maps").read()
        """
    )
    assert outcome.counts == {}


def test_a_stream_of_our_own():
    clean(
        """
        import gc, weakref
        import hurray
        from cuda_programs import Gpu

        gpu = Gpu()
        stream, other = hurray.cuda.Stream(), hurray.cuda.Stream()
        assert stream.is_owned and not stream.is_closed and stream != other
        assert repr(stream) == f"hurray.cuda.Stream({stream.handle:#x}, device=cuda:0)"
        assert stream.device is hurray.device.cuda
        assert stream.__cuda_stream__() == (0, stream.handle)
        again = hurray.cuda.Stream(stream)
        assert again == stream and hash(again) == hash(stream) and not again.is_owned
        address = gpu.alloc()
        gpu.fill(address, 7, stream.handle)
        stream.synchronize()
        assert (gpu.read(address, other.handle) == 7).all()
        gpu.free(address)
        stream.close()
        assert stream.is_closed and again.is_closed and "closed" in repr(stream)
        for use in (stream.synchronize, again.synchronize):
            try:
                use()
            except hurray.DeviceError as error:
                assert str(error) == "the stream is closed"
            else:
                raise AssertionError
        gone = weakref.ref(stream)
        del stream
        assert gone() is not None
        del again, use
        assert gone() is None
        del other
        gpu.close()
        """
    )


def test_e1_streams_of_other_libraries():
    """Each names its stream in its own way; the default stream of torch and CuPy is 0, which is
    nobody's as a number."""
    clean(
        """
        import ctypes, gc, weakref
        import hurray
        from cuda_programs import Gpu

        gpu = Gpu()
        handle = gpu.stream()

        class Object:
            def __init__(self, **attributes):
                vars(self).update(attributes)
            def synchronize(self):
                raise AssertionError

        class Protocol:
            def __init__(self, *answer):
                self.answer = answer
            def __cuda_stream__(self):
                return self.answer

        void = ctypes.c_void_p
        for named, number in [
            (Protocol(0, handle), handle), (Protocol(0, 0), 1), (Protocol(0, 2), 2),
            (Object(cuda_stream=handle, device_index=0), handle), (Object(cuda_stream=0), 1),
            (Object(ptr=handle, device_id=-1), handle), (Object(ptr=0), 1),
            (Object(handle=void(handle)), handle), (Object(handle=void(0)), 1),
            (handle, handle), (1, 1), (2, 2),
        ]:
            stream = hurray.cuda.Stream(named)
            assert stream.handle == number and not stream.is_owned, (named, stream)
            assert stream == hurray.cuda.Stream(number)
        held = Protocol(0, handle)
        stream, gone = hurray.cuda.Stream(held), weakref.ref(held)
        del held
        assert gone() is not None
        del stream
        assert gone() is None

        for wrong, error in [
            (0, ValueError), (-1, ValueError), (-2, ValueError), (True, ValueError),
            (False, ValueError), (1.0, TypeError), ("1", TypeError), (object(), TypeError),
            (Protocol(0), TypeError), (Protocol(0, "x"), TypeError),
            (Protocol(1, handle), hurray.UnsupportedError),
        ]:
            try:
                hurray.cuda.Stream(wrong)
            except error as refusal:
                assert error is not ValueError or "legacy default stream" in str(refusal)
            else:
                raise AssertionError(wrong)

        closed = hurray.cuda.Stream(handle)
        closed.close()
        assert closed.is_closed and not hurray.cuda.Stream(handle).is_closed
        gpu.close()
        """
    )


def test_a_stream_of_another_device():
    clean(
        """
        import hurray
        from cuda_programs import Gpu

        first, second = Gpu(0), Gpu(1)
        handle = second.stream()

        class Torchs:
            cuda_stream, device_index = 0, 1
            def synchronize(self): ...

        assert hurray.cuda.Stream(Torchs()).device == hurray.Device("cuda:1")
        assert hurray.cuda.Stream(handle, device=1).device.device_id == 1
        for named in (handle, Torchs(), hurray.cuda.Stream(device="cuda:1")):
            try:
                hurray.cuda.Stream(named, device=0)
            except hurray.DeviceError as error:
                assert "device 0" in str(error) and "device 1" in str(error)
            else:
                raise AssertionError(named)
        for device, error in [(2, hurray.DeviceError), (-1, ValueError), ("cpu", ValueError),
                              ("gpu", hurray.InvalidDescriptorError), (1.5, TypeError)]:
            try:
                hurray.cuda.Stream(device=device)
            except error:
                pass
            else:
                raise AssertionError(device)
        first.close(), second.close()
        """,
        devices=2,
    )


def test_the_current_stream():
    """The innermost block, then torch, then CuPy, then the legacy default stream."""
    clean(
        """
        import asyncio, sys, threading, types
        import hurray
        from cuda_programs import Gpu

        Gpu(1), Gpu(0)
        current, Stream = hurray.cuda.current_stream, hurray.cuda.Stream
        assert current() == current(0) == current("cuda:0") == Stream(1)
        assert current(1) == Stream(1, device=1) != current(0)
        a, b, far = Stream(), Stream(), Stream(device=1)
        with a as entered:
            assert entered is a and current() is a
            with b, far:
                assert current() is b and current(1) is far
                with a:
                    assert current() is a
                assert current() is b
                seen = []
                thread = threading.Thread(target=lambda: seen.append(current()))
                thread.start(), thread.join()
                assert seen == [Stream(1)]
            assert current() is a and current(1) == Stream(1, device=1)
            try:
                with b:
                    raise KeyError
            except KeyError:
                assert current() is a
        try:
            a.__exit__(None, None, None)
        except RuntimeError as error:
            assert "not entered" in str(error)
        else:
            raise AssertionError

        async def task(stream, others):
            with stream:
                await others.wait()
                assert current() is stream
        async def tasks():
            barrier = asyncio.Barrier(2)
            await asyncio.gather(task(a, barrier), task(b, barrier))
        asyncio.run(tasks())

        class Library(types.ModuleType):
            def __init__(self, name, handle):
                super().__init__(name)
                self.cuda, self.handle = self, handle
            def is_initialized(self):
                return True
            def current_stream(self, device):
                return types.SimpleNamespace(cuda_stream=self.handle, synchronize=None)
            def get_current_stream(self, device):
                return types.SimpleNamespace(ptr=self.handle, synchronize=None)
        sys.modules["cupy"] = Library("cupy", a.handle)
        assert current() == a
        torch = sys.modules["torch"] = Library("torch", b.handle)
        assert current() == b
        torch.is_initialized = lambda: False
        assert current() == a
        torch.is_initialized = lambda: True
        torch.handle = 0
        assert current() == Stream(1)
        with far:
            assert current() == Stream(1) and current(1) is far
        """,
        devices=2,
    )


def test_events():
    clean(
        """
        import hurray
        from cuda_programs import Gpu, call, driver

        gpu = Gpu()
        a, b = hurray.cuda.Stream(), hurray.cuda.Stream()
        event = hurray.cuda.Event()
        assert repr(event) == f"hurray.cuda.Event({event.handle:#x}, device=cuda:0)"
        assert event.is_owned and event == event and event != hurray.cuda.Event()
        for use in (event.wait, event.synchronize, event.query):
            try:
                use()
            except hurray.DeviceError as error:
                assert "never recorded" in str(error)
            else:
                raise AssertionError(use)
        source, target = gpu.alloc(), gpu.alloc()
        waits = gpu.host_waits()
        gpu.fill(source, 3, a.handle)
        event.record(a)
        event.wait(b)
        gpu.add(target, source, b.handle)
        assert gpu.host_waits() == waits
        with b:
            event.record()
        event.synchronize()
        assert event.query() and gpu.host_waits() == waits + 1
        assert (gpu.read(target, b.handle) == 4).all()

        foreign = call(driver.cuEventCreate(2))
        wrapped = hurray.cuda.Event(int(foreign))
        assert not wrapped.is_owned and wrapped.handle == int(foreign)
        wrapped.record(b)
        again = hurray.cuda.Event(wrapped)
        assert again == wrapped and hash(again) == hash(wrapped)
        wrapped.wait(a)
        wrapped.synchronize()
        del wrapped, again
        call(driver.cuEventDestroy(foreign))

        class Torchs:
            cuda_event = 0
        for named, error in [(Torchs(), hurray.DeviceError), (0, ValueError), (True, TypeError),
                             ("e", TypeError)]:
            try:
                hurray.cuda.Event(named)
            except error:
                pass
            else:
                raise AssertionError(named)

        event.close()
        for use in (event.wait, event.synchronize, event.query, lambda: event.record(a)):
            try:
                use()
            except hurray.DeviceError as error:
                assert str(error) == "the event is closed"
            else:
                raise AssertionError(use)
        gpu.free(source), gpu.free(target)
        del event, use, a, b
        gpu.close()
        """
    )


def test_an_event_of_another_device_is_not_recorded():
    clean(
        """
        import hurray
        event, stream = hurray.cuda.Event(device=1), hurray.cuda.Stream()
        try:
            event.record(stream)
        except hurray.DeviceError as error:
            assert "device 1" in str(error) and "device 0" in str(error)
        else:
            raise AssertionError
        # A wait crosses devices.
        event.record(hurray.cuda.Stream(device=1))
        assert event.device == hurray.Device("cuda:1")
        """,
        devices=2,
    )


def test_a_child_refuses_devices():
    clean(
        """
        import os
        import hurray

        stream, event = hurray.cuda.Stream(), hurray.cuda.Event()
        event.record(stream)
        if os.fork() == 0:
            assert not hurray.cuda.is_available() and "spawn" in hurray.cuda.why_not()
            hurray.cuda.stats(), hurray.cuda.empty_cache()
            for use in (hurray.cuda.Stream, hurray.cuda.Event, stream.synchronize, event.query,
                        lambda: event.record(stream), lambda: event.wait(1)):
                try:
                    use()
                except hurray.DeviceError as error:
                    assert "fork" in str(error)
                else:
                    os._exit(1)
            del stream, event, use
            os._exit(0)
        assert os.wait()[1] == 0
        """
    )


@pytest.mark.parametrize(
    "function", ["cuStreamCreate", "cuEventCreate", "cuDevicePrimaryCtxRetain"]
)
def test_a_failing_call_is_named(function):
    outcome = clean(
        """
        import hurray
        try:
            hurray.cuda.Stream(), hurray.cuda.Event()
        except hurray.DeviceError as error:
            print(error)
        """,
        fail=f"{function}:1:999",
    )
    assert outcome.stdout == f"{function} failed: CUDA_ERROR_UNKNOWN\n"


def test_everything_is_listed():
    assert sorted(n for n in dir(hurray.cuda) if not n.startswith("_")) == [
        "Event",
        "Stream",
        "current_stream",
        "device_count",
        "empty_cache",
        "is_available",
        "stats",
        "why_not",
    ]
