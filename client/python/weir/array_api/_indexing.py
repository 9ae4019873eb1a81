"""x[key], and what picks elements by their place."""

from __future__ import annotations

from types import EllipsisType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weir._tensor import Tensor, TensorLike
from weir.array_api._calls import (
    axis_of,
    call,
    cast_to,
    has,
    refuse,
    shape_of,
    tensor,
)
from weir.array_api._elementwise import (
    add,
    choose,
    greater_equal,
    less,
    logical_and,
    multiply,
)
from weir.array_api._manipulation import (
    broadcast_to,
    cut,
    expand_dims,
    permute_dims,
    reshape,
)

_Integers = Tensor | NDArray[Any]
_Item = int | slice | EllipsisType | None | _Integers
Key = _Item | tuple[_Item, ...]


def _is_array(item: object) -> bool:
    return isinstance(item, Tensor | np.ndarray | list)


def _whole(key: Key, rank: int) -> list[Any]:
    """An item for each axis, and None for each that is new: no Ellipsis.
    IndexError for more than there are axes."""
    items = list(key) if isinstance(key, tuple) else [key]
    named = sum(item is not None and item is not Ellipsis for item in items)
    if named > rank:
        raise IndexError(f"{named} indices of a tensor of {rank} axes")
    places = [place for place, item in enumerate(items) if item is Ellipsis]
    if len(places) > 1:
        raise IndexError("an index can have one ellipsis (\"...\")")
    at = places[0] if places else len(items)
    return (items[:at] + [slice(None)] * (rank - named) +
            items[at + 1:])


def _mask_of(key: Key) -> Tensor | NDArray[Any] | None:
    """The key, if it is truth values for each element."""
    item = key[0] if isinstance(key, tuple) and len(key) == 1 else key
    if isinstance(item, list):
        item = np.asarray(item)
    if isinstance(item, Tensor | np.ndarray) and item.dtype.kind == "b":
        return item
    return None


def getitem(x: Tensor, key: Key) -> Tensor:
    """x[key]: integers, slices, `...` and None as NumPy has them; integer
    tensors for the first axes and integers for those between, or one of them
    beside slices. IndexError for a number out of range; that of a tensor is
    InvalidArgument where the result is read. NotImplementedError for truth
    values: how many there are is not known before they are."""
    if _mask_of(key) is not None:
        refuse("Tensor.__getitem__ by truth values", "NonZero or Compress")
    shape = shape_of(x)
    items = _whole(key, len(shape))
    arrays = [place for place, item in enumerate(items) if _is_array(item)]
    if len(arrays) > 1:
        return _at_points(x, items)
    slices, extents, axis = [], [], 0
    for place, item in enumerate(items):
        if item is None:
            extents.append(1)
            continue
        extent = shape[axis]
        if place in arrays:
            slices.append(slice(None))
            extents.append(extent)
        elif isinstance(item, slice):
            slices.append(item)
            extents.append(len(range(extent)[item]))
        else:
            at = _place_in(item, extent, axis)
            slices.append(slice(at, at + 1))
        axis += 1
    made = reshape(cut(x, slices), tuple(extents))
    if arrays:
        kept = [item is None or isinstance(item, slice) or _is_array(item)
                for item in items]
        made = take(made, items[arrays[0]], axis=sum(kept[:arrays[0]]))
    return made if made is not x else x._again()


def _place_in(item: object, extent: int, axis: int) -> int:
    if isinstance(item, bool | np.bool_):
        refuse("Tensor.__getitem__ by truth values", "NonZero or Compress")
    try:
        at = item.__index__()  # type: ignore[attr-defined]
    except AttributeError:
        raise IndexError(
            f"{item!r} is no index: there are integers, slices, \"...\", None "
            "and tensors of integers") from None
    if not -extent <= at < extent:
        raise IndexError(f"index {at} of axis {axis}, which has {extent}")
    return int(at) % extent


def _at_points(x: Tensor, items: list[Any]) -> Tensor:
    """Of integer tensors for the first axes: an element, or what stands behind
    it, for each place of theirs together."""
    shape = shape_of(x)
    last = max(place for place, item in enumerate(items)
               if not isinstance(item, slice))
    if any(item is None or isinstance(item, slice)
           for item in items[:last + 1]) or any(
               item != slice(None) for item in items[last + 1:]):
        raise IndexError("several tensors of integers are for the first axes, "
                         "with integers alone between them")
    count = last + 1
    flat: TensorLike = np.int64(0)
    good: TensorLike = np.True_
    for item, extent in zip(items[:count], shape, strict=False):
        at = tensor(item) if _is_array(item) else np.asarray(item, np.int64)
        if isinstance(at, Tensor):
            at = cast_to(at, np.int64)
        at = choose(less(at, 0), add(at, extent), at)
        good = logical_and(good, logical_and(greater_equal(at, 0),
                                             less(at, extent)))
        flat = add(multiply(flat, extent), at)
    size = int(np.prod(shape[:count], dtype=np.int64))
    # One out of range stays out of it, whatever the others are.
    places = choose(tensor(good), flat, size)
    return take(reshape(x, (size, *shape[count:])), places, axis=0)


def take(x: Tensor, indices: _Integers, /, *,
         axis: int | None = None) -> Tensor:
    """What stands at these places of an axis, for which stand the axes of
    `indices`; None: the one axis of x. Places from the end are negative;
    InvalidArgument, where the result is read, for one that is out of range."""
    shape = shape_of(x)
    if axis is None and len(shape) != 1:
        raise ValueError(f"a tensor of {len(shape)} axes needs to be told one")
    at = axis_of(axis or 0, len(shape))
    places = indices if isinstance(indices, Tensor) else np.asarray(indices)
    if places.dtype.kind not in "iu" and places.size:
        raise IndexError(f"places are integers, not {places.dtype}")
    if isinstance(places, Tensor):
        if places.dtype not in (np.int32, np.int64):
            places = cast_to(places, np.int64)
        extents = shape_of(places)
    else:
        places = places.astype(np.int64)
        extents = places.shape
    return call("Gather", x, places, axis=at, dtype=x.dtype,
                shape=shape[:at] + extents + shape[at + 1:])


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """For each row along an axis what stands at its places; the other extents
    are those of x, or 1."""
    shape, at = shape_of(x), axis_of(axis, len(shape_of(x)))
    if has("GatherElements"):
        return call("GatherElements", x, cast_to(indices, np.int64), axis=at,
                    dtype=x.dtype, shape=shape_of(indices))
    if len(shape_of(indices)) != len(shape):
        raise ValueError(f"indices of {len(shape_of(indices))} axes for a "
                         f"tensor of {len(shape)}")
    # The rows one behind the other; and in each of them the places.
    last = tuple(axis for axis in range(len(shape)) if axis != at) + (at,)
    rows = tuple(shape[axis] for axis in last[:-1])
    count = shape_of(indices)[at]
    places = broadcast_to(permute_dims(cast_to(indices, np.int64), last),
                          (*rows, count))
    flat = reshape(permute_dims(x, last), (-1,))
    size = int(np.prod(rows, dtype=np.int64))
    row = np.arange(size, dtype=np.int64).reshape((*rows, 1))
    made = getitem(reshape(flat, (size, shape[at])),
                   (np.broadcast_to(row, (*rows, count)), places))
    back = tuple(int(each) for each in np.argsort(last))
    return permute_dims(made, back)


def with_item(x: Tensor, key: Key, value: TensorLike) -> Tensor:
    """x with other elements where the key says: truth values for each, or what
    integers, slices and `...` name. Of x's type. NotImplementedError for
    tensors of integers."""
    shape = shape_of(x)
    mask = _mask_of(key)
    new = cast_to(value, x.dtype) if isinstance(value, Tensor) else np.asarray(
        value).astype(x.dtype)
    if mask is not None:
        if new.size != 1:
            refuse("Tensor.__setitem__ of several elements by truth values",
                   "ScatterND")
        kept = tensor(mask)
        while len(shape_of(kept)) < len(shape):
            kept = expand_dims(kept, axis=-1)
        return choose(kept, new, x)
    items = [item for item in _whole(key, len(shape)) if item is not None]
    if any(map(_is_array, items)):
        refuse("Tensor.__setitem__ by tensors of integers", "ScatterND")
    named, extents = [], []
    for axis, (item, extent) in enumerate(zip(items, shape, strict=True)):
        if isinstance(item, slice):
            named.append(range(extent)[item])
            extents.append(len(named[-1]))
        else:
            at = _place_in(item, extent, axis)
            named.append(range(at, at + 1))
    if not all(named):
        return x
    filled = broadcast_to(tensor(new), tuple(extents))
    filled = reshape(filled, tuple(map(len, named)))
    here: TensorLike = np.True_
    for axis, places in enumerate(named):
        if places == range(shape[axis]):
            continue
        # Which of them each place of the axis takes; any, if it is not named.
        source = np.zeros(shape[axis], np.int64)
        source[list(places)] = np.arange(len(places))
        filled = take(filled, source, axis=axis)
        is_named = np.zeros(shape[axis], np.bool_)
        is_named[list(places)] = True
        here = logical_and(here, is_named.reshape(
            (-1,) + (1,) * (len(shape) - axis - 1)))
    if here is np.True_:
        return filled if filled is not value else filled._again()
    return choose(tensor(here), filled, x)
