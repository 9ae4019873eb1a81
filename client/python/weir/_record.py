"""What is known of commands, and of the tensors that they make."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weir import _dtypes, errors
from weir._proto import (
    command_pb2,
    evaluation_pb2,
    failure_pb2,
    sync_report_pb2,
    tensor_pb2,
)

if TYPE_CHECKING:
    from weir._device import Device
    from weir._pipeline import Pipeline

Shape = tuple[int | None, ...]


class Record:
    """What is known of a number that stands for a tensor. Written by whoever
    holds the lock of its pipeline."""

    __slots__ = ("number", "pipeline", "dtype", "shape", "device", "state",
                 "failure", "lost", "report", "works")

    def __init__(self, number: int, pipeline: Pipeline,
                 dtype: np.dtype[Any] | None, shape: Shape | None,
                 device: Device) -> None:
        self.number = number
        self.pipeline = pipeline
        self.dtype = dtype
        self.shape = shape
        self.device = device
        # "waiting" here, "sent", "accepted" there, "ready", "failed", or
        # "lost": the call failed, and the tensor may be there or not.
        self.state = "waiting"
        self.failure: errors.WeirError | None = None
        self.lost: errors.WeirError | None = None
        self.report: sync_report_pb2.SyncReport | None = None
        # Numbers of the works one of which is at fault if it fails.
        self.works: tuple[int, ...] = ()

    @property
    def is_accepted(self) -> bool:
        """Whether its number may be used by others than its own pipeline."""
        return self.state not in ("waiting", "sent")

    def fail(self, failure: errors.WeirError) -> None:
        self.state, self.failure = "failed", failure

    def learn(self, spec: tensor_pb2.TensorSpec) -> None:
        """What the server knows, unless more is known here."""
        if spec.dtype == tensor_pb2.DATA_TYPE_UNSPECIFIED:
            return
        if self.shape is None or None in self.shape:
            self.shape = tuple(None if extent < 0 else extent
                               for extent in spec.shape)
        if self.dtype is None:
            self.dtype = _dtypes.of_number(spec.dtype)

    def foresee(self, shapes: Sequence[Shape | None]) -> None:
        """Its shape, as what these make together element by element."""
        known = [shape for shape in shapes
                 if shape is not None and None not in shape]
        if len(known) == len(shapes):
            with contextlib.suppress(ValueError):  # the server refuses it
                self.shape = np.broadcast_shapes(
                    *known)  # type: ignore[arg-type]


class Entry:
    """One command, and what is done when its result is there."""

    __slots__ = ("command", "size", "outputs", "inputs", "keep", "call_site",
                 "end", "is_free", "result", "failure")

    def __init__(self, command: command_pb2.Command, *, size: int = 0,
                 outputs: Sequence[Record] = (),
                 inputs: Sequence[Record] = (), keep: Sequence[object] = (),
                 call_site: str = "", is_free: bool = False) -> None:
        self.command = command
        self.size = size
        self.outputs = outputs
        # Whose failure is this one's, too.
        self.inputs = inputs
        # What is not to be freed before this was accepted.
        self.keep = keep
        self.call_site = call_site
        # By when it is to be done, by time.monotonic(); None: as calls are.
        self.end: float | None = None
        # Whether it gives something up, which nobody waits for.
        self.is_free = is_free
        self.result: command_pb2.CommandResult | None = None
        self.failure: errors.WeirError | None = None

    @property
    def work(self) -> int:
        """The number of the work that it makes; 0 for none."""
        return self.command.evaluate.work

    def lose(self, failure: errors.WeirError) -> None:
        """The call failed as a whole."""
        self.failure = failure
        for record in self.outputs:
            record.state, record.lost = "lost", failure

    def finish(self, result: command_pb2.CommandResult) -> None:
        if result.HasField("error"):
            self.fail(self._cause_of(result.error))
            return
        self.result = result
        which = result.WhichOneof("result")
        if which in ("evaluate", "tensor_put"):
            response: evaluation_pb2.EvaluateResponse = getattr(result, which)
            done = response.report.state == sync_report_pb2.WORK_STATE_COMPLETED
            for record, output in zip(self.outputs, response.outputs,
                                      strict=True):
                record.state = "ready" if done else "accepted"
                if record.dtype is None or record.shape is None or (
                        None in record.shape):
                    record.learn(output.value.spec)
                record.report = response.report

    def fail(self, failure: errors.WeirError) -> None:
        self.failure = failure
        blamed = tuple(work for record in self.inputs for work in record.works)
        for record in self.outputs:
            record.fail(failure)
            record.works = blamed

    def _cause_of(self, failed: failure_pb2.Failure) -> errors.WeirError:
        """The failure of an input, if one failed: there is no such tensor
        then."""
        for record in self.inputs:
            if record.failure is not None:
                return record.failure
        error = errors.from_failure(failed)
        if error.reason == "TENSOR_NOT_FOUND":
            for record in self.inputs:
                if record.lost is not None:
                    return record.lost
        if self.call_site and self.call_site not in error.message:
            error.message = f"{self.call_site}: {error.message}"
            error.args = (error.message,)
        return error
