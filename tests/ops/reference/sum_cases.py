"""Cases of operators that add many elements up: products, reductions,
normalizations, windows."""

import numpy as np

from operator_case import (
    Case, Const, INTEGERS, NEWEST, SUM, TYPES, types_of, versions,
)  # fmt: skip


def products(data):
    shapes = {
        "plain": ((3, 4), (4, 5)),
        "batch": ((2, 3, 4), (2, 4, 5)),
        "broadcast": ((2, 1, 3, 4), (5, 4, 2)),
        "vector_left": ((4,), (4, 5)),
        "vector_right": ((3, 4), (4,)),
        "vectors": ((4,), (4,)),
        "vector_batch": ((4,), (2, 4, 3)),
        "no_terms": ((2, 0), (0, 3)),
        "larger": ((17, 33), (33, 9)),
    }
    for label, (a, b) in shapes.items():
        yield Case(
            "MatMul",
            label,
            [data(np.float32, *a), data(np.float32, *b)],
            ulps=SUM,
            floor=8.0,
        )
    for name in types_of("MatMul"):
        yield Case(
            "MatMul",
            name,
            [data(TYPES[name], 3, 6), data(TYPES[name], 6, 4)],
            ulps=SUM,
            floor=8.0,
        )
    for opset in versions("MatMul"):
        yield Case(
            "MatMul",
            f"opset{opset}",
            [data(np.float32, 2, 3), data(np.float32, 3, 2)],
            opset=opset,
            ulps=SUM,
            floor=8.0,
        )

    def gemm(label, a, b, c=None, typed=np.float32, **attributes):
        inputs = [data(typed, *a), data(typed, *b)]
        if c is not None:
            inputs.append(data(typed, *c))
        return Case("Gemm", label, inputs, ulps=SUM, floor=8.0, **attributes)

    yield gemm("plain", (3, 4), (4, 5), (3, 5))
    yield gemm("trans_a", (4, 3), (4, 5), (5,), transA=1)
    yield gemm("trans_b", (3, 4), (5, 4), (3, 1), transB=1)
    yield gemm("trans_both", (4, 3), (5, 4), (), transA=1, transB=1)
    yield gemm("alpha_beta", (3, 4), (4, 5), (1, 5), alpha=0.5, beta=-2.0)
    yield gemm("no_c", (3, 4), (4, 5))
    for name in types_of("Gemm"):
        yield gemm(name, (3, 4), (4, 5), (5,), TYPES[name])
    for opset in versions("Gemm"):
        yield gemm(f"opset{opset}", (2, 3), (3, 2), (2,), opset=opset)


def reducing(data):
    x = data(np.float32, 2, 3, 4)
    for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"):
        exact = op in ("ReduceMax", "ReduceMin")
        bound = {} if exact else {"ulps": SUM, "floor": 4.0}
        # Axes became an input of ReduceSum in 13 and of the others in 18.
        switch = 13 if op == "ReduceSum" else 18

        def reduce(label, value, axes=None, opset=NEWEST, **attributes):
            if axes is not None and opset < switch:
                return Case(
                    op,
                    label,
                    [value],
                    axes=axes,
                    opset=opset,
                    **bound,
                    **attributes,
                )
            inputs = (
                [value]
                if axes is None
                else [value, Const(np.array(axes, np.int64))]
            )
            return Case(op, label, inputs, opset=opset, **bound, **attributes)

        yield reduce("all", x)
        yield reduce("all_flat", x, keepdims=0)
        for axis in (0, 1, 2, -1):
            yield reduce(f"axis_{axis}".replace("-", "minus"), x, [axis])
            yield reduce(
                f"axis_{axis}_flat".replace("-", "minus"), x, [axis], keepdims=0
            )
        yield reduce("two_axes", x, [0, 2], keepdims=0)
        yield reduce("two_inner", x, [-1, -2])
        yield reduce("nothing", x, [], noop_with_empty_axes=1)
        yield reduce("long_row", data(np.float32, 3, 1000), [1])
        yield reduce("long_column", data(np.float32, 1000, 3), [0])
        for name in types_of(op):
            yield reduce(name, data(TYPES[name], 4, 6), [1])
        for opset in versions(op):
            yield reduce(f"opset{opset}", x, [1], opset=opset)
    yield Case(
        "ReduceSum",
        "empty",
        [data(np.float32, 2, 0), Const(np.array([1], np.int64))],
    )
    yield Case(
        "ReduceMax", "not_a_number", [np.array([1, np.nan, 3], np.float32)]
    )

    y = data(np.int32, 3, 4, 5, low=0, high=3).astype(np.float32)
    for axis in (0, 1, 2, -1):
        for keep in (0, 1):
            yield Case(
                "ArgMax",
                f"axis_{axis}_keep_{keep}".replace("-", "minus"),
                [y],
                axis=axis,
                keepdims=keep,
            )
    yield Case("ArgMax", "last", [y], axis=1, select_last_index=1)
    for name in types_of("ArgMax"):
        yield Case("ArgMax", name, [data(TYPES[name], 3, 7)], axis=1)
    for opset in versions("ArgMax"):
        yield Case("ArgMax", f"opset{opset}", [y], axis=0, opset=opset)


def normalizing(data):
    x = data(np.float32, 2, 3, 4)
    for axis in (0, 1, 2, -1):
        yield Case(
            "Softmax",
            f"axis_{axis}".replace("-", "minus"),
            [x],
            axis=axis,
            ulps=SUM,
        )
    yield Case("Softmax", "default", [x], ulps=SUM)
    yield Case("Softmax", "large", [x * 1000], ulps=SUM, floor=1e-6)
    yield Case("Softmax", "long", [data(np.float32, 2, 1000)], ulps=SUM)
    for name in types_of("Softmax"):
        yield Case("Softmax", name, [data(TYPES[name], 3, 6)], ulps=SUM)
    yield Case("Softmax", "opset13", [x], opset=13, ulps=SUM)
    # Before 13 the picture is a matrix of rows; here both readings agree.
    yield Case(
        "Softmax",
        "opset11",
        [data(np.float32, 3, 6)],
        opset=11,
        axis=1,
        ulps=SUM,
    )

    def layer_norm(
        label,
        shape,
        axis=-1,
        typed=np.float32,
        bias=True,
        outputs=1,
        **attributes,
    ):
        normal = shape[axis:] if axis < 0 else shape[axis:]
        inputs = [data(typed, *shape), data(typed, *normal)]
        if bias:
            inputs.append(data(typed, *normal))
        return Case(
            "LayerNormalization",
            label,
            inputs,
            outputs,
            axis=axis,
            ulps=32,
            floor=4.0,
            **attributes,
        )

    for axis in (0, 1, 2, -1, -2):
        yield layer_norm(f"axis_{axis}".replace("-", "minus"), (2, 3, 4), axis)
    yield layer_norm("no_bias", (3, 8), bias=False)
    yield layer_norm("epsilon", (3, 8), epsilon=0.1)
    yield layer_norm("mean_and_deviation", (3, 8), outputs=3)
    yield layer_norm("opset17", (3, 8), opset=17)
    for name in types_of("LayerNormalization"):
        # The definition computes in float, of which double keeps nothing.
        if name != "double":
            yield layer_norm(name, (3, 9), typed=TYPES[name])

    def batch_norm(label, shape, typed=np.float32, **attributes):
        c = shape[1]
        inputs = [
            data(typed, *shape), data(typed, c), data(typed, c),
            data(typed, c), data(typed, c, low=0.1, high=2),
        ]  # fmt: skip
        return Case(
            "BatchNormalization",
            label,
            inputs,
            ulps=32,
            floor=4.0,
            **attributes,
        )

    yield batch_norm("picture", (2, 3, 4, 5))
    yield batch_norm("matrix", (4, 3))
    yield batch_norm("epsilon", (2, 3, 4), epsilon=0.01)
    yield batch_norm("double", (2, 3, 4), np.float64)
    yield batch_norm("float16", (2, 3, 4), np.float16)
    for opset in versions("BatchNormalization"):
        case = batch_norm(f"opset{opset}", (2, 3, 4), opset=opset)
        if opset < 14:
            # One output means inference; onnx's evaluator trains.
            inference = Case(case.op, "inference", case.inputs, epsilon=1e-5)
            case.expected = inference.answers()
        yield case


def max_pool(x, kernel, stride=1, pads=((0, 0), (0, 0))):
    """MaxPool where onnx's evaluator is wrong: integers and uneven pads."""
    padded = np.pad(
        x.astype(np.float64), ((0, 0), (0, 0), *pads), constant_values=-np.inf
    )
    views = np.lib.stride_tricks.sliding_window_view(padded, kernel, (2, 3))
    return views[:, :, ::stride, ::stride].max((-2, -1)).astype(x.dtype)


def windows(data):
    def conv(label, shape, kernel, bias=True, typed=np.float32, **attributes):
        inputs = [data(typed, *shape), data(typed, *kernel)]
        if bias:
            inputs.append(data(typed, kernel[0]))
        return Case("Conv", label, inputs, ulps=SUM, floor=16.0, **attributes)

    yield conv("plain", (1, 2, 5, 6), (3, 2, 3, 3))
    yield conv("no_bias", (1, 2, 5, 6), (3, 2, 3, 3), False)
    yield conv("pads", (2, 2, 5, 6), (3, 2, 3, 3), pads=[1, 0, 2, 1])
    yield conv("strides", (1, 2, 7, 8), (3, 2, 3, 3), strides=[2, 3])
    yield conv("dilations", (1, 2, 7, 8), (3, 2, 2, 3), dilations=[2, 2])
    yield conv("groups", (1, 4, 5, 5), (6, 2, 3, 3), group=2)
    yield conv(
        "depthwise", (1, 3, 5, 5), (3, 1, 3, 3), group=3, pads=[1, 1, 1, 1]
    )
    yield conv(
        "same_upper",
        (1, 1, 5, 6),
        (2, 1, 2, 3),
        auto_pad="SAME_UPPER",
        strides=[2, 2],
    )
    yield conv(
        "same_lower",
        (1, 1, 5, 6),
        (2, 1, 2, 3),
        auto_pad="SAME_LOWER",
        strides=[2, 2],
    )
    yield conv("valid", (1, 1, 5, 6), (2, 1, 3, 3), auto_pad="VALID")
    yield conv("one_by_one", (2, 3, 4, 4), (5, 3, 1, 1))
    yield conv("line", (1, 2, 9), (3, 2, 3), pads=[1, 1])
    yield conv("volume", (1, 2, 4, 4, 4), (2, 2, 2, 2, 2))
    for name in types_of("Conv"):
        yield conv(name, (1, 2, 5, 5), (3, 2, 3, 3), typed=TYPES[name])
    for opset in versions("Conv"):
        yield conv(f"opset{opset}", (1, 1, 4, 4), (1, 1, 3, 3), opset=opset)

    def pool(op, label, shape, kernel, typed=np.float32, **attributes):
        bound = {} if op == "MaxPool" else {"ulps": SUM, "floor": 2.0}
        return Case(
            op,
            label,
            [data(typed, *shape)],
            kernel_shape=kernel,
            **bound,
            **attributes,
        )

    for op in ("MaxPool", "AveragePool"):
        yield pool(op, "plain", (1, 2, 5, 6), [2, 2])
        yield pool(op, "strides", (1, 2, 7, 8), [3, 3], strides=[2, 2])
        yield pool(
            op, "pads", (1, 2, 5, 6), [3, 3], pads=[1, 1, 1, 1], strides=[2, 2]
        )
        case = pool(op, "uneven_pads", (1, 1, 5, 6), [3, 3], pads=[0, 1, 2, 1])
        if op == "MaxPool":
            case.expected = [
                max_pool(case.inputs[0], (3, 3), pads=((0, 2), (1, 1)))
            ]
        yield case
        yield pool(
            op, "ceil", (1, 1, 6, 6), [3, 3], strides=[2, 2], ceil_mode=1
        )
        yield pool(
            op,
            "same_upper",
            (1, 1, 5, 6),
            [2, 2],
            strides=[2, 2],
            auto_pad="SAME_UPPER",
        )
        case = pool(
            op,
            "same_lower",
            (1, 1, 5, 6),
            [2, 2],
            strides=[2, 2],
            auto_pad="SAME_LOWER",
        )
        if op == "MaxPool":
            case.expected = [
                max_pool(case.inputs[0], (2, 2), 2, ((1, 0), (0, 0)))
            ]
        yield case
        yield pool(op, "dilations", (1, 1, 7, 7), [2, 2], dilations=[2, 3])
        yield pool(op, "line", (1, 2, 9), [3])
        yield pool(op, "volume", (1, 1, 4, 4, 4), [2, 2, 2])
        for name in types_of(op):
            case = pool(op, name, (1, 2, 5, 5), [2, 2], TYPES[name])
            if name in INTEGERS:
                case.expected = [max_pool(case.inputs[0], (2, 2))]
            yield case
        for opset in versions(op):
            yield pool(op, f"opset{opset}", (1, 1, 4, 4), [2, 2], opset=opset)
    yield pool(
        "AveragePool",
        "count_padding",
        (1, 1, 4, 4),
        [3, 3],
        pads=[1, 1, 1, 1],
        count_include_pad=1,
    )
    for name in types_of("GlobalAveragePool"):
        yield Case(
            "GlobalAveragePool",
            name,
            [data(TYPES[name], 2, 3, 4, 5)],
            ulps=SUM,
            floor=2.0,
        )
    yield Case(
        "GlobalAveragePool",
        "line",
        [data(np.float32, 2, 3, 7)],
        ulps=SUM,
        floor=2.0,
    )
    for opset in versions("GlobalAveragePool"):
        yield Case(
            "GlobalAveragePool",
            f"opset{opset}",
            [data(np.float32, 1, 2, 3, 3)],
            opset=opset,
            ulps=SUM,
            floor=2.0,
        )
