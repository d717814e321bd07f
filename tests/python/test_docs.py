"""The programs in the documents run."""

import re
from pathlib import Path

import numpy as np
import pytest
import simulated
from placed import aligned, at

import hurray

ROOT = Path(__file__).parents[2]
# What a document takes as given.
GIVEN = {
    "README.md": lambda: {},
    "docs/python.md": lambda: {
        "hurray": hurray,
        "np": np,
        "codes": aligned(256).view(np.int8).reshape(4, 64),
        "scales": np.frombuffer(memoryview(aligned(16)), np.float32),
        "array": at(16, (4,)),
    },
    "docs/files.md": lambda: {
        "hurray": hurray,
        "np": np,
        "weights": np.arange(32, dtype=np.float32).reshape(4, 8),
        "bias": np.ones(8, np.float32),
    },
}


def programs_of(text):
    programs = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert programs
    return programs


@pytest.mark.parametrize("name", GIVEN)
def test_the_programs_of_a_document_run_in_order(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / name).read_text()
    programs = programs_of(text)
    names = GIVEN[name]()
    for program in programs:
        # The line at which an error is reported is the document's.
        line = text[: text.index(program)].count("\n")
        exec(compile("\n" * line + program, str(ROOT / name), "exec"), names)
        if "# (BufferHandle" in program:
            # Alignment is what the memory has.
            shown = " ".join(re.findall(r"^# *(.*)", program, re.MULTILINE))
            handles = repr(names["tensor"].buffer_handles)
            assert [re.sub(r"alignment=\d+", "", text) for text in (handles, shown)] == (
                [re.sub(r"alignment=\d+", "", shown)] * 2
            )
        if "again =" in program:
            assert names["again"].descriptor.quantization == names["tensor"].quantization
            assert np.shares_memory(np.asarray(names["again"].buffer(0)), names["codes"])
        if "print(log)" in program:
            assert "reason='alignment', call='from_numpy'" in capsys.readouterr().out


def test_the_programs_of_the_page_on_cuda_run_on_the_stand_in_driver():
    page = ROOT / "docs" / "cuda.md"
    run = []
    for program in programs_of(page.read_text()):
        compile(program, str(page), "exec")
        if not program.startswith("# needs:"):
            run.append(program)
    outcome = simulated.run("\n".join(run))
    assert (outcome.status, outcome.stderr, outcome.defects) == (0, "", [])
    assert [float(line) for line in outcome.stdout.split()] == list(range(8))


def test_every_page_that_is_linked_is_there():
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
