#!/usr/bin/env python3
"""Holoscan's stream handling example: two sources and an operator that takes
from both, each with a stream of the pool.

An operator is a thread with a context. A stream comes from the server's pool
for as long as an operator has unfinished work, and is never asked for; what an
operator receives orders its work by itself, so there is nothing that
receive_cuda_stream would do. Started with --streams=1 a server runs everything
on one stream, as use_default_stream=True does there, with the same results.

Usage: holoscan_stream_pool.py [HOST:PORT]"""

import queue
import sys
import threading

import numpy as np

import weir

MESSAGES = 5
Port = queue.SimpleQueue[weir.Tensor]


def source(out: Port, value: float) -> None:
    """CuPySourceOp: makes a tensor and sends it on before it is there."""
    with weir.EvalContext():
        for count in range(MESSAGES):
            tensor = weir.full((64, 64), value, dtype=weir.float32) + count
            out.put(tensor)


def process(in1: Port, in2: Port, out: Port) -> None:
    """CuPyProcessOp: receives from both, and sends on what it makes."""
    with weir.EvalContext():
        for _ in range(MESSAGES):
            out.put(in1.get() @ in2.get())


def receive(port: Port) -> None:
    """PingTensorRxOp: waits for each, and says what it is."""
    for _ in range(MESSAGES):
        tensor = port.get().evaluate()
        print("received", tensor.dtype, tensor.shape,
              np.unique(tensor.numpy()))


def main() -> None:
    with weir.connect(*sys.argv[1:2], send_after=0.001):
        a, b, made = Port(), Port(), Port()
        operators = [
            threading.Thread(target=source, args=(a, 1.0)),
            threading.Thread(target=source, args=(b, 2.0)),
            threading.Thread(target=process, args=(a, b, made))]
        for operator in operators:
            operator.start()
        receive(made)
        for operator in operators:
            operator.join()


if __name__ == "__main__":
    main()
