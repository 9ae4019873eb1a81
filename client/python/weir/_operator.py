"""What is known of an operator before any server is asked."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True, slots=True)
class Argument:
    """An input or output, as OperatorArgument in operator.proto."""

    name: str
    presence: str  # "required", "optional" or "variadic"
    types: tuple[str, ...]
    type_group: int
    type_attribute: str

    @property
    def decides_shapes(self) -> bool:
        """Extents, axes or paddings: integers that no other argument's type
        goes by."""
        return self.types == ("INT64",) and self.type_group == 0


@dataclasses.dataclass(frozen=True, slots=True)
class Operator:
    domain: str
    name: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    attributes: dict[str, str]  # name to kind

    def input_at(self, place: int) -> Argument:
        """The last may be repeated."""
        if place < len(self.inputs):
            return self.inputs[place]
        return self.inputs[-1]


def arguments(
    described: Iterable[tuple[str, str, tuple[str, ...], int, str]],
) -> tuple[Argument, ...]:
    return tuple(Argument(*each) for each in described)
