#!/usr/bin/env python3
"""docs/python.md: its programs run as they stand there, one after the other,
and print what stands under them."""

import contextlib
import io
import linecache
import re
import unittest

from built_package import ROOT
from certificates import Authority
from spaces_server import WithServer
import running
import skipping

PAGE = ROOT / "docs" / "python.md"
# A program with what it prints.
BLOCK = re.compile(r"^```python\n(.*?)^```\n+```text\n(.*?)^```$",
                   re.MULTILINE | re.DOTALL)


class Page(WithServer):

    def test_its_programs_print_what_it_says(self):
        self.connect()
        text = PAGE.read_text("utf-8")
        certificates = self.enterContext(Authority())
        secure = self.enterContext(
            running.Server(*certificates.server_flags()))
        self.enterContext(contextlib.chdir(certificates.folder))
        self.assertEqual(text.count("```python\n"), len(BLOCK.findall(text)))
        names = {}
        for found in BLOCK.finditer(text):
            program = found[1].replace(
                "127.0.0.1:8001", self.server.grpc).replace(
                "gpu-host:8001", secure.grpc)
            line = text.count("\n", 0, found.start()) + 2
            file = f"{PAGE}:{line}"
            linecache.cache[file] = (
                len(program), None, program.splitlines(True), file)
            said = io.StringIO()
            with self.subTest(line=line), contextlib.redirect_stdout(said):
                # pylint: disable-next=exec-used
                exec(compile(program, file, "exec"), names)
                self.assertEqual(said.getvalue(), found[2])


if __name__ == "__main__":
    skipping.main()
