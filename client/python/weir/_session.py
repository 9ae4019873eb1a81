"""A session: batches of commands one way, their answers the other, over one
stream, which is taken up again when it breaks."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import grpc

from weir import errors
from weir._channel import Channel
from weir._outgoing import Outgoing
from weir._proto import command_pb2, session_pb2

_NUMBER = 1  # the connection's, in a space of its own
# Answers that are not acknowledged: the server keeps four times as many.
_MOST_UNTOLD = 256
# Seconds in which a stream that broke is taken up again, and between tries.
_LINGER = 30.0
_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 1.0
# What may be over a moment later.
_PASSING = ("UNAVAILABLE", "UNKNOWN", "INTERNAL", "CANCELLED",
            "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED")


class Answers:
    """The answers of a batch of commands, as they come; a call that is under
    way."""

    def __init__(self, count: int, timeout: float) -> None:
        # Each command's, or why there is none.
        self.results: list[command_pb2.CommandResult | errors.WeirError |
                           None] = [None] * count
        self._left = count
        self._end = time.monotonic() + timeout
        self._timeout = timeout
        self._all_there = threading.Condition()
        self._callbacks: list[Any] = []

    def answer(self, place: int,
               result: command_pb2.CommandResult | errors.WeirError) -> None:
        """One came."""
        with self._all_there:
            if self.results[place] is not None:
                return
            self.results[place] = result
            self._left -= 1
            if self._left:
                return
            self._all_there.notify_all()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def result(self) -> Answers:
        """Itself when all are there; those that were not in time have
        DeadlineExceeded for an answer."""
        with self._all_there:
            self._all_there.wait_for(
                self.done, max(0.0, self._end - time.monotonic()))
            late = [place for place, each in enumerate(self.results)
                    if each is None]
        for place in late:
            self.answer(place, errors.DeadlineExceeded(
                f"no answer within {self._timeout:g} s"))
        return self

    def done(self) -> bool:
        """Whether all are there, or late."""
        return not self._left or time.monotonic() >= self._end

    def add_done_callback(self, callback: Any) -> None:
        """Called when all are there, by whichever thread has the last."""
        with self._all_there:
            if self._left:
                self._callbacks.append(callback)
                return
        callback(self)

    def cancel(self) -> None:
        """Nothing: what was asked for goes on."""


class Session:
    """Of a connection. Thread-safe: batches are taken in the order in which
    they are given, and each command is done once, however often the stream
    breaks."""

    def __init__(self, channel: Channel) -> None:
        """Unimplemented where the server offers none."""
        self._channel = channel
        self._lock = threading.Lock()
        # By number: the command in its bytes, and where its answer goes.
        self._unanswered: dict[int, tuple[bytes, Answers, int]] = {}
        self._last = 0
        # All up to here were answered, and these beyond.
        self._answered = 0
        self._answered_beyond: set[int] = set()
        self._told = 0
        self._failure: errors.WeirError | None = None
        self._closing = threading.Event()
        # How often it was taken up again.
        self.resumed = 0
        # To the stream; None while there is none.
        self._outgoing: Outgoing | None = None
        self._stream: Any = None
        self._outgoing, _ = self._open(resume=False)
        self._reader = threading.Thread(target=self._read_on, daemon=True,
                                        name="weir session")
        self._reader.start()

    @property
    def is_lost(self) -> bool:
        """Whether it has ended, and takes no more."""
        return self._failure is not None

    def start(self, batches: Sequence[Sequence[command_pb2.Command]],
              timeout: float) -> list[Answers]:
        """Sends them behind all that were given before, together. Waits for
        nothing."""
        made = [Answers(len(batch), timeout) for batch in batches]
        given = [(command.SerializeToString(), answers, place)
                 for batch, answers in zip(batches, made, strict=True)
                 for place, command in enumerate(batch)]
        with self._lock:
            failure = self._failure
            if failure is None:
                first = self._last + 1
                for each in given:
                    self._last += 1
                    self._unanswered[self._last] = each
                if self._outgoing is not None:
                    self._channel.calls += self._outgoing.add(
                        first, [command for command, _, _ in given])
        if failure is not None:
            for _, answers, place in given:
                answers.answer(place, failure)
        return made

    def close(self) -> None:
        """Ends it; what has no answer by now gets none."""
        self._closing.set()
        with self._lock:
            if self._outgoing is not None:
                self._outgoing.end()
        self._stream.cancel()
        self._reader.join()

    def _acknowledged(self) -> int:
        """What the next message says of it."""
        self._told = self._answered
        return self._told

    # The reader's thread.

    def _read_on(self) -> None:
        while True:
            try:
                for event in self._stream:
                    self._take(event)
                failure: errors.WeirError = errors.Unavailable(
                    "the server ended the session")
            except grpc.RpcError as error:
                failure = errors.from_rpc_error(error)
            with self._lock:
                if self._outgoing is not None:
                    self._outgoing.end()
                self._outgoing = None
            lost = self._take_up(failure)
            if lost is not None:
                self._lose(lost)
                return

    def _take(self, event: session_pb2.SessionEvent) -> None:
        taken = []
        with self._lock:
            for each in event.results:
                found = self._unanswered.pop(each.sequence, None)
                if found is None:
                    continue  # it came before the stream broke
                taken.append((found, each.result))
                self._answered_beyond.add(each.sequence)
            while self._answered + 1 in self._answered_beyond:
                self._answered += 1
                self._answered_beyond.remove(self._answered)
            if self._answered - self._told >= _MOST_UNTOLD and (
                    self._outgoing is not None):
                self._told = self._answered
                self._outgoing.acknowledge()
        for (_, answers, place), result in taken:
            answers.answer(place, result)

    def _take_up(self, failure: errors.WeirError) -> errors.WeirError | None:
        """Goes on with another stream; why that cannot be."""
        end, pause = time.monotonic() + _LINGER, _FIRST_PAUSE
        while not self._closing.is_set():
            if failure.code not in _PASSING or time.monotonic() >= end:
                return failure
            self._closing.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            try:
                outgoing, accepted = self._open(resume=True)
            except errors.WeirError as error:
                failure = error
                continue
            with self._lock:
                again = [number for number in self._unanswered
                         if number > accepted]
                if again:
                    self._channel.calls += outgoing.add(again[0], [
                        self._unanswered[number][0] for number in again])
                self._outgoing = outgoing
                self.resumed += 1
            if self._closing.is_set():
                self._stream.cancel()  # nobody saw it
            return None
        return errors.Cancelled(
            f"the connection to {self._channel.target} is closed")

    def _lose(self, failure: errors.WeirError) -> None:
        with self._lock:
            self._failure = failure
            lost, self._unanswered = self._unanswered, {}
        for _, answers, place in lost.values():
            answers.answer(place, failure)

    def _open(self, resume: bool) -> tuple[Outgoing, int]:
        """Begins a stream: what goes to it, and up to which number the server
        has taken commands."""
        outgoing = Outgoing(
            session_pb2.SessionRequest(
                open=session_pb2.SessionOpen(session=_NUMBER, resume=resume),
                acknowledged=self._answered),
            self._channel.max_message_bytes // 2, self._acknowledged)
        self._stream = self._channel.stream(
            "Evaluator/Session", iter(outgoing),
            session_pb2.SessionEvent)
        try:
            event = next(self._stream)
        except grpc.RpcError as error:
            outgoing.end()
            raise errors.from_rpc_error(error) from None
        except StopIteration:
            outgoing.end()
            raise errors.Unavailable("the server ended the session") from None
        self._take(event)
        return outgoing, event.opened.accepted
