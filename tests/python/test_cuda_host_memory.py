"""Page-locked and managed memory, which the host and devices reach, through DLPack."""

import pytest
import simulated
from simulated import whole

pytest.importorskip("cuda.bindings.driver")

FIELDS = """
import ctypes
from dlpack_producer import Fields, Producer as Placed
from placed import aligned

def pinned(byte, stream):
    # Written on the stream.
    return written(CudaArray(gpu, p, byte=byte)).order(stream).to("cuda/host_pinned", stream=stream)

def managed(byte, stream):
    tensor = hurray.empty((LEN,), dtype=hurray.uint8, device="cuda/unified")
    gpu.fill(tensor.extents()[0][0], byte, stream)
    return tensor.record(stream)
"""


def clean(body: str, **settings: object) -> None:
    chosen = [settings | {"seed": seed} for seed in range(4)]
    for outcome in simulated.run_all(whole(body, FIELDS), chosen):
        outcome.assert_clean()


def test_pinned_memory_leaves_as_the_cpus_once_it_is_ready():
    clean(
        """
        tensor = pinned(7, c)
        assert modes(tensor) == ["consumer_stream"] and tensor.__dlpack_device__() == (3, 0)
        before = gpu.host_waits()
        for device in (None, (1, 0), (3, 0)):
            refused(ValueError, "stream", lambda: tensor.__dlpack__(stream=c, dl_device=device))
        assert gpu.host_waits() == before
        array = np.from_dlpack(tensor)
        assert gpu.host_waits() == before + 1 and (array == 7).all()
        assert array.ctypes.data == tensor.synchronize().extents()[0][0]
        for stream in (None, -1):
            for device in (None, (1, 0), (3, 0)):
                found = Fields(tensor.__dlpack__(
                    stream=stream, dl_device=device, max_version=(1, 3), copy=False
                ))
                assert (found.device, found.flags) == ((1, 0), 0)
        with hurray.copies() as log:
            copied = Fields(tensor.__dlpack__(copy=True, max_version=(1, 3)))
        assert (copied.device, copied.flags) == ((1, 0), 2)
        assert [(copy.bytes, str(copy.from_), str(copy.to), copy.reason) for copy in log] == [
            (LEN, "cuda:0/host_pinned", "cpu", "request")
        ]
        """
    )


def test_pinned_memory_that_a_producer_calls_the_cpus():
    """torch says (3, id) outside and CPU in the capsule (D3)."""
    clean(
        """
        source = pinned(7, c).synchronize()
        producer = Placed(np.asarray(source), device=(1, 0), announced=(3, 0))
        taken = hurray.from_dlpack(producer, copy=False)
        assert str(taken.device) == "cuda:0/host_pinned" and modes(taken) == ["producer_synced"]
        assert taken.extents()[0][0] == source.extents()[0][0]
        # What is said is checked: pageable memory is not pinned.
        lies = Placed(aligned(LEN), device=(1, 0), announced=(3, 0))
        refused(hurray.BufferError, "does not know it", lambda: hurray.from_dlpack(lies))
        del producer, taken, source, lies
        """
    )


def test_d5_managed_memory_is_had_on_a_device_and_on_the_cpu():
    clean(
        """
        tensor = managed(8, p)
        assert modes(tensor) == ["event"] and tensor.__dlpack_device__() == (13, 0)
        refused(BufferError, "synchronize", lambda: tensor.__dlpack__(stream=-1))
        refused(ValueError, "stream", lambda: tensor.__dlpack__(stream=c, dl_device=(1, 0)))
        before = gpu.host_waits()
        for device, seen in ((None, (13, 0)), ((13, 0), (13, 0)), ((2, 0), (2, 0))):
            capsule = tensor.__dlpack__(stream=c, dl_device=device, max_version=(1, 3))
            assert (Fields(capsule).device, Fields(capsule).flags) == (seen, 0)
            reader = Consumer(gpu, c)
            reader.read(Fields(capsule).data)
            assert gpu.host_waits() == before
            reader.check(8)
            before = gpu.host_waits()
        del capsule
        # The host waits.
        found = tensor.__dlpack__(dl_device=(1, 0), max_version=(1, 3))
        assert Fields(found).device == (1, 0) and gpu.host_waits() == before + 1
        assert ctypes.string_at(Fields(found).data, LEN) == b"\\x08" * LEN
        assert (np.from_dlpack(tensor, device="cpu") == 8).all()
        del found
        """
    )


def test_managed_memory_on_another_device():
    clean(
        """
        other = Gpu(1)
        q = other.stream()
        gpu.make_current()
        tensor = managed(8, p)
        capsule = tensor.__dlpack__(stream=q, dl_device=(2, 1), max_version=(1, 3))
        assert Fields(capsule).device == (2, 1)
        refused(hurray.DeviceError, "device 1", lambda: tensor.__dlpack__(
            stream=q, dl_device=(2, 0)
        ))
        standard = written(CudaArray(gpu, p))
        for call in (lambda: standard.__dlpack__(stream=q), lambda: standard.order(q),
                     lambda: standard.__hurray__(stream=q), lambda: standard.record(q),
                     lambda: standard.buffer(0, stream=q), lambda: standard.record_stream(q)):
            refused(hurray.DeviceError, "device 1", call)
        del capsule, call, standard, tensor
        other.make_current()
        other.close()
        gpu.make_current()
        """,
        devices=2,
    )
