"""Images of containers, as a container engine and a registry know them: what
the Dockerfile says of ours, and what we take from elsewhere."""

import json
import pathlib
import re
import shlex

import manifests

# By name, whatever the tag: images of others that deploy/ names, and what they
# run.
PUBLIC = {"rclone/rclone": ["rclone"], "envoyproxy/envoy": ["envoy"]}
# Of those, who does nothing here but be there.
IDLE = ("envoy",)
# What ours have to run beside our own programs: of Debian's slim image.
PROGRAMS = ("cat", "ls", "mv", "sh", "sleep", "tar", "test")


def stages(text):
    """{name: (what it is made from, its lines)} of a Dockerfile."""
    found, lines = {}, []
    for line in text.replace("\\\n", " ").splitlines():
        if head := re.match(r"FROM (\S+) AS (\S+)$", line):
            lines = []
            found[head[2]] = head[1], lines
        elif line and not line.startswith("#"):
            lines.append(line)
    return found


def of_dockerfile(text, target, given):
    """What an engine keeps of an image built for a target with the arguments
    that were given; None if there is no such target."""
    known = stages(text)
    if target not in known:
        return None
    chain = []
    while target in known:
        chain.insert(0, target)
        target = known[target][0]
    image = {"env": {}, "entrypoint": [], "cmd": [], "user": "root",
             "health": None, "labels": {}}
    arguments = {}
    for name in chain:
        for line in known[name][1]:
            word, _, rest = line.partition(" ")
            if word == "ARG":
                argument, _, value = rest.partition("=")
                arguments[argument] = given.get(argument, value)
            elif word == "LABEL":
                image["labels"].update(
                    label.split("=", 1) for label in shlex.split(re.sub(
                        r"\$\{(\w+)\}", lambda found: arguments[found[1]],
                        rest)))
            elif word == "ENV":
                image["env"].update(
                    setting.split("=", 1) for setting in rest.split())
            elif word in ("ENTRYPOINT", "CMD"):
                image[word.lower()] = json.loads(rest)
            elif word == "USER":
                image["user"] = rest
            elif word == "HEALTHCHECK":
                image["health"] = json.loads(rest.partition("CMD ")[2])
    return image


class Shelf:
    """Images by name, in a file: those of an engine, or of a registry."""

    def __init__(self, file):
        self.file = pathlib.Path(file)

    def all(self):
        if not self.file.exists():
            return {}
        return json.loads(self.file.read_text("utf-8"))

    def put(self, name, image):
        self.file.write_text(json.dumps({**self.all(), name: image}), "utf-8")

    def get(self, name):
        """None if it is not there."""
        public = PUBLIC.get(re.sub(r":[\w.-]+$", "", name))
        if public:
            return {"env": {}, "entrypoint": public, "cmd": [], "user": "root",
                    "health": None}
        return self.all().get(name)


def program_of(name):
    """What is run here for a program of our image; None if it has none such."""
    name = name.removeprefix("/usr/local/bin/")
    if name in ("weir", "weir-server"):
        return str(manifests.BIN / name)
    return name if name in PROGRAMS else None
