#!/usr/bin/env python3
"""Triton's load tester against weir-server, and weir's own beside it.

  perf_analyzer.py [--device DEVICE] [--window MS]

Starts weir-server with tests/data and runs perf_analyzer over gRPC in its
concurrency mode (1, 8 and 64) and its request-rate mode (500 a second), each in
short windows, then `weir load` with as many callers. Prints both figures and
fails if perf_analyzer reports errors, nothing served, or no statistics of the
server, or if the server refused a request.

The programs are those of $WEIR_BIN_DIR, else of build/bin or bin. perf_analyzer
is $PERF_ANALYZER, else the one on the PATH: `pip install perf-analyzer`,
which needs glibc 2.38. Where the PATH has none that starts, the script says so
and exits with 77."""

import argparse
import csv
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = "digits"
TOOL_TIMEOUT_S = 60

# What perf_analyzer is asked for, and the same of `weir load`.
MODES = [
    ("concurrency 1", ["--concurrency-range", "1"], ["-c", "1"]),
    ("concurrency 8", ["--concurrency-range", "8"], ["-c", "8"]),
    ("concurrency 64", ["--concurrency-range", "64"], ["-c", "64"]),
    ("64 at once, async", ["--async", "--concurrency-range", "64"],
     ["-c", "64"]),
    ("500 a second", ["--request-rate-range", "500"],
     ["--rate", "500", "-c", "64"]),
    ("batch 4, header", ["-b", "4", "-x", "1", "-H", "x-request-id: perf",
                         "--concurrency-range", "8"], None),
]


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def programs():
    """The folder with weir-server and weir."""
    folders = [ROOT / "build" / "bin", ROOT / "bin"]
    if os.environ.get("WEIR_BIN_DIR"):
        folders.insert(0, pathlib.Path(os.environ["WEIR_BIN_DIR"]))
    for folder in folders:
        if (folder / "weir-server").exists():
            return folder
    sys.exit(f"no weir-server in {', '.join(map(str, folders))}")


def find_tool():
    given = os.environ.get("PERF_ANALYZER")
    tool = given or shutil.which("perf_analyzer")
    if tool is None:
        skip("no perf_analyzer on the PATH and no PERF_ANALYZER")
    try:
        done = subprocess.run([tool, "--version"], capture_output=True,
                              text=True, timeout=TOOL_TIMEOUT_S, check=False)
        said = done.stdout + done.stderr
    except OSError as error:
        said = str(error)
    # The one that the wheel puts on the PATH hides its exit code.
    version = re.search(r"Perf Analyzer Version.*", said)
    if version is not None:
        print(version[0])
        return tool
    why = f"{tool} does not start: {said.strip().splitlines()[0]}"
    return sys.exit(why) if given else skip(why)


class Server:

    def __init__(self, bin_dir, device):
        self.command = [
            bin_dir / "weir-server", "--grpc=127.0.0.1:0",
            "--http=127.0.0.1:0", f"--device={device}", "--drain-delay=0",
            f"--model-repository={ROOT}/tests/data"]

    def __enter__(self):
        self.process = subprocess.Popen(
            self.command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"grpc=(\S+) http=(\S+) device=(\S+)", line)
        if found is None:
            self.process.wait()
            sys.exit("weir-server did not start")
        self.grpc, self.http, self.device = found.groups()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()

    def refused(self):
        """Requests that were answered with another code than OK."""
        url = f"http://{self.http}/metrics"
        with urllib.request.urlopen(url, timeout=10) as reply:
            text = reply.read().decode("utf-8")
        calls = re.findall(
            r'^weir_requests_total\{method="(\w+)",code="(\w+)"\} (\d+)$',
            text, re.MULTILINE)
        return [f"{count} {method}: {code}" for method, code, count in calls
                if code != "OK"]


def run_tool(tool, server, window_ms, arguments):
    """The row of figures that perf_analyzer writes."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.csv")
        done = subprocess.run(
            [tool, "-m", MODEL, "-i", "grpc", "-u", server.grpc,
             "-p", str(window_ms), "-r", "3", "-s", "1000", "-f", str(report),
             *arguments],
            capture_output=True, text=True, timeout=TOOL_TIMEOUT_S,
            check=False)
        said = done.stdout + done.stderr
        if done.returncode != 0 or not report.exists():
            sys.exit(f"perf_analyzer {' '.join(arguments)} failed:\n{said}")
        with report.open(encoding="utf-8") as file:
            [row] = csv.DictReader(file)
    if "had error" in said or "Server:" not in said:
        sys.exit(f"perf_analyzer {' '.join(arguments)} reports:\n{said}")
    if float(row["Inferences/Second"]) <= 0:
        sys.exit(f"perf_analyzer {' '.join(arguments)} saw nothing served")
    if float(row["Server Compute Infer"]) <= 0:
        sys.exit(f"perf_analyzer {' '.join(arguments)} has no server's times")
    return row


def run_weir(bin_dir, server, arguments):
    with tempfile.TemporaryDirectory() as folder:
        sample = pathlib.Path(folder, "sample.f32")
        sample.write_bytes(bytes(8 * 8 * 4))
        done = subprocess.run(
            [bin_dir / "weir", "--server", server.grpc, "load", "--model",
             MODEL, "--input", f"image=@{sample}:float:1x1x8x8",
             "--duration", "1", "--json", *arguments],
            capture_output=True, text=True, timeout=TOOL_TIMEOUT_S,
            check=False)
    if done.returncode != 0:
        sys.exit(f"weir load {' '.join(arguments)} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device",
                        default=os.environ.get("WEIR_TEST_DEVICE", "cpu"))
    parser.add_argument("--window", type=int, default=500,
                        help="milliseconds of each measurement")
    arguments = parser.parse_args()
    tool = find_tool()
    bin_dir = programs()
    with Server(bin_dir, arguments.device) as server:
        print(f"{MODEL} on {server.device}; latencies in us\n"
              f"{'':18} {'perf_analyzer':^33} {'weir load':^33}\n"
              f"{'':18}" + 2 * f"{'per second':>12}{'p50':>11}{'p99':>11}")
        for name, of_tool, of_weir in MODES:
            row = run_tool(tool, server, arguments.window, of_tool)
            line = (f"{name:18}{float(row['Inferences/Second']):12.0f}"
                    f"{row['p50 latency']:>11}{row['p99 latency']:>11}")
            if of_weir is not None:
                own = run_weir(bin_dir, server, of_weir)
                line += (f"{own['requests_per_second']:12.0f}"
                         f"{own['latency_us']['p50']:11.0f}"
                         f"{own['latency_us']['p99']:11.0f}")
            print(line, flush=True)
        refused = server.refused()
        if refused:
            sys.exit("the server refused " + ", ".join(refused))
    print("no errors")


if __name__ == "__main__":
    main()
