"""`hurray.load` and `hurray.load_kv`: mapped, read, from paths, file objects and bytes."""

import errno
import gzip
import io
import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import threading

import items
import numpy as np
import pytest
from placed import aligned

import hurray

VECTORS = pathlib.Path(__file__).parents[1] / "vectors" / "files"
MANIFEST = json.loads((VECTORS / "manifest.json").read_text())


def tensor(count: int = 8) -> hurray.Tensor:
    return hurray.from_numpy(np.arange(count, dtype=np.float32))


def shown(tensors: dict) -> dict:
    return {name: items.shown(item) for name, item in tensors.items()}


def address(tensor: hurray.Tensor) -> int:
    return np.asarray(tensor).__array_interface__["data"][0]


@pytest.fixture
def path(tmp_path) -> pathlib.Path:
    return tmp_path / "model.hrry"


@pytest.fixture
def everything(path) -> dict:
    hurray.save(path, items.items(), kv=items.METADATA)
    return shown(items.items())


# The vectors


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("vector", MANIFEST["good"], ids=lambda v: v["id"])
def test_good_files(vector, mmap):
    path = VECTORS / vector["file"]
    loaded = hurray.load(path, mmap=mmap)
    roots = [r if isinstance(r, str) else r["name"] for r in vector["roots"]]
    assert sorted(loaded) == sorted(roots)
    assert list(hurray.load_kv(path)) == [entry[0] for entry in vector["kv"]]
    copy = io.BytesIO()
    hurray.save(copy, loaded, kv=hurray.load_kv(path))
    assert copy.getvalue() == path.read_bytes()


# Where the release gives an exception of its own and we another one.
OF_OUR_OWN = {
    "FC31": hurray.FileError,  # what an offset is said to be, not a descriptor there
}
# Where another rule is found to be broken before.
BEFORE = {"descriptor-offset-in-data": "FC30"}


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("vector", MANIFEST["bad"], ids=lambda v: v["id"])
def test_malformed_files(vector, mmap):
    path = VECTORS / vector["file"]
    if vector["rule"] == "FC42":
        pytest.skip("a name, not a file")
    with pytest.raises((hurray.FileError, hurray.InvalidDescriptorError)) as raised:
        hurray.load(path, mmap=mmap)
    assert str(raised.value).startswith(f"{path}: ")
    rule = BEFORE.get(vector["id"], vector["rule"])
    assert str(raised.value).endswith(f"({rule})")
    expected = vector["peer"].get("class") if rule == vector["rule"] else None
    if expected in ("FileError", "InvalidDescriptorError"):
        assert type(raised.value) is OF_OUR_OWN.get(vector["rule"], getattr(hurray, expected))


# Names


def test_names(path, everything):
    wanted = ["csr", "of float16", "csr"]
    for names in (wanted, tuple(wanted), iter(wanted), dict.fromkeys(wanted)):
        assert list(hurray.load(path, names=names)) == ["csr", "of float16"]
    assert hurray.load(path, names=[]) == {}


def test_a_member_by_its_name(path, everything):
    loaded = hurray.load(path, names=["group.1", "group.1.0", "group"])
    assert loaded["group.1"] == loaded["group"].members[1]
    assert items.shown(loaded["group.1.0"]) == items.shown(loaded["group"].members[1].members[0])


def test_names_that_are_none(path, everything):
    with pytest.raises(hurray.FileError, match=r"'?\"nope\".*\(FC42\)"):
        hurray.load(path, names=["csr", "nope"])
    for names, match in (("csr", "one str"), ([1], "not int"), (3, "iterable")):
        with pytest.raises(TypeError, match=match):
            hurray.load(path, names=names)


# Maps


def test_i1_every_buffer_is_aligned(path):
    """An odd number of bytes before it moves no tensor to where it cannot be used."""
    hurray.save(path, {"odd": hurray.from_numpy(np.ones(7, np.uint8)), "t": tensor()})
    for mmap in (True, False):
        loaded = hurray.load(path, mmap=mmap)
        assert all(address(t) % 64 == 0 for t in loaded.values())


def test_a_mapped_file_is_not_read(path):
    """What is loaded costs no memory, and no copy, until it is touched."""
    with open(path, "wb") as file:
        hurray.save(file, {"t": hurray.from_numpy(np.zeros(1 << 28, np.uint8))})
    program = """
import resource, sys, hurray
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
before = resident()
with hurray.copies() as log:
    loaded = hurray.load(sys.argv[1])
assert log == []
print(resident() - before)
"""
    ran = subprocess.run([sys.executable, "-c", program, path], capture_output=True, check=True)
    assert int(ran.stdout) < 8 << 20


def test_two_loads_share_pages(path):
    hurray.save(path, {"t": tensor()})
    one, two = (hurray.load(path)["t"] for _ in range(2))
    assert address(one) != address(two)
    with hurray.open(path) as file:
        assert address(file["t"]) == address(file["t"])


def test_writing_to_a_tensor_changes_no_file(path):
    hurray.save(path, {"t": tensor()})
    before = path.read_bytes()
    array = np.asarray(hurray.load(path)["t"])
    array[:] = 9
    assert path.read_bytes() == before
    assert np.array_equal(np.asarray(hurray.load(path)["t"]), np.arange(8, dtype=np.float32))


def test_torch_may_write(path, torch):
    hurray.save(path, {"t": tensor()})
    view = hurray.load(path)["t"].to_torch()
    view += 1
    assert view.tolist() == list(range(1, 9))


def test_the_map_lives_as_long_as_a_tensor(path):
    hurray.save(path, {"t": tensor(1 << 12), "u": tensor()})
    array = np.asarray(hurray.load(path)["t"])
    path.unlink()
    assert array.sum() == sum(range(1 << 12))


def test_reading_is_no_copy(path, everything):
    with hurray.copies() as log:
        assert shown(hurray.load(path, mmap=False)) == everything
        hurray.load(io.BytesIO(path.read_bytes()))
    assert log == []


def test_a_cut_file(path):
    hurray.save(path, {"t": tensor(1 << 16)})
    contents = path.read_bytes()
    path.write_bytes(contents[:-1])
    for mmap in (True, False):
        with pytest.raises(hurray.FileError, match="FC6"):
            hurray.load(path, mmap=mmap)


def test_a_file_that_is_cut_while_it_is_open(path):
    hurray.save(path, {"t": tensor(1 << 16)})
    with hurray.open(path, mmap=False) as file:
        os.truncate(path, 1 << 14)
        with pytest.raises(hurray.FileError):
            file["t"]


# The device


def relayed(path):
    """A file with a tensor that declares memory of a GPU."""
    contents = bytearray()
    sink = io.BytesIO()
    hurray.save(sink, {"t": tensor()})
    contents += sink.getvalue()
    row = contents.index((32).to_bytes(8, "little") + (64).to_bytes(4, "little"))
    contents[row + 12] = hurray.device.cuda.tag
    path.write_bytes(contents)


@pytest.mark.parametrize("mmap", [True, False])
def test_declared_rows(path, mmap):
    relayed(path)
    with hurray.copies() as log:
        here = hurray.load(path, mmap=mmap)["t"]
        there = hurray.load(path, mmap=mmap, device=None)["t"]
    assert log == []
    assert str(here.device) == "cpu"
    assert np.array_equal(np.asarray(here), np.arange(8, dtype=np.float32))
    assert str(there.device) == "cuda:0"
    with pytest.raises(hurray.UnsupportedError):
        np.asarray(there)
    copy = io.BytesIO()
    hurray.save(copy, {"t": there})
    assert copy.getvalue() == path.read_bytes()


def test_devices_that_are_meant(path):
    hurray.save(path, {"t": tensor()})
    for device in ("cpu", hurray.device.cpu, None):
        assert list(hurray.load(path, device=device)) == ["t"]
    with pytest.raises(TypeError):
        hurray.load(path, device=3)
    with pytest.raises(hurray.InvalidDescriptorError):
        hurray.load(path, device="cpux")


# Sources


def test_file_objects(path, everything):
    contents = path.read_bytes()
    with open(path, "rb") as buffered, open(path, "rb", buffering=0) as unbuffered:
        for source in (buffered, unbuffered, io.BytesIO(contents), open(path, "r+b")):  # noqa: SIM115
            assert shown(hurray.load(source)) == everything
            assert not source.closed


def test_a_file_object_is_read_from_where_it_stands(path, everything):
    contents = path.read_bytes()
    path.write_bytes(b"before" + contents)
    for buffering in (0, -1):
        with open(path, "rb", buffering=buffering) as file:
            file.seek(6)
            assert shown(hurray.load(file)) == everything
        with open(path, "rb", buffering=buffering) as file:
            file.read(6)
            assert repr(hurray.load_kv(file)) == repr(items.METADATA)


def test_what_was_written_to_a_file_object_is_read(path):
    with open(path, "w+b") as file:
        hurray.save(file, {"t": tensor()})
        file.seek(0)
        assert list(hurray.load(file)) == ["t"]


def test_a_compressed_file(path, everything):
    with gzip.open(path.with_suffix(".gz"), "wb", compresslevel=1) as file:
        hurray.save(file, items.items())
    with gzip.open(path.with_suffix(".gz"), "rb") as file:
        assert file.fileno() > 0
        assert shown(hurray.load(file)) == everything


def test_a_pipe(path, everything):
    contents = path.read_bytes()
    reader, writer = os.pipe()

    def write():
        with open(writer, "wb") as sink:
            sink.write(contents)

    thread = threading.Thread(target=write)
    thread.start()
    with open(reader, "rb", buffering=0) as source:
        assert shown(hurray.load(source)) == everything
    thread.join()


def test_a_path_to_a_pipe(path, everything, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    thread = threading.Thread(target=lambda: pipe.write_bytes(path.read_bytes()))
    thread.start()
    assert shown(hurray.load(pipe)) == everything
    thread.join()


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes(path, everything, kind):
    contents = kind(path.read_bytes())
    assert shown(hurray.load(contents)) == everything
    assert repr(hurray.load_kv(contents)) == repr(items.METADATA)


def test_aligned_bytes_are_borrowed(path):
    hurray.save(path, {"t": tensor()})
    contents = np.frombuffer(path.read_bytes(), np.uint8)
    memory = aligned(len(contents))
    memory[:] = contents
    with hurray.copies() as log:
        loaded = hurray.load(memory)["t"]
    assert log == []
    assert memory.ctypes.data < address(loaded) < memory.ctypes.data + len(memory)
    memory = aligned(len(contents), offset=1)
    memory[:] = contents
    with hurray.copies() as log:
        hurray.load(memory)
    assert [(copy.bytes, copy.reason, copy.call) for copy in log] == [
        (len(contents), "alignment", "load")
    ]


def test_a_path_in_bytes_is_contents(path):
    hurray.save(path, {"t": tensor()})
    with pytest.raises(hurray.FileError, match=r"FC[12]\b"):
        hurray.load(os.fsencode(path))


def test_what_is_no_source(path):
    for source in (3, None, object(), ["a"]):
        with pytest.raises(TypeError, match="a path"):
            hurray.load(source)
    path.write_text("")
    with open(path) as text, pytest.raises(TypeError, match="rb"):
        hurray.load(text)


class Source:
    """Gives what it has in parts of its own choosing."""

    def __init__(self, contents: bytes, step: int = 1000):
        self.contents = memoryview(contents)
        self.step = step

    def readinto(self, space):
        part, self.contents = self.contents[: self.step], self.contents[self.step :]
        space[: len(part)] = part
        return len(part)


class Reader:
    """Gives bytes, in parts of its own choosing."""

    def __init__(self, contents: bytes):
        self.contents = contents

    def read(self, count):
        count = min(count, 1000)
        part, self.contents = self.contents[:count], self.contents[count:]
        return part


def test_sources_in_python(path, everything):
    contents = path.read_bytes()
    assert shown(hurray.load(Source(contents))) == everything
    assert shown(hurray.load(Reader(contents))) == everything


@pytest.mark.parametrize("answer", [-1, 1 << 40, "x"])
def test_a_source_that_answers_nonsense(answer):
    class Liar:
        def readinto(self, space):
            return answer

    with pytest.raises(ValueError):
        hurray.load(Liar())


def test_a_source_that_keeps_the_memory(path):
    hurray.save(path, {"t": tensor()})
    kept = []

    class Keeper(Source):
        def readinto(self, space):
            kept.append(space[:1])
            return super().readinto(space)

    with pytest.raises(BufferError, match="keeps the memory"):
        hurray.load(Keeper(path.read_bytes()))
    kept[0][0] = 1


def test_what_a_source_raises_is_raised():
    error = ZeroDivisionError("mine")

    class Broken:
        def readinto(self, space):
            raise error

    with pytest.raises(ZeroDivisionError) as raised:
        hurray.load(Broken())
    assert raised.value is error


# Errors


def test_the_systems_errors_are_pythons(tmp_path):
    for call in (hurray.load, hurray.load_kv, hurray.open):
        with pytest.raises(FileNotFoundError) as raised:
            call(tmp_path / "none")
        error = raised.value
        assert isinstance(error, hurray.FileError)
        assert (error.errno, error.filename) == (errno.ENOENT, str(tmp_path / "none"))
        assert str(error) == f"[Errno 2] No such file or directory: '{tmp_path / 'none'}'"
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), again.args) == (type(error), error.args)
        with pytest.raises(IsADirectoryError):
            call(tmp_path)


# Threads, signals, progress


def test_threads_load_one_file(path, everything):
    loaded = [None] * 8

    def load(number):
        loaded[number] = shown(hurray.load(path, mmap=number % 2 == 0))

    threads = [threading.Thread(target=load, args=(n,)) for n in range(len(loaded))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loaded == [everything] * len(loaded)


@pytest.mark.parametrize("mmap", [True, False])
def test_progress(path, everything, mmap):
    told = []
    hurray.load(path, mmap=mmap, progress=lambda *numbers: told.append(numbers))
    assert told[-1][0] == told[-1][1] > 0
    assert told == sorted(told)
    told.clear()
    hurray.load(path, names=[], mmap=mmap, progress=lambda *numbers: told.append(numbers))
    assert told == [(0, 0)]


def test_an_exception_from_progress(path, everything):
    def stop(done, total):
        raise ZeroDivisionError

    for mmap in (True, False):
        with pytest.raises(ZeroDivisionError):
            hurray.load(path, mmap=mmap, progress=stop)


def test_a_bar(path, everything, capfd):
    hurray.load(path, progress=True)
    bar = capfd.readouterr().err
    assert "model.hrry" in bar
    assert "100%" in bar


def test_keyboard_interrupt(path):
    hurray.save(path, {"t": hurray.from_numpy(np.zeros(1 << 27, np.uint8))})
    program = """
import os, signal, sys, hurray
def progress(done, total):
    os.kill(os.getpid(), signal.SIGINT)
try:
    hurray.load(sys.argv[1], mmap=False, progress=progress)
except KeyboardInterrupt:
    print("interrupted")
"""
    ran = subprocess.run([sys.executable, "-c", program, path], capture_output=True, check=True)
    assert ran.stdout == b"interrupted\n"


def test_keyboard_interrupt_while_a_pipe_has_nothing():
    reader, writer = os.pipe()
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with open(reader, "rb", buffering=0) as source, pytest.raises(KeyboardInterrupt):
        hurray.load(source)
    os.close(writer)
