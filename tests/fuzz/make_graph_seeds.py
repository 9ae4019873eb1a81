#!/usr/bin/env python3
"""Writes the seeds of onnx_import_fuzz and graph_validate_fuzz.

    make_graph_seeds.py FOLDER

They go to FOLDER/onnx_import_seeds and FOLDER/graph_validate_seeds, in place of
what is there. Each operator of ops.def has its own, so they are made by the
build and not committed. The output is the same every time.

ONNX models are encoded by hand, so that no package is needed.
"""

import pathlib
import random
import re
import shutil
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def varint(value):
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field, value):
    return varint(field << 3) + varint(value)


def data(field, value):
    if isinstance(value, str):
        value = value.encode()
    return varint(field << 3 | 2) + varint(len(value)) + value


def dim(size):
    return data(1, number(1, size) if isinstance(size, int) else data(2, size))


def value_info(name, dtype, dims):
    shape = b"".join(dim(d) for d in dims)
    tensor = number(1, dtype) + data(2, shape)
    return data(1, name) + data(2, data(1, tensor))


def tensor(name, dtype, dims, raw=None, **typed):
    out = b"".join(number(1, d) for d in dims) + number(2, dtype)
    out += data(8, name)
    if raw is not None:
        out += data(9, raw)
    if "floats" in typed:
        out += data(4, struct.pack(f"<{len(typed['floats'])}f",
                                   *typed["floats"]))
    if "int64s" in typed:
        out += data(7, b"".join(varint(v) for v in typed["int64s"]))
    if "external" in typed:
        for key, value in typed["external"].items():
            out += data(13, data(1, key) + data(2, value))
        out += number(14, 1)
    return out


def attribute(name, kind, payload):
    return data(5, data(1, name) + payload + number(20, kind))


def node(op, inputs, outputs, name="", attributes=b"", domain=""):
    out = b"".join(data(1, i) for i in inputs)
    out += b"".join(data(2, o) for o in outputs)
    return out + data(3, name) + data(4, op) + attributes + data(7, domain)


def model(nodes, inputs, outputs, initializers=(), opset=17, extra=b""):
    graph = b"".join(data(1, n) for n in nodes) + data(2, "g")
    graph += b"".join(data(5, t) for t in initializers)
    graph += b"".join(data(11, i) for i in inputs)
    graph += b"".join(data(12, o) for o in outputs)
    opsets = data(8, data(1, "") + number(2, opset))
    return number(1, 8) + opsets + data(7, graph) + extra


def of_constant(dtype, values):
    """A model whose output is a constant of two elements."""
    constant = number(1, 2) + number(2, dtype) + data(8, "b") + values
    return model([node("Identity", ["b"], ["y"])], [],
                 [value_info("y", dtype, [2])], [constant])


def onnx_seeds():
    x = value_info("x", 1, ["N", 3])
    y = value_info("y", 1, ["N", 3])
    bias = tensor("b", 1, [3], floats=[1, 2, 3])
    add = node("Add", ["x", "b"], ["y"], "sum")
    shape = tensor("s", 7, [2], int64s=[3, -1])
    yield "add", model([add], [x], [y], [bias])
    yield "add_raw", model([add], [x], [y],
                           [tensor("b", 1, [3], struct.pack("<3f", 1, 2, 3))])
    yield "reshape", model([node("Reshape", ["x", "s"], ["y"])], [x], [y],
                           [shape])
    value = attribute("value", 4, data(5, tensor("", 1, [], floats=[2])))
    yield "constant", model(
        [node("Constant", [], ["b"], "", value), add], [x], [y])
    axes = attribute("axes", 7, number(8, 1) + number(8, 0))
    yield "reduce", model(
        [node("ReduceMean", ["x"], ["y"], "m", axes)], [x], [y], opset=13)
    yield "cycle", model([node("Neg", ["y"], ["z"]), node("Neg", ["z"], ["y"])],
                         [x], [y])
    yield "external", model(
        [add], [x], [y],
        [tensor("b", 1, [3], external={"location": "../w", "offset": "0"})])
    branch = attribute("then_branch", 5, data(6, data(2, "sub")))
    yield "subgraph", model([node("If", ["x"], ["y"], "", branch)], [x], [y])
    yield "function", model([add], [x], [y], [bias],
                            extra=data(25, data(1, "f")))
    yield "huge", model([add], [value_info("x", 1, [1 << 40, 1 << 40])], [y],
                        [bias])
    yield "negative", model([add], [value_info("x", 1, [-3])], [y], [bias])
    yield "odd_opset", model([add], [x], [y], [bias], opset=1 << 40)
    yield "weir", model([node("Flip", ["x"], ["y"], "", b"", "weir")], [x], [y])
    for dtype, size in {1: 4, 2: 1, 3: 1, 4: 2, 5: 2, 6: 4, 7: 8, 9: 1, 10: 2,
                        11: 8, 12: 4, 13: 8, 16: 2}.items():
        yield f"raw{dtype}", of_constant(dtype, data(9, bytes(2 * size)))
    # Each type's numbers stand in one of these fields.
    for dtype in (2, 3, 4, 5, 6, 9, 10):
        yield f"numbers{dtype}", of_constant(dtype, number(5, 0) + number(5, 1))
    yield "numbers7", of_constant(7, number(7, 1) + number(7, -1))
    yield "numbers12", of_constant(12, number(11, 1) + number(11, 2))
    yield "numbers11", of_constant(11, data(10, struct.pack("<2d", 1, 2)))
    yield "numbers1", of_constant(1, data(4, struct.pack("<2f", 1, 2)))
    yield "text", of_constant(8, data(6, "one") + data(6, "two"))
    # What is no constant of two elements.
    for dtype, values in {1: data(4, struct.pack("<f", 1)), 8: data(6, "one"),
                          7: number(7, 1), 9: number(5, 1)}.items():
        yield f"too_few{dtype}", of_constant(dtype, values)
    yield "raw_too_short", of_constant(7, data(9, bytes(15)))
    yield "raw_text", of_constant(8, data(9, b"onetwo"))
    yield "untyped", of_constant(0, data(9, bytes(8)))
    yield "complex", of_constant(14, data(9, bytes(16)))
    yield "segment", of_constant(1, data(3, number(1, 0) + number(2, 1)))
    yield "of_nothing", model(
        [node("Identity", ["b"], ["y"])], [], [value_info("y", 1, [0])],
        [tensor("b", 1, [0, 4], b"")])
    yield "negative_dim", model(
        [node("Identity", ["b"], ["y"])], [], [value_info("y", 1, [0])],
        [tensor("b", 1, [-2], b"")])
    yield "large", model(
        [node("Identity", ["b"], ["y"])], [], [value_info("y", 1, [2048])],
        [tensor("b", 1, [2048], bytes(8192))])
    for key, place in {
        "external_place": {"location": "w", "offset": "64", "length": "12"},
        "external_offset": {"location": "w", "offset": "one"},
        "external_length": {"location": "w", "length": "13"},
        "external_nowhere": {},
    }.items():
        yield key, model([add], [x], [y],
                         [tensor("b", 1, [3], external=place)])
    yield "external_text", model(
        [add], [x], [y], [tensor("b", 8, [3], external={"location": "w"})])
    kernel = attribute("kernel_shape", 7, number(8, 2) + number(8, 2))
    pad = attribute("auto_pad", 3, data(4, "SAME_UPPER"))
    image = value_info("x", 1, ["N", 3, 8, 8])
    yield "pool", model([node("MaxPool", ["x"], ["y"], "p", kernel + pad)],
                        [image], [y])
    alpha = attribute("alpha", 1, varint(2 << 3 | 5) + struct.pack("<f", 0.5))
    axis = attribute("axis", 2, number(3, -1))
    yield "chain", model(
        [node("LeakyRelu", ["x"], ["a"], "n", alpha),
         node("Softmax", ["a"], ["c"], "n", axis),
         node("Clip", ["c", "", "t"], ["y"])],
        [x], [y], [tensor("t", 1, [], floats=[1])])
    whole = model([add], [x], [y], [bias])
    yield "truncated", whole[:-20]


def graph_seeds():
    generator = random.Random(7)
    for i in range(24):
        size = 8 + 12 * i
        yield f"random{i:02}", bytes(generator.randrange(256)
                                     for _ in range(size))
    for domain, name in operators():
        for kind, values in values_of_graphs().items():
            yield f"{name}_{kind}", values + place(domain, name)
        # With attributes.
        yield (f"{name}_set", values_of_graphs()["planes"] +
               place(domain, name) + bytes([0, 0, 0, 0, 0, 2, 0, 1, 1, 1]))


    # Nodes that are one kernel, and some that are none for others that read them.
    rows = [(0, [2, 4])] * 3
    table = [(0, [2, 3]), (0, [3, 4]), (0, [4])]
    image = [(0, [1, 2, 4, 4]), (0, [2, 2, 1, 1]), (0, [2])]
    chains = {
        "mul_add": (rows, [("Mul", 0, 1), ("Add", 4, 2)]),
        "div_add": (rows, [("Div", 0, 1), ("Add", 4, 2)]),
        "gelu": (rows, [("Div", 0, 1), ("Erf", 4), ("Add", 5, 1), ("Mul", 0, 6),
                        ("Mul", 7, 2)]),
        "mul_read_twice": (rows, [("Mul", 0, 1), ("Add", 4, 2), ("Sub", 4, 5)]),
        "matmul_add": (table, [("MatMul", 0, 1), ("Add", 4, 2)]),
        "matmul_add_relu": (table, [("MatMul", 0, 1), ("Add", 2, 4),
                                    ("Relu", 5)]),
        "conv_relu": (image, [("Conv", 0, 1), ("Relu", 4)]),
        "conv_add_relu": (image, [("Conv", 0, 1), ("Add", 4, 0), ("Relu", 5)]),
        "conv_clip": (image, [("Conv", 0, 1), ("Clip", 4)]),
        "convs": (image, [("Conv", 0, 1), ("Sigmoid", 4), ("Mul", 4, 5),
                          ("Conv", 6, 1)]),
    }
    for name, (inputs, nodes) in chains.items():
        yield f"chain_{name}", values_of_graph(inputs, [1]) + b"".join(
            chained(*node) for node in nodes)


def chained(name, *inputs):
    """A node that reads the values of these numbers: inputs of the graph, its
    constant, and what the nodes before it made. Optional inputs it has none."""
    optional = {"Conv": 1, "Clip": 1}.get(name, 0)
    return (place("", name) + b"".join(bytes([0, i]) for i in inputs) +
            bytes(1 if optional else 0) + bytes(3))


def operators():
    """Of the registry: [("", "Add"), ("weir", "Flip"), ...]."""
    lines = (ROOT / "kernels" / "ops" / "ops.def").read_text()
    for domain, name in re.findall(r"^OP\((\w+), (\w+)", lines, re.MULTILINE):
        yield ("" if domain == "onnx" else domain), name


def place(domain, name):
    """The two bytes for which graph_validate_fuzz takes the operator."""
    value = 2166136261
    for c in (domain + name).encode():
        value = ((value ^ c) * 16777619) & 0xFFFFFFFF
    return (value >> 16).to_bytes(2, "big")


def values_of_graph(inputs, constant):
    """Inputs and a constant, as graph_validate_fuzz reads them."""
    out = bytes([0, len(inputs) - 1])
    for dtype, dims in inputs:
        out += bytes([0, dtype, 0, len(dims), *dims])  # 0: a symbol
    return out + bytes([1, 0, len(constant), *constant, 0, 1])


def values_of_graphs():
    """The same for single nodes, by name."""
    float_, int64, bool_, uint8 = 0, 1, 3, 5
    graph = values_of_graph
    minus_one = 252
    return {
        "planes": graph([(float_, [1, 3, 4, 4])], [minus_one]),
        "rows": graph([(float_, [0, 4])], [1]),
        "numbers": graph([(int64, [3]), (bool_, [3])], [0]),
        "pictures": graph([(uint8, [4, 4, 3]), (float_, [4])], [2, 2]),
    }


def main():
    for name, seeds in (("onnx_import_seeds", onnx_seeds()),
                        ("graph_validate_seeds", graph_seeds())):
        folder = pathlib.Path(sys.argv[1]) / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for seed, content in seeds:
            (folder / seed).write_bytes(content)


if __name__ == "__main__":
    main()
