"""The commands that the package installs."""

import signal
import sys

from hurray._hurray import _run_hurray, _run_hurray_inspect


def hurray() -> int:
    """Runs `hurray`; gives the exit status."""
    _let_interrupts_end_the_process()
    return _run_hurray(sys.argv)


def hurray_inspect() -> int:
    """Runs `hurray-inspect`, which is `hurray inspect`; gives the exit status."""
    _let_interrupts_end_the_process()
    return _run_hurray_inspect(sys.argv)


def _let_interrupts_end_the_process() -> None:
    # Python only notes an interrupt, and acts on it when its own code goes on.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
