"""Cases of operators that change shapes, or move elements about."""

import numpy as np

from operator_case import Case, Const, TYPES, versions


def shaping(data):
    x = data(np.float32, 2, 3, 4)
    i64 = lambda *values: np.array(values, np.int64)  # noqa: E731
    for label, shape in {
        "same": (2, 3, 4), "flat": (24,), "infer": (4, -1), "copy": (0, 12),
        "both": (0, -1, 2), "more": (2, 1, 3, 4, 1),
    }.items():  # fmt: skip
        yield Case("Reshape", label, [x, Const(i64(*shape))])
    yield Case("Reshape", "shape_as_input", [x, i64(6, 4)])
    yield Case("Reshape", "to_scalar", [data(np.float32, 1, 1), Const(i64())])
    yield Case(
        "Reshape",
        "allow_zero",
        [data(np.float32, 0, 3), Const(i64(3, 0))],
        allowzero=1,
    )
    for name, typed in TYPES.items():
        yield Case("Reshape", name, [data(typed, 2, 6), Const(i64(3, 4))])
    for opset in versions("Reshape"):
        yield Case(
            "Reshape", f"opset{opset}", [x, Const(i64(3, 8))], opset=opset
        )
    for axis in (0, 1, 2, 3, -1, -3):
        yield Case(
            "Flatten", f"axis_{axis}".replace("-", "minus"), [x], axis=axis
        )
    yield Case("Flatten", "default", [data(np.float32, 2, 3, 1, 2)])
    for opset in versions("Flatten"):
        yield Case("Flatten", f"opset{opset}", [x], opset=opset)

    ones = data(np.float32, 1, 3, 1, 2)
    for label, axes in {
        "all": None,
        "first": [0],
        "negative": [-2],
        "two": [0, 2],
    }.items():
        inputs = [ones] if axes is None else [ones, Const(i64(*axes))]
        yield Case("Squeeze", label, inputs)
        yield Case("Squeeze", f"{label}_opset11", [ones], axes=axes, opset=11)
    for label, axes in {
        "front": [0],
        "back": [-1],
        "mixed": [3, 0],
        "two": [1, 2],
    }.items():
        yield Case(
            "Unsqueeze", label, [data(np.float32, 2, 3), Const(i64(*axes))]
        )
        yield Case(
            "Unsqueeze",
            f"{label}_opset11",
            [data(np.float32, 2, 3)],
            axes=sorted(axes),
            opset=11,
        )
    for op in ("Squeeze", "Unsqueeze"):
        for opset in versions(op)[1:]:
            yield Case(op, f"opset{opset}", [ones, Const(i64(0))], opset=opset)
    for label, shape in {
        "wider": (4, 3), "more_axes": (2, 4, 3), "keeps": (1, 1), "scalar": (),
        "empty": (0, 3),
    }.items():  # fmt: skip
        yield Case(
            "Expand", label, [data(np.float32, 1, 3), Const(i64(*shape))]
        )
    for name, typed in TYPES.items():
        yield Case("Expand", name, [data(typed, 3, 1), i64(2, 3, 4)])
    for opset in versions("Expand"):
        yield Case(
            "Expand",
            f"opset{opset}",
            [data(np.float32, 3, 1), Const(i64(3, 2))],
            opset=opset,
        )


def moving(data):
    i64 = lambda *values: np.array(values, np.int64)  # noqa: E731
    x = data(np.float32, 2, 3, 4)
    yield Case("Transpose", "default", [x])
    for perm in (
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ):
        yield Case(
            "Transpose", "perm_" + "".join(map(str, perm)), [x], perm=perm
        )
    yield Case("Transpose", "matrix", [data(np.float32, 37, 41)], perm=[1, 0])
    yield Case(
        "Transpose",
        "five",
        [data(np.float32, 2, 3, 1, 4, 2)],
        perm=[4, 0, 3, 2, 1],
    )
    yield Case("Transpose", "scalar", [data(np.float32)])
    for name, typed in TYPES.items():
        yield Case("Transpose", name, [data(typed, 3, 5)])
        yield Case(
            "Concat", name, [data(typed, 2, 3), data(typed, 2, 2)], axis=1
        )
        yield Case("Split", name, [data(typed, 6), Const(i64(2, 4))], outputs=2)
        yield Case(
            "Slice",
            name,
            [
                data(typed, 7),
                Const(i64(1)),
                Const(i64(6)),
                Const(i64(0)),
                Const(i64(2)),
            ],
        )
        yield Case("Gather", name, [data(typed, 4, 3), i64(2, 0, -1)])
        yield Case("Pad", name, [data(typed, 2, 3), Const(i64(1, 0, 0, 2))])
    for op in ("Transpose", "Concat"):
        for opset in versions(op):
            attributes = {"axis": 0} if op == "Concat" else {}
            yield Case(op, f"opset{opset}", [x], opset=opset, **attributes)
    for axis in (0, 1, 2, -1, -3):
        parts = []
        for size in (1, 4, 2):
            shape = [2, 3, 4]
            shape[axis] = size
            parts.append(data(np.float32, *shape))
        yield Case(
            "Concat", f"axis_{axis}".replace("-", "minus"), parts, axis=axis
        )
    yield Case(
        "Concat",
        "with_empty",
        [data(np.float32, 0, 2), data(np.float32, 3, 2)],
        axis=0,
    )

    yield Case(
        "Split", "equal", [data(np.float32, 6, 2)], outputs=3, num_outputs=3
    )
    yield Case(
        "Split", "last_smaller", [data(np.float32, 7)], outputs=3, num_outputs=3
    )
    yield Case(
        "Split", "negative_axis", [x, Const(i64(1, 3))], outputs=2, axis=-1
    )
    yield Case(
        "Split",
        "with_empty",
        [data(np.float32, 3), Const(i64(0, 3))],
        outputs=2,
    )
    yield Case(
        "Split",
        "opset11",
        [data(np.float32, 6)],
        outputs=2,
        split=[2, 4],
        opset=11,
    )
    yield Case(
        "Split", "equal_opset11", [data(np.float32, 6)], outputs=2, opset=11
    )
    yield Case(
        "Split",
        "opset13",
        [data(np.float32, 6), Const(i64(1, 5))],
        outputs=2,
        opset=13,
    )

    for label, (starts, ends, axes, steps) in {
        "middle": ([1], [3], [1], None),
        "no_axes": ([0, 1], [2, 3], None, None),
        "negative": ([-3], [-1], [-1], None),
        "beyond": ([-100, 1], [100, 1000], [0, 2], None),
        "backward": ([-1], [-100], [2], [-1]),
        "backward_step": ([3], [0], [2], [-2]),
        "stride": ([0], [4], [2], [3]),
        "empty": ([2], [1], [1], None),
        "whole": ([0], [2**63 - 1], [0], None),
    }.items():
        inputs = [
            Const(np.array(v, np.int64)) if v is not None else None
            for v in (starts, ends, axes, steps)
        ]
        while inputs[-1] is None:
            inputs.pop()
        yield Case("Slice", label, [x, *inputs])
    yield Case(
        "Slice",
        "int32_bounds",
        [
            x,
            Const(np.array([1], np.int32)),
            Const(np.array([2], np.int32)),
            Const(np.array([0], np.int32)),
        ],
    )
    for opset in versions("Slice"):
        yield Case(
            "Slice",
            f"opset{opset}",
            [x, Const(i64(1)), Const(i64(2)), Const(i64(1))],
            opset=opset,
        )

    for axis in (0, 1, 2, -1):
        yield Case(
            "Gather",
            f"axis_{axis}".replace("-", "minus"),
            [x, np.array([[0, 1], [1, -1]], np.int64)],
            axis=axis,
        )
    yield Case("Gather", "scalar_index", [x, np.array(1, np.int64)], axis=1)
    yield Case("Gather", "int32_index", [x, np.array([1, 0], np.int32)])
    yield Case("Gather", "no_indices", [x, np.zeros((0,), np.int64)])
    for opset in versions("Gather"):
        yield Case("Gather", f"opset{opset}", [x, i64(1)], opset=opset)

    m = data(np.float32, 3, 4)
    pads = Const(i64(1, 2, 0, 1))
    yield Case("Pad", "constant", [m, pads, Const(np.float32(9))])
    for mode in ("reflect", "edge", "wrap"):
        yield Case("Pad", mode, [m, pads], mode=mode)
    yield Case("Pad", "axes", [m, Const(i64(2, 1)), None, Const(i64(-1))])
    cut = np.pad(m[1:, :2], ((0, 1), (0, 0)))
    yield Case("Pad", "negative", [m, Const(i64(-1, 0, 1, -2))], expected=[cut])
    for opset in versions("Pad"):
        yield Case(
            "Pad", f"opset{opset}", [m, pads, Const(np.float32(2))], opset=opset
        )
