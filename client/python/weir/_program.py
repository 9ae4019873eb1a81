"""Served models and ONNX files: what is evaluated of them, and with what."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from weir import _dtypes
from weir._proto import evaluation_pb2, graph_pb2
from weir._tensor import Tensor


@dataclasses.dataclass(frozen=True, slots=True)
class Model:
    """A served model; version 0 is the newest that is ready."""

    name: str
    version: int = 0


Given = Tensor | np.ndarray[Any, Any]


def graph_of(program: Model | bytes) -> graph_pb2.Graph:
    if isinstance(program, Model):
        return graph_pb2.Graph(model=graph_pb2.ModelReference(
            name=program.name, version=program.version))
    return graph_pb2.Graph(onnx_model=program)


def given_of(inputs: Mapping[str, Tensor | ArrayLike]) -> dict[str, Given]:
    return {name: each if isinstance(each, Tensor) else np.asarray(each)
            for name, each in inputs.items()}


def arrays_of(response: evaluation_pb2.EvaluateResponse) -> dict[str, Any]:
    return {output.name: _dtypes.to_array(output.value)
            for output in response.outputs}
