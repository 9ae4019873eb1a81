"""Builds the package: what stands in weir/, and what is made of ../../proto and
of catalog.json."""

import pathlib
import sys

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

# pylint: disable=wrong-import-position
import make_messages  # noqa: E402
import make_ops  # noqa: E402


class BuildWithMadeFiles(build_py):
    """Writes what is made beside what is copied, and nothing into the tree."""

    def run(self) -> None:
        super().run()
        package = pathlib.Path(self.build_lib) / "weir"
        make_messages.make(HERE.parent.parent / "proto", package / "_proto")
        make_ops.make(HERE / "catalog.json", package)


setup(cmdclass={"build_py": BuildWithMadeFiles})
