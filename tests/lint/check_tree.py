#!/usr/bin/env python3
"""Checks the rules of ARCHITECTURE.md that no compiler holds.

Layers: each includes only what stands to its left; kernels know neither gRPC
nor protobuf; the client never includes kernels; gRPC appears only in the
transport; evaluations know neither services nor the transport. Names: no utils, helpers or common. Text: include guards, our own
Mutex, no ranges views, no notes to self.

Usage: check_tree.py [ROOT]. Prints one line per finding, exits 1 if any.
"""

import pathlib
import re
import sys

FOLDERS = ("kernels", "server", "client", "proto", "tests")
SOURCES = {".h", ".cc", ".cu", ".cuh"}

# Within kernels/, left to right.
LAYERS = ("base", "device", "tensor", "ops", "graph", "eval")

# The CUDA backend's entry point registers the device and its kernels, so it
# alone reaches to the right.
JOINS_LAYERS = re.compile(r"kernels/device/cuda/cuda_backend\.cc$")

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
                           "server/models/", "server/observe/per_thread.h",
                           "server/scheduling/"),
}

GRPC = re.compile(r"^(grpc/|grpc\+\+/|grpcpp/)|\.grpc\.pb\.h$")
PROTOBUF = re.compile(r"^google/protobuf/|\.pb\.h$|^onnx/")
GRPC_TYPE = re.compile(r"\bgrpc::\w")
GRPC_ALLOWED = re.compile(
    r"^(server/(rpc|services)/|server/(main|server)\.|client/|tests/)")

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


def top_folder(path):
    return path.split("/", 1)[0]


def layer_of(path):
    """The layer index of a path below kernels/, or None."""
    parts = path.split("/")
    if parts[0] == "kernels" and len(parts) > 2 and parts[1] in LAYERS:
        return LAYERS.index(parts[1])
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
        own, other = layer_of(path), layer_of(header)
        if (own is not None and other is not None and other > own
                and not JOINS_LAYERS.search(path)):
            return (f"{LAYERS[own]} stands left of {LAYERS[other]}"
                    f" and may not include {header}")
    for part, allowed in PARTS_OF_SERVER.items():
        if not path.startswith(part):
            continue
        if PROTOBUF.search(header) or (header.startswith("server/")
                                       and not header.startswith(allowed)):
            return f"{part} may not include {header}"
    if GRPC.search(header) and not GRPC_ALLOWED.search(path):
        return ("gRPC belongs into server/rpc, server/services, server/main"
                f" or server/server: {header}")
    return None


def check_text(path, lines):
    """Yields (line number, finding) for one source file."""
    in_block_comment = False
    for number, line in enumerate(lines, 1):
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
        if GRPC_TYPE.search(code) and not GRPC_ALLOWED.search(path):
            yield number, "a gRPC type outside the transport"


def check_file(root, path):
    """Yields findings of one file; `path` is relative to `root`."""
    relative = path.relative_to(root).as_posix()
    if BAD_NAME.search(path.stem):
        yield f"{relative}: name what it holds, not 'utils' or 'common'"
    if path.suffix not in SOURCES:
        return
    lines = path.read_text(encoding="utf-8").splitlines()
    if path.suffix == ".h" and "#pragma once" not in lines:
        yield f"{relative}:1: a header needs #pragma once"
    for number, finding in check_text(relative, lines):
        yield f"{relative}:{number}: {finding}"


def check_tree(root):
    """Returns all findings below `root`, sorted by path."""
    findings = []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                findings.extend(check_file(root, path))
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
