"""The package as a wheel has it, built from a copy of the tree; importing this
puts it on the path."""

import atexit
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
_folder = tempfile.TemporaryDirectory()
atexit.register(_folder.cleanup)
_PLACE = pathlib.Path(_folder.name)
SOURCE = _PLACE / "client" / "python"
LIBRARY = _PLACE / "library"


def _build():
    shutil.copytree(ROOT / "proto", _PLACE / "proto")
    shutil.copytree(ROOT / "client" / "python", SOURCE,
                    ignore=shutil.ignore_patterns("build", "*.egg-info"))
    done = subprocess.run(
        [sys.executable, "-c",
         "from setuptools import build_meta\n"
         f"print(build_meta.build_wheel({str(_PLACE)!r}))"],
        cwd=SOURCE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    wheel = _PLACE / done.stdout.splitlines()[-1]
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(LIBRARY)
    return wheel


WHEEL = _build()
sys.path.insert(0, str(LIBRARY))
sys.path.append(str(ROOT / "tests" / "deploy"))
