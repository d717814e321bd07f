"""What programs on a CUDA driver are made of, over NVIDIA's own bindings.

Libraries that no test machine has are played by a few lines that do to the driver what they do.
"""

import ctypes
import gc
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import driver

# They run on a device as they are; the stand-in driver has code of its own for them.
KERNELS = Path(__file__).parents[1] / "cuda-sim" / "src" / "kernels.ptx"
# Bytes of a buffer.
LEN = 4096


class DriverError(Exception):
    """A call of the program's own that failed."""


def call(answer: tuple) -> Any:
    """What a call of the driver gives, or its error."""
    code, *values = answer
    if code != driver.CUresult.CUDA_SUCCESS:
        raise DriverError(code)
    return values[0] if values else None


class Gpu:
    """A device whose primary context is current, with two kernels."""

    def __init__(self, ordinal: int = 0) -> None:
        call(driver.cuInit(0))
        self.ordinal = ordinal
        self.device = call(driver.cuDeviceGet(ordinal))
        self.context = call(driver.cuDevicePrimaryCtxRetain(self.device))
        self.make_current()
        self.module = call(driver.cuModuleLoadData(KERNELS.read_bytes() + b"\0"))
        self.kernel = call(driver.cuModuleGetFunction(self.module, b"hurray_sim_add"))
        self.pause = call(driver.cuModuleGetFunction(self.module, b"hurray_sim_delay"))
        self.library = ctypes.CDLL("libcuda.so.1")
        self.streams = []

    def make_current(self) -> None:
        call(driver.cuCtxSetCurrent(self.context))

    def stream(self) -> int:
        """A non-blocking stream, as the libraries make them."""
        self.streams.append(call(driver.cuStreamCreate(1)))
        return int(self.streams[-1])

    def alloc(self, nbytes: int = LEN) -> int:
        return int(call(driver.cuMemAlloc(nbytes)))

    def free(self, address: int) -> None:
        call(driver.cuMemFree(address))

    def fill(self, address: int, byte: int, stream: int, nbytes: int = LEN) -> None:
        """Queues a write of all bytes."""
        call(driver.cuMemsetD8Async(address, byte, nbytes, stream))

    def delay(self, ticks: int, stream: int) -> None:
        """Queues a kernel that does nothing for so many clock ticks."""
        grid = (1, 1, 1, 1, 1, 1)
        parameters = ((ticks,), (ctypes.c_uint64,))
        call(driver.cuLaunchKernel(self.pause, *grid, 0, stream, parameters, 0))

    def add(self, target: int, source: int, stream: int, by: int = 1, nbytes: int = LEN) -> None:
        """Queues a kernel: target[i] = source[i] + by."""
        values = (target, source, nbytes, by)
        types = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32)
        grid = (1, 1, 1, 1, 1, 1)
        call(driver.cuLaunchKernel(self.kernel, *grid, 0, stream, (values, types), 0))

    def read(self, address: int, stream: int, nbytes: int = LEN) -> np.ndarray:
        """The bytes once what is queued on the stream is done: a host wait of the program's own."""
        target = np.empty(nbytes, np.uint8)
        call(driver.cuMemcpyDtoHAsync(target.ctypes.data, address, nbytes, stream))
        call(driver.cuStreamSynchronize(stream))
        return target

    def calls(self, function: str) -> int:
        """Calls of the driver by this program's threads."""
        self.library.cuda_sim_calls.restype = ctypes.c_uint64
        return self.library.cuda_sim_calls(function.encode(), 0)

    def host_waits(self) -> int:
        self.library.cuda_sim_host_waits.restype = ctypes.c_uint64
        return self.library.cuda_sim_host_waits(0)

    def close(self) -> None:
        """Lets go of everything, so that what is left then has leaked."""
        import hurray

        gc.collect()
        hurray.cuda.empty_cache()
        self.make_current()
        call(driver.cuModuleUnload(self.module))
        for stream in self.streams:
            call(driver.cuStreamDestroy(stream))


class CudaArray:
    """An array as CuPy has them: allocated and written on a stream, and freed in its order."""

    def __init__(
        self, gpu: Gpu, on: int, *, byte: int = 1, nbytes: int = LEN, **entries: Any
    ) -> None:
        self.gpu, self.stream, self.freed = gpu, on, []
        gpu.make_current()
        self.address = int(call(driver.cuMemAllocAsync(nbytes, on)))
        gpu.fill(self.address, byte, on, nbytes)
        interface = {"version": 3, "shape": (nbytes,), "typestr": "|u1", "stream": on}
        interface["data"] = (self.address, False)
        self.__cuda_array_interface__ = interface | entries

    def __del__(self) -> None:
        if hasattr(self, "address"):
            driver.cuCtxSetCurrent(self.gpu.context)
            driver.cuMemFreeAsync(self.address, self.stream)
        self.freed.append(threading.current_thread())


class Consumer:
    """Reads bytes on its stream and looks at what it found at the very end."""

    def __init__(self, gpu: Gpu, stream: int, nbytes: int = LEN) -> None:
        self.gpu, self.stream, self.nbytes = gpu, stream, nbytes
        self.target = gpu.alloc(nbytes)

    def read(self, address: int) -> None:
        self.gpu.add(self.target, address, self.stream, nbytes=self.nbytes)

    def check(self, byte: int = 1) -> None:
        assert (self.gpu.read(self.target, self.stream, self.nbytes) == byte + 1).all()
        self.gpu.free(self.target)


class Offer:
    """What a consumer of capsules gets to see of a tensor."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __hurray__(self, stream: Any = None) -> Any:
        return self._tensor.__hurray__(stream)


class DLPackOffer:
    """The same, for a consumer of DLPack."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack__(self, **asked: Any) -> Any:
        return self._tensor.__dlpack__(**asked)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._tensor.__dlpack_device__()


def modes(tensor: Any) -> list[str]:
    return [handle.sync_mode for handle in tensor.buffer_handles]


def refused(error: type, text: str, call: Any) -> None:
    """That the call raises, and says so."""
    try:
        call()
    except error as refusal:
        assert text in str(refusal), refusal
    else:
        raise AssertionError(f"{call} is not refused")


def until(condition: Any) -> None:
    """Waits for another thread."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.001)
