"""A container, as far as what runs in it can tell: its program, arguments and
environment, the folders that are mounted, what its user may read, and an
address of its own with every port. It is no container: where the words of a
command or a variable name a mounted path or an address, they are made to name
those of this machine."""

import itertools
import os
import pathlib
import re
import shutil
import subprocess

from standins import images

USER = 65532
# The ends of this process's; the next is taken. No generator: two threads must
# not be in one at a time.
ADDRESSES = itertools.product(range(1, 250), range(1, 250))
# root, too, must not read what the container's user may not.
DROP = (["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--"]
        if os.geteuid() == 0 else [])
PATH = "/usr/local/bin:/usr/bin:/bin"


class NoProgram(Exception):
    """The image does not have it."""


def readable(status, owner=None, group=None):
    """Whether the container's user may read a file."""
    if (status.st_uid if owner is None else owner) == USER:
        return bool(status.st_mode & 0o400)
    if (status.st_gid if group is None else group) == USER:
        return bool(status.st_mode & 0o040)
    return bool(status.st_mode & 0o004)


class Container:

    def __init__(self, folder, image, mounts, environment, arguments=None,
                 command=None):
        """`mounts` are {path in it: path here}; `folder` is its own, for what
        it prints."""
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.image = image
        self.mounts = dict(mounts)
        if models := image["env"].get("WEIR_MODEL_REPOSITORY"):
            # Empty in our image.
            (self.folder / "models").mkdir(exist_ok=True)
            self.mounts.setdefault(models, self.folder / "models")
        high, low = next(ADDRESSES)
        self.address = f"127.{2 + os.getpid() % 250}.{high}.{low}"
        self.environment = {"PATH": PATH, **image["env"], **environment}
        if command:
            self.words = [*command, *(arguments or ())]
        else:
            self.words = [*image["entrypoint"],
                          *(image["cmd"] if arguments is None else arguments)]
        self.process = None
        self.log = self.folder / "log"

    def here(self, text, addresses=True):
        """A word, as it must be said on this machine."""
        paths = "|".join(map(re.escape, sorted(self.mounts, key=len,
                                               reverse=True)))
        if paths:
            text = re.sub(rf"(?<![\w./-])({paths})(?=[/,\s]|$)",
                          lambda found: str(self.mounts[found[1]]), text)
        if not addresses:
            return text
        return re.sub(r"\b(0\.0\.0\.0|127\.0\.0\.1|localhost)(?=:\d)",
                      self.address, text)

    def variables(self, addresses=True):
        made = {name: self.here(value, addresses)
                for name, value in self.environment.items()}
        # Where `weir` looks by itself: the loopback interface is the
        # container's own.
        made.setdefault("WEIR_SERVER", f"{self.address}:8001")
        made["PATH"] = os.environ["PATH"]
        return made

    def program(self, words, addresses=True):
        if words == self.words and words[0] in images.IDLE:
            return ["sleep", "infinity"]
        found = (images.program_of(words[0])
                 if self.image["entrypoint"][-1].endswith("weir-server")
                 else None)
        if found is None:
            raise NoProgram(
                f'exec: "{words[0]}": executable file not found in $PATH')
        inside = [self.here(word, addresses) for word in words[1:]]
        if found in ("mv", "tar"):
            for word, said in zip(inside, words[1:]):
                if said.startswith("/") and word == said:
                    raise NoProgram(f"{said}: Read-only file system")
        return [*DROP, found, *inside]

    def start(self, inherit=False):
        """Begins its main program, which prints where this process does, or
        into its log; `wait` tells how it ended."""
        addresses = not self.refuses_addresses()
        with open(self.log, "ab") as log:
            output = None if inherit else log
            self.process = subprocess.Popen(
                self.program(self.words, addresses), stdout=output,
                stdin=subprocess.DEVNULL, stderr=output, cwd=self.folder,
                env=self.variables(addresses))

    def refuses_addresses(self):
        """Whether the server would not start with the addresses that it is
        given: those that it gets here are of the loopback interface, of which
        it asks less."""
        if not self.words[0].endswith("weir-server"):
            return False
        words = [word for word in self.words
                 if not word.startswith("--model-repository=")]
        done = subprocess.run(
            self.program(words, False), capture_output=True, check=False,
            # So it gets no farther than to see what it was told.
            env={**self.variables(False),
                 "WEIR_MODEL_REPOSITORY": "/dev/null/"})
        return done.returncode == 2

    def wait(self):
        """Its exit code, as an engine tells it."""
        code = self.process.wait()
        return code if code >= 0 else 128 - code

    def execute(self, words, **options):
        """Begins a program beside the main one."""
        return subprocess.Popen(self.program(words), env=self.variables(),
                                cwd=self.folder, **options)

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def copy(source, target):
    """Of a folder or a file, with its modes; links stay links."""
    if pathlib.Path(source).is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target)
