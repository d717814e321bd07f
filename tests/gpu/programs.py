"""What has its own way of being run: the driver's rules, and the tests of the module."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from device_work import StandIn, call, driver
from row import Skipped, row

ROOT = Path(__file__).parents[2]
LIBRARY = "libcuda.so.1"


@row("The driver keeps the rules that the stand-in driver models", seconds=150)
def driver_rules():
    program = Path(os.environ["HURRAY_GPU_KIT"]) / "rules"
    if not program.exists():
        raise Skipped("the kit has no program `rules`")
    call(driver.cuInit(0))
    devices = call(driver.cuDeviceGetCount())
    names = subprocess.run([program, "list"], capture_output=True, text=True, check=True)
    names = names.stdout.split()

    def run(name):
        try:
            ran = subprocess.run(
                [program, LIBRARY, name], capture_output=True, text=True, timeout=60, check=False
            )
        except subprocess.TimeoutExpired:
            return "not over after 60 s"
        return None if ran.returncode == 0 else ran.stderr.strip().replace("\n", " ")[-300:]

    with ThreadPoolExecutor(2 if StandIn().is_there else 4) as pool:
        ends = dict(zip(names, pool.map(run, names), strict=True))
    # Once more, alone: others may have taken the memory or the time that a rule is about.
    wrong = {name: run(name) for name, end in ends.items() if end is not None}
    wrong = {name: end for name, end in wrong.items() if end is not None}
    lacking = [name for name, end in wrong.items() if devices < 2 and "INVALID_DEVICE" in end]
    for name in lacking:
        del wrong[name]
    if wrong:
        raise AssertionError(
            f"{len(wrong)} of {len(names)} differ: "
            + "; ".join(f"{name} ({end})" for name, end in wrong.items())
        )
    kept = len(names) - len(lacking)
    return f"{kept} programs" + (f"; {len(lacking)} need two devices" if lacking else "")


@row(
    "The tests of the module, with a driver loaded and Python's own libraries",
    gpu=True,
    seconds=240,
)
def module_tests():
    if find_spec("pytest") is None:
        raise Skipped("pytest is not installed")
    several = ["-n", "8"] if find_spec("xdist") else []
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *several, "tests/python"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    last = ran.stdout.strip().splitlines()[-1] if ran.stdout.strip() else ran.stderr[-500:]
    if ran.returncode != 0:
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)
        raise AssertionError(f"{last}: " + ", ".join(failed[:20]))
    return last
