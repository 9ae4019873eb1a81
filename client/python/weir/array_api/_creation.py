"""Tensors out of nothing, or of arrays."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from weir import _dtypes
from weir._device import Device, name_of
from weir._evaluation import connection_of
from weir._tensor import Tensor, TensorLike
from weir.array_api._calls import Shape, call, cast_to, shape_of, tensor
from weir.array_api._elementwise import greater_equal, less_equal
from weir.array_api._manipulation import broadcast_to, expand_dims, reshape
from weir.array_api._searching import where

_Extents = int | Sequence[int]
_Where = Device | str | None


def asarray(obj: TensorLike, /, dtype: DTypeLike | None = None, *,
            device: _Where = None, copy: builtins.bool | None = None) -> Tensor:
    """A tensor on the current connection's server, as `Connection.tensor` has
    it. Of a tensor: itself in that type, on that device, and a copy only if
    asked for one. ValueError for `copy=False` of what is not there yet."""
    if isinstance(obj, Tensor):
        moved = obj if device is None else obj.to_device(device)
        if dtype is not None and moved.dtype != np.dtype(dtype):
            if copy is False:
                raise ValueError(f"in {dtype} the tensor is a copy")
            return moved.astype(dtype)
        return moved._again() if copy else moved
    if copy is False:
        raise ValueError("what is brought to a server is always a copy")
    return connection_of(()).tensor(obj, dtype, device=device)


def from_dlpack(x: Any, /, *, device: _Where = None,
                copy: builtins.bool | None = None) -> Tensor:
    """What exports DLPack, on the server: by way of this process's memory.
    BufferError for `copy=False`, but of what is a tensor already."""
    if isinstance(x, Tensor):
        return asarray(x, device=device, copy=copy)
    if copy is False:
        raise BufferError("what is brought to a server is always a copy")
    return asarray(np.from_dlpack(x, device="cpu"), device=device)


def full(shape: _Extents, fill_value: builtins.bool | int | float, *,
         dtype: DTypeLike | None = None, device: _Where = None) -> Tensor:
    """Every element the same; made on the server."""
    extents = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    if any(extent < 0 for extent in extents):
        raise ValueError(f"a negative extent in {extents}")
    value = np.asarray(fill_value, dtype)
    _dtypes.number_of(value.dtype)
    return call("ConstantOfShape", np.asarray(extents, np.int64),
                value=value.reshape(1), dtype=value.dtype, shape=extents,
                device=name_of(device))


def zeros(shape: _Extents, *, dtype: DTypeLike | None = None,
          device: _Where = None) -> Tensor:
    """Of float64, if nothing else is asked for."""
    return full(shape, 0, dtype=np.float64 if dtype is None else dtype,
                device=device)


def ones(shape: _Extents, *, dtype: DTypeLike | None = None,
         device: _Where = None) -> Tensor:
    """Of float64, if nothing else is asked for."""
    return full(shape, 1, dtype=np.float64 if dtype is None else dtype,
                device=device)


def empty(shape: _Extents, *, dtype: DTypeLike | None = None,
          device: _Where = None) -> Tensor:
    """Zeros: a server hands out no memory as others left it."""
    return zeros(shape, dtype=dtype, device=device)


def _like(x: Tensor, dtype: DTypeLike | None,
          device: _Where) -> dict[str, Any]:
    return {"dtype": x.dtype if dtype is None else dtype,
            "device": x.device if device is None else device}


def full_like(x: Tensor, /, fill_value: builtins.bool | int | float, *,
              dtype: DTypeLike | None = None, device: _Where = None) -> Tensor:
    """Of x's shape, and of its type and on its device by default."""
    return full(shape_of(x), fill_value, **_like(x, dtype, device))


def zeros_like(x: Tensor, /, *, dtype: DTypeLike | None = None,
               device: _Where = None) -> Tensor:
    """As `full_like`."""
    return zeros(shape_of(x), **_like(x, dtype, device))


def ones_like(x: Tensor, /, *, dtype: DTypeLike | None = None,
              device: _Where = None) -> Tensor:
    """As `full_like`."""
    return ones(shape_of(x), **_like(x, dtype, device))


def empty_like(x: Tensor, /, *, dtype: DTypeLike | None = None,
               device: _Where = None) -> Tensor:
    """Zeros, as `empty`."""
    return zeros_like(x, dtype=dtype, device=device)


def arange(start: int | float, /, stop: int | float | None = None,
           step: int | float = 1, *, dtype: DTypeLike | None = None,
           device: _Where = None) -> Tensor:
    """From start to stop (exclusive), or from 0 to start; made here."""
    if stop is None:
        start, stop = 0, start
    made = np.arange(start, stop, step)
    return asarray(made if dtype is None else made.astype(dtype),
                   device=device)


def linspace(start: int | float, stop: int | float, /, num: int, *,
             dtype: DTypeLike | None = None, device: _Where = None,
             endpoint: builtins.bool = True) -> Tensor:
    """`num` of them in even steps, the last at stop or before it; made here."""
    return asarray(np.linspace(start, stop, num, endpoint=endpoint,
                               dtype=dtype), device=device)


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0,
        dtype: DTypeLike | None = None, device: _Where = None) -> Tensor:
    """Ones in the k-th diagonal of a matrix of zeros; made on the server."""
    columns = n_rows if n_cols is None else n_cols
    row = expand_dims(arange(n_rows, device=device), axis=1)
    at = arange(columns, device=device)
    return cast_to(at == row + k, np.float64 if dtype is None else dtype)


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Matrices with zeros above the k-th diagonal."""
    return _triangle(x, k, below=True)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Matrices with zeros below the k-th diagonal."""
    return _triangle(x, k, below=False)


def _triangle(x: Tensor, k: int, below: builtins.bool) -> Tensor:
    shape = shape_of(x)
    if len(shape) < 2:
        raise ValueError(f"a tensor of {len(shape)} axes is no matrix")
    row = expand_dims(arange(shape[-2], device=x.device), axis=1) + k
    at = arange(shape[-1], device=x.device)
    kept = less_equal(at, row) if below else greater_equal(at, row)
    return where(kept, x, np.zeros((), x.dtype))


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """The coordinates of a grid, for each of these axes: "ij" in their order,
    "xy" with the first two exchanged."""
    if indexing not in ("xy", "ij"):
        raise ValueError(f"indexing {indexing!r}: there are \"xy\" and \"ij\"")
    order = list(range(len(arrays)))
    if indexing == "xy":
        order[:2] = order[1::-1]
    sizes = [tensor(each).size or 0 for each in arrays]
    shape: Shape = tuple(sizes[place] for place in order)
    made = []
    for place, each in enumerate(arrays):
        along = [1] * len(arrays)
        along[order.index(place)] = sizes[place]
        made.append(broadcast_to(reshape(each, tuple(along)), shape))
    return made
