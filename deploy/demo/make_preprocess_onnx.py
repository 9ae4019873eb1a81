"""Writes preprocess.onnx, the program of preprocess.textproto as ONNX.

Needs the `onnx` package (tests/requirements.txt). The file is committed.
"""

import pathlib

import numpy as np
from onnx import TensorProto, helper, numpy_helper

MEAN = [123.675, 116.28, 103.53]
STDDEV = [58.395, 57.12, 57.375]


def node(name, op, inputs, output, domain="", **attributes):
    made = helper.make_node(op, inputs, [output], name, domain=domain)
    # Empty lists have no type of their own.
    made.attribute.extend(
        helper.make_attribute(key, value)
        for key, value in sorted(attributes.items())
        if value != []
    )
    return made


def constant(name, values):
    return numpy_helper.from_array(np.array(values, np.float32), name)


def main():
    graph = helper.make_graph(
        [
            node("decode", "DecodeImage", ["image"], "decoded", "weir"),
            node(
                "resize",
                "Resize",
                ["decoded"],
                "resized",
                "weir",
                resize_shorter=256.0,
                interp_type="linear",
                antialias=1,
            ),
            node(
                "crop",
                "Crop",
                ["resized"],
                "cropped",
                "weir",
                crop_w=224.0,
                crop_h=224.0,
                crop_pos_x=0.5,
                crop_pos_y=0.5,
            ),
            node(
                "normalize",
                "Normalize",
                ["cropped"],
                "normalized",
                "weir",
                mean=MEAN,
                stddev=STDDEV,
            ),
            node(
                "draw", "RandomUniform", [], "drawn", "weir", range=[0.0, 1.0]
            ),
            node("coin", "Less", ["drawn", "half"], "heads"),
            node("flip", "Flip", ["normalized", "heads"], "flipped", "weir"),
            node(
                "to_planes", "Transpose", ["flipped"], "tensor", perm=[2, 0, 1]
            ),
            node("unscale", "Mul", ["flipped", "stddev"], "unscaled"),
            node("uncenter", "Add", ["unscaled", "mean_and_half"], "levels"),
            node("limit", "Clip", ["levels", "black", "white"], "limited"),
            node(
                "to_bytes",
                "Cast",
                ["limited"],
                "preview",
                to=int(TensorProto.UINT8),
            ),
        ],
        "preprocess",
        [
            helper.make_tensor_value_info(
                "image", TensorProto.UINT8, ["bytes"]
            )
        ],
        [
            helper.make_tensor_value_info(
                "tensor", TensorProto.FLOAT, [3, 224, 224]
            ),
            helper.make_tensor_value_info(
                "preview", TensorProto.UINT8, [224, 224, 3]
            ),
        ],
        [
            constant("half", 0.5),
            constant("stddev", STDDEV),
            constant("mean_and_half", [level + 0.5 for level in MEAN]),
            constant("black", 0),
            constant("white", 255),
        ],
    )
    model = helper.make_model(
        graph,
        producer_name="weir make_preprocess_onnx.py",
        opset_imports=[
            helper.make_opsetid("", 17),
            helper.make_opsetid("weir", 1),
        ],
        ir_version=8,
    )
    path = pathlib.Path(__file__).parent / "preprocess.onnx"
    path.write_bytes(model.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
