"""Writes the seeds of wire_infer_fuzz, wire_evaluate_fuzz and
definition_import_fuzz.

The files are committed and change only when this script does. The first byte of
a seed is, for the first two, the size of the pieces, less one, into which the
message is cut; for the third, for which inputs the request gives types.
"""

import pathlib
import struct

HERE = pathlib.Path(__file__).parent


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field, value):
    return varint(field << 3) + varint(value)


def fixed64(field, value):
    return varint(field << 3 | 1) + struct.pack("<d", value)


def fixed32(field, value):
    return varint(field << 3 | 5) + struct.pack("<f", value)


def data(field, *parts):
    body = b"".join(p.encode() if isinstance(p, str) else p for p in parts)
    return varint(field << 3 | 2) + varint(len(body)) + body


def packed(field, values):
    return data(field, *(varint(v) for v in values))


def parameter(field, name, value):
    return data(field, data(1, name), data(2, value))


def infer_seeds():
    raw = (data(1, "digits"), data(2, "1"), data(3, "call"),
           data(5, data(1, "x"), data(2, "FP32"), packed(3, [1, 4])),
           data(6, data(1, "y")), data(7, b"\0" * 16))
    yield "raw", b"".join(raw)
    yield "parameters", b"".join([
        parameter(4, "bool", number(1, 1)),
        parameter(4, "int", number(2, -3)),
        parameter(4, "string", data(3, "text")),
        parameter(4, "double", fixed64(4, 0.5)),
        parameter(4, "uint", number(5, 9)),
        data(5, data(1, "x"), parameter(4, "a", number(1, 0))),
    ])
    contents = {
        "BOOL": data(1, b"\1\0"),
        "INT8": packed(2, [-1, 127]),
        "INT16": packed(2, [-1, 32767]),
        "INT32": packed(2, [-1, 1 << 30]),
        "INT64": packed(3, [-1, 2]),
        "UINT8": packed(4, [1, 255]),
        "UINT16": packed(4, [1, 65535]),
        "UINT32": packed(4, [1, (1 << 32) - 1]),
        "UINT64": packed(5, [1, (1 << 64) - 1]),
        "FP32": data(6, struct.pack("<2f", 1, 2)),
        "FP64": data(7, struct.pack("<2d", 1, 2)),
        "BYTES": data(8, "one") + data(8, "two"),
        "FP16": packed(4, [1, 2]),  # it has none
    }

    def typed(dtype, body):
        return data(5, data(1, "x"), data(2, dtype), packed(3, [2]),
                    data(5, body))

    for dtype, body in contents.items():
        yield "typed_" + dtype.lower(), typed(dtype, body)
    # Not packed.
    yield "single_int32", typed("INT32", number(2, -5) + number(2, 5))
    yield "single_bool", typed("BOOL", number(1, 7) + number(1, 0))
    yield "single_fp32", typed("FP32", fixed32(6, 1) + fixed32(6, -2))
    yield "single_fp64", typed("FP64", fixed64(7, 1) + fixed64(7, -2))
    # What the tensor does not take.
    yield "too_large", typed("INT8", packed(2, [1, 128]))
    yield "too_small", typed("INT16", packed(2, [1, -32769]))
    yield "too_large_unsigned", typed("UINT8", packed(4, [1, 256]))
    yield "too_few", typed("INT64", packed(3, [1]))
    yield "too_many", typed("FP32", data(6, struct.pack("<3f", 1, 2, 3)))
    yield "of_another_type", typed("FP64", packed(3, [1, 2]))
    yield "of_two_types", typed("INT64", packed(3, [1, 2]) + packed(5, [1]))
    yield "between_elements", typed(
        "UINT32", packed(4, [1]) + number(99, 1) + number(4, 2))
    strings = struct.pack("<I", 5) + b"hello" + struct.pack("<I", 0) * 2
    yield "strings", data(5, data(1, "s"), data(2, "BYTES"), number(3, 3)) + \
        data(7, strings)
    yield "group", b"\x5b" + number(2, 5) + b"\x5c" + data(1, "m")


def evaluate_seeds():
    node = data(1, data(1, "n"), data(3, "Identity"), data(4, "x"),
                data(5, "y"))
    graph = data(1, data(1, node, data(2, data(1, "x")), data(3, "y")))
    spec = data(1, number(1, 2), packed(2, [3, 2]), data(3, "HW"))
    yield "definition", b"".join([
        graph, data(2, data(1, "x"), data(2, spec, data(2, b"123456"))),
        data(3, data(1, "y")), number(4, 4), data(6, "cpu"), data(11, "label")])
    yield "onnx", data(1, data(2, b"\x08\x07")) + number(10, 0)
    yield "model", data(1, data(3, data(1, "digits"), number(2, 1)))
    yield "label", data(1, data(3, data(1, "digits"), data(3, "stable")))
    region = data(4, data(1, "r"), number(2, 64), number(3, 128),
                  packed(4, [-4]))
    samples = data(1, number(1, 1), packed(2, [2]), data(4, packed(1, [2, 3])),
                   data(4, packed(1, [1, 1])))
    yield "sources", b"".join([
        data(2, data(1, "a"), data(2, samples, data(2, b"\0" * 28))),
        data(2, data(1, "b"), data(2, spec, number(3, 5))),
        data(2, data(1, "c"), data(2, spec, region)),
        data(3, data(1, "k"), number(2, 6)),
        data(3, data(1, "r"), data(3, data(1, "r")))])
    yield "settings", b"".join([
        number(5, 1), data(7, number(1, 3), number(2, 3), number(3, -1)),
        data(8, number(1, 1), number(2, 2)), data(9, number(1, 3)),
        number(12, 2), number(13, 2), number(14, 1), number(15, 2)])


def definition_seeds():
    """A GraphDefinition each, with the inputs that are given types."""

    def spec(dtype, shape=()):
        return number(1, dtype) + (packed(2, shape) if shape else b"")

    def value(dtype, shape, raw):
        return data(1, spec(dtype, shape)) + data(2, raw)

    def constant(name, dtype, shape, raw):
        return data(4, data(1, name), data(2, value(dtype, shape, raw)))

    def node(op, inputs, outputs, *attributes, domain=""):
        return data(1, data(1, "n"), data(2, domain), data(3, op),
                    *(data(4, i) for i in inputs),
                    *(data(5, o) for o in outputs),
                    *(data(6, a) for a in attributes))

    def attribute(name, *body):
        return data(1, name) + b"".join(body)

    x = data(2, data(1, "x"), data(2, spec(1, [-1, 3])))
    open_x = data(2, data(1, "x"))
    bias = constant("c", 1, [3], struct.pack("<3f", 1, 2, 3))
    add = node("Add", ["x", "c"], ["y"])
    y = data(3, "y")
    yield "add", 0, x + bias + add + y + number(5, 17)
    yield "given", 1, open_x + node("Neg", ["x"], ["y"]) + y
    yield "not_given", 0, open_x + node("Neg", ["x"], ["y"]) + y
    yield "given_and_unknown", 0xC1, open_x + node("Neg", ["x"], ["y"]) + y
    kinds = [
        attribute("i", number(2, -1)),
        attribute("f", fixed32(3, 0.5)),
        attribute("s", data(4, "SAME")),
        attribute("ints", data(5, packed(1, [1, -2]))),
        attribute("floats", data(6, data(1, struct.pack("<2f", 1, 2)))),
        attribute("strings", data(7, data(1, "one"), data(1, "two"))),
        attribute("tensor", data(8, value(7, [2], struct.pack("<2q", 1, -1)))),
        attribute("text", data(8, value(
            8, [2], struct.pack("<I", 3) + b"one" + struct.pack("<I", 0)))),
    ]
    yield "attributes", 0, x + node("Neg", ["x"], ["y"], *kinds) + y
    yield "attribute_twice", 0, x + node("Neg", ["x"], ["y"], kinds[0],
                                         kinds[0]) + y
    yield "attribute_without_value", 0, x + node(
        "Neg", ["x"], ["y"], attribute("i")) + y
    yield "attribute_without_name", 0, x + node(
        "Neg", ["x"], ["y"], attribute("", number(2, 1))) + y
    axes = attribute("axes", data(5, packed(1, [-1])))
    yield "reduce", 0, x + node("ReduceMean", ["x"], ["y"], axes) + y + \
        number(5, 13)
    yield "flip", 0, x + node("Flip", ["x"], ["y"], domain="weir") + y
    yield "domain", 0, x + node("Neg", ["x"], ["y"], domain="ai.onnx") + y
    for dtype, size in {2: 1, 3: 1, 4: 2, 5: 2, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8,
                        12: 4, 13: 8, 16: 2}.items():
        yield f"constant{dtype}", 0, constant(
            "c", dtype, [2], bytes(range(2 * size))) + data(3, "c")
    yield "booleans", 0, constant("c", 9, [4], b"\0\1\2\xff") + data(3, "c")
    text = struct.pack("<I", 5) + b"hello" + struct.pack("<I", 0)
    yield "text", 0, constant("c", 8, [2], text) + data(3, "c")
    yield "text_too_short", 0, constant("c", 8, [2], text[:-5])
    yield "text_left_over", 0, constant("c", 8, [2], text + b"!")
    yield "text_of_many", 0, constant("c", 8, [1 << 40], text)
    yield "bytes_missing", 0, constant("c", 1, [3], b"1234")
    yield "negative", 0, constant("c", 1, [-3], b"1234")
    yield "no_type", 0, data(4, data(1, "c"), data(2, data(2, b"1234")))
    yield "type_99", 0, constant("c", 99, [1], b"1234")
    yield "no_bytes", 0, data(4, data(1, "c"), data(2, data(1, spec(1, [1]))))
    ragged = spec(1, [2]) + data(4, packed(1, [2, 3]))
    yield "ragged", 0, data(2, data(1, "x"), data(2, ragged)) + y
    yield "constant_twice", 0, bias + bias
    yield "output_twice", 0, x + add + bias + y + y
    yield "extent", 0, data(2, data(1, "x"), data(2, spec(1, [-2])))
    yield "opset_old", 0, x + bias + add + y + number(5, 6)
    yield "opset_new", 0, x + bias + add + y + number(5, 99)
    yield "long_name", 0, x + node("Neg", ["x" * 5000], ["y"]) + y
    yield "cycle", 0, node("Neg", ["y"], ["z"]) + node("Neg", ["z"], ["y"]) + y


def write(folder, seeds):
    (HERE / folder).mkdir(exist_ok=True)
    for name, first, message in seeds:
        (HERE / folder / name).write_bytes(bytes([first]) + message)


def in_pieces(seeds):
    for index, (name, message) in enumerate(seeds):
        yield name, (255, 0, 7)[index % 3], message


def main():
    write("wire_infer_seeds", in_pieces(infer_seeds()))
    write("wire_evaluate_seeds", in_pieces(evaluate_seeds()))
    write("definition_import_seeds", definition_seeds())


if __name__ == "__main__":
    main()
