#!/usr/bin/env python3
"""Writes the committed seeds of onnx_import_fuzz and graph_validate_fuzz.

ONNX models are encoded by hand, so that no package is needed. Run from
anywhere; the output is the same every time.
"""

import pathlib
import random
import struct

HERE = pathlib.Path(__file__).resolve().parent


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
    whole = model([add], [x], [y], [bias])
    yield "truncated", whole[:-20]


def graph_seeds():
    generator = random.Random(7)
    for i in range(24):
        size = 8 + 12 * i
        yield f"random{i:02}", bytes(generator.randrange(256)
                                     for _ in range(size))


def main():
    for folder, seeds in (("onnx_import_seeds", onnx_seeds()),
                          ("graph_validate_seeds", graph_seeds())):
        (HERE / folder).mkdir(exist_ok=True)
        for name, seed in seeds:
            (HERE / folder / name).write_bytes(seed)


if __name__ == "__main__":
    main()
