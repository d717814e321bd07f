"""The layout classes (`layouts.md`)."""

import functools

import numpy as np
import pytest

import hurray

# layout: tag, name, buffers, is_dense, is_virtual
LAYOUTS = [
    (hurray.RowMajorLayout(), 0x01, "row_major", 1, True, False),
    (hurray.ColMajorLayout(), 0x02, "col_major", 1, True, False),
    (hurray.StridedLayout([4, -1, 0]), 0x03, "strided", 1, True, False),
    (hurray.TiledLayout([4, 4]), 0x04, "tiled", 1, True, False),
    (hurray.MortonLayout([3, 3]), 0x05, "morton", 1, True, False),
    (hurray.CooLayout(2), 0x06, "coo", 2, False, False),
    (hurray.CsrLayout(2), 0x07, "csr", 3, False, False),
    (hurray.CscLayout(2), 0x08, "csc", 3, False, False),
    (hurray.CsfLayout(5, [2, 0, 1]), 0x09, "csf", 7, False, False),
    (hurray.BlockPagedLayout(16, 64, 0, 2), 0x0A, "block_paged", 3, False, False),
    (hurray.CompositeLayout("group", 2), 0x0B, "composite", 0, False, True),
    (hurray.HilbertLayout(3, 2), 0x40, "hilbert", 1, True, False),
    (hurray.PrivateExtensionLayout(0xF1, 7, b"ab"), 0xF1, "extension", None, False, False),
    (hurray.UnknownLayout(0x0C, b"ab"), 0x0C, "extension", None, False, False),
]


@pytest.mark.parametrize(
    ("layout", "tag", "name", "buffers", "is_dense", "is_virtual"),
    LAYOUTS,
    ids=[type(row[0]).__name__ for row in LAYOUTS],
)
def test_what_every_layout_says(
    layout: hurray.Layout,
    tag: int,
    name: str,
    buffers: int | None,
    is_dense: bool,
    is_virtual: bool,
) -> None:
    assert isinstance(layout, hurray.Layout)
    assert type(layout).__module__ == "hurray"
    assert (layout.tag, layout.name, layout.buffer_count) == (tag, name, buffers)
    assert (layout.is_dense, layout.is_virtual) == (is_dense, is_virtual)
    assert layout == layout
    if name != "extension":
        again = eval(f"hurray.{layout!r}")
        assert again == layout
        assert hash(again) == hash(layout)


def test_layouts_differ() -> None:
    layouts = [row[0] for row in LAYOUTS]
    assert len(set(layouts)) == len(layouts)
    assert hurray.CsrLayout(3) != hurray.CscLayout(3)
    assert hurray.CsrLayout(3) != hurray.CsrLayout(4)
    assert hurray.RowMajorLayout() != 3


def test_the_base_is_not_constructible_and_all_are_frozen() -> None:
    with pytest.raises(TypeError, match="cannot create"):
        hurray.Layout()
    with pytest.raises(AttributeError):
        hurray.CsrLayout(3).nnz = 4


def test_strided() -> None:
    assert hurray.StridedLayout((4, -1)).strides == (4, -1)
    with pytest.raises(OverflowError):
        hurray.StridedLayout([2**63])
    for strides in ([1.5], [None], 4, "ab"):
        with pytest.raises(TypeError):
            hurray.StridedLayout(strides)


def test_tiled() -> None:
    inner = hurray.TiledLayout([2, 2], inner_layout="col_major")
    layout = hurray.TiledLayout([4, 4], "strided", "tiled", outer_strides=[2, 1], inner_tiled=inner)
    assert layout.tile_shape == (4, 4)
    assert (layout.outer_layout, layout.inner_layout) == ("strided", "tiled")
    assert (layout.outer_strides, layout.inner_strides) == ((2, 1), None)
    assert layout.inner_tiled == inner
    assert eval(f"hurray.{layout!r}".replace("=Tiled", "=hurray.Tiled")) == layout
    strided = hurray.TiledLayout([4, 4], inner_layout="strided", inner_strides=[1, 4])
    assert strided.inner_strides == (1, 4)
    assert strided.inner_tiled is None
    assert strided != hurray.TiledLayout([4, 4])


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"outer_layout": "strided"}, "outer_strides"),
        ({"inner_layout": "strided"}, "inner_strides"),
        ({"inner_layout": "tiled"}, "inner_tiled"),
        ({"outer_strides": [1, 2]}, "outer_strides.*row_major"),
        ({"inner_strides": [1, 2]}, "inner_strides.*row_major"),
        ({"inner_tiled": hurray.TiledLayout([2, 2])}, "inner_tiled.*row_major"),
        ({"inner_layout": "strided", "inner_strides": [1]}, "inner_strides has 1.* 2"),
        ({"inner_layout": "tiled", "inner_tiled": hurray.TiledLayout([2])}, "tile_shape has 1.* 2"),
    ],
)
def test_tiled_parameters_go_together(arguments: dict[str, object], names: str) -> None:
    with pytest.raises(hurray.InvalidDescriptorError, match=names):
        hurray.TiledLayout([4, 4], **arguments)


def test_tiled_refusals() -> None:
    with pytest.raises(hurray.InvalidDescriptorError):  # T2
        hurray.TiledLayout([])
    with pytest.raises(hurray.InvalidDescriptorError, match="dimension 1"):  # T1
        hurray.TiledLayout([4, 0])
    with pytest.raises(ValueError, match="'row_major', 'col_major' or 'strided', got 'tiled'"):
        hurray.TiledLayout([4, 4], "tiled")
    with pytest.raises(ValueError, match=r"'row_major', 'col_major', 'strided' or 'tiled'.*'z'"):
        hurray.TiledLayout([4, 4], inner_layout="z")


def test_t5_eight_levels() -> None:
    def nest(layout: hurray.TiledLayout, _: int) -> hurray.TiledLayout:
        return hurray.TiledLayout([2], inner_layout="tiled", inner_tiled=layout)

    eight = functools.reduce(nest, range(7), hurray.TiledLayout([2]))
    with pytest.raises(hurray.InvalidDescriptorError, match="8 levels"):
        nest(eight, 0)


def test_curves() -> None:
    assert hurray.MortonLayout([3, 2]).morton_bits == (3, 2)
    assert hurray.HilbertLayout(3, 2).hilbert_order == 3
    assert hurray.HilbertLayout(3, 2).hilbert_rank == 2
    for make in (
        lambda: hurray.MortonLayout([]),  # M1
        lambda: hurray.MortonLayout([3, 0]),  # M2
        lambda: hurray.HilbertLayout(0, 2),  # H1
        lambda: hurray.HilbertLayout(3, 1),  # H2
    ):
        with pytest.raises(hurray.InvalidDescriptorError):
            make()


def test_sparse() -> None:
    assert (hurray.CooLayout(7).nnz, hurray.CooLayout(7).is_sorted) == (7, False)
    assert hurray.CooLayout(nnz=7, is_sorted=True).is_sorted
    assert hurray.CsrLayout(nnz=4).nnz == hurray.CscLayout(nnz=4).nnz == 4
    csf = hurray.CsfLayout(nnz=5, mode_order=[2, 0, 1])
    assert (csf.nnz, csf.mode_order) == (5, (2, 0, 1))
    for mode_order in ([0, 0, 1], [0, 1, 3]):  # F2
        with pytest.raises(hurray.InvalidDescriptorError, match="permutation"):
            hurray.CsfLayout(5, mode_order)
    for nnz in (-1, 2**64):
        with pytest.raises(OverflowError):
            hurray.CooLayout(nnz)


def test_block_paged() -> None:
    layout = hurray.BlockPagedLayout(16, 64, 0, 2)
    assert (layout.page_size, layout.num_pages, layout.paged_axis, layout.num_seqs) == (
        16,
        64,
        0,
        2,
    )
    assert (layout.kv_role, layout.layer_index) == ("key", None)
    assert layout.block_table_index_type == "uint32"
    other = hurray.BlockPagedLayout(16, 64, 0, 2, "fused", 3, "uint64")
    assert (other.kv_role, other.layer_index) == ("fused", 3)
    assert other.block_table_index_type == "uint64"
    with pytest.raises(ValueError, match="'key', 'value' or 'fused', got 'keys'"):
        hurray.BlockPagedLayout(16, 64, 0, 2, "keys")
    with pytest.raises(ValueError, match="'uint32' or 'uint64', got 'int64'"):
        hurray.BlockPagedLayout(16, 64, 0, 2, "key", None, "int64")
    with pytest.raises(hurray.InvalidDescriptorError, match="4294967295"):
        hurray.BlockPagedLayout(16, 64, 0, 2, "key", 2**32 - 1)


@pytest.mark.parametrize("kind", [list, tuple, lambda v: np.array(v, "u4"), lambda v: iter(v)])
def test_p10_to_p13_index_contents(kind: type) -> None:
    layout = hurray.BlockPagedLayout(4, 3, 0, 2)

    def check(seq_ptr: list[int], block_table: list[int]) -> None:
        layout.validate_index_buffers(kind(seq_ptr), kind(block_table))

    check([0, 1, 3], [0, 1, 2])
    check([0, 0, 2], [1, 1])
    for seq_ptr, block_table, text in [
        ([0, 1], [0], "seq_ptr holds 2 entries.* 3"),
        ([1, 1, 3], [0, 1, 2], r"seq_ptr\[0\] is 1"),
        ([0, 2, 1], [0], "is 1, below the 2"),
        ([0, 1, 3], [0, 1], "ends at 3.* 2 entries"),
        ([0, 1, 3], [0, 1, 3], "page 3.* 3"),
    ]:
        with pytest.raises(hurray.InvalidDescriptorError, match=text):
            check(seq_ptr, block_table)


def test_p7_p8_schemes_of_a_paged_tensor() -> None:
    check = hurray.BlockPagedLayout(4, 3, 0, 2).validate_quantization_compatibility
    for scheme in (
        hurray.PerTensorAffine(1.0, 0),
        hurray.PerChannelAffine.symmetric(1, 3),
        hurray.PerBlockAffine.symmetric(0, 4, 3, hurray.float32),
        hurray.NF4(1, 64, 3),
        hurray.MXFP(0, 32, 3),
    ):
        check(scheme)
    for scheme in (
        hurray.PerChannelAffine.symmetric(0, 3),  # P7
        hurray.PerBlockAffine.symmetric(0, 8, 3, hurray.float32),  # P8
        hurray.PerBlockAffine.symmetric(1, 4, 3, hurray.float32),  # P8
    ):
        with pytest.raises(hurray.InvalidDescriptorError):
            check(scheme)
    with pytest.raises(TypeError, match=r"PerTensorAffine.*MXFP, got NoneType"):
        check(None)


def test_composite() -> None:
    layout = hurray.CompositeLayout("overlay", 3, "add")
    assert (layout.composition_rule, layout.combine_op, layout.member_count) == (
        "overlay",
        "add",
        3,
    )
    assert hurray.CompositeLayout("partition", 2).combine_op is None
    for arguments, text in [
        (("overlay", 3), "combine_op='replace' or combine_op='add'"),
        (("overlay", 3, "sub"), "'replace' or 'add', got 'sub'"),
        (("sum", 3), "'partition', 'overlay' or 'group', got 'sum'"),
        (("group", 3, "add"), "'add' with 'group'"),
        (("partition", 3, "add"), "'add' with 'partition'"),
    ]:
        with pytest.raises(ValueError, match=text):
            hurray.CompositeLayout(*arguments)
    with pytest.raises(hurray.InvalidDescriptorError, match="4294967295"):  # C5
        hurray.CompositeLayout("group", 2**32 - 1)


def test_private() -> None:
    layout = hurray.PrivateExtensionLayout(0xF0, 7, b"\x01\x02")
    assert (layout.extension_layout_id, layout.extension_data) == (7, b"\x01\x02")
    assert hurray.PrivateExtensionLayout(0xFE, 7).extension_data == b""
    assert layout == hurray.PrivateExtensionLayout(0xF0, 7, bytearray(b"\x01\x02"))
    for tag in (0x00, 0x01, 0x0C, 0xEF, 0xFF):
        with pytest.raises(hurray.InvalidDescriptorError, match=f"{tag:#04x}"):
            hurray.PrivateExtensionLayout(tag, 7)


def test_unknown() -> None:
    assert hurray.UnknownLayout(0x0C).raw_bytes == b""
    assert hurray.UnknownLayout(0xEF, b"\x01").raw_bytes == b"\x01"
    for tag in (0x01, 0x40, 0xF0):
        with pytest.raises(ValueError, match=f"{tag:#04x}"):
            hurray.UnknownLayout(tag)
    for tag in (0x00, 0xFF):
        with pytest.raises(hurray.InvalidDescriptorError, match=f"{tag:#04x}"):
            hurray.UnknownLayout(tag)


def test_layout_tag_kind() -> None:
    named = {row[1] for row in LAYOUTS[:12]}
    for tag in range(256):
        if tag in named:
            kind = "named"
        elif tag in (0x00, 0xFF):
            kind = "invalid"
        elif tag >= 0xF0:
            kind = "private"
        else:
            kind = "reserved"
        assert hurray.layout_tag_kind(tag) == kind
    with pytest.raises(OverflowError):
        hurray.layout_tag_kind(256)


@pytest.mark.parametrize(
    ("layout", "shape"),
    [
        (hurray.RowMajorLayout(), []),
        (hurray.RowMajorLayout(), (3, None)),
        (hurray.RowMajorLayout(), np.array([3, 4]).shape),
        (hurray.RowMajorLayout(), np.array([3, 4])),
        (hurray.ColMajorLayout(), [1] * 64),
        (hurray.StridedLayout([4, 1]), [3, 4]),
        (hurray.TiledLayout([2, 4]), [6, 7]),
        (hurray.MortonLayout([2, 3]), [4, 8]),
        (hurray.HilbertLayout(2, 2), [4, 4]),
        (hurray.CooLayout(400), [3, 4]),
        (hurray.CsrLayout(4), [0, 4]),
        (hurray.CscLayout(4), [3, 4]),
        (hurray.CsfLayout(5, [0, 1, 2]), [2, 3, 4]),
        (hurray.BlockPagedLayout(16, 64, 0, 2), [3, 4, 5]),
        (hurray.CompositeLayout("group", 2), [None]),
        (hurray.PrivateExtensionLayout(0xF1, 7), [3]),
        (hurray.UnknownLayout(0x0C), [3]),
    ],
)
def test_shapes_that_fit(layout: hurray.Layout, shape: object) -> None:
    assert layout.validate_against_shape(shape) is None


@pytest.mark.parametrize(
    ("rule", "layout", "shape"),
    [
        ("G6", hurray.RowMajorLayout(), [1] * 65),
        ("G8", hurray.ColMajorLayout(), []),
        ("S1", hurray.StridedLayout([]), []),
        ("W3", hurray.StridedLayout([1]), [3, 4]),
        ("W3", hurray.TiledLayout([4]), [3, 4]),
        (
            "T6",
            hurray.TiledLayout(
                [3, 3], inner_layout="tiled", inner_tiled=hurray.TiledLayout([2, 2])
            ),
            [3, 3],
        ),
        ("M3", hurray.MortonLayout([1, 2]), [3, 4]),
        ("M4", hurray.MortonLayout([64, 64]), [1, 1]),
        ("H3", hurray.HilbertLayout(2, 3), [4, 4]),
        ("H4", hurray.HilbertLayout(2, 2), [3, 4]),
        ("H5", hurray.HilbertLayout(33, 2), [2**33, 2**33]),
        ("O1", hurray.CooLayout(1), []),
        ("R1", hurray.CsrLayout(4), [3]),
        ("K1", hurray.CscLayout(4), [3, 4, 5]),
        ("F1", hurray.CsfLayout(5, [0, 1]), [3, 4]),
        ("P1", hurray.BlockPagedLayout(16, 64, 0, 2), [3, 4]),
        ("P2", hurray.BlockPagedLayout(0, 64, 0, 2), [3, 4, 5]),
        ("P3", hurray.BlockPagedLayout(16, 64, 1, 2), [3, 4, 5]),
        ("C10", hurray.CompositeLayout("partition", 2), [None]),
        ("C10", hurray.CompositeLayout("overlay", 2, "add"), [3, None]),
    ],
)
def test_shapes_that_do_not_fit(rule: str, layout: hurray.Layout, shape: list[int]) -> None:
    with pytest.raises(hurray.InvalidDescriptorError):
        layout.validate_against_shape(shape)


@pytest.mark.parametrize("dimension", [-1, 2**64 - 1, 2**64])
def test_dimensions_are_unsigned_and_the_marker_is_none(dimension: int) -> None:
    with pytest.raises(hurray.InvalidDescriptorError, match=f"None.*{dimension}"):
        hurray.RowMajorLayout().validate_against_shape([dimension])
