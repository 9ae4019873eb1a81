"""The four models of the bench, written once over a builder.

Each is a function of a builder and a Scale that returns its outputs: name, and
value with dims. A builder is an OnnxBuilder (make_models.py), which writes nodes as torch.onnx
exports them, or a TorchBuilder (rivals.py), which computes. Parameters have
names, and their values follow from the model's and the parameter's name alone,
so that both see the same numbers.

Every parameter is a float16 number: the fp32 and the fp16 model are the same
function, and one reference serves both. Weights have mean 0 over each output's
inputs and a standard deviation that keeps activations near 1, so that outputs
depend on the inputs and stay far from the limits of float16.
"""

import math
import zlib

import numpy as np

SEED = 20251122
RELU_GAIN = math.sqrt(2.0)


class Scale:
    """How large a model is. Tests take smaller ones of the same shapes."""

    def __init__(self, side=224, blocks=1.0, layers=None, vocabulary=30522):
        self.side = side  # of the picture
        self.layers = layers  # of a transformer; None: all
        self.blocks = blocks  # unequal 1: one block of each kind
        self.vocabulary = vocabulary

    @staticmethod
    def full():
        return Scale()

    @staticmethod
    def small():
        """Every shape of layer, each once or twice."""
        return Scale(blocks=0, layers=1, vocabulary=1000)


class Parameters:
    """Values by name."""

    def __init__(self, model):
        self._seed = zlib.crc32(model.encode()) ^ SEED

    def _normal(self, name, shape):
        rng = np.random.default_rng([self._seed, zlib.crc32(name.encode())])
        return rng.standard_normal(shape, dtype=np.float32)

    @staticmethod
    def _to_half(values):
        half = values.astype(np.float16)
        # Subnormal numbers are flushed by some kernels and not by others.
        half[np.abs(half) < np.float16(6.2e-5)] = 0
        return half

    def weight(self, name, shape, fan_in, gain):
        """Axis 0 is the output's."""
        w = self._normal(name, shape)
        flat = w.reshape(shape[0], -1)
        if fan_in > 4:
            flat -= flat.mean(axis=1, keepdims=True)
        flat *= gain / math.sqrt(fan_in)
        return self._to_half(w)

    def vector(self, name, size, mean, deviation):
        return self._to_half(mean + deviation * self._normal(name, (size,)))

    def table(self, name, shape, deviation):
        return self._to_half(deviation * self._normal(name, shape))


# -- Pictures -----------------------------------------------------------------


def resnet50(b, scale):
    """ResNet-50 v1.5 with batch normalization folded into convolutions."""
    x = b.picture(scale.side)
    x = b.relu(b.conv(x, "conv1", 3, 64, kernel=7, stride=2, pad=3))
    x = b.max_pool(x, kernel=3, stride=2, pad=1)
    channels = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks if scale.blocks else 2):
            name = f"layer{stage + 1}.{block}"
            stride = 2 if stage > 0 and block == 0 else 1
            y = b.relu(b.conv(x, f"{name}.conv1", channels, width))
            y = b.relu(
                b.conv(y, f"{name}.conv2", width, width, kernel=3, stride=stride, pad=1)
            )
            y = b.conv(y, f"{name}.conv3", width, 4 * width, gain=0.5)
            if block == 0:
                x = b.conv(
                    x, f"{name}.downsample.0", channels, 4 * width, stride=stride, gain=1
                )
            channels = 4 * width
            x = b.relu(b.add(y, x))
    x = b.flatten(b.global_average(x))
    x = b.linear(x, "fc", channels, 1000, gain=2.0)
    return {"logits": (x, ("batch", 1000))}


def mobilenetv2(b, scale):
    """MobileNetV2 1.0 with batch normalization folded into convolutions."""
    x = b.picture(scale.side)
    x = b.relu6(b.conv(x, "features.0.0", 3, 32, kernel=3, stride=2, pad=1))
    channels = 32
    index = 1
    for expand, out, repeats, first_stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for repeat in range(repeats if scale.blocks else min(repeats, 2)):
            stride = first_stride if repeat == 0 else 1
            name = f"features.{index}.conv"
            hidden = channels * expand
            y = x
            at = 0
            if expand != 1:
                y = b.relu6(b.conv(y, f"{name}.{at}.0", channels, hidden))
                at += 1
            y = b.relu6(
                b.conv(
                    y, f"{name}.{at}.0", hidden, hidden, kernel=3, stride=stride, pad=1,
                    groups=hidden,
                )
            )
            y = b.conv(y, f"{name}.{at + 1}", hidden, out, gain=1)
            x = b.add(x, y) if stride == 1 and channels == out else y
            channels = out
            index += 1
    x = b.relu6(b.conv(x, f"features.{index}.0", channels, 1280))
    x = b.flatten(b.global_average(x))
    x = b.linear(x, "classifier.1", 1280, 1000, gain=2.0)
    return {"logits": (x, ("batch", 1000))}


# -- Text ---------------------------------------------------------------------

MAX_POSITIONS = 512
TOKENS = 128


def _encoder(b, scale, layers, hidden, heads, pooled):
    ids, mask, types = b.tokens()
    mask = b.additive_mask(mask)
    x = b.add(
        b.embedding(ids, "embeddings.word_embeddings", scale.vocabulary, hidden),
        b.embedding(types, "embeddings.token_type_embeddings", 2, hidden),
    )
    x = b.add(x, b.position_embedding(ids, "embeddings.position_embeddings", hidden))
    x = b.layer_norm(x, "embeddings.LayerNorm", hidden)
    for layer in range(scale.layers or layers):
        name = f"encoder.layer.{layer}"
        q = b.token_linear(x, f"{name}.attention.self.query", hidden, hidden)
        k = b.token_linear(x, f"{name}.attention.self.key", hidden, hidden)
        v = b.token_linear(x, f"{name}.attention.self.value", hidden, hidden)
        y = b.attention(q, k, v, mask, heads, hidden // heads)
        y = b.token_linear(y, f"{name}.attention.output.dense", hidden, hidden)
        x = b.layer_norm(b.add(y, x), f"{name}.attention.output.LayerNorm", hidden)
        y = b.gelu(b.token_linear(x, f"{name}.intermediate.dense", hidden, 4 * hidden))
        y = b.token_linear(y, f"{name}.output.dense", 4 * hidden, hidden, gain=RELU_GAIN)
        x = b.layer_norm(b.add(y, x), f"{name}.output.LayerNorm", hidden)
    outputs = {"last_hidden_state": (x, ("batch", "sequence", hidden))}
    if pooled:
        y = b.tanh(b.linear(b.first_token(x), "pooler.dense", hidden, hidden))
        outputs["pooler_output"] = (y, ("batch", hidden))
    return outputs


def bert_base(b, scale):
    return _encoder(b, scale, layers=12, hidden=768, heads=12, pooled=True)


def minilm(b, scale):
    """all-MiniLM-L6's encoder."""
    return _encoder(b, scale, layers=6, hidden=384, heads=12, pooled=False)


# name: (function, opset that its exporter used, is it text)
MODELS = {
    "resnet50": (resnet50, 17, False),
    "mobilenetv2": (mobilenetv2, 17, False),
    # LayerNormalization is an operator since opset 17; before, exporters wrote
    # it as nine nodes.
    "bert-base": (bert_base, 17, True),
    "minilm": (minilm, 14, True),
}


def sample(model, batch, scale):
    """Inputs by name. Numbers that float16 holds."""
    rng = np.random.default_rng([SEED, zlib.crc32(model.encode()), batch])
    if not MODELS[model][2]:
        shape = (batch, 3, scale.side, scale.side)
        return {"input": rng.standard_normal(shape, dtype=np.float32).astype(np.float16)}
    shape = (batch, TOKENS)
    lengths = rng.integers(TOKENS // 2, TOKENS + 1, size=batch)
    first = rng.integers(1, lengths)
    at = np.arange(TOKENS)
    return {
        "input_ids": rng.integers(0, scale.vocabulary, size=shape, dtype=np.int64),
        "attention_mask": (at < lengths[:, None]).astype(np.int64),
        "token_type_ids": (at >= first[:, None]).astype(np.int64),
    }
