"""What an API server refuses of an object whose fields are all there and of
their types: as far as deploy/ could get it wrong."""

import re

from manifests import quantity

TEMPLATED = ("Deployment", "ReplicaSet", "DaemonSet")
DNS = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
PREFIX = re.compile(rf"{DNS}(\.{DNS})*")
NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*")
# What Kubernetes takes where nothing is said.
PROGRESS_DEADLINE_SECONDS = 600
ROLLING = {"maxSurge": "25%", "maxUnavailable": "25%"}


def faults(document):
    """Yields what it has against it, in words."""
    metadata, spec = document["metadata"], document.get("spec", {})
    for field in ("annotations", "labels"):
        yield from of_keys(f"metadata.{field}", metadata.get(field, {}))
    if document["kind"] == "Pod":
        yield from of_pod("spec", spec)
    elif document["kind"] in TEMPLATED:
        template = spec["template"]
        yield from of_template(spec, template)
        yield from of_pod("spec.template.spec", template["spec"])
    if document["kind"] == "Deployment":
        yield from of_rollout(spec)
    if document["kind"] == "Service":
        yield from of_ports("spec.ports", spec.get("ports", ()), "port")


def of_keys(where, keys):
    for key in keys:
        prefix, _, name = key.rpartition("/")
        if not NAME.fullmatch(name):
            yield (f'{where}: Invalid value: "{key}": name part must consist '
                   "of alphanumeric characters, '-', '_' or '.', at most 63")
        if "/" in key and not PREFIX.fullmatch(prefix):
            yield (f'{where}: Invalid value: "{key}": prefix part must be a '
                   "DNS subdomain")


def of_template(spec, template):
    labels = template.get("metadata", {}).get("labels", {})
    yield from of_keys("spec.template.metadata.labels", labels)
    yield from of_keys("spec.template.metadata.annotations",
                       template.get("metadata", {}).get("annotations", {}))
    wanted = spec["selector"].get("matchLabels", {})
    if not wanted.items() <= labels.items():
        yield (f"spec.template.metadata.labels: Invalid value: {labels}: "
               "`selector` does not match template `labels`")
    policy = template["spec"].get("restartPolicy", "Always")
    if policy != "Always":
        yield ("spec.template.spec.restartPolicy: Unsupported value: "
               f'"{policy}": supported values: "Always"')


def of_rollout(spec):
    for field in ("replicas", "minReadySeconds", "revisionHistoryLimit",
                  "progressDeadlineSeconds"):
        if spec.get(field, 0) < 0:
            yield (f"spec.{field}: Invalid value: {spec[field]}: must be "
                   "greater than or equal to 0")
    ready = spec.get("minReadySeconds", 0)
    if spec.get("progressDeadlineSeconds", PROGRESS_DEADLINE_SECONDS) <= ready:
        yield ("spec.progressDeadlineSeconds: Invalid value: must be greater "
               "than minReadySeconds")
    rolling = {**ROLLING, **spec.get("strategy", {}).get("rollingUpdate", {})}
    if all(str(value) in ("0", "0%") for value in rolling.values()):
        yield ("spec.strategy.rollingUpdate.maxUnavailable: Invalid value: may "
               "not be 0 when `maxSurge` is 0")


def of_pod(where, spec):
    volumes = [volume["name"] for volume in spec.get("volumes", ())]
    for kind in ("initContainers", "containers"):
        for at, container in enumerate(spec.get(kind, ())):
            here = f"{where}.{kind}[{at}]"
            yield from of_ports(f"{here}.ports", container.get("ports", ()),
                                "containerPort")
            yield from of_mounts(f"{here}.volumeMounts",
                                 container.get("volumeMounts", ()), volumes)
            yield from of_resources(f"{here}.resources",
                                    container.get("resources", {}))
            for probe in ("livenessProbe", "startupProbe"):
                if container.get(probe, {}).get("successThreshold", 1) != 1:
                    yield (f"{here}.{probe}.successThreshold: Invalid value: "
                           "must be 1")


def of_ports(where, ports, number):
    seen = set()
    for at, port in enumerate(ports):
        name = port.get("name")
        if not 0 < port[number] < 65536:
            yield (f"{where}[{at}].{number}: Invalid value: {port[number]}: "
                   "must be between 1 and 65535, inclusive")
        if name in seen:
            yield f'{where}[{at}].name: Duplicate value: "{name}"'
        if name is None:
            continue
        seen.add(name)
        # A Service's name is longer; what it aims at is a container's.
        for field, text in (("name", name if number == "containerPort" else ""),
                            ("targetPort", port.get("targetPort", ""))):
            if isinstance(text, str) and text and (
                    len(text) > 15 or not PORT_NAME.fullmatch(text)):
                yield (f'{where}[{at}].{field}: Invalid value: "{text}": must '
                       "be no more than 15 characters of a-z, 0-9 and -")


def of_mounts(where, mounts, volumes):
    paths = set()
    for at, mount in enumerate(mounts):
        if mount["name"] not in volumes:
            yield f'{where}[{at}].name: Not found: "{mount["name"]}"'
        if mount["mountPath"] in paths:
            yield (f"{where}[{at}].mountPath: Invalid value: "
                   f'"{mount["mountPath"]}": must be unique')
        paths.add(mount["mountPath"])


def of_resources(where, resources):
    limits = resources.get("limits", {})
    for name, asked in resources.get("requests", {}).items():
        if name in limits and quantity(asked) > quantity(limits[name]):
            yield (f'{where}.requests: Invalid value: "{asked}": must be less '
                   f"than or equal to {name} limit of {limits[name]}")
        if "/" in name and quantity(asked) != quantity(limits.get(name, 0)):
            yield (f'{where}.requests: Invalid value: "{asked}": must be equal '
                   f"to {name} limit")
