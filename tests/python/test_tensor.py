"""Tensor: what it is made of, what it says of itself, and how it shows itself."""

import array as stdlib
import mmap
import weakref

import ml_dtypes
import numpy as np
import pytest
from placed import aligned, at

import hurray


def address(tensor) -> int:
    return np.asarray(tensor).__array_interface__["data"][0]


def test_properties():
    tensor = hurray.Tensor(bytes(24), hurray.float32, [2, 3])
    assert tensor.shape == (2, 3)
    assert tensor.ndim == 2
    assert tensor.size == 6
    assert tensor.dtype is hurray.float32
    assert tensor.device is hurray.device.cpu
    assert tensor.layout == hurray.RowMajorLayout()
    assert tensor.quantization is None
    assert tensor.statistics is None
    assert tensor.shard is None
    assert tensor.extension_type is None
    assert tensor.buffer_count == 1
    assert tensor.descriptor.shape == (2, 3)
    assert tensor.descriptor.byte_offset == 0


def test_names_and_defaults_are_the_published_ones():
    import inspect

    parameters = inspect.signature(hurray.Tensor).parameters
    published = {
        "buffer": inspect.Parameter.empty,
        "dtype": inspect.Parameter.empty,
        "shape": inspect.Parameter.empty,
        "device": None,
        "aux_buffers": None,
        "layout": None,
        "quantization": None,
        "statistics": None,
        "shard": None,
        "extension_type": None,
    }
    assert {name: p.default for name, p in list(parameters.items())[:10]} == published
    keyword_only = [name for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY]
    assert keyword_only == list(parameters)[4:]


def test_every_section_is_kept():
    tensor = hurray.Tensor(
        aligned(16),
        hurray.int8,
        [4, 4],
        hurray.device.cpu,
        aux_buffers=[aligned(16), aligned(16)],
        layout=hurray.ColMajorLayout(),
        quantization=hurray.PerChannelAffine.asymmetric(0, 1, 2),
        statistics=hurray.Statistics(nnz=3),
        shard=hurray.Shard([8, 4], [4, 0]),
    )
    assert tensor.layout == hurray.ColMajorLayout()
    assert tensor.quantization == hurray.PerChannelAffine.asymmetric(0, 1, 2)
    assert tensor.statistics == hurray.Statistics(nnz=3)
    assert tensor.shard == hurray.Shard([8, 4], [4, 0])
    assert tensor.buffer_count == 3


def test_a_private_type():
    extension = hurray.ExtensionType(bit_width=24)
    dtype = hurray.Dtype.from_tag(0xF2)
    tensor = hurray.Tensor(bytes(12), dtype, [4], extension_type=extension)
    assert tensor.dtype is dtype
    assert tensor.extension_type == extension
    assert hurray.from_hurray(tensor).extension_type == extension
    with pytest.raises(hurray.UnsupportedError, match=r"buffer\(0\)"):
        np.asarray(tensor)


def test_a_dimension_that_is_not_known_gives_no_tensor():
    """G7: no size and no address follows from it, so nothing says which bytes may be touched."""
    for layout in (None, hurray.PrivateExtensionLayout(0xF0, 1)):
        with pytest.raises(hurray.InvalidDescriptorError, match="dynamic"):
            hurray.Tensor(bytes(64), hurray.float32, [None, 4], layout=layout)


MEMORY = {
    "bytes": (lambda: bytes(range(64)), True),
    "bytearray": (lambda: bytearray(range(64)), False),
    "memoryview": (lambda: memoryview(bytearray(range(64))), False),
    "read-only memoryview": (lambda: memoryview(bytes(range(64))), True),
    "array.array": (lambda: stdlib.array("i", bytes(range(64))), False),
    "numpy": (lambda: np.arange(64, dtype=np.uint8), False),
    "numpy of floats": (lambda: np.arange(64, dtype=np.uint8).view(np.float64), False),
    "numpy in two dimensions": (lambda: np.arange(64, dtype=np.uint8).reshape(8, 8), False),
    "tensor": (lambda: hurray.Tensor(bytes(range(64)), hurray.float32, [16]), False),
    "ml_dtypes": (lambda: np.arange(64, dtype=np.uint8).view(ml_dtypes.bfloat16), False),
}


@pytest.mark.parametrize("kind", MEMORY)
def test_whatever_exposes_memory(kind):
    make, _ = MEMORY[kind]
    tensor = hurray.Tensor(make(), hurray.uint8, [64])
    assert np.asarray(tensor).tolist() == list(range(64))
    (handle,) = tensor.buffer_handles
    assert handle.alignment >= 64


def test_an_object_with_hurray():
    class Offer:
        def __hurray__(self, stream=None):
            return hurray.from_numpy(memory).__hurray__(stream)

    memory = aligned(64)
    tensor = hurray.Tensor(Offer(), hurray.float32, [16])
    assert address(tensor) == memory.ctypes.data


@pytest.mark.parametrize("protocol", ["__array_interface__", "__array__", "__array_struct__"])
def test_an_object_with_an_array_protocol(protocol):
    memory = aligned(64)

    class Thing:
        pass

    value = getattr(memory, protocol)
    if protocol == "__array__":
        Thing.__array__ = lambda self, dtype=None, copy=None: memory
    else:
        setattr(Thing, protocol, value)
    tensor = hurray.Tensor(Thing(), hurray.float32, [16])
    assert address(tensor) == memory.ctypes.data


def test_aligned_memory_is_shared():
    memory = aligned(64)
    with hurray.copies() as log:
        for given in (memory, memoryview(memory), memory.view(np.float64), memory.reshape(8, 8)):
            tensor = hurray.Tensor(given, hurray.float32, [16])
            assert address(tensor) == memory.ctypes.data
    assert log == []


@pytest.mark.parametrize("offset", [1, 16, 32])
def test_other_memory_is_copied(offset):
    memory = at(offset, (64,), np.uint8)
    with hurray.copies() as log:
        tensor = hurray.Tensor(memory, hurray.float32, [16], aux_buffers=[])
    assert [(c.bytes, c.reason, c.call) for c in log] == [(64, "alignment", "Tensor")]
    assert address(tensor) % 64 == 0


def test_each_aux_buffer_is_shared_or_copied_on_its_own():
    scales, zeros = aligned(16), at(4, (16,), np.uint8)
    codes = aligned(16)
    with hurray.copies() as log:
        tensor = hurray.Tensor(
            codes,
            hurray.int8,
            [4, 4],
            aux_buffers=(b for b in (scales, zeros)),
            quantization=hurray.PerChannelAffine.asymmetric(0, 1, 2),
        )
    assert [copy.bytes for copy in log] == [16]
    assert address(tensor.buffer(0)) == codes.ctypes.data
    assert address(tensor.buffer(1)) == scales.ctypes.data


@pytest.mark.parametrize("wrap", [lambda array: array, hurray.from_numpy])
def test_an_aux_buffer_begins_with_its_own_bytes_decision_19(wrap):
    """Only the first buffer may begin before its elements: the format has one byte_offset."""
    scales = aligned(64).view(np.float32)
    scales[:] = np.arange(16)
    with hurray.copies() as log:
        tensor = hurray.Tensor(
            aligned(16),
            hurray.int8,
            [4, 4],
            aux_buffers=[wrap(scales[1:5])],
            quantization=hurray.PerChannelAffine.symmetric(0, 1),
        )
    assert [(copy.bytes, copy.reason) for copy in log] == [(16, "alignment")]
    assert np.asarray(tensor.buffer(1)).view(np.float32).tolist() == [1, 2, 3, 4]


def test_a_buffer_of_a_map(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(bytes(range(256)) * 16)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        tensor = hurray.Tensor(mapped, hurray.uint8, [4096])
        assert np.asarray(tensor)[255] == 255
        assert not np.asarray(tensor).flags.writeable
        with pytest.raises(BufferError):
            mapped.close()  # the tensor holds the map
        del tensor


def test_a_bytearray_cannot_be_resized_while_it_is_lent():
    whole = bytearray(8192)
    start = -np.frombuffer(whole, np.uint8).ctypes.data % 64
    tensor = hurray.Tensor(memoryview(whole)[start : start + 64], hurray.uint8, [64])
    with pytest.raises(BufferError):
        whole.extend(bytes(100000))
    del tensor
    whole.extend(bytes(100000))


@pytest.mark.parametrize(
    "thing", [None, 3, 1.5, "text", [1, 2], {}, object(), lambda: None, hurray.float32]
)
def test_what_exposes_no_memory(thing):
    with pytest.raises(hurray.BufferError, match=r"buffer 0.*exposes no memory"):
        hurray.Tensor(thing, hurray.float32, [4])


def test_which_buffer_exposes_no_memory():
    with pytest.raises(hurray.BufferError, match="buffer 2"):
        hurray.Tensor(bytes(16), hurray.int8, [4, 4], aux_buffers=[bytes(16), 3], layout=None)


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[::2],
        lambda a: a.reshape(4, 16)[:, :3],
        lambda a: memoryview(a)[::2],
        lambda a: a[::-1],
    ],
)
def test_memory_with_gaps(view):
    with pytest.raises(hurray.BufferError, match="contiguous"):
        hurray.Tensor(view(aligned(64)), hurray.uint8, [4])


def test_tensors_that_are_not_plain_memory():
    quantized = hurray.Tensor(
        bytes(4), hurray.int8, [4], quantization=hurray.PerTensorAffine(0.5, 0)
    )
    with pytest.raises(hurray.UnsupportedError, match="codes"):
        hurray.Tensor(quantized, hurray.int8, [4])
    assert hurray.Tensor(quantized.codes, hurray.int8, [4]).size == 4
    tiled = hurray.Tensor(bytes(64), hurray.float32, [4, 4], layout=hurray.TiledLayout([2, 2]))
    with pytest.raises(hurray.UnsupportedError, match=r"buffer\(i\)"):
        hurray.Tensor(tiled, hurray.float32, [4, 4])
    group = hurray.Composite("group", shape=[4], dtype=hurray.int8, members=[quantized])
    with pytest.raises(hurray.UnsupportedError, match="members"):
        hurray.Tensor(group, hurray.int8, [4])


def test_numbers_in_a_size_that_is_too_small():
    with pytest.raises(hurray.BufferError, match=r"8 bytes.*16"):
        hurray.Tensor(bytes(8), hurray.float32, [4])
    with pytest.raises(hurray.BufferError, match=r"buffer 1.*8 bytes.*16"):
        hurray.Tensor(
            bytes(16),
            hurray.int8,
            [4, 4],
            aux_buffers=[bytes(8)],
            quantization=hurray.PerChannelAffine.symmetric(0, 1),
        )


@pytest.mark.parametrize("shape", [[2**62, 2**62], [2**63 - 1], [2**32] * 3])
def test_sizes_that_overflow(shape):
    # safetensors' ValidationOverflow: an unchecked product makes a small allocation of it
    with pytest.raises((hurray.BufferError, hurray.InvalidDescriptorError)):
        hurray.Tensor(bytes(16), hurray.float32, shape)


@pytest.mark.parametrize("shape", [[-4], [2, -1], [2**64]])
def test_dimensions_that_cannot_be(shape):
    with pytest.raises(hurray.InvalidDescriptorError):
        hurray.Tensor(bytes(16), hurray.float32, shape)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((bytes(16), "float32", [4]), TypeError, r"hurray\.float32.* not 'float32'"),
        ((bytes(16), np.float32, [4]), TypeError, r"hurray\.float32.* not <class 'numpy"),
        ((bytes(16), hurray.float32, 4), TypeError, r"such as \(2, 3\), not 4"),
        ((bytes(16), hurray.float32, ["4"]), TypeError, "str"),
        ((bytes(16), hurray.float32, [4], 3), TypeError, "int"),
        ((bytes(16), hurray.float32, [4], "nowhere"), hurray.InvalidDescriptorError, "nowhere"),
    ],
)
def test_arguments_of_another_type(arguments, error, words):
    with pytest.raises(error, match=words):
        hurray.Tensor(*arguments)


def test_a_composite_layout_is_no_tensors():
    with pytest.raises(hurray.UnsupportedError, match=r"hurray\.Composite"):
        hurray.Tensor(bytes(16), hurray.float32, [4], layout=hurray.CompositeLayout("group", 0))


def test_a_layout_that_does_not_fit():
    with pytest.raises(hurray.InvalidDescriptorError):
        hurray.Tensor(bytes(16), hurray.float32, [4], layout=hurray.StridedLayout([1, 2]))
    with pytest.raises(hurray.InvalidDescriptorError):
        hurray.Tensor(bytes(16), hurray.float32, [4], aux_buffers=[bytes(16)])


@pytest.mark.parametrize(
    "device", ["cuda", "cuda:1", "rocm", "cpu:1", "cpu/host_pinned", hurray.Device("metal")]
)
def test_the_device_is_checked_against_the_address(device):
    for memory in (bytes(16), aligned(16), hurray.Tensor(bytes(16), hurray.uint8, [16])):
        with pytest.raises(hurray.BufferError, match=r"buffer 0 is at 0x.* on cpu"):
            hurray.Tensor(memory, hurray.float32, [4], device)


@pytest.mark.parametrize("device", [None, "cpu", hurray.device.cpu, hurray.Device("cpu")])
def test_host_memory_is_the_cpus(device):
    assert hurray.Tensor(bytes(16), hurray.float32, [4], device).device is hurray.device.cpu


def test_byte_offset():
    memory = aligned(64)
    memory.view(np.float32)[:] = np.arange(16)
    tensor = hurray.Tensor(memory, hurray.float32, [4], byte_offset=16)
    assert np.asarray(tensor).tolist() == [4, 5, 6, 7]
    assert tensor.descriptor.byte_offset == 16
    with pytest.raises(hurray.BufferError):
        hurray.Tensor(memory, hurray.float32, [4], byte_offset=52)
    with pytest.raises((OverflowError, ValueError)):
        hurray.Tensor(memory, hurray.float32, [4], byte_offset=-4)


def test_negative_strides_reach_back_by_default():
    memory = aligned(64)
    memory.view(np.float32)[:] = np.arange(16)
    tensor = hurray.Tensor(memory, hurray.float32, [4], layout=hurray.StridedLayout([-2]))
    assert tensor.descriptor.byte_offset == 24
    assert np.asarray(tensor).tolist() == [6, 4, 2, 0]


def test_a_slice_of_an_array_begins_before_it_decision_19():
    memory = aligned(256)
    with hurray.copies() as log:
        tensor = hurray.Tensor(memory[100:164], hurray.float32, [16])
    assert log == []
    assert tensor.descriptor.byte_offset == 36
    assert address(tensor) == memory.ctypes.data + 100


def test_equality_is_identity():
    """As the published release has it: two tensors may hold the same bytes and not be the same."""
    tensor = hurray.Tensor(bytes(16), hurray.float32, [4])
    other = hurray.Tensor(bytes(16), hurray.float32, [4])
    assert tensor == tensor
    assert tensor != other
    assert {tensor: 1}[tensor] == 1


def test_weak_references():
    tensor = hurray.Tensor(bytes(16), hurray.float32, [4])
    reference = weakref.ref(tensor)
    assert reference() is tensor
    del tensor
    assert reference() is None


def test_it_cannot_be_changed():
    tensor = hurray.Tensor(bytes(16), hurray.float32, [4])
    for name in ("shape", "dtype", "anything"):
        with pytest.raises(AttributeError):
            setattr(tensor, name, None)


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (
            hurray.Tensor(bytes(16), hurray.float32, [4]),
            "hurray.Tensor([0. 0. 0. 0.], dtype=float32)",
        ),
        (hurray.from_numpy(np.array(3.0)), "hurray.Tensor(3., dtype=float64)"),
        (hurray.from_numpy(np.zeros((0, 3))), "hurray.Tensor([], dtype=float64)"),
        (
            hurray.from_numpy(np.array([True, False])),
            "hurray.Tensor([ True False], dtype=bool)",
        ),
        (
            hurray.from_numpy(np.arange(4, dtype=np.int16).reshape(2, 2)),
            "hurray.Tensor([[0 1]\n [2 3]], dtype=int16)",
        ),
        (
            hurray.Tensor(bytes(5000), hurray.uint8, [50, 100]),
            "hurray.Tensor(shape=(50, 100), dtype=uint8)",
        ),
        (
            hurray.Tensor(bytes(16), hurray.dtype.float128, [1]),
            "hurray.Tensor(shape=(1,), dtype=float128)",
        ),
        (
            hurray.Tensor(
                bytes(8),
                hurray.float32,
                [4, 4],
                aux_buffers=[bytes(16), bytes(40)],
                layout=hurray.CsrLayout(nnz=2),
            ),
            "hurray.Tensor(layout='csr', shape=(4, 4), nnz=2, dtype=float32)",
        ),
        (
            hurray.Tensor(bytes(4), hurray.int8, [4], quantization=hurray.PerTensorAffine(0.5, 3)),
            "hurray.Tensor(shape=(4,), dtype=int8, "
            "quantization=PerTensorAffine(scale=0.5, zero_point=3))",
        ),
    ],
)
def test_repr(tensor, text):
    assert repr(tensor) == text
    assert str(tensor) == text


def test_handles():
    tensor = hurray.Tensor(
        aligned(16),
        hurray.int8,
        [4, 4],
        aux_buffers=[aligned(16, offset=64)],
        quantization=hurray.PerChannelAffine.symmetric(0, 1),
    )
    handles = tensor.buffer_handles
    assert type(handles) is tuple
    assert [handle.byte_size for handle in handles] == [16, 16]
    assert [handle.alignment for handle in handles] == [4096, 64]
    assert {handle.sync_mode for handle in handles} == {"producer_synced"}
    for handle in handles:
        assert handle.device is tensor.device
    assert tensor.buffer_handles == handles
    assert handles == tensor.descriptor.buffer_handles


def test_a_rebuilt_tensor_has_an_equal_descriptor_decision_20():
    """Alignment excepted, which is what the memory has."""
    tensor = hurray.Tensor(
        aligned(16),
        hurray.int8,
        [4, 4],
        aux_buffers=[aligned(16), aligned(16)],
        layout=hurray.ColMajorLayout(),
        quantization=hurray.PerChannelAffine.asymmetric(1, 1, 2),
        statistics=hurray.Statistics(nnz=3),
        shard=hurray.Shard([8, 4], [4, 0]),
    )
    with hurray.copies() as log:
        assert rebuilt(tensor).descriptor == tensor.descriptor
    assert log == []


def rebuilt(tensor: hurray.Tensor) -> hurray.Tensor:
    return hurray.Tensor(
        tensor.buffer(0),
        tensor.dtype,
        tensor.shape,
        tensor.device,
        aux_buffers=[tensor.buffer(i) for i in range(1, tensor.buffer_count)],
        layout=tensor.layout,
        quantization=tensor.quantization,
        statistics=tensor.statistics,
        shard=tensor.shard,
        extension_type=tensor.extension_type,
        byte_offset=tensor.descriptor.byte_offset,
    )


@pytest.mark.parametrize("index", [np.s_[1:], np.s_[::-1], np.s_[2::3, ::-1], np.s_[:, 1]])
def test_a_view_can_be_rebuilt_decision_20(index):
    array = aligned(256).view(np.float32).reshape(8, 8)
    tensor = hurray.from_numpy(array[index], copy=False)
    again = rebuilt(tensor)
    assert again.descriptor == tensor.descriptor
    assert address(again) == address(tensor)
