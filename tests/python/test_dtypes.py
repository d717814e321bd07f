"""`hurray.Dtype` against the table of `descriptor.md` § 5."""

import pytest

import hurray

# name: tag, bits, tier, alignment of one element, is_float, is_integer, is_signed
TABLE = {
    "float16": (0x01, 16, 1, 2, True, False, True),
    "bfloat16": (0x02, 16, 1, 2, True, False, True),
    "float32": (0x03, 32, 1, 4, True, False, True),
    "float64": (0x04, 64, 1, 8, True, False, True),
    "int8": (0x10, 8, 1, 1, False, True, True),
    "uint8": (0x11, 8, 1, 1, False, True, False),
    "int16": (0x12, 16, 1, 2, False, True, True),
    "uint16": (0x13, 16, 1, 2, False, True, False),
    "int32": (0x14, 32, 1, 4, False, True, True),
    "uint32": (0x15, 32, 1, 4, False, True, False),
    "int64": (0x16, 64, 1, 8, False, True, True),
    "uint64": (0x17, 64, 1, 8, False, True, False),
    "bool": (0x20, 1, 1, 1, False, False, False),
    "float8_e4m3": (0x40, 8, 2, 1, True, False, True),
    "float8_e5m2": (0x41, 8, 2, 1, True, False, True),
    "float8_e8m0": (0x42, 8, 2, 1, True, False, False),
    "float4_e2m1": (0x43, 4, 2, 1, True, False, True),
    "float6_e2m3": (0x44, 6, 2, 1, True, False, True),
    "float6_e3m2": (0x45, 6, 2, 1, True, False, True),
    "float128": (0x46, 128, 2, 16, True, False, True),
    "int4": (0x48, 4, 2, 1, False, True, True),
    "uint4": (0x49, 4, 2, 1, False, True, False),
    "int2": (0x4A, 2, 2, 1, False, True, True),
    "uint2": (0x4B, 2, 2, 1, False, True, False),
    "complex64": (0x50, 64, 2, 4, True, False, True),
    "complex128": (0x51, 128, 2, 8, True, False, True),
}


def test_the_table_is_all_of_the_module() -> None:
    assert sorted(TABLE) == sorted(n for n in dir(hurray.dtype) if not n.startswith("_"))


@pytest.mark.parametrize("name", TABLE)
def test_named_type(name: str) -> None:
    tag, bits, tier, alignment, is_float, is_integer, is_signed = TABLE[name]
    dtype = getattr(hurray.dtype, name)
    assert (dtype.name, str(dtype), dtype.tag, dtype.bit_width) == (name, name, tag, bits)
    assert (dtype.tier, dtype.element_alignment) == (tier, alignment)
    assert (dtype.is_float, dtype.is_integer, dtype.is_signed) == (is_float, is_integer, is_signed)
    assert dtype.is_sub_byte == (bits < 8)
    assert dtype.is_array_api == (tier == 1)
    assert hurray.Dtype.from_name(name) is dtype
    assert hurray.Dtype.from_tag(tag) is dtype
    assert hasattr(hurray, name) == (tier == 1)
    assert repr(dtype) == f"hurray.{name}" if tier == 1 else f"hurray.dtype.{name}"
    assert eval(repr(dtype)) is dtype


@pytest.mark.parametrize("tag", range(0xF0, 0xFF))
def test_private_type(tag: int) -> None:
    dtype = hurray.Dtype.from_tag(tag)
    assert dtype is hurray.Dtype.from_tag(tag)
    assert (dtype.name, dtype.tag, dtype.tier) == ("extension", tag, 2)
    # The width is in the descriptor's extension section.
    assert (dtype.bit_width, dtype.element_alignment) == (0, 1)
    assert not (dtype.is_float or dtype.is_integer or dtype.is_signed or dtype.is_sub_byte)
    assert eval(repr(dtype)) is dtype


def test_every_other_tag_is_refused() -> None:
    # R7, R8, R9.
    good = {row[0] for row in TABLE.values()} | set(range(0xF0, 0xFF))
    for tag in set(range(256)) - good:
        with pytest.raises(hurray.InvalidDescriptorError, match=f"{tag:#04x}"):
            hurray.Dtype.from_tag(tag)
    for number in (-1, 256):
        with pytest.raises(OverflowError):
            hurray.Dtype.from_tag(number)


@pytest.mark.parametrize("name", ["", "FLOAT32", "float", "extension"])
def test_unknown_name_lists_the_names(name: str) -> None:
    with pytest.raises(hurray.InvalidDescriptorError) as refusal:
        hurray.Dtype.from_name(name)
    assert all(known in str(refusal.value) for known in TABLE)


def test_identity_is_equality_and_the_hash_is_the_tag() -> None:
    named = [getattr(hurray.dtype, name) for name in TABLE]
    assert len(set(named)) == 26
    assert hash(hurray.float32) == 3
    assert hurray.float32 != "float32"
    assert hurray.float32 != hurray.float64


def test_not_constructible_and_frozen() -> None:
    with pytest.raises(TypeError, match="cannot create"):
        hurray.Dtype("float32")
    with pytest.raises(AttributeError):
        hurray.float32.name = "x"


def test_the_name_is_made_once() -> None:
    assert hurray.float32.name is hurray.float32.name


# `descriptor.md` § 5.2 gives these.
@pytest.mark.parametrize(
    ("name", "count", "size"),
    [
        ("bool", 9, 2),
        ("int4", 7, 4),
        ("uint2", 5, 2),
        ("float6_e2m3", 1, 3),
        ("float6_e2m3", 4, 3),
        ("float6_e3m2", 5, 6),
        ("float32", 60, 240),
        ("float32", 0, 0),
        ("complex128", 2**60 - 1, 2**64 - 16),
    ],
)
def test_buffer_size_bytes(name: str, count: int, size: int) -> None:
    assert hurray.buffer_size_bytes(getattr(hurray.dtype, name), count) == size


def test_buffer_size_bytes_refuses_what_64_bits_cannot_count() -> None:
    # pyhurray 0.1.0 gives 0 here.
    with pytest.raises(OverflowError, match=str(2**62)):
        hurray.buffer_size_bytes(hurray.dtype.complex128, 2**62)
    with pytest.raises(OverflowError):
        hurray.buffer_size_bytes(hurray.float32, -1)


def test_buffer_size_bytes_of_a_private_type_names_the_extension_type() -> None:
    with pytest.raises(hurray.InvalidDescriptorError, match="ExtensionType"):
        hurray.buffer_size_bytes(hurray.Dtype.from_tag(0xF2), 3)
