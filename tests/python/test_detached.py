"""Functions of other libraries are called without the interpreter: they may wait for its user."""

import ctypes
import subprocess
import threading

import numpy as np
import pytest
from foreign_producer import API, DESTROY, LEN, RELEASE, Api, Buffer, Producer
from placed import aligned

import hurray

SOURCE = r"""
#include <stdint.h>
#include <unistd.h>

volatile int begun, turned, missed;

/* Waits for a Python thread to say that it ran. */
static void wait(void) {
    begun = 1;
    for (int i = 0; i < 2000 && !turned; i++)
        usleep(1000);
    missed += !turned;
}
int32_t len(void *list, uint64_t *out) {
    (void)list;
    *out = 1;
    wait();
    return 0;
}
int32_t release(void *list, uint64_t index, size_t stream) {
    (void)list, (void)index, (void)stream;
    wait();
    return 0;
}
int32_t destroy(void **list) {
    *list = 0;
    wait();
    return 0;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("waits")
    (folder / "waits.c").write_text(SOURCE)
    compile_ = ["cc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", folder / "waits.so"]
    subprocess.run([*compile_, folder / "waits.c"], check=True)
    return ctypes.CDLL(str(folder / "waits.so"))


def consumed(producer):
    return hurray.from_hurray(producer.offer())


def composite(producer):
    member = consumed(producer)
    return hurray.Composite("group", shape=[1], dtype=hurray.uint8, members=[member])


# What is made of a producer's capsule, and what is then done to it, the step that is watched.
STEPS = {
    "consumption": (lambda producer: producer, consumed, "list_len"),
    "release of a tensor": (consumed, None, "list_release"),
    "release of a view": (lambda p: consumed(p).buffer(0), None, "list_release"),
    "release of a composite": (composite, None, "list_release"),
    "release of a relayed capsule": (lambda p: consumed(p).__hurray__(), None, "list_release"),
    "destruction": (consumed, None, "list_destroy"),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_function_that_waits_for_a_thread_that_needs_the_interpreter(library, step):
    prepare, act, function = STEPS[step]
    table = Api.from_buffer_copy(API)
    kind = {"list_len": LEN, "list_release": RELEASE, "list_destroy": DESTROY}[function]
    name = function.removeprefix("list_")
    setattr(table, function, ctypes.cast(getattr(library, name), kind))
    array = aligned(16)
    descriptor = hurray.Tensor(array, hurray.uint8, [16]).descriptor.encode()
    producer = Producer(descriptor, [Buffer.of(array)], keep=(array, table))
    for struct in (producer.context, producer.list, *producer.handles):
        struct.api = ctypes.addressof(table)
    begun, turned, missed = (
        ctypes.c_int.in_dll(library, word) for word in ("begun", "turned", "missed")
    )
    begun.value = turned.value = missed.value = 0
    prepared = [prepare(producer)]
    over = threading.Event()

    def turn():
        while not begun.value and not over.wait(0.001):
            pass
        turned.value = 1

    thread = threading.Thread(target=turn)
    thread.start()
    if act:
        act(prepared[0])
    prepared.clear()
    over.set()
    thread.join()
    assert (begun.value, missed.value) == (1, 0)
    assert np.all(array == 0)
