#!/usr/bin/env python3
"""What the list of parts says of CUDA: where a build's wheels are found, and of
what origin a part is that came out of none."""

import json
import os
import pathlib
import re
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

    def test_every_library_of_the_image_has_its_wheel(self):
        cuda = sbom.Cuda(self.configure(WEIR_CUDA_EXTRAS=str(self.extras)))
        wheels = {"libnvrtc": "nvidia-cuda-nvrtc", "libcudnn":
                  "nvidia-cudnn-cu13", "libcublasLt": "nvidia-cublas",
                  "libnvjpeg": "nvidia-nvjpeg"}
        self.wheels(self.extras / "toolkit", *(
            f"{wheel}==1.{at}" for at, wheel in enumerate(wheels.values())))
        script = (ROOT / "deploy/stage_image.sh").read_text("utf-8")
        [listed] = re.findall(r"(?s)^cuda_libraries=\((.*?)^\)", script,
                              re.MULTILINE)
        seen = set()
        for number, library in enumerate(listed.split()):
            folder = self.folder / f"of{number}"
            folder.mkdir()
            (folder / f"{library}.13").touch()
            wheel = wheels[re.match("[a-zA-Z]+", library)[0]]
            [part] = cuda.libraries(folder)
            self.assertEqual(
                part.purl.to_string(), f"pkg:pypi/{wheel}@1."
                f"{list(wheels.values()).index(wheel)}", library)
            seen.add(wheel)
        self.assertEqual(seen, set(wheels.values()))

    def test_what_came_out_of_no_wheel_is_not_said_to_be_one(self):
        """Whatever wheels lie beside."""
        self.configure(WEIR_CUDA_EXTRAS=str(self.extras))
        toolkit, other = self.extras / "toolkit", self.folder / "cuda"
        both = "nvidia-cuda-runtime==13.0.96", "nvidia-cudnn-frontend==1.32.0"
        for at in (toolkit, self.extras, other):
            (at / "include").mkdir(parents=True)
            (at / "include/cuda_runtime_api.h").write_text(
                "#define CUDART_VERSION  13000\n", "ascii")
            (at / "include/cudnn_frontend_version.h").write_text("".join(
                f"#define CUDNN_FRONTEND_{part}_VERSION 2\n"
                for part in ("MAJOR", "MINOR", "PATCH")), "ascii")
        of_wheels = ["pkg:pypi/nvidia-cuda-runtime@13.0.96",
                     "pkg:pypi/nvidia-cudnn-frontend@1.32.0"]
        of_none = ["pkg:generic/nvidia-cuda-runtime@13.0",
                   "pkg:generic/nvidia-cudnn-frontend@2.2.2"]
        link = self.folder / "link"
        link.symlink_to(toolkit)
        for listed, compiled, expected in (
                (toolkit, toolkit, of_wheels), (toolkit, link, of_wheels),
                (toolkit, other, of_none), (toolkit, self.extras, of_none),
                (self.extras, self.extras, of_wheels),
                (self.extras, toolkit, of_none),
                (self.extras, other, of_none)):
            with self.subTest(listed=listed, compiled=compiled):
                for file in self.extras.rglob("wheels.txt"):
                    file.unlink()
                self.wheels(listed, *both)
                found = list(sbom.Cuda({
                    "WEIR_CUDA_EXTRAS": str(self.extras),
                    "WEIR_CUDART_STATIC": str(
                        compiled / "lib/libcudart_static.a"),
                    "WEIR_CUDART_INCLUDE": str(compiled / "include"),
                    "WEIR_CUDNN_FRONTEND_INCLUDE": str(compiled / "include"),
                }).parts())
                self.assertEqual([part.purl.to_string() for part in found],
                                 expected)
                self.assertEqual([len(part.hashes) for part in found],
                                 [int(expected is of_wheels)] * 2)


class Licenses(unittest.TestCase):
    """By Debian's copyright files, of both forms."""

    def test_they_have_the_names_of_spdx(self):
        root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for name, text, expected in (
                ("machine", "Format: https://www.debian.org\n\nFiles: *\n"
                 "License: GPL-2+\n\nFiles: a\nLicense: Expat\n\nFiles: b\n"
                 "License: LGPL-2.1\n\nLicense: GPL-2+\n Of the text.\n",
                 ["GPL-2.0-or-later", "MIT", "LGPL-2.1-only"]),
                ("people", "It is free. See\n"
                 "/usr/share/common-licenses/LGPL-3, or\n"
                 "/usr/share/common-licenses/Apache-2.0.\n",
                 ["LGPL-3.0-only", "Apache-2.0"]),
                ("neither", "It is free.\n",
                 ["see /usr/share/doc/neither/copyright"]),
                ("libstdc++6", "It is free.\n",
                 ["GPL-3.0-or-later WITH GCC-exception-3.1"])):
            folder = root / "usr/share/doc" / name
            folder.mkdir(parents=True)
            (folder / "copyright").write_text(text, "ascii")
            self.assertEqual([part.id or part.name for part
                              in sbom.debian_licenses(root, name)], expected)


if __name__ == "__main__":
    skipping.main()
