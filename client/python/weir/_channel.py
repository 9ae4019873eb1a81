"""The calls of one connection: credentials, the space's token, deadlines,
errors."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

import grpc

from weir import errors
from weir._deadline import current_end, seconds_until
from weir._profile import waiting

Path = str | os.PathLike[str]

_OPTIONS: list[tuple[str, int | str]] = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Large requests too go to the next connection when one is asked to leave.
    ("grpc.per_rpc_retry_buffer_size", 1 << 30),
    ("grpc.keepalive_time_ms", 10_000),
    # Each connection has one of its own, and ends it.
    ("grpc.use_local_subchannel_pool", 1),
]


class _Message(Protocol):

    def SerializeToString(self) -> bytes: ...  # noqa: N802


Reply = TypeVar("Reply")


class Call(Protocol):
    """A call that is under way."""

    def result(self) -> Any: ...

    def done(self) -> bool: ...

    def cancel(self) -> Any: ...

    def add_done_callback(self, callback: Any) -> None: ...


class Channel:
    """Thread-safe. Of the process that made it: in one that was forked from it
    every call is refused, as gRPC's threads and sockets stay behind."""

    def __init__(self, target: str, *, tls_ca: Path | None,
                 tls_cert: Path | None, tls_key: Path | None,
                 tls_server_name: str | None, timeout: float) -> None:
        if (tls_cert is None) != (tls_key is None):
            raise ValueError("tls_cert and tls_key belong together")
        if tls_ca is None and (tls_cert or tls_server_name):
            raise ValueError("tls_cert and tls_server_name need tls_ca")
        self.target = target
        self.timeout = timeout
        self.calls = 0
        # What the server says that it takes.
        self.max_message_bytes = 1 << 20
        self._process = os.getpid()
        self._closed = False
        self._metadata: list[tuple[str, bytes]] = []
        options = list(_OPTIONS)
        if tls_server_name:
            options.append(("grpc.ssl_target_name_override", tls_server_name))
        if tls_ca is None:
            self._channel = grpc.insecure_channel(target, options)
        else:
            def read(path: Path | None) -> bytes | None:
                return None if path is None else pathlib.Path(path).read_bytes()

            credentials = grpc.ssl_channel_credentials(
                read(tls_ca), read(tls_key), read(tls_cert))
            self._channel = grpc.secure_channel(target, credentials, options)

    def set_token(self, token: bytes) -> None:
        """Goes with every call from now on."""
        self._metadata = [("weir-space-bin", token)]

    @property
    def is_ours(self) -> bool:
        """Whether this process made it."""
        return os.getpid() == self._process

    def check_usable(self) -> None:
        """UnusableConnection if it is not."""
        if not self.is_ours:
            raise errors.UnusableConnection(
                f"the connection to {self.target} was opened by process "
                f"{self._process}, which this one was forked from: gRPC does "
                "not survive a fork. Call weir.connect() after it, or start "
                "processes with multiprocessing's method \"spawn\"")
        if self._closed:
            raise errors.UnusableConnection(
                f"the connection to {self.target} is closed")

    def start(self, method: str, request: _Message, reply: type[Reply],
              timeout: float | None = None) -> Call:
        """Begins a call of weir.v1, e.g. "Spaces/Get"; it may take until the
        block's deadline if nothing else is said."""
        call: Call = self._begin(method, request, reply).future(
            request, timeout=self._seconds(timeout), metadata=self._metadata)
        return call

    def call(self, method: str, request: _Message, reply: type[Reply],
             timeout: float | None = None) -> Reply:
        """The reply; WeirError if there is none."""
        begin = self._begin(method, request, reply)
        try:
            with waiting():
                answer: Reply = begin(request, timeout=self._seconds(timeout),
                                      metadata=self._metadata)
        except grpc.RpcError as error:
            raise errors.from_rpc_error(error) from None
        return answer

    def stream(self, method: str, requests: Iterator[bytes],
               event: type[Reply]) -> Any:
        """Begins a call that streams both ways, messages in their bytes;
        iterates over its events."""
        self.check_usable()
        self.calls += 1
        parse = event.FromString  # type: ignore[attr-defined]
        return self._channel.stream_stream(
            f"/weir.v1.{method}", None, parse)(
            requests, metadata=self._metadata)

    def _seconds(self, timeout: float | None) -> float:
        return timeout or seconds_until(current_end(), self.timeout)

    def _begin(self, method: str, request: _Message,
               reply: type[Reply]) -> grpc.UnaryUnaryMultiCallable:
        self.check_usable()
        self.calls += 1
        parse = reply.FromString  # type: ignore[attr-defined]
        return self._channel.unary_unary(
            f"/weir.v1.{method}", type(request).SerializeToString, parse)

    def close(self) -> None:
        self._closed = True
        if self.is_ours:
            self._channel.close()
