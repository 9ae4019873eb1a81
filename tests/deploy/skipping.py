"""How a script of unittest's ends as a CTest entry: as one that was skipped if any
of its tests was, whose last line says why."""

import sys
import unittest


def main():
    """Runs the tests of the script. Exits with 1 if one failed or there is none,
    with 77 if one was skipped, else with 0."""
    result = unittest.main(exit=False).result
    if not result.wasSuccessful() or result.testsRun == 0:
        sys.exit(1)
    # Together a line; .ci/count takes it apart.
    reasons = sorted({reason for _, reason in result.skipped})
    if reasons:
        print(f"skipped: {'; '.join(reasons)}")
        sys.exit(77)
    sys.exit(0)
