"""`Shard`, `Statistics` and `ExtensionType` (`descriptor.md` § 11)."""

import math

import pytest

import hurray

# Shard


def test_shard() -> None:
    shard = hurray.Shard(parent_shape=[1024, 512], shard_offset=(512, 0))
    assert (shard.parent_shape, shard.shard_offset) == ((1024, 512), (512, 0))
    assert shard == hurray.Shard((1024, 512), [512, 0])
    assert hash(shard) == hash(hurray.Shard((1024, 512), [512, 0]))
    assert shard != hurray.Shard([1024, 512], [0, 0])
    assert eval(f"hurray.{shard!r}") == shard
    assert hurray.Shard([], []).parent_shape == ()


def test_shard_refusals() -> None:
    with pytest.raises(hurray.InvalidDescriptorError, match=r"2 dimensions.* 1"):
        hurray.Shard([8, 8], [4])
    for arguments in [([None], [0]), ([8], [None])]:  # S12
        with pytest.raises(hurray.InvalidDescriptorError, match="S12"):
            hurray.Shard(*arguments)
    for number in (-1, 2**64 - 1, 2**64):
        with pytest.raises(hurray.InvalidDescriptorError, match=str(number)):
            hurray.Shard([number], [0])
    with pytest.raises(hurray.InvalidDescriptorError, match="64"):
        hurray.Shard([1] * 65, [0] * 65)
    for value in ("8", 8.0):
        with pytest.raises(TypeError):
            hurray.Shard([value], [0])
    with pytest.raises(TypeError):
        hurray.Shard(8, 0)


# Statistics

GROUPS = [
    ({"nnz": 2**64 - 1}, 1 << 0),
    ({"sparsity_ratio": 0.25}, 1 << 1),
    ({"value_min": -2.0, "value_max": 1.0, "value_abs_max": 2.0}, 1 << 2),
    ({"value_mean": 0.5, "value_stddev": 0.1}, 1 << 3),
    ({"nm_n": 2, "nm_m": 4}, 1 << 4),
    ({"has_nan": True, "has_inf": False}, 1 << 5),
]
FIELDS = [field for group, _ in GROUPS for field in group]


@pytest.mark.parametrize(("group", "mask"), GROUPS)
def test_a_group_of_statistics(group: dict[str, object], mask: int) -> None:
    statistics = hurray.Statistics(**group)
    assert statistics.computed_mask == mask
    for field in FIELDS:
        assert getattr(statistics, field) == group.get(field)
    assert statistics == hurray.Statistics(**group)
    assert hash(statistics) == hash(hurray.Statistics(**group))
    assert statistics != hurray.Statistics()
    assert eval(f"hurray.{statistics!r}") == statistics
    for omitted in group:
        rest = {field: value for field, value in group.items() if field != omitted}
        if rest:
            with pytest.raises(hurray.InvalidDescriptorError, match=omitted):
                hurray.Statistics(**rest)


def test_all_statistics_and_none() -> None:
    statistics = hurray.Statistics(**{k: v for group, _ in GROUPS for k, v in group.items()})
    assert statistics.computed_mask == 0b111111
    assert hurray.Statistics().computed_mask == 0
    assert repr(hurray.Statistics()) == "Statistics()"


def test_nan_is_a_value_like_any_other() -> None:
    nan = {"value_min": math.nan, "value_max": math.nan, "value_abs_max": math.nan}
    assert hurray.Statistics(**nan) == hurray.Statistics(**nan)
    assert math.isnan(hurray.Statistics(**nan).value_min)


@pytest.mark.parametrize(
    "fields",
    [
        {"sparsity_ratio": -0.1},
        {"sparsity_ratio": 1.1},
        {"sparsity_ratio": math.nan},
        {"value_mean": 0.0, "value_stddev": -1.0},
        {"value_mean": 0.0, "value_stddev": math.nan},
        {"nm_n": 5, "nm_m": 4},
    ],
)
def test_s15_hints_that_cannot_be_true_are_not_written(fields: dict[str, object]) -> None:
    with pytest.raises(hurray.InvalidDescriptorError):
        hurray.Statistics(**fields)


def test_statistics_are_keyword_only() -> None:
    with pytest.raises(TypeError):
        hurray.Statistics(5)
    with pytest.raises(OverflowError):
        hurray.Statistics(nnz=-1)


# Extension type

HALF = {
    "is_float": True,
    "sign_bits": 1,
    "exponent_bits": 5,
    "mantissa_bits": 10,
    "exponent_bias": 15,
    "has_nan": True,
    "has_inf": True,
}


def test_extension_type() -> None:
    half = hurray.ExtensionType(16, **HALF)
    assert half.bit_width == 16
    assert not half.is_signed
    for field, value in HALF.items():
        assert getattr(half, field) == value
    assert half == hurray.ExtensionType(16, **HALF)
    assert hash(half) == hash(hurray.ExtensionType(16, **HALF))
    assert half != hurray.ExtensionType(16)
    assert eval(f"hurray.{half!r}") == half
    signed = hurray.ExtensionType(bit_width=24, is_signed=True)
    assert eval(f"hurray.{signed!r}") == signed


@pytest.mark.parametrize(
    ("bits", "factor", "size_of_5"), [(1, 8, 1), (2, 4, 2), (4, 2, 3), (8, 1, 5), (24, 1, 15)]
)
def test_extension_widths(bits: int, factor: int, size_of_5: int) -> None:
    extension = hurray.ExtensionType(bits)
    assert extension.packing_factor == factor
    assert extension.buffer_size_bytes(5) == size_of_5
    assert extension.buffer_size_bytes(0) == 0


@pytest.mark.parametrize("bits", [0, 3, 5, 6, 7, 9, 12, 2**32 - 1])
def test_s17_widths_without_storage(bits: int) -> None:
    with pytest.raises(hurray.InvalidDescriptorError, match=str(bits)):
        hurray.ExtensionType(bits)


@pytest.mark.parametrize(
    "fields",
    [
        {"is_float": True, "is_signed": True},
        {"is_float": True, "sign_bits": 2},
        {"sign_bits": 1},
        {"exponent_bits": 1},
        {"mantissa_bits": 1},
        {"exponent_bias": 1},
        {"has_nan": True},
        {"has_inf": True},
    ],
)
def test_s16_fields_of_the_other_family(fields: dict[str, object]) -> None:
    with pytest.raises(hurray.InvalidDescriptorError):
        hurray.ExtensionType(16, **fields)


def test_extension_size_refuses_what_64_bits_cannot_count() -> None:
    # pyhurray 0.1.0 gives 2**64 - 3 here.
    with pytest.raises(OverflowError):
        hurray.ExtensionType(24).buffer_size_bytes(2**64 - 1)
