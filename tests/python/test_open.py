"""`hurray.open`: a mapping that reads what it is asked for."""

import collections.abc
import gc
import io
import threading

import items
import numpy as np
import pytest

import hurray


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.hrry"
    hurray.save(path, items.items(), kv=items.METADATA)
    return path


@pytest.fixture(params=[True, False], ids=["mapped", "read"])
def file(path, request):
    with hurray.open(path, mmap=request.param) as file:
        yield file


def test_a_mapping(file):
    everything = items.items()
    assert isinstance(file, collections.abc.Mapping)
    assert list(file) == list(file.keys()) == list(everything)
    assert len(file) == len(everything)
    for name, item in file.items():
        assert items.shown(item) == items.shown(everything[name])
    assert [items.shown(v) for v in file.values()] == [items.shown(v) for v in dict(file).values()]
    assert "csr" in file
    assert "nope" not in file
    assert 3 not in file
    assert "\ud800" not in file
    assert file.get("nope") is None
    assert file.get("nope", 7) == 7
    assert file.get("scalar").shape == ()


def test_names_that_are_none(file):
    for name in ("nope", 3, None, ("csr",)):
        with pytest.raises(KeyError) as raised:
            file[name]
        assert raised.value.args == (name,)
        with pytest.raises(KeyError):
            file.descriptor(name)
        with pytest.raises(KeyError):
            file.slice(name)


def test_members(file):
    assert "group.1.0" in file
    assert "group.1.0" not in list(file)
    assert items.shown(file["group.1.0"]) == items.shown(file["group"].members[1].members[0])


def test_descriptors(file):
    for name, item in items.items().items():
        found = file.descriptor(name)
        assert (found.shape, found.dtype) == (item.shape, item.dtype)
        assert found.layout == item.layout


def test_metadata(file):
    assert repr(file.kv) == repr(items.METADATA)


# Slices


@pytest.fixture
def rows(tmp_path):
    array = np.arange(1000 * 12, dtype=np.float32).reshape(1000, 3, 4)
    path = tmp_path / "rows"
    tensors = {
        "row_major": hurray.from_numpy(array),
        "transposed": hurray.from_numpy(array.transpose(2, 0, 1)),
        "bits": hurray.Tensor(bytes(range(250)) * 4, hurray.bool, [1000, 8]),
    }
    hurray.save(path, tensors)
    return path, array


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize(
    ("start", "stop"),
    [
        (0, 10),
        (7, 8),
        (100, None),
        (None, 5),
        (None, None),
        (-3, None),
        (5, -5),
        (9, 2),
        (999, 2000),
    ],
)
def test_slices(rows, start, stop, mmap):
    path, array = rows
    with hurray.open(path, mmap=mmap) as file:
        part = file.slice("row_major", start, stop)
        assert np.array_equal(np.asarray(part), array[start:stop])
        part = file.slice("transposed", start, stop)
        assert np.array_equal(np.asarray(part), array.transpose(2, 0, 1)[start:stop])


def test_a_slice_reads_no_more(rows):
    path, _ = rows
    with hurray.open(path, mmap=False) as file:
        part = file.slice("row_major", 500, 502)
    assert part.buffer_handles[0].byte_size < 64 + 2 * 48
    with hurray.open(path) as file, hurray.copies() as log:
        whole, part = file["row_major"], file.slice("row_major", 100)
        start = np.asarray(whole).ctypes.data
        assert np.asarray(part).ctypes.data == start + 100 * 48
    assert log == []


def test_what_has_no_slices(file):
    for name in ("csr", "tiled", "nf4", "scalar", "private", "group"):
        with pytest.raises(hurray.UnsupportedError, match="no slices"):
            file.slice(name, 0, 1)
    with pytest.raises(hurray.UnsupportedError, match="begin on a byte"):
        file.slice("of int4", 1)


# Closing


def test_close(path):
    file = hurray.open(path)
    tensor = file["row_major"]
    assert not file.closed
    file.close()
    file.close()
    assert file.closed
    assert items.shown(tensor) == items.shown(items.items()["row_major"])
    for use in (
        lambda: file["row_major"],
        lambda: list(file),
        lambda: len(file),
        lambda: "x" in file,
        lambda: file.kv,
        lambda: file.descriptor("row_major"),
        lambda: file.slice("row_major"),
        file.__enter__,
    ):
        with pytest.raises(ValueError, match="closed"):
            use()
    assert repr(file) == "<hurray.File, closed>"


def test_repr(file):
    # Members have entries too.
    entries = len(file) + 2 + 2 + 4 + 2 + 2
    assert repr(file) == f'<hurray.File "model.hrry", {entries} entries>'


def test_bytes_and_file_objects(path):
    contents = path.read_bytes()
    with open(path, "rb") as raw:
        for source in (contents, io.BytesIO(contents), raw):
            with hurray.open(source) as file:
                assert list(file) == list(items.items())


def test_a_file_that_nobody_closes(path):
    hurray.open(path)["row_major"]
    gc.collect()


def test_threads_share_a_file(file):
    expected = {name: items.shown(item) for name, item in items.items().items()}
    wrong = []

    def read():
        wrong.extend(n for n, item in file.items() if items.shown(item) != expected[n])

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_declared_device(path, tmp_path):
    contents = bytearray(path.read_bytes())
    row = contents.index((24).to_bytes(8, "little") + (64).to_bytes(4, "little"))
    contents[row + 12] = hurray.device.cuda.tag
    path.write_bytes(contents)
    with hurray.open(path) as file:
        assert file.descriptor("row_major").device.kind == "cuda"
        assert str(file["row_major"].device) == "cpu"
        assert str(file.slice("row_major", 1).device) == "cpu"
    with hurray.open(path, device=None) as file:
        assert str(file["row_major"].device) == "cuda:0"
        assert str(file.slice("row_major", 1).device) == "cuda:0"
