"""Everything that only a GPU can show, as one table in Markdown.

    python tests/gpu/run.py --kit DIR               on a machine with a CUDA driver
    python tests/gpu/run.py --kit DIR --simulator   on the stand-in driver, as far as that goes

`make gpu-kit` makes the kit: a wheel, the test programs, the stand-in driver. Needed besides it are
this checkout, Python 3.11 or newer, NumPy and cuda-bindings; with PyTorch, CuPy, safetensors and
pytest there is more to show. Each row runs in a process of its own: one that fails, hangs or lacks
a library takes nothing from the others. Ends with 1 if a row failed, with 2 if there was nothing to
run on.
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TESTS = ROOT / "tests" / "python"
PROVED, FAILED, SKIPPED, NOTHING = "proved", "**failed**", "skipped", "proves nothing"


def main():
    options = command_line()
    if options.row == "list":
        print(json.dumps(answer()))
        return 0
    if options.row:
        return run_row(options)
    with tempfile.TemporaryDirectory() as folder:
        environment = environment_of(options, Path(folder))
        facts = ask(environment, options)
        if "refusal" in facts:
            print(f"tests/gpu/run.py: {facts['refusal']}", file=sys.stderr)
            return 2
        results = run_all(options, environment, facts["rows"])
    text = table(options, facts, results)
    print(text)
    if options.output:
        options.output.write_text(text)
    return 1 if any(status == FAILED for _, status, _, _ in results) else 0


def command_line():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kit", type=Path, required=True, help="what `make gpu-kit` made")
    parser.add_argument("--simulator", action="store_true", help="run on the stand-in driver")
    parser.add_argument("--output", type=Path, help="write the table to this file too")
    parser.add_argument(
        "--only", nargs="*", default=[], help="rows, by the names of their programs"
    )
    parser.add_argument("--minutes", type=float, default=7.5, help="no row begins after them")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.kit = options.kit.resolve()
    return options


def rows():
    """Every row, in the order of the table."""
    from row import ROWS

    for module in ("programs", "races", "captures", "libraries", "devices", "speed"):
        import_module(module)
    return ROWS


def environment_of(options, folder):
    """What the rows' processes see: the kit's module, and its driver where that is asked for."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HURRAY_SIM_")}
    paths = [str(HERE), str(TESTS)]
    wheels = sorted(options.kit.glob("hurray_runtime-*.whl"))
    if wheels:
        # A wheel is a zip of what is to be importable.
        zipfile.ZipFile(wheels[-1]).extractall(folder / "module")
        paths.insert(0, str(folder / "module"))
    environment["PYTHONPATH"] = os.pathsep.join([*paths, environment.get("PYTHONPATH", "")])
    environment["HURRAY_GPU_KIT"] = str(options.kit)
    # For the module's own tests, which run on the stand-in driver everywhere.
    environment["HURRAY_SIM"] = str(options.kit / "cuda-sim" / "libcuda.so")
    if options.simulator:
        library = options.kit / "cuda-sim"
        search = [str(library), environment.get("LD_LIBRARY_PATH", "")]
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, search))
        environment["HURRAY_SIM_DEVICES"] = "2"
        environment["HURRAY_SIM_OUT"] = str(folder / "reports")
        (folder / "reports").mkdir()
    return environment


def ask(environment, options):
    """The driver's facts and every row, or why nothing can be run."""
    command = [sys.executable, str(HERE / "run.py"), "--kit", str(options.kit), "--row", "list"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    try:
        return json.loads(ran.stdout)
    except ValueError:
        return {"refusal": f"the rows can't be listed: {(ran.stderr or ran.stdout)[-1000:]}"}


def answer():
    """The child's side of `ask`."""
    try:
        from cuda.bindings import driver
    except ImportError:
        return {"refusal": "cuda-bindings is not installed: pip install cuda-bindings"}
    try:
        (code,) = driver.cuInit(0)
    except RuntimeError as error:
        return {
            "refusal": f"there is no CUDA driver on this machine ({error}). With --simulator, what "
            "needs no GPU runs on the stand-in driver"
        }
    if code != driver.CUresult.CUDA_SUCCESS:
        return {"refusal": f"the CUDA driver has no device to run on: cuInit said {code.name}"}
    version = driver.cuDriverGetVersion()[1]
    return {
        "card": driver.cuDeviceGetName(128, 0)[1].split(b"\0")[0].decode(),
        "driver": f"{release()}for CUDA {version // 1000}.{version % 1000 // 10}",
        "devices": driver.cuDeviceGetCount()[1],
        "rows": [
            {
                "name": row.name,
                "title": row.title,
                "seconds": row.seconds,
                "environment": dict(row.environment),
            }
            for row in rows().values()
        ],
    }


def release():
    """The driver's own number, with a blank after it, where its tool is there to say it."""
    if shutil.which("nvidia-smi") is None:
        return ""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"{ran.stdout.split()[0]} " if ran.returncode == 0 and ran.stdout.split() else ""


def run_all(options, environment, all_rows):
    """(title, status, what was seen, seconds) of every row."""
    end = time.monotonic() + options.minutes * 60
    results = []
    for row in all_rows:
        if options.only and row["name"] not in options.only:
            continue
        left = end - time.monotonic()
        if left <= 0:
            text = f"the {options.minutes:g} minutes were over"
            results.append((row["title"], SKIPPED, text, 0))
            continue
        start = time.monotonic()
        status, text = run_one(options, environment, row, min(row["seconds"], left))
        results.append((row["title"], status, text, time.monotonic() - start))
        print(f"{status:>14}  {row['name']}", file=sys.stderr, flush=True)
    return results


def run_one(options, environment, row, seconds):
    command = [
        sys.executable,
        str(HERE / "run.py"),
        "--kit",
        str(options.kit),
        "--row",
        row["name"],
    ]
    if options.simulator:
        command.append("--simulator")
    child = subprocess.Popen(
        command,
        env={**environment, **row["environment"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        # Its own children too.
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        return FAILED, f"not over after {seconds:.0f} s"
    for line in reversed(out.splitlines()):
        if line.startswith('{"status"'):
            said = json.loads(line)
            break
    else:
        said = {"status": FAILED, "text": "said nothing: " + (err or out).strip()[-400:]}
    if child.returncode != 0 and said["status"] == PROVED:
        return FAILED, f"ended with {child.returncode} after: {said['text']}: {err.strip()[-400:]}"
    return said["status"], said["text"]


def run_row(options):
    """The child: runs one row and prints how it ended."""
    from row import ProvesNothing, Skipped

    try:
        text = rows()[options.row].run(options.simulator)
        status = PROVED
    except Skipped as reason:
        status, text = SKIPPED, str(reason)
    except ProvesNothing as reason:
        status, text = NOTHING, str(reason)
    except Exception as error:
        place = error.__traceback__
        while place.tb_next is not None:
            place = place.tb_next
        where = f"{Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}"
        status, text = FAILED, f"{type(error).__name__} at {where}: {error}"
    print(json.dumps({"status": status, "text": text}), flush=True)
    return 0


def table(options, facts, results):
    versions = [f"Python {platform.python_version()}"]
    for name in ("torch", "cupy", "jax", "safetensors", "numpy"):
        if find_spec(name) is not None:
            versions.append(f"{name} {version_of(name)}")
    where = "the stand-in driver, no GPU" if options.simulator else facts["card"]
    lines = [
        f"Run on {where}; driver {facts['driver']}, {facts['devices']} device(s); "
        f"{', '.join(versions)}; {datetime.date.today():%Y-%m-%d}.",
        "",
        "| row | result | what it showed | s |",
        "|---|---|---|---|",
    ]
    for title, status, text, seconds in results:
        cell = " ".join(text.split()).replace("|", "\\|")
        lines.append(f"| {title} | {status} | {cell} | {seconds:.1f} |")
    counts = {}
    for _, status, _, _ in results:
        counts[status] = counts.get(status, 0) + 1
    lines += ["", ", ".join(f"{count} {status}" for status, count in counts.items()) + "."]
    return "\n".join(lines) + "\n"


def version_of(module):
    names = metadata.packages_distributions().get(module, [module])
    return metadata.version(names[0])


if __name__ == "__main__":
    sys.exit(main())
