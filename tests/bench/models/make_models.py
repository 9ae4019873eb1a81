#!/usr/bin/env python3
"""Writes the models of the bench as ONNX files, and cases to check them with.

    make_models.py --out FOLDER [--models resnet50,bert-base] \\
        [--precision fp32,fp16] [--batch 1,8] [--small]

FOLDER/MODEL-PRECISION.onnx is a model. With --batch, FOLDER/MODEL-PRECISION-bN/
holds case.json and the raw little-endian bytes of each input and of the
reference: what ONNX Runtime makes of the fp32 model on the CPU, as float32.

Nothing is made twice: FOLDER/stamp says what the files were made from. Nothing
is fetched; onnx and numpy make the models, onnxruntime the references.
"""

import argparse
import hashlib
import json
import pathlib
import shutil
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import architectures
from architectures import MODELS, RELU_GAIN, Parameters, Scale

NUMPY = {"fp32": np.float32, "fp16": np.float16}
ELEMENT = {"fp32": TensorProto.FLOAT, "fp16": TensorProto.FLOAT16}
KSERVE = {"float16": "FP16", "float32": "FP32", "int64": "INT64"}


class OnnxBuilder:
    """Nodes as torch.onnx exports them for inference. Values are names."""

    def __init__(self, model, precision, opset):
        self.parameters = Parameters(model)
        self.precision = precision
        self.opset = opset
        self.nodes = []
        self.initializers = {}
        self.inputs = []

    # -- what the others are made of

    def node(self, op, inputs, **attributes):
        output = f"/{op}_{len(self.nodes)}_output_0"
        self.nodes.append(
            helper.make_node(
                op, inputs, [output], name=f"/{op}_{len(self.nodes)}", **attributes
            )
        )
        return output

    def constant(self, value, dtype):
        """Exporters write numbers of the program as nodes."""
        array = np.asarray(value, dtype=dtype)
        return self.node("Constant", [], value=numpy_helper.from_array(array))

    def number(self, value):
        return self.constant(value, NUMPY[self.precision])

    def parameter(self, name, half):
        if name not in self.initializers:
            values = half.astype(NUMPY[self.precision])
            self.initializers[name] = numpy_helper.from_array(values, name)
        return name

    def input(self, name, element, dims):
        self.inputs.append(helper.make_tensor_value_info(name, element, dims))
        return name

    # -- pictures

    def picture(self, side):
        return self.input("input", ELEMENT[self.precision], ["batch", 3, side, side])

    def conv(self, x, name, cin, cout, kernel=1, stride=1, pad=0, groups=1,
             gain=RELU_GAIN):
        shape = (cout, cin // groups, kernel, kernel)
        fan_in = cin // groups * kernel * kernel
        w = self.parameters.weight(f"{name}.weight", shape, fan_in, gain)
        bias = self.parameters.vector(f"{name}.bias", cout, 0, 0.1)
        return self.node(
            "Conv",
            [x, self.parameter(f"{name}.weight", w), self.parameter(f"{name}.bias", bias)],
            dilations=[1, 1], group=groups, kernel_shape=[kernel, kernel],
            pads=[pad] * 4, strides=[stride, stride],
        )

    def relu(self, x):
        return self.node("Relu", [x])

    def relu6(self, x):
        return self.node("Clip", [x, self.number(0), self.number(6)])

    def max_pool(self, x, kernel, stride, pad):
        return self.node(
            "MaxPool", [x], ceil_mode=0, kernel_shape=[kernel, kernel],
            pads=[pad] * 4, strides=[stride, stride],
        )

    def global_average(self, x):
        return self.node("GlobalAveragePool", [x])

    def flatten(self, x):
        return self.node("Flatten", [x], axis=1)

    def linear(self, x, name, cin, cout, gain=1.0):
        """Of matrices: Gemm, with the weights as torch keeps them."""
        w = self.parameters.weight(f"{name}.weight", (cout, cin), cin, gain)
        bias = self.parameters.vector(f"{name}.bias", cout, 0, 0.1)
        return self.node(
            "Gemm",
            [x, self.parameter(f"{name}.weight", w), self.parameter(f"{name}.bias", bias)],
            alpha=1.0, beta=1.0, transB=1,
        )

    # -- text

    def tokens(self):
        return [
            self.input(name, TensorProto.INT64, ["batch", "sequence"])
            for name in ("input_ids", "attention_mask", "token_type_ids")
        ]

    def additive_mask(self, mask):
        x = self.node("Unsqueeze", [mask, self.constant([1], np.int64)])
        x = self.node("Unsqueeze", [x, self.constant([2], np.int64)])
        x = self.node("Cast", [x], to=ELEMENT[self.precision])
        x = self.node("Sub", [self.number(1), x])
        return self.node(
            "Mul", [x, self.number(np.finfo(NUMPY[self.precision]).min)]
        )

    def embedding(self, ids, name, rows, hidden):
        table = self.parameters.table(f"{name}.weight", (rows, hidden), 0.5)
        return self.node("Gather", [self.parameter(f"{name}.weight", table), ids])

    def position_embedding(self, ids, name, hidden):
        # position_ids[:, :sequence]
        positions = np.arange(architectures.MAX_POSITIONS, dtype=np.int64)[None]
        if "position_ids" not in self.initializers:
            self.initializers["position_ids"] = numpy_helper.from_array(
                positions, "position_ids"
            )
        length = self.node("Unsqueeze", [self.size(ids, 1), self.constant([0], np.int64)])
        at = self.node(
            "Slice",
            ["position_ids", self.constant([0], np.int64), length,
             self.constant([1], np.int64), self.constant([1], np.int64)],
        )
        return self.embedding(at, name, architectures.MAX_POSITIONS, hidden)

    def size(self, x, axis):
        return self.node(
            "Gather", [self.node("Shape", [x]), self.constant(axis, np.int64)], axis=0
        )

    def reshape(self, x, sizes):
        """`sizes` are numbers, or axes of x by name: "0"."""
        parts = []
        for size in sizes:
            if isinstance(size, str):
                parts.append(self.node(
                    "Unsqueeze",
                    [self.size(x, int(size)), self.constant([0], np.int64)]))
            else:
                parts.append(self.constant([size], np.int64))
        return self.node("Reshape", [x, self.node("Concat", parts, axis=0)])

    def token_linear(self, x, name, cin, cout, gain=1.0):
        """Of three axes: MatMul and Add, with the weights transposed."""
        w = self.parameters.weight(f"{name}.weight", (cout, cin), cin, gain)
        bias = self.parameters.vector(f"{name}.bias", cout, 0, 0.1)
        y = self.node(
            "MatMul", [x, self.parameter(f"{name}.weight.t", np.ascontiguousarray(w.T))]
        )
        return self.node("Add", [self.parameter(f"{name}.bias", bias), y])

    def layer_norm(self, x, name, hidden):
        scale = self.parameter(
            f"{name}.weight", self.parameters.vector(f"{name}.weight", hidden, 1, 0.1)
        )
        shift = self.parameter(
            f"{name}.bias", self.parameters.vector(f"{name}.bias", hidden, 0, 0.1)
        )
        if self.opset >= 17:
            return self.node(
                "LayerNormalization", [x, scale, shift], axis=-1, epsilon=1e-12
            )
        mean = self.node("ReduceMean", [x], axes=[-1])
        d = self.node("Sub", [x, mean])
        square = self.node("Pow", [d, self.number(2)])
        variance = self.node("ReduceMean", [square], axes=[-1])
        root = self.node("Sqrt", [self.node("Add", [variance, self.number(1e-12)])])
        y = self.node("Mul", [self.node("Div", [d, root]), scale])
        return self.node("Add", [y, shift])

    def attention(self, q, k, v, mask, heads, size):
        def split(x, order):
            x = self.reshape(x, ["0", "1", heads, size])
            return self.node("Transpose", [x], perm=order)

        scores = self.node(
            "MatMul", [split(q, [0, 2, 1, 3]), split(k, [0, 2, 3, 1])]
        )
        # 8 for heads of 64; not a whole number for MiniLM's of 32.
        scores = self.node("Div", [scores, self.number(np.sqrt(size))])
        weights = self.node("Softmax", [self.node("Add", [scores, mask])], axis=-1)
        y = self.node("MatMul", [weights, split(v, [0, 2, 1, 3])])
        y = self.node("Transpose", [y], perm=[0, 2, 1, 3])
        return self.reshape(y, ["0", "1", heads * size])

    def gelu(self, x):
        y = self.node("Erf", [self.node("Div", [x, self.number(np.sqrt(2.0))])])
        y = self.node("Mul", [x, self.node("Add", [y, self.number(1)])])
        return self.node("Mul", [y, self.number(0.5)])

    def first_token(self, x):
        return self.node("Gather", [x, self.constant(0, np.int64)], axis=1)

    def tanh(self, x):
        return self.node("Tanh", [x])

    def add(self, x, y):
        return self.node("Add", [x, y])

    def model(self, outputs):
        named = {value: name for name, (value, _) in outputs.items()}
        for node in self.nodes:
            node.input[:] = [named.get(value, value) for value in node.input]
            node.output[:] = [named.get(value, value) for value in node.output]
        infos = [
            helper.make_tensor_value_info(name, ELEMENT[self.precision], dims)
            for name, (_, dims) in outputs.items()
        ]
        graph = helper.make_graph(
            self.nodes, "main_graph", self.inputs, infos,
            list(self.initializers.values()),
        )
        return helper.make_model(
            graph, producer_name="weir-bench", ir_version=8,
            opset_imports=[helper.make_opsetid("", self.opset)],
        )


def make_model(name, precision, scale):
    function, opset, _ = MODELS[name]
    builder = OnnxBuilder(name, precision, opset)
    return builder.model(function(builder, scale))


def inputs_of(name, precision, batch, scale):
    """The sample in the types that the model takes."""
    return {
        key: value.astype(NUMPY[precision]) if value.dtype == np.float16 else value
        for key, value in architectures.sample(name, batch, scale).items()
    }


def check_informative(name, outputs):
    """A reference that hardly varies would accept a wrong answer."""
    for key, value in outputs.items():
        if not np.isfinite(value).all():
            raise SystemExit(f"{name}: {key} is not finite")
        spread = value.std()
        if spread < 0.1:
            raise SystemExit(f"{name}: {key} has a standard deviation of {spread}")
        if len(value) < 2:
            continue
        between = np.abs(value[0] - value[1]).mean()
        if between < 0.1 * spread:
            raise SystemExit(f"{name}: {key} hardly depends on the input")


def references(path, name, batches, scale):
    """By batch: what ONNX Runtime makes of an fp32 model."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    for batch in batches:
        values = session.run(names, inputs_of(name, "fp32", batch, scale))
        outputs = dict(zip(names, values))
        check_informative(name, outputs)
        yield batch, outputs


def write_case(folder, inputs, outputs):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    case = {}
    for kind, tensors in (("inputs", inputs), ("outputs", outputs)):
        case[kind] = []
        for name, value in tensors.items():
            file = f"{name}.{kind}"
            (folder / file).write_bytes(np.ascontiguousarray(value).tobytes())
            case[kind].append({
                "name": name, "datatype": KSERVE[value.dtype.name],
                "shape": list(value.shape), "file": file,
            })
    (folder / "case.json").write_text(json.dumps(case, indent=1))


def fingerprint(scale):
    """Of everything that the files follow from."""
    here = pathlib.Path(__file__).parent
    text = b"".join(
        (here / file).read_bytes() for file in ("architectures.py", "make_models.py")
    )
    settings = f"{np.__version__} {onnx.__version__} {vars(scale)}".encode()
    return hashlib.sha256(text + settings).hexdigest()


def claim(folder, scale):
    """Empties the folder of what another version of this program made."""
    stamp = folder / "stamp"
    if stamp.exists() and stamp.read_text() == fingerprint(scale):
        return
    # Only what this program writes: the folder may be anybody's.
    if stamp.exists():
        for name in MODELS:
            for old in folder.glob(f"{name}-*"):
                shutil.rmtree(old) if old.is_dir() else old.unlink()
    stamp.write_text(fingerprint(scale))


def make(folder, models, precisions, batches, scale):
    folder.mkdir(parents=True, exist_ok=True)
    claim(folder, scale)

    def model_path(name, precision):
        path = folder / f"{name}-{precision}.onnx"
        if not path.exists():
            part = path.with_suffix(".part")
            part.write_bytes(make_model(name, precision, scale).SerializeToString())
            part.rename(path)
        return path

    for name in models:
        for precision in precisions:
            model_path(name, precision)
        missing = [
            batch for batch in batches
            if not all((folder / f"{name}-{precision}-b{batch}/case.json").exists()
                       for precision in precisions)
        ]
        if not missing:
            continue
        judge = model_path(name, "fp32")
        for batch, outputs in references(judge, name, missing, scale):
            for precision in precisions:
                write_case(folder / f"{name}-{precision}-b{batch}",
                           inputs_of(name, precision, batch, scale), outputs)


def words(known):
    def split(text):
        chosen = list(known) if text == "all" else text.split(",")
        for word in chosen:
            if word not in known:
                raise argparse.ArgumentTypeError(
                    f"'{word}' is none of {', '.join(known)}"
                )
        return chosen
    return split


def numbers(text):
    return [int(word) for word in text.split(",")]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--models", type=words(MODELS), default=list(MODELS))
    parser.add_argument("--precision", type=words(NUMPY), default=["fp32"])
    parser.add_argument("--batch", type=numbers, default=[])
    parser.add_argument("--small", action="store_true",
                        help="every shape of layer, but few layers: for tests")
    options = parser.parse_args()
    scale = Scale.small() if options.small else Scale.full()
    make(options.out, options.models, options.precision, options.batch, scale)
    return 0


if __name__ == "__main__":
    sys.exit(main())
