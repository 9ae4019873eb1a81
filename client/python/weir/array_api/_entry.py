"""What holds for each function of tensors as programs call it. Those that it is
put together of call one another without that."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar, cast

from weir._batch import Batch
from weir._mode import current_mode, pop, push
from weir._tensor import Tensor

_P = ParamSpec("_P")
_R = TypeVar("_R")


def entry(function: Callable[_P, _R], *,
          gives_operands: bool = False) -> Callable[_P, _R]:
    """The function, for programs. What it makes of constants goes where its
    first operand is: to that one's connection and device. A result is never an
    operand itself, so that a change in place of the one leaves the other, but
    for `gives_operands`. TypeError for batches."""
    name = function.__name__

    @functools.wraps(function)
    def called(*args: _P.args, **options: _P.kwargs) -> _R:
        operands = list(_operands(name, (*args, *options.values())))
        if not operands:
            return function(*args, **options)
        first = operands[0]
        push(None, current_mode(), first.device, first.connection)
        try:
            made = function(*args, **options)
        finally:
            pop()
        return made if gives_operands else cast(_R, _apart(made, operands))

    return called


def _operands(function: str, given: Iterable[object]) -> Iterator[Tensor]:
    for each in given:
        if isinstance(each, Tensor):
            yield each
        elif isinstance(each, list | tuple):
            yield from (item for item in each if isinstance(item, Tensor))
        elif isinstance(each, Batch):
            raise TypeError(
                f"weir.{function} is of tensors, and this is a batch: "
                f"batch.map(weir.{function}) is of each sample")


def _apart(made: Any, operands: list[Tensor]) -> Any:
    if isinstance(made, Tensor):
        return (made._again() if any(made is each for each in operands)
                else made)
    if isinstance(made, list | tuple):
        return type(made)(_apart(each, operands) for each in made)
    return made
