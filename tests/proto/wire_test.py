#!/usr/bin/env python3
"""What every file of weir/v1 keeps to, and that its wire is the accepted one.

Comments have no exemptions: each file, service, RPC, message, field, oneof,
enumeration and value says what it is.
"""

import pathlib
import re
import unittest

from google.protobuf import descriptor_pb2

import wire_text

FILES = wire_text.describe()
File = descriptor_pb2.FileDescriptorProto
Message = descriptor_pb2.DescriptorProto
Enum = descriptor_pb2.EnumDescriptorProto
Service = descriptor_pb2.ServiceDescriptorProto

CAMEL = re.compile(r"([A-Z][a-z0-9]*)+")
LOWER_SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")

# Ends of British spellings, and words of them.
BRITISH = re.compile(
    r"\b\w*(isation|ised|ising|yse[ds]?|ysing)\b(?<!raised)(?<!raising)"
    r"(?<!promised)(?<!advised)(?<!revised)(?<!supervised)|"
    r"\b\w*(synchron|initial|serial|normal|real|organ|recogn|optim|quant)"
    r"ises?\b|"
    r"\b(col|fav|behavi|neighb|hon|lab)our\w*|"
    r"\b(centre|fibre|litre|metre|catalogue|licence|defence|grey|artefact|"
    r"whilst|amongst|judgement|labell\w+|modell\w+|signall\w+|"
    r"travell\w+)\b", re.IGNORECASE)


def snake(name):
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper()


def elements(file):
    """(path in the source, full name, descriptor) of all that a file
    declares."""
    def of_enum(path, name, enum):
        yield path, name, enum
        for i, value in enumerate(enum.value):
            yield path + (2, i), f"{name}.{value.name}", value

    def of_message(path, name, message):
        yield path, name, message
        synthetic = {field.oneof_index for field in message.field
                     if field.proto3_optional}
        for i, field in enumerate(message.field):
            yield path + (2, i), f"{name}.{field.name}", field
        for i, oneof in enumerate(message.oneof_decl):
            if i not in synthetic:
                yield path + (8, i), f"{name}.{oneof.name}", oneof
        for i, nested in enumerate(message.nested_type):
            if nested.options.map_entry:  # the file says `map`
                continue
            yield from of_message(path + (3, i), f"{name}.{nested.name}",
                                  nested)
        for i, enum in enumerate(message.enum_type):
            yield from of_enum(path + (4, i), f"{name}.{enum.name}", enum)

    for i, message in enumerate(file.message_type):
        yield from of_message((4, i), message.name, message)
    for i, enum in enumerate(file.enum_type):
        yield from of_enum((5, i), enum.name, enum)
    for i, service in enumerate(file.service):
        yield (6, i), service.name, service
        for j, rpc in enumerate(service.method):
            yield (6, i, 2, j), f"{service.name}.{rpc.name}", rpc


def all_of(kind):
    return [(f"{file.name}: {name}", descriptor)
            for file in FILES for _, name, descriptor in elements(file)
            if isinstance(descriptor, kind)]


class Style(unittest.TestCase):
    maxDiff = None

    def none_of(self, findings, rule):
        self.assertEqual(list(findings), [], rule)

    def test_packages_and_options(self):
        for file in FILES:
            stem = pathlib.PurePath(file.name).stem
            outer = "".join(word.capitalize() for word in stem.split("_"))
            options = file.options
            self.assertEqual(
                (file.package, file.syntax, options.go_package,
                 options.java_package, options.java_multiple_files,
                 options.java_outer_classname),
                ("weir.v1", "proto3", "weir/v1;weirv1", "weir.v1", True,
                 outer + "Proto"), file.name)

    def test_imports_are_published_too(self):
        """Whoever has weir/v1 has all of it: google.rpc and inference are
        other people's, and their packages bring them."""
        self.none_of(
            (f"{file.name} imports {name}" for file in FILES
             for name in file.dependency
             if not re.match(r"weir/v1/|google/protobuf/", name)),
            "weir/v1 imports itself and google/protobuf alone")

    def test_everything_has_a_comment(self):
        def without():
            for file in FILES:
                comments = {tuple(place.path): place
                            for place in file.source_code_info.location}
                head = comments[(12,)]
                if not (head.leading_comments
                        or list(head.leading_detached_comments)):
                    yield file.name
                for path, name, _ in elements(file):
                    place = comments[path]
                    if not (place.leading_comments.strip()
                            or place.trailing_comments.strip()):
                        yield f"{file.name}: {name}"
        self.none_of(without(), "these need a comment")

    def test_enumerations(self):
        def wrong():
            for name, enum in all_of(Enum):
                prefix = snake(enum.name) + "_"
                if (enum.value[0].number, enum.value[0].name) != (
                        0, prefix + "UNSPECIFIED"):
                    yield f"{name}: 0 is not {prefix}UNSPECIFIED"
                for value in enum.value:
                    if not re.fullmatch(prefix + "[A-Z][A-Z0-9_]*",
                                        value.name):
                        yield f"{name}: {value.name} is not {prefix}..."
                if enum.options.allow_alias:
                    yield f"{name}: two names for one number"
        self.none_of(wrong(), "values begin with their enumeration's name")

    def test_element_types_are_onnx_numbers(self):
        [enum] = [enum for name, enum in all_of(Enum)
                  if name.endswith(": DataType")]
        onnx = {"FLOAT": 1, "UINT8": 2, "INT8": 3, "UINT16": 4, "INT16": 5,
                "INT32": 6, "INT64": 7, "STRING": 8, "BOOL": 9, "FLOAT16": 10,
                "DOUBLE": 11, "UINT32": 12, "UINT64": 13, "BFLOAT16": 16}
        self.assertEqual({value.name.removeprefix("DATA_TYPE_"): value.number
                          for value in enum.value[1:]}, onnx)

    def test_names(self):
        def wrong():
            for name, message in all_of((Message, Enum, Service)):
                if not CAMEL.fullmatch(message.name):
                    yield f"{name} is not CamelCase"
            for name, field in all_of((descriptor_pb2.FieldDescriptorProto,
                                       descriptor_pb2.OneofDescriptorProto)):
                if not LOWER_SNAKE.fullmatch(field.name):
                    yield f"{name} is not lower_snake_case"
            for name, rpc in all_of(descriptor_pb2.MethodDescriptorProto):
                if not CAMEL.fullmatch(rpc.name):
                    yield f"{name} is not CamelCase"
                # Open of Spaces may say what it opens: OpenSpaceRequest.
                service = name.split()[-1].split(".")[-2]
                # Of a stream each way no message answers another.
                both = rpc.client_streaming and rpc.server_streaming
                for message, end in ((rpc.input_type, "Request"),
                                     (rpc.output_type,
                                      "Event" if both else "Response")):
                    if message not in {
                            f".weir.v1.{rpc.name}{what}{end}" for what in
                            ("", service, service.removesuffix("s"))}:
                        yield f"{name} has {message}"
        self.none_of(wrong(), "names")

    def test_times_say_their_unit(self):
        units = re.compile(r"(seconds?|millis|micros|nanos|_ms|_us|_sec|_time)$")
        self.none_of(
            (name for name, field in all_of(descriptor_pb2.FieldDescriptorProto)
             if units.search(field.name)),
            "times are nanoseconds, in fields that end in _ns")

    def test_lists_come_in_pages(self):
        messages = {descriptor.name: {field.name: field.type
                                      for field in descriptor.field}
                    for _, descriptor in all_of(Message)}
        string = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
        number = descriptor_pb2.FieldDescriptorProto.TYPE_INT32
        for name, rpc in all_of(descriptor_pb2.MethodDescriptorProto):
            if rpc.name.startswith("List"):
                request = messages[rpc.input_type.split(".")[-1]]
                self.assertEqual((request.get("page_size"),
                                  request.get("page_token")),
                                 (number, string), name)
                response = messages[rpc.output_type.split(".")[-1]]
                self.assertEqual(response.get("next_page_token"), string, name)

    def test_text(self):
        def wrong():
            for file in FILES:
                text = (wire_text.PROTO / file.name).read_text("utf-8")
                if not text.endswith("}\n"):
                    yield f"{file.name}: does not end with its last line"
                for number, line in enumerate(text.splitlines(), 1):
                    where = f"{file.name}:{number}"
                    if len(line) > 80:
                        yield f"{where}: longer than 80 columns"
                    if line != line.rstrip() or "\t" in line:
                        yield f"{where}: white space"
                    found = BRITISH.search(line)
                    if found:
                        yield f"{where}: British spelling: {found[0]}"
        self.none_of(wrong(), "text")


class Wire(unittest.TestCase):

    def test_is_what_was_accepted(self):
        text = wire_text.verdict(*wire_text.compare(
            wire_text.COMMITTED.read_text("utf-8"),
            wire_text.wire_text(FILES)))
        if text:
            self.fail("the wire has changed\n" + text)


class Comparison(unittest.TestCase):
    """That the test above sees what it is for: each change alone."""

    def setUp(self):
        self.files = [File.FromString(file.SerializeToString())
                      for file in FILES]
        self.accepted = wire_text.wire_text(self.files)

    def find(self, kind, name):
        [found] = [descriptor for file in self.files
                   for _, full, descriptor in elements(file)
                   if full == name and isinstance(descriptor, kind)]
        return found

    def message(self, name):
        return self.find(Message, name)

    def field(self, name):
        return self.find(descriptor_pb2.FieldDescriptorProto, name)

    def differences(self):
        return wire_text.compare(self.accepted,
                                 wire_text.wire_text(self.files))

    def expect_break(self, *lines):
        breaks, additions = self.differences()
        self.assertEqual(breaks, list(lines))
        text = wire_text.verdict(breaks, additions)
        self.assertIn("BREAKS", text)
        self.assertIn("wire_text.py --accept", text)

    def test_nothing(self):
        self.assertEqual(self.differences(), ([], []))
        self.assertEqual(wire_text.verdict([], []), "")

    def test_order_and_place_do_not_matter(self):
        message = self.message("Point")
        fields = list(message.field)
        del message.field[:]
        message.field.extend(reversed(fields))
        self.files.reverse()
        self.assertEqual(self.differences(), ([], []))

    def test_a_type(self):
        self.field("Point.value").type = (
            descriptor_pb2.FieldDescriptorProto.TYPE_INT64)
        self.expect_break(
            "weir.v1.Point 2 was uint64 value and is int64 value")

    def test_a_label(self):
        self.field("Point.value").label = (
            descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED)
        self.expect_break(
            "weir.v1.Point 2 was uint64 value and is repeated uint64 value")

    def test_a_oneof(self):
        self.field("TensorValue.raw").ClearField("oneof_index")
        self.expect_break("weir.v1.TensorValue 2 was bytes raw in source and "
                          "is bytes raw")

    def test_a_field_name(self):
        self.field("Point.value").name = "count"
        self.expect_break(
            "weir.v1.Point 2 was uint64 value and is uint64 count")

    def test_a_number(self):
        self.field("Point.value").number = 3
        breaks, additions = self.differences()
        self.assertEqual(breaks,
                         ["weir.v1.Point 2 is gone; it was uint64 value"])
        self.assertEqual(additions, ["weir.v1.Point 3 = uint64 value"])

    def test_a_field_that_goes(self):
        message = self.message("Point")
        del message.field[1]
        self.expect_break("weir.v1.Point 2 is gone; it was uint64 value")
        message.reserved_range.add(start=2, end=3)
        message.reserved_name.append("value")
        breaks, additions = self.differences()
        self.assertEqual(
            breaks, ["weir.v1.Point 2 is only reserved; it was uint64 value"])
        self.assertEqual(additions, ["weir.v1.Point value = reserved"])

    def test_a_number_used_again(self):
        message = self.message("Point")
        del message.field[1]
        message.reserved_range.add(start=2, end=3)
        self.accepted = wire_text.wire_text(self.files)
        del message.reserved_range[:]
        message.field.add(name="other", number=2, label=1, type=4)
        self.expect_break("weir.v1.Point 2 was reserved and is used again: "
                          "uint64 other")

    def test_an_enumeration_value(self):
        enum = self.find(Enum, "WorkState")
        enum.value[1].name = "WORK_STATE_NEW"
        self.expect_break("weir.v1.WorkState 1 was WORK_STATE_NOT_ENQUEUED "
                          "and is WORK_STATE_NEW")

    def test_an_rpc(self):
        [service] = [service for file in self.files
                     for service in file.service if service.name == "Admin"]
        service.method[0].server_streaming = True
        self.expect_break(
            "weir.v1.Admin Drain was rpc weir.v1.DrainRequest returns "
            "weir.v1.DrainResponse and is rpc weir.v1.DrainRequest returns "
            "stream weir.v1.DrainResponse")

    def test_a_package(self):
        self.files[0].package = "weir.v2"
        breaks, _ = self.differences()
        self.assertIn("weir.v1.Admin is gone; it was service", breaks)

    def test_a_package_of_another_language(self):
        self.files[0].options.go_package = "elsewhere"
        self.expect_break("weir/v1/admin.proto go_package was "
                          "weir/v1;weirv1 and is elsewhere")

    def test_additions(self):
        self.message("Point").field.add(name="extra", number=9, label=1,
                                        type=4)
        self.find(Enum, "WorkState").value.add(name="WORK_STATE_LOST",
                                               number=7)
        breaks, additions = self.differences()
        self.assertEqual(breaks, [])
        self.assertEqual(additions, ["weir.v1.Point 9 = uint64 extra",
                                     "weir.v1.WorkState 7 = WORK_STATE_LOST"])
        text = wire_text.verdict(breaks, additions)
        self.assertNotIn("BREAKS", text)
        self.assertIn("ADDS", text)
        self.assertIn("wire_text.py --accept", text)


if __name__ == "__main__":
    unittest.main()
