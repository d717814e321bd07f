"""A pipeline of three stages, each on a stream of its own, for programs on the stand-in driver.

The first fills the buffers of a tensor, the second gets them in a capsule and makes new ones of
them, the third gets those over DLPack and keeps what it reads in a ring. Each lets go of what it
was given as soon as its own work is queued.
"""

import queue
import sys
import threading

from cuda_programs import DLPackOffer, DriverError, Gpu, Offer, call, driver
from simulated import DEVICE_ERROR

import hurray

# Bytes of a buffer, and buffers that the ring holds.
LEN, RING = 256, 64
# The status of a program of which a call failed that was its own.
OWN_CALL = 4


def assemble(buffers):
    """One tensor of one to four buffers of `LEN` bytes."""
    first, *others = buffers
    layout, shape = hurray.RowMajorLayout(), (LEN // 4, 4)
    match len(others):
        case 0:
            scheme = None
        case 1:
            scheme = hurray.PerChannelAffine.symmetric(0, 1)
        case 2:
            scheme = hurray.PerChannelAffine.asymmetric(0, 1, 2)
        case 3:
            layout, shape = hurray.BlockPagedLayout(1, 4, 0, LEN // 4 - 1), (4, LEN // 4, 1)
            scheme = hurray.PerChannelAffine.symmetric(1, 3)
    return hurray.Tensor(
        first, hurray.int8, shape, aux_buffers=others, layout=layout, quantization=scheme
    )


def address(tensor):
    ((start, _, _),) = tensor.extents()
    return start


class Pipeline:
    def __init__(self):
        self.gpu = Gpu()
        self.streams = [self.gpu.stream() for _ in range(3)]
        self.ring = self.gpu.alloc(RING * LEN)

    def new(self, stream):
        return hurray.empty((LEN,), dtype=hurray.uint8, device="cuda:0", stream=stream)

    def produce(self, number):
        stream = self.streams[0]
        buffers = [self.new(stream) for _ in range(1 + number % 4)]
        for place, buffer in enumerate(buffers):
            self.gpu.fill(address(buffer), (number + place) % 200, stream, LEN)
        return assemble(buffers)

    def transform(self, tensor):
        producer, stream, _ = self.streams
        # An event in the capsule; the consumer makes its stream wait.
        received = hurray.from_hurray(Offer(tensor.record(producer))).order(stream)
        made = []
        for source, _, _ in received.extents():
            made.append(self.new(stream))
            self.gpu.add(address(made[-1]), source, stream, 7, LEN)
        return assemble(made)

    def consume(self, number, tensor):
        stream = self.streams[2]
        if tensor.buffer_count == 1:
            taken = hurray.from_dlpack(DLPackOffer(tensor), stream=stream)
        else:
            taken = tensor.order(stream)
        for place, (source, _, _) in enumerate(taken.extents()):
            slot = self.ring + (4 * number + place) % RING * LEN
            self.gpu.add(slot, source, stream, 1, LEN)

    def in_turns(self, count):
        """All stages in one thread, so that two runs make the same calls."""
        for number in range(count):
            self.consume(number, self.transform(self.produce(number)))

    def in_threads(self, count):
        """A thread for each stage."""
        produced, made, ended = queue.Queue(8), queue.Queue(8), queue.Queue()

        def first():
            for number in range(count):
                produced.put(self.produce(number))

        def second():
            for _ in range(count):
                made.put(self.transform(produced.get()))

        def third():
            for number in range(count):
                self.consume(number, made.get())

        def work(stage):
            try:
                self.gpu.make_current()
                stage()
            except BaseException as error:
                ended.put(error)
            else:
                ended.put(None)

        for stage in (first, second, third):
            threading.Thread(target=work, args=[stage], daemon=True).start()
        for _ in range(3):
            if (error := ended.get()) is not None:
                raise error

    def check(self, count):
        """That the ring holds what the last tensors had."""
        found = self.gpu.read(self.ring, self.streams[2], RING * LEN).reshape(RING, LEN)
        for number in range(max(0, count - RING // 4), count):
            for place in range(1 + number % 4):
                slot = found[(4 * number + place) % RING]
                assert (slot == (number + place) % 200 + 8).all(), (number, place, slot)

    def close(self):
        # The host has just read from it, and nothing else uses it.
        self.gpu.free(self.ring)
        self.gpu.close()


def main(count):
    """In turns, to the end, whatever the driver fails; the status says whose call it was."""
    try:
        status = run(count)
    except DriverError:
        status = OWN_CALL
    sys.exit(status)


def run(count):
    pipeline, status = Pipeline(), 0
    try:
        pipeline.in_turns(count)
        pipeline.check(count)
    except hurray.DeviceError as error:
        print(error)
        status = DEVICE_ERROR
    # What is left after this has leaked.
    for stream in pipeline.streams:
        call(driver.cuStreamSynchronize(stream))
    pipeline.close()
    return status
