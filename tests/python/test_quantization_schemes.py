"""The quantization classes: parameters, sections, refusals (`quantization.md` § 3, § 10)."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hurray

NONE = 0xFFFFFFFF

SECTIONS = [
    (hurray.PerTensorAffine(0.5, 7), struct.pack("<BBHfi4x", 1, 1, 0, 0.5, 7)),
    (hurray.PerTensorAffine(-2.0, -9), struct.pack("<BBHfi4x", 1, 1, 0, -2.0, -9)),
    (hurray.PerChannelAffine.symmetric(0, 1), struct.pack("<BBHIIIB3x", 2, 1, 1, 0, 1, NONE, 3)),
    (hurray.PerChannelAffine.asymmetric(2, 1, 3), struct.pack("<BBHIIIB3x", 2, 1, 0, 2, 1, 3, 3)),
    (
        hurray.PerBlockAffine.symmetric(1, 64, 1, hurray.float32),
        struct.pack("<BBHIIIIB3x", 3, 1, 1, 1, 64, 1, NONE, 3),
    ),
    (
        hurray.PerBlockAffine.asymmetric(1, 2, 1, 2, hurray.bfloat16),
        struct.pack("<BBHIIIIB3x", 3, 1, 0, 1, 2, 1, 2, 2),
    ),
    (hurray.NF4(1, 64, 1), struct.pack("<BBHIII", 4, 1, 0, 1, 64, 1)),
    (hurray.MXFP(1, 32, 1), struct.pack("<BBHIII", 5, 1, 0, 1, 32, 1)),
]


@pytest.mark.parametrize(("scheme", "section"), SECTIONS, ids=lambda v: type(v).__name__)
def test_section(scheme: object, section: bytes) -> None:
    assert scheme.encode() == section
    for data in (section, bytearray(section), memoryview(section), section + b"more"):
        decoded = hurray.decode_quantization(data)
        assert type(decoded) is type(scheme)
        assert decoded == scheme
        assert hash(decoded) == hash(scheme)
    assert eval(f"hurray.{scheme!r}") == scheme


def test_schemes_differ() -> None:
    assert len({scheme for scheme, _ in SECTIONS}) == len(SECTIONS)
    assert hurray.MXFP(1, 32, 1) != hurray.NF4(1, 32, 1)


def test_properties() -> None:
    tensor = hurray.PerTensorAffine(0.02, 128)
    assert tensor.scale == struct.unpack("f", struct.pack("f", 0.02))[0]
    assert tensor.zero_point == 128
    channel = hurray.PerChannelAffine.symmetric(axis=3, scale_buffer_index=1)
    assert (channel.axis, channel.scale_buffer_index) == (3, 1)
    assert channel.zero_point_buffer_index is None
    block = hurray.PerBlockAffine.asymmetric(
        axis=1,
        block_size=2**31,
        scale_buffer_index=1,
        zero_point_buffer_index=2,
        scale_type=hurray.float16,
    )
    assert (block.axis, block.block_size, block.scale_buffer_index) == (1, 2**31, 1)
    assert block.zero_point_buffer_index == 2
    assert block.scale_type is hurray.float16
    for scheme in (hurray.NF4(1, 64, 2), hurray.MXFP(1, 64, 2)):
        assert (scheme.axis, scheme.block_size, scheme.scale_buffer_index) == (1, 64, 2)


def test_scale_and_zero_point_may_share_a_buffer() -> None:
    assert hurray.PerChannelAffine.asymmetric(0, 1, 1).zero_point_buffer_index == 1


@pytest.mark.parametrize("scale", [0.0, -0.0, float("nan"), float("inf"), 1e-50, 1e50])
def test_q10_scale_is_finite_and_not_zero_as_float32(scale: float) -> None:
    with pytest.raises(hurray.InvalidDescriptorError):
        hurray.PerTensorAffine(scale, 0)


@pytest.mark.parametrize("block_size", [0, 1, 3, 63, 2**31 + 1, 2**32 - 1])
def test_q11_block_size(block_size: int) -> None:
    for make in (
        lambda: hurray.PerBlockAffine.symmetric(0, block_size, 1, hurray.float32),
        lambda: hurray.NF4(0, block_size, 1),
        lambda: hurray.MXFP(0, block_size, 1),
    ):
        with pytest.raises(hurray.InvalidDescriptorError, match=str(block_size)):
            make()


@pytest.mark.parametrize(("class_", "low", "high"), [("NF4", 8, 2**31), ("MXFP", 16, 2048)])
def test_q11_bounds(class_: str, low: int, high: int) -> None:
    scheme = getattr(hurray, class_)
    assert scheme(0, low, 1).block_size == low
    assert scheme(0, high, 1).block_size == high
    for block_size in (low // 2, high * 2):
        with pytest.raises((hurray.InvalidDescriptorError, OverflowError)):
            scheme(0, block_size, 1)


@pytest.mark.parametrize("dtype", [hurray.float64, hurray.int8, hurray.dtype.float8_e4m3])
def test_q12_scale_type(dtype: hurray.Dtype) -> None:
    with pytest.raises(hurray.InvalidDescriptorError, match=dtype.name):
        hurray.PerBlockAffine.symmetric(0, 64, 1, dtype)


def test_q13_q14_no_buffer_is_not_a_buffer() -> None:
    for make in (
        lambda: hurray.PerChannelAffine.symmetric(0, NONE),
        lambda: hurray.PerChannelAffine.asymmetric(0, 1, NONE),
        lambda: hurray.PerBlockAffine.symmetric(0, 64, NONE, hurray.float32),
        lambda: hurray.PerBlockAffine.asymmetric(0, 64, 1, NONE, hurray.float32),
        lambda: hurray.NF4(0, 64, NONE),
        lambda: hurray.MXFP(0, 64, NONE),
    ):
        with pytest.raises(hurray.InvalidDescriptorError, match="0xffffffff"):
            make()


@pytest.mark.parametrize(
    ("rule", "data"),
    [
        ("Q1", b""),
        ("Q1", b"\x01\x01\x00"),
        ("Q2", b"\x00\x01\x00\x00"),
        ("Q2", b"\xff\x01\x00\x00"),
        ("Q3", b"\x60\x01\x00\x00"),
        ("Q4", b"\xf0\x01\x00\x00"),
        ("Q5", b"\x06\x01\x00\x00"),
        ("Q6", b"\x01\x02\x00\x00" + bytes(12)),
        ("Q7", b"\x01\x01\x00\x00" + bytes(11)),
        ("Q8", struct.pack("<BBHfi4x", 1, 1, 1, 0.5, 7)),
        ("Q9", struct.pack("<BBHfi4s", 1, 1, 0, 0.5, 7, b"\0\0\0\1")),
    ],
)
def test_sections_that_cannot_be_read(rule: str, data: bytes) -> None:
    with pytest.raises(hurray.InvalidDescriptorError):
        hurray.decode_quantization(data)


@given(st.binary(max_size=40))
def test_decoding_never_does_anything_but_refuse(data: bytes) -> None:
    try:
        scheme = hurray.decode_quantization(data)
    except hurray.InvalidDescriptorError:
        return
    assert hurray.decode_quantization(scheme.encode()) == scheme


def test_decoding_wants_bytes() -> None:
    for data in (3, "text", None):
        with pytest.raises(TypeError):
            hurray.decode_quantization(data)


def test_per_channel_and_per_block_are_not_constructible() -> None:
    for class_ in (hurray.PerChannelAffine, hurray.PerBlockAffine):
        with pytest.raises(TypeError, match="cannot create"):
            class_()


def test_frozen() -> None:
    with pytest.raises(AttributeError):
        hurray.NF4(1, 64, 1).axis = 0
