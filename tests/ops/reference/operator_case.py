"""A case of an operator: its model, inputs, and the onnx package's answer."""

import math

import ml_dtypes
import numpy as np
import onnx
from onnx import AttributeProto, defs, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops.op_erf import Erf

NEWEST = 25  # kNewestOnnxOpset
OLDEST = 11

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
