"""`hurray.Descriptor` and `hurray.BufferHandle`, over the golden vectors and others."""

import array
import json
import mmap
import struct
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hurray

VECTORS = Path(__file__).parent.parent / "vectors"
GOOD = json.loads((VECTORS / "descriptors.json").read_text())["vectors"]
MALFORMED = json.loads((VECTORS / "descriptors_malformed.json").read_text())["vectors"]


def row(
    byte_size: int = 16,
    alignment: int = 64,
    device: int = 0,
    sync_mode: int = 0,
    memory_class: int = 0,
) -> bytes:
    return struct.pack("<QIBBBx", byte_size, alignment, device, sync_mode, memory_class)


def descriptor(
    *rows: bytes,
    shape: tuple[int, ...] = (4,),
    type_tag: int = 0x03,
    layout_tag: int = 0x01,
    layout: bytes = b"",
    sections: bytes = b"",
    flags: int = 0,
    minor: int = 0,
) -> bytes:
    """A descriptor's bytes (`descriptor.md` § 1)."""
    body = struct.pack(f"<{len(shape)}Q", *shape) + bytes(8) + layout
    body += bytes([len(rows)]) + b"".join(rows) + sections
    head = struct.pack(
        "<4sBBIIBBI", b"HRRY", 1, minor, 20 + len(body), flags, type_tag, layout_tag, len(shape)
    )
    return head + body


@pytest.mark.parametrize("vector", GOOD, ids=lambda v: v["name"])
def test_golden_descriptor(vector: dict) -> None:
    data = (VECTORS / vector["file"]).read_bytes()
    found = hurray.Descriptor.decode(data)
    assert found.version == tuple(vector["version"])
    assert found.dtype.tag == vector["type_tag"]
    assert found.ndim == vector["rank"]
    dynamic = 2**64 - 1
    assert found.shape == tuple(
        None if dim in (None, "dynamic", dynamic) else dim for dim in vector["shape"]
    )
    assert found.byte_offset == vector["byte_offset"]
    assert found.layout.tag == vector["layout"]["tag"]
    assert found.buffer_count == vector["buffer_count"] == len(found.buffer_handles)
    for handle, expected in zip(found.buffer_handles, vector["buffers"], strict=True):
        assert (handle.byte_size, handle.alignment) == (
            expected["byte_size"],
            expected["alignment"],
        )
        assert handle.sync_mode == expected["sync_mode"]
        assert handle.device.tag == expected["device_tag"]
        assert handle.device.memory_class_tag == expected["memory_class_tag"]
        assert handle.device.device_id == 0
    assert (found.shard is None) == (vector["shard"] is None)
    assert (found.statistics is None) == (vector["statistics"] is None)
    assert (found.extension_type is None) == (vector["extension_type"] is None)
    assert (found.member_role is None) == (vector["composite_member"] is None)
    if vector["shard"] is not None:
        assert found.shard.parent_shape == tuple(vector["shard"]["parent_shape"])
        assert found.shard.shard_offset == tuple(vector["shard"]["shard_offset"])
    if vector["extension_type"] is not None:
        assert found.extension_type.bit_width == vector["extension_type"]["bit_width"]
    # What a later minor version appended is kept, so the bytes come back at every version.
    length = int.from_bytes(data[6:10], "little")
    assert found.encode() == data[:length]
    assert found.encoded_len == length
    assert hurray.Descriptor.decode(found.encode()) == found


@pytest.mark.parametrize("vector", MALFORMED, ids=lambda v: v["name"])
def test_malformed_descriptor(vector: dict) -> None:
    with pytest.raises(hurray.InvalidDescriptorError):
        hurray.Descriptor.decode((VECTORS / vector["file"]).read_bytes())


def test_a_plain_descriptor() -> None:
    found = hurray.Descriptor.decode(descriptor(row()))
    assert found.dtype is hurray.float32
    assert (found.shape, found.ndim, found.size) == ((4,), 1, 4)
    assert found.layout == hurray.RowMajorLayout()
    assert found.device is hurray.device.cpu
    assert found.quantization is found.shard is found.statistics is found.extension_type is None
    assert (
        repr(found)
        == str(found)
        == "hurray.Descriptor(dtype=float32, shape=(4,), layout='row_major', buffers=1)"
    )


def test_equality_without_a_hash() -> None:
    first, second = (hurray.Descriptor.decode(descriptor(row())) for _ in range(2))
    assert first == second
    assert first != hurray.Descriptor.decode(descriptor(row(byte_size=17)))
    assert first != first.encode()
    with pytest.raises(TypeError, match="unhashable"):
        hash(first)


def test_decode_takes_anything_bytes_like(tmp_path: Path) -> None:
    data = descriptor(row())
    expected = hurray.Descriptor.decode(data)
    for form in (bytearray(data), memoryview(data), array.array("B", data), data + bytes(99)):
        assert hurray.Descriptor.decode(form) == expected
    file = tmp_path / "descriptor"
    file.write_bytes(data + bytes(1 << 20))
    with (
        file.open("rb") as opened,
        mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
    ):
        assert hurray.Descriptor.decode(mapped) == expected
    for form in (3, "text", None, [1, 2]):
        with pytest.raises(TypeError):
            hurray.Descriptor.decode(form)
    with pytest.raises(TypeError, match="contiguous"):
        hurray.Descriptor.decode(memoryview(data)[::2])


def test_dynamic_dimensions_are_none() -> None:
    found = hurray.Descriptor.decode(descriptor(row(), shape=(2**64 - 1, 0)))
    assert (found.shape, found.size) == ((None, 0), None)


def test_size_past_64_bits_is_none() -> None:
    assert hurray.Descriptor.decode(descriptor(row(), shape=(2**40, 2**40))).size is None


def test_later_minor_versions_are_relayed() -> None:
    # Decision 10.
    data = bytearray(descriptor(row(), minor=1) + b"later")
    data[6:10] = len(data).to_bytes(4, "little")
    found = hurray.Descriptor.decode(data)
    assert found.version == (1, 1)
    assert found.encode() == data


def test_quantization_that_cannot_be_read_is_relayed() -> None:
    # S18.
    section = b"\xf0\x01\x00\x00private"
    sections = struct.pack("<I", len(section)) + section
    data = descriptor(row(), flags=1, sections=sections)
    found = hurray.Descriptor.decode(data)
    with pytest.raises(hurray.InvalidDescriptorError, match="0xf0"):
        found.quantization  # noqa: B018 - the property raises
    assert found.encode() == data


def test_quantization() -> None:
    scheme = hurray.PerChannelAffine.symmetric(0, 1)
    section = scheme.encode()
    data = descriptor(row(), row(), flags=1, sections=struct.pack("<I", len(section)) + section)
    assert hurray.Descriptor.decode(data).quantization == scheme


@pytest.mark.parametrize(("byte", "role"), [(0, "correction"), (1, "base")])
def test_member_role(byte: int, role: str) -> None:
    data = descriptor(row(), flags=1 << 4, sections=bytes([byte]) + bytes(15))
    assert hurray.Descriptor.decode(data).member_role == role


def test_a_head_has_no_buffers_and_says_cpu() -> None:
    head = descriptor(layout_tag=0x0B, layout=struct.pack("<BBHI", 3, 0, 0, 2))
    found = hurray.Descriptor.decode(head)
    assert found.layout == hurray.CompositeLayout("group", 2)
    assert (found.buffer_count, found.buffer_handles) == (0, ())
    assert found.device is hurray.device.cpu


def test_rows_on_different_devices_are_shown_as_they_are() -> None:
    # Colocation (S3) is for tensors; pyhurray 0.1.0 shows row 0's device for all.
    found = hurray.Descriptor.decode(
        descriptor(row(), row(device=1), row(device=1, memory_class=2))
    )
    assert [str(handle.device) for handle in found.buffer_handles] == [
        "cpu",
        "cuda:0",
        "cuda:0/unified",
    ]


def test_not_constructible() -> None:
    for class_ in (hurray.Descriptor, hurray.BufferHandle):
        with pytest.raises(TypeError, match="cannot create"):
            class_()


@given(st.data())
def test_decoding_mutated_bytes_never_does_anything_but_refuse(data: st.DataObject) -> None:
    good = GOOD[data.draw(st.integers(0, len(GOOD) - 1))]
    mutated = bytearray((VECTORS / good["file"]).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = hurray.Descriptor.decode(mutated)
    except hurray.InvalidDescriptorError:
        return
    repr(found), found.layout, found.buffer_handles, found.shard, found.statistics
    assert hurray.Descriptor.decode(found.encode()) == found


# Buffer handles


def handles(*rows: bytes) -> tuple[hurray.BufferHandle, ...]:
    return hurray.Descriptor.decode(descriptor(*rows)).buffer_handles


def test_handle() -> None:
    (handle,) = handles(row(byte_size=1024))
    assert (handle.byte_size, handle.alignment) == (1024, 64)
    assert (handle.sync_mode, handle.is_empty) == ("producer_synced", False)
    assert handle.device is hurray.device.cpu
    assert (
        repr(handle)
        == "BufferHandle(byte_size=1024, alignment=64, sync_mode='producer_synced', device=cpu)"
    )
    with pytest.raises(AttributeError):
        handle.byte_size = 3


def test_empty_handle() -> None:
    (handle,) = handles(row(byte_size=0, alignment=1))
    assert (handle.is_empty, handle.alignment) == (True, 1)


@pytest.mark.parametrize(
    ("byte", "mode"), list(enumerate(["producer_synced", "event", "consumer_stream"]))
)
def test_modes(byte: int, mode: str) -> None:
    first, second = handles(row(device=1, sync_mode=byte), row(device=1, sync_mode=byte))
    assert first.sync_mode == mode
    # Made once, so that reading it costs no formatting.
    assert first.sync_mode is second.sync_mode
    assert f"sync_mode='{mode}', device=cuda:0" in repr(first)


def test_handles_compare_every_field() -> None:
    rows = [
        row(),
        row(byte_size=32),
        row(alignment=128),
        row(device=1),
        row(device=1, sync_mode=1),
        row(device=1, memory_class=2),
    ]
    assert len(set(handles(*rows))) == len(rows)
    assert handles(*rows) == handles(*rows)
    assert hash(handles(*rows)) == hash(handles(*rows))
    assert handles(row())[0] != "BufferHandle"


def test_handles_of_one_descriptor_share_one_device_object() -> None:
    found = hurray.Descriptor.decode(descriptor(row(device=0xF0), row(device=0xF0)))
    first, second = found.buffer_handles
    assert first.device is second.device is found.device


def test_a_handle_keeps_nothing_but_the_device_alive() -> None:
    found = hurray.Descriptor.decode(descriptor(row()))
    references = sys.getrefcount(found)
    kept = found.buffer_handles
    assert sys.getrefcount(found) == references
    del found
    assert kept[0].byte_size == 16
