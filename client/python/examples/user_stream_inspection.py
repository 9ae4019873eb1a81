#!/usr/bin/env python3
"""DALI's UserStream: looking at tensors without a wait for anything else.

There, one asks for a stream of the tensor's device, works on it, and waits for
that stream. Here each reading waits for what makes that tensor, and for nothing
else on its device; what was waited for stands in the report.

Usage: user_stream_inspection.py [HOST:PORT]"""

import sys

import numpy as np

import weir


def main() -> None:
    with weir.connect(*sys.argv[1:2]):
        opened = weir.Timeline()
        x = weir.asarray(np.ones((2, 3), np.float32))

        # A pipeline that does not move: it waits for somebody to open a gate.
        with weir.EvalContext():
            stuck = weir.ops.add(x, x, after=[opened.at(1)])

        # UserStream::Get()->GetStream(t), a kernel, Wait(t)
        with weir.EvalContext():
            tensor = x * 3
            print("looked at", tensor.numpy()[0])

        try:
            stuck.evaluate(timeout=1)  # Wait(t), for a while
        except weir.errors.DeadlineExceeded as error:
            print("not there:", error.code)
        # What is known of it all the same: its shape, once it has a plan.
        print("stuck", stuck.dtype, stuck.shape, stuck.device.name)

        # WaitAll(): all that was asked for so far.
        opened.signal(1)
        for each in (tensor, stuck):
            each.evaluate()
        print("all there", stuck.numpy()[0])

        # In which stream, and after which wait, the work ended.
        with weir.EvalMode.SYNC_FULL:
            report = (x + 1).report
        assert report is not None
        print("a stream of its own:", report.stream_id != 0)


if __name__ == "__main__":
    main()
