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

# What `kubectl apply` leaves in the cluster when a component goes: it removes
# nothing.
LEFT_BEHIND = {"hpa": ("hpa/weir",),
               "keda": ("scaledobject/weir",),
               "object-storage": ("networkpolicy/weir-model-store",),
               "gateway": ("grpcroute/weir", "networkpolicy/weir-gateway"),
               "gateway-tls": ("grpcroute/weir", "networkpolicy/weir-gateway",
                               "backendtlspolicy/weir")}

# Where a step of the autoscaler shows in the metrics: when the pods are ready,
# and their medians of a minute have samples.
METRICS_SECONDS = 60
MAX_PERIOD = 1800
# The longest time of a start, which the base's progressDeadlineSeconds allows.
MAX_START = MAX_PERIOD - METRICS_SECONDS

# What the file names beside itself.
FILES = {"settings.env": "Flags of weir-server as environment variables",
         "store.env": "rclone's settings of the bucket, RCLONE_CONFIG_STORE_*"}


# What options may say, and how to write it.
LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
NAME = rf"{LABEL}(\.{LABEL})*"
PART = r"[a-z0-9]+([._-]+[a-z0-9]+)*"
FORMS = {
    "image": (rf"{PART}(:\d+(?=/))?(/{PART})*",
              "write REGISTRY/NAME, and what follows it as --tag"),
    "tag": (r"\w[\w.-]{0,127}",
            "write up to 128 letters, digits, `.`, `_` and `-`"),
    "models": (r"[A-Za-z0-9][\w.-]*(/[^\x00-\x1f\"'`\\]*)?",
               "write BUCKET/FOLDER, without a scheme such as s3://, which "
               "store.env says"),
    "gateway": (rf"{LABEL}/{NAME}", "write NAMESPACE/NAME"),
    "proxies": (LABEL, "write the name of a namespace"),
    "host": (rf"(\*\.)?{NAME}", "write a host's name alone"),
}


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
    if "gateway" not in choice and (options.gateway or options.host or
                                    options.proxies):
        raise Refused("--gateway, --host and --proxies without the component "
                      "gateway: there is no route that they could change; add "
                      "gateway")
    if ("object-storage" in choice) != bool(options.models):
        raise Refused("object-storage and --models BUCKET/FOLDER: one does "
                      "nothing without the other, and a wrong bucket is never "
                      "ready; give both, or neither")
    if options.start_seconds is not None:
        if not scaler:
            raise Refused("--start-seconds without an autoscaler: nothing adds "
                          "pods; add hpa or keda, or leave it out")
        if not 0 < options.start_seconds <= MAX_START:
            raise Refused(f"--start-seconds {options.start_seconds}: "
                          "Kubernetes takes steps that are up to half an hour "
                          f"apart; give 1 to {MAX_START}")
    for name, (form, how) in FORMS.items():
        value = getattr(options, name)
        if value is not None and not re.fullmatch(form, value):
            raise Refused(f"--{name} {value}: {how}")


HEAD = ["apiVersion: kustomize.config.k8s.io/v1beta1",
        "kind: Kustomization",
        "namespace: weir",
        "resources:"]


def parts(choice):
    """The components that a choice needs, in order."""
    chosen = set(choice)
    if {"gateway", "tls"} <= chosen:
        chosen = chosen - {"gateway", "tls"} | {"gateway-tls"}
    if "mig" in chosen:
        chosen.add("gpu")
    return [name for name in ORDER if name in chosen]


def composed(choice, here):
    """What is the components' own, below the file with what is yours: versions
    of kubectl differ in whether a file's settings or its components come
    first. `here` is the way from it to this folder."""
    rows = ["# Made by compose.py.", *HEAD, f"  - {here}/base", "components:",
            *(f"  - {here}/components/{name}" for name in parts(choice))]
    return "\n".join(rows) + "\n"


def quoted(text):
    """As YAML takes any text for text: 123, null, `a #b`."""
    return json.dumps(text, ensure_ascii=False)


def own(choice, options):
    """The kustomization.yaml that is the user's."""
    chosen = set(choice)
    names = " ".join(name for name in ORDER if name in chosen)
    rows = [f"# Made by compose.py: {names}. Yours from here on.", *HEAD,
            "  - composed",
            "images:",
            "  - name: weir",
            f"    newName: {quoted(options.image)}"]
    if options.tag:
        rows += [f"    newTag: {quoted(options.tag)}"]
    rows += ["configMapGenerator:",
             "  - name: weir-settings",
             "    behavior: merge",
             "    envs:",
             "      - settings.env"]
    if "object-storage" in chosen:
        rows += ["  - name: weir-model-store",
                 "    behavior: merge",
                 "    literals:",
                 f"      - {quoted('MODEL_STORE_PATH=' + options.models)}",
                 "    envs:",
                 "      - store.env"]
    if not chosen & set(AUTOSCALERS):
        rows += ["replicas:",
                 "  - name: weir",
                 f"    count: {options.replicas or 2}"]
    changed = [*steps_apart(chosen, options), *route(chosen, options)]
    if changed:
        rows += ["patches:", *changed]
    return "\n".join(rows) + "\n"


def steps_apart(chosen, options):
    """The patch for pods that take long to be ready."""
    if options.start_seconds is None:
        return []
    kind, path = (
        ("HorizontalPodAutoscaler", "behavior") if "hpa" in chosen else
        ("ScaledObject", "advanced/horizontalPodAutoscalerConfig/behavior"))
    return [f"  - target: {{kind: {kind}, name: weir}}",
            "    patch: |-",
            "      - op: replace",
            f"        path: /spec/{path}/scaleUp/policies/0/periodSeconds",
            f"        value: {options.start_seconds + METRICS_SECONDS}"]


def route(chosen, options):
    """The patches that name the Gateway."""
    if "gateway" not in chosen:
        return []
    namespace, name = options.gateway.split("/")
    return ["  - target: {kind: GRPCRoute, name: weir}",
            "    patch: |-",
            "      - op: replace",
            "        path: /spec/parentRefs/0",
            "        value:",
            f"          name: {quoted(name)}",
            f"          namespace: {quoted(namespace)}",
            "      - op: replace",
            "        path: /spec/hostnames/0",
            f"        value: {quoted(options.host)}",
            "  - target: {kind: NetworkPolicy, name: weir-gateway}",
            "    patch: |-",
            "      - op: replace",
            "        path: /spec/ingress/0/from/0/namespaceSelector/"
            "matchLabels",
            "        value:",
            "          kubernetes.io/metadata.name: "
            f"{quoted(options.proxies or namespace)}"]


def before(folder):
    """(components, kustomization.yaml) that are in the folder."""
    texts = [path.read_text("utf-8") if path.exists() else "" for path in (
        folder / "composed" / "kustomization.yaml",
        folder / "kustomization.yaml")]
    return re.findall(r"/components/([a-z-]+)$", texts[0],
                      re.MULTILINE), texts[1]


def count_of(text):
    """How many pods a kustomization.yaml sets; None: it does not."""
    found = re.search(r"^    count: (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else None


def replaced(old, new, folder):
    """What to tell of components, kustomization.yaml that were there and are
    now, for whoever has applied the former."""
    (had, old_text), (has, new_text) = old, new
    rows = []
    gone = [name for name in had if name not in has]
    for what, names in (("gone", gone),
                        ("new", [name for name in has if name not in had])):
        if names:
            rows += [f"components that are {what}: {', '.join(names)}"]
    kept = new_text.splitlines()
    lost = [row for row in old_text.splitlines()
            if row not in kept and not row.startswith("#")]
    if lost:
        rows += [f"lines of {folder}/kustomization.yaml that are gone:",
                 *(f"  {row}" for row in lost)]
    steps = in_the_cluster(had, has, count_of(old_text), count_of(new_text),
                           folder)
    if had and steps:
        rows += ["where the former is in a cluster:", *steps]
    return rows


def left_behind(components):
    """The objects of components, but of autoscalers."""
    return {what: None for name in components if name not in AUTOSCALERS
            for what in LEFT_BEHIND.get(name, ())}


def in_the_cluster(had, has, old_count, new_count, folder):
    """What to do there that `kubectl apply` does not."""
    apply = f"`kubectl apply -k {folder}`"
    left = [what for what in left_behind(had) if what not in left_behind(has)]
    rows = []
    for name in set(had) & set(AUTOSCALERS) - set(has):
        rows += [f"before {apply}, or {name} goes on to set the number of "
                 "pods:",
                 f"  kubectl -n weir delete {' '.join(LEFT_BEHIND[name])}"]
    if old_count and not new_count:
        rows += [f"before {apply}, or it ends all pods but one, and waits for "
                 "the autoscaler:",
                 "  kubectl -n weir apply view-last-applied deployment/weir "
                 "--output=yaml |",
                 "    sed '/^  replicas:/d' |",
                 "    kubectl apply set-last-applied --filename=-"]
    if new_count and not old_count:
        rows += [f"{apply} makes the pods {new_count} at once: if more run, "
                 "give their number as --replicas"]
    if left:
        rows += [f"after {apply}, when the new pods are ready, for it removes "
                 "nothing:", f"  kubectl -n weir delete {' '.join(left)}"]
    return rows


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
                      help="how many pods, without an autoscaler; by default as "
                      "many as the file that is replaced has, or 2")
    made.add_argument("--start-seconds", type=int, metavar="SECONDS",
                      help="with an autoscaler: how long a pod takes until it "
                      "is ready, its node, image and models included; 30 by "
                      "default. A minute after that there is a second step")
    made.add_argument("--models", metavar="BUCKET/FOLDER",
                      help="of object-storage: what holds "
                      "NAME/VERSION/model.onnx")
    made.add_argument("--gateway", metavar="NAMESPACE/NAME",
                      help="of gateway: the Gateway that the route joins")
    made.add_argument("--host", help="of gateway: the host that callers name")
    made.add_argument("--proxies", metavar="NAMESPACE",
                      help="of gateway: where the pods run that call the "
                      "servers, if that is not the Gateway's namespace")
    made.add_argument("--force", action="store_true",
                      help="replace a kustomization.yaml that is there, and "
                      "say what that changes, and what to do in a cluster "
                      "that has it")
    return made


def main(arguments=None):
    options = parser().parse_args(arguments)
    file = options.out / "kustomization.yaml"
    old = before(options.out)
    try:
        check(options.components, options)
        if file.exists() and not options.force:
            raise Refused(f"{file} is there already, perhaps with changes of "
                          "yours; give another --out, or --force to replace it")
        check_kubectl()
    except Refused as why:
        print(f"compose.py: {why}", file=sys.stderr)
        return 2
    if options.replicas is None:
        options.replicas = count_of(old[1])
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
    if old[1]:
        new = parts(options.components), file.read_text("utf-8")
        for row in replaced(old, new, options.out):
            print(row)
    print(f"{file}: look at it with `kubectl kustomize {options.out}`, then "
          f"`kubectl apply -k {options.out}`")
    return 0


if __name__ == "__main__":
    sys.exit(main())
