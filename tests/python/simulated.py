"""Python programs on the stand-in CUDA driver (`docs/cuda-sim.md`), each in a process of its own.

A process that has loaded everything, and no driver, forks for each program: the driver reads its
settings when it is loaded, and starting Python anew for each would take ten times as long.
"""

import atexit
import json
import os
import queue
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from textwrap import dedent, indent

import hurray

TESTS = Path(__file__).parent
PACKAGE = Path(hurray.__file__).parents[1]
# The status of a program that ended in `hurray.DeviceError`.
DEVICE_ERROR = 3
FREES = ("cuMemFree_v2", "cuMemFreeAsync", "cuMemFreeHost")

# What programs begin with. Bytes are written on stream `p`, and read on stream `c`.
PRELUDE = """
import gc
import threading
import numpy as np
import hurray
from cuda_programs import *

gpu = Gpu()
p, c = gpu.stream(), gpu.stream()
waits = gpu.host_waits()

def arrays(count, stream=p):
    return [CudaArray(gpu, stream) for _ in range(count)]

def quantized(sources):
    # A tensor of two buffers, each with an owner of its own.
    codes, scales = sources
    with hurray.cuda.Stream(p):
        return hurray.Tensor(
            codes, hurray.int8, [1024, 4], aux_buffers=[scales],
            quantization=hurray.PerChannelAffine.symmetric(0, 1),
        )

def written(source):
    # A tensor as far as the stream is that wrote it.
    with hurray.cuda.Stream(p):
        return hurray.Tensor(source, hurray.uint8, [LEN])

def calls():
    return gpu.calls("cuEventRecord"), gpu.calls("cuStreamWaitEvent")

def let_go(freed):
    # Nobody waits on the host for it, and no thread of the program does it.
    until(lambda: freed)
    assert gpu.host_waits() == waits
    assert freed[0] is not threading.main_thread()
"""


@cache
def directory() -> str:
    """A folder that has the driver under the names by which it is looked for."""
    found = os.environ.get("HURRAY_SIM") or built()
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    for name in ("libcuda.so", "libcuda.so.1"):
        (Path(folder.name) / name).symlink_to(Path(found).resolve())
    return folder.name


def built() -> str:
    command = "cargo build --quiet --locked --package hurray-cuda-sim --message-format=json"
    result = subprocess.run(
        command.split(),
        cwd=TESTS,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    for line in result.stdout.splitlines():
        for name in json.loads(line).get("filenames", []):
            if name.endswith("libhurray_cuda_sim.so"):
                return name
    raise FileNotFoundError("cargo built no libhurray_cuda_sim.so")


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HURRAY_SIM")}
    return kept | {
        "LD_LIBRARY_PATH": directory(),
        "PYTHONPATH": os.pathsep.join([str(PACKAGE), str(TESTS)]),
        "OPENBLAS_NUM_THREADS": "1",
    }


@dataclass(frozen=True)
class Count:
    program: int = 0
    reclaimer: int = 0

    @property
    def total(self) -> int:
        return self.program + self.reclaimer


@dataclass
class Outcome:
    status: int
    stdout: str
    stderr: str
    # (kind, text)
    reports: list[tuple[str, str]]
    counts: dict[str, Count] = field(repr=False)

    def calls(self, function: str) -> Count:
        """Calls of a function; `host-waits` are the host synchronisations."""
        return self.counts.get(function, Count())

    @property
    def defects(self) -> list[tuple[str, str]]:
        """The reports, but for what outlives every process."""
        return [report for report in self.reports if not report[0].startswith("leak")]

    @property
    def is_noticed(self) -> bool:
        return bool(self.defects) or self.status != 0

    def assert_clean(self) -> "Outcome":
        # The pool of a device lives as long as its context.
        leaks = [text for kind, text in self.reports if kind.startswith("leak")]
        leaks = [text for text in leaks if not text.endswith("of kind pool")]
        found = (self.status, self.stderr, self.defects, leaks)
        assert found == (0, "", [], []), self
        return self


def rows(folder: str, name: str) -> list[list[str]]:
    path = Path(folder, name)
    return [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []


class Server:
    """The process that forks."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", str(TESTS / "simulated_server.py")],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, program: str, settings: dict[str, str]) -> Outcome:
        with tempfile.TemporaryDirectory() as folder:
            request = {"program": program, "folder": folder, "settings": settings}
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            status = int(self.process.stdout.readline())
            counts = {name: Count(int(a), int(b)) for name, a, b in rows(folder, "counts")}
            return Outcome(
                status,
                Path(folder, "stdout").read_text(),
                Path(folder, "stderr").read_text(),
                [(row[0], row[1]) for row in rows(folder, "report")],
                counts,
            )

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


@cache
def servers() -> "queue.SimpleQueue[Server]":
    idle = queue.SimpleQueue()
    for _ in range(len(os.sched_getaffinity(0))):
        server = Server()
        atexit.register(server.close)
        idle.put(server)
    return idle


def run(program: str, **settings: object) -> Outcome:
    """Runs a program. `devices=2` is the setting `HURRAY_SIM_DEVICES=2`."""
    idle = servers()
    server = idle.get()
    try:
        named = {f"HURRAY_SIM_{name.upper()}": str(value) for name, value in settings.items()}
        return server.run(dedent(program), named)
    finally:
        idle.put(server)


def whole(body: str, more: str = "") -> str:
    """A program, `PRELUDE` and `more` before it, that has let go of everything when it looks for
    leaks."""
    body = indent(dedent(body), "    ")
    return f"{PRELUDE}{more}\ndef run():\n{body}\nrun()\ngpu.close()\n"


def run_all(program: str, settings: Iterable[dict[str, object]]) -> list[Outcome]:
    with ThreadPoolExecutor(servers().qsize() or 1) as pool:
        return list(pool.map(lambda chosen: run(program, **chosen), settings))


def sweep(program: str, **settings: object) -> tuple[Outcome, set[tuple[str, int]]]:
    """Plants a defect at every call that orders: each wait and record that does nothing, each free
    that runs early. What came of the sound program, and the defects that nobody noticed."""
    sound = run(program, **settings).assert_clean()
    planted = [
        (kind, function, n)
        for kind, functions in [
            ("swallow", ("cuStreamWaitEvent", "cuEventRecord")),
            ("early", FREES),
        ]
        for function in functions
        for n in range(1, sound.calls(function).total + 1)
    ]
    outcomes = run_all(
        program, [settings | {kind: f"{function}:{n}"} for kind, function, n in planted]
    )
    unnoticed = {
        (function, n)
        for (_, function, n), outcome in zip(planted, outcomes, strict=True)
        if not outcome.is_noticed
    }
    return sound, unnoticed


def fail_everywhere(program: str, code: int, step: int = 1) -> list[tuple[int, Outcome]]:
    """What comes of the program where the n-th call of the driver fails, for every `step`-th n."""
    counts = run(program).counts
    total = sum(count.total for name, count in counts.items() if name.startswith("cu"))
    places = range(1, total + 1, step)
    outcomes = run_all(program, [{"fail": f"*:{n}:{code}"} for n in places])
    return list(zip(places, outcomes, strict=True))
