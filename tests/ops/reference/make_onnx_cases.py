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
import math
import pathlib

import ml_dtypes
import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, defs, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops.op_erf import Erf

NEWEST = 25  # kNewestOnnxOpset
OLDEST = 11
FOLDER = pathlib.Path(__file__).parent / "cases"

FLOATS = {
    "float": np.float32,
    "double": np.float64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}
INTEGERS = {
    name: np.dtype(name).type
    for name in (
        "int8", "int16", "int32", "int64",
        "uint8", "uint16", "uint32", "uint64",
    )
}  # fmt: skip
TYPES = {**FLOATS, **INTEGERS, "bool": np.bool_}
NAMES = {np.dtype(t): name for name, t in TYPES.items()}
# Tests of onnx's own that cannot be used, and why.
UNUSABLE = {
    "test_averagepool_2d_ceil_last_window_starts_on_pad": "4-digit answers",
    "test_batchnorm_example_training_mode": "weir runs inference only",
    "test_batchnorm_epsilon_training_mode": "weir runs inference only",
}
OPERATORS = set()  # filled by cases()


def is_float(dtype):
    return np.dtype(dtype) in [np.dtype(t) for t in FLOATS.values()]


def onnx_type(dtype):
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def exact_erf(self, x):
    return (np.vectorize(math.erf, otypes=[np.float64])(x).astype(x.dtype),)


Erf._run = exact_erf  # onnx's own rounds to float on the way


class Const:
    """An input that is an initializer of the model."""

    def __init__(self, value):
        self.value = np.asarray(value)


class Case:
    def __init__(
        self, op, label, inputs, outputs=1, opset=NEWEST, ulps=0, floor=0.0,
        expected=None, **attributes,
    ):  # fmt: skip
        OPERATORS.add(op)
        self.op = op
        self.name = f"{op}_{label}"
        self.inputs = inputs
        self.outputs = outputs
        self.opset = opset
        self.ulps = ulps
        self.floor = floor
        self.expected = expected  # where onnx's evaluator has no answer
        self.attributes = {k: v for k, v in attributes.items() if v is not None}

    def model(self, outputs, double=False):
        names, declared, constants = [], [], []
        for i, value in enumerate(self.inputs):
            if value is None:
                names.append("")
                continue
            name = f"x{i}"
            names.append(name)
            array = widen(value, double)
            if isinstance(value, Const):
                constants.append(numpy_helper.from_array(array, name))
            else:
                declared.append(
                    helper.make_tensor_value_info(
                        name, onnx_type(array.dtype), array.shape
                    )
                )
        attributes = {
            k: numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v
            for k, v in self.attributes.items()
        }
        count = self.outputs
        node = helper.make_node(
            self.op,
            names,
            [f"y{i}" for i in range(count)],
            "node",
            **attributes,
        )
        infos = [
            (
                helper.make_tensor_value_info(
                    f"y{i}", onnx_type(outputs[i].dtype), outputs[i].shape
                )
                if outputs
                else helper.make_empty_tensor_value_info(f"y{i}")
            )
            for i in range(count)
        ]
        graph = helper.make_graph([node], self.name, declared, infos, constants)
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", self.opset)],
            ir_version=8,
        )

    def feeds(self, double=False):
        return {
            f"x{i}": widen(value, double)
            for i, value in enumerate(self.inputs)
            if value is not None and not isinstance(value, Const)
        }

    def answers(self):
        if self.expected is not None:
            return self.expected
        arrays = [raw(v) for v in self.inputs if v is not None]
        narrow = next(
            (
                a.dtype
                for a in arrays
                if is_float(a.dtype) and a.dtype != np.float64
            ),
            None,
        )
        double = narrow is not None and self.op not in ("Cast", "Constant")
        with np.errstate(all="ignore"):
            run = ReferenceEvaluator(self.model(None, double)).run(
                None, self.feeds(double)
            )
        results = []
        for value in run:
            value = np.asarray(value)
            if double and value.dtype == np.float64:
                with np.errstate(all="ignore"):
                    value = value.astype(narrow)
            results.append(value)
        return results

    def node(self):
        outputs = self.answers()
        model = self.model(outputs)
        onnx.checker.check_model(model)
        return container(
            self.name,
            model,
            self.feeds(),
            {f"y{i}": value for i, value in enumerate(outputs)},
            self.ulps,
            self.floor,
        )


def raw(value):
    return value.value if isinstance(value, Const) else np.asarray(value)


def widen(value, double):
    array = raw(value)
    if double and is_float(array.dtype):
        return array.astype(np.float64)
    return array


def container(name, model, inputs, outputs, ulps, floor):
    def tensors(values):
        return [numpy_helper.from_array(v, n) for n, v in values.items()]

    def attribute(key, value):
        if isinstance(value, list) and not value:
            return helper.make_attribute(
                key, value, attr_type=AttributeProto.TENSORS
            )
        return helper.make_attribute(key, value)

    node = onnx.NodeProto(name=name, op_type="Case")
    node.attribute.extend(
        [
            attribute("model", model.SerializeToString()),
            attribute("inputs", tensors(inputs)),
            attribute("outputs", tensors(outputs)),
            attribute("ulps", int(ulps)),
            attribute("floor", float(floor)),
        ]
    )
    return node


class Data:
    """Random values that are the same in every run, whatever else is drawn."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)

    def __call__(self, dtype, *shape, low=None, high=None):
        dtype = np.dtype(dtype)
        if dtype == np.bool_:
            return self.random.integers(0, 2, shape).astype(bool)
        if is_float(dtype):
            low = -2 if low is None else low
            high = 2 if high is None else high
            return np.asarray(
                np.round(self.random.uniform(low, high, shape), 3)
            ).astype(dtype)
        unsigned = dtype.kind == "u"
        low = (0 if unsigned else -20) if low is None else low
        high = 20 if high is None else high
        return np.asarray(self.random.integers(low, high + 1, shape)).astype(
            dtype
        )


def versions(op):
    """The opsets from 11 on at which the operator changed, and 11."""
    since = {
        s.since_version
        for s in defs.get_all_schemas_with_history()
        if s.name == op and s.domain == ""
    }
    first = max(OLDEST, min(since))
    return sorted({first} | {v for v in since if first < v <= NEWEST})


def types_of(op, parameter="T", opset=NEWEST):
    schema = defs.get_schema(op, opset, "")
    for constraint in schema.type_constraints:
        if constraint.type_param_str == parameter:
            allowed = {
                t[len("tensor(") : -1]
                for t in constraint.allowed_type_strs
                if t.startswith("tensor(")
            }
            return [name for name in TYPES if name in allowed]
    raise KeyError(f"{op} has no type parameter {parameter}")


SPECIALS = np.array(
    [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-30],
    np.float32,
)
EXACT, MATH, SUM = 1, 8, 16


def unary(data):
    domain = {"Sqrt": (0, 4), "Log": (0.01, 4)}
    ulps = {
        "Neg": 0, "Abs": 0, "Relu": 0, "Identity": 0, "Not": 0, "Sqrt": EXACT,
    }  # fmt: skip
    for op in (
        "Identity", "Neg", "Abs", "Sqrt", "Exp", "Log", "Erf", "Tanh",
        "Sigmoid", "Relu", "Gelu", "Not",
    ):  # fmt: skip
        low, high = domain.get(op, (None, None))
        allowed = ulps.get(op, MATH)
        floor = 1.0 if op == "Gelu" else 0.0
        parameter = "V" if op == "Identity" else "T"
        for name in types_of(op, parameter):
            yield Case(
                op, name, [data(TYPES[name], 3, 5, low=low, high=high)],
                ulps=allowed, floor=floor,
            )  # fmt: skip
        typed = np.bool_ if op == "Not" else np.float32
        for opset in versions(op):
            yield Case(
                op, f"opset{opset}", [data(typed, 7, low=low, high=high)],
                opset=opset, ulps=allowed, floor=floor,
            )  # fmt: skip
        yield Case(
            op,
            "scalar",
            [data(typed, low=low, high=high)],
            ulps=allowed,
            floor=floor,
        )
        yield Case(op, "empty", [data(typed, 2, 0, 3)])
        # One more than any vector width leaves a tail.
        yield Case(
            op,
            "long",
            [data(typed, 131, low=low, high=high)],
            ulps=allowed,
            floor=floor,
        )
        if typed is np.float32:
            yield Case(op, "specials", [SPECIALS], ulps=allowed, floor=floor)
    yield Case(
        "Gelu",
        "tanh",
        [data(np.float32, 33)],
        approximate="tanh",
        ulps=MATH,
        floor=1.0,
    )


BROADCASTS = {
    "same": ((2, 3), (2, 3)),
    "row": ((2, 3, 4), (4,)),
    "outer": ((3, 1), (1, 4)),
    "scalar": ((2, 3), ()),
    "both": ((2, 1, 3, 1), (4, 1, 5)),
    "empty": ((0, 3), (3,)),
    "one": ((1,), (1, 1)),
}


def binary(data):
    logical = ("And", "Or")
    for op in (
        "Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Equal", "Less",
        "Greater", "And", "Or",
    ):  # fmt: skip
        low, high = (1, 5) if op in ("Div", "Pow") else (None, None)
        compares = op in ("Equal", "Less", "Greater", *logical)
        ulps = 0 if compares or op in ("Min", "Max") else EXACT
        ulps = MATH if op == "Pow" else ulps

        def pair(typed, a, b):
            return [
                data(typed, *a, low=low, high=high),
                data(typed, *b, low=low, high=3 if op == "Pow" else high),
            ]

        typed = np.bool_ if op in logical else np.float32
        for label, (a, b) in BROADCASTS.items():
            yield Case(op, label, pair(typed, a, b), ulps=ulps)
        for name in types_of(op):
            yield Case(op, name, pair(TYPES[name], (2, 9), (9,)), ulps=ulps)
        for opset in versions(op):
            yield Case(
                op,
                f"opset{opset}",
                pair(typed, (2, 3), (3,)),
                opset=opset,
                ulps=ulps,
            )
        if typed is np.float32:
            yield Case(op, "specials", [SPECIALS[:, None], SPECIALS], ulps=ulps)
    for name in ("int8", "int32", "int64"):
        typed = TYPES[name]
        yield Case(
            "Div", f"signs_{name}",
            [np.array([7, -7, 7, -7], typed), np.array([2, 2, -2, -2], typed)],
        )  # fmt: skip
    yield Case(
        "Add",
        "wraps_uint8",
        [np.array([250], np.uint8), np.array([10], np.uint8)],
    )
    yield Case(
        "Add",
        "wraps_int32",
        [np.array([2**31 - 1], np.int32), np.array([1], np.int32)],
    )
    for base, exponent in (
        ("float", "int64"),
        ("int32", "int32"),
        ("int64", "float"),
        ("float16", "float"),
    ):
        yield Case(
            "Pow", f"{base}_to_{exponent}",
            [data(TYPES[base], 6, low=1, high=4), data(TYPES[exponent], 6, low=0, high=3)],
            ulps=MATH,
        )  # fmt: skip
    for op in ("Min", "Max"):
        yield Case(op, "one_input", [data(np.float32, 3)])
        yield Case(
            op, "three_inputs",
            [data(np.float32, 2, 1), data(np.float32, 3), data(np.float32, 1, 1)],
        )  # fmt: skip


def choosing(data):
    for name in types_of("Where"):
        yield Case(
            "Where", name,
            [data(np.bool_, 2, 3), data(TYPES[name], 2, 3), data(TYPES[name], 3)],
        )  # fmt: skip
    yield Case(
        "Where", "broadcast",
        [data(np.bool_, 4, 1), data(np.float32, 1, 3), data(np.float32, 2, 1, 1)],
    )  # fmt: skip
    for opset in versions("Where"):
        yield Case(
            "Where", f"opset{opset}",
            [data(np.bool_, 3), data(np.float32, 3), data(np.float32, 3)],
            opset=opset,
        )  # fmt: skip
    for name in types_of("Clip"):
        typed = TYPES[name]
        bounds = [np.asarray(2, typed), np.asarray(9, typed)]
        yield Case("Clip", name, [data(typed, 8, low=0, high=12), *bounds])
    x = data(np.float32, 3, 4)
    one = np.float32(-0.5)
    yield Case("Clip", "no_bounds", [x])
    yield Case("Clip", "only_min", [x, one])
    yield Case("Clip", "only_max", [x, None, np.float32(0.5)])
    yield Case("Clip", "constant_bounds", [x, Const(one), Const(np.float32(1))])
    yield Case("Clip", "crossed_bounds", [x, np.float32(1), np.float32(-1)])
    for opset in versions("Clip"):
        yield Case(
            "Clip", f"opset{opset}", [x, one, np.float32(1)], opset=opset
        )


def casting(data):
    values = np.array([0, 1, 2.5, 3.75, 100, 7.999])
    for source in TYPES:
        for target in TYPES:
            x = (
                values
                if is_float(TYPES[source])
                else np.array([0, 1, 2, 3, 100, 7])
            )
            yield Case(
                "Cast", f"{source}_to_{target}", [x.astype(TYPES[source])],
                to=int(onnx_type(TYPES[target])),
            )  # fmt: skip
    yield Case(
        "Cast", "negative_float_to_int32",
        [np.array([-1.5, -0.5, -2.99], np.float32)], to=int(TensorProto.INT32),
    )  # fmt: skip
    yield Case(
        "Cast", "int64_wraps_to_int32",
        [np.array([2**32 + 5, -(2**31) - 1], np.int64)], to=int(TensorProto.INT32),
    )  # fmt: skip
    yield Case(
        "Cast", "specials_to_float16", [SPECIALS], to=int(TensorProto.FLOAT16)
    )
    for opset in versions("Cast"):
        yield Case(
            "Cast", f"opset{opset}", [data(np.float32, 4)],
            to=int(TensorProto.DOUBLE), opset=opset,
        )  # fmt: skip
    for name, typed in TYPES.items():
        yield Case("Constant", name, [], value=data(typed, 2, 3))
    yield Case("Constant", "value_float", [], value_float=1.5)
    yield Case("Constant", "value_floats", [], value_floats=[1.5, 2.5])
    yield Case("Constant", "value_int", [], value_int=7)
    yield Case("Constant", "value_ints", [], value_ints=[7, 8, 9])
    for opset in versions("Constant"):
        yield Case(
            "Constant",
            f"opset{opset}",
            [],
            value=data(np.float32, 2),
            opset=opset,
        )
    for name in types_of("ConstantOfShape", "T2"):
        yield Case(
            "ConstantOfShape", name, [np.array([2, 3], np.int64)],
            value=np.array([1], TYPES[name]),
        )  # fmt: skip
    yield Case("ConstantOfShape", "default", [np.array([4], np.int64)])
    yield Case("ConstantOfShape", "scalar", [np.array([], np.int64)])
    yield Case("ConstantOfShape", "empty", [np.array([2, 0], np.int64)])
    for opset in versions("ConstantOfShape"):
        yield Case(
            "ConstantOfShape",
            f"opset{opset}",
            [np.array([2], np.int64)],
            opset=opset,
        )
    for opset in versions("Shape"):
        yield Case(
            "Shape", f"opset{opset}", [data(np.float32, 2, 3, 4)], opset=opset
        )
    yield Case("Shape", "scalar", [data(np.float32)])
    for start, end in ((1, None), (None, 2), (-2, -1), (-9, 9), (2, 1)):
        yield Case(
            "Shape", f"from_{start}_to_{end}".replace("-", "minus"),
            [data(np.int32, 2, 3, 4)], start=start, end=end,
        )  # fmt: skip


def products(data):
    shapes = {
        "plain": ((3, 4), (4, 5)),
        "batch": ((2, 3, 4), (2, 4, 5)),
        "broadcast": ((2, 1, 3, 4), (5, 4, 2)),
        "vector_left": ((4,), (4, 5)),
        "vector_right": ((3, 4), (4,)),
        "vectors": ((4,), (4,)),
        "vector_batch": ((4,), (2, 4, 3)),
        "no_terms": ((2, 0), (0, 3)),
        "larger": ((17, 33), (33, 9)),
    }
    for label, (a, b) in shapes.items():
        yield Case(
            "MatMul",
            label,
            [data(np.float32, *a), data(np.float32, *b)],
            ulps=SUM,
            floor=8.0,
        )
    for name in types_of("MatMul"):
        yield Case(
            "MatMul",
            name,
            [data(TYPES[name], 3, 6), data(TYPES[name], 6, 4)],
            ulps=SUM,
            floor=8.0,
        )
    for opset in versions("MatMul"):
        yield Case(
            "MatMul",
            f"opset{opset}",
            [data(np.float32, 2, 3), data(np.float32, 3, 2)],
            opset=opset,
            ulps=SUM,
            floor=8.0,
        )

    def gemm(label, a, b, c=None, typed=np.float32, **attributes):
        inputs = [data(typed, *a), data(typed, *b)]
        if c is not None:
            inputs.append(data(typed, *c))
        return Case("Gemm", label, inputs, ulps=SUM, floor=8.0, **attributes)

    yield gemm("plain", (3, 4), (4, 5), (3, 5))
    yield gemm("trans_a", (4, 3), (4, 5), (5,), transA=1)
    yield gemm("trans_b", (3, 4), (5, 4), (3, 1), transB=1)
    yield gemm("trans_both", (4, 3), (5, 4), (), transA=1, transB=1)
    yield gemm("alpha_beta", (3, 4), (4, 5), (1, 5), alpha=0.5, beta=-2.0)
    yield gemm("no_c", (3, 4), (4, 5))
    for name in types_of("Gemm"):
        yield gemm(name, (3, 4), (4, 5), (5,), TYPES[name])
    for opset in versions("Gemm"):
        yield gemm(f"opset{opset}", (2, 3), (3, 2), (2,), opset=opset)


def shaping(data):
    x = data(np.float32, 2, 3, 4)
    i64 = lambda *values: np.array(values, np.int64)  # noqa: E731
    for label, shape in {
        "same": (2, 3, 4), "flat": (24,), "infer": (4, -1), "copy": (0, 12),
        "both": (0, -1, 2), "more": (2, 1, 3, 4, 1),
    }.items():  # fmt: skip
        yield Case("Reshape", label, [x, Const(i64(*shape))])
    yield Case("Reshape", "shape_as_input", [x, i64(6, 4)])
    yield Case("Reshape", "to_scalar", [data(np.float32, 1, 1), Const(i64())])
    yield Case(
        "Reshape",
        "allow_zero",
        [data(np.float32, 0, 3), Const(i64(3, 0))],
        allowzero=1,
    )
    for name, typed in TYPES.items():
        yield Case("Reshape", name, [data(typed, 2, 6), Const(i64(3, 4))])
    for opset in versions("Reshape"):
        yield Case(
            "Reshape", f"opset{opset}", [x, Const(i64(3, 8))], opset=opset
        )
    for axis in (0, 1, 2, 3, -1, -3):
        yield Case(
            "Flatten", f"axis_{axis}".replace("-", "minus"), [x], axis=axis
        )
    yield Case("Flatten", "default", [data(np.float32, 2, 3, 1, 2)])
    for opset in versions("Flatten"):
        yield Case("Flatten", f"opset{opset}", [x], opset=opset)

    ones = data(np.float32, 1, 3, 1, 2)
    for label, axes in {
        "all": None,
        "first": [0],
        "negative": [-2],
        "two": [0, 2],
    }.items():
        inputs = [ones] if axes is None else [ones, Const(i64(*axes))]
        yield Case("Squeeze", label, inputs)
        yield Case("Squeeze", f"{label}_opset11", [ones], axes=axes, opset=11)
    for label, axes in {
        "front": [0],
        "back": [-1],
        "mixed": [3, 0],
        "two": [1, 2],
    }.items():
        yield Case(
            "Unsqueeze", label, [data(np.float32, 2, 3), Const(i64(*axes))]
        )
        yield Case(
            "Unsqueeze",
            f"{label}_opset11",
            [data(np.float32, 2, 3)],
            axes=sorted(axes),
            opset=11,
        )
    for op in ("Squeeze", "Unsqueeze"):
        for opset in versions(op)[1:]:
            yield Case(op, f"opset{opset}", [ones, Const(i64(0))], opset=opset)
    for label, shape in {
        "wider": (4, 3), "more_axes": (2, 4, 3), "keeps": (1, 1), "scalar": (),
        "empty": (0, 3),
    }.items():  # fmt: skip
        yield Case(
            "Expand", label, [data(np.float32, 1, 3), Const(i64(*shape))]
        )
    for name, typed in TYPES.items():
        yield Case("Expand", name, [data(typed, 3, 1), i64(2, 3, 4)])
    for opset in versions("Expand"):
        yield Case(
            "Expand",
            f"opset{opset}",
            [data(np.float32, 3, 1), Const(i64(3, 2))],
            opset=opset,
        )


def moving(data):
    i64 = lambda *values: np.array(values, np.int64)  # noqa: E731
    x = data(np.float32, 2, 3, 4)
    yield Case("Transpose", "default", [x])
    for perm in (
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ):
        yield Case(
            "Transpose", "perm_" + "".join(map(str, perm)), [x], perm=perm
        )
    yield Case("Transpose", "matrix", [data(np.float32, 37, 41)], perm=[1, 0])
    yield Case(
        "Transpose",
        "five",
        [data(np.float32, 2, 3, 1, 4, 2)],
        perm=[4, 0, 3, 2, 1],
    )
    yield Case("Transpose", "scalar", [data(np.float32)])
    for name, typed in TYPES.items():
        yield Case("Transpose", name, [data(typed, 3, 5)])
        yield Case(
            "Concat", name, [data(typed, 2, 3), data(typed, 2, 2)], axis=1
        )
        yield Case("Split", name, [data(typed, 6), Const(i64(2, 4))], outputs=2)
        yield Case(
            "Slice",
            name,
            [
                data(typed, 7),
                Const(i64(1)),
                Const(i64(6)),
                Const(i64(0)),
                Const(i64(2)),
            ],
        )
        yield Case("Gather", name, [data(typed, 4, 3), i64(2, 0, -1)])
        yield Case("Pad", name, [data(typed, 2, 3), Const(i64(1, 0, 0, 2))])
    for op in ("Transpose", "Concat"):
        for opset in versions(op):
            attributes = {"axis": 0} if op == "Concat" else {}
            yield Case(op, f"opset{opset}", [x], opset=opset, **attributes)
    for axis in (0, 1, 2, -1, -3):
        parts = []
        for size in (1, 4, 2):
            shape = [2, 3, 4]
            shape[axis] = size
            parts.append(data(np.float32, *shape))
        yield Case(
            "Concat", f"axis_{axis}".replace("-", "minus"), parts, axis=axis
        )
    yield Case(
        "Concat",
        "with_empty",
        [data(np.float32, 0, 2), data(np.float32, 3, 2)],
        axis=0,
    )

    yield Case(
        "Split", "equal", [data(np.float32, 6, 2)], outputs=3, num_outputs=3
    )
    yield Case(
        "Split", "last_smaller", [data(np.float32, 7)], outputs=3, num_outputs=3
    )
    yield Case(
        "Split", "negative_axis", [x, Const(i64(1, 3))], outputs=2, axis=-1
    )
    yield Case(
        "Split",
        "with_empty",
        [data(np.float32, 3), Const(i64(0, 3))],
        outputs=2,
    )
    yield Case(
        "Split",
        "opset11",
        [data(np.float32, 6)],
        outputs=2,
        split=[2, 4],
        opset=11,
    )
    yield Case(
        "Split", "equal_opset11", [data(np.float32, 6)], outputs=2, opset=11
    )
    yield Case(
        "Split",
        "opset13",
        [data(np.float32, 6), Const(i64(1, 5))],
        outputs=2,
        opset=13,
    )

    for label, (starts, ends, axes, steps) in {
        "middle": ([1], [3], [1], None),
        "no_axes": ([0, 1], [2, 3], None, None),
        "negative": ([-3], [-1], [-1], None),
        "beyond": ([-100, 1], [100, 1000], [0, 2], None),
        "backward": ([-1], [-100], [2], [-1]),
        "backward_step": ([3], [0], [2], [-2]),
        "stride": ([0], [4], [2], [3]),
        "empty": ([2], [1], [1], None),
        "whole": ([0], [2**63 - 1], [0], None),
    }.items():
        inputs = [
            Const(np.array(v, np.int64)) if v is not None else None
            for v in (starts, ends, axes, steps)
        ]
        while inputs[-1] is None:
            inputs.pop()
        yield Case("Slice", label, [x, *inputs])
    yield Case(
        "Slice",
        "int32_bounds",
        [
            x,
            Const(np.array([1], np.int32)),
            Const(np.array([2], np.int32)),
            Const(np.array([0], np.int32)),
        ],
    )
    for opset in versions("Slice"):
        yield Case(
            "Slice",
            f"opset{opset}",
            [x, Const(i64(1)), Const(i64(2)), Const(i64(1))],
            opset=opset,
        )

    for axis in (0, 1, 2, -1):
        yield Case(
            "Gather",
            f"axis_{axis}".replace("-", "minus"),
            [x, np.array([[0, 1], [1, -1]], np.int64)],
            axis=axis,
        )
    yield Case("Gather", "scalar_index", [x, np.array(1, np.int64)], axis=1)
    yield Case("Gather", "int32_index", [x, np.array([1, 0], np.int32)])
    yield Case("Gather", "no_indices", [x, np.zeros((0,), np.int64)])
    for opset in versions("Gather"):
        yield Case("Gather", f"opset{opset}", [x, i64(1)], opset=opset)

    m = data(np.float32, 3, 4)
    pads = Const(i64(1, 2, 0, 1))
    yield Case("Pad", "constant", [m, pads, Const(np.float32(9))])
    for mode in ("reflect", "edge", "wrap"):
        yield Case("Pad", mode, [m, pads], mode=mode)
    yield Case("Pad", "axes", [m, Const(i64(2, 1)), None, Const(i64(-1))])
    cut = np.pad(m[1:, :2], ((0, 1), (0, 0)))
    yield Case("Pad", "negative", [m, Const(i64(-1, 0, 1, -2))], expected=[cut])
    for opset in versions("Pad"):
        yield Case(
            "Pad", f"opset{opset}", [m, pads, Const(np.float32(2))], opset=opset
        )


def reducing(data):
    x = data(np.float32, 2, 3, 4)
    for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"):
        exact = op in ("ReduceMax", "ReduceMin")
        bound = {} if exact else {"ulps": SUM, "floor": 4.0}
        # Axes became an input of ReduceSum in 13 and of the others in 18.
        switch = 13 if op == "ReduceSum" else 18

        def reduce(label, value, axes=None, opset=NEWEST, **attributes):
            if axes is not None and opset < switch:
                return Case(
                    op,
                    label,
                    [value],
                    axes=axes,
                    opset=opset,
                    **bound,
                    **attributes,
                )
            inputs = (
                [value]
                if axes is None
                else [value, Const(np.array(axes, np.int64))]
            )
            return Case(op, label, inputs, opset=opset, **bound, **attributes)

        yield reduce("all", x)
        yield reduce("all_flat", x, keepdims=0)
        for axis in (0, 1, 2, -1):
            yield reduce(f"axis_{axis}".replace("-", "minus"), x, [axis])
            yield reduce(
                f"axis_{axis}_flat".replace("-", "minus"), x, [axis], keepdims=0
            )
        yield reduce("two_axes", x, [0, 2], keepdims=0)
        yield reduce("two_inner", x, [-1, -2])
        yield reduce("nothing", x, [], noop_with_empty_axes=1)
        yield reduce("long_row", data(np.float32, 3, 1000), [1])
        yield reduce("long_column", data(np.float32, 1000, 3), [0])
        for name in types_of(op):
            yield reduce(name, data(TYPES[name], 4, 6), [1])
        for opset in versions(op):
            yield reduce(f"opset{opset}", x, [1], opset=opset)
    yield Case(
        "ReduceSum",
        "empty",
        [data(np.float32, 2, 0), Const(np.array([1], np.int64))],
    )
    yield Case(
        "ReduceMax", "not_a_number", [np.array([1, np.nan, 3], np.float32)]
    )

    y = data(np.int32, 3, 4, 5, low=0, high=3).astype(np.float32)
    for axis in (0, 1, 2, -1):
        for keep in (0, 1):
            yield Case(
                "ArgMax",
                f"axis_{axis}_keep_{keep}".replace("-", "minus"),
                [y],
                axis=axis,
                keepdims=keep,
            )
    yield Case("ArgMax", "last", [y], axis=1, select_last_index=1)
    for name in types_of("ArgMax"):
        yield Case("ArgMax", name, [data(TYPES[name], 3, 7)], axis=1)
    for opset in versions("ArgMax"):
        yield Case("ArgMax", f"opset{opset}", [y], axis=0, opset=opset)


def normalizing(data):
    x = data(np.float32, 2, 3, 4)
    for axis in (0, 1, 2, -1):
        yield Case(
            "Softmax",
            f"axis_{axis}".replace("-", "minus"),
            [x],
            axis=axis,
            ulps=SUM,
        )
    yield Case("Softmax", "default", [x], ulps=SUM)
    yield Case("Softmax", "large", [x * 1000], ulps=SUM, floor=1e-6)
    yield Case("Softmax", "long", [data(np.float32, 2, 1000)], ulps=SUM)
    for name in types_of("Softmax"):
        yield Case("Softmax", name, [data(TYPES[name], 3, 6)], ulps=SUM)
    yield Case("Softmax", "opset13", [x], opset=13, ulps=SUM)
    # Before 13 the picture is a matrix of rows; here both readings agree.
    yield Case(
        "Softmax",
        "opset11",
        [data(np.float32, 3, 6)],
        opset=11,
        axis=1,
        ulps=SUM,
    )

    def layer_norm(
        label,
        shape,
        axis=-1,
        typed=np.float32,
        bias=True,
        outputs=1,
        **attributes,
    ):
        normal = shape[axis:] if axis < 0 else shape[axis:]
        inputs = [data(typed, *shape), data(typed, *normal)]
        if bias:
            inputs.append(data(typed, *normal))
        return Case(
            "LayerNormalization",
            label,
            inputs,
            outputs,
            axis=axis,
            ulps=32,
            floor=4.0,
            **attributes,
        )

    for axis in (0, 1, 2, -1, -2):
        yield layer_norm(f"axis_{axis}".replace("-", "minus"), (2, 3, 4), axis)
    yield layer_norm("no_bias", (3, 8), bias=False)
    yield layer_norm("epsilon", (3, 8), epsilon=0.1)
    yield layer_norm("mean_and_deviation", (3, 8), outputs=3)
    yield layer_norm("opset17", (3, 8), opset=17)
    for name in types_of("LayerNormalization"):
        # The definition computes in float, of which double keeps nothing.
        if name != "double":
            yield layer_norm(name, (3, 9), typed=TYPES[name])

    def batch_norm(label, shape, typed=np.float32, **attributes):
        c = shape[1]
        inputs = [
            data(typed, *shape), data(typed, c), data(typed, c),
            data(typed, c), data(typed, c, low=0.1, high=2),
        ]  # fmt: skip
        return Case(
            "BatchNormalization",
            label,
            inputs,
            ulps=32,
            floor=4.0,
            **attributes,
        )

    yield batch_norm("picture", (2, 3, 4, 5))
    yield batch_norm("matrix", (4, 3))
    yield batch_norm("epsilon", (2, 3, 4), epsilon=0.01)
    yield batch_norm("double", (2, 3, 4), np.float64)
    yield batch_norm("float16", (2, 3, 4), np.float16)
    for opset in versions("BatchNormalization"):
        case = batch_norm(f"opset{opset}", (2, 3, 4), opset=opset)
        if opset < 14:
            # One output means inference; onnx's evaluator trains.
            inference = Case(case.op, "inference", case.inputs, epsilon=1e-5)
            case.expected = inference.answers()
        yield case


def max_pool(x, kernel, stride=1, pads=((0, 0), (0, 0))):
    """MaxPool where onnx's evaluator is wrong: integers and uneven pads."""
    padded = np.pad(
        x.astype(np.float64), ((0, 0), (0, 0), *pads), constant_values=-np.inf
    )
    views = np.lib.stride_tricks.sliding_window_view(padded, kernel, (2, 3))
    return views[:, :, ::stride, ::stride].max((-2, -1)).astype(x.dtype)


def windows(data):
    def conv(label, shape, kernel, bias=True, typed=np.float32, **attributes):
        inputs = [data(typed, *shape), data(typed, *kernel)]
        if bias:
            inputs.append(data(typed, kernel[0]))
        return Case("Conv", label, inputs, ulps=SUM, floor=16.0, **attributes)

    yield conv("plain", (1, 2, 5, 6), (3, 2, 3, 3))
    yield conv("no_bias", (1, 2, 5, 6), (3, 2, 3, 3), False)
    yield conv("pads", (2, 2, 5, 6), (3, 2, 3, 3), pads=[1, 0, 2, 1])
    yield conv("strides", (1, 2, 7, 8), (3, 2, 3, 3), strides=[2, 3])
    yield conv("dilations", (1, 2, 7, 8), (3, 2, 2, 3), dilations=[2, 2])
    yield conv("groups", (1, 4, 5, 5), (6, 2, 3, 3), group=2)
    yield conv(
        "depthwise", (1, 3, 5, 5), (3, 1, 3, 3), group=3, pads=[1, 1, 1, 1]
    )
    yield conv(
        "same_upper",
        (1, 1, 5, 6),
        (2, 1, 2, 3),
        auto_pad="SAME_UPPER",
        strides=[2, 2],
    )
    yield conv(
        "same_lower",
        (1, 1, 5, 6),
        (2, 1, 2, 3),
        auto_pad="SAME_LOWER",
        strides=[2, 2],
    )
    yield conv("valid", (1, 1, 5, 6), (2, 1, 3, 3), auto_pad="VALID")
    yield conv("one_by_one", (2, 3, 4, 4), (5, 3, 1, 1))
    yield conv("line", (1, 2, 9), (3, 2, 3), pads=[1, 1])
    yield conv("volume", (1, 2, 4, 4, 4), (2, 2, 2, 2, 2))
    for name in types_of("Conv"):
        yield conv(name, (1, 2, 5, 5), (3, 2, 3, 3), typed=TYPES[name])
    for opset in versions("Conv"):
        yield conv(f"opset{opset}", (1, 1, 4, 4), (1, 1, 3, 3), opset=opset)

    def pool(op, label, shape, kernel, typed=np.float32, **attributes):
        bound = {} if op == "MaxPool" else {"ulps": SUM, "floor": 2.0}
        return Case(
            op,
            label,
            [data(typed, *shape)],
            kernel_shape=kernel,
            **bound,
            **attributes,
        )

    for op in ("MaxPool", "AveragePool"):
        yield pool(op, "plain", (1, 2, 5, 6), [2, 2])
        yield pool(op, "strides", (1, 2, 7, 8), [3, 3], strides=[2, 2])
        yield pool(
            op, "pads", (1, 2, 5, 6), [3, 3], pads=[1, 1, 1, 1], strides=[2, 2]
        )
        case = pool(op, "uneven_pads", (1, 1, 5, 6), [3, 3], pads=[0, 1, 2, 1])
        if op == "MaxPool":
            case.expected = [
                max_pool(case.inputs[0], (3, 3), pads=((0, 2), (1, 1)))
            ]
        yield case
        yield pool(
            op, "ceil", (1, 1, 6, 6), [3, 3], strides=[2, 2], ceil_mode=1
        )
        yield pool(
            op,
            "same_upper",
            (1, 1, 5, 6),
            [2, 2],
            strides=[2, 2],
            auto_pad="SAME_UPPER",
        )
        case = pool(
            op,
            "same_lower",
            (1, 1, 5, 6),
            [2, 2],
            strides=[2, 2],
            auto_pad="SAME_LOWER",
        )
        if op == "MaxPool":
            case.expected = [
                max_pool(case.inputs[0], (2, 2), 2, ((1, 0), (0, 0)))
            ]
        yield case
        yield pool(op, "dilations", (1, 1, 7, 7), [2, 2], dilations=[2, 3])
        yield pool(op, "line", (1, 2, 9), [3])
        yield pool(op, "volume", (1, 1, 4, 4, 4), [2, 2, 2])
        for name in types_of(op):
            case = pool(op, name, (1, 2, 5, 5), [2, 2], TYPES[name])
            if name in INTEGERS:
                case.expected = [max_pool(case.inputs[0], (2, 2))]
            yield case
        for opset in versions(op):
            yield pool(op, f"opset{opset}", (1, 1, 4, 4), [2, 2], opset=opset)
    yield pool(
        "AveragePool",
        "count_padding",
        (1, 1, 4, 4),
        [3, 3],
        pads=[1, 1, 1, 1],
        count_include_pad=1,
    )
    for name in types_of("GlobalAveragePool"):
        yield Case(
            "GlobalAveragePool",
            name,
            [data(TYPES[name], 2, 3, 4, 5)],
            ulps=SUM,
            floor=2.0,
        )
    yield Case(
        "GlobalAveragePool",
        "line",
        [data(np.float32, 2, 3, 7)],
        ulps=SUM,
        floor=2.0,
    )
    for opset in versions("GlobalAveragePool"):
        yield Case(
            "GlobalAveragePool",
            f"opset{opset}",
            [data(np.float32, 1, 2, 3, 3)],
            opset=opset,
            ulps=SUM,
            floor=2.0,
        )


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
