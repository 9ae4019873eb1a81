"""What becomes of a call of an operator: one evaluation, whose outputs are
kept in the space under numbers of ours."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weir import _dtypes, errors
from weir._batch import Batch, for_each
from weir._current import current_connection
from weir._device import name_of
from weir._mode import (
    EvalMode,
    block_connection,
    context_to_use,
    current_device,
    current_mode,
)
from weir._operator import Argument, Operator
from weir._profile import active as active_profiles
from weir._proto import (
    command_pb2,
    evaluation_pb2,
    graph_pb2,
    tensor_pb2,
)
from weir._record import Entry, Record
from weir._tensor import Held, Tensor, TensorLike
from weir._timeline import Point

if TYPE_CHECKING:
    from weir._connection import Connection

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
# What a command takes beside the elements that it brings, about.
_BYTES = 200
_MOST_CONSTANT = 64  # elements
# What has a type by itself. (A union of types would be made at each use.)
_TYPED = (Tensor, np.ndarray, np.generic)


def call_site() -> str:
    """Where the caller's program called the library, as "file:line"."""
    frame = sys._getframe(1)  # pylint: disable=protected-access
    while frame.f_back and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def connection_of(tensors: Sequence[Tensor]) -> Connection:
    """That of the tensors, else of the innermost block, else the current
    one."""
    if not tensors:
        return block_connection() or current_connection()
    connection = tensors[0].connection
    for tensor in tensors:
        if tensor.connection is not connection:
            raise ValueError("tensors of different connections in one "
                             "operation: read one, and bring it to the other")
    return connection


def check_ours(connection: Connection, inputs: Mapping[str, object],
               points: Sequence[Point]) -> None:
    """ValueError for tensors and points of another connection, whose numbers
    stand for something else here."""
    foreign = [f"the input {name}" for name, each in inputs.items()
               if isinstance(each, Tensor)
               and each.connection is not connection]
    foreign += [f"a point of {each.timeline}" for each in points
                if each.timeline.connection is not connection]
    if foreign:
        raise ValueError(
            f"{foreign[0]} is of another connection than {connection}: read "
            "it there, and bring it to this one")


def apply_one(operator: Operator, inputs: Sequence[TensorLike | None],
              attributes: Mapping[str, object], after: Sequence[Point],
              signal: Sequence[Point], *, device: str = "",
              rng_seed: int | None = None) -> Tensor:
    """The first output of an operator."""
    return _apply(operator, inputs, attributes, after, signal, 1,
                  device=device, rng_seed=rng_seed)[0]


def apply(operator: Operator, inputs: Sequence[Any],
          attributes: Mapping[str, object], after: Sequence[Point],
          signal: Sequence[Point], outputs: int) -> tuple[Any, ...]:
    """The first outputs of an operator, of the attributes those that are not
    None: tensors, or batches if an input or an attribute is one."""
    batches = [each for each in (*inputs, *attributes.values())
               if isinstance(each, Batch)]
    if not batches:
        return _apply(operator, inputs, attributes, after, signal, outputs)
    if signal:
        raise ValueError("a point can be signaled by one work, and a batch is "
                         "one for each sample: signal it by a later one")
    made = [_apply(operator, operands, options, after, (), outputs)
            for operands, options in for_each(len(batches[0]), inputs,
                                              attributes)]
    if not made:
        return (Batch(()),) * outputs
    return tuple(map(Batch, zip(*made, strict=True)))


def _apply(operator: Operator, inputs: Sequence[TensorLike | None],
           attributes: Mapping[str, object], after: Sequence[Point],
           signal: Sequence[Point], outputs: int, *, device: str = "",
           rng_seed: int | None = None) -> tuple[Tensor, ...]:
    """On `device`, if it has a name, else where the operands are, else where
    the block says. What it draws comes of `rng_seed`, else of the context."""
    most = len(operator.outputs)
    if outputs < 1 or (outputs > most and
                       operator.outputs[-1].presence != "variadic"):
        raise ValueError(f"{operator.name} has no {outputs} outputs")
    while inputs and inputs[-1] is None:
        inputs = inputs[:-1]
    tensors = [each for each in inputs if isinstance(each, Tensor)]
    connection = connection_of(tensors)
    connection.check_operator(operator)
    if after or signal:
        check_ours(connection, {}, (*after, *signal))
    given = _as_values(operator, inputs)
    attributes = {
        name: np.asarray(value) if operator.attributes[name] == "tensor"
        else value.numpy().tolist() if isinstance(value, Tensor) else value
        for name, value in attributes.items() if value is not None}
    set_attributes = tuple(
        (name, operator.attributes[name], _frozen(value))
        for name, value in attributes.items())
    site = call_site()
    # What decides shapes is part of the graph, which is compiled for it.
    constants = tuple(
        (f"x{place}", _frozen(each)) for place, each in enumerate(given)
        if isinstance(each, np.ndarray) and each.size <= _MOST_CONSTANT
        and operator.input_at(place).decides_shapes)
    in_graph = [name for name, _ in constants]
    graph = _graph_of(operator.domain, operator.name,
                      tuple(each is not None for each in inputs), constants,
                      set_attributes, outputs, site)
    dtypes = [_output_dtype(operator, place, given, attributes)
              for place in range(outputs)]
    return submit(connection, graph,
                  {name: value for place, value in enumerate(given)
                   if value is not None and
                   (name := f"x{place}") not in in_graph},
                  {f"y{place}": dtype for place, dtype in enumerate(dtypes)},
                  after, signal, site, device=device, rng_seed=rng_seed)


def submit(connection: Connection, graph: graph_pb2.Graph,
           inputs: Mapping[str, Tensor | np.ndarray[Any, Any]],
           outputs: Mapping[str, np.dtype[Any] | None],
           after: Sequence[Point], signal: Sequence[Point], site: str,
           *, device: str = "", rng_seed: int | None = None,
           ) -> tuple[Tensor, ...]:
    """Asks for an evaluation in the current block's mode and context; its
    outputs by name, with what is known of their types. Inputs and points are
    the connection's."""
    mode = current_mode()
    connection.check_offered(mode)
    pipeline = connection.pipeline()
    context = context_to_use(connection)
    # Where it is to be: made by itself, each part would be copied again.
    command = command_pb2.Command()
    request = command.evaluate
    request.graph.CopyFrom(graph)
    request.mode = int(mode)  # type: ignore[assignment]
    if context is not None:
        request.context = context.number
    request.on_conflict = evaluation_pb2.CONTEXT_CONFLICT_QUEUE
    request.work = connection.new_number()
    for point in after:
        request.after.append(point.to_wire())
    for point in signal:
        request.signal.append(point.to_wire())
    if rng_seed is not None:
        request.rng_seed = rng_seed
    size = _BYTES
    given: list[Record] = []
    foreign: list[Held] = []  # what another thread asked for
    for name, value in inputs.items():
        wire = request.inputs.add(name=name).value
        if isinstance(value, Tensor):
            held = value._held
            record = held.record
            wire.tensor = record.number
            given.append(record)
            if record.pipeline is not pipeline:
                foreign.append(held)
        else:
            wire.CopyFrom(_dtypes.small_value(*_frozen(value))
                          if value.size <= _MOST_CONSTANT
                          else _dtypes.to_value(value))
            size += value.nbytes
    request.device = device or ("" if given else name_of(current_device()))
    where = (context.device if context else given[0].device if given
             else connection.device_named(request.device))
    records = []
    for name, dtype in outputs.items():
        record = Record(connection.new_number(), pipeline, dtype, None, where)
        request.outputs.add(name=name, tensor=record.number)
        record.works = (request.work,)
        records.append(record)
    made = tuple(map(Tensor, records))
    for held in foreign:
        if not held.record.is_accepted:
            held.record.pipeline.accept(held.record)
    entry = Entry(
        command, size=size, outputs=records,
        inputs=given, keep=[*foreign, context, *after, *signal],
        call_site=site)
    connection.failures.watch(request.work)
    for profile in active_profiles():
        profile.note(connection, request.work, _name_of(graph), site, size)
    pipeline.add(entry)
    if mode >= EvalMode.SYNC_CPU:
        pipeline.settle()
        if entry.failure is not None:
            made[0].raise_failure(entry.failure)
    return made


def _name_of(graph: graph_pb2.Graph) -> str:
    """For people."""
    match graph.WhichOneof("source"):
        case "definition":
            return " ".join(node.op for node in graph.definition.nodes)
        case "model":
            return graph.model.name
    return "an ONNX model"


@functools.lru_cache(maxsize=4096)
def _graph_of(domain: str, name: str, present: tuple[bool, ...],
              constants: tuple[tuple[str, Any], ...],
              attributes: tuple[tuple[str, str, Any], ...], outputs: int,
              site: str) -> graph_pb2.Graph:
    """A graph of one node."""
    node = graph_pb2.Node(
        name=name, op=name, domain=domain, call_site=site,
        inputs=[f"x{place}" if there else ""
                for place, there in enumerate(present)],
        outputs=[f"y{place}" for place in range(outputs)],
        attributes=[_attribute(*each) for each in attributes])
    return graph_pb2.Graph(definition=graph_pb2.GraphDefinition(
        nodes=[node], outputs=node.outputs,
        inputs=[graph_pb2.GraphInput(name=each) for each in node.inputs
                if each and each not in dict(constants)],
        constants=[tensor_pb2.NamedTensor(name=each,
                                          value=_dtypes.small_value(*value))
                   for each, value in constants]))


def _frozen(value: Any) -> Any:
    """As a key can have it, and yet all that is needed."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, str | bytes):
        return value
    if isinstance(value, Sequence):
        return tuple(value)
    return value


def _text(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _attribute(name: str, kind: str, value: Any) -> graph_pb2.Attribute:
    made = graph_pb2.Attribute(name=name)
    match kind:
        case "int":
            # A type, where an operator takes one by number.
            made.i = (int(value) if isinstance(value, int | np.integer)
                      else _dtypes.number_of(value))
        case "float":
            made.f = value
        case "string":
            made.s = _text(value)
        case "ints":
            made.ints.values.extend(value)
        case "floats":
            made.floats.values.extend(value)
        case "strings":
            made.strings.values.extend(map(_text, value))
        case "tensor":
            made.tensor.CopyFrom(_dtypes.small_value(*value))
        case _:
            raise AssertionError(f"an attribute of kind {kind}")
    return made


def _as_values(operator: Operator, inputs: Sequence[TensorLike | None],
               ) -> list[Tensor | np.ndarray[Any, Any] | None]:
    """What is no tensor as an array, of the type that the others of its group
    have, or that alone which the operator takes."""
    if len(inputs) > len(operator.inputs) and not (
            operator.inputs and operator.inputs[-1].presence == "variadic"):
        raise TypeError(f"{operator.name} takes {len(operator.inputs)} inputs")
    made: list[Any] = list(inputs)
    others = [place for place, each in enumerate(made)
              if each is not None and not isinstance(each, Tensor)]
    if not others:
        return made
    groups: dict[int, np.dtype[Any]] = {}
    for place, each in enumerate(made):
        if isinstance(each, _TYPED):
            groups.setdefault(operator.input_at(place).type_group, each.dtype)
    for place in others:
        each = made[place]
        made[place] = np.asarray(each, None if isinstance(each, _TYPED) else
                                 _wanted_dtype(operator.input_at(place),
                                               groups))
    return made


def _wanted_dtype(argument: Argument, groups: Mapping[int, np.dtype[Any]],
                  ) -> np.dtype[Any] | None:
    """Of what has no type by itself."""
    if argument.type_group and argument.type_group in groups:
        return groups[argument.type_group]
    if len(argument.types) == 1:
        return _dtypes.BY_NAME[argument.types[0]]
    return None


def _output_dtype(operator: Operator, place: int, given: Sequence[object],
                  attributes: Mapping[str, object]) -> np.dtype[Any] | None:
    """An output's type, where no server need be asked."""
    output = operator.outputs[min(place, len(operator.outputs) - 1)]
    decides = attributes.get(output.type_attribute)
    if decides is not None:
        if isinstance(decides, int | np.integer):
            return _dtypes.of_number(int(decides))
        return _dtype_of(decides)
    if output.type_group:
        for at, each in enumerate(given):
            if operator.input_at(at).type_group == output.type_group:
                if isinstance(each, Tensor):
                    return each._record.dtype
                if each is not None:
                    return _dtype_of(each)
    if len(output.types) == 1:
        return _dtypes.BY_NAME.get(output.types[0])
    return None


def _dtype_of(value: Any) -> np.dtype[Any]:
    """Of an array, or what names a type."""
    dtype: np.dtype[Any] = np.dtype(getattr(value, "dtype", value))
    return dtype


def refuse_unknown_operator(operator: Operator, target: str) -> None:
    """Says which operator a server does not have."""
    name = f"{operator.domain}.{operator.name}".lstrip(".")
    raise errors.Unimplemented(
        f"the server at {target} has no operator {name}, which this package "
        "was built for: it is older, or another one")
