"""The commands that the package installs."""

import subprocess
import sys


def program(function: str) -> list[str]:
    """The program that the installer writes for an entry of `project.scripts`."""
    return [
        sys.executable,
        "-c",
        f"import sys; from hurray._command_line import {function}; sys.exit({function}())",
    ]


def run(*arguments: object, function: str = "hurray") -> subprocess.CompletedProcess[str]:
    command = [*program(function), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)
