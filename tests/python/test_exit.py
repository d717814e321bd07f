"""An interpreter that ends with tensors about: status 0, no message, whatever threads still run."""

import subprocess
import sys
from pathlib import Path

import pytest

# What every program here has: memory that the test places, a producer in ctypes, a native thread.
PREAMBLE = """
import ctypes, gc, sys, threading, time, weakref
sys.path.insert(0, {tests!r})
import numpy as np
import foreign_producer as foreign
from foreign_producer import Api, Buffer, Context, Offer, Producer
from placed import aligned
import hurray

def quantized():
    return hurray.Tensor(
        aligned(16), hurray.int8, [4, 4], aux_buffers=[aligned(16)],
        quantization=hurray.PerChannelAffine.symmetric(0, 1),
    )

def foreign_tensor():
    tensor = quantized()
    buffers = [Buffer.of(np.asarray(tensor.buffer(i))) for i in range(2)]
    return hurray.from_hurray(Producer(tensor.descriptor.encode(), buffers, keep=tensor).offer())

def list_of(tensor):
    # A list in C's hands, and the table to let go of it with.
    capsule = tensor.__hurray__()
    api = Api.from_address(Context.from_address(foreign.get_context(capsule)).api)
    list_ = ctypes.c_void_p(foreign.get_pointer(capsule, b"hurray_buffer"))
    name = ctypes.create_string_buffer(b"used_hurray_buffer")
    foreign._alive[id(name)] = name
    foreign.set_name(capsule, ctypes.addressof(name))
    return api, list_

def started(work):
    # A thread that is at work when the interpreter ends.
    running = threading.Event()
    def run():
        while True:
            work()
            running.set()
    threading.Thread(target=run, daemon=True).start()
    running.wait()
"""

PROGRAMS = {
    "tensors in globals": "tensor, view = quantized(), quantized().buffer(1)",
    "unconsumed capsules": "capsules = [quantized().__hurray__() for _ in range(10)]",
    "a capsule in a cycle": """
        cycle = [quantized().__hurray__()]
        cycle.append(cycle)
        gc.disable()
    """,
    "arrays and views of tensors": """
        tensor = quantized()
        held = [np.asarray(tensor.codes), memoryview(tensor.buffer(0)), tensor.T]
    """,
    "composites": """
        composite = hurray.Composite(
            "group", shape=[1], dtype=hurray.int8, members=[quantized(), quantized()]
        )
        capsule = composite.__hurray__()
    """,
    "tensors of another producer": "tensors = [foreign_tensor() for _ in range(10)]",
    "a relayed capsule of another producer": "capsule = foreign_tensor().__hurray__()",
    "an open block": "hurray.copies().__enter__()",
    "an allocator in force": """
        hurray.aligned_allocator().__enter__()
        tensor = hurray.from_numpy(np.zeros(100))
    """,
    "a list that C never lets go": "held = list_of(quantized())",
    "a module attribute of sys": "sys.tensor = quantized()",
    "an object that lets go after the atexit handlers": """
        class Late:
            def __init__(self):
                self.tensor = quantized()
            def __del__(self):
                hurray.from_hurray(self.tensor) if hurray else None
        sys.late = Late()
    """,
    "an object that saves after the atexit handlers": """
        import io
        class Late:
            def __init__(self):
                self.save, self.tensors, self.file = hurray.save, {"t": quantized()}, io.BytesIO()
            def __del__(self):
                self.save(self.file, self.tensors)
                assert self.file.getvalue()
        sys.late = Late()
    """,
    "a handler that was there before": """
        # hurray was imported above, so this runs first; what it drops is let go as ever.
        import atexit
        owner = aligned(64)
        kept = [hurray.from_numpy(owner)]
        reference = weakref.ref(owner)
        del owner
        def handler():
            kept.clear()
            assert reference() is None
        atexit.register(handler)
    """,
    "threads that hand over": """
        tensor = quantized()
        for _ in range(4):
            started(lambda: hurray.from_hurray(tensor).T.buffer(0))
    """,
    "threads that make and drop": "[started(lambda: quantized().__hurray__()) for _ in range(4)]",
    "threads that copy": """
        array = np.frombuffer(memoryview(aligned(1 << 22, offset=1)), np.uint8)
        for _ in range(3):
            started(lambda: hurray.from_numpy(array))
    """,
    "threads at another producer's functions": """
        for _ in range(3):
            started(foreign_tensor)
    """,
    "threads at producers written in Python": """
        class Slow:
            def __init__(self, tensor):
                self.tensor = tensor
            def __hurray__(self, stream=None):
                return self.tensor.__hurray__()
            def __dlpack_device__(self):
                return (1, 0)
            def __dlpack__(self, **kwargs):
                sum(range(100))
                return self.tensor.__dlpack__(**kwargs)
        slow = Slow(hurray.Tensor(aligned(16), hurray.int8, [16]))
        for take in (hurray.from_hurray, hurray.from_dlpack) * 2:
            started(lambda take=take: take(slow))
    """,
    "threads at paths and numbers written in Python": """
        class Path:
            def __fspath__(self):
                sum(range(100))
                raise ValueError
        def save():
            try:
                hurray.save(Path(), {})
            except ValueError:
                pass
        tensor = hurray.from_numpy(aligned(1 << 20))
        for _ in range(2):
            started(save)
            started(lambda: tensor.__array__(np.float64))
    """,
    "threads that hold tensors and sleep": """
        held = threading.Event()
        def hold():
            tensor, capsule, other = quantized(), quantized().__hurray__(), foreign_tensor()
            held.set()
            time.sleep(1000)
        threading.Thread(target=hold, daemon=True).start()
        held.wait()
    """,
    "threads that let go of lists without the interpreter": """
        def work():
            api, list_ = list_of(quantized())
            api.list_destroy(ctypes.byref(list_))
        for _ in range(4):
            started(work)
    """,
    "a thread that is joined at the end": """
        def work():
            time.sleep(0.1)
            for _ in range(100):
                hurray.from_hurray(quantized())
        threading.Thread(target=work).start()
    """,
    "an exception": """
        tensor, capsule = quantized(), quantized().__hurray__()
        sys.exit(0)
    """,
}


def run(program: str) -> subprocess.CompletedProcess:
    preamble = PREAMBLE.format(tests=str(Path(__file__).parent))
    lines = program.split("\n")
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    body = "\n".join(line[indent:] for line in lines)
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", preamble + body],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_ends_with_status_0_and_no_message(name):
    result = run(PROGRAMS[name])
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name.startswith("threads")])
def test_threads_again_and_again(name):
    """Where the threads stand when the interpreter ends differs from run to run."""
    for _ in range(5):
        result = run(PROGRAMS[name])
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


NATIVE = r"""
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LISTS 200
static int (*destroy)(void **);
static void *lists[LISTS];
static volatile int destroyed;

static void *run(void *unused) {
    (void)unused;
    for (; destroyed < LISTS; destroyed++) {
        usleep(2000);
        destroy(&lists[destroyed]);
    }
    return 0;
}

/* Runs when Python has ended, and holds the process until the thread has come through. */
static void wait_for_thread(void) {
    for (int i = 0; i < 2000 && destroyed < LISTS; i++)
        usleep(5000);
    if (destroyed < LISTS) {
        fprintf(stderr, "the thread let go of %d lists and was ended\n", destroyed);
        _exit(3);
    }
}

void let_go_slowly(void *function, void **given) {
    pthread_t thread;
    destroy = (int (*)(void **))function;
    for (int i = 0; i < LISTS; i++)
        lists[i] = given[i];
    atexit(wait_for_thread);
    pthread_create(&thread, 0, run, 0);
}

/* A producer's release that outlasts the handler's patience, and a destruction at once. */
static volatile int released;
int32_t release_slowly(void *list, uint64_t index, size_t stream) {
    (void)list, (void)index, (void)stream;
    released = 1;
    usleep(2000000);
    released = 2;
    return 0;
}
int32_t destroy_at_once(void **list) {
    *list = 0;
    return 0;
}
int has_begun(void) { return released; }

static void wait_for_release(void) {
    while (released != 2)
        usleep(1000);
    usleep(200000);
}
void outlast_the_release(void) { atexit(wait_for_release); }
"""


@pytest.fixture(scope="module")
def native(tmp_path_factory) -> Path:
    """A C library with threads and waits of its own."""
    folder = tmp_path_factory.mktemp("native")
    (folder / "native.c").write_text(NATIVE)
    library = folder / "native.so"
    compile_ = ["cc", "-shared", "-fPIC", "-pthread", "-Wall", "-Werror", "-o", library]
    subprocess.run([*compile_, folder / "native.c"], check=True)
    return library


def test_a_native_thread_that_lets_go_while_and_after_python_ends(native):
    """A C consumer lets go on a thread of its own at any time, and must not be ended for it."""
    result = run(
        f"""
        lists = [list_of(quantized()) for _ in range(200)]
        given = (ctypes.c_void_p * 200)(*[list_.value for _, list_ in lists])
        destroy = ctypes.cast(lists[0][0].list_destroy, ctypes.c_void_p)
        ctypes.CDLL({str(native)!r}).let_go_slowly(destroy, given)
        time.sleep(0.05)
        """
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_a_native_thread_that_waits_for_the_interpreter_when_it_ends(native):
    """The thread asked before the door closed: hurray's handler waits until it has come through."""
    result = run(
        f"""
        import atexit
        lists = [list_of(quantized()) for _ in range(200)]
        given = (ctypes.c_void_p * 200)(*[list_.value for _, list_ in lists])
        destroy = ctypes.cast(lists[0][0].list_destroy, ctypes.c_void_p)
        # Functions of a PyDLL keep the interpreter.
        native, libc = ctypes.PyDLL({str(native)!r}), ctypes.PyDLL(None)
        sys.setswitchinterval(1000)
        def handler():
            native.let_go_slowly(destroy, given)
            libc.usleep(100_000)
        atexit.register(handler)
        """
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_a_thread_that_is_still_in_another_library_when_python_has_ended(native):
    result = run(
        f"""
        library = ctypes.CDLL({str(native)!r})
        table = Api.from_buffer_copy(foreign.API)
        table.list_release = ctypes.cast(library.release_slowly, foreign.RELEASE)
        table.list_destroy = ctypes.cast(library.destroy_at_once, foreign.DESTROY)
        array = aligned(16)
        descriptor = hurray.Tensor(array, hurray.uint8, [16]).descriptor.encode()
        producer = Producer(descriptor, [Buffer.of(array)], keep=(array, table))
        address = ctypes.addressof(table)
        producer.context.api = producer.list.api = address
        for handle in producer.handles:
            handle.api = address
        tensors = [hurray.from_hurray(producer.offer())]
        threading.Thread(target=tensors.clear, daemon=True).start()
        while not library.has_begun():
            time.sleep(0.001)
        library.outlast_the_release()
        """
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
