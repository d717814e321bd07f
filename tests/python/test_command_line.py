"""The commands that the package installs, and that they call things what Python calls them."""

import json
import os
import signal
import subprocess
from importlib import metadata
from pathlib import Path

import pytest
from command_line import program, run
from placed import aligned

import hurray

VECTORS = Path(__file__).parents[1] / "vectors"
FILE = VECTORS / "files" / "06-quantized.hrry"


def test_the_package_installs_both_commands() -> None:
    scripts = metadata.distribution("hurray-runtime").entry_points.select(group="console_scripts")
    assert {(script.name, script.load().__name__) for script in scripts} == {
        ("hurray", "hurray"),
        ("hurray-inspect", "hurray_inspect"),
    }


def test_the_exit_status_is_that_of_the_command() -> None:
    shown = run("inspect", FILE)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "NF4(axis=1, block_size=8, scale_buffer_index=1)" in shown.stdout
    assert run(FILE, function="hurray_inspect").stdout == shown.stdout
    malformed = run("inspect", VECTORS / "files" / "bad-index-crc.hrry")
    assert malformed.returncode == 1
    assert "FC8 at byte " in malformed.stderr
    assert run("inspect", VECTORS / "none").returncode == 2
    assert run("nothing").returncode == 2
    assert run("--version").stdout == f"hurray {hurray.__version__}\n"


def test_a_path_that_is_no_text_is_passed_on(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff.hrry"
    with open(path, "wb") as file:
        file.write(FILE.read_bytes())
    assert run("verify", os.fsdecode(path)).returncode == 0


def test_an_interrupt_ends_the_command() -> None:
    command = subprocess.Popen(
        [*program("hurray"), "inspect", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert command.stdin is not None
    # More than a pipe holds: the command reads when this returns, and waits for what is missing.
    tensor = hurray.Tensor(aligned(2**21), hurray.uint8, [2**21])
    command.stdin.write(tensor.descriptor.encode() + bytes(2**20))
    command.stdin.flush()
    command.send_signal(signal.SIGINT)
    _, error = command.communicate(timeout=60)
    assert command.returncode == -signal.SIGINT
    assert error == b""


def tensors() -> dict[str, hurray.Tensor]:
    quantized = hurray.Tensor(
        aligned(16),
        hurray.int8,
        [4, 4],
        aux_buffers=[aligned(16)],
        quantization=hurray.PerChannelAffine.symmetric(0, 1),
    )
    return {
        "plain": hurray.Tensor(aligned(24), hurray.float32, [2, 3]),
        "strided": hurray.Tensor(
            aligned(48), hurray.int16, [4, 3], layout=hurray.StridedLayout([6, 2])
        ),
        "quantized": quantized,
    }


@pytest.mark.parametrize("name", ["plain", "strided", "quantized"])
def test_a_tensor_is_shown_in_the_words_of_its_repr(name: str, tmp_path: Path) -> None:
    descriptor = tensors()[name].descriptor
    path = tmp_path / "descriptor"
    path.write_bytes(descriptor.encode())
    shown = run("inspect", "--as", "descriptor", path)
    assert shown.returncode == 0, shown.stderr
    said = json.loads(run("inspect", "--json", path).stdout)["tensors"][0]
    assert said["dtype"] == str(descriptor.dtype)
    assert said["layout"]["name"] == descriptor.layout.name
    assert tuple(said["shape"]) == descriptor.shape
    assert str(descriptor.shape) in shown.stdout
    for row, buffer in zip(said["buffers"], descriptor.buffer_handles, strict=True):
        assert row["device"] == str(buffer.device)
        assert row["sync_mode"] == buffer.sync_mode
    if descriptor.quantization is not None:
        assert repr(descriptor.quantization) in shown.stdout
        assert said["quantization"]["scheme"] == type(descriptor.quantization).__name__
