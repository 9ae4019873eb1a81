#!/usr/bin/env python3
"""What deploy/pins.txt pins, and how it is renewed.

    pins.py refresh [SECTION...]  asks the package index and the registry, and
                                  writes the file anew (all sections, or these)
    pins.py base                  prints the base image, with its digest if it
                                  has one, for `docker build --build-arg BASE=`

A refresh takes the newest that each `want` of the file allows, as Debian 12's
Python on x86-64 gets it, and the digest that the base's name has today: of the
whole index of platforms, from skopeo, or from docker where there is none. What
cannot be asked keeps its pin; then the exit code is 3, as deploy/setup.sh has it.

Environment: WEIR_PINS, another file; WEIR_SKOPEO_OPTIONS, more for skopeo.
"""

import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys

FILE = pathlib.Path(os.environ.get(
    "WEIR_PINS", pathlib.Path(__file__).with_name("pins.txt")))
PYTHON = "/usr/bin/python3"
HEADER = re.compile(r"\[([a-z-]+)\]( alone)?")


class NotThere(Exception):
    """Whoever was to be asked did not answer."""


def read_sections():
    """Returns the lines before the first section, and section to its header,
    its comments and wishes, and its pins."""
    before, sections, name = [], {}, None
    for line in FILE.read_text("utf-8").splitlines():
        header = HEADER.fullmatch(line)
        if header:
            name = header[1]
            sections[name] = (line, [], [])
        elif name is None:
            before.append(line)
        elif line:
            is_wish = line.startswith(("#", "want "))
            sections[name][1 if is_wish else 2].append(line)
    return before, sections


def write_sections(before, sections):
    blocks = ["\n".join(before).rstrip("\n")]
    blocks += ["\n".join([header, *wishes, *pins])
               for header, wishes, pins in sections.values()]
    new = FILE.with_name(f"{FILE.name}.new")
    new.write_text("\n\n".join(blocks) + "\n", "utf-8")
    new.replace(FILE)


def wheels(wants, alone):
    """Pins of the wheels; `alone`: not of what they need."""
    version = subprocess.run([PYTHON, "-c", "import sys; print("
                              "*sys.version_info[:2], sep='.')"],
                             capture_output=True, check=True, text=True)
    if version.stdout.strip() != "3.11":
        raise NotThere(f"{PYTHON} is {version.stdout.strip()}, and wheels are "
                       "pinned for Debian 12's, which is 3.11")
    if platform.machine() != "x86_64":
        raise NotThere("wheels are pinned for x86-64, and this is "
                       f"{platform.machine()}")
    done = subprocess.run(
        [PYTHON, "-m", "pip", "install", "--dry-run", "--ignore-installed",
         "--quiet", "--only-binary=:all:", "--disable-pip-version-check",
         "--root-user-action=ignore", "--report", "-",
         *(["--no-deps"] if alone else []), *wants],
        stdout=subprocess.PIPE, check=False, text=True)
    if done.returncode != 0:
        raise NotThere("pip found no wheels")
    pins = []
    for wheel in json.loads(done.stdout)["install"]:
        sha256 = wheel["download_info"]["archive_info"]["hash"]
        kind, _, digits = sha256.partition("=")
        if kind != "sha256":
            raise NotThere(f"no SHA-256 of {wheel['metadata']['name']}")
        name = re.sub(r"[-_.]+", "-", wheel["metadata"]["name"]).lower()
        pins.append(f"{name}=={wheel['metadata']['version']} "
                    f"--hash=sha256:{digits}")
    return sorted(pins)


def image(name):
    """The image's name with its digest, which is its manifest's hash."""
    if shutil.which("skopeo"):
        # What skopeo and docker call the same by short names.
        path = name if re.match(r"[^/]*[.:][^/]*/", name) else (
            f"docker.io/{name if '/' in name else f'library/{name}'}")
        command = ["skopeo", "inspect", "--raw",
                   *os.environ.get("WEIR_SKOPEO_OPTIONS", "").split(),
                   f"docker://{path}"]
    elif shutil.which("docker"):
        command = ["docker", "buildx", "imagetools", "inspect", "--raw", name]
    else:
        raise NotThere("there is neither skopeo nor docker to ask with")
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0 or b'"schemaVersion"' not in done.stdout:
        raise NotThere(f"{command[0]} got no manifest of {name}")
    return f"{name}@sha256:{hashlib.sha256(done.stdout).hexdigest()}"


def refresh(names):
    before, sections = read_sections()
    for name in names:
        if name not in sections:
            sys.exit(f"pins: no section [{name}] in {FILE}")
    complete = True
    for name in names or sections:
        header, wishes, _ = sections[name]
        wants = [line.removeprefix("want ") for line in wishes
                 if line.startswith("want ")]
        try:
            pins = ([image(want) for want in wants] if name == "base"
                    else wheels(wants, header.endswith(" alone")))
        except NotThere as reason:
            print(f"pins: [{name}] stays as it was: {reason}", file=sys.stderr)
            complete = False
            continue
        sections[name] = (header, wishes, pins)
    write_sections(before, sections)
    return 0 if complete else 3


def base():
    _, wishes, pins = read_sections()[1]["base"]
    if pins:
        print(pins[0])
        return 0
    name = next(line.removeprefix("want ") for line in wishes
                if line.startswith("want "))
    print(f"pins: {name} has no digest yet: deploy/pins.py refresh base",
          file=sys.stderr)
    print(name)
    return 0


def main(arguments):
    if arguments[:1] == ["refresh"]:
        return refresh(arguments[1:])
    if arguments == ["base"]:
        return base()
    sys.exit("usage: pins.py refresh [SECTION...] | base")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
