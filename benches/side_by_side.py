"""Our paths beside the peers', as ratios of medians.

A row times two statements in turns, a round of one and then a round of the other, so that a machine
that speeds up or slows down does so for both. NumPy, torch and tvm-ffi run in this process; the
published pyhurray, whose module has the same name, in another one, with the interpreter that
--pyhurray names. A missed aim is reported and fails nothing.
"""

import argparse
import json
import platform
import subprocess
import tempfile
import timeit
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import numpy as np
from arrays import BLOCK, COPIED, HANDLES, LAZY, SHAPE, under_aligned
from transfers import FEW, MANY, Transfers

import hurray

ROUND_NS = 1e6  # a round runs a statement often enough to take this long
ROW_NS = 1e9  # and a row takes rounds for as long as this,
ROUNDS = (9, 301)  # so many at least and at most


@dataclass
class Row:
    """Two statements, and the ratio of their times that we aim at, if we do."""

    name: str
    ours: str
    peer_name: str
    peer: str
    aim: float | None = None
    within: object = field(default=nullcontext, repr=False)  # what our statement runs inside


@dataclass
class Result:
    """Medians over rounds of the nanoseconds that one run of a statement takes."""

    name: str
    peer_name: str
    ours: str
    peer: str
    ours_ns: float
    peer_ns: float
    ratio: float
    aim: float | None
    met: bool | None
    rounds: int


class Here:
    """Runs statements in this process."""

    def __init__(self, known):
        self.known = known

    def run(self, statement, number, within=nullcontext):
        with within():
            return timeit.Timer(statement, globals=self.known).timeit(number) * 1e9


class Pyhurray:
    """Runs statements in the process of the published release."""

    def __init__(self, python):
        script = Path(__file__).with_name("pyhurray_process.py")
        self.process = subprocess.Popen(
            [python, "-E", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"pyhurray's process ended with {self.process.wait()}")
        return json.loads(line)

    def run(self, statement, number):
        print(
            json.dumps({"statement": statement, "number": number}),
            file=self.process.stdin,
            flush=True,
        )
        return self.answer()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def names():
    """What the statements call their objects."""
    with hurray.aligned_allocator():
        array = np.zeros(1024, np.float32)
        codes = np.zeros(SHAPE[0] * SHAPE[1] // 2, np.uint8)
        scales = np.ones((SHAPE[0], SHAPE[1] // BLOCK), np.float32)
        zeros = np.zeros((SHAPE[0], SHAPE[1] // BLOCK), np.int32)
        parts = [np.zeros(64, np.uint8) for _ in range(HANDLES)]
    known = {
        "HANDLES": HANDLES,
        "LAZY": LAZY,
        "array": array,
        "codes": codes,
        "hurray": hurray,
        "many": hurray.Tensor(
            parts[0],
            hurray.uint8,
            [64],
            aux_buffers=parts[1:],
            layout=hurray.PrivateExtensionLayout(0xF0, 7),
        ),
        "np": np,
        "scales": scales,
        "tensor": hurray.from_numpy(array, copy=False),
        "three": hurray.Tensor(
            codes,
            hurray.dtype.int4,
            SHAPE,
            aux_buffers=[scales, zeros],
            quantization=hurray.PerBlockAffine.asymmetric(1, BLOCK, 1, 2, hurray.float32),
        ),
        "under": under_aligned(COPIED),
        "zeros": zeros,
    }
    with hurray.copies() as log:
        hurray.from_numpy(known["under"])
    if sum(copy.bytes for copy in log) != COPIED:
        raise RuntimeError(f"from_numpy of an under-aligned array copied {list(log)}")
    return known


def rows_here():
    three = "np.from_dlpack(codes); np.from_dlpack(scales); np.from_dlpack(zeros)"
    each = "for i in range(HANDLES): many.buffer(i)"
    return [
        Row("handoff, 3 buffers", "hurray.from_hurray(three)", "NumPy, 3 DLPack", three, 1.0),
        Row(
            "from_numpy, aligned",
            "hurray.from_numpy(array)",
            "NumPy, 1 DLPack",
            "np.from_dlpack(array)",
            1.5,
        ),
        Row(
            "np.from_dlpack",
            "np.from_dlpack(tensor)",
            "NumPy, of ndarray",
            "np.from_dlpack(array)",
            1.5,
        ),
        Row(
            "buffer_handles, 3 buffers",
            "three.buffer_handles",
            "buffer(i), each",
            "three.buffer(0); three.buffer(1); three.buffer(2)",
            0.3,
        ),
        Row(
            f"buffer_handles, {HANDLES} buffers",
            "many.buffer_handles",
            "buffer(i), each",
            each,
            0.3,
        ),
        Row(
            "from_numpy, 256 MiB copied",
            "hurray.from_numpy(under)",
            "ndarray.copy",
            "under.copy()",
            1.0,
        ),
        Row(
            "zeros, 1 GiB lazy, aligned",
            "np.zeros(LAZY, np.uint8)",
            "NumPy's allocator",
            "np.zeros(LAZY, np.uint8)",
            3.0,
            hurray.aligned_allocator,
        ),
    ]


def rows_of(module, name):
    """A library that consumes DLPack, if it is installed."""
    if find_spec(module) is None:
        return []
    return [
        Row(
            f"{module}.from_dlpack",
            f"{module}.from_dlpack(tensor)",
            f"{name}, of ndarray",
            f"{module}.from_dlpack(array)",
        )
    ]


def rows_of_transfers():
    """Files of 1 GiB in 64 tensors, in a warm page cache; a quarter of it through a pipe."""
    first = "hurray.load(transfers.hurray_file)['t00']"
    saving = "save, file and folder synced"
    return [
        Row(
            "load, first tensor usable",
            f"np.asarray({first})[0]",
            "safetensors.numpy",
            "safetensors_numpy.load_file(transfers.safetensors_file)['t00'][0]",
            1 / 50,
        ),
        Row(
            "touch every byte",
            "transfers.touch()",
            "np.memmap",
            "transfers.touch_mapped()",
            1.0,
        ),
        Row(
            saving,
            "transfers.save()",
            "safetensors.numpy",
            "transfers.save_safetensors()",
            1.0,
        ),
        Row(saving, "transfers.save()", "plain write", "transfers.write_plain()", 1 / 0.9),
        Row(
            "stream through a pipe", "transfers.stream()", "plain pipe", "transfers.pipe()", 1 / 0.8
        ),
        Row(
            f"load, {MANY} tensors",
            "hurray.load(transfers.many)",
            f"{FEW}, {MANY // FEW} times",
            f"for _ in range({MANY // FEW}): hurray.load(transfers.few)",
            1.5,
        ),
        Row(
            f"save, {MANY} tensors",
            "hurray.save(transfers.copy, transfers.many_tensors)",
            f"{FEW}, {MANY // FEW} times",
            f"for _ in range({MANY // FEW}): hurray.save(transfers.copy, transfers.few_tensors)",
            1.5,
        ),
    ]


def rows_of_transfers_to_torch():
    return [
        Row(
            "load, first tensor usable",
            "hurray.load(transfers.hurray_file)['t00'].to_torch()[0]",
            "safetensors.torch",
            "safetensors_torch.load_file(transfers.safetensors_file)['t00'][0]",
            1.0,
        )
    ]


def rows_of_transfers_to_pyhurray(transfers):
    path = str(transfers.hurray_file)
    return [
        Row(
            "load, first tensor usable",
            "np.asarray(hurray.load(transfers.hurray_file)['t00'])[0]",
            "pyhurray 0.1.0",
            f"np.asarray(hurray.load({path!r})['t00'])[0]",
            1 / 50,
        )
    ]


def rows_pyhurray():
    same = {
        "handoff, 3 buffers": "hurray.from_hurray(three)",
        "from_numpy, aligned": "hurray.from_numpy(array)",
        "np.from_dlpack": "np.from_dlpack(tensor)",
        "buffer_handles, 3 buffers": "three.buffer_handles",
        f"buffer_handles, {HANDLES} buffers": "many.buffer_handles",
        "from_numpy, 256 MiB copied": "hurray.from_numpy(under)",
    }
    return [Row(name, statement, "pyhurray 0.1.0", statement) for name, statement in same.items()]


def measure(row, ours, peer):
    def number_for(run):
        number = 1
        while (taken := run(number)) < ROUND_NS / 4 and number < 1 << 20:
            number *= 4
        return max(1, round(number * ROUND_NS / taken)), max(taken, ROUND_NS)

    def run_ours(number):
        return ours.run(row.ours, number, row.within)

    def run_peer(number):
        return peer.run(row.peer, number)

    (ours_number, ours_taken), (peer_number, peer_taken) = map(number_for, (run_ours, run_peer))
    least, most = ROUNDS
    rounds = min(most, max(least, round(ROW_NS / (ours_taken + peer_taken))))
    pairs = [
        (run_ours(ours_number) / ours_number, run_peer(peer_number) / peer_number)
        for _ in range(rounds)
    ]
    ours_ns, peer_ns = (median(column) for column in zip(*pairs, strict=True))
    ratio = ours_ns / peer_ns
    met = None if row.aim is None else ratio <= row.aim
    return Result(
        row.name, row.peer_name, row.ours, row.peer, ours_ns, peer_ns, ratio, row.aim, met, rounds
    )


def duration(ns):
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.3g} ns"


def line(result):
    aim = "" if result.aim is None else f"<= {result.aim:g} {'met' if result.met else 'MISSED'}"
    return (
        f"{result.name:<28}{duration(result.ours_ns):>10}  {result.peer_name:<20}"
        f"{duration(result.peer_ns):>10}{result.ratio:>8.2f}  {aim}"
    )


def machine():
    installed = {
        name: version(name)
        for module, name in {
            "numpy": "numpy",
            "torch": "torch",
            "tvm_ffi": "apache-tvm-ffi",
        }.items()
        if find_spec(module) is not None
    }
    return {"python": platform.python_version(), "machine": platform.machine(), **installed}


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--pyhurray", help="Python of an environment with pyhurray 0.1.0")
    arguments.add_argument("--only", default="", help="part of the names of the rows to run")
    arguments.add_argument("--json", type=Path, help="file to write the numbers to")
    options = arguments.parse_args()

    known = names()
    here = Here(known)
    tasks = [(row, here) for row in rows_here()]
    for module, name in (("torch", "PyTorch"), ("tvm_ffi", "tvm-ffi")):
        for row in rows_of(module, name):
            known[module] = __import__(module)
            tasks.append((row, here))
    other = Pyhurray(options.pyhurray) if options.pyhurray else None
    if other:
        tasks += [(row, other) for row in rows_pyhurray()]
    folder = tempfile.TemporaryDirectory()
    transfers = known["transfers"] = Transfers(Path(folder.name))
    known["safetensors_numpy"] = import_module("safetensors.numpy")
    tasks += [(row, here) for row in rows_of_transfers()]
    if "torch" in known:
        known["safetensors_torch"] = import_module("safetensors.torch")
        tasks += [(row, here) for row in rows_of_transfers_to_torch()]
    if other:
        tasks += [(row, other) for row in rows_of_transfers_to_pyhurray(transfers)]

    print(f"{'':<28}{'ours':>10}  {'peer':<20}{'':>10}{'ratio':>8}  aim")
    results = []
    for row, peer in tasks:
        if options.only not in row.name:
            continue
        results.append(measure(row, here, peer))
        print(line(results[-1]), flush=True)
    if other:
        other.close()
    folder.cleanup()

    missed = [r for r in results if r.met is False]
    aims = sum(r.met is not None for r in results)
    print(f"\n{aims - len(missed)} of {aims} aims met")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        written = {"machine": machine(), "rows": [asdict(r) for r in results]}
        options.json.write_text(json.dumps(written, indent=2) + "\n")


if __name__ == "__main__":
    main()
