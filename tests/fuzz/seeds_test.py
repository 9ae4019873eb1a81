#!/usr/bin/env python3
"""Whether the seeds of a fuzz target reach what they are for.

    seeds_test.py PROGRAM FOLDER_OF_SEEDS [--all]

Runs the target over its seeds alone and counts, by source file, the edges of
the control flow that were taken. floors.json says, for each target, of which
files and how many per cent there must be (docs/testing.md). --all shows the
figures of all files that are reached.

An edge counts for the file of the function that it was compiled into, as it
does for libFuzzer's own -print_coverage, which takes minutes.
"""

import collections
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# "INFO: Loaded 2 PC tables (9 PCs): 5 [0x1f,0x2f), 4 [0x3f,0x4f), "
TABLES = re.compile(r"^INFO: Loaded \d+ PC tables .*?: (.*)$", re.MULTILINE)
RELATIVE, SYMBOLIC = 8, 1  # relocations of x86-64


def run(target, seeds, control):
    """Returns the sizes of the target's tables of edges, in their order, and
    the numbers of those that the seeds take, counted through all tables."""
    done = subprocess.run([target, "-runs=0", "-timeout=60", seeds],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace")
    if done.returncode != 0:
        sys.exit(f"{target} failed over its seeds:\n{done.stdout[-3000:]}")
    sizes = [int(size) for size in
             re.findall(r"(\d+) \[", TABLES.search(done.stdout)[1])]
    # What a merge writes down for each seed.
    with tempfile.TemporaryDirectory() as empty:
        subprocess.run([target, "-merge=1", f"-merge_control_file={control}",
                        empty, seeds], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=True)
    taken = set()
    for line in pathlib.Path(control).read_text().splitlines():
        if line.startswith("COV "):
            taken.update(int(number) for number in line.split()[2:])
    return sizes, taken


def objects(target):
    """Returns the target and the libraries of its build that it loads."""
    build = target.resolve().parents[1]
    listed = subprocess.run(["ldd", target], stdout=subprocess.PIPE, text=True,
                            check=True).stdout
    paths = [pathlib.Path(name).resolve()
             for name in re.findall(r"=> (\S+) \(", listed)]
    return [target] + [path for path in paths if path.is_relative_to(build)]


def functions(name):
    """Returns the addresses of edges, entry first, of each function of an
    object file: what its table __sancov_pcs will say when it is loaded."""
    content = pathlib.Path(name).read_bytes()
    at, = struct.unpack_from("<Q", content, 0x28)
    size, count, names = struct.unpack_from("<HHH", content, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", content, at + i * size)
               for i in range(count)]
    sections = {}
    for header in headers:
        start = headers[names][4] + header[0]
        section = content[start:content.index(b"\0", start)].decode()
        sections[section] = (header[3], content[header[4]:header[4] + header[5]])

    start, table = sections["__sancov_pcs"]
    symbols = [value for _, _, _, _, value, _ in
               struct.iter_unpack("<IBBHQQ", sections[".dynsym"][1])]
    address = {}
    for where, what, addend in struct.iter_unpack(
            "<QQq", sections[".rela.dyn"][1]):
        if start <= where < start + len(table):
            assert what & 0xFFFFFFFF in (RELATIVE, SYMBOLIC)
            address[where - start] = symbols[what >> 32] + addend
    found = []
    for i, (_, flags) in enumerate(struct.iter_unpack("<QQ", table)):
        if flags & 1:  # the entry of a function
            found.append([])
        # None: the linker left the code out.
        found[-1].append(address.get(16 * i, 0))
    return found


def in_tree(path):
    """The file of this tree that `path` names, wherever it was compiled: with a
    cache of the compiler it may have been elsewhere."""
    parts = os.path.normpath(path).split("/")
    for i in range(1, len(parts)):
        name = "/".join(parts[i:])
        if (ROOT / name).is_file():
            return name
    return None


def files_of(name, addresses):
    """Returns the files of this tree that the addresses stand for, or None."""
    done = subprocess.run(
        ["llvm-symbolizer", f"--obj={name}", "--functions=none", "--no-inlines",
         "--output-style=GNU"], stdout=subprocess.PIPE, text=True, check=True,
        input="".join(f"0x{address:x}\n" for address in addresses))
    known = {}
    for line in done.stdout.splitlines():
        path = line.rpartition(":")[0]
        if path not in known:
            known[path] = in_tree(path)
        yield known[path]


def coverage(target, seeds):
    """Returns {source file: [edges taken, edges]} of a run over `seeds`."""
    with tempfile.TemporaryDirectory() as folder:
        sizes, taken = run(target, seeds, pathlib.Path(folder) / "control")
    by_size = {}
    for name in objects(target):
        of_object = functions(name)
        by_size[sum(map(len, of_object))] = name, of_object
    files = collections.defaultdict(lambda: [0, 0])
    number = 0
    for size in sizes:
        name, of_object = by_size.pop(size)
        entries = [edges[0] for edges in of_object]
        for edges, file in zip(of_object, files_of(name, entries)):
            numbers = range(number, number + len(edges))
            files[file][0] += len(taken.intersection(numbers))
            files[file][1] += len(edges)
            number += len(edges)
    return files


def main(target, seeds, show_all=""):
    target, seeds = pathlib.Path(target), pathlib.Path(seeds)
    floors = json.loads((HERE / "floors.json").read_text()).get(target.name)
    if not floors:
        sys.exit(f"floors.json says nothing of {target.name}")
    if not seeds.is_dir() or not any(seeds.iterdir()):
        sys.exit(f"{target.name} has no seeds in {seeds}")
    files = coverage(target, seeds)
    if show_all:
        floors = {file: floors.get(file, 0)
                  for file in sorted(filter(None, files)) if files[file][0]}
    failed = False
    for file, floor in floors.items():
        taken, edges = files.get(file, (0, 0))
        share = 100 * taken / edges if edges else 0
        low = share < floor or edges == 0
        failed |= low
        print(f"{file}: {share:.1f} % of {edges} edges"
              + (f", LESS THAN {floor} %" if low else f" (>= {floor})"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
