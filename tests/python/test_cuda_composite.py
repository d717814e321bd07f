"""What a tensor's methods do of readiness, for all members of a composite at once."""

import pytest
import simulated
from simulated import whole

pytest.importorskip("cuda.bindings.driver")

COMPOSITE = """
sources = arrays(2)
freed, addresses = [s.freed for s in sources], [s.address for s in sources]
nested = hurray.Composite("group", shape=[1], dtype=hurray.uint8, members=[written(sources[1])])
composite = hurray.Composite(
    "group", shape=[1], dtype=hurray.uint8, members=[written(sources[0]), nested]
)
del sources, nested
readers = [Consumer(gpu, c), Consumer(gpu, c)]
def modes_of(composite):
    first, nested = composite.members
    return modes(first) + modes(nested.members[0])
"""

PROGRAMS = {
    "order": """
        ordered = composite.order(c)
        assert modes_of(ordered) == ["consumer_stream"] * 2 and calls() == (1, 1)
        for reader, address in zip(readers, addresses):
            reader.read(address)
        del composite, ordered
        let_go(freed[0]), let_go(freed[1])
        for reader in readers:
            reader.check()
    """,
    "record": """
        recorded = composite.record(p)
        assert modes_of(recorded) == ["event"] * 2 and calls() == (1, 0)
        ordered = recorded.order(c)
        assert calls() == (1, 1)
        for reader, address in zip(readers, addresses):
            reader.read(address)
        del composite, recorded, ordered
        let_go(freed[0]), let_go(freed[1])
        for reader in readers:
            reader.check()
    """,
    "order_after_readers and record_stream": """
        view = composite.order(c)
        for reader, address in zip(readers, addresses):
            reader.read(address)
        del view
        composite.order_after_readers(p)
        for address in addresses:
            gpu.fill(address, 9, p)
        composite.record_stream(p)
        del composite
        let_go(freed[0]), let_go(freed[1])
        for reader in readers:
            reader.check()
    """,
}

# Both producers free in the order of `p`, which has waited for the readers.
NEEDLESS = {
    "order_after_readers and record_stream": {("cuEventRecord", 3), ("cuEventRecord", 4)},
}


def indented(text: str) -> str:
    return "".join(f"        {line}\n" for line in text.strip().splitlines())


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_call_is_needed(name):
    _, unnoticed = simulated.sweep(whole(indented(COMPOSITE) + PROGRAMS[name]))
    assert unnoticed == NEEDLESS.get(name, set())


def test_it_moves_whole():
    program = whole(
        indented(COMPOSITE)
        + """
        with hurray.copies() as log:
            back = composite.to("cpu")
        assert [(copy.bytes, str(copy.from_), str(copy.to), copy.call) for copy in log] == [
            (LEN, "cuda:0", "cpu", "to")
        ] * 2
        first, nested = back.members
        assert (np.asarray(first) == 1).all() and (np.asarray(nested.members[0]) == 1).all()
        there = back.to("cuda:0", stream=c)
        assert modes_of(there) == ["consumer_stream"] * 2
        refused(hurray.CopyRequiredError, "copy=False", lambda: there.to("cpu", copy=False))
        waited = there.synchronize()
        assert modes_of(waited) == ["producer_synced"] * 2
        assert waited == there.to("cuda:0").synchronize()
        for reader, member in zip(readers, (waited.members[0], waited.members[1].members[0])):
            reader.read(member.extents()[0][0])
            reader.check()
        """
    )
    simulated.run(program).assert_clean()
