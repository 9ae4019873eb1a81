"""Shapes changed, and elements moved. Nothing is a view of anything: `copy` is
for those who ask."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence

import numpy as np

from weir._tensor import Tensor, TensorLike
from weir.array_api._calls import (
    axes_of,
    axis_of,
    call,
    cast_to,
    shape_of,
    tensor,
)

_Axes = int | tuple[int, ...]


def _int64(values: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.asarray(values, np.int64).reshape(-1)


def reshape(x: Tensor, /, shape: Sequence[int] | int, *,
            copy: builtins.bool | None = None) -> Tensor:
    """The same elements in another shape, where one extent may be -1.
    ValueError if they do not fit it, and for `copy=False` where that is not x
    itself."""
    old = shape_of(x)
    wanted = [shape] if isinstance(shape, int | np.integer) else list(shape)
    if wanted.count(-1) == 1:
        others = math.prod(each for each in wanted if each != -1)
        if others:
            wanted[wanted.index(-1)] = math.prod(old) // others
    new = tuple(map(int, wanted))
    if builtins.any(each < 0 for each in new) or math.prod(new) != math.prod(
            old):
        raise ValueError(f"a tensor of shape {old} cannot take the shape "
                         f"{shape}")
    if new == old and not copy:
        return x
    if copy is False:
        raise ValueError("a tensor on a server has no views")
    return call("Reshape", x, _int64(new), allowzero=1, dtype=x.dtype,
                shape=new)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """Axis axes[i] of x becomes axis i."""
    shape = shape_of(x)
    order = axes_of(axes, len(shape))
    if len(order) != len(shape):
        raise ValueError(f"{axes} is no order of {len(shape)} axes")
    if order == tuple(range(len(shape))):
        return x
    return call("Transpose", x, perm=order, dtype=x.dtype,
                shape=tuple(shape[axis] for axis in order))


def moveaxis(x: Tensor, source: _Axes, destination: _Axes, /) -> Tensor:
    """Axes put elsewhere, the others left in their order."""
    rank = len(shape_of(x))
    start, end = axes_of(source, rank), axes_of(destination, rank)
    if len(start) != len(end):
        raise ValueError(f"{len(start)} axes cannot go to {len(end)} places")
    order = [axis for axis in range(rank) if axis not in start]
    for place, axis in sorted(zip(end, start, strict=True)):
        order.insert(place, axis)
    return permute_dims(x, tuple(order))


def expand_dims(x: Tensor, /, *, axis: _Axes = 0) -> Tensor:
    """With axes of extent 1 at these places of the result."""
    shape = list(shape_of(x))
    count = 1 if isinstance(axis, int | np.integer) else len(axis)
    places = axes_of(axis, len(shape) + count)
    for place in sorted(places):
        shape.insert(place, 1)
    return call("Unsqueeze", x, _int64(places), dtype=x.dtype,
                shape=tuple(shape))


def squeeze(x: Tensor, /, axis: _Axes) -> Tensor:
    """Without these axes. ValueError if one has another extent than 1."""
    shape = shape_of(x)
    places = axes_of(axis, len(shape))
    if builtins.any(shape[place] != 1 for place in places):
        raise ValueError(f"of {shape} the axes {places} are not all of extent "
                         "1")
    if not places:
        return x
    return call("Squeeze", x, _int64(places), dtype=x.dtype, shape=tuple(
        extent for place, extent in enumerate(shape) if place not in places))


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """One behind the other along an axis; None: flattened."""
    if not arrays:
        raise ValueError("nothing to put together")
    parts = [tensor(each) for each in arrays]
    if axis is None:
        parts, axis = [reshape(each, (-1,)) for each in parts], 0
    dtype = np.result_type(*(each.dtype for each in parts))
    shapes = [shape_of(each) for each in parts]
    at = axis_of(axis, len(shapes[0]))
    if len({shape[:at] + shape[at + 1:] for shape in shapes}) != 1:
        raise ValueError(f"{shapes} differ in other axes than {at}")
    shape = list(shapes[0])
    shape[at] = sum(each[at] for each in shapes)
    return call("Concat", *(cast_to(each, dtype) for each in parts), axis=at,
                dtype=dtype, shape=tuple(shape))


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """One behind the other along a new axis."""
    return concat([expand_dims(each, axis=axis) for each in arrays],
                  axis=axis)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The parts of x along an axis, without it."""
    shape = shape_of(x)
    at = axis_of(axis, len(shape))
    return tuple(pick(x, place, at) for place in range(shape[at]))


def pick(x: Tensor, place: int, axis: int) -> Tensor:
    """What stands at one place of an axis, both from 0 on."""
    shape = shape_of(x)
    return call("Gather", x, np.asarray(place, np.int64), axis=axis,
                dtype=x.dtype, shape=shape[:axis] + shape[axis + 1:])


def cut(x: Tensor, slices: Sequence[slice]) -> Tensor:
    """A slice of each axis."""
    shape = shape_of(x)
    ranges = [range(extent)[each]
              for extent, each in zip(shape, slices, strict=True)]
    cuts = [(axis, each) for axis, each in enumerate(ranges)
            if each != range(shape[axis])]
    if not cuts:
        return x
    starts, ends, steps = [], [], []
    for axis, each in cuts:
        starts.append(each.start if each else 0)
        # What stands before the first element has no number of its own.
        ends.append(0 if not each else each.stop if each.stop >= 0
                    else -shape[axis] - 1)
        steps.append(each.step if each else 1)
    axes = [axis for axis, _ in cuts]
    return call("Slice", x, *map(_int64, (starts, ends, axes, steps)),
                dtype=x.dtype, shape=tuple(map(len, ranges)))


def flip(x: Tensor, /, *, axis: _Axes | None = None) -> Tensor:
    """Axes in the opposite direction; None: all."""
    rank = len(shape_of(x))
    turned = axes_of(axis, rank)
    return cut(x, [slice(None, None, -1 if place in turned else None)
                   for place in range(rank)])


def roll(x: Tensor, /, shift: _Axes, *, axis: _Axes | None = None) -> Tensor:
    """Moved along axes, and what leaves at one end comes in at the other; None:
    as if it were flat."""
    shape = shape_of(x)
    if axis is None:
        if not isinstance(shift, int | np.integer):
            raise ValueError("several shifts need axes")
        return reshape(roll(reshape(x, (-1,)), shift, axis=0), shape)
    axes = (axis,) if isinstance(axis, int | np.integer) else axis
    shifts = (shift,) if isinstance(shift, int | np.integer) else shift
    if 1 not in (len(shifts), len(axes)) and len(shifts) != len(axes):
        raise ValueError(f"{len(shifts)} shifts for {len(axes)} axes: each has "
                         "one, or all the same")
    count = max(len(shifts), len(axes))
    shifts, axes = (
        tuple(each) * (count if len(each) == 1 else 1)
        for each in (shifts, axes))
    made = x
    for by, each in zip(shifts, axes, strict=True):
        at = axis_of(each, len(shape))
        by = by % shape[at] if shape[at] else 0
        if by:
            before = [slice(None)] * at
            after = [slice(None)] * (len(shape) - at - 1)
            made = concat([cut(made, [*before, slice(-by, None), *after]),
                           cut(made, [*before, slice(-by), *after])], axis=at)
    return made


def broadcast_to(x: Tensor, /, shape: Sequence[int]) -> Tensor:
    """Repeated along axes of extent 1, and new ones in front. ValueError if
    that does not give the shape."""
    old, new = shape_of(x), tuple(map(int, shape))
    if old == new:
        return x
    if np.broadcast_shapes(old, new) != new:
        raise ValueError(f"{old} does not broadcast to {new}")
    return call("Expand", x, _int64(new), dtype=x.dtype, shape=new)


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """All in the shape that they have together."""
    shape = np.broadcast_shapes(*map(shape_of, arrays))
    return [broadcast_to(each, shape) for each in arrays]


def repeat(x: Tensor, repeats: int | TensorLike, /, *,
           axis: int | None = None) -> Tensor:
    """Each element along an axis so many times; None: of x made flat. Of
    repeats that are a tensor the elements are read."""
    if axis is None:
        x, axis = reshape(x, (-1,)), 0
    shape = shape_of(x)
    at = axis_of(axis, len(shape))
    counts = np.asarray(repeats)
    places = np.repeat(np.arange(shape[at], dtype=np.int64), counts)
    if counts.ndim == 0:
        wide = (*shape[:at + 1], int(counts), *shape[at + 1:])
        return reshape(broadcast_to(expand_dims(x, axis=at + 1), wide),
                       (*shape[:at], len(places), *shape[at + 1:]))
    return call("Gather", x, places, axis=at, dtype=x.dtype,
                shape=(*shape[:at], len(places), *shape[at + 1:]))


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """x so many times beside itself along each axis."""
    shape = shape_of(x)
    rank = max(len(shape), len(repetitions))
    shape = (1,) * (rank - len(shape)) + shape
    times = (1,) * (rank - len(repetitions)) + tuple(repetitions)
    made = reshape(x, shape)
    for axis, count in enumerate(times):
        if count == 0:
            nothing = [slice(None)] * rank
            nothing[axis] = slice(0)
            made = cut(made, nothing)
        elif count > 1:
            made = concat([made] * count, axis=axis)
    return made
