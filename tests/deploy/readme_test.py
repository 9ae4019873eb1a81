#!/usr/bin/env python3
"""The examples of README.md, pasted: only the addresses and the build folder
are those of the test."""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import manifests
from manifests import BIN, ROOT
from running import Server

README = (ROOT / "README.md").read_text("utf-8")


def block(beginning):
    """The one indented block whose first line begins so, without indent."""
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", README, re.MULTILINE)
    texts = [re.sub(r"(?m)^    ", "", text).strip("\n") + "\n"
             for text in blocks]
    [text] = [text for text in texts if text.startswith(beginning)]
    return text


class Examples(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server())
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        # As in the root of a tree that `make build` has built.
        cls.root = pathlib.Path(folder)
        for path in ROOT.iterdir():
            if path.name != "build":
                (cls.root / path.name).symlink_to(path)
        (cls.root / "build").symlink_to(BIN.parent)

    def paste(self, name, text):
        text = text.replace("127.0.0.1:8001", self.server.grpc)
        (self.root / name).write_text(text, "utf-8")

    def run_lines(self, lines):
        """What a shell prints that runs them in the root of the tree."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", lines], cwd=self.root,
            capture_output=True, text=True, check=False,
            env={**os.environ, "WEIR_SERVER": self.server.grpc,
                 "PATH": f"{self.root}/build/bin:{os.environ['PATH']}"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_a_program_in_a_request(self):
        self.paste("scale.textproto", block("# proto-file:"))
        command, promised = block("$ weir eval").split("\n", 1)
        printed = self.run_lines(command.removeprefix("$ "))
        # Times and places on the stream differ from run to run.
        varying = re.compile(r"(?m)^((?:stream_\w+|queue|execution|total): )"
                             r"[0-9.]+( (?:n|u|m)?s)?$")
        self.assertEqual(varying.sub(r"\1", printed),
                         varying.sub(r"\1", promised))

    def test_a_model_from_the_command_line(self):
        printed = self.run_lines(block("weir infer digits"))
        accuracy = re.search(r"accuracy:? (0\.\d+)", printed)
        self.assertIsNotNone(accuracy, printed)
        self.assertGreaterEqual(float(accuracy[1]), 0.95)

    def test_a_model_from_python(self):
        self.paste("infer.py", block("import numpy"))
        printed = self.run_lines(f"{sys.executable} infer.py")
        [promised] = re.findall(r"It prints `(.*)` and the report", README)
        self.assertEqual(printed.splitlines()[0], promised)
        self.assertIn('"WORK_STATE_COMPLETED"', printed)

    def test_a_model_from_cpp(self):
        self.paste("infer.cc", block("#include <cstdio>\n#include <vector>"))
        printed = self.run_lines(block("g++ -std=c++20"))
        self.assertRegex(printed, r"^(\w+: \d+ bytes\n)+$")

    def test_tensors_that_stay_from_cpp(self):
        self.paste("chain.cc", block("#include <cstdio>\n#include <cstring>"))
        lines = block("g++ -std=c++20").replace("infer", "chain")
        [promised] = re.findall(r"is, prints `(.*)`, and took", README)
        self.assertEqual(self.run_lines(lines), promised + "\n")


class Figure(unittest.TestCase):

    WORDS = {"DecodeImage": "decoded", "Resize": "resized", "Crop": "cropped",
             "Flip": "flipped", "Normalize": "normalized"}

    def test_it_is_of_what_the_benchmark_sends(self):
        source = (ROOT / "tests/bench/picture_request.cc").read_text("utf-8")
        sent = set(re.findall(r'AddNode\(graph, "(\w+)"', source))
        self.assertLessEqual(sent, self.WORDS.keys())
        [told] = re.findall(r"^One figure: (?:.+\n)+", README, re.MULTILINE)
        self.assertEqual({op for op, word in self.WORDS.items()
                          if re.search(rf"\b{word}\b", told)}, sent)


class Flags(unittest.TestCase):

    def test_the_table_lists_every_flag(self):
        table = README.split("| Flag | Default | Meaning |")[1].split("\n\n")[0]
        listed = {flag for row in table.splitlines()
                  for flag in re.findall(r"`(--[a-z-]+)`",
                                         row.split("|")[1] if "|" in row
                                         else "")}
        self.assertEqual(listed, manifests.flags_of("weir-server"))


class Bundle(unittest.TestCase):
    """What deploy/bundle.sh packs: the README and the pages, not the tree."""

    LINK = re.compile(r"\]\(([^()\s#]+)[^()\s]*\)")

    def dead_links(self, folder):
        for page in folder.rglob("*.md"):
            for target in self.LINK.findall(page.read_text("utf-8")):
                if ":" not in target and not (page.parent / target).exists():
                    yield page.name, target

    def test_no_link_leads_nowhere(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            [stage] = re.findall(r"(?m)^  (sed .*README\.md.*)$",
                                 (ROOT / "deploy/bundle.sh").read_text())
            subprocess.run(["bash", "-euc", stage], cwd=ROOT, check=True,
                           env={**os.environ, "stage": str(folder)})
            page = (folder / "README.md").read_text("utf-8")
            self.assertTrue(page.startswith("# weir\n\n**This is the bundle**"))
            self.assertIn(README.split("\n", 1)[1], page)
            shutil.copytree(ROOT / "docs", folder / "docs")
            shutil.copytree(ROOT / "proto", folder / "proto")
            self.assertIn(("README.md", "ARCHITECTURE.md"),
                          list(self.dead_links(folder)))
            subprocess.run([ROOT / "deploy" / "drop_dead_links.py", folder],
                           check=True, stdout=subprocess.DEVNULL)
            self.assertEqual(list(self.dead_links(folder)), [])
            after = (folder / "README.md").read_text("utf-8")
            self.assertIn("[docs/limits.md](docs/limits.md)", after)


class License(unittest.TestCase):

    # Of apache.org/licenses/LICENSE-2.0.txt, the appendix with it.
    WHOLE = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"

    def test_the_text_is_whole(self):
        text = (ROOT / "LICENSE").read_bytes()
        self.assertEqual(hashlib.sha256(text).hexdigest(), self.WHOLE)
        self.assertIn("[Apache License 2.0](LICENSE)", README)

    def test_it_travels_with_what_is_handed_out(self):
        def text(path):
            return (ROOT / path).read_text("utf-8")
        self.assertIn('cp LICENSE "$stage/"', text("deploy/bundle.sh"))
        self.assertIn("-m 644 LICENSE", text("deploy/stage_image.sh"))
        self.assertIn("!LICENSE", text(".dockerignore").split())
        self.assertIn('image.licenses="Apache-2.0"', text("Dockerfile"))


if __name__ == "__main__":
    unittest.main()
