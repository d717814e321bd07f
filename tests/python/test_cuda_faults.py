"""A driver that fails, at every call of a pipeline of eight tensors."""

import pytest
import simulated
from simulated import PRELUDE

pytest.importorskip("cuda.bindings.driver")

PROGRAM = (
    PRELUDE
    + """
import weakref
alive = weakref.WeakSet()

class Array(CudaArray):
    def __init__(self, on):
        alive.add(self)
        super().__init__(gpu, on)

class Relay:
    def __init__(self, tensor):
        self.tensor = tensor
    def __hurray__(self, stream=None):
        return self.tensor.__hurray__()

def hand_over(reader, buffers):
    sources = [Array(p) for _ in range(buffers)]
    addresses = [source.address for source in sources]
    tensor = quantized(sources) if buffers == 2 else written(sources[0])
    del sources
    tensor = hurray.from_hurray(Relay(tensor.record(p)), stream=c)
    view = tensor.buffer(0, stream=c)
    for address in addresses:
        reader.read(address)
    tensor.record_stream(c)
    tensor.order_after_readers(p)

reader = Consumer(gpu, c)
failures = 0
for n in range(8):
    try:
        hand_over(reader, 1 + n % 2)
    except hurray.DeviceError as error:
        # What was asked, and the driver's word.
        assert "cu" in str(error) and "CUDA_ERROR_" in str(error), error
        failures += 1
    except DriverError:
        failures += 1
hurray.cuda.empty_cache()
assert not alive or hurray.cuda.stats()["kept"], (list(alive), hurray.cuda.stats())
print(failures)
"""
)
ERROR_UNKNOWN, ILLEGAL_ADDRESS = 999, 700


def check(place: int, outcome: simulated.Outcome) -> None:
    """It ended by itself, in a result or an error, and no byte was read or freed early."""
    assert outcome.status in (0, simulated.DEVICE_ERROR), (place, outcome)
    assert outcome.stderr == "" and outcome.defects == [], (place, outcome)


def test_a_call_that_fails_once():
    """Later calls work: everything is let go, or counted as kept."""
    sound = simulated.run(PROGRAM)
    assert (sound.status, sound.stdout, sound.stderr, sound.defects) == (0, "0\n", "", [])
    told = []
    for place, outcome in simulated.fail_everywhere(PROGRAM, ERROR_UNKNOWN):
        check(place, outcome)
        told.append(outcome.stdout == "1\n")
    # Failures that a caller can be told of are told.
    assert sum(told) > len(told) // 4


def test_a_context_that_is_lost():
    """No call works from then on, and nothing is kept waiting for a device that is gone."""
    for place, outcome in simulated.fail_everywhere(PROGRAM, ILLEGAL_ADDRESS, step=7):
        check(place, outcome)
