#!/usr/bin/env python3
"""client/python/examples: each program runs, and prints what it is to show."""

import os
import subprocess
import sys

import built_package
from spaces_server import WithServer
import running
import skipping

EXAMPLES = built_package.ROOT / "client" / "python" / "examples"
SECONDS = 120


def run(example, server):
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / example, server.grpc],
        capture_output=True, text=True, check=False, timeout=SECONDS,
        env={**os.environ, "PYTHONPATH": str(built_package.LIBRARY)})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


class Examples(WithServer):

    def setUp(self):
        self.connect().close()  # skips where there are no spaces

    def test_dali_multithreading(self):
        self.assertEqual(
            run("dali_multithreading.py", self.server),
            ["flipped uint8 (100, 100, 3)"] * 4 +
            ["refused CONTEXT_BUSY"] * 3 + ["outside None"])

    def test_metal_double_buffering(self):
        self.assertEqual(
            run("metal_double_buffering.py", self.server),
            ["early [1. 2. 3. 4.]", "late [ 0. 10. 20. 30.]"] +
            [f"frame {frame} [{2 * frame}. {2 * frame}. {2 * frame}.]"
             for frame in range(1, 7)])

    def test_user_stream_inspection(self):
        self.assertEqual(
            run("user_stream_inspection.py", self.server),
            ["looked at [3. 3. 3.]", "not there: DEADLINE_EXCEEDED",
             "stuck float32 (2, 3) cpu", "all there [2. 2. 2.]",
             "a stream of its own: True"])

    def test_holoscan_stream_pool(self):
        expected = [f"received float32 (64, 64) [{64 * (1 + n) * (2 + n)}.]"
                    for n in range(5)]
        self.assertEqual(run("holoscan_stream_pool.py", self.server), expected)
        with running.Server("--streams=1") as one:
            self.assertEqual(run("holoscan_stream_pool.py", one), expected)


if __name__ == "__main__":
    skipping.main()
