#!/usr/bin/env python3
"""Writes a kustomization of your own for the components that you choose, and
refuses those that make no sense together."""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
OLDEST_KUBECTL = 27  # 1.27

DEVICES = {"cpu": "on CPUs",
           "gpu": "one whole GPU for each pod",
           "mig": "a MIG slice of a GPU for each pod"}
AUTOSCALERS = {"hpa": "2 to 8 pods, by prometheus-adapter's metrics",
               "keda": "2 to 8 pods, by KEDA, which asks Prometheus itself"}
OTHERS = {"tls": "TLS on the gRPC port, from the Secret weir-tls",
          "object-storage": "models from a bucket instead of a volume",
          "gateway": "a route through a Gateway of the Gateway API"}
COMPONENTS = {**DEVICES, **AUTOSCALERS, **OTHERS}
# In this order they stand in the file, however they are given.
ORDER = ("cpu", "gpu", "mig", "hpa", "keda", "tls", "object-storage", "gateway",
         "gateway-tls")

# What the file names beside itself.
FILES = {"settings.env": "Flags of weir-server as environment variables",
         "store.env": "rclone's settings of the bucket, RCLONE_CONFIG_STORE_*"}


class Refused(Exception):
    """The choice makes no sense: why, and what to do instead."""


def one_of(choice, group, what, why):
    chosen = [name for name in group if name in choice]
    if len(chosen) > 1:
        raise Refused(f"{' and '.join(chosen)}: {why}; keep one {what}")
    return chosen[0] if chosen else None


def check(choice, options):
    """Raises Refused unless the components and options fit together."""
    for name in choice:
        if name not in COMPONENTS:
            raise Refused(f"{name}: there is no such component; there are "
                          f"{', '.join(COMPONENTS)}")
        if choice.count(name) > 1:
            raise Refused(f"{name}: given twice; once is enough")
    device = one_of(
        choice, DEVICES, "device",
        "each chooses the image, the device and its limits, so that one would "
        "undo the other (mig is a slice instead of a whole gpu)")
    if not device:
        raise Refused("no device: a pod without limits of CPU and memory is "
                      f"ended first; add one of {', '.join(DEVICES)}")
    scaler = one_of(
        choice, AUTOSCALERS, "autoscaler",
        "keda makes a HorizontalPodAutoscaler of its own, and two would take "
        "turns to set the number of pods")
    if scaler and options.replicas is not None:
        raise Refused(f"{scaler} and --replicas: the autoscaler owns the "
                      "number of pods, and every `kubectl apply` would reset "
                      f"it; leave out --replicas, or {scaler}")
    if options.replicas is not None and options.replicas < 2:
        raise Refused("--replicas below 2: the disruption budget lets node "
                      "maintenance take one pod at a time, which would be all; "
                      "give 2 or more")
    if "gateway" in choice and not (options.gateway and options.host):
        raise Refused("gateway: its route names your Gateway and host; give "
                      "--gateway NAMESPACE/NAME and --host HOST")
    if "gateway" not in choice and (options.gateway or options.host):
        raise Refused("--gateway and --host without the component gateway: "
                      "there is no route that they could change; add gateway")
    if ("object-storage" in choice) != bool(options.models):
        raise Refused("object-storage and --models BUCKET/FOLDER: one does "
                      "nothing without the other, and a wrong bucket is never "
                      "ready; give both, or neither")
    if options.gateway and not re.fullmatch(r"[a-z0-9-]+/[a-z0-9.-]+",
                                            options.gateway):
        raise Refused(f"--gateway {options.gateway}: write NAMESPACE/NAME")


HEAD = ["apiVersion: kustomize.config.k8s.io/v1beta1",
        "kind: Kustomization",
        "namespace: weir",
        "resources:"]


def composed(choice, here):
    """What is the components' own, below the file with what is yours: versions
    of kubectl differ in whether a file's settings or its components come
    first. `here` is the way from it to this folder."""
    chosen = set(choice)
    if {"gateway", "tls"} <= chosen:
        chosen.add("gateway-tls")
    if "mig" in chosen:
        chosen.add("gpu")
    names = [name for name in ORDER if name in chosen]
    rows = ["# Made by compose.py.", *HEAD, f"  - {here}/base", "components:",
            *(f"  - {here}/components/{name}" for name in names)]
    return "\n".join(rows) + "\n"


def own(choice, options):
    """The kustomization.yaml that is the user's."""
    chosen = set(choice)
    names = " ".join(name for name in ORDER if name in chosen)
    rows = [f"# Made by compose.py: {names}. Yours from here on.", *HEAD,
            "  - composed",
            "images:",
            "  - name: weir",
            f"    newName: {options.image}"]
    if options.tag:
        rows += [f'    newTag: "{options.tag}"']
    rows += ["configMapGenerator:",
             "  - name: weir-settings",
             "    behavior: merge",
             "    envs:",
             "      - settings.env"]
    if "object-storage" in chosen:
        rows += ["  - name: weir-model-store",
                 "    behavior: merge",
                 "    literals:",
                 f"      - MODEL_STORE_PATH={options.models}",
                 "    envs:",
                 "      - store.env"]
    if not chosen & set(AUTOSCALERS):
        rows += ["replicas:",
                 "  - name: weir",
                 f"    count: {options.replicas or 2}"]
    if "gateway" in chosen:
        namespace, name = options.gateway.split("/")
        rows += ["patches:",
                 "  - target: {kind: GRPCRoute, name: weir}",
                 "    patch: |-",
                 "      - op: replace",
                 "        path: /spec/parentRefs/0",
                 f"        value: {{name: {name}, namespace: {namespace}}}",
                 "      - op: replace",
                 "        path: /spec/hostnames/0",
                 f'        value: "{options.host}"',
                 "  - target: {kind: NetworkPolicy, name: weir-gateway}",
                 "    patch: |-",
                 "      - op: replace",
                 "        path: /spec/ingress/0/from/0/namespaceSelector/"
                 "matchLabels",
                 "        value:",
                 f"          kubernetes.io/metadata.name: {namespace}"]
    return "\n".join(rows) + "\n"


def check_kubectl():
    """Raises Refused if the kubectl of this machine is too old to build it."""
    kubectl = shutil.which("kubectl")
    if not kubectl:
        return
    done = subprocess.run([kubectl, "version", "--client", "--output=json"],
                          capture_output=True, text=True, check=False)
    try:
        version = json.loads(done.stdout)["clientVersion"]["gitVersion"]
        minor = int(re.match(r"v1\.(\d+)\.", version)[1])
    except (ValueError, KeyError, TypeError):
        return  # Not one that says so; whoever applies it will see.
    if minor < OLDEST_KUBECTL:
        raise Refused(f"{kubectl} is {version}, too old for these components; "
                      f"install kubectl 1.{OLDEST_KUBECTL} or newer")


def parser():
    width = max(map(len, COMPONENTS))
    known = "\n".join(f"  {name:<{width}}  {text}"
                      for name, text in COMPONENTS.items())
    made = argparse.ArgumentParser(
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__,
        epilog=f"components:\n{known}\n\nOne device must be among them, and at "
        "most one autoscaler; without any there\nare --replicas pods. Exit "
        "code 2: refused, and nothing was written.")
    made.add_argument("components", nargs="+", metavar="COMPONENT")
    made.add_argument("--out", required=True, type=pathlib.Path,
                      help="the folder to write kustomization.yaml and "
                      "composed/ into, and settings.env (of object-storage "
                      "store.env too), empty, where there is none")
    made.add_argument("--image", required=True,
                      help="the image in your registry, without its tag")
    made.add_argument("--tag", help="another tag than the components'")
    made.add_argument("--replicas", type=int,
                      help="how many pods, without an autoscaler; 2 by default")
    made.add_argument("--models", metavar="BUCKET/FOLDER",
                      help="of object-storage: what holds "
                      "NAME/VERSION/model.onnx")
    made.add_argument("--gateway", metavar="NAMESPACE/NAME",
                      help="of gateway: the Gateway that the route joins")
    made.add_argument("--host", help="of gateway: the host that callers name")
    made.add_argument("--force", action="store_true",
                      help="replace a kustomization.yaml that is there")
    return made


def main(arguments=None):
    options = parser().parse_args(arguments)
    file = options.out / "kustomization.yaml"
    try:
        check(options.components, options)
        if file.exists() and not options.force:
            raise Refused(f"{file} is there already, perhaps with changes of "
                          "yours; give another --out, or --force to replace it")
        check_kubectl()
    except Refused as why:
        print(f"compose.py: {why}", file=sys.stderr)
        return 2
    below = options.out / "composed"
    below.mkdir(parents=True, exist_ok=True)
    here = os.path.relpath(HERE, below.resolve())
    (below / file.name).write_text(composed(options.components, here), "utf-8")
    file.write_text(own(options.components, options), "utf-8")
    for name, what in FILES.items():
        written = options.out / name
        needed = name == "settings.env" or "object-storage" in (
            options.components)
        if needed and not written.exists():
            written.write_text(f"# {what}, one a line\n", "utf-8")
    print(f"{file}: look at it with `kubectl kustomize {options.out}`, then "
          f"`kubectl apply -k {options.out}`")
    return 0


if __name__ == "__main__":
    sys.exit(main())
