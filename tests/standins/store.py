"""What an API server of Kubernetes keeps, and what it refuses to keep: objects
of kinds, checked as kubectl's `--validate=strict` has them checked."""

import copy
import datetime
import itertools
import re
import threading
import uuid

import jsonschema
import yaml

import kinds
from standins import pod_security
from standins import validation

# group/version: plural, kind, in a namespace, short name.
BUILT_IN = """
v1              namespaces               Namespace                -  ns
v1              nodes                    Node                     -  no
v1              pods                     Pod                      +  po
v1              services                 Service                  +  svc
v1              configmaps               ConfigMap                +  cm
v1              secrets                  Secret                   +  -
v1              events                   Event                    +  ev
v1              serviceaccounts          ServiceAccount           +  sa
v1              persistentvolumeclaims   PersistentVolumeClaim    +  pvc
apps/v1         deployments              Deployment               +  deploy
apps/v1         replicasets              ReplicaSet               +  rs
apps/v1         daemonsets               DaemonSet                +  ds
autoscaling/v2  horizontalpodautoscalers HorizontalPodAutoscaler  +  hpa
policy/v1       poddisruptionbudgets     PodDisruptionBudget      +  pdb
networking.k8s.io/v1       networkpolicies  NetworkPolicy         +  netpol
discovery.k8s.io/v1        endpointslices   EndpointSlice         +  -
coordination.k8s.io/v1     leases           Lease                 +  -
monitoring.coreos.com/v1   podmonitors      PodMonitor            +  pmon
cert-manager.io/v1         certificates         Certificate         +  cert
cert-manager.io/v1         certificaterequests  CertificateRequest  +  cr
metrics.k8s.io/v1beta1     pods             PodMetrics            +  -
metrics.k8s.io/v1beta1     nodes            NodeMetrics           -  -
"""
SUBRESOURCES = {"pods": ("log", "exec", "portforward", "eviction"),
                "deployments": ("scale",)}
# By which fields lists may be narrowed, besides an object's name.
SELECTABLE = {
    "pods": {"spec.nodeName", "spec.restartPolicy", "status.phase",
             "status.podIP"},
    "events": {f"involvedObject.{field}" for field in (
        "kind", "namespace", "name", "uid", "apiVersion", "resourceVersion",
        "fieldPath")} | {"reason", "type", "source"},
    "secrets": {"type"}, "namespaces": {"status.phase"},
    "nodes": {"spec.unschedulable"}, "replicasets": {"status.replicas"}}
# What is once and for all, by kind.
IMMUTABLE = {"Deployment": ("spec.selector",), "Secret": ("type",),
             "Service": ("spec.clusterIP",),
             "ReplicaSet": ("spec.selector",),
             "PersistentVolumeClaim": (
                 "spec.accessModes", "spec.storageClassName",
                 "spec.volumeName", "spec.selector", "spec.volumeMode"),
             "Pod": ("spec.nodeName", "spec.volumes", "spec.securityContext",
                     "spec.restartPolicy", "spec.serviceAccountName")}
# How lists of objects are merged: by which field.
MERGE_KEYS = {"containers": "name", "initContainers": "name", "env": "name",
              "volumes": "name", "imagePullSecrets": "name",
              "secrets": "name",
              "volumeMounts": "mountPath", "ownerReferences": "uid",
              "conditions": "type", "topologySpreadConstraints": "topologyKey"}


class Refused(Exception):
    """What the API server answers instead."""

    def __init__(self, code, reason, message, details=None):
        super().__init__(message)
        self.status = {"kind": "Status", "apiVersion": "v1", "metadata": {},
                       "status": "Failure", "message": message,
                       "reason": reason, "code": code,
                       **({"details": details} if details else {})}


class Resource:

    def __init__(self, version, plural, kind, namespaced, short=None):
        self.version = version
        self.group = version.rpartition("/")[0]
        self.plural = plural
        self.kind = kind
        self.namespaced = namespaced
        self.short = short
        self.title = plural + (f".{self.group}" if self.group else "")

    def not_found(self, name):
        return Refused(404, "NotFound", f'{self.title} "{name}" not found',
                       {"name": name, "group": self.group, "kind": self.plural})

    def key(self, namespace, name):
        return self.group, self.plural, namespace or "", name


def resources():
    found = []
    for row in BUILT_IN.strip().splitlines():
        version, plural, kind, namespaced, short = row.split()
        found.append(Resource(version, plural, kind, namespaced == "+",
                              None if short == "-" else short))
    known = {(one.version, one.kind) for one in found}
    for name in yaml.safe_load(kinds.CUSTOM_KINDS.read_text("utf-8")):
        version, kind = name.split()
        if (version, kind) not in known:
            plural = re.sub("ys$", "ies", kind.lower() + "s")
            found.append(Resource(version, plural, kind,
                                  not kind.startswith("Cluster")))
    return found


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime(
        "%Y-%m-%dT%H:%M:%SZ")


def look(document, path):
    for part in path.split("."):
        document = (document or {}).get(part)
    return document


def labels_match(selector, labels):
    """Of a list's `labelSelector`."""
    for term in re.split(r",(?![^(]*\))", selector):
        if found := re.fullmatch(r"\s*([^\s!=]+)\s*(=|==|!=)\s*(\S*)\s*", term):
            name, relation, value = found.groups()
            if (labels.get(name) == value) == (relation == "!="):
                return False
        elif found := re.fullmatch(r"\s*(\S+) (in|notin) \((.*)\)\s*", term):
            name, relation, values = found.groups()
            if (labels.get(name) in values.split(",")) == (relation == "notin"):
                return False
        elif term and (term.strip("! ") in labels) == term.startswith("!"):
            return False
    return True


def selected_by(selector, labels):
    """Of an object's `matchLabels`, or a Service's `selector`."""
    return all(labels.get(name) == value for name, value in selector.items())


def merge(live, patch):
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    live = dict(live) if isinstance(live, dict) else {}
    for name, value in patch.items():
        if value is None:
            live.pop(name, None)
        else:
            live[name] = merge(live.get(name), value)
    return live


def merge_key(name, items):
    if name == "ports":
        return "containerPort" if "containerPort" in items[0] else "port"
    return MERGE_KEYS.get(name)


def merge_lists(name, live, patch):
    """Of a strategic merge patch."""
    if not patch or not isinstance(patch[0], dict):
        return patch
    key = merge_key(name, patch)
    if key is None:
        return patch
    made = {item[key]: item for item in live}
    for item in patch:
        if item.get("$patch") == "delete":
            made.pop(item[key], None)
        elif "$patch" not in item:
            made[item[key]] = strategic(made.get(item[key], {}), item)
    return list(made.values())


def strategic(live, patch):
    """Kubernetes' own patch: lists of objects are merged by a field."""
    if patch.get("$patch") == "replace":
        return {name: value for name, value in patch.items()
                if name != "$patch"}
    live = dict(live)
    if "$retainKeys" in patch:
        live = {name: value for name, value in live.items()
                if name in patch["$retainKeys"]}
    orders = {}
    for name, value in patch.items():
        if name.startswith("$setElementOrder/"):
            orders[name.partition("/")[2]] = value
        elif name.startswith("$deleteFromPrimitiveList/"):
            field = name.partition("/")[2]
            live[field] = [item for item in live.get(field, [])
                           if item not in value]
        elif name.startswith("$"):
            continue
        elif value is None:
            live.pop(name, None)
        elif isinstance(value, dict):
            live[name] = strategic(live.get(name) or {}, value)
        elif isinstance(value, list):
            live[name] = merge_lists(name, live.get(name) or [], value)
        else:
            live[name] = value
    for name, order in orders.items():
        if name in live and order and isinstance(order[0], dict):
            [key] = order[0]
            places = {item[key]: at for at, item in enumerate(order)}
            live[name] = sorted(live[name],
                                key=lambda item: places.get(item[key], 1e9))
    return live


def json_patch(live, steps):
    """RFC 6902, as far as kubectl uses it."""
    live = copy.deepcopy(live)
    for step in steps:
        *path, last = [part.replace("~1", "/").replace("~0", "~")
                       for part in step["path"].split("/")[1:]]
        at = live
        for part in path:
            at = at[int(part)] if isinstance(at, list) else at[part]
        if step["op"] == "remove":
            del at[last]
        elif step["op"] in ("add", "replace"):
            at[last] = step["value"]
        elif step["op"] != "test" or at[last] != step["value"]:
            raise Refused(422, "Invalid", f"the patch's {step['path']}")
    return live


def without_nulls(value):
    """A field that is null is not there."""
    if isinstance(value, dict):
        return {name: without_nulls(one) for name, one in value.items()
                if one is not None}
    if isinstance(value, list):
        return [without_nulls(one) for one in value]
    return value


class Store:
    """The objects. Every change has a number and is kept for watches; `changed`
    is the lock and tells of each."""

    def __init__(self, version):
        self.checker = kinds.Checker(version)
        self.resources = resources()
        self.objects = {}
        self.changes = []
        self.changed = threading.Condition(threading.RLock())
        self.numbers = itertools.count(1)
        self.number = 0
        for name in ("default", "kube-system", "kube-public"):
            self.create("namespaces", {"metadata": {"name": name}})

    def resource(self, plural, group=None):
        for one in self.resources:
            if one.plural == plural and group in (None, one.group):
                return one
        raise KeyError(plural)

    def record(self, kind, key, document):
        self.number = next(self.numbers)
        document["metadata"]["resourceVersion"] = str(self.number)
        self.changes.append((self.number, kind, key, copy.deepcopy(document)))
        self.changed.notify_all()

    def get(self, plural, namespace, name, group=None):
        resource = self.resource(plural, group)
        with self.changed:
            try:
                return self.objects[resource.key(namespace, name)]
            except KeyError:
                raise resource.not_found(name) from None

    def find(self, plural, namespace, name):
        try:
            return self.get(plural, namespace, name)
        except Refused:
            return None

    def list(self, plural, namespace=None, group=None):
        resource = self.resource(plural, group)
        with self.changed:
            return [document for key, document in self.objects.items()
                    if key[:2] == (resource.group, plural)
                    and namespace in (None, key[2])]

    def check(self, resource, document, strict=True):
        """Raises Refused if a cluster would not take it."""
        name = document["metadata"].get("name", "")
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", name):
            raise Refused(422, "Invalid", f'{resource.kind} "{name}" is '
                          "invalid: metadata.name: Invalid value")
        if resource.group == "cert-manager.io":
            return  # Of these no page has a reader make one.
        seen = {field: value for field, value in document.items()
                if field != "status"}
        seen["metadata"] = {field: value for field, value
                            in document["metadata"].items()
                            if field != "managedFields"}
        try:
            self.checker.check(seen)
        except jsonschema.ValidationError as why:
            if not strict and "unexpected" in why.message:
                return
            raise Refused(
                400, "BadRequest", f"{resource.kind} in version "
                f'"{resource.version}" cannot be handled as a '
                f"{resource.kind}: strict decoding error: "
                f"{'.'.join(map(str, why.path))}: {why.message}") from None
        if found := ", ".join(validation.faults(document)):
            raise Refused(422, "Invalid", f'{resource.kind} "{name}" is '
                          f"invalid: {found}")

    def create(self, plural, document, namespace=None, dry=False, group=None,
               strict=True):
        resource = self.resource(plural, group)
        document = without_nulls(copy.deepcopy(document))
        document.setdefault("apiVersion", resource.version)
        document.setdefault("kind", resource.kind)
        if (document["apiVersion"], document["kind"]) != (
                resource.version, resource.kind):
            raise Refused(400, "BadRequest", f"{document['kind']} in the place "
                          f"of {resource.kind}")
        metadata = document.setdefault("metadata", {})
        if "generateName" in metadata and "name" not in metadata:
            metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
        if resource.namespaced:
            if metadata.setdefault("namespace", namespace) != namespace:
                raise Refused(400, "BadRequest", "the namespace of the "
                              "provided object does not match the namespace "
                              "sent on the request")
        with self.changed:
            if resource.namespaced:
                self.get("namespaces", None, namespace)
            self.check(resource, document, strict)
            key = resource.key(namespace, metadata["name"])
            if key in self.objects:
                raise Refused(409, "AlreadyExists", f'{resource.title} '
                              f'"{metadata["name"]}" already exists',
                              {"name": metadata["name"],
                               "group": resource.group,
                               "kind": resource.plural})
            self.admit(resource, document)
            metadata.update(uid=str(uuid.uuid4()), creationTimestamp=now(),
                            generation=1)
            self.fill(resource, document)
            if not dry:
                self.objects[key] = document
                self.record("ADDED", key, document)
            return document

    def fill(self, resource, document):
        """Some of what the API server itself sets."""
        metadata, spec = document["metadata"], document.get("spec", {})
        if resource.kind == "Namespace":
            metadata.setdefault("labels", {})[
                "kubernetes.io/metadata.name"] = metadata["name"]
            document["status"] = {"phase": "Active"}
        elif resource.kind == "Deployment":
            spec.setdefault("replicas", 1)
        elif resource.kind == "Pod":
            for one in spec["containers"]:
                for name in ("startup", "readiness", "liveness"):
                    probe = one.get(f"{name}Probe", {})
                    if "grpc" in probe:
                        probe["grpc"].setdefault("service", "")
        elif resource.kind == "Service":
            spec.setdefault("clusterIP", "10.96.0.1")
            spec.setdefault("type", "ClusterIP")
        elif resource.kind == "Secret":
            document.setdefault("type", "Opaque")
            self.check_secret(document)
        elif resource.kind == "PersistentVolumeClaim":
            document["status"] = {"phase": "Bound"}

    @staticmethod
    def check_secret(document):
        if document["type"] == "kubernetes.io/tls":
            for name in ("tls.crt", "tls.key"):
                if name not in document.get("data", {}):
                    raise Refused(422, "Invalid", f"data[{name}]: Required")

    def admit(self, resource, document):
        """Raises Refused if an admission controller, or a webhook of the kind's
        project, would not let it in."""
        if resource.kind == "Pod":
            self.admit_pod(document)
        elif resource.kind == "ScaledObject":
            self.admit_scaled_object(document)

    def admit_pod(self, document):
        """Not without its account, nor against what its namespace enforces."""
        metadata, spec = document["metadata"], document["spec"]
        namespace = metadata["namespace"]
        account = spec.get("serviceAccountName", "default")
        if account != "default" and not self.find("serviceaccounts", namespace,
                                                  account):
            raise Refused(403, "Forbidden", f'pods "{metadata["name"]}" is '
                          "forbidden: error looking up service account "
                          f'{namespace}/{account}: serviceaccount "{account}" '
                          "not found")
        labels = self.get("namespaces", None, namespace)["metadata"].get(
            "labels", {})
        if labels.get("pod-security.kubernetes.io/enforce") == "restricted":
            if found := ", ".join(pod_security.violations(spec)):
                raise Refused(403, "Forbidden", f'pods "{metadata["name"]}" is '
                              'forbidden: violates PodSecurity "restricted:'
                              f'latest": {found}')

    def admit_scaled_object(self, document):
        """Two autoscalers of one workload."""
        aim = document["spec"]["scaleTargetRef"]["name"]
        namespace = document["metadata"]["namespace"]
        for scaler in self.list("horizontalpodautoscalers", namespace):
            name = scaler["metadata"]["name"]
            if (scaler["spec"]["scaleTargetRef"]["name"] == aim
                    and not name.startswith("keda-hpa-")):
                raise Refused(403, "Forbidden", "admission webhook "
                              '"vscaledobject.kb.io" denied the request: the '
                              f"workload '{aim}' of type 'apps/v1.Deployment' "
                              f"is already managed by the hpa '{name}'")

    def replace(self, plural, namespace, name, change, dry=False, group=None,
                strict=True):
        """`change` makes the new object of the old one."""
        resource = self.resource(plural, group)
        with self.changed:
            old = self.get(plural, namespace, name, group)
            new = without_nulls(change(copy.deepcopy(old)))
            self.check(resource, new, strict)
            for path in IMMUTABLE.get(resource.kind, ()):
                if look(old, path) not in (None, look(new, path)):
                    raise Refused(422, "Invalid", f'{resource.kind} "{name}" '
                                  f"is invalid: {path}: Invalid value: field "
                                  "is immutable")
            for field in ("uid", "creationTimestamp", "generation"):
                new["metadata"][field] = old["metadata"][field]
            new["metadata"]["resourceVersion"] = (
                old["metadata"]["resourceVersion"])
            if new == old:
                return old
            if new.get("spec") != old.get("spec"):
                new["metadata"]["generation"] += 1
            if not dry:
                key = resource.key(namespace, name)
                self.objects[key] = new
                self.record("MODIFIED", key, new)
            return new

    def set_status(self, plural, namespace, name, status):
        """By a controller: only what it says changes."""
        with self.changed:
            document = self.find(plural, namespace, name)
            if document is None or document.get("status") == status:
                return
            self.objects[self.resource(plural).key(namespace, name)] = (
                document := {**document, "metadata": {**document["metadata"]},
                             "status": status})
            self.record("MODIFIED", self.resource(plural).key(namespace, name),
                        document)

    def delete(self, plural, namespace, name, group=None):
        """With what it owns."""
        resource = self.resource(plural, group)
        with self.changed:
            document = self.get(plural, namespace, name, group)
            key = resource.key(namespace, name)
            del self.objects[key]
            self.record("DELETED", key, document)
            uid = document["metadata"]["uid"]
            for other, owned in list(self.objects.items()):
                owners = owned["metadata"].get("ownerReferences", [])
                inside = plural == "namespaces" and other[2] == name
                if inside or any(owner["uid"] == uid for owner in owners):
                    if other in self.objects:
                        self.delete(other[1], other[2], other[3], other[0])
            return document

    def save(self):
        with self.changed:
            return copy.deepcopy(self.objects)

    def restore(self, objects):
        """Makes it as it was when `objects` was saved."""
        with self.changed:
            for key, document in list(self.objects.items()):
                if key not in objects:
                    del self.objects[key]
                    self.record("DELETED", key, document)
            for key, document in copy.deepcopy(objects).items():
                kind = "MODIFIED" if key in self.objects else "ADDED"
                self.objects[key] = document
                self.record(kind, key, document)
