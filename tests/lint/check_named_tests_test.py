#!/usr/bin/env python3
"""Tests of check_named_tests.py."""

import pathlib
import tempfile
import unittest

import check_named_tests

HEADING = "| There | Here | Test |\n|---|---|---|\n"


class CheckNamedTestsTest(unittest.TestCase):

    def setUp(self):
        self.root = pathlib.Path(
            self.enterContext(tempfile.TemporaryDirectory()))
        for path, text in (
                ("tests/eval/order_test.cc",
                 "TEST_F(Order, Holds) {}\nWEIR_OP_TEST(Math,\n    Adds) {}\n"),
                ("tests/client/python/batch_test.py",
                 "class Batches:\n    def test_one(self):\n        pass\n"
                 "    def other(self):\n        pass\n")):
            file = self.root / path
            file.parent.mkdir(parents=True)
            file.write_text(text, "utf-8")
        self.page = self.root / "docs" / "coming-from" / "x.md"
        self.page.parent.mkdir(parents=True)

    def findings(self, *rows):
        self.page.write_text("# X\n\n" + HEADING + "".join(
            f"{row}\n" for row in rows) + "\nText | of no table\n", "utf-8")
        return check_named_tests.check(self.root)

    def test_what_exists_is_accepted(self):
        self.assertEqual(self.findings(
            "| a | b | `Order.Holds` |", "| a | b | `Order.*`, `Math.Adds` |",
            "| a | | `batch_test.py::Batches.test_one` |",
            "| a | | Not yet: streams |", "| a | b | By design: it is so |"),
            [])

    def test_what_does_not_is_found_with_its_line(self):
        for name in ("Order.Lets", "Other.Holds", "Other.*",
                     "batch_test.py::Batches.other",
                     "batch_test.py::Batches.test_two"):
            self.assertEqual(
                self.findings("| a | b | `Order.Holds` |",
                              f"| a | b | `{name}` |"),
                [f"docs/coming-from/x.md:6: there is no test {name}"])

    def test_a_row_without_a_proof_has_a_reason(self):
        for cell in ("", "yes", "Not yet:", "Order.Holds", "see `Order.Holds`"):
            [found] = self.findings(f"| a | b | {cell} |")
            self.assertIn("reason", found)

    def test_rows_have_all_cells(self):
        [found] = self.findings("| a | `Order.Holds` |")
        self.assertIn("2 cells", found)


if __name__ == "__main__":
    unittest.main()
