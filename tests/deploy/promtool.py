"""promtool, as the tests use it."""

import os
import pathlib
import subprocess
import tempfile

import yaml


# It makes and drops the series of one test after another: a third of its time
# goes to collecting them early.
_ENVIRONMENT = {"GOGC": "off", "GOMEMLIMIT": "512MiB"}


def run(*arguments):
    """Its exit code, and what it says."""
    done = subprocess.run(["promtool", *map(str, arguments)], text=True,
                          capture_output=True, check=False,
                          env=_ENVIRONMENT | os.environ)
    return done.returncode, done.stdout + done.stderr


def check(test, rules=None):
    """Raises AssertionError unless a unit test of rules holds; with the text
    of rules, they are the test's."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if rules is not None:
            (folder / "rules.yaml").write_text(rules, "utf-8")
            test = {"rule_files": ["rules.yaml"], **test}
        file = folder / "test.yaml"
        file.write_text(yaml.safe_dump(test), "utf-8")
        code, said = run("test", "rules", file)
    if code != 0:
        raise AssertionError(said)
