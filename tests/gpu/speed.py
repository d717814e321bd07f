"""Figures, each beside what it is measured by, from the same run."""

import os
import re
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

from cuda_programs import Offer
from device_work import Device, call, driver
from row import Skipped, row

import hurray

BYTES = 1 << 30
TENSORS = 64


def seconds_of(call, rounds):
    """Median of the seconds that `call` takes, after one that does not count."""
    call()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return median(times)


@row("Copies and ordering, beside `cuMemcpyAsync`", gpu=True, seconds=120)
def copies():
    bench = Path(os.environ["HURRAY_GPU_KIT"]) / "device-bench"
    if not bench.exists():
        raise Skipped("the kit has no device-bench")
    short = ["--warm-up-time", "0.3", "--measurement-time", "0.6", "--sample-size", "10"]
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            [bench, "--bench", "--noplot", *short],
            cwd=folder,
            env={**os.environ, "CARGO_TARGET_DIR": folder},
            capture_output=True,
            text=True,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr[-2000:]
    # A case has a line `device/NAME` and `time: [low median high]`, perhaps `thrpt:` after it.
    found = re.findall(
        r"^device/(.+?)\s+time:\s+\[\S+ \S+ (\S+ \S+) .*?\](?:\s+thrpt:\s+\[\S+ \S+ (\S+ \S+))?",
        ran.stdout,
        re.MULTILINE,
    )
    assert found, ran.stdout[-2000:]
    return "; ".join(f"{name} {throughput or time}" for name, time, throughput in found)


@row("Handing on three buffers across streams, beside torch", needs=("torch",), seconds=60)
def handoff():
    import torch

    device = Device()
    a, b = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(a):
        codes = torch.zeros(512, 512, dtype=torch.int8, device="cuda")
        scales = torch.ones(512, device="cuda")
        zeros = torch.zeros(512, dtype=torch.int32, device="cuda")
        sent = hurray.Tensor(
            codes,
            hurray.int8,
            codes.shape,
            aux_buffers=[scales, zeros],
            quantization=hurray.PerChannelAffine.asymmetric(0, 1, 2),
        )
    torch.cuda.synchronize()
    consumer = b.cuda_stream

    offer = Offer(sent)

    def ours():
        hurray.from_hurray(offer, stream=consumer)

    def theirs():
        for x in (codes, scales, zeros):
            torch.utils.dlpack.from_dlpack(x.__dlpack__(stream=consumer))

    event = call(driver.cuEventCreate(2))

    def plain():
        driver.cuEventRecord(event, a.cuda_stream)
        driver.cuStreamWaitEvent(consumer, event, 0)

    def nanoseconds(call):
        def batch():
            for _ in range(100):
                call()

        time = seconds_of(batch, 50) / 100 * 1e9
        device.synchronize()
        return time

    # torch takes its current stream for the producer's.
    with torch.cuda.stream(a):
        three = {name: nanoseconds(f) for name, f in (("our", ours), ("torch", theirs))}
    three["plain"] = nanoseconds(plain)
    text = (
        f"{three['our'] / 1e3:.2f} µs; three torch → DLPack → torch {three['torch'] / 1e3:.2f} µs; "
        f"one record and wait {three['plain'] / 1e3:.2f} µs, both from Python"
    )
    assert three["our"] < three["torch"], f"slower than torch: {text}"
    assert three["our"] <= 3 * three["plain"], f"more than three records and waits: {text}"
    return text


@row("Loading a file to the device, beside a pinned copy and safetensors", gpu=True, seconds=120)
def load():
    import numpy as np

    device = Device()
    stream = device.stream()
    each = BYTES // TENSORS
    arrays = {f"layer.{i}": np.full(each // 4, i, np.float32) for i in range(TENSORS)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.hurray"
        hurray.save(path, {name: hurray.from_numpy(array) for name, array in arrays.items()})

        def ours():
            loaded = hurray.load(path, device="cuda:0")
            device.synchronize()
            return loaded

        times = {"`hurray.load`": seconds_of(ours, 5)}
        last = ours()[f"layer.{TENSORS - 1}"].to("cpu")
        assert (np.asarray(last) == TENSORS - 1).all()

        pinned = call(driver.cuMemHostAlloc(BYTES, 0))
        target = device.alloc(BYTES)

        def plain():
            stream.copy(target, int(pinned), BYTES)
            stream.synchronize()

        times["a pinned copy"] = seconds_of(plain, 5)
        device.free(target)
        call(driver.cuMemFreeHost(pinned))
        try:
            import torch
            from safetensors.numpy import save_file
            from safetensors.torch import load_file
        except ImportError:
            pass
        else:
            other = Path(folder) / "weights.safetensors"
            save_file(arrays, other)

            def theirs():
                loaded = load_file(other, device="cuda:0")
                torch.cuda.synchronize()
                return loaded

            times["safetensors"] = seconds_of(theirs, 5)
    rates = "; ".join(f"{name} {BYTES / t / 1e9:.1f} GB/s" for name, t in times.items())
    return f"{rates}; 1 GiB in {TENSORS} tensors, the file in the page cache"
