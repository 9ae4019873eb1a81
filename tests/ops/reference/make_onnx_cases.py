"""Writes operator test cases whose answers come from the onnx package.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install -r tests/requirements.txt
    /tmp/venv/bin/python tests/ops/reference/make_onnx_cases.py           # cases/
    /tmp/venv/bin/python tests/ops/reference/make_onnx_cases.py --onnx-backend DIR

The first form writes the committed cases, one file per operator. The second
writes to DIR, in the same format, those of onnx's own backend node tests that
use only our operators; they are not committed.

A file is a serialized onnx.GraphProto used as a container: each node is one
case, named by `name`, with the attributes
    model    bytes of an onnx.ModelProto
    inputs   tensors, named as the model's inputs
    outputs  tensors, named as the model's outputs
    ulps     how many units in the last place of the output's type an element
             may be off, relative to max(|expected|, floor); 0: exact
    floor    see there

Answers for float16, bfloat16 and float are computed in double, from the rounded
inputs, and then rounded once, because NumPy itself is off by more than we allow.
"""

import argparse
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from elementwise_cases import binary, casting, choosing, unary
from operator_case import (
    container, Data, NEWEST, OLDEST, onnx_type, OPERATORS, TYPES,
)  # fmt: skip
from shape_cases import moving, shaping
from sum_cases import normalizing, products, reducing, windows

FOLDER = pathlib.Path(__file__).parent / "cases"
# Tests of onnx's own that cannot be used, and why.
UNUSABLE = {
    "test_averagepool_2d_ceil_last_window_starts_on_pad": "4-digit answers",
    "test_batchnorm_example_training_mode": "weir runs inference only",
    "test_batchnorm_epsilon_training_mode": "weir runs inference only",
}


def cases():
    for seed, group in enumerate(
        (unary, binary, choosing, casting, products, shaping, moving,
         reducing, normalizing, windows)
    ):  # fmt: skip
        yield from group(Data(seed))


def write(folder, nodes_by_file):
    folder.mkdir(parents=True, exist_ok=True)
    for name, nodes in sorted(nodes_by_file.items()):
        graph = onnx.GraphProto(name=name)
        graph.node.extend(nodes)
        (folder / f"{name}.pb").write_bytes(
            graph.SerializeToString(deterministic=True)
        )


def write_own():
    nodes, seen = {}, set()
    for case in cases():
        assert case.name not in seen, f"two cases {case.name}"
        seen.add(case.name)
        try:
            nodes.setdefault(case.op, []).append(case.node())
        except Exception as error:
            raise RuntimeError(f"{case.name}: {error}") from error
    write(FOLDER, nodes)
    print(f"{len(seen)} cases of {len(nodes)} operators in {FOLDER}")


def write_backend(folder):
    """onnx's own node tests, as far as they use our operators and types."""
    from onnx.backend.test.case.node import collect_testcases

    for _ in cases():
        pass
    allowed = {onnx_type(t) for t in TYPES.values()}

    def usable(test):
        opsets = {o.domain: o.version for o in test.model.opset_import}
        values = [*test.model.graph.input, *test.model.graph.output]
        return (
            test.name not in UNUSABLE
            and set(opsets) == {""}
            and OLDEST <= opsets[""] <= NEWEST
            and all(n.op_type in OPERATORS for n in test.model.graph.node)
            and all(v.type.HasField("tensor_type") for v in values)
            and all(v.type.tensor_type.elem_type in allowed for v in values)
        )

    def array(value):
        is_tensor = isinstance(value, TensorProto)
        return numpy_helper.to_array(value) if is_tensor else np.asarray(value)

    nodes = {}
    with np.errstate(all="ignore"):
        tests = collect_testcases(None)
    if gone := UNUSABLE.keys() - {test.name for test in tests}:
        raise SystemExit(f"UNUSABLE names tests that onnx has not: {gone}")
    for test in tests:
        if not usable(test):
            continue
        names = [
            [v.name for v in values]
            for values in (test.model.graph.input, test.model.graph.output)
        ]
        for i, data_set in enumerate(test.data_sets):
            values = [
                dict(zip(n, map(array, v))) for n, v in zip(names, data_set)
            ]
            op = test.model.graph.node[0].op_type
            nodes.setdefault(op, []).append(
                container(f"{test.name}_{i}", test.model, *values, 64, 1.0)
            )
    write(folder, nodes)
    count = sum(len(n) for n in nodes.values())
    print(f"{count} cases of {len(nodes)} operators in {folder}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--onnx-backend", type=pathlib.Path, metavar="DIR")
    arguments = parser.parse_args()
    if arguments.onnx_backend:
        write_backend(arguments.onnx_backend)
    else:
        write_own()


if __name__ == "__main__":
    main()
