#!/usr/bin/env python3
"""Breaks the product in small ways, one at a time, and asks the tests.

A mutant is an entry of a .toml file beside this script:

    [[mutant]]
    name = "load_latency_from_sending"     # unique
    file = "client/cpp/load.cc"
    old = '''...'''                        # stands in the file exactly once
    new = '''...'''
    tests = ["client_load_test"]           # CTest names that must see it
    why = "Latency would not count the time that a request waited to leave."

The tree is copied to build/mutants/tree and built there, so what stands here is
left alone. First every named test must pass as things are, and is timed. Then
each mutant is applied, the tests it names are built and run, and it is taken
back. One that fails or crashes has killed it, and so has one that twice takes
longer than ten times its time: that may be the machine's doing, so it is shown
at the end for a reader to judge. A mutant that no test kills is a survivor
and needs a line with the reason in docs/testing.md; a survivor without one, a
line for one that was killed, a mutant that does not build and less than 95 %
killed are failures.
"""

import argparse
import fnmatch
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
LISTS = pathlib.Path(__file__).resolve().parent
FLOOR = 0.95
TEST = re.compile(r"weir_(?:script_)?test\(\s*(\w+)([^()]*)")
FIELDS = {"name", "file", "old", "new", "tests", "why"}
PASSED, FAILED, TIMED_OUT = "passed", "failed", "timed-out"
# What a mutant's test may take: times of what it takes as things are, seconds.
TIMES = 10
LEAST_LIMIT = 10


class Fault(Exception):
    """Something is wrong with the list or the tree, not with a test."""


def read_mutants(folder):
    """Returns the mutants of every list in `folder`, which must be sound."""
    mutants = []
    names = set()
    for path in sorted(folder.glob("*.toml")):
        for entry in tomllib.loads(path.read_text())["mutant"]:
            name = entry.get("name", "?")
            if set(entry) != FIELDS:
                raise Fault(f"{path.name}: {name}: fields "
                            f"{sorted(set(entry) ^ FIELDS)}")
            if name in names:
                raise Fault(f"{path.name}: {name} stands there twice")
            if entry["old"] == entry["new"] or not entry["tests"]:
                raise Fault(f"{path.name}: {name} changes or asks nothing")
            names.add(name)
            mutants.append(entry)
    if not mutants:
        raise Fault(f"no mutants in {folder}")
    return mutants


def mutated(tree, mutant):
    """Returns the text of the mutant's file, and the same with the mutation."""
    path = tree / mutant["file"]
    if not path.is_file():
        raise Fault(f"{mutant['name']}: no file {mutant['file']}")
    text = path.read_text()
    # A list's text begins and ends on lines of its own.
    old = mutant["old"].strip("\n")
    count = text.count(old)
    if count != 1:
        raise Fault(f"{mutant['name']}: its text stands {count} times in "
                    f"{mutant['file']}")
    return text, text.replace(old, mutant["new"].strip("\n"))


def tests_of(tree):
    """The tests in the tree's CMake files: their own sources, by name."""
    tests = {}
    for path in (tree / "tests").rglob("CMakeLists.txt"):
        for name, words in TEST.findall(path.read_text()):
            files = [
                path.parent / word.strip('"').replace(
                    "${CMAKE_CURRENT_SOURCE_DIR}/", "")
                for word in words.partition("LIBS")[0].split()]
            tests[name] = [file for file in files if file.is_file()]
    return tests


def check(tree, mutants):
    """Raises a fault that names every mutant that does not fit the tree."""
    faults = []
    known = tests_of(tree)
    for mutant in mutants:
        faults += [f"{mutant['name']}: no test {name}"
                   for name in programs_of(mutant["tests"])
                   if name not in known]
        try:
            mutated(tree, mutant)
        except Fault as fault:
            faults.append(str(fault))
    if faults:
        raise Fault("\n".join(faults))


def listed_survivors(tree):
    """The names that docs/testing.md says survive: rows "| `name` | why |"."""
    path = tree / "docs" / "testing.md"
    if not path.is_file():
        return set()
    return set(re.findall(r"^\| `(\w+)` \|", path.read_text(), re.MULTILINE))


def copy_tree(source, target):
    """Makes `target` equal to `source`; equal files keep their time. Returns a
    digest of all."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=source, check=True, stdout=subprocess.PIPE).stdout
    wanted = {name for name in os.fsdecode(listing).split("\0") if name
              and (source / name).is_file()}
    digest = hashlib.sha256()
    for name in sorted(wanted):
        new, old = source / name, target / name
        content = new.read_bytes()
        if not name.endswith(".toml"):
            digest.update(f"{name} {len(content)}\n".encode() + content)
        if old.is_file() and old.read_bytes() == content:
            continue
        old.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(new, old)
    for path in list(target.rglob("*")):
        name = path.relative_to(target)
        if name.parts[0] == "build" or not path.is_file():
            continue
        if str(name) not in wanted:
            path.unlink()
    return digest.hexdigest()


def programs_of(tests):
    """CTest names without the filter that may follow a colon."""
    return sorted({test.partition(":")[0] for test in tests})


def target_of(command, folder):
    """The program in `folder` that a test's command runs; None: another."""
    for word in command:
        path = pathlib.Path(word)
        if path.parent == folder:
            return path.name
    return None


class Builder:
    """Builds and runs tests in the copy."""

    def __init__(self, tree, cmake_args):
        self.tree = tree
        self.build_dir = tree / "build"
        self.cmake_args = cmake_args
        self.targets = None
        self.output = ""

    def configure(self):
        subprocess.run(
            ["cmake", "--preset", "release", "-DBUILD_TESTING=ON",
             *self.cmake_args],
            cwd=self.tree, check=True, stdout=subprocess.DEVNULL)

    def build(self, tests):
        """Builds the tests' programs; a test without one needs `weir` and the
        server."""
        if self.targets is None:
            self.targets = self._targets_of_tests()
        wanted = {self.targets.get(name) or "programs"
                  for name in programs_of(tests)}
        return self._run(["cmake", "--build", self.build_dir, "--target",
                          *sorted(wanted)], 3600) == 0

    def _targets_of_tests(self):
        """Of each test the program that it is, or runs."""
        listing = subprocess.run(
            ["ninja", "-C", self.build_dir, "-t", "targets", "all"],
            check=True, stdout=subprocess.PIPE, text=True).stdout
        targets = {line.partition(":")[0] for line in listing.splitlines()}
        listing = subprocess.run(
            ["ctest", "--test-dir", self.build_dir, "--show-only=json-v1"],
            check=True, stdout=subprocess.PIPE, text=True).stdout
        # Of a program that is not built yet CTest knows no command.
        return {test["name"]: test["name"] if test["name"] in targets
                else target_of(test.get("command", []),
                               self.build_dir / "test-bin")
                for test in json.loads(listing)["tests"]}

    def run_test(self, test, limit):
        """Returns (PASSED, FAILED or TIMED_OUT, seconds). A test that CTest
        stops, whose own limit may be lower, has timed out as well; one of
        which no case ran has failed."""
        began = time.monotonic()
        status = self._run_test(test, limit)
        return status, time.monotonic() - began

    def _run_test(self, test, limit):
        name, _, pattern = test.partition(":")
        environment = dict(os.environ, GTEST_FAIL_FAST="1")
        if pattern:
            environment["GTEST_FILTER"] = pattern
        report = self.build_dir / "reports" / f"{name}.xml"
        report.unlink(missing_ok=True)
        status = self._run(
            ["ctest", "--test-dir", self.build_dir, "-R", f"^{name}$",
             "--no-tests=error", "--output-on-failure"], limit, environment)
        if status is None or re.search(
                r"^1/1 Test .*\*\*\*Timeout", self.output, re.MULTILINE):
            return TIMED_OUT
        if status == 0 and report.exists():
            text = report.read_text()
            if 'status="run"' not in text:
                self.output = f"{test}: no case ran"
                return FAILED
        return PASSED if status == 0 else FAILED

    def _run(self, command, limit, environment=None):
        """Returns the exit status; None if it ran out of time."""
        # With all that it starts: a hang is in a test's process.
        process = subprocess.Popen(
            [str(word) for word in command], env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", start_new_session=True)
        try:
            self.output = process.communicate(timeout=limit)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            self.output = f"ran longer than {limit} s"
            return None
        return process.returncode


def key_of(mutant, text):
    """What a verdict was about: the mutant and the file that it changed."""
    return hashlib.sha256(
        json.dumps([mutant, text], sort_keys=True).encode()).hexdigest()


def key_of_tests(mutant, sources):
    """What of a verdict's tests is in their own files."""
    digest = hashlib.sha256()
    for name in programs_of(mutant["tests"]):
        for path in sources[name]:
            content = path.read_bytes()
            digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def judge(builder, mutant, times):
    """Returns (verdict, detail): killed, timed-out, survived or did-not-build.
    `times`: seconds that each test takes as things are."""
    text, changed = mutated(builder.tree, mutant)
    path = builder.tree / mutant["file"]
    path.write_text(changed)
    try:
        if not builder.build(mutant["tests"]):
            errors = re.findall(r".*error: .*", builder.output)
            return "did-not-build", errors[0] if errors else builder.output
        timed_out, once = [], []
        for test in mutant["tests"]:
            limit = max(LEAST_LIMIT, round(TIMES * times[test]))
            status, _ = builder.run_test(test, limit)
            if status == TIMED_OUT:
                # A hang, or a machine that had other things to do.
                status, _ = builder.run_test(test, limit)
                if status == TIMED_OUT:
                    timed_out.append(f"{test} ran longer than {limit} s, twice")
                elif status == PASSED:
                    once.append(f"{test} timed out once")
            if status == FAILED:
                cases = re.findall(r"\[  FAILED  \] ([\w/.]+)", builder.output)
                return "killed", test + (f" {cases[0]}" if cases else "")
        if timed_out:
            return "timed-out", timed_out[0]
        return "survived", "; ".join(once)
    finally:
        path.write_text(text)


def baseline(builder, mutant, times, limit):
    """The mutant's tests must pass as things are; `times` gets what each took,
    and has it of those that did."""
    tests = sorted(set(mutant["tests"]) - set(times))
    if not tests:
        return
    if not builder.build(tests):
        raise Fault(f"the tree does not build\n{builder.output[-3000:]}")
    for test in tests:
        status, seconds = builder.run_test(test, limit)
        if status != PASSED:
            raise Fault(f"{test} does not pass without a mutant\n"
                        f"{builder.output[-3000:]}")
        times[test] = round(seconds, 1)


def report(results, survivors_listed, whole):
    """Prints totals; returns the exit status. `whole`: nothing was left out."""
    by_verdict = {"killed": [], "timed-out": [], "survived": [],
                  "did-not-build": []}
    for name, result in results.items():
        by_verdict[result["verdict"]].append(name)
    total = len(results)
    dead = by_verdict["killed"] + by_verdict["timed-out"]
    killed = len(dead)
    status = 0
    for name in by_verdict["timed-out"]:
        print(f"TIMED OUT {name}: {results[name]['detail']}")
    for name in by_verdict["survived"]:
        known = name in survivors_listed
        detail = results[name]["detail"]
        print(f"SURVIVED {name}{f' ({detail})' if detail else ''}"
              f"{'' if known else ': no reason in docs/testing.md'}")
        status |= 0 if known else 1
    for name in by_verdict["did-not-build"]:
        print(f"DID NOT BUILD {name}")
        status = 1
    for name in sorted(survivors_listed & set(dead)):
        print(f"{name} was killed: docs/testing.md says that it survives")
        status = 1
    if whole:
        for name in sorted(survivors_listed - set(results)):
            print(f"{name} of docs/testing.md is no mutant")
            status = 1
    share = killed / total if total else 0
    late = len(by_verdict["timed-out"])
    print(f"{total} mutants: {killed} killed ({share:.1%}"
          f"{f', {late} by a time-out' if late else ''}), "
          f"{len(by_verdict['survived'])} survived, "
          f"{len(by_verdict['did-not-build'])} did not build")
    if share < FLOOR:
        print(f"less than {FLOOR:.0%} were killed")
        status = 1
    return status


def main(arguments=None, lists=LISTS, root=ROOT, make_builder=Builder):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", action="append", default=[],
                        metavar="PATTERN", help="mutants with such a name")
    parser.add_argument("--file", action="append", default=[],
                        metavar="PATTERN", help="mutants of such a file")
    parser.add_argument("--check", action="store_true",
                        help="only see that each mutant fits the tree")
    parser.add_argument("--list", action="store_true", help="print the names")
    parser.add_argument("--resume", action="store_true",
                        help="keep the verdicts of mutants whose text, file "
                        "and tests are as they were")
    parser.add_argument("--max", type=int, metavar="N",
                        help="stop after N mutants; --resume goes on")
    parser.add_argument("--limit", type=int, default=180, metavar="SECONDS",
                        help="for one test without a mutant (180)")
    parser.add_argument("--work", type=pathlib.Path,
                        default=root / "build" / "mutants")
    parser.add_argument("cmake_args", nargs="*", metavar="-- CMAKE_ARG")
    options = parser.parse_args(arguments)
    try:
        mutants = read_mutants(lists)
        chosen = [
            mutant for mutant in mutants
            if (not options.only or any(
                fnmatch.fnmatch(mutant["name"], p) for p in options.only))
            and (not options.file or any(
                fnmatch.fnmatch(mutant["file"], p) for p in options.file))]
        if not chosen:
            raise Fault("no mutant has such a name or file")
        check(root, chosen)
        if options.list:
            for mutant in chosen:
                print(f"{mutant['name']}: {mutant['why']}")
            return 0
        if options.check:
            print(f"{len(chosen)} mutants fit the tree")
            return 0
        # docs/testing.md is about these lists; others may use this script.
        whole = (len(chosen) == len(mutants)
                 and lists == root / "tests" / "mutants")
        return run(options, chosen, whole, root, make_builder)
    except Fault as fault:
        print(fault, file=sys.stderr)
        return 2


def run(options, chosen, whole, root, make_builder):
    tree = options.work / "tree"
    tree.mkdir(parents=True, exist_ok=True)
    state_file = options.work / "verdicts.json"
    state = {"verdicts": {}}
    if options.resume and state_file.exists():
        state = json.loads(state_file.read_text())
    digest = copy_tree(root, tree)
    if state.get("tree") != digest or "times" not in state:
        state = {"verdicts": state["verdicts"], "tree": digest, "times": {}}
    builder = make_builder(tree, options.cmake_args)
    builder.configure()
    verdicts = state["verdicts"]
    sources = tests_of(tree)
    keys = {mutant["name"]: {"key": key_of(mutant, mutated(tree, mutant)[0]),
                             "tests": key_of_tests(mutant, sources)}
            for mutant in chosen}

    def judged(name):
        known, keys_now = verdicts.get(name, {}), keys[name]
        # Verdicts of old say nothing of their tests.
        return (known.get("key") == keys_now["key"]
                and known.get("tests", keys_now["tests"]) == keys_now["tests"])

    left = [mutant for mutant in chosen if not judged(mutant["name"])]
    todo = left[:options.max]
    times = state["times"]
    for number, mutant in enumerate(todo, 1):
        name = mutant["name"]
        baseline(builder, mutant, times, options.limit)
        began = time.monotonic()
        verdict, detail = judge(builder, mutant, times)
        seconds = round(time.monotonic() - began, 1)
        verdicts[name] = {**keys[name], "verdict": verdict, "detail": detail,
                          "seconds": seconds}
        state_file.write_text(json.dumps(state, indent=1))
        shown = detail if verdict != "survived" else mutant["why"]
        print(f"[{number}/{len(todo)}] {verdict} {name} ({seconds} s) "
              f"{shown}", flush=True)
    if len(todo) < len(left):
        print(f"{len(left) - len(todo)} mutants left: go on with --resume")
        return 3
    results = {mutant["name"]: verdicts[mutant["name"]] for mutant in chosen}
    return report(results, listed_survivors(root), whole)


if __name__ == "__main__":
    sys.exit(main())
