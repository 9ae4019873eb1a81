"""Samples of which each may have extents of its own."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import (
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

import weir
from weir._deadline import deadline
from weir._tensor import Tensor, TensorLike

if TYPE_CHECKING:
    from weir._device import Device
    from weir._record import Shape
    from weir.array_api._indexing import Key


class Batch:
    """Tensors of one type and as many axes, on one device, whose extents may
    differ. What is asked of a batch is asked of each sample, in their order,
    with the sample of the same place of other batches; what is no batch goes to
    all. ValueError for batches of different lengths.

    tensors: the samples; `tensors[2]` is one of them, `tensors[1:]` and
      `tensors[[0, 2]]` are batches.
    slice: `slice[0:2, ..., start]` is that of each sample, where a batch of
      numbers says each its own.
    layout: what the axes are, such as "HWC"; for people."""

    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, samples: Iterable[TensorLike],
                 dtype: DTypeLike | None = None, *,
                 device: Device | str | None = None, layout: str = "") -> None:
        self._samples = tuple(weir.asarray(each, dtype, device=device)
                              for each in samples)
        self.layout = layout
        for name in ("dtype", "device"):
            found = {str(getattr(each, name)) for each in self._samples}
            if len(found) > 1:
                raise ValueError(f"the samples of a batch have one {name}, not "
                                 f"{', '.join(sorted(found))}")
        ranks = {len(shape) for each in self._samples
                 if (shape := each._record.shape) is not None}
        if len(ranks) > 1:
            raise ValueError("the samples of a batch have as many axes each, "
                             f"not {', '.join(map(str, sorted(ranks)))}")

    # What it is.

    @property
    def tensors(self) -> Samples:
        """The samples."""
        return Samples(self)

    @property
    def slice(self) -> Slicer:
        """Of each sample."""
        return Slicer(self)

    def __len__(self) -> int:
        return len(self._samples)

    def __iter__(self) -> Iterator[Tensor]:
        """The samples, one after the other."""
        return iter(self._samples)

    @property
    def batch_size(self) -> int:
        """How many samples it has."""
        return len(self._samples)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the elements. ValueError of no samples."""
        return self._first().dtype

    @property
    def device(self) -> Device:
        """Where the samples are. ValueError if there are none."""
        return self._first().device

    @property
    def ndim(self) -> int | None:
        """Axes of a sample. ValueError if there is none."""
        return self._first().ndim

    @property
    def shape(self) -> list[Shape | None]:
        """That of each sample, as `Tensor.shape` has it."""
        return [each.shape for each in self._samples]

    def _first(self) -> Tensor:
        if not self._samples:
            raise ValueError("the batch has no samples, which would say")
        return self._samples[0]

    # What becomes of it.

    def select(self, places: int | Sequence[int]) -> Tensor | Batch:
        """One sample, or a batch of several. IndexError for what is no place,
        such as truth values."""
        listed = (places,) if isinstance(places, int | np.integer) else places
        if any(isinstance(each, bool | np.bool_) for each in listed):
            raise IndexError("samples are selected by their places, not by "
                             "truth values: take those that are true")
        if isinstance(places, int | np.integer):
            return self._samples[places]
        return self._of(self._samples[each] for each in places)

    def map(self, function: Callable[..., Tensor], *others: object,
            **options: object) -> Batch:
        """A function of tensors for each sample, such as
        `batch.map(weir.mean, axis=0)`."""
        return self._of(
            function(sample, *more, **keywords)
            for sample, (more, keywords) in zip(
                self._samples, for_each(len(self), others, options),
                strict=True))

    def evaluate(self, timeout: float | None = None) -> Batch:
        """Returns itself when all samples are there, within `timeout` seconds
        for all of them; raises as the first that failed."""
        with _all_within(timeout):
            for sample in self._samples:
                sample.evaluate()
        return self

    def numpy(self, timeout: float | None = None) -> list[NDArray[Any]]:
        """A copy of each sample's elements, once they are there."""
        with _all_within(timeout):
            return [sample.numpy() for sample in self._samples]

    def __await__(self) -> Generator[Any, None, Batch]:
        return self.aevaluate().__await__()

    async def aevaluate(self, timeout: float | None = None) -> Batch:
        """As `evaluate`, in a task of asyncio; `await batch` is that."""
        with _all_within(timeout):
            for sample in self._samples:
                await sample.aevaluate()
        return self

    async def anumpy(self, timeout: float | None = None) -> list[NDArray[Any]]:
        """As `numpy`, in a task of asyncio."""
        with _all_within(timeout):
            return [await sample.anumpy() for sample in self._samples]

    def as_tensor(self) -> Tensor:
        """The samples behind one another along a new first axis. ValueError if
        their shapes differ."""
        if len({each.shape for each in self._samples}) > 1:
            raise ValueError(f"samples of shapes {self.shape} are no tensor")
        return weir.stack(self._samples)

    def to_device(self, device: Device | str, /) -> Batch:
        """As `Tensor.to_device`."""
        return self._of(each.to_device(device) for each in self._samples)

    def astype(self, dtype: DTypeLike) -> Batch:
        """As `Tensor.astype`."""
        return self._of(each.astype(dtype) for each in self._samples)

    def _of(self, samples: Iterable[Tensor]) -> Batch:
        return Batch(samples, layout=self.layout)

    def __repr__(self) -> str:
        samples = [repr(each).removeprefix("<weir.Tensor ").removesuffix(">")
                   for each in self._samples[:_MOST_SHOWN]]
        if len(self) > _MOST_SHOWN:
            samples.append("...")
        layout = f" {self.layout}" if self.layout else ""
        return (f"<weir.Batch of {len(self)}{layout}: "
                f"{'; '.join(samples) or 'nothing'}>")

    # Python's operators.

    def _with(self, function: Callable[[Any, Any], Any], other: object,
              turned: bool = False) -> Batch:
        return self._of(
            function(*((each, sample) if turned else (sample, each)))
            for sample, ((each,), _) in zip(
                self._samples, for_each(len(self), (other,), {}), strict=True))

    def __add__(self, other: Operand) -> Batch:
        return self._with(operator.add, other)

    def __radd__(self, other: Operand) -> Batch:
        return self._with(operator.add, other, True)

    def __sub__(self, other: Operand) -> Batch:
        return self._with(operator.sub, other)

    def __rsub__(self, other: Operand) -> Batch:
        return self._with(operator.sub, other, True)

    def __mul__(self, other: Operand) -> Batch:
        return self._with(operator.mul, other)

    def __rmul__(self, other: Operand) -> Batch:
        return self._with(operator.mul, other, True)

    def __truediv__(self, other: Operand) -> Batch:
        return self._with(operator.truediv, other)

    def __rtruediv__(self, other: Operand) -> Batch:
        return self._with(operator.truediv, other, True)

    def __floordiv__(self, other: Operand) -> Batch:
        return self._with(operator.floordiv, other)

    def __rfloordiv__(self, other: Operand) -> Batch:
        return self._with(operator.floordiv, other, True)

    def __mod__(self, other: Operand) -> Batch:
        return self._with(operator.mod, other)

    def __rmod__(self, other: Operand) -> Batch:
        return self._with(operator.mod, other, True)

    def __pow__(self, other: Operand) -> Batch:
        return self._with(operator.pow, other)

    def __rpow__(self, other: Operand) -> Batch:
        return self._with(operator.pow, other, True)

    def __matmul__(self, other: Operand) -> Batch:
        return self._with(operator.matmul, other)

    def __rmatmul__(self, other: Operand) -> Batch:
        return self._with(operator.matmul, other, True)

    def __and__(self, other: Operand) -> Batch:
        return self._with(operator.and_, other)

    def __rand__(self, other: Operand) -> Batch:
        return self._with(operator.and_, other, True)

    def __or__(self, other: Operand) -> Batch:
        return self._with(operator.or_, other)

    def __ror__(self, other: Operand) -> Batch:
        return self._with(operator.or_, other, True)

    def __xor__(self, other: Operand) -> Batch:
        return self._with(operator.xor, other)

    def __rxor__(self, other: Operand) -> Batch:
        return self._with(operator.xor, other, True)

    def __lt__(self, other: Operand) -> Batch:
        return self._with(operator.lt, other)

    def __le__(self, other: Operand) -> Batch:
        return self._with(operator.le, other)

    def __gt__(self, other: Operand) -> Batch:
        return self._with(operator.gt, other)

    def __ge__(self, other: Operand) -> Batch:
        return self._with(operator.ge, other)

    def __eq__(self, other: Operand) -> Batch:  # type: ignore[override]
        return self._with(operator.eq, other)

    def __ne__(self, other: Operand) -> Batch:  # type: ignore[override]
        return self._with(operator.ne, other)

    def __neg__(self) -> Batch:
        return self._of(-each for each in self._samples)

    def __invert__(self) -> Batch:
        return self._of(~each for each in self._samples)

    def __abs__(self) -> Batch:
        return self._of(abs(each) for each in self._samples)


def _all_within(timeout: float | None) -> contextlib.AbstractContextManager[
        object]:
    return contextlib.nullcontext() if timeout is None else deadline(timeout)


Operand = TensorLike | Batch
# Samples that a repr tells of.
_MOST_SHOWN = 4


class Samples:
    """What `Batch.tensors` gives."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def __len__(self) -> int:
        return len(self._batch)

    @overload
    def __getitem__(self, places: int) -> Tensor: ...

    @overload
    def __getitem__(self, places: slice | Sequence[int]) -> Batch: ...

    def __getitem__(self, places: int | slice | Sequence[int],
                    ) -> Tensor | Batch:
        if isinstance(places, slice):
            places = range(len(self))[places]
        return self._batch.select(places)


class Slicer:
    """What `Batch.slice` gives."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def __getitem__(self, key: Any) -> Batch:
        """`key` as a tensor has it, where each number may be a batch of one for
        each sample."""
        items = key if isinstance(key, tuple) else (key,)
        return self._batch.map(_pick, *(
            part for item in items for part in (
                (item.start, item.stop, item.step)
                if isinstance(item, slice) else (item,))),
            slices=tuple(isinstance(item, slice) for item in items))


def _pick(sample: Tensor, *parts: Any, slices: tuple[bool, ...]) -> Tensor:
    """A sample's part, of a key that was taken apart."""
    key: list[Any] = []
    at = 0
    for is_slice in slices:
        if is_slice:
            key.append(slice(*(None if each is None else operator.index(each)
                               for each in parts[at:at + 3])))
            at += 3
        else:
            item = parts[at]
            key.append(operator.index(item) if isinstance(item, Tensor)
                       and item.ndim == 0 else item)
            at += 1
    found: Key = tuple(key)
    return sample[found]


def for_each(count: int, operands: Sequence[object],
             options: Mapping[str, object],
             ) -> Iterable[tuple[list[Any], dict[str, object]]]:
    """What each of `count` samples has of these: its own of a batch, else the
    same."""
    for each in (*operands, *options.values()):
        if isinstance(each, Batch) and len(each) != count:
            raise ValueError(
                f"a batch of {len(each)} beside one of {count} samples")

    def of(each: object, place: int) -> object:
        return each.tensors[place] if isinstance(each, Batch) else each

    return [([of(each, place) for each in operands],
             {name: of(each, place) for name, each in options.items()})
            for place in range(count)]


def as_batch(samples: Batch | Iterable[TensorLike] | ArrayLike,
             dtype: DTypeLike | None = None, *,
             device: Device | str | None = None, layout: str = "") -> Batch:
    """A batch of these samples, or of what stands along the first axis of one
    tensor or array; itself, if it is one of that type and layout and on that
    device. What exports DLPack is taken as well."""
    if isinstance(samples, Batch):
        made = samples if dtype is None else samples.astype(dtype)
        if device is not None:
            made = made.to_device(device)
        if layout and layout != made.layout:
            made = Batch(made, layout=layout)
        return made
    found: Any = samples
    if not isinstance(found, Iterable) and hasattr(found, "__dlpack__"):
        found = weir.from_dlpack(found, device=device)
    return Batch(
        (weir.from_dlpack(each, device=device)
         if hasattr(each, "__dlpack__") and not isinstance(
             each, Tensor | np.ndarray | np.generic) else each
         for each in found), dtype, device=device, layout=layout)
