"""Namespaces, and Secrets without much about them, in Kubernetes' own binary
form: `kubectl create` sends some so, and helm its releases."""

import base64

MAGIC = b"k8s\0"
LABELS = 11


def fields(data):
    """(number, value) of a message; values of fixed size are left out."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
        elif tag & 7 == 2:
            length = varint()
            yield tag >> 3, data[at:at + length]
            at += length
        else:
            at += 8 if tag & 7 == 1 else 4


def pairs(entries):
    """A map, of its entries."""
    for entry in entries:
        found = dict(fields(entry))
        yield found[1].decode(), found.get(2, b"")


def document(body):
    """The object that a request's body holds."""
    envelope = dict(fields(body.removeprefix(MAGIC)))
    about = dict(fields(envelope[1]))
    parts = list(fields(envelope[2]))
    metadata = list(fields(dict(parts)[1]))
    made = {"apiVersion": "v1", "kind": about[2].decode(), "metadata": {
        "name": dict(metadata)[1].decode(), "labels": {
            key: value.decode() for key, value in pairs(
                value for number, value in metadata if number == LABELS)}}}
    if about[2] == b"Secret":
        made["type"] = dict(parts)[3].decode()
        made["data"] = {key: base64.b64encode(value).decode()
                        for key, value in pairs(value for number, value
                                                in parts if number == 2)}
    elif about[2] != b"Namespace":
        raise ValueError(f"a {about[2]} in binary form")
    return made
