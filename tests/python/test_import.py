"""What `import hurray` does, and what it refuses."""

import subprocess
import sys
from pathlib import Path

import hurray

PACKAGE_ROOT = str(Path(hurray.__file__).parent.parent)


def import_in_a_process(code: str, *folders: Path | str) -> subprocess.CompletedProcess[str]:
    """Runs `code` in a fresh interpreter that finds hurray first and then `folders`."""
    paths = [PACKAGE_ROOT, *map(str, folders)]
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {paths!r}\n{code}"],
        capture_output=True,
        text=True,
        check=False,
    )


def test_version() -> None:
    assert hurray.__version__ == "0.2.0"


def test_alignments() -> None:
    assert (hurray.MIN_BUFFER_ALIGNMENT, hurray.PAGE_ALIGNMENT) == (64, 4096)


def test_importing_beside_an_installed_pyhurray_is_refused(tmp_path: Path) -> None:
    # pip installs both into one folder, and the one that comes last wins `hurray/__init__.py`.
    for metadata in ("pyhurray-0.1.0.dist-info", "pyhurray-0.3.0.egg-info"):
        site = tmp_path / metadata
        (site / metadata).mkdir(parents=True)
        done = import_in_a_process("import hurray", site)
        assert done.returncode != 0
        last_line = done.stderr.strip().splitlines()[-1]
        assert last_line.startswith("ImportError: ")
        assert str(site / metadata) in last_line
        assert "pip uninstall pyhurray" in last_line
        assert "--force-reinstall --no-deps hurray-runtime" in last_line


def test_other_distributions_and_odd_path_entries_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "pyhurray_tools-1.0.dist-info").mkdir()
    (tmp_path / "hurray_runtime-0.2.0.dist-info").mkdir()
    (tmp_path / "pyhurray").mkdir()
    archive = tmp_path / "archive.zip"
    archive.write_bytes(b"")
    odd = "sys.path += [b'bytes', 3, None, 'nul\\0byte', '']"
    done = import_in_a_process(f"{odd}; import hurray", tmp_path, archive, tmp_path / "missing")
    assert done.returncode == 0, done.stderr


def test_importing_loads_no_library_and_no_metadata_reader() -> None:
    # Adapters import what they need when they are called; importlib.metadata costs some 40 ms.
    done = import_in_a_process(
        "import hurray\n"
        "heavy = ('numpy', 'torch', 'jax', 'cupy', 'scipy', 'importlib.metadata')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_importing_twice_gives_the_same_singletons() -> None:
    done = import_in_a_process(
        "import hurray, hurray.dtype, hurray.device\n"
        "from hurray.dtype import float32\n"
        "from hurray.device import cpu\n"
        "assert float32 is hurray.float32 is hurray.dtype.float32\n"
        "assert cpu is hurray.device.cpu\n"
        "assert sys.modules['hurray.dtype'] is hurray.dtype"
    )
    assert done.returncode == 0, done.stderr
