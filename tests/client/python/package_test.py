#!/usr/bin/env python3
"""The package itself: what a wheel has, that its operators are the server's,
that it stands beside others, and that its types are right."""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

from built_package import LIBRARY, ROOT, SOURCE, WHEEL
from spaces_server import WithServer
import grpc
import running
import skipping

sys.path.insert(0, str(SOURCE))
import make_catalog  # pylint: disable=wrong-import-position
import make_ops  # pylint: disable=wrong-import-position

CATALOG = ROOT / "client" / "python" / "catalog.json"


def run_python(program, *path, cwd=None):
    """What a program prints, or why it failed."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True,
        check=False, cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))})
    return done.stdout + done.stderr


class Wheel(unittest.TestCase):

    def test_it_has_the_package_and_nothing_else(self):
        with zipfile.ZipFile(WHEEL) as wheel:
            names = wheel.namelist()
            [metadata] = [each for each in names if each.endswith("METADATA")]
            text = wheel.read(metadata).decode()
        self.assertEqual({each.split("/")[0].split("-")[0] for each in names},
                         {"weir"})
        self.assertIn("weir/py.typed", names)
        self.assertIn("weir/_proto/command_pb2.pyi", names)
        needed = {line.split(": ")[1].split(">")[0].split("<")[0]
                  for line in text.splitlines()
                  if line.startswith("Requires-Dist")}
        self.assertEqual(needed, {"grpcio", "numpy", "protobuf"})

    def test_pip_builds_it(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                ["/usr/bin/python3", "-m", "pip", "--python", sys.executable,
                 "wheel", "--no-index", "--no-deps", "--no-build-isolation",
                 "--wheel-dir", folder, SOURCE],
                capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(os.listdir(folder), [WHEEL.name])

    def test_its_types_are_strict(self):
        if importlib.util.find_spec("mypy") is None:
            self.skipTest("mypy is not installed")
        for judged in (["-p", "weir"],
                       sorted((SOURCE / "examples").glob("*.py"))):
            done = subprocess.run(
                [sys.executable, "-m", "mypy", "--strict", "--config-file",
                 SOURCE / "pyproject.toml", *judged], cwd=LIBRARY,
                capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Catalog(unittest.TestCase):

    def test_it_is_the_servers(self):
        with running.Server() as server, \
                grpc.insecure_channel(server.grpc) as channel:
            found = make_catalog.text_of(make_catalog.read(channel))
        self.assertEqual(
            CATALOG.read_text("utf-8"), found,
            "client/python/make_catalog.py HOST:PORT writes it anew")

    def test_two_parameters_of_one_name_are_refused(self):
        [operator] = [each for each in json.loads(CATALOG.read_text("utf-8"))
                      if each["name"] == "Where"]
        operator["inputs"][1]["name"] = "Condition"
        with self.assertRaisesRegex(SystemExit, "Where.*condition"):
            make_ops.parameters(operator)


class Unknown(WithServer):

    def test_an_operator_that_the_server_lacks_is_named(self):
        self.connect()
        operators = json.loads(CATALOG.read_text("utf-8"))
        operators.append({**operators[0], "domain": "weir", "name": "Newer"})
        with tempfile.TemporaryDirectory() as folder:
            newer = pathlib.Path(folder, "weir")
            shutil.copytree(LIBRARY / "weir", newer)
            catalog = pathlib.Path(folder, "catalog.json")
            catalog.write_text(json.dumps(operators), "utf-8")
            make_ops.make(catalog, newer)
            said = run_python(
                "import weir\n"
                f"with weir.connect({self.server.grpc!r}):\n"
                "    print(weir.ops.abs([-1.0]).item())\n"
                "    weir.ops.newer([1.0])\n", folder)
        self.assertIn("1.0\n", said)
        self.assertRegex(said, r"Unimplemented.* no operator weir\.Newer")


class Neighbors(WithServer):
    """What else a process may have that is called weir, inference or google."""

    PROGRAMS = {
        "weir": "import weir\n",
        "tritonclient": "import tritonclient.grpc\n",
        "generated": "from weir.v1 import evaluator_pb2, command_pb2\n"
                     "from google.rpc import status_pb2, error_details_pb2\n"
                     "assert command_pb2.CommandResult().error is not None\n"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.generated = pathlib.Path(
            cls.enterClassContext(tempfile.TemporaryDirectory()))
        files = [f"proto/weir/v1/{path.name}" for path in
                 sorted((ROOT / "proto" / "weir" / "v1").glob("*.proto"))]
        subprocess.run(
            [sys.executable, "-m", "grpc_tools.protoc", "-Iproto",
             f"--python_out={cls.generated}", *files], cwd=ROOT, check=True)

    def test_they_do_not_get_in_each_others_way(self):
        self.connect()
        for order in (("weir", "tritonclient", "generated"),
                      ("tritonclient", "generated", "weir")):
            with self.subTest(order):
                said = run_python(
                    "".join(map(self.PROGRAMS.get, order)) +
                    f"with weir.connect({self.server.grpc!r}):\n"
                    "    print((weir.asarray([1.0]) + 1).item())\n"
                    f"client = tritonclient.grpc.InferenceServerClient("
                    f"{self.server.grpc!r})\n"
                    "print(client.is_server_live())\n"
                    "client.close()\n", LIBRARY, self.generated)
                self.assertEqual(said, "2.0\nTrue\n")


if __name__ == "__main__":
    skipping.main()
