#!/usr/bin/env python3
"""Prints the operators of a server as catalog.json has them.

Usage: make_catalog.py HOST:PORT >catalog.json, with the package `weir` on the
path (it need not have any operators yet)."""

import json
import re
import sys

import grpc
from weir._proto import catalog_pb2, operator_pb2, tensor_pb2


def argument(described: operator_pb2.OperatorArgument) -> dict[str, object]:
    presence = operator_pb2.OperatorArgument.Presence.Name(described.presence)
    return {
        "name": described.name,
        "presence": presence.removeprefix("PRESENCE_").lower(),
        "types": [tensor_pb2.DataType.Name(each).removeprefix("DATA_TYPE_")
                  for each in described.types],
        "type_group": described.type_group,
        "type_attribute": described.type_attribute,
    }


def attribute(described: operator_pb2.OperatorAttribute) -> dict[str, object]:
    kind = operator_pb2.OperatorAttribute.Kind.Name(described.kind)
    return {
        "name": described.name,
        "kind": kind.removeprefix("KIND_").lower(),
        "description": described.description,
        "required": described.required,
    }


def read(channel: grpc.Channel) -> list[dict[str, object]]:
    """What catalog.json holds: all operators, by domain and name."""

    def call(method: str, request: object, reply: type) -> object:
        return channel.unary_unary(
            f"/weir.v1.Catalog/{method}", type(request).SerializeToString,
            reply.FromString)(request, timeout=60)

    operators: list[dict[str, object]] = []
    page = catalog_pb2.ListOperatorsRequest()
    while True:
        listed = call("ListOperators", page, catalog_pb2.ListOperatorsResponse)
        for summary in listed.operators:
            described = call(
                "DescribeOperator", catalog_pb2.DescribeOperatorRequest(
                    domain=summary.domain, name=summary.name),
                catalog_pb2.DescribeOperatorResponse).operator_description
            operators.append({
                "domain": summary.domain,
                "name": summary.name,
                "summary": summary.summary,
                "description": described.description,
                "inputs": [argument(each) for each in described.inputs],
                "outputs": [argument(each) for each in described.outputs],
                "attributes": sorted(map(attribute, described.attributes),
                                     key=lambda each: each["name"]),
            })
        if not listed.next_page_token:
            return operators
        page.page_token = listed.next_page_token


def text_of(operators: list[dict[str, object]]) -> str:
    """As JSON, an argument's types on one line."""
    text = json.dumps(operators, indent=1)
    types = r'\[\s+("[A-Z0-9]+"(?:,\s+"[A-Z0-9]+")*)\s+\]'
    return re.sub(types, lambda found: f"[{' '.join(found[1].split())}]",
                  text) + "\n"


if __name__ == "__main__":
    with grpc.insecure_channel(sys.argv[1]) as to_server:
        sys.stdout.write(text_of(read(to_server)))
