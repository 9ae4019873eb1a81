"""Cases of operators that take one element after the other: functions of one
and of two, choices, casts."""

import numpy as np
from onnx import TensorProto

from operator_case import (
    Case, Const, EXACT, is_float, MATH, onnx_type, SPECIALS, TYPES,
    types_of, versions,
)  # fmt: skip


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
