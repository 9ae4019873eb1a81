"""Runs the cases of a test file side by side, in processes of their own."""

import subprocess
import sys
import tempfile


def run(lanes, *arguments):
    """Each lane is what unittest is to run, in order, in a process that runs
    the file with `arguments` and those; shows what they say, one after another.
    The highest exit code."""
    with tempfile.TemporaryDirectory() as folder:
        begun = []
        for number, lane in enumerate(lanes):
            said = open(f"{folder}/{number}", "w+", encoding="utf-8")
            begun.append((said, subprocess.Popen(
                [sys.executable, sys.argv[0], *arguments, *lane],
                stdin=subprocess.DEVNULL, stdout=said,
                stderr=subprocess.STDOUT)))
        codes = []
        for said, process in begun:
            codes.append(abs(process.wait()))
            with said:
                said.seek(0)
                print(said.read(), flush=True)
    return max(codes)
