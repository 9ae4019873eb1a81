#!/usr/bin/env python3
"""Runs one of the bench's models elsewhere than in weir, on request.

    rivals.py --contender onnxruntime|torch-eager|torch-compile \\
        --folder FOLDER --model NAME --precision fp32|fp16 \\
        --device cpu|cuda --threads N

FOLDER is what make_models.py wrote. The first line on standard output says what
runs: {"name": "onnxruntime 1.31.1"}. Then each line of standard input is
answered by one line: {"batch": B} by {"error": E}, the largest deviation of an
output from the case's reference over the reference's standard deviation (1e30
where it is no number), and {"batch": B, "seconds": S} by {"ns": [...]}, the time of each of the runs that
S seconds took, from inputs on the host to outputs on the host. Whatever goes
wrong is {"failed": "why"}.
"""

import argparse
import json
import os
import pathlib
import sys
import time

import numpy as np

import architectures
from architectures import MODELS, RELU_GAIN, Parameters, Scale

DTYPE = {"FP32": np.float32, "FP16": np.float16, "INT64": np.int64}


class Case:
    def __init__(self, folder):
        case = json.loads((folder / "case.json").read_text())

        def read(tensor):
            data = np.fromfile(folder / tensor["file"], DTYPE[tensor["datatype"]])
            return data.reshape(tensor["shape"])

        self.inputs = {t["name"]: read(t) for t in case["inputs"]}
        self.outputs = {t["name"]: read(t) for t in case["outputs"]}


# -- ONNX Runtime -------------------------------------------------------------


class OnnxRuntime:
    def __init__(self, options):
        import onnxruntime

        if options.device != "cpu":
            raise RuntimeError("is measured on the CPU only")
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = options.threads
        settings.log_severity_level = 3
        self.name = f"onnxruntime {onnxruntime.__version__}"
        self.session = onnxruntime.InferenceSession(
            str(options.folder / f"{options.model}-{options.precision}.onnx"),
            settings, providers=["CPUExecutionProvider"],
        )
        self.outputs = [output.name for output in self.session.get_outputs()]

    def runner(self, inputs):
        """A function that runs once and gives the outputs by name."""
        def run():
            return dict(zip(self.outputs, self.session.run(self.outputs, inputs)))
        return run


# -- Torch --------------------------------------------------------------------


class TorchBuilder:
    """Computes what OnnxBuilder writes, as one would write it in torch."""

    def __init__(self, model, dtype, device):
        import torch
        import torch._dynamo

        self.torch = torch
        self.f = torch.nn.functional
        self.parameters = Parameters(model)
        self.dtype = dtype
        self.device = device
        self.values = {}
        self.inputs = None

    def parameter(self, name, make):
        if name not in self.values:
            value = self.torch.from_numpy(make()).to(self.device, self.dtype)
            if value.dim() == 4:
                value = value.to(memory_format=self.torch.channels_last)
            # As for parameters of a module: CUDA graphs do not copy it.
            self.torch._dynamo.mark_static_address(value)
            self.values[name] = value
        return self.values[name]

    def weight(self, name, shape, fan_in, gain):
        name = f"{name}.weight"
        return self.parameter(
            name, lambda: self.parameters.weight(name, shape, fan_in, gain))

    def vector(self, name, size, mean):
        return self.parameter(
            name, lambda: self.parameters.vector(name, size, mean, 0.1))

    # -- pictures

    def picture(self, side):
        return self.inputs["input"].contiguous(
            memory_format=self.torch.channels_last)

    def conv(self, x, name, cin, cout, kernel=1, stride=1, pad=0, groups=1,
             gain=RELU_GAIN):
        shape = (cout, cin // groups, kernel, kernel)
        w = self.weight(name, shape, cin // groups * kernel * kernel, gain)
        return self.f.conv2d(
            x, w, self.vector(f"{name}.bias", cout, 0), stride, pad, 1, groups)

    def relu(self, x):
        return self.torch.relu(x)

    def relu6(self, x):
        return self.f.relu6(x)

    def max_pool(self, x, kernel, stride, pad):
        return self.f.max_pool2d(x, kernel, stride, pad)

    def global_average(self, x):
        return self.f.adaptive_avg_pool2d(x, 1)

    def flatten(self, x):
        return self.torch.flatten(x, 1)

    def linear(self, x, name, cin, cout, gain=1.0):
        w = self.weight(name, (cout, cin), cin, gain)
        return self.f.linear(x, w, self.vector(f"{name}.bias", cout, 0))

    # -- text

    def tokens(self):
        return [self.inputs[name] for name in
                ("input_ids", "attention_mask", "token_type_ids")]

    def additive_mask(self, mask):
        return mask.bool()[:, None, None, :]

    def embedding(self, ids, name, rows, hidden):
        name = f"{name}.weight"
        table = self.parameter(
            name, lambda: self.parameters.table(name, (rows, hidden), 0.5))
        return self.f.embedding(ids, table)

    def position_embedding(self, ids, name, hidden):
        at = self.torch.arange(ids.shape[1], device=self.device)[None]
        return self.embedding(at, name, architectures.MAX_POSITIONS, hidden)

    token_linear = linear

    def layer_norm(self, x, name, hidden):
        return self.f.layer_norm(
            x, (hidden,), self.vector(f"{name}.weight", hidden, 1),
            self.vector(f"{name}.bias", hidden, 0), 1e-12)

    def attention(self, q, k, v, mask, heads, size):
        def split(x):
            return x.view(x.shape[0], x.shape[1], heads, size).transpose(1, 2)

        y = self.f.scaled_dot_product_attention(
            split(q), split(k), split(v), attn_mask=mask)
        return y.transpose(1, 2).reshape(q.shape)

    def gelu(self, x):
        return self.f.gelu(x)

    def first_token(self, x):
        return x[:, 0]

    def tanh(self, x):
        return self.torch.tanh(x)

    def add(self, x, y):
        return x + y


class Torch:
    def __init__(self, options):
        import torch

        self.torch = torch
        self.compiled = options.contender == "torch-compile"
        if options.device == "cuda" and not torch.cuda.is_available():
            raise RuntimeError("torch has no CUDA device here")
        if options.device == "cpu":
            torch.set_num_threads(options.threads)
        # Strict float32, as weir computes; torch's own default for matrices.
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_tf32 = False
        self.name = f"{options.contender} {torch.__version__}"
        self.device = options.device
        dtype = {"fp32": torch.float32, "fp16": torch.float16}[options.precision]
        function = MODELS[options.model][0]
        builder = TorchBuilder(options.model, dtype, options.device)

        def forward(inputs):
            builder.inputs = inputs
            made = function(builder, Scale.full())
            return {name: value for name, (value, _) in made.items()}

        self.eager = forward
        # The fastest that a user gets with one word; CUDA graphs on the GPU.
        mode = "reduce-overhead" if options.device == "cuda" else "default"
        self.call = forward
        if self.compiled:
            self.call = torch.compile(forward, mode=mode, dynamic=False)

    def runner(self, inputs):
        torch = self.torch
        host = {name: torch.from_numpy(value) for name, value in inputs.items()}
        if self.device == "cuda":
            host = {name: value.pin_memory() for name, value in host.items()}

        def run():
            with torch.inference_mode():
                there = {name: value.to(self.device, non_blocking=True)
                         for name, value in host.items()}
                made = self.call(there)
                return {name: value.cpu().numpy() for name, value in made.items()}

        with torch.inference_mode():
            # Makes the parameters before anything is traced.
            self.eager({name: value.to(self.device)
                        for name, value in host.items()})
        return run


# -- The loop -----------------------------------------------------------------


def error(outputs, references):
    worst = 0.0
    for name, reference in references.items():
        got = outputs[name].astype(np.float64)
        if got.shape != reference.shape or not np.isfinite(got).all():
            return 1e30
        worst = max(worst, float(np.abs(got - reference).max() / reference.std()))
    return worst


def answer(rival, cases, request, options):
    batch = request["batch"]
    if batch not in cases:
        case = Case(options.folder / f"{options.model}-{options.precision}-b{batch}")
        cases[batch] = (case, rival.runner(case.inputs))
    case, run = cases[batch]
    if "seconds" not in request:
        for _ in range(3):
            outputs = run()
        return {"error": error(outputs, case.outputs)}
    run()
    times = []
    end = time.perf_counter_ns() + int(request["seconds"] * 1e9)
    before = time.perf_counter_ns()
    while before < end or not times:
        run()
        after = time.perf_counter_ns()
        times.append(after - before)
        before = after
    return {"ns": times}


def attempt(function):
    try:
        return function()
    except Exception as failure:  # the bench shows it, whatever it is
        return {"failed": f"{type(failure).__name__}: {failure}"[:500]}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contender", required=True,
                        choices=["onnxruntime", "torch-eager", "torch-compile"])
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--model", choices=list(MODELS), required=True)
    parser.add_argument("--precision", choices=["fp32", "fp16"], required=True)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    # Libraries print; the answers keep standard output to themselves.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def reply(value):
        print(json.dumps(value), file=replies, flush=True)

    made = {}

    def start():
        kind = OnnxRuntime if options.contender == "onnxruntime" else Torch
        made["rival"] = kind(options)
        return {"name": made["rival"].name}

    first = attempt(start)
    reply(first)
    if "failed" in first:
        return 1
    cases = {}
    for line in sys.stdin:
        request = json.loads(line)
        reply(attempt(lambda: answer(made["rival"], cases, request, options)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
