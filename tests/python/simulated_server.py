"""Forks once per line of its input, a request in JSON, and answers with the child's status."""

import json
import os
import signal
import sys
import time
import traceback

# Loaded once, for all children. None of them loads a driver.
import cuda_programs
import numpy  # noqa: F401
from cuda.bindings import driver  # noqa: F401

import hurray

DEVICE_ERROR = 3
# Seconds that a program may take.
LIMIT = 60


def status_of(child: int) -> int:
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGABRT)
    os.waitpid(child, 0)
    return -signal.SIGALRM


def become(request: dict) -> None:
    """Runs the program in this process."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        path = os.path.join(request["folder"], name)
        flags = os.O_RDWR | os.O_CREAT
        os.dup2(os.open(path, flags), number)
    os.environ.update(request["settings"], HURRAY_SIM_OUT=request["folder"])
    code = compile(request["program"], "<program>", "exec")
    try:
        exec(code, {"__name__": "__main__"})
    except SystemExit:
        raise
    except (hurray.DeviceError, cuda_programs.DriverError) as error:
        print(error)
        sys.exit(DEVICE_ERROR)
    except BaseException:
        traceback.print_exc()
        sys.exit(1)


def requests():
    # Not the file object, whose buffer a child would inherit.
    pending = b""
    while block := os.read(0, 1 << 16):
        pending += block
        while b"\n" in pending:
            line, pending = pending.split(b"\n", 1)
            yield json.loads(line)


for request in requests():
    if (child := os.fork()) == 0:
        become(request)
        # As any program ends: its handlers run, and the driver's too.
        sys.exit(0)
    os.write(1, b"%d\n" % status_of(child))
