#!/usr/bin/env python3
"""Checks the rules of ARCHITECTURE.md that no compiler holds.

Layers: each includes only what stands to its left, declares no class of what
stands to its right, and holds the code of its headers; the folders of server/
have an order too (SERVER_ORDER); kernels know neither gRPC nor protobuf; the client never
includes kernels; gRPC appears only in the transport; evaluations know neither
services nor the transport. Kinds of device are told apart by backends, kernels
and what the wire calls them. Names: no utils, helpers or common; tests mirror
the tree. Text: include guards, our own Mutex, no ranges views, no notes to
self; attributes of nodes are not read by
the kernels of one device; a silenced check of clang-tidy is named, and one that
.clang-tidy asks for. Pages name files that are there. An exemption from a rule
that exempts nothing is a finding itself.

Usage: check_tree.py [ROOT]. Prints one line per finding, exits 1 if any.
"""

import fnmatch
import pathlib
import re
import sys

FOLDERS = ("kernels", "server", "client", "proto", "tests")
SOURCES = {".h", ".cc", ".cu", ".cuh"}

# Within kernels/, left to right.
LAYERS = ("base", "device", "tensor", "ops", "backend", "graph", "eval")

# The folders of server/, left to right, and the files beside them.
SERVER_ORDER = (
    ("server/bytes/",),
    ("server/scheduling/",),
    ("server/models/",),
    ("server/rpc/",),
    ("server/evaluation/",),
    ("server/spaces/",),
    ("server/observe/",),
    ("server/options.", "server/environment.", "server/device_list."),
    ("server/engines.",),
    ("server/services/",),
    ("server/",),
)

# Top-level folders that each folder may include.
MAY_INCLUDE = {
    "kernels": {"kernels"},
    "server": {"server", "kernels", "proto"},
    "client": {"client", "proto"},
    "proto": {"proto"},
}

# What these folders of server/ may include of it: they know neither services nor
# the transport.
PARTS_OF_SERVER = {
    "server/bytes/": ("server/bytes/",),
    "server/evaluation/": ("server/bytes/", "server/evaluation/",
                           "server/models/"),
}

GRPC = re.compile(r"^(grpc/|grpc\+\+/|grpcpp/)|\.grpc\.pb\.h$")
PROTOBUF = re.compile(r"^google/protobuf/|\.pb\.h$|^onnx/")
# A kernel of a device asks the operator's family what a node says.
ATTRIBUTE = re.compile(r"(\.|->)attributes\b")
DEVICE_KERNELS = "kernels/ops/cuda/"

GRPC_TYPE = re.compile(r"\bgrpc::\w")
GRPC_ALLOWED = ("server/rpc/", "server/server.", "client/", "tests/")

# A kind by its name, or asked of a device.
KIND = re.compile(r"\bDeviceKind::k[A-Z]|"
                  r"\b(\w*(info|device)\w*(\(\))?)(\.|->)kind\b",
                  re.IGNORECASE)
# Who may tell one kind of device from another; all others ask the device.
KIND_ALLOWED = (
    "kernels/device/",  # backends, and their names
    "kernels/ops/cuda/",  # whose kernels these are
    "kernels/ops/registry.",  # who finds them
    "kernels/backend/",  # whose kernels it registers
    # What the wire calls a device.
    "server/models/model_config.cc", "server/services/catalog.cc",
    "server/services/kserve_info.cc",
    "tests/")

# Who holds an object, which the simulation has to see.
HOLDERS = re.compile(r"\buse_count\(|\bweak\w*\.lock\(")
HOLDERS_ALLOWED = ("kernels/base/holders.h", "kernels/device/cuda/")

# Who is asked to stop, likewise.
STOPS = re.compile(r"\bstd::stop_(token|source|callback)\b|\bstd::jthread\b")
STOPS_ALLOWED = ("kernels/base/stop_token.h",)

# A flag of the server's, which kernels do not know: whoever sets a bound says
# what errors call it.
FLAG = re.compile(r"(?<![\w-])--[a-z]+(-[a-z]+)+\b")
FLAG_ALLOWED = ("kernels/device/cuda/nvrtc.cc",)  # a compiler's

# ARCHITECTURE.md says what tests/ has beside the folders that mirror the
# tree's.
TOPICS = re.compile(r"^\| `tests/` \| mirrors the tree; also (.*) \|$",
                    re.MULTILINE)

BAD_NAME = re.compile(r"(^|_)(utils?|helpers?|common)(_|$)", re.IGNORECASE)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
STRINGS_AND_LINE_COMMENTS = re.compile(r'"(\\.|[^"\\])*"|//.*')

FORBIDDEN_TEXT = (
    (re.compile(r"\b(TODO|FIXME|XXX)\b"),
     "a note to self: open an issue instead", True),
    (re.compile(r"\babsl::(Mutex|MutexLock|CondVar|Notification)\b"),
     "Abseil's locks are invisible to ThreadSanitizer: "
     "use kernels/base/mutex.h", False),
    (re.compile(r"\bstd::views\b|\bstd::ranges::views\b"),
     "clang 14 cannot read libstdc++'s range views", False),
)


PAGES = ("*.md", "docs/*.md", "docs/coming-from/*.md", "deploy/*.md")
# In backticks: a path below a folder of the tree, with nothing behind it.
PAGE_PATH = re.compile(r"`((?:kernels|server|client|proto|tests|deploy|docs|"
                       r"cmake)/[\w./*-]*)`")

NOLINT = re.compile(r"\bNOLINT(?:BEGIN|END|NEXTLINE)?\b(?:\(([^)]*)\))?")


def may_use_grpc(path):
    return path.startswith(GRPC_ALLOWED)


def top_folder(path):
    return path.split("/", 1)[0]


def layer_of(path):
    """The layer index of a path below kernels/, or None."""
    parts = path.split("/")
    if parts[0] == "kernels" and len(parts) > 2 and parts[1] in LAYERS:
        return LAYERS.index(parts[1])
    return None


def place_of(path):
    """Where a file stands from left to right, with the name of that place, or
    None for one that stands in no such order."""
    layer = layer_of(path)
    if layer is not None:
        return layer, LAYERS[layer]
    for rank, part in enumerate(SERVER_ORDER):
        if path.startswith(part):
            return len(LAYERS) + rank, part[0].rstrip(".")
    return None


def check_order(path, other):
    """Returns what stands left of what, if `path` may not know what `other`
    holds."""
    own, its = place_of(path), place_of(other)
    if own is not None and its is not None and its > own:
        return f"{own[1]} stands left of {its[1]}"
    return None


def check_include(path, header):
    """Returns what is wrong with `path` including `header`, or None."""
    folder = top_folder(path)
    if folder == "tests":
        return None
    target = top_folder(header)
    known = target in MAY_INCLUDE or target == "tests"
    if known and "/" in header and target not in MAY_INCLUDE[folder]:
        return f"{folder} may not include {target}: {header}"
    if folder == "kernels":
        if GRPC.search(header) or PROTOBUF.search(header):
            return f"kernels knows neither gRPC nor protobuf: {header}"
    for part, allowed in PARTS_OF_SERVER.items():
        if not path.startswith(part):
            continue
        if PROTOBUF.search(header) or (header.startswith("server/")
                                       and not header.startswith(allowed)):
            return f"{part} may not include {header}"
    order = check_order(path, header)
    if order:
        return f"{order} and may not include {header}"
    if GRPC.search(header) and not may_use_grpc(path):
        return f"gRPC belongs into server/rpc or server/server: {header}"
    return None


def check_text(path, lines):
    """Yields (line number, finding) for one source file."""
    in_block_comment = False
    for number, line in enumerate(lines, 1):
        if (path.startswith("kernels/") and FLAG.search(line) and
                not path.startswith(FLAG_ALLOWED)):
            yield number, "kernels know no flags of the server"
        include = INCLUDE.match(line)
        if include:
            finding = check_include(path, include.group(2))
            if finding:
                yield number, finding
            continue
        for pattern, finding, in_comments in FORBIDDEN_TEXT:
            if in_comments and pattern.search(line):
                yield number, finding
        code = STRINGS_AND_LINE_COMMENTS.sub("", line)
        if in_block_comment:
            if "*/" not in code:
                continue
            code = code.split("*/", 1)[1]
            in_block_comment = False
        if "/*" in code:
            code, rest = code.split("/*", 1)
            in_block_comment = "*/" not in rest
        for pattern, finding, in_comments in FORBIDDEN_TEXT:
            if not in_comments and pattern.search(code):
                yield number, finding
        if GRPC_TYPE.search(code) and not may_use_grpc(path):
            yield number, "a gRPC type outside the transport"
        if path.startswith(DEVICE_KERNELS) and ATTRIBUTE.search(code):
            yield number, ("what an attribute says is read once for both "
                           "devices, by the family's header")
        if KIND.search(code) and not path.startswith(KIND_ALLOWED):
            yield number, ("what differs from device to device is a property "
                           "of the device, not of its kind")
        if (path.startswith("kernels/") and HOLDERS.search(code)
                and not path.startswith(HOLDERS_ALLOWED)):
            yield number, "ask who holds it by kernels/base/holders.h"
        if (path.startswith("kernels/") and STOPS.search(code)
                and not path.startswith(STOPS_ALLOWED)):
            yield number, "ask to stop by kernels/base/stop_token.h"


def asked_for(root):
    """What tells whether .clang-tidy asks for a check."""
    config = root / ".clang-tidy"
    text = config.read_text("utf-8") if config.exists() else ""
    found = re.search(r"^Checks: >\n((?:  .*\n)*)", text, re.MULTILINE)
    globs = re.findall(r"[^\s,]+", found[1]) if found else ["*"]

    def asks(check):
        wanted = False
        for glob in globs:
            if fnmatch.fnmatch(check, glob.lstrip("-")):
                wanted = not glob.startswith("-")
        return wanted

    return asks


def check_silenced(asks, lines):
    """Yields findings about comments that silence clang-tidy."""
    for number, line in enumerate(lines, 1):
        for found in NOLINT.finditer(line):
            if not found[1]:
                yield number, "name the check that NOLINT silences"
                continue
            for check in re.split(r",\s*", found[1]):
                if not asks(check):
                    yield number, f".clang-tidy does not ask for {check}"


def check_file(root, path, asks):
    """Yields findings of one file; `path` is relative to `root`."""
    relative = path.relative_to(root).as_posix()
    if BAD_NAME.search(path.stem):
        yield f"{relative}: name what it holds, not 'utils' or 'common'"
    if path.suffix not in SOURCES:
        return
    lines = path.read_text(encoding="utf-8").splitlines()
    if path.suffix == ".h" and "#pragma once" not in lines:
        yield f"{relative}:1: a header needs #pragma once"
    for number, finding in (*check_text(relative, lines),
                            *check_silenced(asks, lines)):
        yield f"{relative}:{number}: {finding}"


def source_files(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path


DEFINITION = re.compile(r"^(?:class|struct)\s+(?:WEIR_EXPORT\s+)?(\w+)"
                        r"[^;({]*[{]", re.MULTILINE)
DECLARATION = re.compile(r"^(?:class|struct)\s+(\w+);")


def check_declarations(root):
    """Yields findings about headers whose classes or code stand elsewhere: a
    class is not declared to the left of where it is, and a header's code stands
    in its layer."""
    headers = [path.relative_to(root).as_posix()
               for path in source_files(root) if path.suffix == ".h"]
    homes = {}
    for header in headers:
        for name in DEFINITION.findall((root / header).read_text("utf-8")):
            homes.setdefault(name, []).append(header)
    for header in headers:
        lines = (root / header).read_text("utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            found = DECLARATION.match(line)
            orders = [check_order(header, home)
                      for home in homes.get(found[1], ())] if found else []
            if orders and all(orders):
                yield (f"{header}:{number}: {orders[0]} and may not declare "
                       f"{found[1]}")
    for path in source_files(root):
        if path.suffix != ".cc":
            continue
        source = path.relative_to(root).as_posix()
        includes = map(INCLUDE.match, path.read_text("utf-8").splitlines())
        header = next((found[2] for found in includes if found), "")
        place = place_of(header)
        if (header.endswith(f"/{path.stem}.h") and place is not None and
                place_of(source) not in (place, None)):
            yield f"{source}: {header} stands in {place[1]}"


def check_page(root, path):
    """Yields findings about the paths that a page names. A word in capitals is
    a placeholder."""
    lines = path.read_text("utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        for named in PAGE_PATH.findall(line):
            placeholder = any(part.split(".")[0].isupper()
                              for part in named.split("/"))
            if not placeholder and not any(root.glob(named.rstrip("/"))):
                yield (f"{path.relative_to(root).as_posix()}:{number}: "
                       f"there is no {named}")


def topics(root):
    """The folders of tests/ that need mirror none of the tree."""
    page = root / "ARCHITECTURE.md"
    row = TOPICS.search(page.read_text("utf-8")) if page.exists() else None
    return re.findall(r"`([^`]*)`", row[1]) if row else []


def folders_of(root, parent):
    """The folders below `parent`, as paths from there."""
    return {path.relative_to(root / parent).as_posix()
            for path in (root / parent).rglob("*")
            if path.is_dir() and path.name != "__pycache__"}


def check_mirror(root):
    """Yields findings about the folders of tests/: each mirrors one of the tree
    or is named by ARCHITECTURE.md, and each of the tree with code has its own,
    or a test program of its name."""
    own = topics(root)
    sources = {}  # by the folder of tests/ that they have
    for parent, below in (("kernels", ""), ("server", ""),
                          ("client", "client/")):
        for folder in folders_of(root, parent):
            if any(path.suffix in SOURCES
                   for path in (root / parent / folder).iterdir()):
                sources[below + folder] = f"{parent}/{folder}"
    tops = {path.name for path in root.glob("*") if path.is_dir()}
    folders = folders_of(root, "tests")
    for name in sorted(folders - tops - set(sources)):
        if not any(name == topic or name.startswith(f"{topic}/")
                   for topic in own):
            yield (f"tests/{name}: mirrors no folder of the tree, and "
                   "ARCHITECTURE.md does not name it")
    for name, folder in sorted(sources.items()):
        if (name not in folders and
                not (root / "tests" / f"{name}_test.cc").exists()):
            yield f"{folder}: there is no tests/{name} and no {name}_test.cc"
    for name in own:
        if name not in folders:
            yield (f"ARCHITECTURE.md: there is no tests/{name}, which need "
                   "mirror nothing")


def check_exemptions(root):
    """Returns findings about exemptions that exempt nothing."""
    grpc, kinds = set(GRPC_ALLOWED), set(KIND_ALLOWED)
    flags = set(FLAG_ALLOWED)
    for path in source_files(root):
        relative = path.relative_to(root).as_posix()
        if path.suffix not in SOURCES or not relative.startswith(
                (*grpc, *kinds, *flags)):
            continue
        text = path.read_text("utf-8")
        includes = (INCLUDE.match(line) for line in text.splitlines())
        if GRPC_TYPE.search(text) or any(
                found and GRPC.search(found[2]) for found in includes):
            grpc -= {part for part in grpc if relative.startswith(part)}
        if KIND.search(text):
            kinds -= {part for part in kinds if relative.startswith(part)}
        if FLAG.search(text):
            flags -= {part for part in flags if relative.startswith(part)}
    return [f"tests/lint/check_tree.py: nothing in {part} needs gRPC, which "
            "GRPC_ALLOWED allows there" for part in sorted(grpc)] + [
                f"tests/lint/check_tree.py: nothing in {part} tells kinds of "
                "device apart, which KIND_ALLOWED allows there"
                for part in sorted(kinds)] + [
                    f"tests/lint/check_tree.py: {part} names no flag, which "
                    "FLAG_ALLOWED allows there" for part in sorted(flags)]


def check_tree(root, of_whole_tree=True):
    """Returns all findings below `root`, sorted by path; those of a tree that
    has all its folders are left out unless it is a whole one."""
    findings = []
    asks = asked_for(root)
    for path in source_files(root):
        findings.extend(check_file(root, path, asks))
    for pattern in PAGES:
        for path in sorted(root.glob(pattern)):
            findings.extend(check_page(root, path))
    if of_whole_tree:
        findings.extend(check_mirror(root))
        findings.extend(check_declarations(root))
        findings.extend(check_exemptions(root))
    return findings


def main(arguments):
    here = pathlib.Path(__file__).resolve()
    root = pathlib.Path(arguments[0]) if arguments else here.parents[2]
    missing = [name for name in FOLDERS if not (root / name).is_dir()]
    if missing:
        print(f"{root} has no {', '.join(missing)}: is it the tree?",
              file=sys.stderr)
        return 2
    findings = check_tree(root)
    for finding in findings:
        print(finding)
    if findings:
        print(f"{len(findings)} findings", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
