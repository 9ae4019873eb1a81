#!/usr/bin/env python3
"""Proves the simulation: puts the faults of faults.toml back, one at a time,
into a copy of the tree, and shows that the scenario that it names finds each:
in the steps of `make test`, or where LONG says so in a hundred times as many.

Options are those of tests/mutants/run.py, which does it; --check only sees that
each fault still fits the sources. Takes some minutes, and is run by hand.
"""

import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "tests" / "mutants"))

import run  # noqa: E402

# Their faults `make test` is too short for.
LONG = {
    "sim_test:*/deferred_joined_reader_reads",
    "sim_test:*/works_signal_poison_full",
}


class Builder(run.Builder):
    def passes(self, test):
        os.environ["WEIR_SIM_TIMES"] = "100" if test in LONG else "1"
        return super().passes(test)


if __name__ == "__main__":
    # Not among the mutants' verdicts, nor their survivors.
    options = ["--work", str(ROOT / "build" / "sim-proof"), *sys.argv[1:]]
    # The copy needs no server: sim_test alone is built.
    sys.exit(run.main(options, lists=HERE, root=ROOT, make_builder=Builder))
