"""Tensors that are kept on the server."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from weir import _dtypes, errors
from weir._deadline import deadline
from weir._pipeline import Entry, Record, Shape
from weir._proto import command_pb2, evaluation_pb2, sync_report_pb2

if TYPE_CHECKING:
    from weir._connection import Connection

_STATES = {"waiting": "not sent yet", "sent": "sent", "accepted": "accepted",
           "ready": "ready", "failed": "failed", "lost": "perhaps lost"}


class Tensor:
    """A tensor on the server, or one that is being made there. Freed when
    nobody refers to it any more. May be used by any thread."""

    __slots__ = ("_record", "__weakref__")

    # NumPy's operators leave the work to ours.
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, record: Record) -> None:
        """Of the library itself; see `weir.asarray` and `weir.ops`."""
        self._record = record

    def __del__(self) -> None:
        record = getattr(self, "_record", None)
        if record is not None:
            record.pipeline.give_up(command_pb2.Command(
                tensor_free=command_pb2.TensorFree(tensor=record.number)))

    @property
    def connection(self) -> Connection:
        return self._record.pipeline.connection

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its element type. Asks the server only for what it alone knows."""
        if self._record.dtype is None:
            self._ask()
        dtype = self._record.dtype
        if dtype is None:
            raise ValueError("the server does not know the tensor's type yet")
        return dtype

    @property
    def shape(self) -> Shape | None:
        """Its extents, None for each that is not known yet; None if not even
        the rank is. Waits for no result."""
        shape = self._record.shape
        if shape is None or None in shape:
            self._ask()
        return self._record.shape

    @property
    def ndim(self) -> int | None:
        shape = self.shape
        return None if shape is None else len(shape)

    @property
    def device(self) -> str:
        """Where it is, or will be."""
        return self._record.device

    @property
    def report(self) -> sync_report_pb2.SyncReport | None:
        """What had been done for it when it was accepted; None before."""
        return self._record.report

    def evaluate(self, timeout: float | None = None) -> Tensor:
        """Returns itself when it is there; raises as its work failed."""
        if timeout is not None:
            with deadline(timeout):
                return self.evaluate()
        self._accept()
        self._run(wait=command_pb2.Wait(tensors=[self._record.number]))
        self._record.state = "ready"
        return self

    def numpy(self, timeout: float | None = None) -> NDArray[Any]:
        """A copy of its elements, once they are there."""
        if timeout is not None:
            with deadline(timeout):
                return self.numpy()
        self._accept()
        # One whose rank is not known cannot be read before it is there.
        wait = Entry(command_pb2.Command(wait=command_pb2.Wait(
            tensors=[self._record.number])), inputs=[self._record])
        self.connection.pipeline().add(wait)
        try:
            result = self._run(tensor_get=command_pb2.TensorGet(
                tensor=self._record.number))
        except errors.WeirError as error:
            self.raise_failure(wait.failure or error)
        value = result.tensor_get.outputs[0].value
        self._record.state = "ready"
        self._record.learn(value.spec)
        return _dtypes.to_array(value)

    def item(self) -> Any:
        """Its one element, as Python's."""
        return self.numpy().item()

    def astype(self, dtype: DTypeLike) -> Tensor:
        """The same elements in another type, converted on the server."""
        return _unary("Cast", self, to=_dtypes.number_of(dtype))

    def _accept(self) -> None:
        """Whoever asks next may name it."""
        record = self._record
        pipeline = self.connection.pipeline()
        if record.pipeline is not pipeline and not record.is_accepted:
            record.pipeline.accept(record)
        elif self.connection.has_timelines:
            # Others may need what was asked for to let this one's work begin.
            pipeline.settle()
        self._raise_known()

    def _ask(self) -> None:
        """Learns what the server knows of it by now."""
        self._record.pipeline.accept(self._record)
        self._raise_known()
        shape = self._record.shape
        if shape is not None and None not in shape:
            return
        described = self._run(tensor_describe=command_pb2.TensorDescribe(
            tensor=self._record.number)).tensor_describe
        self._record.learn(described.spec)
        if described.ready:
            self._record.state = "ready"

    def _raise_known(self) -> None:
        if self._record.failure is not None:
            self.raise_failure(self._record.failure)

    def raise_failure(self, failure: errors.WeirError) -> NoReturn:
        """With the report of the work at fault, in full, if the server has
        it."""
        self.connection.failures.tell(failure, self._record.works)
        for work in self._record.works if failure.report is None else ():
            with contextlib.suppress(errors.WeirError):
                status = self._run(query=command_pb2.Query(
                    work=work, report=evaluation_pb2.REPORT_LEVEL_FULL)).query
                if not status.HasField("failure"):
                    continue
                failure.report = status.report
                # Not a read that was too slow, say.
                if errors.from_failure(status.failure).code == failure.code:
                    self._record.fail(failure)
                break
        raise failure.again() from None

    def _run(self, **command: Any) -> command_pb2.CommandResult:
        return self.connection.pipeline().run(Entry(
            command_pb2.Command(**command), inputs=[self._record]))

    def __repr__(self) -> str:
        record = self._record
        shape = "shape unknown" if record.shape is None else str(tuple(
            "?" if extent is None else extent
            for extent in record.shape)).replace("'", "")
        dtype = "type unknown" if record.dtype is None else record.dtype
        failure = "" if record.failure is None else f": {record.failure}"
        return (f"<weir.Tensor {dtype} {shape} on {record.device}, "
                f"{_STATES[record.state]}{failure}>")

    def __array__(self, dtype: DTypeLike | None = None,
                  copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("a tensor on a server is always copied")
        return np.asarray(self.numpy(), dtype)

    def __len__(self) -> int:
        shape = self.shape
        if not shape or shape[0] is None:
            raise TypeError("the tensor has no first extent that is known")
        return shape[0]

    def __bool__(self) -> bool:
        return bool(self.numpy())

    def __int__(self) -> int:
        return int(self.numpy())

    def __float__(self) -> float:
        return float(self.numpy())

    def __index__(self) -> int:
        index: SupportsIndex = self.item()
        return index.__index__()

    def __add__(self, other: TensorLike) -> Tensor:
        return _binary("Add", self, other)

    def __radd__(self, other: ArrayLike) -> Tensor:
        return _binary("Add", other, self)

    def __sub__(self, other: TensorLike) -> Tensor:
        return _binary("Sub", self, other)

    def __rsub__(self, other: ArrayLike) -> Tensor:
        return _binary("Sub", other, self)

    def __mul__(self, other: TensorLike) -> Tensor:
        return _binary("Mul", self, other)

    def __rmul__(self, other: ArrayLike) -> Tensor:
        return _binary("Mul", other, self)

    def __truediv__(self, other: TensorLike) -> Tensor:
        return _binary("Div", self, other, as_float=True)

    def __rtruediv__(self, other: ArrayLike) -> Tensor:
        return _binary("Div", other, self, as_float=True)

    def __pow__(self, other: TensorLike) -> Tensor:
        return _binary("Pow", self, other)

    def __rpow__(self, other: ArrayLike) -> Tensor:
        return _binary("Pow", other, self)

    def __matmul__(self, other: TensorLike) -> Tensor:
        return _binary("MatMul", self, other)

    def __rmatmul__(self, other: ArrayLike) -> Tensor:
        return _binary("MatMul", other, self)

    def __lt__(self, other: TensorLike) -> Tensor:
        return _binary("Less", self, other)

    def __gt__(self, other: TensorLike) -> Tensor:
        return _binary("Greater", self, other)

    def __le__(self, other: TensorLike) -> Tensor:
        return _binary("Or", self < other, self == other)

    def __ge__(self, other: TensorLike) -> Tensor:
        return _binary("Or", self > other, self == other)

    def __eq__(self, other: TensorLike) -> Tensor:  # type: ignore[override]
        return _binary("Equal", self, other)

    def __ne__(self, other: TensorLike) -> Tensor:  # type: ignore[override]
        return _unary("Not", self == other)

    def __and__(self, other: TensorLike) -> Tensor:
        return _binary("And", self, other)

    def __or__(self, other: TensorLike) -> Tensor:
        return _binary("Or", self, other)

    def __invert__(self) -> Tensor:
        return _unary("Not", self)

    def __neg__(self) -> Tensor:
        return _unary("Neg", self)

    def __pos__(self) -> Tensor:
        return self

    def __abs__(self) -> Tensor:
        return _unary("Abs", self)


TensorLike = Tensor | ArrayLike


def _binary(name: str, left: TensorLike, right: TensorLike, *,
            as_float: bool = False) -> Tensor:
    """Both in the type that NumPy has for the two: Python's numbers have none
    of their own, and integers are divided as doubles."""
    kinds = [each.dtype if isinstance(each, Tensor)
             else each if isinstance(each, int | float)
             else np.asarray(each).dtype for each in (left, right)]
    dtype = np.result_type(*kinds)
    if as_float and dtype.kind in "iub":
        dtype = np.dtype(np.float64)
    operands = [np.asarray(each, dtype) if not isinstance(each, Tensor)
                else each if each.dtype == dtype else each.astype(dtype)
                for each in (left, right)]
    made = _apply(name, *operands)
    if name != "MatMul":
        made._record.foresee([each._record.shape if isinstance(each, Tensor)
                              else each.shape for each in operands])
    return made


def _unary(name: str, operand: Tensor, **attributes: object) -> Tensor:
    made = _apply(name, operand, **attributes)
    made._record.foresee([operand._record.shape])
    return made


def _apply(name: str, *inputs: TensorLike, **attributes: object) -> Tensor:
    # pylint: disable=import-outside-toplevel,cyclic-import
    from weir._catalog import OPERATORS
    from weir._evaluation import apply_one
    return apply_one(OPERATORS[name], inputs, attributes, (), ())
