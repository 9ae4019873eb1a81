#!/usr/bin/env python3
"""The wire of weir/v1 as text: every number, type, label and name, one a line.

    wire_text.py            prints the text of the tree's .proto files
    wire_text.py --diff     prints what changed since wire.txt was accepted
    wire_text.py --accept   writes it to wire.txt, beside this file

wire.txt is committed and compared by wire_test.py. A line is a name and what
stands behind it; a program that was compiled against an older text goes on
working as long as none of its lines went or changed.
"""

import pathlib
import subprocess
import sys
import tempfile

from google.protobuf import descriptor_pb2

HERE = pathlib.Path(__file__).resolve().parent
PROTO = HERE.parents[1] / "proto"
COMMITTED = HERE / "wire.txt"

Field = descriptor_pb2.FieldDescriptorProto


def describe(root=PROTO):
    """The FileDescriptorProtos of weir/v1 below `root`, with comments."""
    files = sorted(path.relative_to(root).as_posix()
                   for path in (root / "weir" / "v1").glob("*.proto"))
    with tempfile.NamedTemporaryFile() as out:
        done = subprocess.run(
            ["protoc", f"-I{root}", "--include_source_info",
             f"--descriptor_set_out={out.name}", *files],
            stderr=subprocess.PIPE, text=True, check=False)
        # Warnings too: an import that nobody needs is one.
        if done.returncode != 0 or done.stderr:
            sys.exit(f"protoc: {done.stderr}")
        described = descriptor_pb2.FileDescriptorSet.FromString(out.read())
    return list(described.file)


def type_of(field):
    if field.type in (Field.TYPE_MESSAGE, Field.TYPE_ENUM):
        return field.type_name.removeprefix(".")
    return Field.Type.Name(field.type).removeprefix("TYPE_").lower()


def field_text(message, field):
    """Label, type and name; the number stands before."""
    words = [type_of(field), field.name]
    if field.proto3_optional:
        words.insert(0, "optional")
    elif field.label == Field.LABEL_REPEATED:
        words.insert(0, "repeated")
    elif field.HasField("oneof_index"):
        words.append(f"in {message.oneof_decl[field.oneof_index].name}")
    return " ".join(words)


def reserved_lines(name, descriptor, last_is_part):
    for span in descriptor.reserved_range:
        end = span.end if last_is_part else span.end - 1
        for number in range(span.start, end + 1):
            yield f"{name} {number} = reserved"
    for word in descriptor.reserved_name:
        yield f"{name} {word} = reserved"


def enum_lines(name, enum):
    yield f"{name} = enum"
    for value in enum.value:
        yield f"{name} {value.number} = {value.name}"
    yield from reserved_lines(name, enum, last_is_part=True)


def message_lines(name, message):
    yield f"{name} = message"
    for field in message.field:
        yield f"{name} {field.number} = {field_text(message, field)}"
    yield from reserved_lines(name, message, last_is_part=False)
    for nested in message.nested_type:
        yield from message_lines(f"{name}.{nested.name}", nested)
    for enum in message.enum_type:
        yield from enum_lines(f"{name}.{enum.name}", enum)


def service_lines(name, service):
    yield f"{name} = service"
    for rpc in service.method:
        ways = [("stream " if streams else "") + message.removeprefix(".")
                for streams, message in (
                    (rpc.client_streaming, rpc.input_type),
                    (rpc.server_streaming, rpc.output_type))]
        yield f"{name} {rpc.name} = rpc {ways[0]} returns {ways[1]}"


def wire_text(files):
    """Where a name's file is does not travel; its package does."""
    lines = []
    for file in files:
        for enum in file.enum_type:
            lines += enum_lines(f"{file.package}.{enum.name}", enum)
        for message in file.message_type:
            lines += message_lines(f"{file.package}.{message.name}", message)
        for service in file.service:
            lines += service_lines(f"{file.package}.{service.name}", service)
        for option in ("go_package", "java_package"):
            lines.append(f"{file.name} {option} ="
                         f" {getattr(file.options, option)}")
    return "\n".join(sorted(lines, key=sort_key)) + "\n"


def sort_key(line):
    """By name, then by number where there is one."""
    name, _, member = line.partition(" = ")[0].partition(" ")
    return (name, not member.isdigit() and member != "",
            int(member) if member.isdigit() else 0, member)


def entries(text):
    return dict(line.split(" = ", 1) for line in text.splitlines())


def compare(accepted, now):
    """Returns (breaks, additions), as sentences."""
    old, new = entries(accepted), entries(now)
    breaks, additions = [], []
    for name, was in old.items():
        is_now = new.get(name)
        if is_now == was:
            continue
        if is_now is None:
            breaks.append(f"{name} is gone; it was {was}")
        elif is_now == "reserved":
            breaks.append(f"{name} is only reserved; it was {was}")
        elif was == "reserved":
            breaks.append(f"{name} was reserved and is used again: {is_now}")
        else:
            breaks.append(f"{name} was {was} and is {is_now}")
    for name, is_now in new.items():
        if name not in old:
            additions.append(f"{name} = {is_now}")
    return breaks, additions


def verdict(breaks, additions):
    """What to do about a difference, as text; "" if there is none."""
    lines = []
    if breaks:
        lines += ["BREAKS what is compiled against weir/v1:"]
        lines += [f"  - {line}" for line in breaks]
        lines += ["A field or value that must go: reserve its number and name. "
                  "Something else: give", "it a new name and number beside the "
                  "old one, or make weir/v2."]
    if additions:
        lines += ["ADDS to weir/v1, which breaks nobody:"]
        lines += [f"  + {line}" for line in additions]
    if lines:
        lines += ["To accept, run "
                  "tests/deploy/run.sh ../proto/wire_text.py --accept",
                  "and commit tests/proto/wire.txt with the change."
                  + (" A break needs its reason in the commit." if breaks
                     else "")]
    return "\n".join(lines)


def main(arguments):
    now = wire_text(describe())
    if arguments == ["--accept"]:
        COMMITTED.write_text(now, "utf-8")
    elif arguments == ["--diff"]:
        text = verdict(*compare(COMMITTED.read_text("utf-8"), now))
        print(text or "nothing changed")
        return 1 if text else 0
    elif arguments:
        print(__doc__, file=sys.stderr)
        return 2
    else:
        print(now, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
