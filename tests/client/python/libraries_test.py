#!/usr/bin/env python3
"""Libraries that take arrays of any kind, with tensors on a server."""

import importlib.util
import os
import unittest

# SciPy reads it when it is imported.
os.environ["SCIPY_ARRAY_API"] = "1"

# pylint: disable=wrong-import-position
from spaces_server import WithServer
import numpy as np
import skipping
import weir

SAMPLES = np.random.default_rng(5).normal(size=(40, 6))


@unittest.skipIf(importlib.util.find_spec("scipy") is None or
                 importlib.util.find_spec("array_api_compat") is None,
                 "scipy or array-api-compat is not installed")
class Scipy(WithServer):

    def compare(self, programs):
        connection = self.connect()
        for name, program in programs.items():
            with self.subTest(name):
                mine = program(connection.tensor(SAMPLES))
                self.assertIsInstance(mine, weir.Tensor)
                np.testing.assert_allclose(mine.numpy(), program(SAMPLES),
                                           rtol=1e-9, atol=1e-12)

    def test_special_functions(self):
        from scipy import special  # pylint: disable=import-outside-toplevel
        self.compare({
            "logsumexp": lambda x: special.logsumexp(x, axis=1),
            "softmax": lambda x: special.softmax(x, axis=1),
            "log_softmax": lambda x: special.log_softmax(x, axis=0)})

    def test_statistics(self):
        from scipy import stats  # pylint: disable=import-outside-toplevel
        self.compare({
            "zscore": stats.zscore,
            "gmean": lambda x: stats.gmean(x ** 2, axis=1),
            "moment": lambda x: stats.moment(x, 2),
            "skew": stats.skew,
            "kurtosis": stats.kurtosis,
            "sem": stats.sem,
            "pearsonr": lambda x: stats.pearsonr(x[:, 0], x[:, 1]).statistic,
            "entropy": lambda x: stats.entropy(x ** 2)})

    def test_signals_and_integrals(self):
        # pylint: disable-next=import-outside-toplevel
        from scipy import integrate, signal
        self.compare({
            "detrend": lambda x: signal.detrend(x, type="constant"),
            "trapezoid": lambda x: integrate.trapezoid(x, dx=0.1),
            "cumulative_trapezoid":
                lambda x: integrate.cumulative_trapezoid(x, dx=0.1)})


if __name__ == "__main__":
    skipping.main()
