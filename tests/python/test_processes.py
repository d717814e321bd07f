"""Processes that fork, and interpreters that are not the first."""

import subprocess
import sys
from pathlib import Path

import hurray

PATHS = [str(Path(hurray.__file__).parent.parent), str(Path(__file__).parent)]


def run(program: str) -> None:
    result = subprocess.run(
        [
            sys.executable,
            "-X",
            "faulthandler",
            "-c",
            f"import sys; sys.path[:0] = {PATHS}\n{program}",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_a_child_has_its_parents_tensors_and_all_ways():
    """Both use and let go of what was there, and copy on several threads, after other copies."""
    run("""
import os, threading
import numpy as np
import hurray
from placed import aligned, at

large = np.frombuffer(memoryview(aligned(40 << 20, offset=1)), np.uint8)
copied = hurray.from_numpy(large)
tensor, flags = hurray.from_numpy(at(0, (16,))), hurray.from_numpy(np.ones(9, bool))
composite = hurray.Composite("group", shape=[1], dtype=hurray.uint8, members=[tensor])
capsule = tensor.__hurray__()
view = np.asarray(tensor)

def use():
    global copied, capsule, tensor
    assert np.array_equal(np.asarray(hurray.from_hurray(tensor)), np.arange(16))
    assert np.asarray(flags).all() and np.asarray(copied).size == 40 << 20
    assert len(hurray.from_hurray(composite).members) == 1
    with hurray.aligned_allocator(), hurray.copies() as log:
        assert hurray.from_numpy(np.arange(1000), copy=False).size == 1000
        copied = hurray.from_numpy(large)
    assert [copy.bytes for copy in log] == [40 << 20]
    del capsule, tensor
    thread = threading.Thread(target=lambda: hurray.from_hurray(composite))
    thread.start()
    thread.join()
    assert view[15] == 15

child = os.fork()
use()
if child:
    assert os.waitpid(child, 0)[1] == 0
""")


def test_a_second_interpreter_is_refused_and_harms_nothing():
    run("""
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
import numpy as np
import hurray

tensor = hurray.from_numpy(np.arange(4.0))
program = '''
import sys
sys.path[:0] = %r
try:
    import hurray
except ImportError as error:
    assert "subinterpreter" in str(error), error
else:
    raise AssertionError
''' % sys.path
second = interpreters.create()
failure = interpreters.run_string(second, program)
assert failure is None, failure
interpreters.destroy(second)
assert np.asarray(hurray.from_hurray(tensor)).tolist() == [0, 1, 2, 3]
""")
