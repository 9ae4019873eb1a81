#!/usr/bin/env python3
"""Checks that the tests which docs/coming-from names exist.

Each row of a table there ends with what proves it: `Suite.Name` of a C++ test
(`Suite.*` for all of one), `FILE::CLASS.TEST` of a test of the Python package;
or with a reason why nothing does, behind "Not yet:" or "By design:".

Usage: check_named_tests.py [ROOT]. Prints one line per finding, exits 1 if
any."""

import ast
import pathlib
import re
import sys

PAGES = "docs/coming-from/*.md"
PYTHON_TESTS = "tests/client/python"

# TEST, TEST_F, TEST_P, TYPED_TEST and our own.
CPP_TEST = re.compile(r"^(?:\w+_)?TEST\w*\(\s*(\w+),\s*(\w+)\)", re.MULTILINE)
REASON = re.compile(r"(Not yet|By design): \S")
NAMES = re.compile(r"`[^`]+`(, `[^`]+`)*")


def cpp_tests(root):
    """Suite.Name of all, and Suite.* of each suite."""
    found = set()
    for file in root.glob("tests/**/*.cc"):
        for suite, name in CPP_TEST.findall(file.read_text("utf-8")):
            found |= {f"{suite}.{name}", f"{suite}.*"}
    return found


def python_tests(root):
    """FILE::CLASS.TEST of all of the Python package's."""
    found = set()
    for file in (root / PYTHON_TESTS).glob("*_test.py"):
        for node in ast.parse(file.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                found |= {f"{file.name}::{node.name}.{each.name}"
                          for each in node.body
                          if isinstance(each, ast.FunctionDef)
                          and each.name.startswith("test_")}
    return found


def check_page(page, known):
    """What is wrong with a page, as (line, finding)."""
    columns = 0
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        if not line.startswith("|"):
            columns = 0
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not columns:
            columns = len(cells)  # the heading
            continue
        if set(line) <= set("|-"):
            continue
        if len(cells) != columns:
            yield number, f"{len(cells)} cells under {columns} headings"
        elif NAMES.fullmatch(cells[-1]):
            for name in re.findall(r"`([^`]+)`", cells[-1]):
                if name not in known:
                    yield number, f"there is no test {name}"
        elif not REASON.match(cells[-1]):
            yield number, ("the last cell names tests, or a reason behind "
                           "\"Not yet:\" or \"By design:\"")


def check(root):
    known = cpp_tests(root) | python_tests(root)
    return [f"{page.relative_to(root)}:{line}: {finding}"
            for page in sorted(root.glob(PAGES))
            for line, finding in check_page(page, known)]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else
                        pathlib.Path(__file__).resolve().parents[2])
    findings = check(root)
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
