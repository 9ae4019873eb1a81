"""A GPU in another room, as a device in this one: tensors, contexts and
timelines on a weir server.

    import numpy as np
    import weir

    with weir.connect("gpu-host:8001"):
        x = weir.asarray(np.arange(6, dtype=np.float32))
        print((x * 2 + 1).numpy())
"""

from pkgutil import extend_path
from typing import NoReturn

# Code that others generated from weir's .proto files is `weir.v1`.
__path__ = extend_path(__path__, __name__)

# pylint: disable=wrong-import-position,wildcard-import,redefined-builtin
# pylint: disable=unused-wildcard-import
from weir import array_api, errors, ops, random  # noqa: E402
from weir._awaiting import aconnect  # noqa: E402
from weir._batch import Batch, as_batch  # noqa: E402
from weir._connection import Connection, connect  # noqa: E402
from weir._context import EvalContext  # noqa: E402
from weir._current import current_connection  # noqa: E402
from weir._deadline import deadline  # noqa: E402
from weir._device import Device  # noqa: E402
from weir._mode import EvalMode  # noqa: E402
from weir._profile import Profile, profile  # noqa: E402
from weir._program import Model  # noqa: E402
from weir._space import Amounts, Space  # noqa: E402
from weir._tensor import Tensor  # noqa: E402
from weir._timeline import Point, Timeline  # noqa: E402
from weir.array_api import *  # noqa: E402, F403
from weir.array_api import __array_namespace_info__  # noqa: E402, F401

__all__ = [
    "Amounts", "Batch", "Connection", "Device", "EvalContext", "EvalMode",
    "Model", "Point", "Profile", "Space", "Tensor", "Timeline",
    "aconnect", "array_api", "as_batch", "connect", "current_connection",
    "deadline", "devices", "errors", "ops", "profile", "random",
]
__all__ += array_api.__all__

_NOT_YET = {
    "Stream": "named streams",
    "read": "streamed reads", "watch": "watching works",
    "write": "streamed writes",
}


def devices() -> list[Device]:
    """The current connection's, as they were when it was opened."""
    return list(current_connection().devices)


def __getattr__(name: str) -> NoReturn:
    if name in _NOT_YET:
        raise AttributeError(
            f"weir.{name} is not there yet: this version has no "
            f"{_NOT_YET[name]}")
    raise AttributeError(f"module 'weir' has no attribute {name!r}")
