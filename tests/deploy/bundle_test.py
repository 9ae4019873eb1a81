#!/usr/bin/env python3
"""The bundle of this build: packed twice it has the same bytes, and its list of
parts names all that is in it. Skipped where no release build is."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

import skipping

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("WEIR_BIN_DIR", ROOT / "build/bin")).parent
sys.path.insert(0, str(ROOT / "cmake"))
sys.dont_write_bytecode = True
import build_id  # pylint: disable=wrong-import-position


def licenses(component):
    return [entry["license"].get("id") or entry["license"].get("name")
            for entry in component.get("licenses", [])]


class Bundle(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cache = (BUILD / "CMakeCache.txt").read_text("utf-8")
        if "CMAKE_BUILD_TYPE:STRING=Release" not in cache:
            raise unittest.SkipTest("not a release build")
        folder = pathlib.Path(cls.enterClassContext(
            tempfile.TemporaryDirectory()))
        cls.dist = cls.pack(folder / "one", 0o022)
        # All that could tell one time and one machine from another.
        cls.again = cls.pack(folder / "two", 0o077, 0o2755, TZ="Asia/Tokyo",
                             LC_ALL="C", USER="somebody")
        [cls.archive] = cls.dist.glob("*.tar.gz")
        [cls.parts] = cls.dist.glob("*.cdx.json")

    @classmethod
    def pack(cls, dist, umask, mode=0o755, **environment):
        dist.mkdir()
        dist.chmod(mode)
        done = cls.run_script(BUILD, dist, umask=umask, **environment)
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
        return dist

    @staticmethod
    def run_script(build, dist, umask=-1, **environment):
        return subprocess.run(
            [ROOT / "deploy" / "bundle.sh"], umask=umask, check=False,
            capture_output=True, text=True,
            env={**os.environ, **environment, "WEIR_BUILD_DIR": str(build),
                 "WEIR_DIST_DIR": str(dist)})

    @staticmethod
    def sums(folder):
        return {file.name: hashlib.sha256(file.read_bytes()).hexdigest()
                for file in folder.iterdir() if file.is_file()}

    def copy_of_build(self):
        """What is packed of it, in a folder that a test may change."""
        build = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for file in (*(BUILD / "bin").glob("weir*"),
                     *(BUILD / "lib").glob("libweir*.so"),
                     *(BUILD / "generated").glob("build_*"),
                     BUILD / "CMakeCache.txt"):
            copy = build / file.relative_to(BUILD)
            copy.parent.mkdir(exist_ok=True)
            shutil.copy(file, copy)
        return build

    def test_twice_it_has_the_same_bytes(self):
        sums = self.sums(self.dist)
        self.assertEqual(len(sums), 3, sums)
        self.assertEqual(sums, self.sums(self.again))

    def test_of_another_build_nothing_is_packed(self):
        """A library stays in the folder when a build makes it no more."""
        source = (BUILD / "generated/build_id.cc").read_text("ascii")
        mine = re.search(r'kBuildId\[\] = "(\w+)"', source)[1].encode()
        libraries = [*(BUILD / "lib").glob("libweir*.so")]
        self.assertGreater(len(libraries), 0)
        for name in ("bin/weir-server", "bin/weir",
                     *(f"lib/{library.name}" for library in libraries)):
            with self.subTest(name):
                build = self.copy_of_build()
                code = (build / name).read_bytes()
                (build / name).write_bytes(code.replace(mine, mine[::-1]))
                done = self.run_script(build, build / "dist")
                self.assertEqual(done.returncode, 1)
                self.assertIn(f"{build}/{name} is of another build",
                              done.stderr)
                self.assertFalse((build / "dist").exists())

    def test_one_that_does_not_run_is_not_left_behind(self):
        """What was packed before stays, with its checksum."""
        build = self.copy_of_build()
        dist = build / "dist"
        shutil.copytree(self.dist, dist)
        before = self.sums(dist)
        (build / "bin/weir").write_bytes(
            pathlib.Path("/bin/false").read_bytes() + re.search(
                r'"(\w+)"', (build / "generated/build_id.cc").read_text(
                    "ascii"))[1].encode())
        done = self.run_script(build, dist)
        self.assertEqual(done.returncode, 1)
        self.assertIn("bin/weir does not start", done.stderr)
        self.assertEqual(self.sums(dist), before)

    def test_checksums(self):
        said = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"],
                              cwd=self.dist, capture_output=True, check=True,
                              text=True)
        self.assertEqual(sorted(said.stdout.splitlines()), sorted(
            f"{file.name}: OK" for file in (self.archive, self.parts)))

    def test_the_list_of_parts_is_valid_and_in_the_archive_too(self):
        text = self.parts.read_text("utf-8")
        self.assertIsNone(
            JsonStrictValidator(SchemaVersion.V1_6).validate_str(text))
        with tarfile.open(self.archive) as archive:
            inside = {name.partition("/")[2]: name
                      for name in archive.getnames()}
            self.assertEqual(
                archive.extractfile(inside["share/sbom.cdx.json"]).read(),
                text.encode())
            self.assertEqual(
                archive.extractfile(inside["share/build_parts.txt"]).read(),
                (BUILD / "generated/build_parts.txt").read_bytes())

    def test_it_names_the_build(self):
        weir = json.loads(self.parts.read_text("utf-8"))["metadata"]["component"]
        said = subprocess.run([BUILD / "bin/weir", "--version"], check=True,
                              capture_output=True, text=True).stdout.split()
        self.assertEqual(["weir", weir["version"], "build",
                          weir["properties"][0]["value"]], said)
        self.assertEqual(licenses(weir), ["Apache-2.0"])

    def test_it_names_every_library_and_what_is_linked_statically(self):
        parts = json.loads(self.parts.read_text("utf-8"))["components"]
        by_name = {part["name"]: part for part in parts}
        self.assertEqual(len(by_name), len(parts))
        with tarfile.open(self.archive) as archive:
            files = [name.partition("/")[2] for name in archive.getnames()]
        libraries = {name for name in files if name.startswith("lib/")
                     and not name.startswith("lib/libweir")}
        notices = {re.sub(r".*/(.*)\.txt", r"\1", name) for name in files
                   if name.startswith("share/licenses/") and
                   name.endswith(".txt")}
        notices = {name for name in notices if not name.startswith("nvidia")}
        linked = {name for name, how in build_id.listed_packages().items()
                  if how == "part"}
        self.assertLessEqual(linked, notices)
        owners = notices - linked
        self.assertGreater(len(libraries), len(owners))
        cuda = set()
        if "lib/libweir_cuda.so" in files:
            cuda = {"nvidia-cuda-runtime"}
            cache = (BUILD / "CMakeCache.txt").read_text("utf-8")
            if re.search(r"WEIR_CUDNN_FRONTEND_INCLUDE:PATH=/", cache):
                cuda.add("nvidia-cudnn-frontend")
        self.assertEqual(set(by_name), owners | linked | cuda)
        for name, part in by_name.items():
            self.assertEqual(part["properties"], [{
                "name": "weir:how",
                "value": "library" if name in owners else "part"}])
            self.assertTrue(part["version"])
            self.assertIn(f"/{name.replace('+', '%2B')}@", part["purl"])
            self.assertTrue(licenses(part), name)
            self.assertNotRegex(" ".join(licenses(part)), "see /usr")
        for name in owners | linked:
            installed = subprocess.run(
                ["dpkg-query", "-W", "-f=${Version}", name], check=True,
                capture_output=True, text=True).stdout
            self.assertEqual(by_name[name]["version"], installed)
        self.assertIn("Apache-2.0", licenses(by_name["libgrpc-dev"]))


class Stage(unittest.TestCase):
    """What goes into an image, by a cmake that makes nothing."""

    PROGRAM = pathlib.Path("/bin/true").read_bytes()
    TOOLKIT = ("libnvrtc.so", "libnvrtc-builtins.so", "libcublasLt.so",
               "libnvjpeg.so", "libcudnn.so", "libcudnn_graph.so",
               "libcudnn_ops.so", "libcudnn_cnn.so", "libcudnn_heuristic.so",
               "libcudnn_engines_precompiled.so",
               "libcudnn_engines_runtime_compiled.so")

    def setUp(self):
        self.tree = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory()))
        self.share = self.tree / "out/usr/local/share/weir"
        build = b'kBuildId[] = "0f0f"'
        for name, text in {
                "LICENSE": b"", "cmake/linked_packages.txt": b"",
                "build/generated/build_parts.txt": b"",
                "build/generated/build_id.cc": build,
                "build/bin/weir-server": self.PROGRAM + b"0f0f",
                "build/bin/weir": self.PROGRAM + b"0f0f",
                "build/lib/libweir.so": self.PROGRAM + b"0f0f",
                "bin/cmake": b"#!/bin/sh\n"}.items():
            self.write(name, text)
        (self.tree / "deploy").symlink_to(ROOT / "deploy")

    def write(self, name, content):
        file = self.tree / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        file.chmod(0o755)

    def run_script(self, *command, **environment):
        return subprocess.run(
            command, check=False, capture_output=True, text=True,
            env={**os.environ, "PATH": f"{self.tree}/bin:{os.environ['PATH']}",
                 **environment})

    def stage(self, **environment):
        return self.run_script(self.tree / "deploy/stage_image.sh",
                               self.tree / "out", **environment)

    def test_of_another_build_nothing_is_staged(self):
        self.write("build/lib/libweir_cuda.so", b"f0f0")
        done = self.stage()
        self.assertEqual(done.returncode, 1)
        self.assertIn("build/lib/libweir_cuda.so is of another build",
                      done.stderr)
        self.assertFalse((self.tree / "out").exists())

    def test_a_toolkit_that_is_not_of_wheels_has_no_licenses_of_theirs(self):
        self.write("build/lib/libweir_cuda.so", self.PROGRAM + b"0f0f")
        self.write("build/CMakeCache.txt", b"WEIR_NVCC:FILEPATH=%s\n" % bytes(
            self.tree / "toolkit/bin/nvcc"))
        self.write("toolkit/bin/nvcc", b"")
        for library in self.TOOLKIT:
            self.write(f"toolkit/lib64/{library}.13", self.PROGRAM)
        done = self.stage(WEIR_CUDA_EXTRAS=str(self.tree / "no-wheels"))
        self.assertEqual(done.returncode, 0, done.stderr)
        libraries = self.tree / "out/usr/local/lib"
        self.assertTrue((libraries / "libnvrtc.so.13").exists())
        self.assertFalse((self.share / "licenses").exists())

    def test_an_image_has_the_packages_that_its_programs_were_made_with(self):
        """Or is not made: its build id would name another."""
        self.write("build/generated/build_parts.txt",
                   b"source 0f CMakeLists.txt\n"
                   b"package libssl3 1:3.0.19-2+b1\n"
                   b"package libgrpc-dev 1.51.1\n")
        self.assertEqual(self.stage().returncode, 0)
        # Of an image in which nothing is installed or removed.
        for name in ("apt-get", "ldconfig", "rm"):
            self.write(f"bin/{name}", b"#!/bin/sh\n")
        same = "installed 1:3.0.19-2+b1"
        for installed, other in (
                (same, None), (f"{same}\\n{same}", None),
                ("config-files 1:3.0.18-1", None),
                ("installed 1:3.0.19-2+b2", "1:3.0.19-2+b2"),
                ("installed 3.0.19-2+b1", "3.0.19-2+b1")):
            self.write("bin/dpkg-query", b'#!/bin/sh\n'
                       b'[ "$3" = libssl3 ] || exit 1\n'
                       b"printf '%%b\\n' '%s'\n" % installed.encode())
            with self.subTest(installed=installed):
                done = self.run_script(self.share / "install_packages.sh")
                self.assertEqual(done.returncode, 1 if other else 0,
                                 done.stderr)
                if other:
                    self.assertIn("--no-cache --pull", done.stderr)
                    self.assertIn("  libssl3: built against 1:3.0.19-2+b1, "
                                  f"here {other}\n", done.stderr)


if __name__ == "__main__":
    skipping.main()
