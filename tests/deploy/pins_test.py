#!/usr/bin/env python3
"""deploy/pins.txt holds what it says, and deploy/pins.py renews it, from an index
and a registry on this machine."""

import fnmatch
import hashlib
import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import package_index
import skipping

ROOT = pathlib.Path(__file__).resolve().parents[2]
PINS_PY = ROOT / "deploy" / "pins.py"
PIN = re.compile(r"([a-z0-9-]+)==(\S+) --hash=sha256:[0-9a-f]{64}")
MANIFEST = json.dumps({"schemaVersion": 2, "manifests": [], "mediaType":
                       "application/vnd.oci.image.index.v1+json"}).encode()

# What skopeo does of what is asked of it here, where it is not installed.
SKOPEO = f"""#!{sys.executable}
import sys, urllib.request
inspect, raw, tls, name = sys.argv[1:]
assert (inspect, raw, tls) == ("inspect", "--raw", "--tls-verify=false")
host, path = name.removeprefix("docker://").split("/", 1)
name, tag = path.rsplit(":", 1)
url = f"http://{{host}}/v2/{{name}}/manifests/{{tag}}"
sys.stdout.buffer.write(urllib.request.urlopen(url).read())
"""


class Registry(http.server.BaseHTTPRequestHandler):
    """Has one image, weir/base:12."""

    def do_GET(self):
        found = {"/v2/": b"{}", "/v2/weir/base/manifests/12": MANIFEST}.get(
            self.path)
        self.send_response(404 if found is None else 200)
        self.send_header("Content-Type", json.loads(MANIFEST)["mediaType"])
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        self.send_header("Content-Length", str(len(found or b"")))
        self.end_headers()
        self.wfile.write(found or b"")

    def log_message(self, *_):
        pass


def sections(text):
    """Section to its wishes and pins."""
    parts = re.split(r"(?m)^\[([a-z-]+)\].*$", text)[1:]
    found = {}
    for name, body in zip(parts[::2], parts[1::2]):
        lines = [line for line in body.splitlines()
                 if line and not line.startswith("#")]
        found[name] = ([line[5:] for line in lines if line.startswith("want ")],
                       [line for line in lines if not line.startswith("want ")])
    return found


class File(unittest.TestCase):
    """The file of the tree."""

    def test_every_wish_has_a_pin_that_fits(self):
        found = sections((ROOT / "deploy/pins.txt").read_text("utf-8"))
        self.assertEqual(list(found), ["base", "cuda", "kubectl-oldest",
                                       "kubectl-newest", "sbom", "tests",
                                       "bench"])
        [base], digest = found.pop("base")
        dockerfile = (ROOT / "Dockerfile").read_text("utf-8")
        self.assertIn(f"ARG BASE={base}\n", dockerfile)
        for line in digest:
            self.assertRegex(line, f"^{base}@sha256:[0-9a-f]{{64}}$")
        for name, (wishes, pins) in found.items():
            with self.subTest(name):
                have = dict(PIN.fullmatch(line).groups() for line in pins)
                self.assertEqual(len(have), len(pins))
                for wish in wishes:
                    package, version = re.sub(r"\[.*\]", "", wish).split("==")
                    package = re.sub(r"[-_.]+", "-", package).lower()
                    self.assertTrue(
                        fnmatch.fnmatchcase(have[package], version), wish)


class Refresh(unittest.TestCase):

    TEXT = """\
# Of this file.

[base]
want BASE

[one]
# Why.
want with-needs==1.*

[two] alone
want other==2.0
other==1.0 --hash=sha256:0
"""

    def setUp(self):
        if subprocess.run(["/usr/bin/python3", "-c", "import sys, pip; "
                           "sys.exit(sys.version_info[:2] != (3, 11))"],
                          stderr=subprocess.DEVNULL, check=False).returncode:
            self.skipTest("no pip of Debian 12's Python")
        self.folder = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory()))
        self.index = package_index.Index(self.folder / "index")
        self.hashes = [self.index.add("needed", "3.0"),
                       self.index.add("with-needs", "1.5", needs=["needed"]),
                       self.index.add("other", "2.0", needs=["needed"])]
        self.index.add("with-needs", "1.2")
        self.index.add("with-needs", "2.0")
        registry = self.enterContext(package_index.served(Registry))
        self.base = f"{registry}/weir/base:12"
        self.file = self.folder / "pins.txt"
        self.file.write_text(self.TEXT.replace("BASE", self.base), "utf-8")
        if shutil.which("skopeo") is None:
            stand_in = self.folder / "bin" / "skopeo"
            stand_in.parent.mkdir()
            stand_in.write_text(SKOPEO, "utf-8")
            stand_in.chmod(0o755)
        self.environment = {
            **os.environ, **self.enterContext(self.index.serve()),
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "WEIR_PINS": str(self.file),
            "WEIR_SKOPEO_OPTIONS": "--tls-verify=false"}

    def pins(self, *arguments):
        return subprocess.run([PINS_PY, *arguments], env=self.environment,
                              capture_output=True, check=False, text=True)

    def test_everything_gets_what_it_wants(self):
        done = self.pins("refresh")
        self.assertEqual(done.returncode, 0, done.stderr)
        digest = hashlib.sha256(MANIFEST).hexdigest()
        self.assertEqual(self.file.read_text("utf-8"), f"""\
# Of this file.

[base]
want {self.base}
{self.base}@sha256:{digest}

[one]
# Why.
want with-needs==1.*
needed==3.0 --hash=sha256:{self.hashes[0]}
with-needs==1.5 --hash=sha256:{self.hashes[1]}

[two] alone
want other==2.0
other==2.0 --hash=sha256:{self.hashes[2]}
""")
        self.assertEqual(self.pins("base").stdout,
                         f"{self.base}@sha256:{digest}\n")

    def test_one_section_alone(self):
        self.assertEqual(self.pins("refresh", "one").returncode, 0)
        found = sections(self.file.read_text("utf-8"))
        self.assertEqual(found["base"][1], [])
        self.assertEqual(len(found["one"][1]), 2)
        self.assertEqual(found["two"][1], ["other==1.0 --hash=sha256:0"])
        self.assertEqual(self.pins("refresh", "three").returncode, 1)

    def test_what_does_not_answer_keeps_its_pin(self):
        shutil.rmtree(self.folder / "index" / "other")
        self.file.write_text(self.file.read_text("utf-8").replace(
            "weir/base:12", "weir/base:13"), "utf-8")
        done = self.pins("refresh")
        self.assertEqual(done.returncode, 3)
        self.assertIn("pins: [base] stays as it was: skopeo", done.stderr)
        self.assertIn("pins: [two] stays as it was: pip", done.stderr)
        found = sections(self.file.read_text("utf-8"))
        self.assertEqual(found["base"][1], [])
        self.assertEqual(found["two"][1], ["other==1.0 --hash=sha256:0"])
        self.assertEqual(len(found["one"][1]), 2)

    def test_a_base_without_a_digest_is_told(self):
        done = self.pins("base")
        self.assertEqual(done.stdout, f"{self.base}\n")
        self.assertIn("no digest", done.stderr)
        self.assertEqual(done.returncode, 0)


if __name__ == "__main__":
    skipping.main()
