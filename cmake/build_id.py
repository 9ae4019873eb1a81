#!/usr/bin/env python3
"""Names a build by what goes into its programs.

    build_id.py [--setting NAME=VALUE ...] [--compiler PROGRAM ...]
                [--file NAME=PATH ...] [--dependency PATH ...]
                [--out FILE.cc] [--list FILE] [--depfile FILE]
                [--stamp FILE]

The id is a hash over a list of lines, which --list keeps for whoever asks how two
builds differ:

    source   SHA-256 of each file that can change a program, and its name
    package  each Debian package of cmake/linked_packages.txt, and each whose
             shared libraries those need that are loaded, with its version
    tool     what each compiler says of itself
    file     SHA-256 of what comes from no package, such as CUDA's headers
    elsewhere  SHA-256 of each --dependency that is no package's, and its name
    setting  the build's type, flags, and what else CMake decided

Nothing else goes in: no time, no path, nothing of git's. So two builds have the
same id if nothing of that differs, wherever and however often they are made.
Prints the id; FILE.cc defines it and is touched only if it changed. So is the
file of --stamp, alone if given, of the lines about packages, tools and files: on
a change of these all is to be compiled again, which times do not tell, as
packages bring their files with old ones.
"""

import argparse
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]

# What programs are made of. Tests, documents and scripts of deploy/ are not, nor
# what only tests read of cmake/.
FOLDERS = ("kernels", "server", "client", "proto", "cmake")
SOURCES = {".cc", ".h", ".cuh", ".def", ".in", ".proto", ".cmake", ".sh"}
NO_PART = {"cmake/WeirTest.cmake", "cmake/tsan_status.cc"}
PACKAGES = ROOT / "cmake" / "linked_packages.txt"
DPKG_STATUS = pathlib.Path(os.environ.get("DPKG_ADMINDIR", "/var/lib/dpkg"),
                           "status")


def is_source(name):
    """Of a path from the root on."""
    file = os.path.basename(name)
    if name in NO_PART or file.startswith("."):
        return False
    return (name.startswith(tuple(f"{folder}/" for folder in FOLDERS)) and
            (file == "CMakeLists.txt" or
             os.path.splitext(file)[1] in SOURCES)) or (
                 name == "CMakeLists.txt")


def find_sources(root):
    """Returns the sources' names, and the folders that may get more."""
    names, folders = ["CMakeLists.txt"], []
    for top in FOLDERS:
        for folder, below, files in os.walk(root / top):
            below[:] = [name for name in below
                        if not name.startswith((".", "__"))]
            folders.append(folder)
            relative = os.path.relpath(folder, root)
            names += [f"{relative}/{file}" for file in files]
    return sorted(name for name in names if is_source(name)), folders


def sha256(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def listed_packages(path=PACKAGES):
    """The packages of the list, each with how it gets into the programs."""
    lines = path.read_text(encoding="ascii").splitlines()
    return dict(line.split() for line in lines
                if line and not line.startswith("#"))


class Packages:
    """What dpkg has installed."""

    FIELDS = ("binary:Package", "Version", "Section", "db:Status-Status",
              "Depends", "Pre-Depends")

    def __init__(self):
        self.known = {}
        if shutil.which("dpkg-query") is None:
            return
        lines = subprocess.run(
            ["dpkg-query", "-W",
             "-f=" + "\t".join(f"${{{f}}}" for f in self.FIELDS) + "\n"],
            check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout
        for line in lines.splitlines():
            name, version, section, state, *needs = line.split("\t")
            if state == "installed":
                self.known[name.split(":")[0]] = (
                    version, section, ", ".join(filter(None, needs)))

    def version(self, name):
        return self.known.get(name, ("none",))[0]

    def own(self, path):
        """Whether the file is a package's: all is that is below /usr."""
        real = os.path.realpath(path)
        return (bool(self.known) and real.startswith("/usr/")
                and not real.startswith("/usr/local/"))

    def libraries_of(self, names):
        """These and the packages of libraries that they need, all the way
        down."""
        found, left = set(), list(names)
        while left:
            name = left.pop()
            if name in found:
                continue
            found.add(name)
            for choice in self.known.get(name, ("", "", ""))[2].split(","):
                for need in choice.split("|"):
                    need = re.sub(r"[:\s(].*", "", need.strip())
                    if need in self.known:
                        section = self.known[need][1].split("/")[-1]
                        if section == "libs":
                            left.append(need)
                        break
        return found

    def of_programs(self):
        """All that programs are made of, as linked_packages.txt has it."""
        listed = listed_packages()
        loaded = [name for name, how in listed.items() if how == "library"]
        return sorted({*listed, *self.libraries_of(loaded)})


def says_of_itself(program):
    """Without its name: `c++` and `g++` are one."""
    done = subprocess.run([program, "--version"], check=True,
                          stdout=subprocess.PIPE, encoding="utf-8")
    said = done.stdout.splitlines()[0].strip()
    return said.removeprefix(f"{os.path.basename(program)} ")


def describe(root, arguments):
    """Returns the list, and what it was read from."""
    sources, read = find_sources(root)
    lines = [f"source {sha256(root / name)} {name}" for name in sources]
    read += [str(root / name) for name in sources]
    packages = Packages()
    lines += [f"package {name} {packages.version(name)}"
              for name in packages.of_programs()]
    if DPKG_STATUS.exists():
        read.append(str(DPKG_STATUS))
    lines += [f"tool {says_of_itself(program)}"
              for program in arguments.compiler]
    for name, path in sorted(pair.split("=", 1) for pair in arguments.file):
        lines.append(f"file {sha256(path)} {name}")
        read.append(path)
    for path in sorted(set(arguments.dependency), key=os.path.basename):
        if not packages.own(path):
            lines.append(f"elsewhere {sha256(path)} {os.path.basename(path)}")
            read.append(path)
    lines += [f"setting {pair}" for pair in sorted(arguments.setting)]
    return "".join(f"{line}\n" for line in lines), read


def write_if_changed(path, text):
    path = pathlib.Path(path)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser()
    for name in ("setting", "compiler", "file", "dependency"):
        parser.add_argument(f"--{name}", action="append", default=[])
    for name in ("out", "list", "depfile", "stamp"):
        parser.add_argument(f"--{name}")
    arguments = parser.parse_args()
    text, read = describe(ROOT, arguments)
    if arguments.stamp:
        write_if_changed(arguments.stamp, "".join(
            line for line in text.splitlines(keepends=True)
            if line.startswith(("package ", "tool ", "file "))))
        return
    build_id = hashlib.sha256(text.encode()).hexdigest()[:16]
    if arguments.list:
        write_if_changed(arguments.list, text)
    if arguments.out:
        write_if_changed(arguments.out, f"""\
// Generated by cmake/build_id.py.
namespace weir {{

extern const char kBuildId[];
const char kBuildId[] = "{build_id}";

}}  // namespace weir
""")
    if arguments.depfile:
        escaped = [path.replace(" ", "\\ ") for path in read]
        pathlib.Path(arguments.depfile).write_text(
            f"{arguments.out}: {' '.join(escaped)}\n", encoding="utf-8")
    print(build_id)


if __name__ == "__main__":
    sys.exit(main())
