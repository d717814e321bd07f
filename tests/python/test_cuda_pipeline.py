"""A pipeline of three stages on the stand-in driver: nothing waits, races, leaks or piles up."""

import simulated
from cuda_pipeline import OWN_CALL
from simulated import DEVICE_ERROR

TENSORS = 10_000
# CUDA_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY.
UNKNOWN, OUT_OF_MEMORY = 999, 2


def of(tensors: int) -> str:
    return f"import cuda_pipeline; cuda_pipeline.main({tensors})"


def test_ten_thousand_tensors_go_through_and_nobody_waits():
    outcome = simulated.run(
        f"""
        import cuda_pipeline
        import hurray

        pipeline = cuda_pipeline.Pipeline()
        gpu = pipeline.gpu
        pipeline.in_turns(8)
        waits = gpu.host_waits()
        pipeline.in_threads({TENSORS})
        assert gpu.host_waits() == waits
        # Those in use at once, and those of the tensors between two stages.
        assert gpu.calls("cuEventCreate") <= 64, gpu.calls("cuEventCreate")
        pipeline.check({TENSORS})
        pipeline.close()
        stats = hurray.cuda.stats()
        assert (stats["pending"], stats["kept"]) == (0, 0), stats
        """
    ).assert_clean()
    # Of 13 MB that are allocated in all: a ring, and what is between two stages.
    assert outcome.calls("peak-bytes-0").program <= 1 << 20


def test_what_a_handoff_costs():
    simulated.run(
        """
        import cuda_pipeline
        import hurray

        pipeline = cuda_pipeline.Pipeline()
        gpu, (a, b, _) = pipeline.gpu, pipeline.streams
        pipeline.in_turns(8)

        def calls(tensor, stream):
            names = ("cuEventRecord", "cuStreamWaitEvent")
            before = [gpu.calls(name) for name in names]
            kept = hurray.from_hurray(cuda_pipeline.Offer(tensor), stream=stream)
            return [gpu.calls(name) - count for name, count in zip(names, before)]

        for number in range(4):
            written = pipeline.produce(number)
            assert written.buffer_count == number + 1
            # However many buffers.
            assert calls(written, b) == [1, 1]
            assert calls(written.record(a), b) == [0, 1]
            assert calls(written, a) == [0, 0]
            assert calls(written.synchronize(), b) == [0, 0]
        del written
        pipeline.check(8)
        pipeline.close()
        """
    ).assert_clean()


def test_every_wait_record_and_free_is_needed():
    sound, unnoticed = simulated.sweep(of(6))
    # Two handoffs of six tensors, and 13 buffers made and freed in each of two stages.
    assert sound.calls("cuStreamWaitEvent").total >= 12
    assert sound.calls("cuMemFreeAsync").total == 26
    assert unnoticed == set()


def test_an_error_anywhere_is_a_device_error():
    statuses = []
    for n, outcome in simulated.fail_everywhere(of(8), UNKNOWN):
        leaks = [text for kind, text in outcome.reports if kind.startswith("leak")]
        leaks = [text for text in leaks if not text.endswith("of kind pool")]
        assert outcome.status in (0, DEVICE_ERROR, OWN_CALL), (n, outcome)
        # Nothing was handed out or freed early.
        assert not outcome.defects, (n, outcome)
        if outcome.status == DEVICE_ERROR:
            assert not leaks, (n, outcome)
        if outcome.status == 0:
            # An event that could not be destroyed.
            assert leaks in ([], ["1 of kind event"]), (n, outcome)
        statuses.append(outcome.status)
    assert statuses.count(DEVICE_ERROR) > 400


def test_memory_that_runs_out_is_a_device_error():
    sound = simulated.run(of(8)).assert_clean()
    planted = [
        {"fail": f"{function}:{n}:{OUT_OF_MEMORY}"}
        for function in ("cuMemAllocFromPoolAsync", "cuMemPoolCreate", "cuEventCreate")
        for n in range(1, sound.calls(function).total + 1)
    ]
    for settings, outcome in zip(planted, simulated.run_all(of(8), planted), strict=True):
        assert outcome.status == DEVICE_ERROR and not outcome.defects, (settings, outcome)
