"""`hurray.StreamReader` and `hurray.StreamWriter`: from and to whatever can be read and written."""

import errno
import gzip
import io
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types

import items
import numpy as np
import pytest
from placed import aligned

import hurray

VECTORS = pathlib.Path(__file__).parents[1] / "vectors" / "streams"
MANIFEST = json.loads((VECTORS / "manifest.json").read_text())


def tensor(count: int = 8) -> hurray.Tensor:
    return hurray.from_numpy(np.arange(count, dtype=np.float32))


def written(*contents) -> bytes:
    with hurray.StreamWriter() as writer:
        for item in contents:
            writer.write(item)
    return writer.getvalue()


def shown(read) -> list:
    return [items.shown(item) for item in read]


EVERYTHING = list(items.items().values())
STREAM = written(*EVERYTHING)
SHOWN = shown(EVERYTHING)


# The vectors


@pytest.mark.parametrize("vector", MANIFEST["good"], ids=lambda v: v["id"])
def test_good_streams(vector):
    contents = (VECTORS / vector["file"]).read_bytes()
    read = list(hurray.StreamReader(contents))
    assert len(read) == len(vector["items"])
    assert written(*read) == contents


# In the release's words, or where it crashes or accepts in ours.
ERRORS = {
    "ST4": hurray.InvalidDescriptorError,
    "ST8": hurray.InvalidDescriptorError,
    "ST10": hurray.InvalidDescriptorError,
}


# Where another rule is found to be broken before.
BEFORE = {"cut-between-buffers": "ST10"}


@pytest.mark.parametrize("vector", MANIFEST["bad"], ids=lambda v: v["id"])
def test_malformed_streams(vector):
    reader = hurray.StreamReader((VECTORS / vector["file"]).read_bytes(), **vector["options"])
    read = []
    rule = BEFORE.get(vector["id"], vector["rule"])
    with pytest.raises(ERRORS.get(rule, hurray.StreamError), match=rf"\({rule}\)$"):
        for item in reader:
            read.append(item)
    assert len(read) == vector["items_before"]
    assert list(reader) == []


# Reading


def test_reading_is_no_copy():
    with hurray.copies() as log:
        assert shown(hurray.StreamReader(STREAM)) == SHOWN
        written(*EVERYTHING)
    assert log == []


def test_an_iterator():
    reader = hurray.StreamReader(STREAM)
    assert iter(reader) is reader
    assert isinstance(next(reader), hurray.Tensor)
    assert isinstance(list(reader)[-1], hurray.Composite)
    with pytest.raises(StopIteration):
        next(reader)


@pytest.mark.parametrize("kind", [str, pathlib.Path])
def test_paths(tmp_path, kind):
    path = tmp_path / "stream"
    with hurray.StreamWriter(kind(path)) as writer:
        for item in EVERYTHING:
            writer.write(item)
    assert path.read_bytes() == STREAM
    assert shown(hurray.StreamReader(kind(path))) == SHOWN


def test_paths_that_lead_nowhere(tmp_path):
    for make in (hurray.StreamReader, hurray.StreamWriter):
        with pytest.raises(FileNotFoundError) as raised:
            make(tmp_path / "none" / "x")
        assert isinstance(raised.value, hurray.FileError)
        assert raised.value.filename == str(tmp_path / "none" / "x")


class Parts:
    """A source of bytes that answers with one byte, then two, three …"""

    def __init__(self, contents: bytes):
        self.contents, self.position, self.step = contents, 0, 0

    def take(self, count: int) -> bytes:
        self.step = self.step % 97 + 1
        part = self.contents[self.position :][: min(count, self.step)]
        self.position += len(part)
        return part


class Into(Parts):
    def readinto(self, space):
        part = self.take(len(space))
        space[: len(part)] = part
        return len(part)


class Read(Parts):
    def read(self, count):
        return self.take(count)


class Received(Parts):
    def recv(self, count):
        return self.take(count)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, io.BytesIO, Into, Read, Received])
def test_sources(kind):
    assert shown(hurray.StreamReader(kind(STREAM))) == SHOWN


@pytest.mark.parametrize("buffering", [0, -1])
def test_files(tmp_path, buffering):
    path = tmp_path / "stream"
    with open(path, "wb", buffering=buffering) as file:
        file.write(b"before")
        with hurray.StreamWriter(file) as writer:
            for item in EVERYTHING:
                writer.write(item)
        assert not file.closed
        file.write(b"after")
    assert path.read_bytes() == b"before" + STREAM + b"after"
    path.write_bytes(b"before" + STREAM)
    with open(path, "rb", buffering=buffering) as file:
        assert file.read(6) == b"before"
        assert shown(hurray.StreamReader(file)) == SHOWN
        assert not file.closed


def test_nothing_is_read_past_an_item(tmp_path):
    path = tmp_path / "stream"
    path.write_bytes(written(tensor()) + b"and more")
    for buffering in (0, -1):
        with open(path, "rb", buffering=buffering) as file:
            next(hurray.StreamReader(file))
            assert file.read() == b"and more"


def test_compressed_files(tmp_path):
    path = tmp_path / "stream.gz"
    with gzip.open(path, "wb", compresslevel=1) as file, hurray.StreamWriter(file) as writer:
        for item in EVERYTHING:
            writer.write(item)
    with gzip.open(path, "rb") as file:
        assert file.read() == STREAM
    with gzip.open(path, "rb") as file:
        assert shown(hurray.StreamReader(file)) == SHOWN


def test_temporary_files():
    for make in (
        tempfile.TemporaryFile,
        tempfile.NamedTemporaryFile,
        tempfile.SpooledTemporaryFile,
    ):
        with make() as file:
            with hurray.StreamWriter(file) as writer:
                writer.write(tensor())
            file.seek(0)
            assert shown(hurray.StreamReader(file)) == shown([tensor()])


def through(write_end, read_end, contents) -> list:
    """What comes out of a connection that these go into."""
    failed = []

    def write():
        try:
            with hurray.StreamWriter(write_end) as writer:
                for item in contents:
                    writer.write(item)
        except BaseException as error:
            failed.append(error)
        write_end.close()

    thread = threading.Thread(target=write)
    thread.start()
    read = shown(hurray.StreamReader(read_end))
    thread.join()
    read_end.close()
    assert failed == []
    return read


LARGE = [tensor(1 << 20), *EVERYTHING, tensor(1 << 18)]


@pytest.mark.parametrize("buffering", [0, -1])
def test_pipes(buffering):
    reader, writer = os.pipe()
    write_end = open(writer, "wb", buffering=buffering)  # noqa: SIM115 - `through` closes them
    read_end = open(reader, "rb", buffering=buffering)  # noqa: SIM115
    assert through(write_end, read_end, LARGE) == shown(LARGE)


@pytest.mark.parametrize("timeout", [None, 30])
def test_sockets(timeout):
    ends = socket.socketpair()
    for end in ends:
        end.settimeout(timeout)
    assert through(*ends, LARGE) == shown(LARGE)


def test_a_child_process():
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert through(child.stdin, child.stdout, LARGE) == shown(LARGE)
    assert child.wait() == 0


def test_what_has_a_descriptor_and_nothing_else():
    reader, writer = os.pipe()
    ends = [
        types.SimpleNamespace(fileno=lambda fd=fd: fd, close=lambda fd=fd: os.close(fd))
        for fd in (writer, reader)
    ]
    # The writer has a duplicate of its own until it is finished.
    assert through(*ends, LARGE) == shown(LARGE)


def test_what_is_neither(tmp_path):
    for source in (3, None, object()):
        with pytest.raises(TypeError, match="a source is"):
            hurray.StreamReader(source)
    for sink in (3, object()):
        with pytest.raises(TypeError, match="a sink is"):
            hurray.StreamWriter(sink)
    (tmp_path / "text").write_text("")
    for mode, make in (("r", hurray.StreamReader), ("w", hurray.StreamWriter)):
        with open(tmp_path / "text", mode) as file, pytest.raises(TypeError, match=f"{mode}b"):
            make(file)
    with open(tmp_path / "text", "rb", buffering=0) as file:
        pass
    with pytest.raises(ValueError, match="closed"):
        hurray.StreamReader(file)


def test_limits():
    quantized = items.quantized()["nf4"]
    stream = written(quantized)
    assert len(list(hurray.StreamReader(stream, max_buffer_bytes=64))) == 1
    with pytest.raises(hurray.StreamError, match=r"64.*63.*ST5"):
        next(hurray.StreamReader(stream, max_buffer_bytes=63))
    with pytest.raises(hurray.StreamError, match="ST3"):
        next(hurray.StreamReader(stream, max_descriptor_bytes=60))
    group = items.composites()["group"]
    assert len(list(hurray.StreamReader(written(group), max_composite_depth=2))) == 1
    with pytest.raises(hurray.StreamError, match="ST9"):
        next(hurray.StreamReader(written(group), max_composite_depth=1))
    for limit in ("max_descriptor_bytes", "max_buffer_bytes", "max_composite_depth"):
        with pytest.raises(OverflowError):
            hurray.StreamReader(b"", **{limit: -1})
        with pytest.raises(TypeError):
            hurray.StreamReader(b"", **{limit: "1"})
    with pytest.raises(TypeError):
        hurray.StreamReader(b"", 1)


def test_cross_machine():
    stream = bytearray(written(tensor()))
    row = stream.index((32).to_bytes(8, "little") + (64).to_bytes(4, "little"))
    stream[row + 12] = hurray.device.cuda.tag
    stream[row + 13] = 1
    relayed = next(hurray.StreamReader(stream))
    assert relayed.buffer_handles[0].sync_mode == "event"
    assert written(relayed) == stream
    with pytest.raises(hurray.StreamError, match="ST6"):
        next(hurray.StreamReader(stream, cross_machine=True))
    with pytest.raises(hurray.StreamError, match="event"):
        hurray.StreamWriter(cross_machine=True).write(relayed)


def test_close():
    reader = hurray.StreamReader(STREAM)
    kept = next(reader)
    reader.close()
    reader.close()
    assert list(reader) == []
    assert items.shown(kept) == SHOWN[0]
    with hurray.StreamReader(STREAM) as reader:
        next(reader)
    assert list(reader) == []


def test_closing_lets_go_of_the_descriptor():
    reader, writer = os.pipe()
    with open(reader, "rb", buffering=0) as source:
        stream = hurray.StreamReader(source)
    stream.close()
    with pytest.raises(BrokenPipeError):
        os.write(writer, b"x")
    os.close(writer)


def test_errors_of_the_system_and_of_a_source():
    with open(os.devnull, "wb", buffering=0) as sink, pytest.raises(hurray.FileError) as raised:
        next(hurray.StreamReader(sink))
    assert raised.value.errno == errno.EBADF
    error = ZeroDivisionError("mine")

    def readinto(space):
        raise error

    reader = hurray.StreamReader(types.SimpleNamespace(readinto=readinto))
    with pytest.raises(ZeroDivisionError) as raised:
        next(reader)
    assert raised.value is error
    assert list(reader) == []


@pytest.mark.parametrize("answer", [-1, 1 << 40, "x", 1.5])
def test_a_source_that_answers_nonsense(answer):
    source = types.SimpleNamespace(readinto=lambda space: answer)
    with pytest.raises(ValueError):
        next(hurray.StreamReader(source))
    for read in (lambda count: "text", lambda count: bytes(count + 1)):
        with pytest.raises((TypeError, ValueError)):
            next(hurray.StreamReader(types.SimpleNamespace(read=read)))


def test_a_source_that_keeps_the_memory():
    """Whatever it is written to later, it is nobody else's."""
    kept = []

    class Keeper(Into):
        def readinto(self, space):
            kept.append(space[:1])
            return super().readinto(space)

    reader = hurray.StreamReader(Keeper(STREAM))
    with pytest.raises(BufferError, match="keeps the memory"):
        next(reader)
    assert list(reader) == []
    del reader
    kept[0][0] = 1

    class Whole(Into):
        def readinto(self, space):
            kept.append(space)
            return super().readinto(space)

    kept.clear()
    assert shown(hurray.StreamReader(Whole(STREAM))) == SHOWN
    with pytest.raises(ValueError, match="released"):
        kept[0][0] = 1


def test_a_source_that_asks_its_own_reader():
    class Silly(Into):
        def readinto(self, space):
            next(self.reader)

    source = Silly(STREAM)
    source.reader = hurray.StreamReader(source)
    with pytest.raises(RuntimeError, match="called again"):
        next(source.reader)


def test_a_socket_that_has_nothing_yet():
    ours, other = socket.socketpair()
    ours.setblocking(False)
    reader = hurray.StreamReader(ours)
    stream = written(tensor())
    for part in (stream[:5], stream[5:60], stream[60:]):
        with pytest.raises(BlockingIOError):
            next(reader)
        other.sendall(part)
    assert items.shown(next(reader)) == items.shown(tensor())
    ours.settimeout(0.01)
    with pytest.raises(TimeoutError):
        next(reader)
    other.sendall(stream)
    assert items.shown(next(reader)) == items.shown(tensor())
    ours.close(), other.close()


def test_keyboard_interrupt_while_nothing_comes():
    """The reader goes on where it was."""
    reader, writer = os.pipe()
    stream = written(tensor())
    os.write(writer, stream[:20])
    with open(reader, "rb", buffering=0) as source:
        read = hurray.StreamReader(source)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            next(read)
        os.write(writer, stream[20:])
        assert items.shown(next(read)) == items.shown(tensor())
    os.close(writer)


def test_a_signal_whose_handler_does_not_mind():
    reader, writer = os.pipe()
    stream = written(tensor())
    handled = []
    before = signal.signal(signal.SIGUSR1, lambda *_: handled.append(os.write(writer, stream)))
    try:
        with open(reader, "rb", buffering=0) as source:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            assert items.shown(next(hurray.StreamReader(source))) == items.shown(tensor())
    finally:
        signal.signal(signal.SIGUSR1, before)
        os.close(writer)
    assert handled == [len(stream)]


def test_the_interpreter_is_free_while_nothing_comes():
    for buffering in (0, -1):
        reader, writer = os.pipe()
        with open(reader, "rb", buffering=buffering) as source:
            read = []
            thread = threading.Thread(
                target=lambda s=source, r=read: r.extend(hurray.StreamReader(s))
            )
            thread.start()
            time.sleep(0.05)
            os.write(writer, written(tensor()))
            os.close(writer)
            thread.join()
            assert shown(read) == shown([tensor()])


def test_threads_share_a_reader():
    reader, writer = os.pipe()
    count = 400
    contents = [tensor(n % 50) for n in range(count)]
    lists = [[] for _ in range(4)]
    with open(reader, "rb", buffering=0) as source:
        shared = hurray.StreamReader(source)
        threads = [threading.Thread(target=lambda l=l: l.extend(shared)) for l in lists]  # noqa: E741
        for thread in threads:
            thread.start()
        with open(writer, "wb", buffering=0) as sink, hurray.StreamWriter(sink) as stream:
            for item in contents:
                stream.write(item)
        for thread in threads:
            thread.join()
    assert sorted(shown(item for part in lists for item in part)) == sorted(shown(contents))


def test_threads_share_a_writer():
    writer = hurray.StreamWriter()

    def write():
        for _ in range(100):
            writer.write(tensor(5))

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shown(hurray.StreamReader(writer.getvalue())) == shown([tensor(5)]) * 400


def test_progress(tmp_path):
    path = tmp_path / "stream"
    path.write_bytes(STREAM)
    told = []
    list(hurray.StreamReader(path, progress=lambda *numbers: told.append(numbers)))
    assert told == sorted(told)
    assert told[-1] == (len(STREAM), len(STREAM))
    told.clear()
    list(hurray.StreamReader(Into(STREAM), progress=lambda *numbers: told.append(numbers)))
    assert told[-1] == (len(STREAM), None)
    told.clear()
    with hurray.StreamWriter(progress=lambda *numbers: told.append(numbers)) as writer:
        for item in EVERYTHING:
            writer.write(item)
    assert told[-1] == (len(STREAM), None)
    assert len(told) == len(EVERYTHING)


def test_a_bar(tmp_path, capfd):
    path = tmp_path / "numbers.stream"
    with hurray.StreamWriter(path, progress=True) as writer:
        writer.write(tensor())
    list(hurray.StreamReader(path, progress=True))
    bars = capfd.readouterr().err
    assert bars.count("numbers.stream") >= 2
    assert "100%" in bars


# Writing


def test_the_writers_surface():
    writer = hurray.StreamWriter()
    assert writer.__enter__() is writer
    assert writer.getvalue() == b""
    assert writer.write(tensor()) is None
    assert writer.getvalue() == writer.getvalue() == written(tensor())
    writer.write_composite(items.composites()["group"])
    assert writer.finish() is None
    writer.finish()
    assert writer.getvalue() == written(tensor(), items.composites()["group"])
    for use in (writer.write, writer.write_composite):
        with pytest.raises(hurray.StreamError, match="finished"):
            use(items.composites()["group"])
    with pytest.raises(TypeError):
        hurray.StreamWriter().write_composite(tensor())
    with pytest.raises(TypeError, match="ndarray"):
        hurray.StreamWriter().write(np.zeros(3))


def test_a_block_that_fails_finishes_what_it_can(tmp_path):
    path = tmp_path / "stream"
    with pytest.raises(KeyError), hurray.StreamWriter(path) as writer:
        writer.write(tensor())
        raise KeyError
    assert path.read_bytes() == written(tensor())
    with pytest.raises(hurray.StreamError, match="destination"):
        writer.getvalue()

    class Full:
        def write(self, data):
            raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError, match="full"), hurray.StreamWriter(Full()) as writer:
        writer.write(tensor())


def test_a_writer_that_failed_is_finished():
    answers = [ZeroDivisionError("mine"), None]

    class Once:
        def write(self, data):
            if (error := answers.pop(0)) is not None:
                raise error

    writer = hurray.StreamWriter(Once())
    with pytest.raises(ZeroDivisionError):
        writer.write(tensor())
    with pytest.raises(hurray.StreamError):
        writer.write(tensor())


def test_what_a_writer_writes_is_not_copied():
    array = aligned(1 << 20)
    seen = []

    class Sink:
        def write(self, data):
            if len(data) > 1 << 16:
                seen.append(np.frombuffer(data, np.uint8).ctypes.data)

        def flush(self):
            seen.append("flushed")

    with hurray.copies() as log, hurray.StreamWriter(Sink()) as writer:
        writer.write(hurray.from_numpy(array))
    assert seen == [array.ctypes.data, "flushed"]
    assert log == []


def test_packing_is_reported_where_it_happens():
    with hurray.copies() as log:
        stream = written(hurray.from_numpy(np.ones(1 << 10, bool)))
        np.asarray(next(hurray.StreamReader(stream)))
    assert [(copy.reason, copy.call) for copy in log] == [
        ("packing", "from_numpy"),
        ("packing", "__array__"),
    ]


def test_a_daemon_thread_at_the_end_of_the_interpreter():
    program = """
import os, threading, hurray
reader, writer = os.pipe()
for buffering in (0, -1):
    source = open(os.dup(reader), "rb", buffering=buffering)
    threading.Thread(target=list, args=(hurray.StreamReader(source),), daemon=True).start()
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, b"")
