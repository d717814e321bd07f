"""Files and streams to and from a device, on the stand-in driver."""

import simulated

PROGRAM = """
import io, os, sys, tempfile
import numpy as np
import hurray

folder = tempfile.TemporaryDirectory()
path = os.path.join(folder.name, "model.hrry")
array = np.arange(3 << 18, dtype=np.float32).reshape(3, -1)
codes = hurray.Tensor(
    np.arange(64, dtype=np.int8), hurray.int8, [4, 16], aux_buffers=[np.ones(4, np.float32)],
    quantization=hurray.PerChannelAffine.symmetric(0, 1),
)
group = hurray.Composite(
    "group", shape=[], dtype=hurray.float32, members=[hurray.from_numpy(array), codes]
)
tensors = {"array": hurray.from_numpy(array), "codes": codes, "group": group}
hurray.save(path, tensors)

def stream(item):
    writer = hurray.StreamWriter()
    writer.write(item)
    return writer.getvalue()
"""


def clean(program: str, **settings: object) -> None:
    """Pinned chunks, streams and events are kept for the next load, as long as the process."""
    outcome = simulated.run(PROGRAM + program, **settings)
    assert (outcome.status, outcome.stdout, outcome.stderr, outcome.defects) == (0, "", "", [])


def test_there_and_back():
    clean(
        """
for mmap in (True, False):
    there = hurray.load(path, device="cuda:1", mmap=mmap)
    for tensor in (there["array"], there["codes"], *there["group"].members):
        assert str(tensor.device) == "cuda:1", tensor.device
        assert {handle.sync_mode for handle in tensor.buffer_handles} == {"event"}
    back = io.BytesIO()
    hurray.save(back, there)
    assert back.getvalue() == open(path, "rb").read()
    hurray.save(path + ".copy", there)
    assert open(path + ".copy", "rb").read() == back.getvalue()
    for name, item in there.items():
        assert stream(item) == stream(tensors[name])
""",
        devices=2,
    )


def test_an_open_file_and_its_slices():
    clean(
        """
with hurray.open(path, device="cuda:0") as file:
    assert stream(file["array"]) == stream(tensors["array"])
    rows = file.slice("array", 1, 2)
assert str(rows.device) == "cuda:0"
assert stream(rows) == stream(hurray.from_numpy(array[1:2].copy()))
"""
    )


def test_a_file_object_is_written_to_without_the_interpreter():
    """What the device waits for needs it, and the copy waits for the device."""
    clean(
        """
import ctypes
from cuda_programs import Gpu, call, driver

gpu = Gpu()
p = gpu.stream()

@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def slow(_):
    sum(range(1000))

function = driver.CUhostFn(_ptr=ctypes.addressof(slow))
there = tensors["array"].to("cuda:0", stream=p)
call(driver.cuLaunchHostFunc(p, function, 0))
sink = io.BytesIO()
with hurray.copies() as log:
    hurray.save(sink, {"array": there.record(p)})
nbytes = array.nbytes
assert [(copy.bytes, str(copy.from_), str(copy.to), copy.reason, copy.call) for copy in log] == [
    (nbytes, "cuda:0", "cpu", "device", "save")
]
assert hurray.load(sink.getvalue())["array"].descriptor == tensors["array"].descriptor
call(driver.cuLaunchHostFunc(p, function, 0))
sink = io.BytesIO()
with hurray.StreamWriter(sink) as writer, hurray.copies() as log:
    writer.write(there.record(p))
    writer.write(tensors["array"])
assert [(copy.bytes, copy.call) for copy in log] == [(nbytes, "write")]
assert sink.getvalue() == 2 * stream(tensors["array"])
"""
    )


def test_progress():
    clean(
        """
told = []
there = hurray.load(path, device="cuda:0", progress=lambda *numbers: told.append(numbers))
assert told == sorted(told) and told[-1][0] == told[-1][1] > 2 * array.nbytes, told

def stop(done, total):
    raise ZeroDivisionError

for work in (
    lambda: hurray.load(path, device="cuda:0", progress=stop),
    lambda: hurray.save(path, there, progress=stop),
):
    try:
        work()
    except ZeroDivisionError:
        pass
    else:
        raise AssertionError
assert list(hurray.load(path)) == list(tensors)
"""
    )


def test_no_device():
    clean(
        """
for device in ("cuda:0", "cuda:7", "rocm:0"):
    try:
        hurray.load(path, device=device)
    except hurray.DeviceError as error:
        assert str(error)
    else:
        raise AssertionError(device)
""",
        devices=0,
    )
