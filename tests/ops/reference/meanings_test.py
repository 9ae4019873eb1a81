#!/usr/bin/env python3
"""Whether ops.def knows every meaning that ONNX gave an operator.

From the first opset that a line of kernels/ops/ops.def lists up to the newest
that weir knows, it lists each that changed the operator, or ends at the first
that it does not know (a negative number). ONNX is the wheel that the benchmarks
pin; without it, skipped (exit code 77).
"""

import os
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
TOOLS = pathlib.Path(os.environ.get("WEIR_TEST_TOOLS", "/opt/weir/test-tools"))
PYTHON = TOOLS / "bench-python" / "bin" / "python"


def with_onnx():
    """Returns the package, if need be in the Python that has it."""
    try:
        import onnx
        return onnx
    except ImportError:
        if "WEIR_MEANINGS" in os.environ or not PYTHON.exists():
            print(f"skipped: no onnx here, nor in {PYTHON}")
            sys.exit(77)
    os.environ["WEIR_MEANINGS"] = "1"
    os.execv(PYTHON, [str(PYTHON), *sys.argv])


def number(name):
    text = (ROOT / "kernels/graph/opsets.h").read_text("utf-8")
    return int(re.search(rf"{name} = (\d+);", text)[1])


class Meanings(unittest.TestCase):

    def test_are_those_of_onnx(self):
        changes = {}
        for schema in ONNX.defs.get_all_schemas_with_history():
            if schema.domain == "" and not schema.deprecated:
                changes.setdefault(schema.name, set()).add(schema.since_version)
        oldest, newest = number("kOldestOnnxOpset"), number("kNewestOnnxOpset")
        self.assertLessEqual(newest, ONNX.defs.onnx_opset_version())
        lines = re.findall(r"^OP\(onnx, (\w+), \w+, (.*)\)$",
                           (ROOT / "kernels/ops/ops.def").read_text("utf-8"),
                           re.MULTILINE)
        self.assertGreater(len(lines), 50)
        for name, listed in lines:
            known = [int(opset) for opset in listed.split(", ")]
            changed = sorted(opset for opset in changes[name]
                             if known[0] <= opset <= newest)
            if known[-1] < 0:
                changed = [opset for opset in changed if opset < -known[-1]]
                changed.append(known[-1])
                self.assertIn(-known[-1], changes[name], name)
            self.assertEqual(known, changed, name)
            # It begins with what is in force in the oldest opset, or was new
            # after it.
            in_force = [opset for opset in changes[name] if opset <= oldest]
            first = max(in_force) if in_force else min(changes[name])
            self.assertLessEqual(known[0], first, name)


if __name__ == "__main__":
    ONNX = with_onnx()
    unittest.main()
