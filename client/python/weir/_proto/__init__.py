"""The messages of the wire, in a descriptor pool of their own: other copies of
the same files may be in the process, older or newer."""

import pathlib
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal import enum_type_wrapper


def _make_pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    made = pathlib.Path(__file__).with_name("descriptors.binpb").read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(made).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


_POOL = _make_pool()


def load(file: str, namespace: dict[str, Any]) -> None:
    """Puts the messages, enumerations and values of a file into a module."""
    described = _POOL.FindFileByName(file)
    for name, message in described.message_types_by_name.items():
        namespace[name] = message_factory.GetMessageClass(message)
    for name, enum in described.enum_types_by_name.items():
        namespace[name] = enum_type_wrapper.EnumTypeWrapper(enum)
        for value in enum.values:
            namespace[value.name] = value.number
