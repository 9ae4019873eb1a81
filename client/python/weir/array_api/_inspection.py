"""What the namespace can do, for programs that ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weir._current import current_connection
from weir._device import Device
from weir.array_api import _data_types
from weir.array_api._calls import DType

_ALL = {
    "bool": ["bool"],
    "signed integer": ["int8", "int16", "int32", "int64"],
    "unsigned integer": ["uint8", "uint16", "uint32", "uint64"],
    # float16 is beyond the standard.
    "real floating": ["float32", "float64"],
    "complex floating": [],
}
_KINDS = {
    "integral": ["signed integer", "unsigned integer"],
    "numeric": ["signed integer", "unsigned integer", "real floating",
                "complex floating"],
}


class ArrayNamespaceInfo:
    """Of the current connection's server where it is about devices."""

    def capabilities(self) -> dict[str, Any]:
        """No truth values as indices, no shapes that depend on elements."""
        return {"boolean indexing": False, "data-dependent shapes": False,
                "max dimensions": 8}

    def default_device(self) -> Device:
        """Where is made what nothing says a device for."""
        return current_connection().default_device

    def devices(self) -> list[Device]:
        """All that the server has."""
        return list(current_connection().devices)

    def default_dtypes(self, *,
                       device: Device | str | None = None) -> dict[str, DType]:
        """NumPy's."""
        return {"real floating": _data_types.float64,
                "integral": _data_types.int64, "indexing": _data_types.int64}

    def dtypes(self, *, device: Device | str | None = None,
               kind: str | tuple[str, ...] | None = None,
               ) -> Mapping[str, DType]:
        """Those of the standard that there are, of some kinds or of all."""
        if kind is None:
            asked: tuple[str, ...] = tuple(_ALL)
        else:
            asked = kind if isinstance(kind, tuple) else (kind,)
        plain = [each for name in asked for each in _KINDS.get(name, [name])]
        for name in plain:
            if name not in _ALL:
                raise ValueError(f"there is no kind {name!r} of types")
        return {each: getattr(_data_types, each)
                for name in plain for each in _ALL[name]}


def __array_namespace_info__() -> ArrayNamespaceInfo:  # noqa: N807
    """What the namespace can do."""
    return ArrayNamespaceInfo()
