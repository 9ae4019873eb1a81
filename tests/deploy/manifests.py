"""Reads the manifests of deploy/ as a cluster would get them."""

import functools
import os
import pathlib
import re
import shutil
import subprocess

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
KSERVE = DEPLOY / "kserve"
MONITORING = DEPLOY / "monitoring"
BIN = pathlib.Path(os.environ.get("WEIR_BIN_DIR", ROOT / "build" / "bin"))

# Everything that `kubectl apply -k` takes; the base is a part of the overlays.
KUSTOMIZATIONS = sorted(path.parent
                        for path in DEPLOY.rglob("kustomization.yaml")
                        if path.parent.name != "base")
# Manifests that are applied by themselves, with `kubectl apply -f`.
SINGLE_FILES = (KUBERNETES / "namespace.yaml",
                KUBERNETES / "model-volume.yaml",
                KUBERNETES / "load-models.yaml",
                KSERVE / "inference-service.yaml",
                KSERVE / "network-policy.yaml")

HASH_SUFFIX = re.compile(r"-[bcdfghkmt2456789]{10}$")


def kubectls():
    """kubectl 1.20, and another one if this machine has it."""
    found = (shutil.which("kubectl", path=folder)
             for folder in os.environ["PATH"].split(":"))
    return list(dict.fromkeys(os.path.realpath(program)
                              for program in found if program))


def kustomize(folder, kubectl="kubectl"):
    """The documents that `kubectl kustomize` makes of a folder, as text."""
    done = subprocess.run([kubectl, "kustomize", str(folder)],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{kubectl} kustomize {folder}: {done.stderr}")
    return done.stdout


@functools.cache
def documents(path):
    """The documents of a kustomization's folder or of one file."""
    text = kustomize(path) if path.is_dir() else path.read_text("utf-8")
    return list(yaml.safe_load_all(text))


def name_of(document):
    return document["kind"], HASH_SUFFIX.sub("", document["metadata"]["name"])


def find(path, kind, name="weir"):
    for document in documents(path):
        if name_of(document) == (kind, name):
            return document
    raise AssertionError(f"{path}: no {kind} {name}")


@functools.cache
def help_of(program, *words):
    """The text of `program --help`."""
    return subprocess.run([BIN / program, *words, "--help"], check=True,
                          capture_output=True, text=True).stdout


@functools.cache
def flags_of(program, *words):
    """The long flags that a program of ours (or its subcommand) takes."""
    return set(re.findall(r"^\s+(?:-\w,)?(--[a-z0-9-]+)",
                          help_of(program, *words), re.MULTILINE))


def variable_of(flag):
    """--queue-length is WEIR_QUEUE_LENGTH."""
    return "WEIR_" + flag[2:].upper().replace("-", "_")


class Server:
    """A container that runs weir-server, and the flags that it gets."""

    def __init__(self, where, pod, container, settings):
        self.where = where
        self.pod = pod
        self.container = container
        self.settings = dict(settings)
        for flag in container["args"]:
            name, _, value = flag.partition("=")
            self.settings[variable_of(name)] = value

    def number(self, flag, default):
        return float(self.settings.get(variable_of(flag), default))

    def addresses(self, flag):
        return self.settings[variable_of(flag)].split(",")

    def port(self, flag):
        return int(self.addresses(flag)[0].rsplit(":", 1)[1])


def server_of(overlay):
    """The server of an overlay, with its ConfigMap's settings."""
    pod = find(overlay, "Deployment")["spec"]["template"]["spec"]
    [container] = pod["containers"]
    settings = {}
    for source in container["envFrom"]:
        wanted = source["configMapRef"]["name"]
        [found] = [document for document in documents(overlay)
                   if document["kind"] == "ConfigMap"
                   and document["metadata"]["name"] == wanted]
        settings.update(found["data"])
    return Server(overlay.name, pod, container, settings)


def servers():
    """Every server that deploy/ can start."""
    for overlay in sorted((KUBERNETES / "overlays").iterdir()):
        yield server_of(overlay)
    for runtime in documents(KSERVE):
        [container] = runtime["spec"]["containers"]
        yield Server(runtime["metadata"]["name"], runtime["spec"], container,
                     {})


def quantity(text):
    """Kubernetes' 512Mi as a number."""
    units = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "m": 1e-3,
             "": 1}
    number, unit = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(text)).groups()
    return float(number) * units[unit]
