"""Work on a device, queued as a program of one's own queues it: on a driver or on its stand-in."""

import ctypes

from cuda_programs import Gpu, call, driver


class Device(Gpu):
    """A device with streams as objects."""

    def stream(self):
        return Stream(self, super().stream())

    def synchronize(self):
        call(driver.cuCtxSynchronize())


class Stream:
    """A stream that does not wait for the default ones."""

    def __init__(self, device, handle):
        self.device, self.handle = device, handle

    def __cuda_stream__(self):
        return 0, self.handle

    def fill(self, address, byte, size):
        self.device.fill(address, byte, self.handle, size)

    def copy(self, target, source, size):
        call(driver.cuMemcpyAsync(target, source, size, self.handle))

    def add(self, target, source, size, number):
        """A kernel of one thread: `target[i] = source[i] + number`, byte by byte."""
        self.device.add(target, source, self.handle, number, size)

    def delay(self, ticks):
        """A kernel that does nothing for so many clock ticks, about 2 to the nanosecond."""
        self.device.delay(ticks, self.handle)

    def join(self, other):
        """Goes on after what `other` has queued; in a capture of its, where it is captured."""
        event = call(driver.cuEventCreate(2))
        call(driver.cuEventRecord(event, other.handle))
        call(driver.cuStreamWaitEvent(self.handle, event, 0))
        call(driver.cuEventDestroy(event))

    def begin_capture(self):
        """In the mode that forbids most: what any thread does may invalidate it."""
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
        call(driver.cuStreamBeginCapture(self.handle, mode))

    def end_capture(self):
        return Graph(call(driver.cuStreamEndCapture(self.handle)))

    def read(self, address, size):
        """The bytes once everything queued so far is done."""
        return self.device.read(address, self.handle, size).tobytes()

    def synchronize(self):
        call(driver.cuStreamSynchronize(self.handle))


class Graph:
    """What a stream captured."""

    def __init__(self, graph):
        self._graph = graph
        self._exec = call(driver.cuGraphInstantiate(graph, 0))

    def launch(self, stream):
        call(driver.cuGraphLaunch(self._exec, stream.handle))

    def close(self):
        call(driver.cuGraphExecDestroy(self._exec))
        call(driver.cuGraphDestroy(self._graph))


class Memory:
    """Memory of a producer that knows nothing of hurray, freed with its last reference."""

    def __init__(self, device, size, freed=None):
        self._device, self._freed = device, freed
        self.address, self.size = device.alloc(size), size

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": (self.size,),
            "typestr": "|u1",
            "data": (self.address, False),
            "version": 3,
            "stream": None,
        }

    def __del__(self):
        if self._freed is not None:
            self._freed(self.address)
        # Whichever thread lets go has its own current context.
        call(driver.cuCtxPushCurrent(self._device.context))
        self._device.free(self.address)
        call(driver.cuCtxPopCurrent())


class StandIn:
    """What the stand-in driver found so far, where there is one."""

    def __init__(self):
        self._library = ctypes.CDLL("libcuda.so.1")
        self.is_there = hasattr(self._library, "cuda_sim_reports")

    def reports(self):
        """The lines of its report."""
        if not self.is_there:
            return []
        self._library.cuda_sim_reports.restype = ctypes.c_size_t
        lines = []
        for index in range(self._library.cuda_sim_reports()):
            line = ctypes.create_string_buffer(4096)
            self._library.cuda_sim_report(ctypes.c_size_t(index), line, ctypes.c_size_t(4096))
            lines.append(line.value.decode())
        return lines
