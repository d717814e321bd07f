"""`hurray.Device` and `hurray.device`."""

import itertools

import pytest

import hurray

KINDS = [
    "cpu",
    "cuda",
    "rocm",
    "metal",
    "vulkan",
    "webgpu",
    "hexagon",
    "level_zero",
    "opencl",
]
CLASSES = ["standard", "host_pinned", "unified", "peer"]


@pytest.mark.parametrize(("tag", "kind"), list(enumerate(KINDS)))
def test_named_kinds(tag: int, kind: str) -> None:
    device = getattr(hurray.device, kind)
    assert (device.kind, device.tag, device.device_id) == (kind, tag, 0)
    assert (device.memory_class, device.memory_class_tag) == ("standard", 0)
    assert not device.is_private
    assert device == hurray.Device(kind) == hurray.Device(tag) == hurray.Device(kind, 0, "standard")
    assert repr(device) == (kind if kind == "cpu" else f"{kind}:0")


@pytest.mark.parametrize(("kind", "class_", "id_"), list(itertools.product(KINDS, CLASSES, [0, 7])))
def test_a_string_says_all_three(kind: str, class_: str, id_: int) -> None:
    device = hurray.Device(kind, id_, class_)
    assert (device.kind, device.device_id, device.memory_class) == (kind, id_, class_)
    assert device.memory_class_tag == CLASSES.index(class_)
    assert hurray.Device(f"{kind}:{id_}/{class_}") == device
    assert hurray.Device(repr(device)) == device
    assert hurray.Device(f"{kind}:{id_}", memory_class=class_) == device
    assert hurray.Device(f"{kind}/{class_}", id_) == device
    assert hurray.Device(device.tag, id_, device.memory_class_tag) == device


def test_repr() -> None:
    assert repr(hurray.Device("cpu")) == "cpu"
    assert repr(hurray.Device("cuda")) == str(hurray.Device("cuda")) == "cuda:0"
    assert repr(hurray.Device("cuda", 1)) == "cuda:1"
    assert repr(hurray.Device("cuda", 0, "host_pinned")) == "cuda:0/host_pinned"
    assert repr(hurray.Device("cpu", 0, "unified")) == "cpu/unified"


def test_private_devices() -> None:
    device = hurray.Device(0xF0, 3, 0xF1)
    assert (device.kind, device.tag, device.is_private) == ("private", 0xF0, True)
    assert (device.memory_class, device.memory_class_tag) == ("private", 0xF1)
    assert device != hurray.Device(0xF1, 3, 0xF1)
    assert repr(device) == "private_0xf0:3/private_0xf1"


def test_equality_and_hash() -> None:
    devices = [
        hurray.Device("cuda"),
        hurray.Device("cuda", 1),
        hurray.Device("cuda", 0, "unified"),
        hurray.Device("rocm"),
    ]
    assert len(set(devices)) == 4
    assert hash(hurray.Device("cuda", 1)) == hash(hurray.Device("cuda:1"))
    assert hurray.Device("cpu") != "cpu"


@pytest.mark.parametrize("kind", ["gpu", "CPU", "", "cuda0", 0x09, 0xEF, 0xFF, 256, -1, None, 1.5])
def test_unknown_kind_lists_the_kinds(kind: object) -> None:
    with pytest.raises(hurray.InvalidDescriptorError) as refusal:
        hurray.Device(kind)
    assert all(known in str(refusal.value) for known in KINDS)
    assert repr(kind) in str(refusal.value)


@pytest.mark.parametrize("class_", ["pinned", "", 0x04, 0xEF, 0xFF, 256])
def test_unknown_class_lists_the_classes(class_: object) -> None:
    with pytest.raises(hurray.InvalidDescriptorError) as refusal:
        hurray.Device("cuda", 0, class_)
    assert all(known in str(refusal.value) for known in CLASSES)
    if isinstance(class_, str):
        with pytest.raises(hurray.InvalidDescriptorError):
            hurray.Device(f"cuda/{class_}")


@pytest.mark.parametrize("id_", [-1, 2**32, 2**64, -(2**64)])
def test_device_id_is_32_bits(id_: int) -> None:
    with pytest.raises(hurray.InvalidDescriptorError, match=str(id_)):
        hurray.Device("cuda", id_)


@pytest.mark.parametrize(
    "text", ["cuda:", "cuda:x", "cuda:-1", "cuda:+1", "cuda: 1", "cuda:4294967296"]
)
def test_device_id_in_a_string(text: str) -> None:
    with pytest.raises(hurray.InvalidDescriptorError, match="4294967295"):
        hurray.Device(text)


def test_saying_something_twice_is_refused() -> None:
    for arguments in [("cuda:0", 0), ("cuda:1", 2), ("cuda/unified", 0, "unified")]:
        with pytest.raises(hurray.InvalidDescriptorError, match="already"):
            hurray.Device(*arguments)


def test_frozen() -> None:
    with pytest.raises(AttributeError):
        hurray.device.cpu.device_id = 1
