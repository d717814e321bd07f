"""Composites: one head, its members, one capsule."""

import weakref

import numpy as np
import pytest
from foreign_producer import Buffer, Producer, with_row
from placed import aligned

import hurray


def address(tensor) -> int:
    return np.asarray(tensor).__array_interface__["data"][0]


def tile(row: int, column: int, value: float, **sections) -> hurray.Tensor:
    array = aligned(16).view(np.float32).reshape(2, 2)
    array[:] = value
    shard = hurray.Shard([4, 2], [row, column])
    return hurray.Tensor(array, hurray.float32, [2, 2], shard=shard, **sections)


def partition() -> hurray.Composite:
    members = [tile(0, 0, 1), tile(2, 0, 2)]
    return hurray.Composite("partition", shape=[4, 2], dtype=hurray.float32, members=members)


def overlay(combine_op: str = "add") -> hurray.Composite:
    base = hurray.Tensor(aligned(32), hurray.float32, [4, 2], shard=hurray.Shard([4, 2], [0, 0]))
    return hurray.Composite(
        "overlay",
        shape=[4, 2],
        dtype=hurray.float32,
        members=[base, tile(2, 0, 5)],
        combine_op=combine_op,
    )


def quantized() -> hurray.Tensor:
    return hurray.Tensor(
        aligned(16),
        hurray.int8,
        [4, 4],
        aux_buffers=[aligned(16)],
        quantization=hurray.PerChannelAffine.symmetric(0, 1),
    )


def group() -> hurray.Composite:
    members = [partition(), quantized(), overlay()]
    return hurray.Composite("group", shape=[], dtype=hurray.float32, members=members)


def test_properties():
    composite = partition()
    assert composite.shape == (4, 2)
    assert composite.ndim == 2
    assert composite.dtype is hurray.float32
    assert composite.member_count == len(composite.members) == 2
    assert composite.layout == hurray.CompositeLayout("partition", 2)
    assert composite.member_roles == (None, None)
    assert composite.descriptor.buffer_count == 0
    assert composite.descriptor.layout == composite.layout


def test_a_composite_has_no_buffers_of_its_own():
    for name in ("buffer", "buffer_handles", "buffer_count", "device", "__array__", "__dlpack__"):
        assert not hasattr(partition(), name)


def test_roles_of_an_overlay():
    composite = overlay()
    assert composite.member_roles == ("base", "correction")
    roles = [member.descriptor.member_role for member in composite.members]
    assert roles == ["base", "correction"]
    assert composite.layout.combine_op == "add"


def test_a_role_is_the_membership_s():
    base, correction = overlay().members
    again = hurray.Composite(
        "overlay",
        shape=[4, 2],
        dtype=hurray.float32,
        members=[base, correction, correction],
        combine_op="replace",
    )
    assert again.member_roles == ("base", "correction", "correction")
    loose = hurray.Composite("group", shape=[4, 2], dtype=hurray.float32, members=[correction])
    assert loose.member_roles == (None,)
    assert loose.members[0].descriptor.member_role is None


@pytest.mark.parametrize("make", [partition, overlay, group])
def test_it_crosses_in_one_capsule(make):
    composite = make()
    with hurray.copies() as log:
        received = hurray.from_hurray(composite)
    assert log == []
    assert isinstance(received, hurray.Composite)
    assert received == composite
    assert received.descriptor.encode() == composite.descriptor.encode()
    same(received, composite)


def same(received: hurray.Composite, composite: hurray.Composite) -> None:
    assert received.member_roles == composite.member_roles
    for mine, theirs in zip(received.members, composite.members, strict=True):
        assert type(mine) is type(theirs)
        if isinstance(mine, hurray.Composite):
            same(mine, theirs)
            continue
        assert mine.descriptor.encode() == theirs.descriptor.encode()
        for i in range(mine.buffer_count):
            assert address(mine.buffer(i)) == address(theirs.buffer(i))


def test_every_section_of_a_member_crosses():
    correction = tile(2, 0, 5, statistics=hurray.Statistics(nnz=2))
    members = [*overlay().members[:1], correction]
    composite = hurray.Composite(
        "overlay", shape=[4, 2], dtype=hurray.float32, members=members, combine_op="replace"
    )
    base, received = hurray.from_hurray(hurray.from_hurray(composite)).members
    assert base.descriptor.member_role == "base"
    assert received.descriptor.member_role == "correction"
    assert received.statistics == hurray.Statistics(nnz=2)
    assert received.shard == hurray.Shard([4, 2], [2, 0])
    # A member keeps its section when it is handed on alone.
    assert hurray.from_hurray(received).descriptor == received.descriptor


def test_no_members():
    empty = hurray.Composite("group", shape=[4], dtype=hurray.float32, members=[])
    received = hurray.from_hurray(empty)
    assert received == empty
    assert received.members == ()


def test_deep_nesting():
    composite = quantized()
    for _ in range(63):
        composite = hurray.Composite("group", shape=[4], dtype=hurray.float32, members=[composite])
    received = hurray.from_hurray(composite)
    for _ in range(63):
        (received,) = received.members
    assert received.quantization == quantized().quantization


def test_many_members():
    members = [quantized() for _ in range(300)]
    composite = hurray.Composite("group", shape=[4], dtype=hurray.int8, members=members)
    received = hurray.from_hurray(composite)
    assert address(received.members[299].buffer(1)) == address(members[299].buffer(1))


def test_each_member_lives_on_its_own():
    owners = [aligned(16) for _ in range(2)]
    references = [weakref.ref(owner) for owner in owners]
    members = [hurray.from_numpy(owner) for owner in owners]
    composite = hurray.Composite("group", shape=[4], dtype=hurray.uint8, members=members)
    first, second = hurray.from_hurray(composite).members
    del composite, members, owners
    assert all(reference() is not None for reference in references)
    del first
    assert [reference() is None for reference in references] == [True, False]
    assert np.asarray(second).shape == (16,)


def test_members_on_different_devices():
    array = aligned(64)
    row = {"device_tag": 1, "memory_class": 1}
    descriptor = with_row(
        hurray.Tensor(array, hurray.uint8, [64]).descriptor.encode(), 0, rank=1, **row
    )
    producer = Producer(descriptor, [Buffer.of(array, device_id=1, **row)])
    pinned = hurray.from_hurray(producer.offer())
    composite = hurray.Composite(
        "group", shape=[64], dtype=hurray.uint8, members=[pinned, hurray.from_numpy(array)]
    )
    received = hurray.from_hurray(composite)
    assert [str(member.device) for member in received.members] == ["cuda:1/host_pinned", "cpu"]


def test_a_foreign_composite():
    composite = group()
    heads = bytearray()
    buffers = []

    def collect(item):
        heads.extend(item.descriptor.encode())
        if isinstance(item, hurray.Composite):
            for member in item.members:
                collect(member)
        else:
            for i in range(item.buffer_count):
                buffers.append(Buffer.of(np.asarray(item.buffer(i))))

    collect(composite)
    producer = Producer(bytes(heads), buffers, keep=composite)
    received = hurray.from_hurray(producer.offer())
    assert received == composite
    same(received, composite)
    del received
    assert sorted(index for index, _ in producer.calls.released) == list(range(len(buffers)))
    assert producer.calls.destroyed == 1


def test_a_foreign_composite_that_ends_too_early():
    head = hurray.Composite(
        "group", shape=[4], dtype=hurray.float32, members=[quantized(), quantized()]
    )
    member = quantized()
    heads = head.descriptor.encode() + member.descriptor.encode()
    buffers = [Buffer.of(np.asarray(member.buffer(i))) for i in range(2)]
    offer = Producer(heads, buffers, keep=member).offer()
    with pytest.raises(hurray.InvalidDescriptorError, match="declares 2 members, and 1 came"):
        hurray.from_hurray(offer)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("bad",), ValueError, "'partition', 'overlay' or 'group'"),
        (("overlay",), ValueError, "combine_op"),
        (("overlay", "multiply"), ValueError, "multiply"),
        (("group", "add"), ValueError, "combine_op"),
    ],
)
def test_what_a_rule_can_be(arguments, error, words):
    rule, *combine_op = arguments
    keywords = {"combine_op": combine_op[0]} if combine_op else {}
    with pytest.raises(error, match=words):
        hurray.Composite(rule, shape=[4], dtype=hurray.int8, members=[quantized()], **keywords)


def test_what_a_member_can_be():
    with pytest.raises(TypeError, match=r"members\[1\].*not int"):
        hurray.Composite("group", shape=[4], dtype=hurray.int8, members=[quantized(), 3])
    with pytest.raises(TypeError):
        hurray.Composite("group", shape=[4], dtype=hurray.int8, members=5)


def test_members_that_leave_a_gap_a12():
    with pytest.raises(hurray.InvalidDescriptorError):
        hurray.Composite("partition", shape=[4, 2], dtype=hurray.float32, members=[tile(0, 0, 1)])


def test_members_that_overlap_a11():
    members = [tile(0, 0, 1), tile(1, 0, 1), tile(2, 0, 1)]
    with pytest.raises(hurray.InvalidDescriptorError):
        hurray.Composite("partition", shape=[4, 2], dtype=hurray.float32, members=members)


def test_a_member_without_a_shard_a1():
    with pytest.raises(hurray.InvalidDescriptorError, match="shard"):
        hurray.Composite("partition", shape=[4, 4], dtype=hurray.int8, members=[quantized()])


def test_an_overlay_without_members_c11():
    with pytest.raises(hurray.InvalidDescriptorError):
        hurray.Composite("overlay", shape=[4], dtype=hurray.int8, members=[], combine_op="add")


def test_equality_is_of_what_is_declared():
    assert partition() == partition()
    assert partition() != overlay()
    assert overlay("add") != overlay("replace")
    assert partition() != partition().members
    with pytest.raises(TypeError):
        hash(partition())


def test_repr():
    assert repr(partition()) == (
        "hurray.Composite(rule='partition', shape=(4, 2), members=[Tensor, Tensor])"
    )
    assert "members=[hurray.Composite(rule='partition'" in repr(group())


def test_weak_references():
    composite = partition()
    reference = weakref.ref(composite)
    del composite
    assert reference() is None


def test_streams():
    assert partition().__hurray__(stream=-1)
    assert partition().__hurray__(stream=1)
    with pytest.raises(ValueError, match="legacy"):
        partition().__hurray__(stream=0)


def test_a_member_that_is_not_ready_is_relayed_and_not_ordered():
    array = aligned(64)
    row = {"device_tag": 1, "memory_class": 1, "sync_mode": 1}
    descriptor = hurray.Tensor(array, hurray.uint8, [64]).descriptor.encode()
    buffers = [Buffer.of(array, event=1, **row)]
    producer = Producer(with_row(descriptor, 0, rank=1, **row), buffers, keep=array)
    members = [hurray.from_numpy(array), hurray.from_hurray(producer.offer())]
    inner = hurray.Composite("group", shape=[64], dtype=hurray.uint8, members=members)
    outer = hurray.Composite("group", shape=[64], dtype=hurray.uint8, members=[inner])
    for composite in (inner, outer):
        assert composite.__hurray__(stream=-1)
        with pytest.raises(hurray.UnsupportedError, match="event"):
            composite.__hurray__(stream=1)
    (relayed,) = hurray.from_hurray(outer).members
    assert relayed.members[1].buffer_handles[0].sync_mode == "event"
    assert producer.calls.events_released == []
