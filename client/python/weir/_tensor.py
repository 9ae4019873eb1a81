"""Tensors that are kept on the server."""

from __future__ import annotations

import asyncio
import contextlib
import math
import operator
from collections.abc import Generator, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

# Whose functions are there by the time that a tensor is used.
import weir
from weir import _awaiting, _dtypes, errors
from weir._arithmetic import Arithmetic
from weir._deadline import deadline
from weir._dlpack import export
from weir._proto import command_pb2, evaluation_pb2, sync_report_pb2
from weir._record import Entry, Record, Shape

if TYPE_CHECKING:
    from weir._connection import Connection
    from weir._device import Device
    from weir.array_api._indexing import Key

_STATES = {"waiting": "not sent yet", "sent": "sent", "accepted": "accepted",
           "ready": "ready", "failed": "failed", "lost": "perhaps lost"}


class Held:
    """A number that stands for a tensor, which is freed with this."""

    __slots__ = ("record",)

    def __init__(self, record: Record) -> None:
        self.record = record

    def __del__(self) -> None:
        free = command_pb2.Command()
        free.tensor_free.tensor = self.record.number
        self.record.pipeline.give_up(free)


class Tensor(Arithmetic):
    """A tensor on the server, or one that is being made there. Freed when
    nobody refers to it any more. May be used by any thread, and changed (by
    `+=`, `x[key] = y`) by one while no other uses it. It has no views: what was
    made of it before a change stays as it was."""

    __slots__ = ("_held", "__weakref__")

    # NumPy's operators leave the work to ours.
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, record: Record) -> None:
        """Of the library itself; see `weir.asarray` and `weir.ops`."""
        self._held = Held(record)

    @property
    def _record(self) -> Record:
        return self._held.record

    def _again(self) -> Tensor:
        """Another tensor of the same elements, which either may change."""
        made = Tensor.__new__(Tensor)
        made._held = self._held
        return made

    def __copy__(self) -> Tensor:
        return self._again()

    def __deepcopy__(self, memo: object) -> Tensor:
        return self._again()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a tensor on a server cannot be pickled, as another "
                        "process has another space: pickle x.numpy()")

    def _become(self, made: Tensor) -> None:
        """Has the elements of another one from now on."""
        self._held = made._held

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
    def size(self) -> int | None:
        """How many elements; None as long as that is not known."""
        shape = self.shape
        if shape is None or None in shape:
            return None
        return math.prod(shape)  # type: ignore[arg-type]

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int | None:
        """Bytes of all elements; None as long as that is not known."""
        size = self.size
        return None if size is None else size * self.itemsize

    @property
    def device(self) -> Device:
        """Where it is, or will be."""
        return self._record.device

    @property
    def T(self) -> Tensor:  # noqa: N802
        """Of a matrix, with its axes exchanged. ValueError for another rank."""
        if self.ndim != 2:
            raise ValueError(
                f"x.T is of matrices, and this has {self.ndim} axes: use x.mT "
                "or weir.permute_dims")
        return self.mT

    @property
    def mT(self) -> Tensor:  # noqa: N802
        """With its last two axes exchanged."""
        return weir.matrix_transpose(self)

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

    def __await__(self) -> Generator[Any, None, Tensor]:
        return self.aevaluate().__await__()

    async def aevaluate(self, timeout: float | None = None) -> Tensor:
        """As `evaluate`, in a task of asyncio; `await x` is that."""
        await self._read_in_task(timeout)
        return self

    async def anumpy(self, timeout: float | None = None) -> NDArray[Any]:
        """As `numpy`, in a task of asyncio."""
        read = await self._read_in_task(timeout, command_pb2.Command(
            tensor_get=command_pb2.TensorGet(tensor=self._record.number)))
        assert read is not None
        value = read.tensor_get.outputs[0].value
        self._record.learn(value.spec)
        return _dtypes.to_array(value)

    async def aitem(self) -> Any:
        """As `item`, in a task of asyncio."""
        return (await self.anumpy()).item()

    async def _read_in_task(
            self, timeout: float | None,
            read: command_pb2.Command | None = None,
    ) -> command_pb2.CommandResult | None:
        """The result of `read` once the tensor is there."""
        if timeout is not None:
            with deadline(timeout):
                return await self._read_in_task(None, read)
        held = self._held  # what it stands for may change meanwhile
        record = held.record
        await record.pipeline.settle_in_task()
        entries = [Entry(each, inputs=[record]) for each in (
            command_pb2.Command(wait=command_pb2.Wait(
                tensors=[record.number])), read) if each is not None]
        failure = record.failure
        if failure is None:
            try:
                await _awaiting.run(self.connection, entries)
                failure = entries[0].failure or entries[-1].failure
            except errors.WeirError as error:
                failure = error
        if failure is not None:
            # Asks for the report.
            await asyncio.to_thread(self.raise_failure, failure)
        record.state = "ready"
        return entries[-1].result

    def astype(self, dtype: DTypeLike, copy: bool = True) -> Tensor:
        """The same elements in another type, converted on the server: to
        integers toward zero, and to the nearest that there is. Itself, if it
        has that type and `copy` is False."""
        return weir.astype(self, dtype, copy=copy)

    def to_device(self, device: Device | str, /, *,
                  stream: None = None) -> Tensor:
        """Itself, if it is there already. Unimplemented otherwise: copies
        between devices are not offered yet. `stream` is None: order is the
        server's matter."""
        if stream is not None:
            raise ValueError("stream must be None: a tensor that is used waits "
                             "for what makes it by itself")
        if str(device) == str(self.device):
            return self
        raise errors.Unimplemented(
            f"the tensor is on {self.device}, and copies between devices are "
            "not offered yet: read it and make another, by "
            f"weir.asarray(x.numpy(), device=\"{device}\")")

    def __array_namespace__(self, *,
                            api_version: str | None = None) -> ModuleType:
        """`weir`, which has the functions of the Python array API standard."""
        if api_version not in (None, *weir.array_api.VERSIONS):
            raise ValueError(
                f"weir has no version {api_version} of the array API, but "
                f"{', '.join(weir.array_api.VERSIONS)}")
        return weir

    def __dlpack__(self, *, stream: int | None = None,
                   max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None,
                   copy: bool | None = None) -> Any:
        """A capsule with a copy of its elements in this process's memory, once
        they are there. BufferError for what that cannot be: `copy=False`,
        another device than the CPU, an order with a stream (None and -1 are
        none)."""
        return export(self.numpy, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Where what `__dlpack__` gives is: in this process's memory."""
        return (1, 0)

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

    def __iter__(self) -> Iterator[Tensor]:
        return (self[place] for place in range(len(self)))

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        return operator.index(self.item())

    def __getitem__(self, key: Key) -> Tensor:
        return weir.array_api.getitem(self, key)

    def __setitem__(self, key: Key, value: TensorLike) -> None:
        self._become(weir.array_api.with_item(self, key, value))


TensorLike = Tensor | ArrayLike
