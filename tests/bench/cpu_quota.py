#!/usr/bin/env python3
"""What a server does under a CPU quota (CFS bandwidth), by its numbers of
threads: latency, rate, and how often the kernel held it up.

Needs root: it makes two cgroups at the root, of version 2 or of version 1's
cpu controller, and removes them: one with the quota, for the servers, and one
without, for what loads them. Both have the most weight, so that what else the
machine does counts less."""

import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("WEIR_BIN_DIR", ROOT / "build" / "bin"))
PERIOD_US = 100_000
# Of the rate of the closed loop with the defaults.
OPEN_SHARE = 0.6

# Products of matrices that take some milliseconds, and one number out of them.
PRODUCTS = "\n".join((
    'definition { opset: 17 inputs { name: "x"',
    '    spec { dtype: DATA_TYPE_FLOAT shape: 192 shape: 192 } }',
    '  outputs: "y"',
    *(f'  nodes {{ op: "MatMul" inputs: "{"x" if i == 0 else f"m{i}"}" '
      f'inputs: "x" outputs: "m{i + 1}" }}' for i in range(8)),
    '  nodes { op: "ReduceMax" inputs: "m8" outputs: "y" }',
    '}')) + "\n"


class Group:
    """A cgroup, without a quota at first."""

    def __init__(self, what):
        base = pathlib.Path("/sys/fs/cgroup")
        name = f"weir-{what}-{os.getpid()}"
        if (base / "cgroup.controllers").exists():
            self.version = 2
            # In a container that has processes at its root this is refused.
            control = base / "cgroup.subtree_control"
            if "cpu" not in control.read_text("ascii").split():
                control.write_text("+cpu", "ascii")
            self.folder = base / name
        else:
            self.version = 1
            self.folder = base / "cpu" / name
        self.folder.mkdir()
        if self.version == 2:
            (self.folder / "cpu.weight").write_text("10000", "ascii")
        else:
            (self.folder / "cpu.shares").write_text("262144", "ascii")

    def set_quota(self, cpus):
        quota = round(cpus * PERIOD_US)
        if self.version == 2:
            (self.folder / "cpu.max").write_text(f"{quota} {PERIOD_US}",
                                                 "ascii")
        else:
            (self.folder / "cpu.cfs_period_us").write_text(str(PERIOD_US),
                                                           "ascii")
            (self.folder / "cpu.cfs_quota_us").write_text(str(quota), "ascii")

    def enter(self):
        """In the child, before it becomes the server."""
        (self.folder / "cgroup.procs").write_text("0", "ascii")

    def stat(self):
        """(periods, periods in which it was held up, seconds of that)."""
        rows = dict(line.split() for line in (
            self.folder / "cpu.stat").read_text("ascii").splitlines())
        seconds = (int(rows["throttled_usec"]) / 1e6 if self.version == 2
                   else int(rows["throttled_time"]) / 1e9)
        return (int(rows["nr_periods"]), int(rows["nr_throttled"]), seconds)

    def close(self):
        self.folder.rmdir()


@contextlib.contextmanager
def server(group, flags):
    """(address, {name of thread: number}) of a server in the group."""
    process = subprocess.Popen(
        [BIN / "weir-server", "--grpc=127.0.0.1:0", "--http=127.0.0.1:0",
         "--insecure", "--device=cpu", "--cache-dir=off", "--log-level=error",
         f"--model-repository={ROOT / 'tests' / 'data'}", *flags],
        stdout=subprocess.PIPE, text=True, preexec_fn=group.enter)
    try:
        line = process.stdout.readline()
        address = re.search(r"grpc=(\S+)", line)
        if not address:
            raise SystemExit("cpu_quota: the server did not start")
        names = [path.read_text("ascii").strip() for path in pathlib.Path(
            f"/proc/{process.pid}/task").glob("*/comm")]
        yield address[1], {name: names.count(name)
                           for name in ("weir-io", "weir-cpu")}
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def load(group, address, work, how, seconds):
    done = subprocess.run(
        [BIN / "weir", "--server", address, "--json", "load", *work, *how,
         f"--duration={seconds}"], capture_output=True, text=True, check=False,
        preexec_fn=group.enter)
    try:
        told = json.loads(done.stdout)
    except ValueError:
        raise SystemExit(f"cpu_quota: {done.stderr}") from None
    # A server that is held up refuses calls; of what is wrong none succeeds.
    if not told["answers"]:
        raise SystemExit(f"cpu_quota: {told['first_error']}")
    return told


def measured(groups, quota, flags, work, how, seconds):
    """One server, loaded for so long."""
    group, loaders = groups
    group.set_quota(quota)
    with server(group, flags) as (address, threads):
        before, start = group.stat(), time.monotonic()
        told = load(loaders, address, work, how, seconds)
        after, end = group.stat(), time.monotonic()
    periods, held, lost = (b - a for a, b in zip(before, after))
    return {"threads": f"{threads['weir-io']} + {threads['weir-cpu']}",
            "rate": told["answers"] / told["seconds"],
            "p50": told["latency_us"]["p50"] / 1e3,
            "p99": told["latency_us"]["p99"] / 1e3,
            "held": held / max(periods, 1), "lost": lost / (end - start)}


def median(rows):
    return {name: rows[0][name] if name == "threads" else
            statistics.median(row[name] for row in rows) for name in rows[0]}


def choices(quota):
    """[(what, flags)]; the same flags under two names are measured once."""
    cpus = os.cpu_count()
    found = {(): "default"}
    for io, cpu, what in ((cpus, cpus, "as many as the machine has CPUs"),
                          (1, 1, "one of each"), (1, 2, "explicit"),
                          (2, 1, "explicit"), (8, 8, "as on 8 CPUs")):
        if quota <= 1 and what == "explicit":
            continue
        found.setdefault((f"--io-threads={io}", f"--cpu-threads={cpu}"), what)
    return [(what, flags) for flags, what in found.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quotas", type=float, nargs="+",
                        default=(0.5, 1, 1.5, 2), help="CPUs")
    parser.add_argument("--rounds", type=int, default=3,
                        help="of each the median counts")
    parser.add_argument("--seconds", type=float, default=3,
                        help="of each measurement")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("cpu_quota: needs root, to make cgroups")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with contextlib.ExitStack() as stack:
        try:
            groups = [stack.enter_context(contextlib.closing(Group(what)))
                      for what in ("quota", "load")]
        except OSError as why:
            sys.exit(f"cpu_quota: cannot make a cgroup: {why}")
        program = stack.enter_context(tempfile.NamedTemporaryFile(
            "w", suffix=".textproto"))
        program.write(PRODUCTS)
        program.flush()
        zeros = pathlib.Path(program.name).with_suffix(".f32")
        zeros.write_bytes(bytes(4 * 192 * 192))
        works = {"digits": (["--model=digits"], 16),
                 "products": ([f"--program={program.name}",
                               f"--input=x=@{zeros}:float:192x192"], 8)}
        try:
            report(groups, options, works)
        finally:
            zeros.unlink()


def report(groups, options, works):
    print(f"cgroup v{groups[0].version}, {os.cpu_count()} CPUs, "
          f"{options.rounds} rounds of {options.seconds:g} s; held up: in how "
          "many of the periods, and seconds of each second, summed over CPUs")
    print("| quota | work | I/O + CPU threads | closed: rate | p50 ms | p99 ms "
          "| held up | open: rate | p50 ms | p99 ms | held up |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for quota in options.quotas:
        for name, (work, callers) in works.items():
            first = measured(groups, quota, (), work, [f"-c{callers}"],
                             options.seconds)
            due = OPEN_SHARE * first["rate"]
            loops = ([f"-c{callers}"], [f"--rate={due}"])
            found = {choice: ([], []) for choice in choices(quota)}
            for _ in range(options.rounds):
                for (_, flags), both in found.items():
                    for how, rows in zip(loops, both):
                        rows.append(measured(groups, quota, flags, work, how,
                                             options.seconds))
            for (what, _), both in found.items():
                closed, opened = map(median, both)
                cells = [f"{row['rate']:.0f} | {row['p50']:.2f} | "
                         f"{row['p99']:.1f} | {row['held']:.0%}, "
                         f"{row['lost']:.2f} s" for row in (closed, opened)]
                print(f"| {quota:g} | {name} | {closed['threads']} ({what}) | "
                      f"{' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
