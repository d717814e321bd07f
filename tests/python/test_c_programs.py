"""hurray on either side of a program in C, under AddressSanitizer.

crates/ffi/tests/c_programs.rs runs the same programs without Python.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*command: str, **variables: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | variables
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_c_producer_and_consumer(tmp_path):
    libraries = []
    for name in ("producer", "consumer"):
        library = str(tmp_path / f"{name}.so")
        flags = [
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-g",
            "-shared",
            "-fPIC",
            "-fsanitize=address",
        ]
        include = f"-I{ROOT / 'crates/ffi/include'}"
        run("cc", *flags, include, str(ROOT / f"tests/c/{name}.c"), "-o", library)
        libraries.append(library)
    run(
        sys.executable,
        str(Path(__file__).with_name("c_programs.py")),
        *libraries,
        # AddressSanitizer has to be first in a process that it did not compile.
        LD_PRELOAD=run("cc", "-print-file-name=libasan.so").strip(),
        # CPython keeps memory until its end on purpose; the producer counts what it made itself.
        ASAN_OPTIONS="detect_leaks=0",
        PYTHONMALLOC="malloc",
    )
