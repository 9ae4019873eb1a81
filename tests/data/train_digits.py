"""Trains the digits classifier and writes it as an ONNX model with samples.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install -r tests/requirements.txt
    /tmp/venv/bin/python tests/data/train_digits.py

Writes, next to this file:
    digits/1/model.onnx   image [-1, 1, 8, 8] float32, values 0 to 16
                          -> probabilities [-1, 10] float32, digit [-1] int64
    digits_samples.f32    held-out pictures, float32 little-endian, [360, 1, 8, 8]
    digits_labels.txt     their digits, one a line
    digits_probabilities.f32
                          what the onnx package's reference evaluator answers to
                          them, float32 little-endian, [360, 10]

With --answers-only it trains nothing and writes the last of these from the model
and the samples that lie there.

The data are scikit-learn's digits (1,797 pictures of 8 x 8). The network is a
small convolutional one, trained in NumPy with a fixed seed; the held-out fifth
is never seen in training.
"""

import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

FOLDER = pathlib.Path(__file__).parent
EPOCHS = 40
BATCH = 50
LEARNING_RATE = 2e-3


def patches(x):
    """[n, c, h, w] -> [n, h, w, c * 9], the 3 x 3 neighborhoods, zero-padded."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    n, c, h, w = x.shape
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(n, h, w, c * 9)


class Conv:
    def __init__(self, random, inputs, outputs):
        scale = np.sqrt(2 / (inputs * 9))
        self.parameters = [
            random.normal(0, scale, (outputs, inputs, 3, 3)),
            np.zeros(outputs),
        ]

    def forward(self, x):
        weight, bias = self.parameters
        self.shape = x.shape
        self.patches = patches(x)
        y = self.patches @ weight.reshape(len(bias), -1).T + bias
        return y.transpose(0, 3, 1, 2)

    def backward(self, dy):
        weight, bias = self.parameters
        dy = dy.transpose(0, 2, 3, 1)
        flat = dy.reshape(-1, len(bias))
        d_weight = flat.T @ self.patches.reshape(len(flat), -1)
        # The gradient of the input is a convolution with the turned kernel.
        turned = weight[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
        dx = (
            patches(dy.transpose(0, 3, 1, 2))
            @ turned.reshape(self.shape[1], -1).T
        )
        return dx.transpose(0, 3, 1, 2), [
            d_weight.reshape(weight.shape),
            flat.sum(0),
        ]


class Linear:
    def __init__(self, random, inputs, outputs):
        scale = np.sqrt(2 / inputs)
        self.parameters = [
            random.normal(0, scale, (outputs, inputs)),
            np.zeros(outputs),
        ]

    def forward(self, x):
        self.shape = x.shape
        self.x = x.reshape(len(x), -1)
        return self.x @ self.parameters[0].T + self.parameters[1]

    def backward(self, dy):
        dx = (dy @ self.parameters[0]).reshape(self.shape)
        return dx, [dy.T @ self.x, dy.sum(0)]


class Relu:
    parameters = []

    def forward(self, x):
        self.positive = x > 0
        return x * self.positive

    def backward(self, dy):
        return dy * self.positive, []


class MaxPool:
    parameters = []

    def forward(self, x):
        n, c, h, w = x.shape
        blocks = x.reshape(n, c, h // 2, 2, w // 2, 2)
        y = blocks.max((3, 5), keepdims=True)
        self.chosen = blocks == y
        self.shape = x.shape
        return y.reshape(n, c, h // 2, w // 2)

    def backward(self, dy):
        share = self.chosen / self.chosen.sum((3, 5), keepdims=True)
        return (share * dy[:, :, :, None, :, None]).reshape(self.shape), []


def train(images, labels, random):
    layers = [
        Conv(random, 1, 12),
        Relu(),
        MaxPool(),
        Conv(random, 12, 24),
        Relu(),
        MaxPool(),
        Linear(random, 24 * 2 * 2, 48),
        Relu(),
        Linear(random, 48, 10),
    ]
    parameters = [p for layer in layers for p in layer.parameters]
    first = [np.zeros_like(p) for p in parameters]
    second = [np.zeros_like(p) for p in parameters]
    step = 0
    for _ in range(EPOCHS):
        order = random.permutation(len(images))
        for begin in range(0, len(order), BATCH):
            chosen = order[begin : begin + BATCH]
            x = images[chosen]
            for layer in layers:
                x = layer.forward(x)
            gradient = softmax(x)
            gradient[np.arange(len(chosen)), labels[chosen]] -= 1
            gradient /= len(chosen)
            gradients = []
            for layer in reversed(layers):
                gradient, own = layer.backward(gradient)
                gradients = own + gradients
            step += 1
            for p, g, m, v in zip(parameters, gradients, first, second):
                m += 0.1 * (g - m)
                v += 0.001 * (g * g - v)
                m_hat = m / (1 - 0.9**step)
                v_hat = v / (1 - 0.999**step)
                p -= LEARNING_RATE * m_hat / (np.sqrt(v_hat) + 1e-8)
    return parameters


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def export(parameters):
    names = ["conv1", "conv2", "fc1", "fc2"]
    constants = [
        numpy_helper.from_array(np.array(16, np.float32), "pixel_range")
    ]
    for i, name in enumerate(names):
        for part, value in zip(("weight", "bias"), parameters[2 * i :]):
            constants.append(
                numpy_helper.from_array(
                    value.astype(np.float32), f"{name}.{part}"
                )
            )

    def node(op, inputs, output, **attributes):
        return helper.make_node(op, inputs, [output], output, **attributes)

    def conv(name, value):
        return [
            node(
                "Conv",
                [value, f"{name}.weight", f"{name}.bias"],
                name,
                kernel_shape=[3, 3],
                pads=[1, 1, 1, 1],
            ),
            node("Relu", [name], f"{name}.relu"),
            node(
                "MaxPool",
                [f"{name}.relu"],
                f"{name}.pool",
                kernel_shape=[2, 2],
                strides=[2, 2],
            ),
        ]

    nodes = [
        node("Div", ["image", "pixel_range"], "scaled"),
        *conv("conv1", "scaled"),
        *conv("conv2", "conv1.pool"),
        node("Flatten", ["conv2.pool"], "features", axis=1),
        node("Gemm", ["features", "fc1.weight", "fc1.bias"], "fc1", transB=1),
        node("Relu", ["fc1"], "fc1.relu"),
        node("Gemm", ["fc1.relu", "fc2.weight", "fc2.bias"], "fc2", transB=1),
        node("Softmax", ["fc2"], "probabilities", axis=1),
        node("ArgMax", ["fc2"], "digit", axis=1, keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [
            helper.make_tensor_value_info(
                "image", TensorProto.FLOAT, ["batch", 1, 8, 8]
            )
        ],
        [
            helper.make_tensor_value_info(
                "probabilities", TensorProto.FLOAT, ["batch", 10]
            ),
            helper.make_tensor_value_info(
                "digit", TensorProto.INT64, ["batch"]
            ),
        ],
        constants,
    )
    model = helper.make_model(
        graph,
        producer_name="weir train_digits.py",
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def write_answers():
    model = onnx.load(FOLDER / "digits" / "1" / "model.onnx")
    samples = np.fromfile(FOLDER / "digits_samples.f32", "<f4")
    probabilities, digit = ReferenceEvaluator(model).run(
        None, {"image": samples.reshape(-1, 1, 8, 8)}
    )
    assert np.array_equal(probabilities.argmax(1), digit)
    probabilities.astype("<f4").tofile(FOLDER / "digits_probabilities.f32")


def train_and_write():
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    images = digits.images.astype(np.float32)[:, None]
    train_x, test_x, train_y, test_y = train_test_split(
        images,
        digits.target,
        test_size=360,
        random_state=7,
        stratify=digits.target,
    )
    random = np.random.default_rng(7)
    model = export(train(train_x.astype(np.float64) / 16, train_y, random))
    probabilities, digit = ReferenceEvaluator(model).run(
        None, {"image": test_x}
    )
    accuracy = float(np.mean(digit == test_y))
    print(f"held-out accuracy {accuracy:.4f} on {len(test_y)} pictures")
    assert accuracy >= 0.95
    assert np.array_equal(probabilities.argmax(1), digit)

    path = FOLDER / "digits" / "1" / "model.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())
    test_x.astype("<f4").tofile(FOLDER / "digits_samples.f32")
    (FOLDER / "digits_labels.txt").write_text(
        "".join(f"{label}\n" for label in test_y)
    )


if __name__ == "__main__":
    if sys.argv[1:] != ["--answers-only"]:
        train_and_write()
    write_answers()
