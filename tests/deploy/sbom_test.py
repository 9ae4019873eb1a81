#!/usr/bin/env python3
"""What the list of parts says of CUDA: where a build's wheels are found, and of
what origin a part is that came out of none."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import skipping

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy"))
sys.dont_write_bytecode = True
import sbom  # pylint: disable=wrong-import-position

PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(weir VERSION 0.1.0 LANGUAGES NONE)
set(WEIR_CUDA OFF)
include("%s/cmake/WeirCuda.cmake")
"""
DEFAULT = "/opt/weir/cuda-wheels"
DIGEST = "5" * 64


class Cache(unittest.TestCase):
    """Of a build that CMake has configured as it configures ours."""

    def setUp(self):
        if shutil.which("cmake") is None or shutil.which("ninja") is None:
            self.skipTest("no cmake and ninja")
        self.folder = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory()))
        self.build = self.folder / "build"
        self.extras = self.folder / "wheels"
        (self.folder / "CMakeLists.txt").write_text(PROJECT % ROOT, "utf-8")

    def configure(self, *arguments, **environment):
        kept = {name: value for name, value in os.environ.items()
                if name != "WEIR_CUDA_EXTRAS"}
        subprocess.run(
            ["cmake", "-G", "Ninja", "-S", self.folder, "-B", self.build,
             *arguments], check=True, stdout=subprocess.DEVNULL,
            env={**kept, **environment})
        generated = self.build / "generated"
        generated.mkdir(exist_ok=True)
        (generated / "build_id.cc").write_text('kBuildId[] = "0f"', "ascii")
        (generated / "build_parts.txt").touch()
        return sbom.cache_of(self.build)

    def wheels(self, folder, *lines):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "wheels.txt").write_text("".join(
            f"{line} --hash=sha256:{DIGEST}\n" for line in lines), "ascii")

    def run_script(self):
        """Over a libnvrtc.so, without an environment variable."""
        libraries = self.folder / "libraries"
        libraries.mkdir()
        (libraries / "libnvrtc.so").touch()
        out = self.folder / "out.json"
        environment = {name: value for name, value in os.environ.items()
                       if name != "WEIR_CUDA_EXTRAS"}
        return out, subprocess.run(
            [sys.executable, ROOT / "deploy/sbom.py", "--build", self.build,
             "--libraries", libraries, "--out", out, "libc6"], check=False,
            capture_output=True, env=environment, text=True)

    def test_wheels_are_sought_where_the_build_seeks_them(self):
        folders = [pathlib.Path(DEFAULT), pathlib.Path(DEFAULT, "toolkit")]
        self.assertEqual(sbom.Cuda(self.configure()).folders, folders)
        # Nor does a build folder stay without that had none.
        cache = self.configure("-DWEIR_CUDA_EXTRAS=")
        self.assertEqual(sbom.Cuda(cache).folders, folders)

    def test_an_image_names_the_wheels_of_its_libraries(self):
        self.configure(WEIR_CUDA_EXTRAS=str(self.extras))
        self.wheels(self.extras / "toolkit", "nvidia-cuda-nvrtc==13.0.88")
        out, done = self.run_script()
        self.assertEqual(done.returncode, 0, done.stderr)
        parts = json.loads(out.read_text("utf-8"))["components"]
        part = {part["name"]: part for part in parts}["nvidia-cuda-nvrtc"]
        self.assertEqual(part["version"], "13.0.88")
        self.assertEqual(part["purl"], "pkg:pypi/nvidia-cuda-nvrtc@13.0.88")
        self.assertEqual(part["hashes"],
                         [{"alg": "SHA-256", "content": DIGEST}])

    def test_a_dependency_that_is_not_debians_is_not_said_to_be(self):
        self.configure(WEIR_CUDA_EXTRAS=str(self.extras))
        self.wheels(self.extras, "nvidia-cuda-nvrtc==13.0.88")
        (self.build / "generated/build_parts.txt").write_text(
            f"package libc6 1\nelsewhere {DIGEST} libgrpc.a\n", "ascii")
        out, done = self.run_script()
        self.assertEqual(done.returncode, 1)
        self.assertIn("nothing tells what they are: ['libgrpc.a']", done.stderr)
        self.assertFalse(out.exists())

    def test_what_came_out_of_no_wheel_is_not_said_to_be_one(self):
        cuda = sbom.Cuda(self.configure(WEIR_CUDA_EXTRAS=str(self.extras)))
        part = cuda.component("nvidia-cuda-runtime", "13.0", "part", "MIT")
        self.assertEqual(part.purl.to_string(),
                         "pkg:generic/nvidia-cuda-runtime@13.0")
        self.assertEqual(len(part.hashes), 0)
        self.wheels(self.extras, "nvidia-cuda-runtime==13.0.96")
        part = cuda.component("nvidia-cuda-runtime", "13.0", "part", "MIT")
        self.assertEqual(part.purl.to_string(),
                         "pkg:pypi/nvidia-cuda-runtime@13.0.96")


if __name__ == "__main__":
    skipping.main()
