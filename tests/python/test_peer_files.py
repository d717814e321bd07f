"""Files and streams of the published release and ours cross both ways, equal to the byte.

`make` installs the release, whose module has the same name, in an environment of its own, and says
where in HURRAY_PEER; items.py answers there.
"""

import json
import os
import subprocess
from pathlib import Path

import items
import pytest

import hurray

HERE = Path(__file__).parent
SECTIONS = ("statistics", "shard", "extension_type")


@pytest.fixture(scope="module")
def peer():
    python = os.environ.get("HURRAY_PEER")
    if python is None:
        pytest.skip("HURRAY_PEER names no interpreter that has pyhurray 0.1.0")
    # -E: nothing of ours on its path.
    process = subprocess.Popen(
        [python, "-E", HERE / "items.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def ask(*question):
        print(json.dumps([str(part) for part in question]), file=process.stdin, flush=True)
        answer = process.stdout.readline()
        assert answer, process.wait()
        return json.loads(answer)

    yield ask
    process.stdin.close()
    assert process.wait() == 0


@pytest.fixture(scope="module")
def files(peer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    peer("save", folder / "theirs")
    items.answer(["save", folder / "ours"])
    return folder / "theirs", folder / "ours"


@pytest.fixture(scope="module")
def streams(peer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams")
    peer("write", folder / "theirs")
    items.answer(["write", folder / "ours"])
    return folder / "theirs", folder / "ours"


def test_every_layout_scheme_section_and_rule_is_among_the_items():
    layouts, schemes, sections, rules = set(), set(), set(), set()

    def note(item):
        layouts.add(type(item.layout))
        if isinstance(item, hurray.Composite):
            rules.add(item.layout.composition_rule)
            for member in item.members:
                note(member)
            return
        schemes.add(type(item.quantization))
        sections.update(name for name in SECTIONS if getattr(item, name) is not None)

    for item in items.items().values():
        note(item)
    assert layouts == {*hurray.Layout.__subclasses__()} - {hurray.UnknownLayout}
    assert schemes == {
        type(None),
        hurray.PerTensorAffine,
        hurray.PerChannelAffine,
        hurray.PerBlockAffine,
        hurray.NF4,
        hurray.MXFP,
    }
    assert sections == {*SECTIONS}
    assert rules == {"partition", "overlay", "group"}


def test_files_are_equal(files):
    theirs, ours = (path.read_bytes() for path in files)
    assert theirs == ours


def test_files_cross(files, peer):
    theirs, ours = files
    expected = {name: items.shown(item) for name, item in items.items().items()}
    assert items.answer(["load", theirs]) == expected
    assert peer("load", ours) == expected
    assert items.answer(["load_kv", theirs]) == repr(items.METADATA)
    assert peer("load_kv", ours) == repr(items.METADATA)


@pytest.mark.parametrize("options", [{"alignment": 1 << 16}, {"sorted_index": True}])
def test_files_with_options_that_the_release_does_not_have(peer, tmp_path, options):
    path = tmp_path / "ours"
    everything = items.items()
    hurray.save(path, everything, kv=items.METADATA, **options)
    loaded = peer("load", path)
    # It gives a composite's members a second time where the index has them before their head.
    assert {name: loaded[name] for name in everything} == {
        name: items.shown(item) for name, item in everything.items()
    }


def test_streams_are_equal(streams):
    theirs, ours = (path.read_bytes() for path in streams)
    assert theirs == ours


def test_streams_cross(streams, peer):
    theirs, ours = streams
    expected = [items.shown(item) for item in items.items().values()]
    assert items.answer(["read", theirs]) == expected
    assert peer("read", ours) == expected
