#!/usr/bin/env python3
"""What cpu_quota.py says to who may make no cgroup, and what it measures:
each number of threads once."""

import sys
import unittest
from unittest import mock

import cpu_quota


class CpuQuota(unittest.TestCase):

    def test_it_needs_root_and_says_so(self):
        with (mock.patch("os.geteuid", return_value=1000),
              mock.patch.object(sys, "argv", ["cpu_quota.py"]),
              self.assertRaises(SystemExit) as raised):
            cpu_quota.main()
        self.assertEqual(raised.exception.code,
                         "cpu_quota: needs root, to make cgroups")

    def test_the_defaults_are_among_what_it_tries(self):
        for quota in (0.5, 1, 1.5, 2):
            tried = [flags for _, flags in cpu_quota.choices(quota)]
            self.assertIn((), tried)
            self.assertIn(("--io-threads=1", "--cpu-threads=1"), tried)
            self.assertEqual(len(tried), len(set(tried)))

    def test_the_median_counts(self):
        rows = [{"threads": "1 + 1", "rate": rate} for rate in (9, 1, 5)]
        self.assertEqual(cpu_quota.median(rows), {"threads": "1 + 1",
                                                  "rate": 5})


if __name__ == "__main__":
    unittest.main()
