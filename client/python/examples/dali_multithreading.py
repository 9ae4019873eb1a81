#!/usr/bin/env python3
"""DALI's dynamic mode, "Multithreading": threads with an evaluation context
each, and what becomes of threads that share one.

Usage: dali_multithreading.py [HOST:PORT]"""

import sys
import threading

import weir

THREADS = 4


def augment() -> weir.Tensor:
    img = weir.random.uniform(shape=(100, 100, 3), range=(0, 255),
                              dtype=weir.uint8)
    flipped = weir.ops.flip(img, horizontal=weir.random.coin_flip())
    return flipped.evaluate()  # before it goes to another thread


def with_a_context_each() -> list[weir.Tensor]:
    results: list[weir.Tensor] = []

    def worker(seed: int) -> None:
        weir.random.set_seed(seed)  # of this thread
        with weir.EvalContext(), weir.EvalMode.eager:
            results.append(augment())

    run([threading.Thread(target=worker, args=(seed,))
         for seed in range(THREADS)])
    return results


def with_one_for_all() -> list[weir.errors.Aborted]:
    ctx = weir.EvalContext()
    inside = threading.Barrier(THREADS)
    refused: list[weir.errors.Aborted] = []

    def worker() -> None:
        try:
            with ctx:  # Bad: one context in several threads at once
                inside.wait()
                augment()
        except weir.errors.Aborted as error:
            refused.append(error)
            inside.wait()

    run([threading.Thread(target=worker) for _ in range(THREADS)])
    return refused


def run(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> None:
    with weir.connect(*sys.argv[1:2]):
        for image in with_a_context_each():
            print("flipped", image.dtype, image.shape)
        for error in with_one_for_all():
            print("refused", error.reason)
        print("outside", weir.EvalContext.current())


if __name__ == "__main__":
    main()
