"""A connection to a server, and the space that it opens there."""

from __future__ import annotations

import asyncio
import atexit
import collections
import contextlib
import dataclasses
import itertools
import queue
import threading
import time
import warnings
import weakref
from collections.abc import Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any

import grpc
import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from weir import _awaiting, _dtypes, errors
from weir._channel import Channel, Path
from weir._current import open_connections
from weir._deadline import current_end, deadline
from weir._device import Device, name_of
from weir._evaluation import (
    call_site,
    check_ours,
    refuse_unknown_operator,
    submit,
)
from weir._failures import Failures
from weir._mode import (
    EvalMode,
    context_to_use,
    current_device,
    current_mode,
)
from weir._operator import Operator
from weir._pipeline import Pipeline
from weir._profile import active as active_profiles
from weir._program import Given, Model, arrays_of, given_of, graph_of
from weir._proto import (
    catalog_pb2,
    command_pb2,
    evaluation_pb2,
    evaluator_pb2,
    graph_pb2,
    spaces_pb2,
    tensor_pb2,
)
from weir._record import Entry, Record
from weir._sender import send_on
from weir._session import Session
from weir._space import Amounts, Space
from weir._tensor import Tensor
from weir._timeline import Point


def _within(timeout: float | None) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext() if timeout is None else deadline(timeout)


async def _there(outputs: dict[str, Any]) -> dict[str, Any]:
    return outputs


class _Slot:
    """A thread's hold on a pipeline, which it gives back as it ends."""

    __slots__ = ("pipeline", "_idle")

    def __init__(self, pipeline: Pipeline,
                 idle: collections.deque[Pipeline]) -> None:
        self.pipeline = pipeline
        self._idle = idle

    def __del__(self) -> None:
        self._idle.append(self.pipeline)


class Connection:
    """Thread-safe; each thread's commands go in their order. As a context
    manager it is closed at the end of its block."""

    def __init__(self, channel: Channel, label: str, quota: Amounts,
                 lease: float, send_after: float) -> None:
        self.channel = channel
        self.target = channel.target
        self._send_after = send_after
        self._numbers = itertools.count(1)
        self._slots = threading.local()
        self._pipelines: list[Pipeline] = []
        self._idle: collections.deque[Pipeline] = collections.deque()
        self.failures = Failures()
        # Whether works may wait for what a thread has yet to do.
        self.has_timelines = False
        self._closing = threading.Lock()
        self._is_open = False
        info = channel.call("Catalog/GetServerInfo",
                            catalog_pb2.GetServerInfoRequest(),
                            catalog_pb2.GetServerInfoResponse)
        # The modes that the server offers.
        self.modes = [mode for mode in EvalMode if int(mode) in info.modes]
        self.max_message_bytes = info.limits.max_message_bytes
        channel.max_message_bytes = self.max_message_bytes
        self.devices = self._list_devices()
        self._operators = self._list_operators()
        opened = channel.call("Spaces/Open", spaces_pb2.OpenSpaceRequest(
            label=label, lease_ns=int(lease * 1e9),
            quota=spaces_pb2.SpaceAmounts(**dataclasses.asdict(quota))),
            spaces_pb2.OpenSpaceResponse)
        channel.set_token(opened.token)
        # Names the space in lists, logs and errors; no secret.
        self.space_id = opened.id
        self.quota = Amounts.from_wire(opened.quota)
        # Seconds that the space lives without this process.
        self.lease = opened.lease_ns / 1e9
        self._woken: queue.SimpleQueue[bool] = queue.SimpleQueue()
        # Whether the sender knows that something waits.
        self.is_woken = False
        self._sender = threading.Thread(
            target=send_on, name="weir sender", daemon=True,
            args=(weakref.ref(self), self._woken, send_after, self.lease / 3))
        # None where the server offers none.
        self.session: Session | None = None
        with contextlib.suppress(errors.Unimplemented):
            self.session = Session(channel)
        self._is_open = True
        open_connections.append(self)
        self._sender.start()

    # What a program uses.

    def tensor(self, array: ArrayLike, dtype: DTypeLike | None = None, *,
               device: Device | str | None = None) -> Tensor:
        """Keeps a copy of an array on the server: on `device`, else that of the
        block, or of its context, else the server's default device."""
        elements = np.asarray(array, dtype)
        value = _dtypes.to_value(elements)
        if elements.nbytes > self.max_message_bytes:
            raise errors.ResourceExhausted(
                f"the array has {elements.nbytes} bytes, and a message to "
                f"{self.target} may have {self.max_message_bytes}: streamed "
                "writes (Evaluator.Write) are not offered yet")
        mode = current_mode()
        self.check_offered(mode)
        pipeline = self.pipeline()
        where = name_of(current_device() if device is None else device)
        record = Record(
            self.new_number(), pipeline, elements.dtype.newbyteorder("="),
            elements.shape, self.device_named(where))
        tensor = Tensor(record)
        site = call_site()
        entry = Entry(
            command_pb2.Command(tensor_put=command_pb2.TensorPut(
                tensor=record.number, value=value, device=where,
                mode=int(max(mode, EvalMode.EAGER)))),  # type: ignore[arg-type]
            size=elements.nbytes, outputs=[record], call_site=site)
        for profile in active_profiles():
            profile.note_bytes(self, entry.size)
        pipeline.add(entry)
        if mode >= EvalMode.SYNC_CPU:
            pipeline.settle()
            if entry.failure is not None:
                tensor.raise_failure(entry.failure)
        return tensor

    def evaluate(self, program: Model | bytes,
                 inputs: Mapping[str, Tensor | ArrayLike], *,
                 outputs: Sequence[str] = (), after: Sequence[Point] = (),
                 signal: Sequence[Point] = (), timeout: float | None = None,
                 ) -> dict[str, Any]:
        """Runs a served model, or one of ONNX's in its bytes. Its `outputs` are
        kept as tensors on the server; without names all of them are returned
        as arrays, which waits for them."""
        if timeout is not None:
            with deadline(timeout):
                return self.evaluate(program, inputs, outputs=outputs,
                                     after=after, signal=signal)
        graph, given = graph_of(program), given_of(inputs)
        if outputs:
            return self._keep(graph, given, outputs, after, signal)
        check_ours(self, given, (*after, *signal))
        self.flush()
        for each in given.values():
            if isinstance(each, Tensor):
                each._accept()
        return arrays_of(self.channel.call(
            "Evaluator/Evaluate",
            self._request(graph, given, after, signal),
            evaluation_pb2.EvaluateResponse))

    def aevaluate(self, program: Model | bytes,
                  inputs: Mapping[str, Tensor | ArrayLike], *,
                  outputs: Sequence[str] = (), after: Sequence[Point] = (),
                  signal: Sequence[Point] = (), timeout: float | None = None,
                  ) -> Coroutine[Any, Any, dict[str, Any]]:
        """As `evaluate`, in a task of asyncio. What is asked for, and in which
        mode and context, is settled by this call, whoever awaits it."""
        graph, given = graph_of(program), given_of(inputs)
        if outputs:
            with _within(timeout):
                return _there(self._keep(graph, given, outputs, after, signal))
        check_ours(self, given, (*after, *signal))
        # What they stand for may change meanwhile.
        tensors = [each._again() for each in given.values()
                   if isinstance(each, Tensor)]
        return self._evaluate_in_task(
            self._request(graph, given, after, signal), tensors, timeout,
            (context_to_use(self), after, signal))

    async def _evaluate_in_task(
            self, request: evaluation_pb2.EvaluateRequest,
            tensors: Sequence[Tensor], timeout: float | None, keep: object,
    ) -> dict[str, Any]:
        """`keep` is not to be given up before the reply is there."""
        with _within(timeout):
            await self.aflush()
            for each in tensors:
                await each._record.pipeline.settle_in_task()
                each._raise_known()
            if self._goes_by_session(request):
                reply = await self._answer_in_task(request)
            else:
                reply = await _awaiting.result_of(self.channel.start(
                    "Evaluator/Evaluate", request,
                    evaluation_pb2.EvaluateResponse))
        del keep
        return arrays_of(reply)

    def _goes_by_session(self,
                         request: evaluation_pb2.EvaluateRequest) -> bool:
        """A call that is in a context holds up the session's commands in that
        one, and so all behind them; the session may enter it again."""
        return (request.context != 0 and self.session is not None
                and not self.session.is_lost and current_end() is None
                and request.ByteSize() <= self.max_message_bytes // 4)

    async def _answer_in_task(
            self, request: evaluation_pb2.EvaluateRequest,
    ) -> evaluation_pb2.EvaluateResponse:
        assert self.session is not None
        timeout = self.channel.timeout
        [answers] = self.session.start(
            [[command_pb2.Command(evaluate=request)]], timeout)
        await _awaiting.until_done(answers, time.monotonic() + timeout)
        [result] = answers.result().results
        if isinstance(result, errors.WeirError):
            raise result.again()
        assert result is not None
        if result.HasField("error"):
            raise errors.from_failure(result.error)
        return result.evaluate

    def _keep(self, graph: graph_pb2.Graph, given: Mapping[str, Given],
              outputs: Sequence[str], after: Sequence[Point],
              signal: Sequence[Point]) -> dict[str, Any]:
        check_ours(self, given, (*after, *signal))
        made = submit(self, graph, given, dict.fromkeys(outputs), after,
                      signal, call_site())
        return dict(zip(outputs, made, strict=True))

    def _request(self, graph: graph_pb2.Graph, given: Mapping[str, Given],
                 after: Sequence[Point], signal: Sequence[Point],
                 ) -> evaluation_pb2.EvaluateRequest:
        """All outputs inline."""
        context = context_to_use(self)
        request = evaluation_pb2.EvaluateRequest(
            graph=graph, mode=int(current_mode()),  # type: ignore[arg-type]
            context=context.number if context else 0,
            on_conflict=evaluation_pb2.CONTEXT_CONFLICT_QUEUE,
            device="" if any(isinstance(each, Tensor)
                             for each in given.values())
            else name_of(current_device()),
            after=[point.to_wire() for point in after],
            signal=[point.to_wire() for point in signal])
        for name, each in given.items():
            request.inputs.add(name=name, value=tensor_pb2.TensorValue(
                tensor=each._record.number) if isinstance(each, Tensor)
                else _dtypes.to_value(each))
        return request

    @property
    def calls(self) -> int:
        """How many calls it has made, and messages of its session."""
        return self.channel.calls

    def flush(self) -> None:
        """Sends what this thread asked for; returns when the server took it."""
        self.pipeline().settle()

    async def aflush(self) -> None:
        """As `flush`, in a task of asyncio."""
        await self.pipeline().settle_in_task()

    def space(self) -> Space:
        """What the space holds now, and may hold."""
        self.flush()
        return Space.from_wire(self.channel.call(
            "Spaces/Get", spaces_pb2.GetSpaceRequest(),
            spaces_pb2.GetSpaceResponse).space)

    def spaces(self) -> list[Space]:
        """The spaces of this caller's identity; none for "anonymous"."""
        found: list[Space] = []
        request = spaces_pb2.ListSpacesRequest()
        while True:
            page = self.channel.call("Spaces/List", request,
                                     spaces_pb2.ListSpacesResponse)
            found += map(Space.from_wire, page.spaces)
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    def close(self) -> None:
        """Ends the space with all that it holds. Warns of failures that nobody
        was told of."""
        with self._closing:
            if not self._is_open:
                return
            self._is_open = False
        open_connections.remove(self)
        self._woken.put(False)
        if not self.channel.is_ours:
            return
        for pipeline in list(self._pipelines):
            with contextlib.suppress(errors.WeirError, RuntimeError):
                pipeline.settle()
        with contextlib.suppress(errors.WeirError):
            self._look_for_failures()
        if self.session is not None:
            self.session.close()
        with contextlib.suppress(errors.WeirError):
            self.channel.call("Spaces/Close", spaces_pb2.CloseSpaceRequest(),
                              spaces_pb2.CloseSpaceResponse)
        self.channel.close()
        untold = self.failures.untold()
        if untold:
            warnings.warn(
                f"{len(untold)} operations failed and nobody read their "
                f"results; the first: {untold[0]}", RuntimeWarning,
                stacklevel=2)

    async def aclose(self) -> None:
        """As `close`, in a task of asyncio."""
        await asyncio.to_thread(self.close)

    def _look_for_failures(self) -> None:
        """Asks what became of the newest works."""
        queries = evaluator_pb2.RunRequest(commands=[
            command_pb2.Command(query=command_pb2.Query(work=work))
            for work in self.failures.watched()])
        if not queries.commands:
            return
        reply = self.channel.call("Evaluator/Run", queries,
                                  evaluator_pb2.RunResponse)
        for result in reply.results:
            if result.query.HasField("failure"):
                self.failures.note(errors.from_failure(result.query.failure))

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None,
                 error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "" if self._is_open else ", closed"
        return f"<weir.Connection {self.target}, space {self.space_id}{state}>"

    # What the other parts of the package use.

    def pipeline(self) -> Pipeline:
        """This thread's."""
        self.channel.check_usable()
        slot: _Slot | None = getattr(self._slots, "slot", None)
        if slot is None:
            try:
                pipeline = self._idle.popleft()
            except IndexError:
                pipeline = Pipeline(self)
                self._pipelines.append(pipeline)
            slot = self._slots.slot = _Slot(pipeline, self._idle)
        return slot.pipeline

    def works_of_a_pipeline(self) -> int:
        """How many works of one may be unfinished, so that those of all fit the
        space."""
        return max(1, self.quota.works // max(4, 2 * len(self._pipelines)))

    def new_number(self) -> int:
        """One that nothing in the space has."""
        return next(self._numbers)

    def wake(self) -> None:
        """Something waits to be sent."""
        if not self.is_woken:
            self.is_woken = True
            self._woken.put(True)

    def check_offered(self, mode: EvalMode) -> None:
        if mode not in self.modes:
            raise errors.Unimplemented(
                f"the server at {self.target} does not offer the mode "
                f"{mode.name}; it offers "
                f"{', '.join(each.name for each in self.modes)}", field="mode")

    def check_operator(self, operator: Operator) -> None:
        if (operator.domain, operator.name) not in self._operators:
            refuse_unknown_operator(operator, self.target)

    @property
    def default_device(self) -> Device:
        return next((each for each in self.devices if each.is_default),
                    self.devices[0])

    def device_named(self, name: str) -> Device:
        """The default one, if it has no name."""
        if not name:
            return self.default_device
        return next((each for each in self.devices if each.name == name),
                    Device(name))

    def device_of(self, uuid: str) -> Device:
        return next((each for each in self.devices if each.uuid == uuid),
                    Device(uuid, uuid))

    def _list_devices(self) -> list[Device]:
        found: list[Device] = []
        request = catalog_pb2.ListDevicesRequest()
        while True:
            page = self.channel.call("Catalog/ListDevices", request,
                                     catalog_pb2.ListDevicesResponse)
            found += [Device(each.name, each.uuid, each.product,
                             each.memory_bytes, each.is_default)
                      for each in page.devices]
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    def _list_operators(self) -> set[tuple[str, str]]:
        found: set[tuple[str, str]] = set()
        request = catalog_pb2.ListOperatorsRequest()
        while True:
            page = self.channel.call("Catalog/ListOperators", request,
                                     catalog_pb2.ListOperatorsResponse)
            found |= {(each.domain, each.name) for each in page.operators}
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    def send_what_waits(self) -> None:
        """Of all threads, as far as that blocks none."""
        for pipeline in list(self._pipelines):
            with contextlib.suppress(errors.WeirError, RuntimeError):
                pipeline.send_if_idle(lambda _: self.wake())

    def renew(self) -> None:
        """The lease, which calls renew, too."""
        with contextlib.suppress(errors.WeirError, errors.UnusableConnection):
            self.channel.call("Spaces/Get", spaces_pb2.GetSpaceRequest(),
                              spaces_pb2.GetSpaceResponse)


def connect(target: str = "127.0.0.1:8001", *, label: str = "",
            quota: Amounts | None = None, lease: float = 0,
            timeout: float = 60, tls_ca: Path | None = None,
            tls_cert: Path | None = None, tls_key: Path | None = None,
            tls_server_name: str | None = None, send_after: float = 0.005,
            ) -> Connection:
    """Opens a space on a server, and makes it the current connection until it
    is closed.

    target: HOST:PORT or unix:PATH.
    label: of the space, for people.
    quota: what the space may hold; None, or 0 in it: what the server gives.
    lease: seconds that the space lives without this process; 0: as long as the
      server says. While the process lives it is renewed.
    timeout: seconds that a call may take, and the work that it asks for.
    tls_ca: PEM file: talk TLS to a server that one of these signed.
    tls_cert, tls_key: PEM files of the client, for mutual TLS.
    tls_server_name: expected in the server's certificate; None: target's host.
    send_after: seconds that an operation waits for others to be sent with.
    """
    channel = Channel(target, tls_ca=tls_ca, tls_cert=tls_cert, tls_key=tls_key,
                      tls_server_name=tls_server_name, timeout=timeout)
    try:
        return Connection(channel, label, quota or Amounts(), lease, send_after)
    except BaseException:
        channel.close()
        raise


@atexit.register
def _close_all() -> None:
    for connection in list(open_connections):
        with contextlib.suppress(grpc.RpcError):
            connection.close()
