"""`hurray.save`: whole or not at all, from where the bytes lie, to whatever can be written to."""

import collections
import errno
import io
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import types

import items
import numpy as np
import pytest
from placed import aligned

import hurray


def tensor(count: int = 8) -> hurray.Tensor:
    return hurray.from_numpy(np.arange(count, dtype=np.float32))


def same(left: dict, right: dict) -> bool:
    return {k: items.shown(v) for k, v in left.items()} == {
        k: items.shown(v) for k, v in right.items()
    }


@pytest.fixture
def path(tmp_path) -> pathlib.Path:
    return tmp_path / "model.hrry"


def test_everything_there_is_comes_back(path):
    everything = items.items()
    assert hurray.save(path, everything, kv=items.METADATA) is None
    loaded = hurray.load(path)
    assert list(loaded) == list(everything)
    assert same(loaded, everything)
    # repr tells True from 1.
    assert repr(hurray.load_kv(path)) == repr(items.METADATA)


def test_equal_tensors_make_equal_files(tmp_path):
    for name in "ab":
        hurray.save(tmp_path / name, items.items(), kv=items.METADATA)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    hurray.save(tmp_path / "c", hurray.load(tmp_path / "a"), kv=hurray.load_kv(tmp_path / "a"))
    assert (tmp_path / "c").read_bytes() == (tmp_path / "a").read_bytes()


@pytest.mark.parametrize("kind", [str, pathlib.Path, os.fsencode])
def test_paths(path, kind):
    hurray.save(kind(path), {"t": tensor()})
    assert list(hurray.load(path)) == ["t"]


def test_a_path_that_is_not_utf8(tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff.hrry"
    hurray.save(path, {"t": tensor()})
    assert list(hurray.load(os.fsdecode(path))) == ["t"]


@pytest.mark.parametrize(
    "mapping", [dict, collections.OrderedDict, types.MappingProxyType, collections.ChainMap]
)
def test_any_mapping(path, mapping):
    hurray.save(path, mapping({"t": tensor()}), kv=mapping({"k": 1}))
    assert list(hurray.load(path)) == ["t"]
    assert hurray.load_kv(path) == {"k": 1}


def test_a_file_that_is_open_is_a_mapping_too(path, tmp_path):
    hurray.save(path, {"a": tensor(), "b": tensor(3)})
    with hurray.open(path) as file:
        hurray.save(tmp_path / "copy", file)
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("tensors", "error", "match"),
    [
        ([("t", None)], TypeError, "mapping"),
        ({1: None}, TypeError, "str, not int"),
        ({"x": 3}, hurray.UnsupportedError, "'?\"?x\"?'? is a int"),
        ({"x": np.zeros(3)}, hurray.UnsupportedError, "from_numpy"),
        ({"": tensor()}, hurray.FileError, "0"),
        ({"n" * 65536: tensor()}, hurray.FileError, "65536"),
        ({"\ud800": tensor()}, UnicodeEncodeError, "surrogates"),
    ],
)
def test_refused_tensors(path, tensors, error, match):
    path.write_bytes(b"old")
    with pytest.raises(error, match=match):
        hurray.save(path, tensors)
    assert os.listdir(path.parent) == [path.name]
    assert path.read_bytes() == b"old"


def test_a_member_takes_its_name(path):
    group = hurray.Composite("group", shape=[], dtype=hurray.float32, members=[tensor()])
    with pytest.raises(hurray.FileError, match=r"g\.0"):
        hurray.save(path, {"g": group, "g.0": tensor()})
    hurray.save(path, {"g": group, "g.1": tensor()})
    assert list(hurray.load(path)) == ["g", "g.1"]


@pytest.mark.parametrize(
    ("kv", "error", "match"),
    [
        ([("a", 1)], TypeError, "mapping"),
        ({1: 1}, TypeError, "str, not int"),
        ({"": 1}, hurray.FileError, "0"),
        ({"k" * 65536: 1}, hurray.FileError, "65536"),
        ({"k": None}, hurray.FileError, "NoneType"),
        ({"k": (1, 2)}, hurray.FileError, "tuple"),
        ({"k": {"a": 1}}, hurray.FileError, "dict"),
        ({"k": bytearray(b"b")}, hurray.FileError, "bytearray"),
        ({"k": np.int64(1)}, hurray.FileError, "int64"),
        ({"k": []}, hurray.FileError, "empty"),
        ({"k": [1, "a"]}, hurray.FileError, "not all"),
        ({"k": [1, True]}, hurray.FileError, "not all"),
        ({"k": [[1]]}, hurray.FileError, "not all"),
        ({"k": [1, None]}, hurray.FileError, "NoneType"),
        ({"k": [None]}, hurray.FileError, "NoneType"),
        ({"k": 2**63}, OverflowError, "k"),
        ({"k": -(2**63) - 1}, OverflowError, "k"),
        ({"k": [1, 2**63]}, OverflowError, "k"),
        ({"k": "\ud800"}, UnicodeEncodeError, "surrogates"),
    ],
)
def test_refused_metadata(path, kv, error, match):
    with pytest.raises(error, match=match):
        hurray.save(path, {}, kv=kv)
    assert not path.exists()


def test_no_metadata(path):
    for kv in (None, {}):
        hurray.save(path, {}, kv=kv)
        assert hurray.load_kv(path) == {}


def test_the_systems_errors_are_pythons(tmp_path, path):
    with pytest.raises(IsADirectoryError) as raised:
        hurray.save(tmp_path, {"t": tensor()})
    assert isinstance(raised.value, hurray.FileError)
    assert (raised.value.errno, raised.value.filename) == (errno.EISDIR, str(tmp_path))
    with pytest.raises(FileNotFoundError) as raised:
        hurray.save(tmp_path / "none" / "x", {"t": tensor()})
    assert raised.value.filename == str(tmp_path / "none" / "x")


def test_alignment_and_a_sorted_index(path):
    hurray.save(path, {"b": tensor(), "a": tensor()}, alignment=1 << 16, sorted_index=True)
    with hurray.open(path) as file:
        assert list(file) == ["a", "b"]
        for name in file:
            address = np.asarray(file[name]).__array_interface__["data"][0]
            assert address % 4096 == 0
    assert int.from_bytes(path.read_bytes()[16:20], "little") == 1 << 16
    for alignment in (0, 64, 4097, 1 << 22):
        with pytest.raises(hurray.FileError, match=str(alignment)):
            hurray.save(path, {}, alignment=alignment)


# Over a file that is there


def test_i2_saving_over_a_file_that_tensors_map_keeps_both(path):
    hurray.save(path, {"t": tensor(1 << 20)})
    loaded = hurray.load(path)
    hurray.save(path, {"t": tensor(4), "u": loaded["t"]})
    assert np.array_equal(np.asarray(loaded["t"]), np.arange(1 << 20, dtype=np.float32))
    again = hurray.load(path)
    assert np.array_equal(np.asarray(again["u"]), np.arange(1 << 20, dtype=np.float32))
    assert again["t"].shape == (4,)


def test_an_exception_from_progress_leaves_the_old_file(path):
    hurray.save(path, {"t": tensor()})
    old = path.read_bytes()

    def stop(done, total):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        hurray.save(path, {"t": tensor(1 << 20)}, progress=stop)
    assert path.read_bytes() == old
    assert os.listdir(path.parent) == [path.name]


def test_a_full_disk_leaves_the_old_file(path):
    program = """
import resource, signal, sys, numpy as np, hurray
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    hurray.save(sys.argv[1], {"t": hurray.from_numpy(np.zeros(1 << 20, np.float32))})
except hurray.FileError as error:
    print(error.errno)
"""
    path.write_bytes(b"old")
    ran = subprocess.run([sys.executable, "-c", program, path], capture_output=True, check=True)
    assert int(ran.stdout) == errno.EFBIG
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == [path.name]


def test_keyboard_interrupt_leaves_the_old_file(path):
    program = """
import os, signal, sys, threading, numpy as np, hurray
tensors = {str(i): hurray.from_numpy(np.zeros(1 << 24, np.uint8)) for i in range(8)}
def progress(done, total):
    if done < total / 2:
        # Not raised here: the next look at signals does.
        threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT)).run()
try:
    hurray.save(sys.argv[1], tensors, progress=progress)
except KeyboardInterrupt:
    print("interrupted")
"""
    path.write_bytes(b"old")
    ran = subprocess.run([sys.executable, "-c", program, path], capture_output=True, check=True)
    assert ran.stdout == b"interrupted\n"
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == [path.name]


# Sinks


class Collected:
    """A sink that keeps what it is given as it is given."""

    def __init__(self):
        self.parts = []

    def write(self, data):
        self.parts.append(data)

    def value(self) -> bytes:
        return b"".join(self.parts)


class OneByOne:
    """A raw sink that takes a part of what it is given."""

    def __init__(self):
        self.data = bytearray()
        self.sizes = []

    def write(self, data):
        count = max(1, len(data) // 2)
        self.data += data[:count]
        self.sizes.append(len(data))
        return count


def contents(tensors: dict, path: pathlib.Path) -> bytes:
    hurray.save(path, tensors)
    return path.read_bytes()


def test_file_objects(path, tmp_path):
    everything = items.items()
    expected = contents(everything, path)
    sinks = {
        "memory": io.BytesIO(),
        "buffered": open(tmp_path / "buffered", "wb"),  # noqa: SIM115
        "unbuffered": open(tmp_path / "unbuffered", "wb", buffering=0),  # noqa: SIM115
        "read and write": open(tmp_path / "both", "w+b"),  # noqa: SIM115
    }
    for name, sink in sinks.items():
        sink.write(b"before")
        hurray.save(sink, everything)
        assert not sink.closed
        sink.write(b"after")
        sink.flush()
        written = sink.getvalue() if name == "memory" else pathlib.Path(sink.name).read_bytes()
        assert written == b"before" + expected + b"after", name
        sink.close()


def test_sinks_in_python(path):
    everything = items.items()
    expected = contents(everything, path)
    collected, parted = Collected(), OneByOne()
    hurray.save(collected, everything)
    assert collected.value() == expected
    hurray.save(parted, everything)
    assert parted.data == expected


def test_what_a_sink_keeps_stays(path):
    """Views of tensors that are gone, and parts of them: their memory is kept."""
    array = aligned(1 << 16)
    array[:] = 7
    sink = Collected()
    hurray.save(sink, {"t": hurray.from_numpy(array)})
    views = [part[10:] for part in sink.parts if isinstance(part, memoryview)]
    assert [view.readonly for view in views] == [True]
    del array, sink
    np.empty(1 << 16, np.uint8).fill(9)
    assert bytes(views[0]) == bytes([7]) * ((1 << 16) - 10)


def test_nothing_is_copied(path):
    array = aligned(1 << 20)
    address = array.ctypes.data
    seen = []

    class Sink:
        def write(self, data):
            if isinstance(data, memoryview):
                seen.append(np.frombuffer(data, np.uint8).ctypes.data)
            return len(data)

    with hurray.copies() as log:
        hurray.save(Sink(), {"t": hurray.from_numpy(array), "view": hurray.from_numpy(array[64:])})
    assert seen == [address, address + 64]
    assert log == []


@pytest.mark.parametrize(
    ("answer", "error"), [(-1, ValueError), (10**9, ValueError), ("x", ValueError), (0, OSError)]
)
def test_a_sink_that_answers_nonsense(answer, error):
    sink = types.SimpleNamespace(write=lambda data: answer)
    with pytest.raises(error):
        hurray.save(sink, {"t": tensor()})


def test_what_a_sink_raises_is_raised():
    error = ZeroDivisionError("mine")

    def write(data):
        raise error

    with pytest.raises(ZeroDivisionError) as raised:
        hurray.save(types.SimpleNamespace(write=write), {"t": tensor()})
    assert raised.value is error


def test_a_socket_and_a_pipe(path):
    tensors = {"t": tensor(1 << 18)}
    expected = contents(tensors, path)
    ours, other = socket.socketpair()
    reader, writer = os.pipe()
    for write_end, read_end in [
        (ours, other.makefile("rb")),
        (open(writer, "wb"), open(reader, "rb")),  # noqa: SIM115
    ]:
        received = []
        thread = threading.Thread(target=lambda end=read_end: received.append(end.read()))  # noqa: B023
        thread.start()
        hurray.save(write_end, tensors)
        write_end.close()
        thread.join()
        read_end.close()
        assert received == [expected]
    other.close()


def test_a_path_to_a_pipe(tmp_path, path):
    expected = contents({"t": tensor(1 << 18)}, path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received = []
    thread = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    thread.start()
    hurray.save(pipe, {"t": tensor(1 << 18)})
    thread.join()
    assert received == [expected]


def test_what_is_no_sink(path):
    with open(path, "w") as text, pytest.raises(TypeError, match="wb"):
        hurray.save(text, {})
    for sink in (3, None, object()):
        with pytest.raises(TypeError, match="sendall, write or fileno"):
            hurray.save(sink, {})
    with open(path, "rb", buffering=0) as reading, pytest.raises(hurray.FileError) as raised:
        hurray.save(reading, {"t": tensor()})
    assert raised.value.errno == errno.EBADF


# Progress


def test_progress(path):
    told = []
    hurray.save(path, items.items(), progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (path.stat().st_size, path.stat().st_size)
    assert told == sorted(told)
    assert {total for _, total in told} == {path.stat().st_size}
    told.clear()
    hurray.save(io.BytesIO(), items.items(), progress=lambda *numbers: told.append(numbers))
    assert told[-1] == (path.stat().st_size, path.stat().st_size)


def test_a_bar(path, capfd):
    hurray.save(path, {"t": tensor(1 << 16)}, progress=True)
    bar = capfd.readouterr().err
    assert "model.hrry" in bar
    assert "100%" in bar


def test_a_bar_without_tqdm(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ImportError, match="pip install tqdm"):
        hurray.save(path, {}, progress=True)
    hurray.save(path, {}, progress=False)
    with pytest.raises(TypeError, match="progress"):
        hurray.save(path, {}, progress=3)


def test_the_interpreter_is_free_meanwhile(tmp_path):
    """A thread that writes to a pipe does not keep the one that reads from it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    thread = threading.Thread(target=lambda: hurray.save(pipe, {"t": tensor(1 << 20)}))
    thread.start()
    with open(pipe, "rb") as end:
        assert len(end.read()) > 4 << 20
    thread.join()


def test_a_pipe_whose_reader_has_gone(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb", buffering=0) as sink, pytest.raises(BrokenPipeError) as raised:
        hurray.save(sink, {"t": tensor()})
    assert isinstance(raised.value, hurray.FileError)
    assert raised.value.errno == errno.EPIPE
    assert signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN
