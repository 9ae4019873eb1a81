#!/usr/bin/env python3
"""What `make bench` does with benchmarks that fail."""

import pathlib
import subprocess
import tempfile
import unittest

RUN_ALL = pathlib.Path(__file__).with_name("run_all.sh")


class RunAll(unittest.TestCase):

    def run_all(self, codes):
        """Runs a benchmark for each name, which ends with the code given."""
        with tempfile.TemporaryDirectory() as folder:
            for name, code in codes.items():
                benchmark = pathlib.Path(folder, name)
                benchmark.write_text(
                    f"#!/bin/sh\necho {name} ran\nexit {code}\n", "utf-8")
                benchmark.chmod(0o755)
            return subprocess.run([RUN_ALL, folder], capture_output=True,
                                  text=True, check=False)

    def test_all_run_and_those_that_failed_are_named(self):
        done = self.run_all({"a_bench": 1, "b_bench": 0, "c_bench": 3,
                             "d_bench": 0})
        self.assertEqual(done.stdout,
                         "== a_bench\na_bench ran\n== b_bench\nb_bench ran\n"
                         "== c_bench\nc_bench ran\n== d_bench\nd_bench ran\n")
        self.assertEqual(done.stderr,
                         "failed:\n  a_bench (exit code 1)\n"
                         "  c_bench (exit code 3)\n")
        self.assertEqual(done.returncode, 1)

    def test_none_failed(self):
        done = self.run_all({"a_bench": 0, "b_bench": 0})
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_no_benchmarks_are_no_success(self):
        self.assertEqual(self.run_all({}).returncode, 2)


if __name__ == "__main__":
    unittest.main()
