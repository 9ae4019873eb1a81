#!/usr/bin/env python3
"""What tests/gpu/run.sh takes for a success, with programs that pretend."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

RUN = pathlib.Path(__file__).with_name("run.sh")

# A GoogleTest program with one case on CUDA.
SUITE = """
case "$1" in
  --gtest_list_tests) echo 'Suite.'; echo '  OnCuda' ;;
  *) echo "{}" ;;
esac
"""


class Run(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("tests/gpu", "test-bin", "bench-bin", "bin"):
            (self.root / name).mkdir(parents=True)
        shutil.copy(RUN, self.root / "tests" / "gpu")
        (self.root / "tests" / "list.tsv").write_text("a_test\tunit\n", "utf-8")

    def write(self, path, text):
        program = self.root / path
        program.write_text(f"#!/bin/bash\n{text}\n", "utf-8")
        program.chmod(0o755)

    def run_tasks(self, kind):
        return subprocess.run(
            [self.root / "tests" / "gpu" / "run.sh", "--only", f"^{kind} "],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False, env=dict(os.environ, WEIR_CUDA_LIBRARY_PATH="none"))

    def test_a_benchmark_that_ran(self):
        self.write("bench-bin/gpu_bench", "echo 'a call takes 3 us'")
        done = self.run_tasks("bench")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r"bench +gpu_bench +ok ")

    def test_a_benchmark_that_skips_is_no_success(self):
        self.write("bench-bin/gpu_bench",
                   "echo 'skipped: there is no NVIDIA device'")
        done = self.run_tasks("bench")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout, r"bench +gpu_bench +SKIPPED ")

    def test_a_benchmark_that_fails(self):
        self.write("bench-bin/gpu_bench", "exit 3")
        done = self.run_tasks("bench")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("FAILED (3)", done.stdout)

    def test_a_suite_that_skips_everything_is_no_success(self):
        self.write("test-bin/a_test",
                   SUITE.format("[  PASSED  ] 0 tests."))
        done = self.run_tasks("suite")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout, r"suite +a_test +SKIPPED ")

    def test_a_suite_that_ran(self):
        self.write("test-bin/a_test",
                   SUITE.format("[  PASSED  ] 1 test."))
        done = self.run_tasks("suite")
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
