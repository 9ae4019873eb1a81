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
PASSES = SUITE.format("[  PASSED  ] 1 test.")


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

    def run_tasks(self, kind, **environment):
        return self.run_script("--only", f"^{kind} ", **environment)

    def run_script(self, *arguments, **environment):
        return subprocess.run(
            [self.root / "tests" / "gpu" / "run.sh", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False, env={
                **os.environ, "WEIR_CUDA_LIBRARY_PATH": "none",
                "CUDA_HOME": str(self.root), **environment,
                "PATH": f"{self.root}/bin:/usr/bin:/bin"})

    def log(self, task):
        return (self.root / "gpu-logs" / f"{task}.log").read_text("utf-8")

    def write_operators(self):
        """A program that compute-sanitizer looks at."""
        (self.root / "tests" / "list.tsv").write_text("ops_a_test\tunit\n",
                                                      "utf-8")
        self.write("test-bin/ops_a_test", PASSES)

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

    def skipping(self, *reasons):
        """A program of one case that passes, and one for each reason."""
        lines = ["[ RUN      ] Suite.OnCuda",
                 "[       OK ] Suite.OnCuda (2 ms)"]
        for i, reason in enumerate(reasons):
            lines += [f"[ RUN      ] Suite.Cuda{i}", "a_test.cc:9: Skipped",
                      reason, "", f"[  SKIPPED ] Suite.Cuda{i} (0 ms)"]
        tests = "tests" if len(reasons) > 1 else "test"
        lines += ["[  PASSED  ] 1 test.",
                  f"[  SKIPPED ] {len(reasons)} {tests}, listed below:"]
        lines += [f"[  SKIPPED ] Suite.Cuda{i}" for i in range(len(reasons))]
        (self.root / "said").write_text("\n".join(lines), "utf-8")
        self.write("test-bin/a_test", f"""
case "$1" in
  --gtest_list_tests) echo 'Suite.'; echo '  OnCuda' ;;
  *) cat {self.root}/said ;;
esac""")
        return self.run_tasks("suite")

    def test_a_case_of_another_device_is_skipped_and_counted(self):
        done = self.skipping("the CPU's library",
                             "needs two GPUs: there is no device 1")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout,
                         r"suite +a_test +ok +1 tests +2 skipped ")

    def test_a_case_that_lacks_what_is_to_be_there_is_no_success(self):
        for reason in ("no nvJPEG: needs nvJPEG 13: libnvjpeg.so.13",
                       "UNAVAILABLE: there is no NVIDIA device",
                       "it lacks the CPU's library", ""):
            with self.subTest(reason):
                done = self.skipping("the CPU's library", reason)
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertRegex(done.stdout,
                                 r"suite +a_test +SKIPPED +1 tests +2 skipped ")
                self.assertIn(f"skipped Suite.Cuda1: {reason}\n", done.stdout)
                self.assertNotIn("skipped Suite.Cuda0:", done.stdout)

    def test_a_suite_that_ran(self):
        self.write("test-bin/a_test", PASSES)
        done = self.run_tasks("suite")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r"suite +a_test +ok +1 tests")

    def test_a_suite_without_such_tests_is_no_task(self):
        self.write("test-bin/a_test", "echo Suite.")
        done = self.run_script("--list")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertNotIn("a_test", done.stdout)

    def test_a_suite_that_cannot_say_what_it_has_fails(self):
        self.write("test-bin/a_test", "exit 127")
        done = self.run_tasks("suite")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout, r"suite +a_test +FAILED \(127\)")

    def test_suites_of_spaces_run_on_the_gpu(self):
        (self.root / "tests" / "list.tsv").write_text(
            "services_commands_wait_command_test\tunit\n"
            "services_page_test\tunit\n", "utf-8")
        done = self.run_script("--list", "--only", "services_")
        self.assertIn("server services_commands_wait_command_test",
                      done.stdout)
        self.assertIn("driver services_commands_wait_command_test",
                      done.stdout)
        self.assertNotIn("services_page_test", done.stdout)

    def test_tasks_that_there_are_not_cannot_be_asked_for(self):
        for arguments in ([], ["--list"], ["--part", "1/2"]):
            with self.subTest(arguments):
                done = self.run_script("--only", "^siute ", *arguments)
                self.assertEqual(done.returncode, 2, done.stdout)
                self.assertIn("no task matches '^siute '", done.stdout)

    def test_another_part_may_have_the_only_task(self):
        self.write("test-bin/a_test", PASSES)
        for part, line in ("1/2", "suite +a_test +ok"), ("2/2", "all passed"):
            done = self.run_script("--only", "^suite ", "--part", part)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertRegex(done.stdout, line)

    def test_what_each_tool_is_told(self):
        self.write_operators()
        self.write("bin/compute-sanitizer",
                   'echo "$*"; echo "[  PASSED  ] 1 test."')
        lost = "-*Death*:*Poison*"
        for kind, told in {
            "memcheck": ["--tool memcheck", "--leak-check no",
                         "--report-api-errors explicit", "*cuda*", lost],
            "refused": ["--tool memcheck", "--report-api-errors no",
                        "--gtest_filter=*ExhaustionIsNotSticky"],
            "racecheck": ["--tool racecheck", "*cuda*", lost],
            "initcheck": ["--tool initcheck", "--kernel-name-exclude", lost,
                          "*AWaitOnTheDeviceOrdersTwoStreams"],
            "synccheck": ["--tool synccheck", "*cuda*", lost],
        }.items():
            with self.subTest(kind):
                done = self.run_tasks(kind)
                self.assertEqual(done.returncode, 0, done.stdout)
                log = self.log(f"{kind}-ops_a_test")
                for words in [*told, "--error-exitcode 9 ",
                              " test-bin/ops_a_test --gtest_filter="]:
                    self.assertIn(words, log)

    def test_what_a_tool_finds_is_a_failure(self):
        self.write_operators()
        self.write("bin/compute-sanitizer",
                   'echo "[  PASSED  ] 1 test."; exit 9')
        done = self.run_tasks("memcheck")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("FAILED (9)", done.stdout)

    def test_tools_run_at_once_and_each_counts(self):
        self.write_operators()
        os.mkfifo(self.root / "met")
        # The first returns once the second has come.
        self.write("bin/compute-sanitizer", f"""
echo "[  PASSED  ] 1 test."
case "$*" in
  *racecheck*) cat {self.root}/met; exit 9 ;;
  *initcheck*) echo here >{self.root}/met; exit 9 ;;
esac""")
        done = self.run_script("--jobs", "2", "--only", "^(race|init)check ",
                               WEIR_GPU_LIMIT="60")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("2 failed", done.stdout)
        self.assertIn("FAILED (9)", done.stdout)
        self.assertIn("here", self.log("racecheck-ops_a_test"))

    def test_without_the_tool_nothing_is_seen(self):
        self.write_operators()
        for kind in "memcheck", "refused", "racecheck", "initcheck", "synccheck":
            done = self.run_tasks(kind)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertRegex(done.stdout, rf"{kind} +ops_a_test +NO TOOL ")

    def test_what_does_not_fit_into_the_time_is_no_success(self):
        self.write("test-bin/a_test", PASSES)
        done = self.run_tasks("suite", WEIR_GPU_LIMIT="5")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout, r"suite +a_test +NO TIME ")

    def test_a_suite_over_the_watched_driver(self):
        self.write("bin/ldconfig", "echo '\tlibcuda.so.1 (libc6,x86-64) => "
                                   f"{self.root}/libcuda.so.1'")
        (self.root / "libcuda.so.1").write_text("real", "utf-8")
        (self.root / "test-bin" / "libwatched_driver.so").write_text(
            "watched", "utf-8")
        self.write("test-bin/server_cancel_test", """
echo "$WEIR_WATCHED_DRIVER $WEIR_TEST_DEVICE"
cat "$LD_LIBRARY_PATH/libcuda.so.1" "$LD_LIBRARY_PATH/libcuda_real.so"
echo; echo '[  PASSED  ] 1 test.'""")
        done = self.run_script("--only", "^driver server_cancel_test$")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(self.log("driver-server_cancel_test").splitlines(),
                         ["1 cuda:0", "watchedreal", "[  PASSED  ] 1 test."])

    def test_nothing_is_watched_where_there_is_no_driver(self):
        self.write("bin/ldconfig", "")
        self.write("test-bin/server_cancel_test", PASSES)
        done = self.run_script("--only", "^driver server_cancel_test$")
        self.assertEqual(done.returncode, 1, done.stdout)


if __name__ == "__main__":
    unittest.main()
