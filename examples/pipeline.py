"""An inference pipeline of three threads on one device; none of them ever waits for it.

A loader puts batches of quantized rows on the device, a model runs a kernel of its own on them, a
writer brings the results back. Each has a stream of its own and knows of the others only the queue
between them: what goes through it is handed on while the work on it is still to be done, and
dropped as soon as the next work is queued. Only who looks at the numbers waits.

    python examples/pipeline.py            on a GPU
    cargo build -p hurray-cuda-sim         without one: on the stand-in driver, which runs the same
    python examples/pipeline.py            calls on the CPU and reports every access out of order
"""

import ctypes
import os
import queue
import sys
import threading
from pathlib import Path

import numpy as np
from cuda.bindings import driver

import hurray

ROOT = Path(__file__).resolve().parents[1]
ROWS, COLUMNS, BATCHES = 64, 1024, 40
# Bytes: target[i] = source[i] + number. One of the two kernels that the stand-in driver knows.
KERNEL = "hurray_sim_add"
SOURCE = ROOT / "tests" / "cuda-sim" / "src" / "kernels.ptx"
DONE = None


def ask(answer):
    code, *values = answer
    if code != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(code.name)
    return values[0] if values else None


class Kernel:
    """The model: adds `number` to each code. Written for the driver; CuPy's or Triton's will do."""

    def __init__(self):
        ask(driver.cuCtxSetCurrent(ask(driver.cuDevicePrimaryCtxRetain(0))))
        module = ask(driver.cuModuleLoadData(SOURCE.read_bytes() + b"\0"))
        self._function = ask(driver.cuModuleGetFunction(module, KERNEL.encode()))

    def __call__(self, target, source, number, stream):
        """On views that are ordered on `stream`."""
        ((to, size, _),) = target.extents()
        ((start, _, _),) = source.extents()
        types = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32)
        parameters = ((to, start, size, number), types)
        one = (1, 1, 1, 1, 1, 1, 0)
        ask(driver.cuLaunchKernel(self._function, *one, stream.handle, parameters, 0))


def load(batches, out):
    """Rows of codes with a scale each, from the host to the device."""
    stream = hurray.cuda.Stream()
    for codes, scales in batches:
        host = hurray.Tensor(
            codes,
            hurray.int8,
            codes.shape,
            aux_buffers=[scales],
            quantization=hurray.PerChannelAffine.symmetric(0, 1),
        )
        out.put(host.to("cuda:0", stream=stream))
    out.put(DONE)


def infer(inbox, out):
    """New codes for each batch, under the scales that came with it."""
    stream, add = hurray.cuda.Stream(), Kernel()
    while (batch := inbox.get()) is not DONE:
        ready = batch.order(stream)
        codes = hurray.empty(batch.shape, dtype=hurray.int8, device="cuda:0", stream=stream)
        add(codes.buffer(0, stream=stream), ready.buffer(0, stream=stream), 1, stream)
        result = hurray.Tensor(
            codes,
            hurray.int8,
            batch.shape,
            aux_buffers=[ready.buffer(1, stream=stream)],
            quantization=batch.quantization,
        )
        # Whoever takes it from here waits for this event, on a stream of its own.
        out.put(result.record(stream))
        # The batch is let go of while the kernel may not even have begun.
    out.put(DONE)


def write(inbox, results):
    """Numbers on the host. Bringing them there is the one wait in the pipeline."""
    stream = hurray.cuda.Stream()
    while (result := inbox.get()) is not DONE:
        host = result.to("cpu", stream=stream)
        codes = np.asarray(host.buffer(0)).view(np.int8).reshape(host.shape)
        scales = np.asarray(host.buffer(1)).view(np.float32)
        results.append(codes * scales[:, None])


def run(batches):
    loaded, inferred, ended, results = queue.Queue(4), queue.Queue(4), queue.Queue(), []

    def work(stage, *arguments):
        try:
            stage(*arguments)
        except Exception as error:
            ended.put(error)
        else:
            ended.put(None)

    stages = [(load, batches, loaded), (infer, loaded, inferred), (write, inferred, results)]
    for stage in stages:
        threading.Thread(target=work, args=stage, daemon=True).start()
    for _ in stages:
        if (error := ended.get()) is not None:
            raise error
    return results


def main():
    if not hurray.cuda.is_available():
        return on_the_stand_in()
    simulated = "HURRAY_SIM_SEED" in os.environ
    where = "the stand-in driver, no GPU" if simulated else device_name()
    print(f"three threads, three streams, {BATCHES} batches of {ROWS} x {COLUMNS} on {where}")

    random = np.random.default_rng(0)
    batches = [
        (
            random.integers(-128, 127, (ROWS, COLUMNS), np.int8),
            random.random(ROWS, np.float32) + np.float32(0.5),
        )
        for _ in range(BATCHES)
    ]
    results = run(batches)
    wrong = sum(
        not np.array_equal(result, (codes + np.int8(1)) * scales[:, None])
        for result, (codes, scales) in zip(results, batches, strict=True)
    )
    out_of_order = ctypes.CDLL("libcuda.so.1").cuda_sim_reports() if simulated else 0
    print(f"{len(results)} results, {wrong} wrong; {hurray.cuda.stats()}")
    return 1 if wrong or out_of_order else 0


def device_name():
    return ask(driver.cuDeviceGetName(128, 0)).split(b"\0")[0].decode()


def on_the_stand_in():
    """Begins again with the stand-in driver where the loader looks first."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    library = target / "debug" / "libhurray_cuda_sim.so"
    if "HURRAY_SIM_SEED" in os.environ or not library.exists():
        print(hurray.cuda.why_not(), file=sys.stderr)
        print("without a GPU: cargo build -p hurray-cuda-sim, and run this again", file=sys.stderr)
        return 1
    folder = target / "debug" / "cuda-sim"
    folder.mkdir(exist_ok=True)
    for name in ("libcuda.so", "libcuda.so.1"):
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(library)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "HURRAY_SIM_SEED": "0"}
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, __file__], environment)


if __name__ == "__main__":
    sys.exit(main())
