#!/usr/bin/env python3
"""What .ci/count says of reports: nothing passes by not running."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATH = ROOT / ".ci" / "count"
SKIPPING = ROOT / "tests" / "deploy"
LOADER = importlib.machinery.SourceFileLoader("count", str(PATH))
count = importlib.util.module_from_spec(
    importlib.util.spec_from_loader("count", LOADER))
LOADER.exec_module(count)

PASSED = '<testcase name="{}" status="run"/>'
FAILED = '<testcase name="{}" status="fail"><failure message=""/></testcase>'
SKIPPED = ('<testcase name="{}" status="notrun">'
           '<skipped message="SKIP_RETURN_CODE=77"/>'
           '<system-out>looking\nno ruler here</system-out></testcase>')
MISSING = ('<testcase name="{}" status="notrun">'
           '<skipped message="Unable to find executable"/></testcase>')

CASE = '<testcase name="c" status="run" result="completed"/>'
BAD_CASE = ('<testcase name="c" status="run" result="completed">'
            '<failure message="no"/></testcase>')
SKIPPED_CASE = ('<testcase name="c" status="run" result="skipped">'
                '<skipped message="a.cc:1&#x0A;there is no GPU"/></testcase>')


class CountTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.set_floors(passed=0)
        for suite in count.REPORTS:
            self.write_suite(suite, PASSED.format("script"))

    def set_floors(self, **floors):
        """Of the release build; others have none."""
        path = self.root / "floors.json"
        none = {suite: {"passed": 0} for suite in count.REPORTS}
        path.write_text(json.dumps({**none, "release": {"passed": 0, **floors}}))
        count.FLOORS = path

    def write_suite(self, suite, *entries):
        path = self.root / count.REPORTS[suite]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"<testsuite>{''.join(entries)}</testsuite>")

    def write_report(self, name, *cases):
        path = self.root / "build" / "reports" / f"{name}.xml"
        path.write_text(
            f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")

    def run_count(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            status = count.main([str(self.root)])
        return status, out.getvalue()

    def test_cases_of_all_suites(self):
        self.write_suite("release", PASSED.format("a_test"))
        self.write_report("a_test", CASE, CASE)
        status, out = self.run_count()
        self.assertEqual(status, 0)
        self.assertTrue(out.endswith(
            f"{len(count.REPORTS) + 1} passed, 0 failed, 0 skipped\n"), out)

    def test_a_skipped_script_is_no_pass(self):
        self.set_floors(skipped={"no ruler here": 1})
        self.write_suite("release", SKIPPED.format("a_script"))
        status, out = self.run_count()
        self.assertEqual(status, 0)
        self.assertIn("release: 0 passed, 0 failed, 1 skipped", out)
        self.assertIn("SKIPPED 1: a_script: no ruler here", out)

    def test_each_reason_of_a_script_is_one(self):
        self.set_floors(skipped={"no ruler here": 1})
        self.write_suite("release", SKIPPED.format("a_script").replace(
            "no ruler here", "skipped: no ruler here; no pen here"))
        status, out = self.run_count()
        self.assertEqual(status, 1)
        self.assertIn("1 skipped for a new reason: a_script: no pen here", out)
        self.assertIn("SKIPPED 1: a_script: no ruler here\n", out)

    def test_skipped_cases_are_told_by_reason(self):
        self.set_floors(skipped={"there is no GPU": 2})
        self.write_suite("release", PASSED.format("a_test"))
        self.write_report("a_test", CASE, SKIPPED_CASE, SKIPPED_CASE)
        status, out = self.run_count()
        self.assertEqual(status, 0)
        self.assertIn("SKIPPED 2: there is no GPU\n", out)
        self.assertIn(f"{len(count.REPORTS)} passed, 0 failed, 2 skipped", out)

    def test_more_skips_than_are_known_are_a_failure(self):
        self.set_floors(skipped={"is no GPU": 1, "nothing": 9})
        self.write_suite("release", PASSED.format("a_test"))
        self.write_report("a_test", CASE, SKIPPED_CASE, SKIPPED_CASE)
        status, out = self.run_count()
        self.assertEqual(status, 1)
        self.assertIn("2 skipped (is no GPU); at most 1 may be", out)

    def test_a_skip_for_a_new_reason_is_a_failure(self):
        self.set_floors(skipped={"no ruler here": 9})
        self.write_suite("release", PASSED.format("a_test"))
        self.write_report("a_test", CASE, SKIPPED_CASE)
        status, out = self.run_count()
        self.assertEqual(status, 1)
        self.assertIn("1 skipped for a new reason: there is no GPU", out)

    def test_an_entry_that_did_not_start_failed(self):
        self.write_suite("release", MISSING.format("a_test"))
        status, out = self.run_count()
        self.assertEqual(status, 1)
        self.assertIn("1 failed, 0 skipped (a_test)", out)

    def test_a_report_without_cases_is_a_failure(self):
        self.write_suite("release", PASSED.format("a_test"))
        self.write_report("a_test")
        status, out = self.run_count()
        self.assertEqual(status, 1)
        self.assertIn("a_test: no case ran", out)

    def test_failures(self):
        self.write_suite("release", FAILED.format("a_test"),
                         FAILED.format("a_script"))
        self.write_report("a_test", CASE, BAD_CASE)
        status, out = self.run_count()
        self.assertEqual(status, 1)
        self.assertIn("1 passed, 2 failed, 0 skipped (a_test, a_script)", out)

    def test_a_program_that_died_after_its_cases_failed(self):
        self.write_suite("release", FAILED.format("a_test"))
        self.write_report("a_test", CASE)
        status, out = self.run_count()
        self.assertEqual(status, 1)
        self.assertIn("release: 1 passed, 1 failed", out)

    def test_a_suite_that_did_not_run_failed(self):
        (self.root / count.REPORTS["tsan"]).unlink()
        status, out = self.run_count()
        self.assertEqual(status, 1)
        self.assertIn("tsan: 0 passed, 1 failed", out)

    def test_fewer_cases_than_the_floor_are_a_failure(self):
        self.set_floors(passed=2)
        status, out = self.run_count()
        self.assertEqual(status, 1)
        self.assertIn("1 cases passed; there must be 2", out)

    def test_fewer_cases_of_a_program_are_a_failure(self):
        self.set_floors(programs={"a_test": 2, "gone_test": 1, "script": 1})
        self.write_suite("release", PASSED.format("a_test"),
                         PASSED.format("script"))
        self.write_report("a_test", CASE)
        status, out = self.run_count()
        self.assertEqual(status, 1)
        self.assertIn("a_test: 1 cases passed; there must be 2", out)
        self.assertIn("gone_test: 0 cases passed; there must be 1", out)
        self.assertNotIn("script: ", out)

    def test_a_build_without_cuda_is_told(self):
        (self.root / "build" / "CMakeCache.txt").write_text(
            "WEIR_NVCC:FILEPATH=WEIR_NVCC-NOTFOUND\n")
        status, out = self.run_count()
        self.assertIn("NOT BUILT: the CUDA backend", out)

    def test_every_suite_has_a_floor(self):
        floors = json.loads(PATH.with_name("floors.json").read_text())
        self.assertEqual(set(floors), set(count.REPORTS))


class ScriptTest(unittest.TestCase):
    """How a script with tests of unittest's ends (tests/deploy/skipping.py)."""

    def run_script(self, tests):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "a_test.py"
            script.write_text(
                "import unittest, skipping\n"
                "class A(unittest.TestCase):\n"
                f"  def setUp(self): pass\n{tests}"
                "skipping.main()\n", "utf-8")
            done = subprocess.run(
                [sys.executable, script], stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, check=False,
                env={**os.environ, "PYTHONPATH": str(SKIPPING),
                     "PYTHONDONTWRITEBYTECODE": "1"})
        return done.returncode, done.stdout.splitlines()[-1]

    PASSES = "  def test_passes(self): pass\n"
    FAILS = "  def test_fails(self): self.fail()\n"
    SKIPS = ("  def test_b(self): self.skipTest('no ruler')\n"
             "  def test_c(self): self.skipTest('no pen')\n"
             "  def test_d(self): self.skipTest('no pen')\n")

    def test_passes(self):
        self.assertEqual(self.run_script(self.PASSES), (0, "OK"))

    def test_says_last_what_it_lacks(self):
        self.assertEqual(self.run_script(self.PASSES + self.SKIPS),
                         (77, "skipped: no pen; no ruler"))

    def test_fails_whatever_else_was_skipped(self):
        self.assertEqual(self.run_script(self.FAILS + self.SKIPS),
                         (1, "FAILED (failures=1, skipped=3)"))

    def test_fails_without_tests(self):
        self.assertEqual(self.run_script("")[0], 1)


if __name__ == "__main__":
    unittest.main()
