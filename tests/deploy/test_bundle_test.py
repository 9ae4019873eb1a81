#!/usr/bin/env python3
"""The bundle with tests, for a machine with a GPU: that it can be made of a build
with all that tests leave there, and has what tests/gpu/run.sh runs and no other
program. Slow: it packs half a gigabyte. Skipped where no release build is."""

import os
import pathlib
import subprocess
import tarfile
import tempfile
import unittest

import skipping

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("WEIR_BIN_DIR", ROOT / "build/bin")).parent


class TestBundle(unittest.TestCase):

    def test_it_has_what_runs_on_a_gpu(self):
        cache = (BUILD / "CMakeCache.txt").read_text("utf-8")
        if "CMAKE_BUILD_TYPE:STRING=Release" not in cache:
            self.skipTest("not a release build")
        with tempfile.TemporaryDirectory() as dist:
            done = subprocess.run(
                [ROOT / "deploy" / "bundle.sh", "--tests"], check=False,
                capture_output=True, text=True,
                env={**os.environ, "WEIR_BUILD_DIR": str(BUILD),
                     "WEIR_DIST_DIR": dist})
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            [archive] = pathlib.Path(dist).glob("*-tests-*.tar.xz")
            with tarfile.open(archive) as packed:
                packed.extractall(dist, filter="data")
            [root] = (path for path in pathlib.Path(dist).iterdir()
                      if path.is_dir())
            listed = subprocess.run(
                [root / "tests" / "gpu" / "run.sh", "--list", "--only", "."],
                check=True, capture_output=True, text=True,
                env={**os.environ, "WEIR_GPU_LOGS": f"{dist}/logs"}).stdout
            names = {line.split()[2] for line in listed.splitlines()}
            programs = {file.name for folder in ("test-bin", "bench-bin")
                        for file in (root / folder).iterdir()
                        if file.suffix != ".so"}
            self.assertLessEqual(programs, names)
            self.assertIn("services_space_evaluation_test", programs)
            self.assertIn("server_bench", programs)


if __name__ == "__main__":
    skipping.main()
