"""Random numbers: generators that give the same for the same seed, whichever
thread, context or device draws."""

from __future__ import annotations

import asyncio
import contextvars
import math
import os
import secrets
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from weir._catalog import OPERATORS
from weir._current import current_task
from weir._device import Device, name_of
from weir._evaluation import apply_one
from weir._tensor import Tensor
from weir.array_api._calls import cast_to, refuse, shape_of
from weir.array_api._elementwise import add, less, minimum, multiply
from weir.array_api._entry import entry
from weir.array_api._indexing import take

__all__ = ["RNG", "choice", "coin_flip", "default_rng", "normal", "set_seed",
           "uniform"]

_MASK = (1 << 64) - 1
_FORMAT = "weir.RNG/1"


class RNG:
    """A generator: a seed, and how many draws were made of it. Each draw gives
    one operator its seed, so that what comes depends on nothing else. Threads
    may share one; then they share its draws, too."""

    def __init__(self, seed: int | None = None) -> None:
        """None: a seed that nobody knows. Of others the lowest 64 bits
        count."""
        self.seed = secrets.randbits(64) if seed is None else seed & _MASK
        self._drawn = 0
        self._lock = threading.Lock()

    def clone(self) -> RNG:
        """Another of the same seed, from the start."""
        return RNG(self.seed)

    def spawn(self) -> RNG:
        """One of its own, which the next draw seeds."""
        return RNG(self.draw())

    def get_state(self) -> str:
        """Text from which `set_state` goes on where this is."""
        with self._lock:
            return f"{_FORMAT} {self.seed} {self._drawn}"

    def set_state(self, state: str) -> None:
        """Goes on where another was. ValueError for what `get_state` did not
        give, or that of another version."""
        try:
            name, seed, drawn = state.split()
            numbers = int(seed), int(drawn)
        except ValueError:
            name = ""
        if name != _FORMAT or numbers[0] != numbers[0] & _MASK or (
                numbers[1] < 0):
            raise ValueError(f"{state!r} is no state of a generator as this "
                             f"version has it ({_FORMAT})")
        with self._lock:
            self.seed, self._drawn = numbers

    def draw(self) -> int:
        """The next seed, of 64 bits."""
        with self._lock:
            self._drawn += 1
            return _mix(self.seed + self._drawn * 0x9E3779B97F4A7C15)

    def __repr__(self) -> str:
        return f"<weir.random.RNG of seed {self.seed}, {self._drawn} drawn>"


def _mix(number: int) -> int:
    """SplitMix64's: numbers in a row have nothing in common."""
    number &= _MASK
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    number = (number ^ number >> 27) * 0x94D049BB133111EB & _MASK
    return number ^ number >> 31


class _Default:
    """The generator of a thread, or of a task of asyncio, in one process."""

    __slots__ = ("rng", "task", "process")

    def __init__(self, rng: RNG, task: asyncio.Task[object] | None) -> None:
        self.rng = rng
        self.process = os.getpid()
        self.task = None if task is None else weakref.ref(task)


_DEFAULT: contextvars.ContextVar[_Default | None] = contextvars.ContextVar(
    "weir random numbers", default=None)


def default_rng() -> RNG:
    """What draws where no generator is named: one for each thread, which no
    other's seed reaches, and for each task, which that of whoever made the task
    seeds. A process that was forked begins with one of its own."""
    task = current_task()
    found = _DEFAULT.get()
    if found is None or found.process != os.getpid():
        found = _Default(RNG(), task)
        _DEFAULT.set(found)
    elif task is not None and (found.task is None or found.task() is not task):
        found = _Default(found.rng.spawn(), task)
        _DEFAULT.set(found)
    return found.rng


def set_seed(seed: int) -> None:
    """Of this thread's, or task's, default generator, which begins anew."""
    _DEFAULT.set(_Default(RNG(seed), current_task()))


# pylint: disable=redefined-builtin


def uniform(*, range: tuple[float, float] = (0.0, 1.0),
            shape: int | Sequence[int] = (), dtype: DTypeLike = np.float32,
            rng: RNG | None = None,
            device: Device | str | None = None) -> Tensor:
    """Numbers from range[0] to range[1] (exclusive), each as likely as any
    other; of an integer type the whole ones among them. ValueError for a range
    beyond the type, and for more than 2 ** 24 whole numbers: so many are drawn
    from, and of float64, too, no more different ones come."""
    wanted = np.dtype(dtype)
    if wanted.kind == "b":
        raise TypeError("truth values are drawn by weir.random.coin_flip")
    if wanted.kind == "f":
        most = float(np.finfo(min(wanted, _FLOAT, key=_size)).max)
        if not all(abs(each) <= most for each in range):
            raise ValueError(f"{range} is beyond what is drawn of {wanted}: "
                             f"up to {most}")
        if wanted != np.float64 or all(float(np.float32(each)) == each
                                       for each in range):
            return _draw(range, shape, wanted, rng, device)
        # Bounds that a draw's attributes do not have.
        drawn = _draw((0.0, 1.0), shape, wanted, rng, device)
        return add(multiply(drawn, range[1] - range[0]), range[0])
    first, end = map(math.ceil, range)
    if end <= first:
        raise ValueError(f"{range} has no whole numbers")
    if end - first > _MOST:
        raise ValueError(f"{range} has more than {_MOST} whole numbers")
    limits = np.iinfo(wanted)
    if first < limits.min or end - 1 > limits.max:
        raise ValueError(f"{range} is beyond {wanted}, which is from "
                         f"{limits.min} to {limits.max}")
    wide = np.dtype(np.uint64 if wanted == np.uint64 else np.int64)
    places = cast_to(_draw((0, end - first), shape, _FLOAT, rng, device), wide)
    # The last float below the end may be rounded to it.
    places = minimum(places, end - first - 1)
    return cast_to(add(places, first) if first else places, wanted)


def coin_flip(*, probability: float = 0.5, shape: int | Sequence[int] = (),
              dtype: DTypeLike = np.bool_, rng: RNG | None = None,
              device: Device | str | None = None) -> Tensor:
    """True, or 1, with this probability."""
    if not 0 <= probability <= 1:
        raise ValueError(f"{probability} is no probability")
    drawn = _draw((0.0, 1.0), shape, _FLOAT, rng, device)
    return cast_to(less(drawn, probability), dtype)


@entry
def choice(a: int | Tensor, /, *, shape: int | Sequence[int] = (),
           rng: RNG | None = None,
           device: Device | str | None = None) -> Tensor:
    """Places below `a`, or what stands at such places of the first axis of a
    tensor: each as likely as any other, and perhaps again."""
    if not isinstance(a, Tensor):
        if a < 1:
            raise ValueError(f"there is nothing to choose from: {a}")
        return uniform(range=(0, a), shape=shape, dtype=np.int64, rng=rng,
                       device=device)
    if not shape_of(a):
        raise ValueError("a tensor of no axes has nothing to choose from")
    count = shape_of(a)[0]
    places = choice(count, shape=shape, rng=rng, device=a.device)
    return take(a, places, axis=0)


def normal(*, mean: float = 0.0, stddev: float = 1.0,
           shape: int | Sequence[int] = (), rng: RNG | None = None) -> Tensor:
    """Numbers of the normal distribution."""
    refuse("random.normal", "RandomNormal")


_FLOAT = np.dtype(np.float32)
# What a float between 0 and 1 tells apart.
_MOST = 1 << 24


def _size(dtype: np.dtype[Any]) -> int:
    return dtype.itemsize


def _draw(range: tuple[float, float], shape: int | Sequence[int],
          dtype: np.dtype[Any], rng: RNG | None,
          device: Device | str | None) -> Tensor:
    extents = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    made = apply_one(
        OPERATORS["RandomUniform"], [np.asarray(extents, np.int64)],
        {"range": [float(each) for each in range], "dtype": dtype}, (), (),
        device=name_of(device), rng_seed=(rng or default_rng()).draw())
    made._record.foresee([extents])
    return made
