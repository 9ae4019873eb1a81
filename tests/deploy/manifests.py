"""Reads the manifests of deploy/ as a cluster would get them."""

import contextlib
import functools
import io
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
KSERVE = DEPLOY / "kserve"
MONITORING = DEPLOY / "monitoring"
BIN = pathlib.Path(os.environ.get("WEIR_BIN_DIR", ROOT / "build" / "bin"))

sys.path.insert(0, str(KUBERNETES))
import compose  # pylint: disable=wrong-import-position
import memory  # pylint: disable=wrong-import-position

# Everything that `kubectl apply -k` takes; base and components are its parts.
KUSTOMIZATIONS = sorted(path.parent
                        for path in DEPLOY.rglob("kustomization.yaml")
                        if path.parent.name != "base"
                        and "components" not in path.parts)
# Manifests that are applied by themselves, with `kubectl apply -f`.
SINGLE_FILES = (KUBERNETES / "namespace.yaml",
                KUBERNETES / "model-volume.yaml",
                KUBERNETES / "load-models.yaml")

# Many times as fast as the other.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
HASH_SUFFIX = re.compile(r"-[bcdfghkmt2456789]{10}$")


def minor_of(kubectl):
    """27 of a kubectl of version 1.27."""
    done = subprocess.run([kubectl, "version", "--client", "--output=yaml"],
                          check=True, capture_output=True, text=True)
    return int(re.search(r"gitVersion: v1\.(\d+)\.", done.stdout)[1])


@functools.cache
def kubectls():
    """kubectl 1.27, and others, not older, if this machine has them."""
    found = (shutil.which("kubectl", path=folder)
             for folder in os.environ["PATH"].split(":"))
    return [program for program in dict.fromkeys(
        os.path.realpath(program) for program in found if program)
        if minor_of(program) >= compose.OLDEST_KUBECTL]


def kustomize(folder, kubectl="kubectl"):
    """The documents that `kubectl kustomize` makes of a folder, as text."""
    # A quarter of its time would go to collecting what ends with it, 100 MB.
    done = subprocess.run([kubectl, "kustomize", str(folder)],
                          capture_output=True, text=True, check=False,
                          env={"GOGC": "off", **os.environ})
    if done.returncode != 0:
        raise AssertionError(f"{kubectl} kustomize {folder}: {done.stderr}")
    return done.stdout


@functools.cache
def documents(path):
    """The documents of a kustomization's folder or of one file."""
    text = kustomize(path) if path.is_dir() else path.read_text("utf-8")
    return list(yaml.load_all(text, Loader=LOADER))


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


# What these components must be told.
OPTIONS = {"gateway": ("--gateway", "edge/public", "--host", "weir.acme.com"),
           "object-storage": ("--models", "acme/models")}


@functools.cache
def folder_of_compositions():
    folder = tempfile.TemporaryDirectory()
    # Gone when the test ends: it lives as long as the cache does.
    return folder, pathlib.Path(folder.name)


@functools.cache
def composed(*components, options=()):
    """The folder that compose.py writes for components."""
    folder = folder_of_compositions()[1] / "-".join((*components, *options)
                                                    ).replace("/", "_")
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = compose.main([
            *components, *itertools.chain.from_iterable(
                OPTIONS.get(name, ()) for name in components),
            *options, f"--out={folder}", "--image=weir"])
    if code != 0:
        raise AssertionError(f"{components}: {said.getvalue()}")
    return folder


def combinations():
    """Every sensible choice of components."""
    others = list(compose.OTHERS)
    for device, scaler in itertools.product(
            compose.DEVICES, (None, *compose.AUTOSCALERS)):
        for count in range(len(others) + 1):
            for more in itertools.combinations(others, count):
                yield (device, *([scaler] if scaler else []), *more)


def compositions():
    """The folders of all of these."""
    return [composed(*components) for components in combinations()]


def server_of(folder):
    """The server of a kustomization, with its ConfigMap's settings."""
    pod = find(folder, "Deployment")["spec"]["template"]["spec"]
    [container] = pod["containers"]
    settings = {}
    for source in container["envFrom"]:
        wanted = source["configMapRef"]["name"]
        [found] = [document for document in documents(folder)
                   if document["kind"] == "ConfigMap"
                   and document["metadata"]["name"] == wanted]
        settings.update(found["data"])
    return Server(folder.name, pod, container, settings)


def runtimes():
    """The servers that KServe starts."""
    for runtime in documents(KSERVE):
        [container] = runtime["spec"]["containers"]
        yield Server(runtime["metadata"]["name"], runtime["spec"], container,
                     {})


def servers():
    """Every server that deploy/ can start."""
    for folder in (*(KUBERNETES / "overlays").iterdir(), *compositions()):
        yield server_of(folder)
    yield from runtimes()


def pod_of(deployment):
    """Prometheus' labels of one of its pods, as Kubernetes names it: after 58
    characters the name is cut."""
    replicas = f"{deployment}-6d9c7b5f4"
    return {"__meta_kubernetes_pod_controller_kind": "ReplicaSet",
            "__meta_kubernetes_pod_controller_name": replicas,
            "__meta_kubernetes_pod_name": f"{replicas}-"[:58] + "x2x7k"}


def relabeled(endpoint, labels):
    """What the relabelings of a monitor's endpoint make of a target's labels."""
    labels = dict(labels)
    for rule in endpoint["relabelings"]:
        text = ";".join(labels.get(name, "") for name in rule["sourceLabels"])
        match = re.fullmatch(rule["regex"], text)
        if match:
            labels[rule["targetLabel"]] = match.expand(
                rule.get("replacement", "$1").replace("$", "\\"))
    return labels


quantity = memory.quantity
