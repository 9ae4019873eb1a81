"""x[key], and what picks elements by their place."""

from __future__ import annotations

import math
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
    moveaxis,
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
    beside slices and integers; axes for the places come first, as NumPy's do,
    if something is between those. IndexError for a number out of range; that
    of a tensor is InvalidArgument where the result is read.
    NotImplementedError for truth
    values: how many there are is not known before they are."""
    if _mask_of(key) is not None:
        refuse("Tensor.__getitem__ by truth values", "NonZero or Compress")
    shape = shape_of(x)
    items = _whole(key, len(shape))
    arrays = [place for place, item in enumerate(items) if _is_array(item)]
    for place in arrays:
        _check_places("Tensor.__getitem__", items[place])
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
        at, places = sum(kept[:arrays[0]]), items[arrays[0]]
        made = take(made, places, axis=at)
        if _has_places_apart(key):
            count = len(shape_of(places) if isinstance(places, Tensor)
                        else np.shape(places))
            made = moveaxis(made, tuple(range(at, at + count)),
                            tuple(range(count)))
    return made


def _check_places(function: str, places: _Integers) -> None:
    """NotImplementedError of truth values, IndexError of other numbers than
    integers."""
    found = places if isinstance(places, Tensor) else np.asarray(places)
    if found.dtype.kind == "b":
        refuse(f"{function} by truth values", "NonZero or Compress")
    if found.dtype.kind not in "iu" and found.size:
        raise IndexError(f"places are integers, not {found.dtype}")


def _has_places_apart(key: Key) -> bool:
    """Whether something is between its arrays and integers."""
    items = key if isinstance(key, tuple) else (key,)
    named = [place for place, item in enumerate(items) if not (
        item is None or item is Ellipsis or isinstance(item, slice))]
    return named != list(range(named[0], named[-1] + 1))


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
    size = int(np.prod(shape[:count], dtype=np.int64))
    # What is known here, and what the server knows.
    flat: Any = np.int64(0)
    good: Any = np.True_
    theirs: Tensor | None = None
    are_good: Tensor | None = None
    for axis, (item, extent) in enumerate(zip(items[:count], shape,
                                              strict=False)):
        step = int(np.prod(shape[axis + 1:count], dtype=np.int64))
        if not isinstance(item, Tensor):
            at = np.asarray(item).astype(np.int64)
            at = np.where(at < 0, at + extent, at)
            good = good & (at >= 0) & (at < extent)
            flat = flat + at * step
            continue
        places = cast_to(item, np.int64)
        places = choose(less(places, 0), add(places, extent), places)
        inside = logical_and(greater_equal(places, 0), less(places, extent))
        places = multiply(places, step)
        theirs = places if theirs is None else add(theirs, places)
        are_good = inside if are_good is None else logical_and(are_good,
                                                               inside)
    # One out of range stays out of it, whatever the others are.
    wanted: _Integers = (
        np.where(good, flat, size) if theirs is None or are_good is None
        else choose(logical_and(are_good, good), add(theirs, flat), size))
    return take(reshape(x, (size, *shape[count:])), wanted, axis=0)


def take(x: Tensor, indices: _Integers, /, *,
         axis: int | None = None) -> Tensor:
    """What stands at these places of an axis, for which stand the axes of
    `indices`; None: the one axis of x. Places from the end are negative;
    InvalidArgument, where the result is read, for one that is out of range."""
    shape = shape_of(x)
    if axis is None and len(shape) != 1:
        raise ValueError(f"a tensor of {len(shape)} axes needs to be told one")
    at = axis_of(axis or 0, len(shape))
    _check_places("take", indices)
    places = indices if isinstance(indices, Tensor) else np.asarray(indices)
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
    integers, slices and `...` name. Of x's type: of Python's numbers those that
    it does not have are refused, by OverflowError or ValueError; others are
    converted. NotImplementedError for tensors of integers."""
    shape = shape_of(x)
    mask = _mask_of(key)
    if isinstance(value, Tensor):
        new: Tensor | NDArray[Any] = cast_to(value, x.dtype)
    else:
        new = np.empty(np.shape(value), x.dtype)
        new[...] = value
    if mask is not None:
        return _where_true(x, mask, new)
    items = [item for item in _whole(key, len(shape)) if item is not None]
    for item in filter(_is_array, items):
        _check_places("Tensor.__setitem__", item)
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
    return filled if here is np.True_ else choose(tensor(here), filled, x)


def _where_true(x: Tensor, mask: Tensor | NDArray[Any],
                new: Tensor | NDArray[Any]) -> Tensor:
    """x with one other element where a mask of its first axes says."""
    shape, kept = shape_of(x), tensor(mask)
    extents = shape_of(kept)
    if extents != shape[:len(extents)]:
        raise IndexError(f"truth values of shape {extents} for a tensor of "
                         f"shape {shape}: there is one for each of its first "
                         "extents, or for each element")
    new_shape = shape_of(new) if isinstance(new, Tensor) else new.shape
    if math.prod(new_shape) != 1:
        refuse("Tensor.__setitem__ of several elements by truth values",
               "ScatterND")
    if len(extents) == len(shape) and len(new_shape) > 1:
        raise TypeError(f"what replaces elements has the shape {new_shape}, "
                        "and no more than one axis is for them")
    one = reshape(new, ()) if isinstance(new, Tensor) else new.reshape(())
    return choose(reshape(kept, extents + (1,) * (len(shape) - len(extents))),
                  one, x)
