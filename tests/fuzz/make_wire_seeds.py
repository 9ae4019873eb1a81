"""Writes the seeds of wire_infer_fuzz and wire_evaluate_fuzz.

The files are committed and change only when this script does. The first byte of
a seed is the size of the pieces, less one, into which the message is cut.
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
        "INT64": packed(3, [-1, 2]),
        "UINT16": packed(4, [1, 65535]),
        "UINT64": packed(5, [1, (1 << 64) - 1]),
        "FP32": data(6, struct.pack("<2f", 1, 2)),
        "FP64": data(7, struct.pack("<2d", 1, 2)),
        "BYTES": data(8, "one") + data(8, "two"),
    }
    for dtype, body in contents.items():
        yield "typed_" + dtype.lower(), data(
            5, data(1, "x"), data(2, dtype), packed(3, [2]), data(5, body))
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


def main():
    for folder, seeds in (("wire_infer_seeds", infer_seeds()),
                          ("wire_evaluate_seeds", evaluate_seeds())):
        (HERE / folder).mkdir(exist_ok=True)
        for index, (name, message) in enumerate(seeds):
            piece = (255, 0, 7)[index % 3]
            (HERE / folder / name).write_bytes(bytes([piece]) + message)


if __name__ == "__main__":
    main()
