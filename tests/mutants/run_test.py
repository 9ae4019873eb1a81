#!/usr/bin/env python3
"""Of run.py: what it says of mutants, with a builder that only pretends."""

import contextlib
import io
import json
import pathlib
import subprocess
import tempfile
import unittest

import run

ENTRY = """
[[mutant]]
name = "{name}"
file = "{file}"
old = '''{old}'''
new = '''{new}'''
tests = ["a_test"]
why = "because"
"""


class Builder:
    """Its test fails if the file says `two`, hangs if it says `hangs`, and
    hangs for once if it says `slow`; `broken` does not build."""

    def __init__(self, tree, cmake_args):
        self.tree = tree
        self.output = ""
        self.slow = set()

    def configure(self):
        pass

    def _text(self):
        return (self.tree / "a.cc").read_text()

    def build(self, tests):
        return "broken" not in self._text()

    def run_test(self, test, limit):
        text = self._text()
        self.limits.append(limit)
        self.output = "[  FAILED  ] Suite.Case"
        if "hangs" in text or ("slow" in text and text not in self.slow):
            self.slow.add(text)
            return run.TIMED_OUT, limit
        return run.FAILED if "two" in text else run.PASSED, self.seconds


class RunTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.lists = self.root / "tests" / "mutants"
        self.lists.mkdir(parents=True)
        (self.root / "a.cc").write_text("one\nonce\nthree three\n")
        (self.lists / "CMakeLists.txt").write_text("weir_test(a_test SRCS)\n")
        (self.root / ".gitignore").write_text("/build/\n")
        subprocess.run(["git", "init", "-q"], cwd=self.root, check=True)
        Builder.seconds = 1
        Builder.limits = []

    def state(self, change=None):
        """What is kept between runs, after `change` of it."""
        path = self.root / "build" / "mutants" / "verdicts.json"
        state = json.loads(path.read_text())
        if change is not None:
            change(state)
            path.write_text(json.dumps(state))
        return state

    def write(self, *entries):
        (self.lists / "a.toml").write_text("".join(
            ENTRY.format(name=name, file=file, old=old, new=new)
            for name, file, old, new in entries))

    def run_list(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = run.main(list(arguments), self.lists, self.root, Builder)
        return status, out.getvalue() + err.getvalue()

    def test_all_killed(self):
        self.write(("m", "a.cc", "one\n", "two\n"))
        status, out = self.run_list()
        self.assertEqual(status, 0, out)
        self.assertIn("killed m", out)
        self.assertIn("Suite.Case", out)
        self.assertIn("1 mutants: 1 killed (100.0%), 0 survived", out)
        # Neither the tree nor its copy stays broken.
        for tree in (self.root, self.root / "build" / "mutants" / "tree"):
            self.assertIn("one", (tree / "a.cc").read_text())

    def test_a_survivor_needs_a_reason(self):
        entries = [(f"k{i}", "a.cc", "one\n", "two\n") for i in range(19)]
        self.write(*entries, ("s", "a.cc", "one\n", "uno\n"))
        status, out = self.run_list()
        self.assertEqual(status, 1)
        self.assertIn("SURVIVED s: no reason in docs/testing.md", out)
        (self.root / "docs").mkdir()
        (self.root / "docs" / "testing.md").write_text("| `s` | equal |\n")
        status, out = self.run_list("--resume")
        self.assertEqual(status, 0, out)
        self.assertNotIn("[1/", out)  # nothing was judged again
        (self.root / "docs" / "testing.md").write_text(
            "| `s` | equal |\n| `k1` | no |\n| `gone` | no |\n")
        status, out = self.run_list("--resume")
        self.assertEqual(status, 1)
        self.assertIn("k1 was killed", out)
        self.assertIn("gone of docs/testing.md is no mutant", out)

    def test_too_few_killed(self):
        (self.root / "docs").mkdir()
        (self.root / "docs" / "testing.md").write_text("| `s` | equal |\n")
        self.write(("k", "a.cc", "one\n", "two\n"),
                   ("s", "a.cc", "one\n", "uno\n"))
        status, out = self.run_list()
        self.assertEqual(status, 1)
        self.assertIn("less than 95%", out)

    def test_one_that_does_not_build_is_no_kill(self):
        self.write(("b", "a.cc", "one\n", "broken\n"))
        status, out = self.run_list()
        self.assertEqual(status, 1)
        self.assertIn("DID NOT BUILD b", out)

    def test_one_that_hangs_twice_is_killed_and_shown(self):
        self.write(("h", "a.cc", "one\n", "hangs\n"))
        status, out = self.run_list()
        self.assertEqual(status, 0, out)
        self.assertIn("TIMED OUT h: a_test ran longer than 10 s, twice", out)
        self.assertIn("1 mutants: 1 killed (100.0%, 1 by a time-out), "
                      "0 survived", out)
        self.assertEqual(self.state()["verdicts"]["h"]["verdict"], "timed-out")
        # A reason for a survivor is wrong for it too.
        (self.root / "docs").mkdir()
        (self.root / "docs" / "testing.md").write_text("| `h` | equal |\n")
        status, out = self.run_list("--resume")
        self.assertEqual(status, 1)
        self.assertIn("h was killed", out)

    def test_one_that_hangs_once_survives(self):
        self.write(("h", "a.cc", "one\n", "slow\n"))
        status, out = self.run_list()
        self.assertEqual(status, 1)
        self.assertIn("SURVIVED h (a_test timed out once)", out)

    def test_one_that_fails_at_the_second_try_is_killed(self):
        self.write(("h", "a.cc", "one\n", "two slow\n"))
        status, out = self.run_list()
        self.assertEqual(status, 0, out)
        self.assertIn("killed h", out)
        self.assertNotIn("TIMED OUT", out)

    def test_a_mutant_has_ten_times_what_its_test_takes(self):
        self.write(("m", "a.cc", "one\n", "two\n"),
                   ("n", "a.cc", "once", "twotwo"))
        Builder.seconds = 8
        self.assertEqual(self.run_list("--limit", "99")[0], 0)
        self.assertEqual(Builder.limits, [99, 80, 80])
        # The time is kept with the tree that it was taken of.
        Builder.limits = []
        self.state(lambda state: state["verdicts"].pop("n"))
        self.assertEqual(self.run_list("--resume")[0], 0)
        self.assertEqual(Builder.limits, [80])

    def test_a_verdict_is_of_the_tests_as_they_were(self):
        (self.lists / "CMakeLists.txt").write_text(
            "weir_test(a_test\n  SRCS a_test.cc\n  LIBS b.cc ${C})\n")
        source = self.lists / "a_test.cc"
        source.write_text("1")
        self.write(("m", "a.cc", "one\n", "two\n"))
        self.assertIn("killed m", self.run_list()[1])
        self.assertNotIn("killed m", self.run_list("--resume")[1])
        source.write_text("2")
        self.assertIn("killed m", self.run_list("--resume")[1])
        # One that was kept before tests were looked at is taken as it is.
        self.state(lambda state: state["verdicts"]["m"].pop("tests"))
        source.write_text("3")
        status, out = self.run_list("--resume")
        self.assertEqual(status, 0, out)
        self.assertNotIn("killed m", out)

    def test_a_test_that_fails_anyway_is_no_judge(self):
        (self.root / "a.cc").write_text("one\ntwo\n")
        self.write(("m", "a.cc", "one\n", "uno\n"))
        status, out = self.run_list()
        self.assertEqual(status, 2)
        self.assertIn("a_test does not pass without a mutant", out)

    def test_the_text_must_stand_there_once(self):
        self.write(("none", "a.cc", "four", "five"),
                   ("many", "a.cc", "three", "four"),
                   ("away", "b.cc", "one", "two"))
        status, out = self.run_list("--check")
        self.assertEqual(status, 2)
        self.assertIn("none: its text stands 0 times", out)
        self.assertIn("many: its text stands 2 times", out)
        self.assertIn("away: no file b.cc", out)

    def test_a_test_that_is_not_there_fails(self):
        self.write(("m", "a.cc", "one\n", "two\n"))
        (self.lists / "CMakeLists.txt").write_text("weir_test(b_test SRCS)\n")
        status, out = self.run_list("--check")
        self.assertEqual(status, 2)
        self.assertIn("m: no test a_test", out)

    def test_a_pattern_that_matches_nothing_fails(self):
        self.write(("m", "a.cc", "one", "two"))
        status, out = self.run_list("--only", "n*")
        self.assertEqual(status, 2)
        self.assertIn("no mutant", out)

    def test_the_program_of_a_test_may_have_another_name(self):
        folder = pathlib.Path("/tree/build/test-bin")
        self.assertEqual(run.target_of(
            ["cmake", "-E", "env", "A=1", "/tree/build/test-bin/a_test"],
            folder), "a_test")
        self.assertIsNone(run.target_of(["python3", "/tree/a_test.py"],
                                        folder))

    def test_two_of_one_name_fail(self):
        self.write(("m", "a.cc", "one\n", "two\n"),
                   ("m", "a.cc", "one\n", "uno\n"))
        self.assertEqual(self.run_list("--check")[0], 2)

    def test_it_goes_on_where_it_stopped(self):
        self.write(("m", "a.cc", "one\n", "two\n"),
                   ("n", "a.cc", "once", "twotwo"))
        status, out = self.run_list("--max", "1")
        self.assertEqual(status, 3)
        self.assertIn("killed m", out)
        status, out = self.run_list("--resume")
        self.assertEqual(status, 0, out)
        self.assertNotIn("killed m", out)
        self.assertIn("killed n", out)
        # A changed file is judged anew.
        (self.root / "a.cc").write_text("one\nonce\n")
        status, out = self.run_list("--resume")
        self.assertIn("killed m", out)


if __name__ == "__main__":
    unittest.main()
