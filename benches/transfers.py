"""Files and pipes for the side-by-side bench, and the plain ways that they are measured against."""

import os
import threading
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

import hurray

SIZE = int(os.environ.get("HURRAY_BENCH_MIB", 1024)) << 20  # of a file's tensors
TENSORS = 64
PIPED = SIZE // 4
FEW, MANY = 10_000, 100_000  # tensors of files whose cost is to grow with their number


class Transfers:
    """1 GiB in 64 arrays, saved in both formats, so that the page cache has them."""

    def __init__(self, folder: Path):
        self.folder = folder
        rng = np.random.default_rng(1)
        with hurray.aligned_allocator():
            self.arrays = {
                f"t{n:02}": rng.integers(0, 256, SIZE // TENSORS, np.uint8) for n in range(TENSORS)
            }
        self.tensors = {name: hurray.from_numpy(a) for name, a in self.arrays.items()}
        self.hurray_file = folder / "model.hrry"
        self.safetensors_file = folder / "model.safetensors"
        self.plain_file = folder / "plain"
        self.few, self.many = folder / "few.hrry", folder / "many.hrry"
        self.copy = folder / "copy.hrry"
        self.save()
        self.save_safetensors()
        self.write_plain()
        small = hurray.Tensor(bytes(16), hurray.float32, [4])
        self.few_tensors, self.many_tensors = (
            {f"{n:06}": small for n in range(count)} for count in (FEW, MANY)
        )
        hurray.save(self.few, self.few_tensors)
        hurray.save(self.many, self.many_tensors)
        self.piped = [self.tensors[name] for name in list(self.tensors)[: TENSORS // 4]]

    # Saving, each with the same sync of file and folder

    def save(self):
        hurray.save(self.hurray_file, self.tensors)

    def save_safetensors(self):
        save_file(self.arrays, self.safetensors_file)
        self.sync(self.safetensors_file)

    def write_plain(self):
        with open(self.plain_file, "wb", buffering=0) as file:
            for array in self.arrays.values():
                view = memoryview(array)
                while view:
                    view = view[file.write(view) :]
        self.sync(self.plain_file)

    def sync(self, path: Path):
        for place in (path, self.folder):
            descriptor = os.open(place, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)

    # Reading every byte

    def touch(self):
        return sum(int(np.asarray(t).view(np.uint64).sum()) for t in self.load().values())

    def load(self):
        return hurray.load(self.hurray_file)

    def touch_mapped(self):
        mapped = np.memmap(self.plain_file, np.uint8, "r")
        length = SIZE // TENSORS
        parts = (mapped[n * length :][:length] for n in range(TENSORS))
        return sum(int(part.view(np.uint64).sum()) for part in parts)

    # Pipes: what is written by one thread is read by another, into new memory

    def stream(self):
        reader, writer = os.pipe()

        def write():
            with open(writer, "wb", buffering=0) as sink, hurray.StreamWriter(sink) as stream:
                for tensor in self.piped:
                    stream.write(tensor)

        thread = threading.Thread(target=write)
        thread.start()
        with open(reader, "rb", buffering=0) as source:
            read = list(hurray.StreamReader(source))
        thread.join()
        return read

    def pipe(self):
        reader, writer = os.pipe()
        sent = [np.asarray(tensor) for tensor in self.piped]

        def write():
            with open(writer, "wb", buffering=0) as sink:
                for array in sent:
                    view = memoryview(array)
                    while view:
                        view = view[sink.write(view) :]

        thread = threading.Thread(target=write)
        thread.start()
        read = []
        with open(reader, "rb", buffering=0) as source:
            for array in sent:
                space = np.empty(array.nbytes, np.uint8)
                view = memoryview(space)
                while view:
                    view = view[source.readinto(view) :]
                read.append(space)
        thread.join()
        return read
