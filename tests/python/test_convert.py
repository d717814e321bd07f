"""`hurray convert` against the packages whose files it reads and writes."""

import json

import gguf
import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from command_line import run
from gguf import GGMLQuantizationType as Ggml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import hurray


@pytest.fixture
def convert(tmp_path):
    """Converts a file to one of that suffix, and gives its path; `convert.said` is what it told."""
    numbers = iter(range(1000))

    def convert(source, to, *options, status=0):
        output = tmp_path / f"{next(numbers)}.{to}"
        done = run("convert", source, output, *options)
        assert done.returncode == status, done.stderr
        convert.said = done.stderr if status else done.stdout
        return output

    return convert


def arrays(path):
    """The arrays of a safetensors file; types that NumPy lacks are those of ml_dtypes."""
    types = {
        "BF16": ml_dtypes.bfloat16,
        "F8_E4M3": ml_dtypes.float8_e4m3fn,
        "F8_E5M2": ml_dtypes.float8_e5m2,
        "F8_E8M0": ml_dtypes.float8_e8m0fnu,
    }
    found = {}
    content = path.read_bytes()
    for name, info in safetensors.deserialize(content):
        if info["dtype"] == "F4":
            # Two to a byte, the first in its low half.
            pairs = np.frombuffer(info["data"], np.uint8)
            codes = np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(info["shape"])
            found[name] = codes.view(ml_dtypes.float4_e2m1fn)
            continue
        dtype = types.get(info["dtype"])
        if dtype is None:
            dtype = safetensors.numpy._TYPES[info["dtype"]]
        found[name] = np.frombuffer(info["data"], dtype).reshape(info["shape"])
    return found


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


# safetensors


def test_every_type_of_safetensors_comes_back_byte_for_byte(tmp_path, convert, torch):
    from safetensors.torch import save_file

    names = """bool uint8 int8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32
        float64 complex64 float8_e4m3fn float8_e5m2 float8_e8m0fnu float4_e2m1fn_x2"""
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for name in names.split():
        dtype = getattr(torch, name)
        if dtype == torch.bool:
            tensors[name] = torch.arange(15).reshape(3, 5) % 3 == 0
        else:
            size = torch.empty(0, dtype=dtype).element_size()
            data = torch.randint(256, (4, 6 * size), generator=generator, dtype=torch.uint8)
            tensors[name] = data.view(dtype)
    tensors["empty"] = torch.zeros(0, 3)
    tensors["scalar"] = torch.tensor(1.5)
    source = tmp_path / "source.safetensors"
    save_file(tensors, source, metadata={"format": "pt", "ü": "{}"})
    converted = convert(source, "hrry")
    back = convert(converted, "safetensors")
    with safetensors.safe_open(back, "pt") as file:
        assert file.metadata() == {"format": "pt", "ü": "{}"}
        assert set(file.keys()) == set(tensors)
        for name, tensor in tensors.items():
            found = file.get_tensor(name)
            assert found.dtype == tensor.dtype and found.shape == tensor.shape
            raw = [one.reshape(-1).view(torch.uint8) for one in (found, tensor)]
            assert torch.equal(*raw), name
    # The header's metadata has no order; but for it the files are the same.
    start = int.from_bytes(source.read_bytes()[:8], "little") + 8
    assert back.read_bytes()[start:] == source.read_bytes()[start:]


def test_a_type_without_a_counterpart_is_refused_by_name(tmp_path, convert):
    header = json.dumps({"w": {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [0, 3]}}).encode()
    source = tmp_path / "source.safetensors"
    source.write_bytes(len(header).to_bytes(8, "little") + header + bytes(3))
    convert(source, "hrry", status=2)
    assert '"w"' in convert.said and "F6_E2M3" in convert.said


def test_names_choose_tensors(tmp_path, convert):
    source = tmp_path / "source.safetensors"
    safetensors.numpy.save_file({name: np.ones(2) for name in "abc"}, source)
    found = convert(source, "hrry", "--names", "a", "c")
    assert set(arrays(convert(found, "safetensors"))) == {"a", "c"}
    convert(source, "hrry", "--names", "a", "d", status=2)
    assert '"d"' in convert.said


def test_the_exit_status_tells_a_malformed_input_from_a_refusal(tmp_path, convert):
    source = tmp_path / "source.safetensors"
    source.write_bytes((1 << 63).to_bytes(8, "little"))
    convert(source, "hrry", status=1)
    convert(tmp_path / "missing.safetensors", "hrry", status=2)
    convert(source, "npz", status=2)


# NumPy

NUMBERS = "?bBhHiIqQefdFD"
DTYPES = st.sampled_from(NUMBERS).flatmap(lambda code: st.sampled_from([f"<{code}", f">{code}"]))


@given(
    arrays_in=st.lists(
        DTYPES.flatmap(
            lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0, max_side=4))
        ),
        max_size=4,
    ),
    column_major=st.booleans(),
    save=st.sampled_from([np.savez, np.savez_compressed]),
)
@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_npz_arrays_are_taken_over(arrays_in, column_major, save, tmp_path, convert):
    if column_major:
        arrays_in = [np.asfortranarray(array) for array in arrays_in]
    source = tmp_path / "source.npz"
    save(source, *arrays_in)
    converted = convert(source, "hrry")
    assert list(hurray.load(converted)) == [f"arr_{n}" for n in range(len(arrays_in))]
    # complex128 has no name in safetensors.
    found = arrays(convert(converted, "safetensors", "--split"))
    for number, array in enumerate(arrays_in):
        array = array.astype(array.dtype.newbyteorder("<"))
        if array.dtype == np.complex128:
            order = "F" if column_major else "C"
            expected = array.ravel(order).tobytes(order)
            assert found[f"arr_{number}.data"].tobytes() == expected
        else:
            assert same(found[f"arr_{number}"], np.ascontiguousarray(array).reshape(array.shape))


def test_an_npy_array_has_the_name_of_its_file(tmp_path, convert):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "weights.npy", array)
    found = arrays(convert(tmp_path / "weights.npy", "safetensors"))
    assert same(found["weights"], array)


def test_changed_bytes_are_told(tmp_path, convert):
    source = tmp_path / "source.npz"
    np.savez(source, big=np.arange(3, dtype=">i4"), flags=np.ones(3, bool), plain=np.ones(3))
    convert(source, "hrry")
    lines = convert.said.splitlines()
    assert [line.split(":")[0] for line in lines[:-1]] == ['"big"', '"flags"']
    convert(source, "hrry", "--quiet")
    assert convert.said == ""


@pytest.mark.parametrize(
    "array",
    [
        np.array(["text"]),
        np.array([None]),
        np.array([("a", 1)], dtype=[("x", "U1"), ("y", "i4")]),
        np.array(["2026-01-01"], dtype="M8[D]"),
        np.zeros(2, ml_dtypes.bfloat16),
    ],
    ids=lambda array: array.dtype.kind,
)
def test_numpy_types_without_a_counterpart_are_refused_by_name(array, tmp_path, convert):
    source = tmp_path / "source.npz"
    np.savez(source, fine=np.ones(2), odd=array)
    convert(source, "hrry", status=2)
    assert '"odd"' in convert.said and '"fine"' not in convert.said


# GGUF

# Codes, elements of a scale, and the scale's type.
SCHEMES = {
    Ggml.Q4_0: (np.int8, 32, np.float16),
    Ggml.Q5_0: (np.int8, 32, np.float16),
    Ggml.Q8_0: (np.int8, 32, np.float16),
    Ggml.Q3_K: (np.int8, 16, np.float32),
    Ggml.Q6_K: (np.int8, 16, np.float32),
    Ggml.IQ4_NL: (np.int8, 32, np.float16),
    Ggml.IQ4_XS: (np.int8, 32, np.float32),
    Ggml.MXFP4: (ml_dtypes.float4_e2m1fn, 32, ml_dtypes.float8_e8m0fnu),
}
# Where `d: float16` is in a block.
SCALE_AT = {Ggml.Q3_K: 108, Ggml.Q6_K: 208}


def random_blocks(kind, rows, blocks, seed=0):
    """Any codes and sub-scales, under scales that are numbers; one block of zeros."""
    _, size = gguf.GGML_QUANT_SIZES[kind]
    generator = np.random.default_rng(seed)
    data = generator.integers(256, size=(rows, blocks, size), dtype=np.uint8)
    if kind is Ggml.MXFP4:
        data[..., 0] = generator.integers(1, 250, size=(rows, blocks))
    else:
        scales = generator.normal(size=(rows, blocks, 1)).astype(np.float16)
        at = SCALE_AT.get(kind, 0)
        data[..., at : at + 2] = scales.view(np.uint8)
    data[0, 0] = 0
    return data.reshape(rows, blocks * size)


def gguf_file(path, tensors):
    writer = gguf.GGUFWriter(path, "test")
    for name, (data, kind) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def values(found, name, block=None):
    """Codes times scales, in float32, as the format's schemes have it."""
    codes = found[name].astype(np.float32)
    scales = found[f"{name}_scale"].astype(np.float32)
    if f"{name}_zero_point" in found:
        zero_points = found[f"{name}_zero_point"]
        integers = found[name].astype(np.int64)
        if block is not None:
            zero_points = zero_points.repeat(block, axis=-1)
        codes = (integers - zero_points).astype(np.float32)
    return codes * (scales if block is None else scales.repeat(block, axis=-1))


@pytest.mark.parametrize("kind", SCHEMES, ids=lambda kind: kind.name)
def test_values_of_gguf_blocks_are_those_that_gguf_computes(kind, tmp_path, convert):
    code_type, block, scale_type = SCHEMES[kind]
    elements, _ = gguf.GGML_QUANT_SIZES[kind]
    rows, blocks = 6, 5
    data = random_blocks(kind, rows, blocks)
    source = gguf_file(tmp_path / "source.gguf", {"w": (data, kind)})
    converted = convert(source, "hrry")
    tensor = hurray.load(converted)["w"]
    assert tensor.shape == (rows, blocks * elements)
    scheme = tensor.quantization
    assert (scheme.axis, scheme.block_size) == (1, block)
    found = arrays(convert(converted, "safetensors", "--split"))
    assert found["w"].dtype == code_type
    assert found["w"].shape == (rows, blocks * elements)
    assert found["w_scale"].dtype == scale_type
    expected = gguf.dequantize(data, kind)
    assert expected.dtype == np.float32
    np.testing.assert_array_equal(values(found, "w", block), expected)
    assert np.abs(expected).max() > 0
    # Straight to safetensors is the same.
    direct = arrays(convert(source, "safetensors", "--split"))
    assert all(same(direct[name], found[name]) for name in found)


@pytest.mark.parametrize("kind", [Ggml.Q4_0, Ggml.Q5_0, Ggml.Q8_0, Ggml.MXFP4])
def test_what_gguf_quantizes_is_taken_over(kind, tmp_path, convert):
    weights = np.random.default_rng(1).normal(size=(2, 3, 64)).astype(np.float32)
    weights[0, 0, :32] = 0
    data = gguf.quantize(weights, kind)
    source = gguf_file(tmp_path / "source.gguf", {"w": (data, kind)})
    found = arrays(convert(convert(source, "hrry"), "safetensors", "--split"))
    np.testing.assert_array_equal(values(found, "w", 32), gguf.dequantize(data, kind))


def test_plain_gguf_types_are_taken_over(tmp_path, convert):
    generator = np.random.default_rng(2)
    types = {
        np.float32: Ggml.F32,
        np.float16: Ggml.F16,
        np.float64: Ggml.F64,
        np.int8: Ggml.I8,
        np.int16: Ggml.I16,
        np.int32: Ggml.I32,
        np.int64: Ggml.I64,
    }
    plain = {
        kind.name: (generator.normal(size=(2, 3, 5)).astype(dtype), kind)
        for dtype, kind in types.items()
    }
    brain = generator.normal(size=(3, 4)).astype(ml_dtypes.bfloat16)
    tensors = {**plain, "BF16": (brain.view(np.uint8), Ggml.BF16)}
    source = gguf_file(tmp_path / "source.gguf", tensors)
    found = arrays(convert(convert(source, "hrry"), "safetensors"))
    for name, (data, _) in plain.items():
        assert same(found[name], data), name
    assert same(found["BF16"], brain)


def test_gguf_metadata_is_taken_over(tmp_path, convert):
    path = tmp_path / "source.gguf"
    writer = gguf.GGUFWriter(path, "test")
    writer.add_uint32("n", 7)
    writer.add_float32("f", 0.5)
    writer.add_bool("b", True)
    writer.add_array("tokens", ["a", "ü"])
    writer.add_array("none", [])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    output = convert(convert(path, "hrry"), "safetensors")
    with safetensors.safe_open(output, "np") as file:
        found = file.metadata()
    assert found["general.architecture"] == "test"
    assert (found["n"], found["f"], found["b"]) == ("7", "0.5", "true")
    assert json.loads(found["tokens"]) == ["a", "ü"]


REFUSED = [kind for kind in Ggml if kind not in SCHEMES and gguf.GGML_QUANT_SIZES[kind][0] > 1]


@pytest.mark.parametrize("kind", REFUSED, ids=lambda kind: kind.name)
def test_gguf_blocks_that_map_to_no_scheme_are_refused_by_name(kind, tmp_path, convert):
    _, size = gguf.GGML_QUANT_SIZES[kind]
    tensors = {
        "blk.0": (np.zeros((2, size), np.uint8), kind),
        "norm": (np.ones(2, np.float32), Ggml.F32),
    }
    source = gguf_file(tmp_path / "source.gguf", tensors)
    convert(source, "hrry", status=2)
    assert '"blk.0"' in convert.said and kind.name in convert.said
    convert(source, "hrry", "--names", "norm")


# Joined


def save(path, **tensors):
    safetensors.numpy.save_file(tensors, path)
    return path


SCALE = np.linspace(0.1, 0.7, 12).astype(np.float32)


@pytest.mark.parametrize(
    ("scale", "zero_point", "scheme"),
    [
        (SCALE[:1], None, "per_tensor_affine"),
        (SCALE[0], np.int8(3), "per_tensor_affine"),
        (SCALE[:4], None, "per_channel_affine"),
        (SCALE[:4].reshape(4, 1).astype(np.float16), None, "per_channel_affine"),
        (SCALE[:4].reshape(4, 1), np.arange(4, dtype=np.int64).reshape(4, 1), "per_channel_affine"),
        (SCALE[:8].reshape(1, 8), None, "per_channel_affine"),
        (SCALE[:8].reshape(4, 2), None, "per_block_affine"),
        (SCALE[:8].reshape(4, 2).astype(np.float16), np.ones((4, 2), np.int8), "per_block_affine"),
    ],
)
@pytest.mark.parametrize(
    ("codes_name", "scale_name", "zero_name"),
    [
        ("l.weight", "l.weight_scale", "l.weight_zero_point"),
        ("l.weight", "l.scales", "l.zero_points"),
        ("w", "w.scale", "w.zero_point"),
    ],
)
def test_codes_scales_and_zero_points_are_joined_when_asked(
    scale, zero_point, scheme, codes_name, scale_name, zero_name, tmp_path, convert
):
    codes = np.arange(-16, 16, dtype=np.int8).reshape(4, 8)
    tensors = {codes_name: codes, scale_name: np.asarray(scale)}
    if zero_point is not None:
        tensors[zero_name] = np.asarray(zero_point)
    source = save(tmp_path / "source.safetensors", **tensors)
    convert(source, "hrry")
    assert "joined" not in convert.said
    converted = convert(source, "hrry", "--join-quantized")
    assert f'"{codes_name}": joined, {scheme}\n1 tensor,' in convert.said
    found = arrays(convert(converted, "safetensors", "--split"))
    block = 4 if scheme == "per_block_affine" else None
    wide = np.asarray(scale, np.float32)
    zeros = np.asarray(0 if zero_point is None else zero_point, np.int64)
    if wide.shape == (4,):
        wide = wide.reshape(4, 1)
    if block:
        wide = wide.repeat(block, axis=1)
        zeros = zeros.repeat(block, axis=1) if zeros.ndim else zeros
    expected = (codes - zeros).astype(np.float32) * wide
    np.testing.assert_array_equal(values(found, codes_name, block), expected)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_packed_words_of_compressed_tensors_are_joined(bits, tmp_path, convert):
    """Codes plus half their range, the first in the lowest bits of an int32."""
    generator = np.random.default_rng(3)
    half = 1 << (bits - 1)
    codes = generator.integers(-half, half, size=(3, 64), dtype=np.int8)
    stored = (codes.astype(np.int64) + half).reshape(3, -1, 32 // bits)
    words = (stored << (np.arange(32 // bits) * bits)).sum(axis=-1)
    scale = generator.uniform(0.5, 1, size=(3, 2)).astype(np.float16)
    source = save(
        tmp_path / "source.safetensors",
        **{
            "l.weight_packed": words.astype(np.uint32).view(np.int32),
            "l.weight_scale": scale,
            "l.weight_shape": np.array(codes.shape),
        },
    )
    converted = convert(source, "hrry", "--join-quantized")
    assert '"l.weight": joined, per_block_affine\n1 tensor,' in convert.said
    found = arrays(convert(converted, "safetensors", "--split"))
    expected = codes.astype(np.float32) * scale.astype(np.float32).repeat(32, axis=1)
    np.testing.assert_array_equal(values(found, "l.weight", 32), expected)


def test_blocks_and_scales_of_microscaling_are_joined(tmp_path, convert):
    """16 bytes of code pairs for each scale, the first code in the low half."""
    generator = np.random.default_rng(4)
    blocks = generator.integers(256, size=(2, 3, 4, 16), dtype=np.uint8)
    scales = generator.integers(100, 150, size=(2, 3, 4), dtype=np.uint8)
    source = save(tmp_path / "source.safetensors", **{"up_blocks": blocks, "up_scales": scales})
    converted = convert(source, "hrry", "--join-quantized")
    found = arrays(convert(converted, "safetensors", "--split"))
    levels = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    levels = np.concatenate([levels, -levels])
    codes = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(2, 3, 128)
    powers = np.exp2(scales.astype(np.float32) - 127).repeat(32, axis=-1)
    np.testing.assert_array_equal(values(found, "up", 32), levels[codes] * powers)


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"w": np.ones((4, 8), np.int8), "w_scale": np.ones(3, np.float32)}, "shape"),
        ({"w": np.ones((4, 8), np.int8), "w_scale": np.zeros(1, np.float32)}, "scale"),
        ({"w": np.ones((4, 6), np.int8), "w_scale": np.ones((4, 2), np.float32)}, "shape"),
        ({"w": np.ones(4, np.float32), "w_scale": np.ones(1, np.float32)}, "no scheme"),
        (
            {
                "w": np.ones(4, np.uint8),
                "w_scale": np.ones(1, np.float32),
                "w_zero_point": np.full(1, -1, np.int32),
            },
            "range",
        ),
        ({"l.qweight": np.ones((4, 8), np.int32), "l.scales": np.ones(8, np.float32)}, "GPTQ"),
        ({"w": np.ones(4, np.uint8), "w_scale_inv": np.ones(1, np.float32)}, "square"),
    ],
)
def test_parts_that_do_not_fit_are_left_apart_and_it_is_said_why(tensors, said, tmp_path, convert):
    source = save(tmp_path / "source.safetensors", **tensors)
    converted = convert(source, "hrry", "--join-quantized")
    assert "left apart" in convert.said and said in convert.said
    found = arrays(convert(converted, "safetensors"))
    assert all(same(found[name], tensor) for name, tensor in tensors.items())
