"""The Python array API standard, version 2024.12, over tensors on a server, as
far as operators reach: what a function needs and weir does not have yet, its
NotImplementedError names. `weir` has all of it too, and is what
`x.__array_namespace__()` gives.

What a result's shape or type is, is known at once; nothing is waited for but
where an extent depends on elements (of `weir.ops`)."""

# pylint: disable=redefined-builtin
import inspect

import numpy as np

from weir.array_api._data_types import (
    astype,
    bool,
    can_cast,
    finfo,
    float16,
    float32,
    float64,
    iinfo,
    int16,
    int32,
    int64,
    int8,
    isdtype,
    result_type,
    uint16,
    uint32,
    uint64,
    uint8,
)
from weir.array_api._creation import (
    arange,
    asarray,
    empty,
    empty_like,
    eye,
    from_dlpack,
    full,
    full_like,
    linspace,
    meshgrid,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)
from weir.array_api._entry import entry
from weir.array_api._elementwise import (
    abs,
    acos,
    acosh,
    add,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    ceil,
    clip,
    conj,
    copysign,
    cos,
    cosh,
    divide,
    equal,
    exp,
    expm1,
    floor,
    floor_divide,
    greater,
    greater_equal,
    hypot,
    imag,
    isfinite,
    isinf,
    isnan,
    less,
    less_equal,
    log,
    log10,
    log1p,
    log2,
    logaddexp,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    multiply,
    negative,
    nextafter,
    not_equal,
    positive,
    pow,
    real,
    reciprocal,
    remainder,
    round,
    sign,
    signbit,
    sin,
    sinh,
    sqrt,
    square,
    subtract,
    tan,
    tanh,
    trunc,
)
from weir.array_api._indexing import (
    take,
    take_along_axis,
)
from weir.array_api._indexing import getitem as getitem  # of Tensor
from weir.array_api._indexing import with_item as with_item
from weir.array_api._inspection import (
    __array_namespace_info__,
)
from weir.array_api._linear_algebra import (
    matmul,
    matrix_transpose,
    tensordot,
    vecdot,
)
from weir.array_api._manipulation import (
    broadcast_arrays,
    broadcast_to,
    concat,
    expand_dims,
    flip,
    moveaxis,
    permute_dims,
    repeat,
    reshape,
    roll,
    squeeze,
    stack,
    tile,
    unstack,
)
from weir.array_api._searching import (
    argmax,
    argmin,
    argsort,
    nonzero,
    searchsorted,
    sort,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
    where,
)
from weir.array_api._statistical import (
    all,
    any,
    count_nonzero,
    cumulative_prod,
    cumulative_sum,
    diff,
    max,
    mean,
    min,
    prod,
    std,
    sum,
    var,
)

__array_api_version__ = "2024.12"
# Those whose functions it has.
VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")

e: float = np.e
inf: float = np.inf
nan: float = np.nan
newaxis = None
pi: float = np.pi

__all__ = [
    "__array_api_version__", "__array_namespace_info__", "abs", "acos",
    "acosh", "add", "all", "any", "arange", "argmax", "argmin", "argsort",
    "asarray", "asin", "asinh", "astype", "atan", "atan2", "atanh",
    "bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "bool", "broadcast_arrays",
    "broadcast_to", "can_cast", "ceil", "clip", "concat", "conj",
    "copysign", "cos", "cosh", "count_nonzero", "cumulative_prod",
    "cumulative_sum", "diff", "divide", "e", "empty", "empty_like", "equal",
    "exp", "expand_dims", "expm1", "eye", "finfo", "flip", "float16",
    "float32", "float64", "floor", "floor_divide", "from_dlpack", "full",
    "full_like", "greater", "greater_equal", "hypot", "iinfo", "imag",
    "inf", "int16", "int32", "int64", "int8", "isdtype", "isfinite",
    "isinf", "isnan", "less", "less_equal", "linspace", "log", "log10",
    "log1p", "log2", "logaddexp", "logical_and", "logical_not",
    "logical_or", "logical_xor", "matmul", "matrix_transpose", "max",
    "maximum", "mean", "meshgrid", "min", "minimum", "moveaxis", "multiply",
    "nan", "negative", "newaxis", "nextafter", "nonzero", "not_equal",
    "ones", "ones_like", "permute_dims", "pi", "positive", "pow", "prod",
    "real", "reciprocal", "remainder", "repeat", "reshape", "result_type",
    "roll", "round", "searchsorted", "sign", "signbit", "sin", "sinh",
    "sort", "sqrt", "square", "squeeze", "stack", "std", "subtract", "sum",
    "take", "take_along_axis", "tan", "tanh", "tensordot", "tile", "tril",
    "triu", "trunc", "uint16", "uint32", "uint64", "uint8", "unique_all",
    "unique_counts", "unique_inverse", "unique_values", "unstack", "var",
    "vecdot", "where", "zeros", "zeros_like",
]

_MAY_GIVE_OPERANDS = ("asarray", "astype", "from_dlpack")
for _name in (*__all__, "getitem", "with_item"):
    if inspect.isfunction(globals()[_name]):
        globals()[_name] = entry(globals()[_name],
                                 gives_operands=_name in _MAY_GIVE_OPERANDS)
