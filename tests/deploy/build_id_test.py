#!/usr/bin/env python3
"""The build id: the same for the same tree, settings and dependencies, wherever
they are, and another for anything else. cmake/linked_packages.txt names what the
build of this machine was made of."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import skipping

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("WEIR_BIN_DIR", ROOT / "build/bin")).parent
sys.path.insert(0, str(ROOT / "cmake"))
sys.dont_write_bytecode = True
import build_id  # pylint: disable=wrong-import-position

PARTS = ("CMakeLists.txt", "cmake", "kernels", "server", "client", "proto")

# CUDA counts by its files, whether or not NVIDIA's packages brought it.
NVIDIAS = re.compile(r"cuda-|libcu(blas|fft|dnn)|cudnn|libnv")

# dpkg-query with a version of its own for the package $CHANGED.
DPKG_QUERY = """#!/bin/sh
{real} "$@" | sed "s/^\\($CHANGED\\(:[a-z0-9]*\\)\\?\\t\\)[^\\t]*/\\1 9.9/"
"""

# Prints the id, as the programs do.
PROGRAM = """
#include <cstdio>
#include "kernels/base/build_info.h"
int main() { std::printf("%s %s", weir::kVersion, weir::kBuildId); }
"""
PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(weir VERSION 0.1.0 LANGUAGES CXX)
list(APPEND CMAKE_MODULE_PATH "${PROJECT_SOURCE_DIR}/cmake")
include(WeirBuildInfo)
add_executable(program kernels/main.cc $<TARGET_OBJECTS:weir_build_id>)
target_link_libraries(program PRIVATE weir_dependencies)
target_include_directories(program PRIVATE "${WEIR_GENERATED_DIR}")
"""
# Instead of Debian's.
ELSEWHERE = """
add_library(ZLIB::ZLIB SHARED IMPORTED)
set_target_properties(ZLIB::ZLIB PROPERTIES IMPORTED_LOCATION "%s")
"""


def git(folder, *command):
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@example.org",
                    *command], cwd=folder, check=True,
                   stdout=subprocess.DEVNULL)


class Folder(unittest.TestCase):
    """A copy of the tree, and its id before a test changes it."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory()))
        self.tree = self.copy("tree")
        self.before = self.id_of(self.tree)

    def copy(self, name):
        tree = self.folder / name
        tree.mkdir()
        for part in PARTS:
            source = ROOT / part
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, tree / part)
        return tree

    def id_of(self, tree, *arguments, **environment):
        return subprocess.run(
            [tree / "cmake" / "build_id.py", *arguments], check=True,
            stdout=subprocess.PIPE, encoding="ascii",
            env={**os.environ, **environment}).stdout.strip()

    def change(self, name, text="\n"):
        path = self.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)


class Tree(Folder):

    def test_it_is_a_hash(self):
        self.assertRegex(self.before, "^[0-9a-f]{16}$")

    def test_another_path_and_other_times_do_not_count(self):
        other = self.copy("a longer name")
        for path in other.rglob("*"):
            os.utime(path, (1, 1))
        self.assertEqual(self.id_of(other), self.before)

    def test_git_does_not_count(self):
        git(self.tree, "init", "--quiet")
        git(self.tree, "add", ".")
        git(self.tree, "commit", "--quiet", "-m", "first")
        self.assertEqual(self.id_of(self.tree), self.before)
        git(self.tree, "commit", "--quiet", "--allow-empty", "-m", "second")
        self.assertEqual(self.id_of(self.tree), self.before)
        # What is not committed does.
        self.change("server/main.cc")
        self.assertNotEqual(self.id_of(self.tree), self.before)
        git(self.tree, "checkout", "--quiet", ".")
        self.assertEqual(self.id_of(self.tree), self.before)

    def test_a_container_build_sees_the_same(self):
        """What .dockerignore lets into the context."""
        lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
        kept = [line[1:] for line in lines if line.startswith("!")]
        context = self.folder / "context"
        for name in kept:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, context / name,
                                ignore=shutil.ignore_patterns("__pycache__"))
            else:
                (context / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, context / name)
        self.assertEqual(self.id_of(context), self.before)

    def test_every_source_counts(self):
        for name in ("server/main.cc", "kernels/base/mutex.h",
                     "kernels/ops/ops.def", "kernels/ops/cuda/random.cuh",
                     "kernels/ops/cuda/sources.cc.in", "client/cli/main.cc",
                     "proto/weir/v1/graph.proto", "server/CMakeLists.txt",
                     "cmake/WeirCompiler.cmake", "CMakeLists.txt"):
            with self.subTest(name):
                old = (self.tree / name).read_bytes()
                self.change(name)
                self.assertNotEqual(self.id_of(self.tree), self.before)
                (self.tree / name).write_bytes(old)
        self.assertEqual(self.id_of(self.tree), self.before)

    def test_a_new_source_and_a_new_name_count(self):
        self.change("kernels/ops/new_family.cc")
        self.assertNotEqual(self.id_of(self.tree), self.before)
        (self.tree / "kernels/ops/new_family.cc").unlink()
        (self.tree / "server/main.cc").rename(self.tree / "server/main2.cc")
        self.assertNotEqual(self.id_of(self.tree), self.before)

    def test_what_is_in_no_program_does_not_count(self):
        for name in ("README.md", "docs/limits.md", "tests/server/a_test.cc",
                     "deploy/bundle.sh", "cmake/WeirTest.cmake",
                     "kernels/notes.md", "server/.#main.cc", "server/main.cc~",
                     "build/generated/a.cc"):
            self.change(name)
        self.assertEqual(self.id_of(self.tree), self.before)

    def test_what_is_in_the_folders_is_a_source_or_known_to_be_none(self):
        files = subprocess.run(
            ["git", "ls-files", *build_id.FOLDERS], cwd=ROOT,
            capture_output=True, check=False, encoding="utf-8").stdout
        names = files.splitlines() or [  # not git's
            str(path.relative_to(ROOT)) for top in build_id.FOLDERS
            for path in sorted((ROOT / top).rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts]
        # What is in Python says which version it has by its own number.
        others = [name for name in names if not build_id.is_source(name)
                  and not name.startswith("client/python/")]
        self.assertEqual(others, [
            "cmake/WeirTest.cmake", "cmake/build_id.py",
            "cmake/linked_packages.txt", "cmake/tsan.supp",
            "cmake/tsan_status.cc"])

    def test_settings_compilers_and_files_count(self):
        compiler = self.folder / "c++"
        header = self.folder / "cuda.h"

        def with_these(setting="type=Release", version="12", text="13000"):
            compiler.write_text(
                f"#!/bin/sh\necho $(basename $0) {version}\n", "utf-8")
            compiler.chmod(0o755)
            header.write_text(text, "utf-8")
            return self.id_of(self.tree, "--setting", setting, "--compiler",
                              compiler, "--file", f"cuda.h={header}")
        ids = [with_these(), with_these(setting="type=Debug"),
               with_these(version="13"), with_these(text="13010")]
        self.assertEqual(len(set(ids)), 4)
        self.assertEqual(with_these(), ids[0])
        compiler = self.folder / "g++"  # the same by another name
        self.assertEqual(with_these(), ids[0])

    def test_a_dependency_of_no_package_counts_by_its_bytes(self):
        def with_this(path):
            return self.id_of(self.tree, "--dependency", path)
        one, other = (self.folder / name / "liba.so" for name in ("a", "b"))
        for path in (one, other):
            path.parent.mkdir()
            path.write_text("1", "ascii")
        self.assertNotEqual(with_this(one), self.before)
        self.assertEqual(with_this(one), with_this(other))
        other.write_text("2", "ascii")
        self.assertNotEqual(with_this(one), with_this(other))
        if build_id.Packages().known:
            self.assertEqual(with_this("/usr/bin/env"), self.before)


class Packages(Folder):
    """What dpkg says is installed."""

    def setUp(self):
        super().setUp()
        real = shutil.which("dpkg-query")
        if real is None:
            self.skipTest("no dpkg here")
        fake = self.folder / "bin" / "dpkg-query"
        fake.parent.mkdir()
        fake.write_text(DPKG_QUERY.format(real=real), "ascii")
        fake.chmod(0o755)

    def with_another(self, package):
        return self.id_of(self.tree, CHANGED=package,
                          PATH=f"{self.folder}/bin:{os.environ['PATH']}")

    def test_a_dependency_of_another_version_counts(self):
        self.assertEqual(self.with_another("no-such-package"), self.before)
        # An archive, headers alone, a shared library, a library's library, and
        # what makes code.
        for package in ("libgrpc-dev", "nlohmann-json3-dev", "libssl3",
                        "libffi8", "protobuf-compiler", "binutils"):
            self.assertNotEqual(self.with_another(package), self.before, package)

    def test_what_programs_are_not_made_of_does_not_count(self):
        for package in ("linux-libc-dev", "libcurl4"):
            self.assertEqual(self.with_another(package), self.before, package)


class Dpkg:
    """What dpkg has installed, as the test has it from here on."""

    def __init__(self, test):
        real = pathlib.Path("/var/lib/dpkg/status")
        if not real.exists():
            test.skipTest("no dpkg here")
        folder = test.folder / "dpkg"
        folder.mkdir()
        self.status = folder / "status"
        shutil.copy(real, self.status)
        test.enterContext(unittest.mock.patch.dict(
            os.environ, DPKG_ADMINDIR=str(folder)))

    def upgrade(self, package):
        known, changes = re.subn(
            rf"(?m)^Package: {package}\n(?:.+\n)*?Version: .*", r"\g<0>.9",
            self.status.read_text("utf-8"))
        assert changes > 0, package
        self.status.write_text(known, "utf-8")


class Whole(Folder):
    """The tree itself, configured."""

    def commands(self):
        """Source to the command that compiles it."""
        build = self.tree / "build"
        subprocess.run(["cmake", "-G", "Ninja", "-S", self.tree, "-B", build,
                        "-DBUILD_TESTING=OFF"], check=True,
                       stdout=subprocess.DEVNULL)
        return {entry["file"]: entry["command"] for entry in json.loads(
            (build / "compile_commands.json").read_text("utf-8"))}

    def test_of_every_dependency_a_file_is_looked_at(self):
        """And what makes code of ours: by its name, without versions."""
        Dpkg(self)  # Debian's packages bring them
        self.commands()
        rules = (self.tree / "build/build.ninja").read_text("utf-8")
        names = {re.sub(r"(\.so|\.a|-?[cC]onfig\.cmake)\b.*", "",
                        os.path.basename(path))
                 for path in re.findall(r" --dependency (\S+)", rules)}
        self.assertEqual(names, {
            "CLI11", "fmt", "nlohmann_json", "spdlog",  # headers alone
            "libaddress_sorting", "libgpr", "libgrpc", "libgrpc++",
            "libgrpc++_reflection", "libupb",
            "libabsl_strings", "libdnnl", "libhwy", "libjpeg", "libmicrohttpd",
            "libonnx_proto", "libprometheus-cpp-core", "libprotobuf",
            "libspng", "libssl", "libz",
            "protoc", "grpc_cpp_plugin"})

    def test_every_source_is_compiled_again_with_other_packages(self):
        packages = Dpkg(self)
        before = self.commands()
        self.assertGreater(len(before), 100)
        packages.upgrade("dpkg")  # no program is made of it
        self.assertEqual(self.commands(), before)
        packages.upgrade("libssl-dev")
        after = self.commands()
        same = {file for file in before if before[file] == after[file]}
        self.assertEqual(same, {f"{self.tree}/build/generated/build_id.cc"})


class Build(Folder):
    """A small program with an id."""

    def setUp(self):
        super().setUp()
        if shutil.which("cmake") is None or shutil.which("ninja") is None:
            self.skipTest("no cmake and ninja")
        (self.tree / "CMakeLists.txt").write_text(PROJECT, "utf-8")
        (self.tree / "kernels/main.cc").write_text(PROGRAM, "utf-8")
        self.build = self.tree / "build"
        self.configure()

    def configure(self, *arguments, **environment):
        subprocess.run(["cmake", "-G", "Ninja", "-S", self.tree, "-B",
                        self.build, *arguments], check=True,
                       stdout=subprocess.DEVNULL,
                       env={**os.environ, **environment})

    def make(self):
        """Returns what the program says and what the build said."""
        said = subprocess.run(["cmake", "--build", self.build], check=True,
                              stdout=subprocess.PIPE, encoding="utf-8").stdout
        program = subprocess.run([self.build / "program"], check=True,
                                 stdout=subprocess.PIPE, encoding="ascii")
        return program.stdout, said

    def test_it_is_renewed_when_something_changed_and_then_alone(self):
        first, _ = self.make()
        self.assertRegex(first, "^0.1.0 [0-9a-f]{16}$")
        self.assertEqual(self.make(), (first, "ninja: no work to do.\n"))
        # Touched alone: it is looked at, and nothing is compiled or linked.
        (self.tree / "server/main.cc").touch()
        again, said = self.make()
        self.assertEqual(again, first)
        self.assertNotIn("Linking", said)
        self.assertIn("no work", self.make()[1])
        old = (self.tree / "server/main.cc").read_bytes()
        self.change("server/main.cc")
        changed, _ = self.make()
        self.assertNotEqual(changed, first)
        (self.tree / "server/main.cc").write_bytes(old)
        self.assertEqual(self.make()[0], first)
        self.change("server/services/new.h")
        self.assertNotEqual(self.make()[0], first)
        (self.tree / "server/services/new.h").unlink()
        self.assertEqual(self.make()[0], first)
        self.assertEqual(self.make(), (first, "ninja: no work to do.\n"))

    def test_two_build_folders_make_the_same(self):
        first, _ = self.make()
        self.build.rename(self.folder / "gone")
        other = self.folder / "other"
        self.tree.rename(other)
        self.tree, self.build = other, other / "build in here"
        self.configure()
        self.assertEqual(self.make()[0], first)

    def test_what_makes_other_bytes_makes_another_id(self):
        self.configure("-DCMAKE_BUILD_TYPE=Debug")
        ids = [self.make()[0]]
        header = self.folder / "cuda.h"
        header.write_text("#define CUDA_VERSION 13000", "ascii")
        mold = self.folder / "mold"
        mold.write_text("#!/bin/sh\necho mold 1.0\n", "ascii")
        mold.chmod(0o755)
        for setting in ("CMAKE_INTERPROCEDURAL_OPTIMIZATION=ON",
                        "CMAKE_CXX_FLAGS=-O1", "CMAKE_CXX_FLAGS_DEBUG=-O2",
                        "CMAKE_EXE_LINKER_FLAGS=-Wl,-O2",
                        "CMAKE_EXE_LINKER_FLAGS_DEBUG=-Wl,-O1",
                        "CMAKE_SHARED_LINKER_FLAGS_DEBUG=-Wl,-O1",
                        "WEIR_SANITIZE=thread", "WEIR_FUZZ=ON",
                        "WEIR_CUDA_ENABLED=TRUE", f"WEIR_MOLD={mold}",
                        f"WEIR_CUDA_VERSION_FILES={header}"):
            self.configure(f"-D{setting}")
            ids.append(self.make()[0])
        self.assertEqual(len(set(ids)), len(ids), ids)

    def test_all_is_compiled_again_with_another_version_of_a_package(self):
        packages = Dpkg(self)
        header = self.folder / "package.h"

        def install(package, text):
            """As dpkg does: files have the times that they have in archives."""
            header.write_text(f'#define SAYS "{text}"\n', "ascii")
            os.utime(header, (1, 1))
            packages.upgrade(package)

        self.change("kernels/main.cc", f"""
#include "{header}"
[[maybe_unused]] const bool said = std::printf("%s ", SAYS) > 0;
""")
        install("zlib1g-dev", "old")
        self.configure()
        old, _ = self.make()
        self.assertTrue(old.startswith("old "), old)
        install("zlib1g-dev", "new")
        new, _ = self.make()
        self.assertTrue(new.startswith("new "), new)
        self.assertNotEqual(new.split()[-1], old.split()[-1])
        # Programs are not made of every package.
        install("dpkg", "new")
        again, said = self.make()
        self.assertEqual(again, new)
        self.assertNotIn("Building", said)

    def test_a_library_from_elsewhere_makes_another_id(self):
        first, _ = self.make()
        library = self.folder / "libz.so"
        library.write_text("1", "ascii")
        with open(self.tree / "cmake/WeirBuildInfo.cmake", "r+",
                  encoding="utf-8") as file:
            text = file.read()
            file.seek(0)
            file.write(ELSEWHERE % library + text)
        one, _ = self.make()
        self.assertNotEqual(one, first)
        library.write_text("2", "ascii")
        two, _ = self.make()
        self.assertNotEqual(two, one)
        parts = (self.build / "generated/build_parts.txt").read_text("utf-8")
        self.assertRegex(parts, "(?m)^elsewhere [0-9a-f]{64} libz.so$")


class Linked(unittest.TestCase):
    """The list against what this build read, and what its programs load."""

    @classmethod
    def setUpClass(cls):
        if not (BUILD / "build.ninja").exists() or shutil.which("dpkg") is None:
            raise unittest.SkipTest("no build by ninja on Debian here")
        cls.owners = {}
        for file in pathlib.Path("/var/lib/dpkg/info").glob("*.list"):
            package = file.name.removesuffix(".list").split(":")[0]
            for line in file.read_text("utf-8").splitlines():
                cls.owners[line] = package
        cls.listed = build_id.listed_packages()

    def owner(self, path):
        real = os.path.realpath(path)
        # Debian's packages may still say /lib where files lie in /usr/lib.
        return next(filter(None, map(self.owners.get, (
            path, real, real.removeprefix("/usr")))), None)

    def named(self, *ways):
        return {name for name, how in self.listed.items() if how in ways}

    def test_headers(self):
        cache = (BUILD / "CMakeCache.txt").read_text("utf-8")
        if re.search(r"(?m)^CMAKE_CXX_COMPILER:.*clang", cache):
            self.skipTest("clang has headers of its own for some of GCC's")
        deps = subprocess.run(["ninja", "-C", BUILD, "-t", "deps"], check=True,
                              stdout=subprocess.PIPE, encoding="utf-8").stdout
        files = set()
        ours = False
        for line in deps.splitlines():
            if not line.startswith(" "):
                ours = line.startswith(("kernels/", "server/", "client/",
                                        "proto/"))
            elif ours:
                files.add(line.strip())
        self.assertGreater(len(files), 100)
        read = {self.owner(file) for file in files if file.startswith("/usr/")}
        # What is not Debian's is CUDA's; clang's own is told by its version.
        read = {name for name in read if name and not NVIDIAS.match(name)
                and not name.startswith("libclang")}
        self.assertEqual(read - {"linux-libc-dev"},
                         self.named("part", "headers"))

    def test_archives(self):
        commands = subprocess.run(
            ["ninja", "-C", BUILD, "-t", "commands", "programs"], check=True,
            stdout=subprocess.PIPE, encoding="utf-8").stdout
        archives = {word for word in commands.split()
                    if word.startswith("/usr/") and word.endswith(".a")}
        owners = {name for name in map(self.owner, archives)
                  if name and not NVIDIAS.match(name)}
        self.assertEqual(owners, {"libgrpc-dev", "libgrpc++-dev"})
        self.assertLessEqual(owners, self.named("part"))

    def test_tools(self):
        commands = subprocess.run(
            ["ninja", "-C", BUILD, "-t", "commands", "programs"], check=True,
            stdout=subprocess.PIPE, encoding="utf-8").stdout
        tools = set(re.findall(r"/[^\s=]+/(?:protoc|grpc_cpp_plugin)(?=\s)",
                               commands))
        self.assertEqual(len(tools), 2, tools)
        cache = (BUILD / "CMakeCache.txt").read_text("utf-8")
        compiler = re.search(r"(?m)^CMAKE_CXX_COMPILER:\w+=(.*)$", cache)[1]
        for name in ("as", "ld"):
            told = subprocess.run([compiler, f"-print-prog-name={name}"],
                                  check=True, stdout=subprocess.PIPE,
                                  encoding="utf-8").stdout.strip()
            tools.add(shutil.which(told))
        self.assertEqual({self.owner(tool) for tool in tools},
                         self.named("tool"))

    def test_libraries(self):
        programs = [BUILD / "bin/weir-server", BUILD / "bin/weir",
                    *(BUILD / "lib").glob("libweir*.so")]
        said = subprocess.run(["ldd", *programs], check=True,
                              stdout=subprocess.PIPE, encoding="utf-8").stdout
        paths = {line.split()[2] for line in said.splitlines()
                 if "=> /" in line}
        loaded = {self.owner(path) for path in paths
                  if not path.startswith(str(BUILD))}
        packages = build_id.Packages()
        counted = packages.libraries_of(self.named("library"))
        # A package of a name alone, without libraries.
        self.assertEqual(loaded, counted - {"gcc-12-base"})

    def test_the_programs_carry_the_id_of_their_build(self):
        said = (BUILD / "generated/build_id.cc").read_text("utf-8")
        for program in ("weir-server", "weir"):
            version = subprocess.run(
                [BUILD / "bin" / program, "--version"], check=True,
                stdout=subprocess.PIPE, encoding="ascii").stdout
            name, _, word, build = version.split()
            self.assertEqual((name, word), (program, "build"))
            self.assertIn(f'"{build}"', said)
        for library in (BUILD / "lib").glob("libweir*.so"):
            self.assertIn(build.encode(), library.read_bytes(), library.name)

    def test_a_server_refuses_the_library_of_another_build(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for part in ("bin", "lib"):
            (folder / part).mkdir()
        server = shutil.copy(BUILD / "bin/weir-server", folder / "bin")
        library = folder / "lib/libweir.so"
        code = (BUILD / "lib/libweir.so").read_bytes()

        def start():
            return subprocess.run([server, "--version"], check=False,
                                  capture_output=True, encoding="utf-8")

        library.write_bytes(code)
        same = start()
        self.assertEqual((same.returncode, same.stderr), (0, ""))
        build = same.stdout.split()[-1]
        other = build[::-1]
        library.write_bytes(code.replace(build.encode(), other.encode()))
        refused = start()
        self.assertEqual((refused.returncode, refused.stdout), (1, ""))
        self.assertEqual(refused.stderr, (
            f"weir-server: is of build {build}, libweir.so of build {other}: "
            "both must be of one\n"))


if __name__ == "__main__":
    skipping.main()
