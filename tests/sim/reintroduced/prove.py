#!/usr/bin/env python3
"""Proves the simulation: puts the faults of faults.toml back, one at a time,
into a copy of the tree, and shows that the scenario that it names finds each
in the steps of `make test`.

Options are those of tests/mutants/run.py, which does it; --check only sees that
each fault still fits the sources. Takes some minutes, and is run by hand.
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "tests" / "mutants"))

import run  # noqa: E402

if __name__ == "__main__":
    # Not among the mutants' verdicts, nor their survivors.
    options = ["--work", str(ROOT / "build" / "sim-proof"), *sys.argv[1:]]
    # The copy needs no server: sim_test alone is built.
    sys.exit(run.main(options, lists=HERE, root=ROOT))
