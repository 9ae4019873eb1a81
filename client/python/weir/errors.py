"""What a call may fail with: an exception for each status, and the details that
the server sends with it as attributes."""

from __future__ import annotations

from collections.abc import Mapping

import grpc

from weir._proto import (
    error_details_pb2,
    failure_pb2,
    status_pb2,
    sync_report_pb2,
)


class UnusableConnection(RuntimeError):
    """The connection was closed, or opened by the process that this one was
    forked from."""


class WeirError(Exception):
    """A call, or the work that a tensor was to come of, failed."""

    # The status's name, as docs/errors.md has it.
    code = "UNKNOWN"

    def __init__(self, message: str, *, reason: str = "",
                 metadata: Mapping[str, str] | None = None, field: str = "",
                 retry_after: float | None = None,
                 report: sync_report_pb2.SyncReport | None = None) -> None:
        super().__init__(message)
        self.message = message
        # For programs, e.g. "CONTEXT_BUSY"; empty if there is none.
        self.reason = reason
        # What the reason comes with.
        self.metadata = dict(metadata or {})
        # Path of the request's field at fault; empty if none was.
        self.field = field
        # Seconds after which trying again may help; None: it will not.
        self.retry_after = retry_after
        # What was done for the work that failed; None if there was none.
        self.report = report

    def __str__(self) -> str:
        told = [f"reason {self.reason}"] if self.reason else []
        told += [f"field {self.field}"] if self.field else []
        if self.retry_after is not None:
            told.append(f"try again after {self.retry_after:g} s")
        ending = f" [{', '.join(told)}]" if told else ""
        return f"{self.code}: {self.message}{ending}"

    def again(self) -> WeirError:
        """A copy to raise, whose traceback is its own."""
        return type(self)(
            self.message, reason=self.reason, metadata=self.metadata,
            field=self.field, retry_after=self.retry_after, report=self.report)


class Cancelled(WeirError):
    code = "CANCELLED"


class InvalidArgument(WeirError, ValueError):
    code = "INVALID_ARGUMENT"


class DeadlineExceeded(WeirError, TimeoutError):
    code = "DEADLINE_EXCEEDED"


class NotFound(WeirError, LookupError):
    code = "NOT_FOUND"


class AlreadyExists(WeirError):
    code = "ALREADY_EXISTS"


class PermissionDenied(WeirError, PermissionError):
    code = "PERMISSION_DENIED"


class ResourceExhausted(WeirError):
    code = "RESOURCE_EXHAUSTED"


class FailedPrecondition(WeirError):
    code = "FAILED_PRECONDITION"


class Aborted(WeirError):
    code = "ABORTED"


class OutOfRange(WeirError):
    code = "OUT_OF_RANGE"


class Unimplemented(WeirError, NotImplementedError):
    code = "UNIMPLEMENTED"


class Internal(WeirError):
    code = "INTERNAL"


class Unavailable(WeirError, ConnectionError):
    code = "UNAVAILABLE"


class DataLoss(WeirError):
    code = "DATA_LOSS"


class Unauthenticated(WeirError):
    code = "UNAUTHENTICATED"


# By the status's number.
_CLASSES: dict[int, type[WeirError]] = {
    1: Cancelled, 3: InvalidArgument, 4: DeadlineExceeded, 5: NotFound,
    6: AlreadyExists, 7: PermissionDenied, 8: ResourceExhausted,
    9: FailedPrecondition, 10: Aborted, 11: OutOfRange, 12: Unimplemented,
    13: Internal, 14: Unavailable, 15: DataLoss, 16: Unauthenticated}


def from_status(status: status_pb2.Status) -> WeirError:
    """The exception that a status with its details is."""
    error = _CLASSES.get(status.code, WeirError)(status.message)
    for detail in status.details:
        name = detail.type_url.rpartition("/")[2]
        if name == "google.rpc.ErrorInfo":
            info = error_details_pb2.ErrorInfo.FromString(detail.value)
            error.reason, error.metadata = info.reason, dict(info.metadata)
        elif name == "google.rpc.RetryInfo":
            delay = error_details_pb2.RetryInfo.FromString(
                detail.value).retry_delay
            error.retry_after = delay.seconds + delay.nanos / 1e9
        elif name == "google.rpc.BadRequest":
            bad = error_details_pb2.BadRequest.FromString(detail.value)
            error.field = ", ".join(
                each.field for each in bad.field_violations)
        elif name == "weir.v1.SyncReport":
            error.report = sync_report_pb2.SyncReport.FromString(detail.value)
    return error


def from_failure(failure: failure_pb2.Failure) -> WeirError:
    """The same of a part of a call that went on."""
    error = _CLASSES.get(failure.code, WeirError)(failure.message)
    error.reason, error.metadata = failure.reason, dict(failure.metadata)
    error.field = failure.field
    if failure.retry_after_ns:
        error.retry_after = failure.retry_after_ns / 1e9
    if failure.HasField("report"):
        error.report = failure.report
    return error


def from_rpc_error(error: grpc.RpcError) -> WeirError:
    """The same of a call that failed."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            return from_status(status_pb2.Status.FromString(value))
    return from_status(status_pb2.Status(
        code=error.code().value[0], message=error.details() or ""))
