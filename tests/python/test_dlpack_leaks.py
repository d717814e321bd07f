"""Nothing is kept by an exchange, and nothing is said at the interpreter's end."""

import gc
import os
import resource
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dlpack_producer import Producer, array_at

import hurray

LOOPS = 10_000


@pytest.mark.parametrize("version", [None, (1, 0)])
@pytest.mark.parametrize("offset", [0, 4])
def test_each_import_is_deleted_once(version: Any, offset: int) -> None:
    # C14: pytorch/pytorch#9261, tensorflow/tensorflow#40061.
    producer = Producer(array_at(offset, 16), (16,), version=version)
    for _ in range(LOOPS):
        hurray.from_dlpack(producer)
    assert producer.deleted == LOOPS


def test_refused_imports_are_deleted_once() -> None:
    # C10: dmlc/dlpack#51.
    producer = Producer(array_at(0, 16), (16,), dtype=(2, 128, 1))
    for _ in range(LOOPS):
        with pytest.raises(BufferError):
            hurray.from_dlpack(producer)
    assert producer.deleted == LOOPS


def resident() -> int:
    """Bytes of memory that this process has now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def grows(exchange: Callable[[], object]) -> int:
    # Pools of the libraries fill first.
    for _ in range(LOOPS):
        exchange()
    gc.collect()
    before = resident()
    for _ in range(LOOPS):
        exchange()
    gc.collect()
    return resident() - before


# A leak of a managed tensor alone would be about 1.5 MB.
LIMIT = 1 << 20


def test_exports_leave_nothing(torch: Any) -> None:
    # C14: each direction, 10^4 times.
    tvm_ffi = pytest.importorskip("tvm_ffi")
    jax = pytest.importorskip("jax")
    array = array_at(0, 1024)
    source = hurray.from_numpy(array)
    references = sys.getrefcount(array)
    flags = hurray.from_numpy(np.ones(1024, bool))
    exchanges: list[Callable[[], object]] = [
        lambda: np.from_dlpack(source),
        lambda: torch.from_dlpack(source),
        lambda: jax.dlpack.from_dlpack(source),
        lambda: tvm_ffi.from_dlpack(source),
        lambda: source.__dlpack__(),
        lambda: source.__dlpack__(max_version=(1, 0)),
        lambda: source.__dlpack__(copy=True),
        lambda: np.from_dlpack(flags),
    ]
    for exchange in exchanges:
        assert grows(exchange) < LIMIT
    assert sys.getrefcount(array) == references


def test_imports_leave_nothing(torch: Any) -> None:
    tvm_ffi = pytest.importorskip("tvm_ffi")
    jax = pytest.importorskip("jax")
    array = array_at(0, 1024)
    weights = torch.zeros(1024)
    producers = [
        array,
        array.view(type("Sub", (np.ndarray,), {})),
        weights,
        torch.nn.Parameter(weights, requires_grad=False),
        jax.numpy.zeros(1024),
        tvm_ffi.from_dlpack(array),
        hurray.from_numpy(array),
    ]
    for producer in producers:
        for copy in (None, True):
            assert grows(lambda p=producer, c=copy: hurray.from_dlpack(p, copy=c)) < LIMIT  # type: ignore[misc]


def test_deleters_run_on_any_thread() -> None:
    # C12: pytorch/pytorch#88082, dmlc/dlpack#103.
    producer = Producer(array_at(0, 16), (16,))
    taken = [hurray.from_dlpack(producer) for _ in range(100)]
    outs = [np.from_dlpack(t) for t in taken]
    threads = [threading.Thread(target=part.clear) for part in (taken, outs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert producer.deleted == 100


EXITS = {
    "live tensors and consumers": """
        source = hurray.from_dlpack(Producer(array_at(0, 16), (16,)))
        keep = [source, np.from_dlpack(source), source.__dlpack__()]
        keep.append(source.__dlpack__(max_version=(1, 0)))
    """,
    "a cycle with the module": """
        np.keep = [hurray.from_dlpack(Producer(array_at(0, 16), (16,))) for _ in range(10)]
        np.keep.append(np.keep)
    """,
    "torch": """
        import torch
        keep = [torch.from_dlpack(hurray.from_dlpack(torch.ones(16))) for _ in range(10)]
    """,
    "jax": """
        import jax
        out = jax.dlpack.from_dlpack(hurray.from_numpy(array_at(0, 16)))
        keep = [out, hurray.from_dlpack(jax.numpy.ones(16))]
    """,
    "a thread that lets go": """
        import threading, time
        source = hurray.from_dlpack(Producer(array_at(0, 16), (16,)))
        def work():
            while True:
                np.from_dlpack(source)
        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.2)
    """,
}


@pytest.mark.parametrize("name", EXITS)
def test_the_interpreter_ends_quietly(name: str) -> None:
    # C12: numpy/numpy#22507, dmlc/dlpack#129.
    if name in ("torch", "jax"):
        pytest.importorskip(name)
    code = (
        "import numpy as np, hurray\nfrom dlpack_producer import Producer, array_at\n"
        + textwrap.dedent(EXITS[name])
    )
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
