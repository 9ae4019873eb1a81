#!/usr/bin/env python3
"""Metal's queues and events, "Best Practices": a queue for each thread, an
event between queues, and two frames in flight.

A queue is a context, whose works run in their order; a command buffer that is
committed is an operator that was called; an event is a timeline.

Usage: metal_double_buffering.py [HOST:PORT]"""

import sys
import threading

import numpy as np

import weir

FRAMES = 6
IN_FLIGHT = 2


def across_queues() -> None:
    """Queue 2 waits for the event that queue 1 signals."""
    queue1, queue2 = weir.EvalContext(), weir.EvalContext()
    event = weir.Timeline()
    x = weir.asarray(np.arange(4, dtype=np.float32))

    with queue2:  # asked for before there is anything to wait for
        late = weir.ops.mul(x, np.float32(10), after=[event.at(1)])
    with queue1:
        early = weir.ops.add(x, np.float32(1), signal=[event.at(1)])

    print("early", early.numpy())
    print("late", late.numpy())


def double_buffered() -> None:
    """One thread prepares the next frame while the other reads this one."""
    filled, read = weir.Timeline(), weir.Timeline()
    buffers: list[weir.Tensor | None] = [None] * IN_FLIGHT
    connection = weir.current_connection()

    def producer() -> None:
        with weir.EvalContext():
            for frame in range(1, FRAMES + 1):
                if frame > IN_FLIGHT:
                    read.wait(frame - IN_FLIGHT)  # the buffer is free
                buffers[frame % IN_FLIGHT] = weir.ops.add(
                    np.full(3, frame, np.float32), np.float32(0),
                    signal=[filled.at(frame)])
                connection.flush()

    thread = threading.Thread(target=producer)
    thread.start()
    with weir.EvalContext():
        for frame in range(1, FRAMES + 1):
            filled.wait(frame)  # wait_until_completed, of this frame alone
            buffer = buffers[frame % IN_FLIGHT]
            assert buffer is not None
            shown = weir.ops.mul(buffer, np.float32(2),
                                 signal=[read.at(frame)])
            print("frame", frame, shown.numpy())
    thread.join()


def main() -> None:
    with weir.connect(*sys.argv[1:2]):
        across_queues()
        double_buffered()


if __name__ == "__main__":
    main()
