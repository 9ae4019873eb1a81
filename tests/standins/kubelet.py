"""Stand-ins for a cluster's controllers and its kubelets: what makes pods of
Deployments, and runs them. Time is short here: a pod that must go is gone at
once, and no pod is watched for `minReadySeconds`."""

import base64
import copy
import hashlib
import json
import pathlib
import re
import shutil
import socket
import subprocess
import threading
import time
import uuid

import yaml

from manifests import ROOT
from standins import containers
from standins import probes
from standins.store import Refused, look, now, selected_by

REVISION = "deployment.kubernetes.io/revision"
HASH = "pod-template-hash"
NODES = ("node-1", "node-2")
MODELS = ROOT / "tests" / "data" / "digits"
MOST_RESTARTS = 3
# Of a bucket, for KServe: annotations of the Secret or the account.
WHERE = {"serving.kserve.io/s3-endpoint", "serving.kserve.io/s3-region"}


def owner_of(document):
    return {"apiVersion": document["apiVersion"], "kind": document["kind"],
            "name": document["metadata"]["name"], "controller": True,
            "uid": document["metadata"]["uid"]}


def owned_by(document, owner):
    return any(one["uid"] == owner["metadata"]["uid"] for one
               in document["metadata"].get("ownerReferences", ()))


def without_hash(template):
    template = copy.deepcopy(template)
    template["metadata"]["labels"].pop(HASH, None)
    return template


def condition(kind, true, reason="", message=""):
    return {"type": kind, "status": "True" if true else "False",
            "reason": reason, "message": message, "lastTransitionTime": now(),
            "lastUpdateTime": now()}


class NotYet(Exception):
    """A container cannot be made: the reason that its state says, and why."""

    def __init__(self, reason, why):
        super().__init__(why)
        self.reason = reason


class Pod:
    """One that runs, on threads of its own."""

    def __init__(self, kubelet, document):
        self.kubelet = kubelet
        self.namespace = document["metadata"]["namespace"]
        self.name = document["metadata"]["name"]
        self.spec = document["spec"]
        self.labels = document["metadata"].get("labels", {})
        self.folder = pathlib.Path(
            kubelet.folder, "p", document["metadata"]["uid"][:6])
        # Of the same pod, before the cluster was restored.
        shutil.rmtree(self.folder, ignore_errors=True)
        self.container = None
        self.ended = False
        self.ready = False
        self.restarts = 0
        self.last = None
        self.waiting = "ContainerCreating"
        self.unhealthy = None  # what the probe says that failed last
        self.init_logs = {}
        threading.Thread(target=self.run, daemon=True).start()

    @property
    def main(self):
        return self.spec["containers"][0]

    def run(self):
        try:
            volumes = self.make_volumes()
            for one in self.spec.get("initContainers", ()):
                self.run_init(one, volumes)
            while not self.ended and self.restarts <= MOST_RESTARTS:
                self.run_once(volumes)
                if self.spec.get("restartPolicy") == "Never":
                    return
            self.waiting = "CrashLoopBackOff"
        except NotYet as why:
            self.waiting = why.reason
            self.kubelet.event(self, why.reason, str(why), "Warning")
        self.tell()

    def run_once(self, volumes):
        log = self.folder / "log"
        container = self.make(self.main, volumes)
        if self.ended:
            return
        container.start()
        self.container, self.waiting = container, None
        self.kubelet.event(self, "Started",
                           f"Started container {self.main['name']}")
        self.tell()
        threading.Thread(target=self.wait_until_ready, args=(container,),
                         daemon=True).start()
        code = container.wait()
        if self.ended:
            return
        self.ready = False
        self.restarts += 1
        self.last = {"exitCode": code, "finishedAt": now(), "startedAt": now(),
                     "reason": "Completed" if code == 0 else "Error",
                     "containerID": "containerd://0"}
        log.replace(self.folder / "previous")

    def wait_until_ready(self, container):
        """Asks what its probes ask: whether it has started; then, once, whether
        it lives, and ends it otherwise; then whether it is ready."""
        def ask(kind):
            spec = self.main.get(f"{kind}Probe")
            if not spec or not self.runs_server(container):
                return True
            why = probes.failure(spec, container.address,
                                 self.main.get("ports", ()))
            if why:
                self.unhealthy = f"{kind.capitalize()} probe failed: {why}"
            return not why

        def wait_for(kind):
            while not ask(kind):
                if container.process.poll() is not None:
                    return False
                time.sleep(0.03)
            return True

        if not wait_for("startup"):
            return
        tries = self.main.get("livenessProbe", {}).get("failureThreshold", 3)
        if not any(ask("liveness") for _ in range(tries)):
            if container.process.poll() is None:
                self.kubelet.event(self, "Unhealthy", self.unhealthy, "Warning")
                container.kill()
        elif wait_for("readiness") and container.process.poll() is None:
            self.unhealthy = None
            self.ready = True
            self.tell()

    @staticmethod
    def runs_server(container):
        return container.words[0].endswith("weir-server")

    def make(self, spec, volumes):
        image = self.kubelet.registry.get(spec["image"])
        if image is None:
            raise NotYet("ImagePullBackOff", f"Failed to pull image "
                         f"\"{spec['image']}\": not found")
        environment = self.environment(spec)
        arguments = spec.get("args")
        if arguments is not None:
            arguments = [re.sub(
                r"\$\((\w+)\)", lambda one: environment.get(one[1], one[0]),
                argument) for argument in arguments]
        container = containers.Container(
            self.folder, image, {mount["mountPath"]: volumes[mount["name"]]
                                 for mount in spec.get("volumeMounts", ())},
            environment, arguments, spec.get("command"))
        context = {**self.spec.get("securityContext", {}),
                   **spec.get("securityContext", {})}
        user = str(context.get("runAsUser", image["user"])).split(":")[0]
        if context.get("runAsNonRoot") and user in ("root", "0"):
            raise NotYet("CreateContainerConfigError", "container has "
                         "runAsNonRoot and image will run as root")
        return container

    def environment(self, spec):
        made = {}
        if self.spec.get("enableServiceLinks", True):
            for service in self.kubelet.store.list("services", self.namespace):
                name = service["metadata"]["name"].upper().replace("-", "_")
                made[f"{name}_PORT"] = "tcp://10.96.0.1:8001"
        for source in spec.get("envFrom", ()):
            if "configMapRef" in source:
                made.update(self.find("configmaps", source["configMapRef"]))
            else:
                made.update(self.find("secrets", source["secretRef"]))
        for variable in spec.get("env", ()):
            made[variable["name"]] = variable.get("value", "")
        return made

    def find(self, plural, reference, name="name"):
        """The text that a ConfigMap or a Secret holds, by key."""
        found = self.kubelet.store.find(plural, self.namespace,
                                        reference[name])
        if found is None:
            raise NotYet("CreateContainerConfigError",
                         f"{plural[:-1]} \"{reference[name]}\" not found")
        data = found.get("data", {})
        if plural == "secrets":
            return {key: base64.b64decode(value).decode()
                    for key, value in data.items()}
        return data

    def make_volumes(self):
        made = {}
        for volume in self.spec.get("volumes", ()):
            folder = self.folder / volume["name"]
            if "persistentVolumeClaim" in volume:
                claim = volume["persistentVolumeClaim"]["claimName"]
                if not self.kubelet.store.find("persistentvolumeclaims",
                                               self.namespace, claim):
                    raise NotYet("Pending", "persistentvolumeclaim "
                                 f'"{claim}" not found')
                folder = self.kubelet.claims / f"{self.namespace}-{claim}"
            folder.mkdir(parents=True, exist_ok=True)
            if "secret" in volume:
                self.write(folder, self.find("secrets", volume["secret"],
                                             "secretName"),
                           volume["secret"].get("defaultMode", 0o644))
            elif "configMap" in volume:
                self.write(folder, self.find("configmaps",
                                             volume["configMap"]), 0o644)
            made[volume["name"]] = folder
        return made

    def write(self, folder, texts, mode):
        """As the kubelet does: root's, and of the pod's group, if it has one,
        which may read them; else of root's."""
        group = 0
        if self.spec.get("securityContext", {}).get("fsGroup"):
            group = containers.USER
            mode |= 0o040
        for name, text in texts.items():
            file = folder / name
            file.write_text(text, "utf-8")
            file.chmod(mode)
            if not containers.readable(file.stat(), 0, group):
                file.chmod(0)
            else:
                file.chmod(0o600)

    def run_init(self, spec, volumes):
        """rclone is the only one: it takes the models out of the bucket."""
        container = self.make(spec, volumes)
        verb, *words = container.words[1:]
        if container.words[0] != "rclone" or verb != "copy":
            raise NotYet("Init:Error", f"who is {container.words}?")
        source, target = [word for word in words if not word.startswith("-")]
        remote, _, bucket = source.partition(":")
        for name in ("TYPE", "PROVIDER", "REGION", "ACCESS_KEY_ID",
                     "SECRET_ACCESS_KEY"):
            variable = f"RCLONE_CONFIG_{remote.upper()}_{name}"
            if not container.environment.get(variable):
                raise NotYet("Init:Error", f"{variable} is not set")
        if bucket not in self.kubelet.buckets:
            raise NotYet("Init:Error", f"no such bucket: {bucket}")
        containers.copy(MODELS, pathlib.Path(container.here(target), "digits"))
        self.init_logs[spec["name"]] = "copied 1 model\n"

    def end(self):
        self.ended = True
        if self.container:
            self.container.kill()

    def tell(self):
        """Its status, to the API server."""
        if self.ended:
            return
        state = ({"waiting": {"reason": self.waiting}} if self.waiting
                 else {"running": {"startedAt": now()}})
        phase = "Pending" if self.waiting and not self.last else "Running"
        address = self.container.address if self.container else ""
        status = {
            "phase": phase, "podIP": address, "podIPs": [{"ip": address}],
            "hostIP": "127.0.0.1", "startTime": now(),
            "conditions": [condition(kind, self.ready or kind == "PodScheduled")
                           for kind in ("Initialized", "Ready",
                                        "ContainersReady", "PodScheduled")],
            "containerStatuses": [{
                "name": self.main["name"], "image": self.main["image"],
                "imageID": "", "ready": self.ready, "state": state,
                "restartCount": self.restarts, "started": self.ready,
                "lastState": {"terminated": self.last} if self.last else {}}]}
        self.kubelet.store.set_status("pods", self.namespace, self.name, status)


class Session:
    """What an exec's or a port-forward's streams do; each on the thread that
    reads the client's, or on one that reads what the client is sent."""

    def __init__(self, protocol):
        self.protocol = protocol
        self.connection = None

    def on_stream(self, stream):
        raise NotImplementedError

    def end(self):
        pass


class Exec(Session):

    def __init__(self, container, words, wanted):
        super().__init__("v4.channel.k8s.io")
        self.container = container
        self.words = words
        self.wanted = wanted | {"error"}
        self.streams = {}

    def on_stream(self, stream):
        self.streams[stream.headers["streamtype"]] = stream
        if self.wanted == set(self.streams):
            threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        error = self.streams["error"]
        try:
            process = self.container.execute(
                self.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE)
        except containers.NoProgram as why:
            self.fail(error, str(why), None)
            return
        if "stdin" in self.streams:
            self.streams["stdin"].on_data(lambda data: self.feed(process, data))
        else:
            process.stdin.close()
        pumps = [threading.Thread(target=self.pump, args=(
            getattr(process, name), self.streams.get(name)))
            for name in ("stdout", "stderr")]
        for pump in pumps:
            pump.start()
        for pump in pumps:
            pump.join()
        code = process.wait()
        if code:
            self.fail(error, f"command terminated with exit code {code}", code)
        else:
            error.write(json.dumps({"metadata": {},
                                    "status": "Success"}).encode())
            error.close()

    @staticmethod
    def feed(process, data):
        try:
            if data is None:
                process.stdin.close()
            else:
                process.stdin.write(data)
                process.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass  # It has ended.

    @staticmethod
    def pump(file, stream):
        while data := file.read1(65536):
            if stream:
                stream.write(data)
        file.close()
        if stream:
            stream.close()

    def fail(self, error, message, code):
        status = {"metadata": {}, "status": "Failure", "message": message,
                  "reason": "NonZeroExitCode" if code else "InternalError"}
        if code:
            status["details"] = {"causes": [{"reason": "ExitCode",
                                             "message": str(code)}]}
        error.write(json.dumps(status).encode())
        for stream in self.streams.values():
            stream.close()


class PortForward(Session):

    def __init__(self, address):
        super().__init__("portforward.k8s.io")
        self.address = address
        self.sockets = []

    def on_stream(self, stream):
        if stream.headers["streamtype"] == "error":
            self.error = stream
            return
        error = self.error
        try:
            way = socket.create_connection(
                (self.address, int(stream.headers["port"])))
        except OSError as why:
            error.write(str(why).encode())
            stream.close()
            error.close()
            return
        self.sockets.append(way)
        stream.on_data(lambda data: self.feed(way, data))
        threading.Thread(target=self.pump, args=(way, stream, error),
                         daemon=True).start()

    @staticmethod
    def feed(way, data):
        try:
            if data is None:
                way.shutdown(socket.SHUT_WR)
            else:
                way.sendall(data)
        except OSError:
            pass  # The server closed it.

    @staticmethod
    def pump(way, stream, error):
        try:
            while data := way.recv(65536):
                stream.write(data)
        except OSError:
            pass
        stream.close()
        error.close()

    def end(self):
        for way in self.sockets:
            way.close()


class Kubelet:
    """The controllers and the kubelets of all nodes, until it is closed. Keeps
    volumes in a folder, and pulls images from a registry."""

    def __init__(self, store, registry, folder, buckets):
        self.store = store
        self.registry = registry
        self.folder = pathlib.Path(folder)
        self.claims = self.folder / "claims"
        self.claims.mkdir()
        self.buckets = buckets
        self.pods = {}
        self.refused = {}  # by ReplicaSet: why its pods are not let in
        self.ended = False
        self.seen = -1  # the store's last change, when all was seen to
        for name in NODES:
            store.create("nodes", {
                "metadata": {"name": name, "labels": {
                    "kubernetes.io/arch": "amd64",
                    "kubernetes.io/hostname": name}}, "spec": {}})
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while True:
            with self.store.changed:
                self.store.changed.wait_for(
                    lambda: self.ended or self.store.number != self.seen)
                if self.ended:
                    return
                self.seen = self.store.number
                self.sync()
                self.store.changed.notify_all()

    def close(self):
        with self.store.changed:
            self.ended = True
            self.store.changed.notify_all()
        self.thread.join()
        for pod in self.pods.values():
            pod.end()

    def sync(self):
        for scaler in self.store.list("scaledobjects"):
            self.sync_scaled_object(scaler)
        for scaler in self.store.list("horizontalpodautoscalers"):
            self.sync_autoscaler(scaler)
        for service in self.store.list("inferenceservices"):
            self.sync_inference_service(service)
        for deployment in self.store.list("deployments"):
            self.sync_deployment(deployment)
        for service in self.store.list("services"):
            self.sync_service(service)
        self.sync_pods()

    def create(self, plural, document):
        try:
            self.store.create(plural, document,
                              document["metadata"].get("namespace"),
                              strict=False)
        except Refused as why:
            if why.status["reason"] != "AlreadyExists":
                raise

    def sync_scaled_object(self, scaler):
        """KEDA's operator."""
        spec = scaler["spec"]
        aim = spec["scaleTargetRef"]
        self.create("horizontalpodautoscalers", {
            "metadata": {"name": f"keda-hpa-{scaler['metadata']['name']}",
                         "namespace": scaler["metadata"]["namespace"],
                         "ownerReferences": [owner_of(scaler)]},
            "spec": {"scaleTargetRef": aim,
                     "minReplicas": spec["minReplicaCount"],
                     "maxReplicas": spec["maxReplicaCount"]}})

    def sync_autoscaler(self, scaler):
        """Without a load: sees to the minimum. Two of one workload do
        nothing, and say so."""
        namespace = scaler["metadata"]["namespace"]
        aim = scaler["spec"]["scaleTargetRef"]["name"]
        rivals = [other for other
                  in self.store.list("horizontalpodautoscalers", namespace)
                  if other["spec"]["scaleTargetRef"]["name"] == aim]
        target = self.store.find("deployments", namespace, aim)
        able = len(rivals) == 1
        count = look(target, "spec.replicas") or 0
        if target and able and count < scaler["spec"]["minReplicas"]:
            count = scaler["spec"]["minReplicas"]
            self.store.replace("deployments", namespace, aim, lambda old: {
                **old, "spec": {**old["spec"], "replicas": count}})
        old = scaler.get("status", {})
        if (old.get("desiredReplicas") == count
                and (old["conditions"][0]["status"] == "True") == able):
            return
        self.store.set_status(
            "horizontalpodautoscalers", namespace, scaler["metadata"]["name"],
            {"currentReplicas": count, "desiredReplicas": count,
             "conditions": [condition(
                 "ScalingActive", able,
                 "ValidMetricFound" if able else "AmbiguousSelector")]})

    def sync_inference_service(self, service):
        """KServe, in its mode RawDeployment."""
        metadata = service["metadata"]
        predictor = service["spec"]["predictor"]
        model = predictor["model"]
        runtime = self.store.find("clusterservingruntimes", None,
                                  model["runtime"])
        bucket = model["storageUri"].removeprefix("s3://")
        if (runtime is None or bucket not in self.buckets
                or not self.may_read(metadata["namespace"], predictor)):
            self.set_ready(service, False)
            return
        claim = f"{metadata['name']}-bucket"
        folder = self.claims / f"{metadata['namespace']}-{claim}"
        if not folder.exists():
            containers.copy(MODELS, folder / "digits")
        self.create("persistentvolumeclaims", {
            "metadata": {"name": claim, "namespace": metadata["namespace"],
                         "ownerReferences": [owner_of(service)]},
            "spec": {"accessModes": ["ReadWriteMany"]}})
        [container] = copy.deepcopy(runtime["spec"]["containers"])
        container["volumeMounts"] = [{"name": "models",
                                      "mountPath": "/mnt/models"}]
        name = f"{metadata['name']}-predictor"
        account = predictor.get("serviceAccountName")
        labels = {**runtime["spec"].get("labels", {}), "app": name}
        self.create("deployments", {
            "metadata": {"name": name, "namespace": metadata["namespace"],
                         "ownerReferences": [owner_of(service)]},
            "spec": {"replicas": predictor["minReplicas"],
                     "selector": {"matchLabels": {"app": name}},
                     "template": {"metadata": {"labels": labels}, "spec": {
                         **({"serviceAccountName": account} if account else {}),
                         "containers": [container],
                         "volumes": [{"name": "models",
                                      "persistentVolumeClaim": {
                                          "claimName": claim}}],
                         "nodeSelector": runtime["spec"]["nodeSelector"]}}}})
        made = self.store.get("deployments", metadata["namespace"], name)
        ready = look(made, "status.readyReplicas") == predictor["minReplicas"]
        self.set_ready(service, ready)

    def set_ready(self, service, ready):
        """Of an InferenceService."""
        if ready != (look(service, "status.ready") or False):
            self.store.set_status(
                "inferenceservices", service["metadata"]["namespace"],
                service["metadata"]["name"],
                {"ready": ready, "conditions": [condition("Ready", ready)]})

    def may_read(self, namespace, predictor):
        """Whether the account that it names, if it names one, may read the
        bucket: by the Secrets that it lists, or else by a role; and knows where
        it is."""
        name = predictor.get("serviceAccountName")
        if name is None:
            return True
        account = self.store.find("serviceaccounts", namespace, name) or {}
        if account.get("secrets"):
            return any(self.has_keys(self.store.find(
                "secrets", namespace, one["name"]))
                for one in account["secrets"])
        about = look(account, "metadata.annotations") or {}
        return "eks.amazonaws.com/role-arn" in about and WHERE <= set(about)

    @staticmethod
    def has_keys(secret):
        return all((look(secret, "data") or {}).get(f"AWS_{key}") for key in (
            "ACCESS_KEY_ID", "SECRET_ACCESS_KEY")) and WHERE <= set(
                look(secret, "metadata.annotations") or {})

    def sync_deployment(self, deployment):
        metadata, spec = deployment["metadata"], deployment["spec"]
        namespace = metadata["namespace"]
        sets = [one for one in self.store.list("replicasets", namespace)
                if owned_by(one, deployment)]
        newest = max((int(one["metadata"]["annotations"][REVISION])
                      for one in sets), default=0)
        current = None
        for one in sets:
            if without_hash(one["spec"]["template"]) == spec["template"]:
                current = one
        if current is None:
            newest += 1
            current = self.make_set(deployment, newest)
        elif int(current["metadata"]["annotations"][REVISION]) < newest:
            newest += 1
            current = self.store.replace(
                "replicasets", namespace, current["metadata"]["name"],
                lambda old: {**old, "metadata": {
                    **old["metadata"], "annotations": {
                        **old["metadata"]["annotations"],
                        REVISION: str(newest)}}})
        if metadata.get("annotations", {}).get(REVISION) != str(newest):
            self.store.replace(
                "deployments", namespace, metadata["name"],
                lambda old: {**old, "metadata": {
                    **old["metadata"], "annotations": {
                        **old["metadata"].get("annotations", {}),
                        REVISION: str(newest)}}})
        pods = self.sync_set(current, spec["replicas"])
        ready = sum(map(self.is_ready, pods))
        others = [one for one in sets
                  if one["metadata"]["name"] != current["metadata"]["name"]]
        old = [pod for one in others
               for pod in self.sync_set(one, None)]
        if ready == spec["replicas"]:
            for one in others:
                self.sync_set(one, 0)
            old = []
        total = len(pods) + len(old)
        status = {"observedGeneration": self.store.get(
                      "deployments", namespace,
                      metadata["name"])["metadata"]["generation"],
                  "replicas": total, "updatedReplicas": len(pods),
                  "readyReplicas": ready + len(old),
                  "availableReplicas": ready + len(old),
                  "unavailableReplicas": len(pods) - ready}
        old = deployment.get("status", {})
        before = {field: value for field, value in old.items()
                  if field != "conditions"}
        failure = self.refused.get(current["metadata"]["uid"])
        if before != status or failure != next(
                (one["message"] for one in old.get("conditions", ())
                 if one["type"] == "ReplicaFailure"), None):
            done = ready == spec["replicas"]
            self.store.set_status(
                "deployments", namespace, metadata["name"], {
                    **status, "conditions": [
                        condition("Available", done, "MinimumReplicas"),
                        condition("Progressing", True,
                                  "NewReplicaSetAvailable" if done
                                  else "ReplicaSetUpdated"),
                        *([condition("ReplicaFailure", True, "FailedCreate",
                                     failure)] if failure else [])]})

    def make_set(self, deployment, revision):
        metadata = deployment["metadata"]
        template = copy.deepcopy(deployment["spec"]["template"])
        name = hashlib.sha256(json.dumps(
            template, sort_keys=True).encode()).hexdigest()[:10]
        template["metadata"]["labels"][HASH] = name
        selector = copy.deepcopy(deployment["spec"]["selector"])
        selector["matchLabels"][HASH] = name
        return self.store.create("replicasets", {
            "metadata": {"name": f"{metadata['name']}-{name}",
                         "namespace": metadata["namespace"],
                         "labels": template["metadata"]["labels"],
                         "annotations": {REVISION: str(revision)},
                         "ownerReferences": [owner_of(deployment)]},
            "spec": {"replicas": deployment["spec"]["replicas"],
                     "selector": selector, "template": template}},
            metadata["namespace"])

    def sync_set(self, one, count):
        """Sees to so many pods, unless count is None; returns them."""
        namespace = one["metadata"]["namespace"]
        pods = [pod for pod in self.store.list("pods", namespace)
                if owned_by(pod, one)]
        if count is None:
            return pods
        if one["spec"]["replicas"] != count:
            self.store.replace(
                "replicasets", namespace, one["metadata"]["name"],
                lambda old: {**old, "spec": {**old["spec"], "replicas": count}})
        for pod in pods[count:]:
            self.delete(pod)
        template = one["spec"]["template"]
        self.refused.pop(one["metadata"]["uid"], None)
        for _ in range(count - len(pods)):
            name = f"{one['metadata']['name']}-{uuid.uuid4().hex[:5]}"
            try:
                pods.append(self.store.create("pods", {
                    "metadata": {**template["metadata"], "name": name,
                                 "namespace": namespace,
                                 "ownerReferences": [owner_of(one)]},
                    "spec": copy.deepcopy(template["spec"])}, namespace))
            except Refused as why:
                # Without what is another's each time.
                self.refused[one["metadata"]["uid"]] = str(why).replace(
                    name, one["metadata"]["name"])
                break
        return pods[:count]

    @staticmethod
    def is_ready(pod):
        return any(one["type"] == "Ready" and one["status"] == "True"
                   for one in look(pod, "status.conditions") or ())

    def sync_service(self, service):
        """The names and addresses of its pods that are ready."""
        selector = look(service, "spec.selector")
        if not selector:
            return
        metadata = service["metadata"]
        namespace, name = metadata["namespace"], f"{metadata['name']}-slice"
        wanted = [{"addresses": [pod["status"]["podIP"]], "targetRef": {
            "kind": "Pod", "name": pod["metadata"]["name"],
            "namespace": namespace}} for pod
            in self.store.list("pods", namespace) if self.is_ready(pod)
            and selected_by(selector, pod["metadata"].get("labels", {}))]
        found = self.store.find("endpointslices", namespace, name)
        if found is None:
            self.create("endpointslices", {
                "metadata": {"name": name, "namespace": namespace,
                             "ownerReferences": [owner_of(service)],
                             "labels": {**metadata.get("labels", {}),
                                        "kubernetes.io/service-name":
                                        metadata["name"]}},
                "addressType": "IPv4", "endpoints": wanted})
        elif found["endpoints"] != wanted:
            self.store.replace("endpointslices", namespace, name,
                               lambda old: {**old, "endpoints": wanted})

    def sync_pods(self):
        there = {pod["metadata"]["uid"]: pod
                 for pod in self.store.list("pods")}
        for uid in set(self.pods) - set(there):
            self.pods.pop(uid).end()
        for uid, pod in there.items():
            running = self.pods.get(uid)
            if running and running.waiting in (
                    "Pending", "CreateContainerConfigError",
                    "ImagePullBackOff") and self.objects_of(
                        pod) != running.objects:
                running.end()
                running = None
            if running is None and self.schedule(pod):
                self.pods[uid] = Pod(self, self.store.get(
                    "pods", pod["metadata"]["namespace"],
                    pod["metadata"]["name"]))
                self.pods[uid].objects = self.objects_of(pod)

    def objects_of(self, pod):
        """What a pod that waits may wait for: it is tried again when more of
        these are there."""
        namespace = pod["metadata"]["namespace"]
        return {(plural, one["metadata"]["name"]) for plural
                in ("configmaps", "secrets", "persistentvolumeclaims")
                for one in self.store.list(plural, namespace)}

    def schedule(self, pod):
        """Gives it a node; False as long as there is none for it."""
        if pod["spec"].get("nodeName"):
            return True
        selector = pod["spec"].get("nodeSelector", {})
        asked = {name for container in pod["spec"]["containers"]
                 for name in look(container, "resources.limits") or ()}
        counts = {node["metadata"]["name"]: sum(
            one["spec"].get("nodeName") == node["metadata"]["name"]
            for one in self.store.list("pods"))
            for node in self.store.list("nodes")
            if not node["spec"].get("unschedulable")
            and selected_by(selector, node["metadata"]["labels"])
            and asked <= {"cpu", "memory", "ephemeral-storage"}}
        if not counts:
            return False
        self.store.replace(
            "pods", pod["metadata"]["namespace"], pod["metadata"]["name"],
            lambda old: {**old, "spec": {**old["spec"], "nodeName":
                                         min(counts, key=counts.get)}})
        return True

    def event(self, pod, reason, message, kind="Normal"):
        """Told of a pod."""
        try:
            self.store.create("events", {
                "metadata": {"generateName": f"{pod.name}.",
                             "namespace": pod.namespace},
                "involvedObject": {"kind": "Pod", "name": pod.name,
                                   "namespace": pod.namespace},
                "reason": reason, "message": message, "type": kind,
                "firstTimestamp": now(), "lastTimestamp": now(), "count": 1,
                "source": {"component": "kubelet"}}, pod.namespace)
        except Refused:
            pass  # Its namespace is gone.

    def running(self, document):
        pod = self.pods.get(document["metadata"]["uid"])
        if pod is None or pod.container is None:
            raise Refused(400, "BadRequest", "pod "
                          f"{document['metadata']['name']} does not have a "
                          "host assigned" if pod is None else
                          f"container \"{pod.main['name']}\" in pod "
                          f'"{pod.name}" is waiting to start: {pod.waiting}')
        return pod

    def log(self, document, name, previous):
        pod = self.running(document)
        if name in pod.init_logs:
            return pod.init_logs[name]
        if name not in (None, pod.main["name"]):
            raise Refused(400, "BadRequest", f"container {name} is not valid "
                          f"for pod {pod.name}")
        file = pod.folder / ("previous" if previous else "log")
        if not file.exists():
            raise Refused(400, "BadRequest", "previous terminated container "
                          f"\"{pod.main['name']}\" in pod \"{pod.name}\" "
                          "not found")
        return file.read_text("utf-8")

    def session(self, document, sub, query, many):
        pod = self.running(document)
        if sub == "portforward":
            return PortForward(pod.container.address)
        if query.get("container", pod.main["name"]) != pod.main["name"]:
            raise Refused(400, "BadRequest", f"container {query['container']} "
                          f"is not valid for pod {pod.name}")
        return Exec(pod.container, many["command"],
                    {name for name in ("stdin", "stdout", "stderr")
                     if query.get(name) in ("true", "1")})

    def delete(self, document):
        with self.store.changed:
            metadata = document["metadata"]
            self.store.delete("pods", metadata["namespace"], metadata["name"])
            pod = self.pods.pop(metadata["uid"], None)
        if pod:
            pod.end()

    def evict(self, document):
        """Unless a disruption budget forbids it."""
        metadata = document["metadata"]
        with self.store.changed:
            for budget in self.store.list("poddisruptionbudgets",
                                          metadata["namespace"]):
                selector = budget["spec"]["selector"]["matchLabels"]
                down = sum(not self.is_ready(pod) for pod in self.store.list(
                    "pods", metadata["namespace"]) if selected_by(
                        selector, pod["metadata"].get("labels", {})))
                if (selected_by(selector, metadata.get("labels", {}))
                        and down >= budget["spec"]["maxUnavailable"]):
                    raise Refused(429, "TooManyRequests", "Cannot evict pod as "
                                  "it would violate the pod's disruption "
                                  "budget.")
            self.delete(document)

    def adapter_values(self):
        """What prometheus-adapter was installed with."""
        for config in self.store.list("configmaps"):
            if config["metadata"]["name"] == "prometheus-adapter":
                rules = yaml.safe_load(config["data"]["config.yaml"])
                return {"rules": {"custom": rules["rules"]}}
        raise Refused(404, "NotFound",
                      "the server could not find the requested resource")

    def save(self, folder):
        shutil.copytree(self.claims, folder)
        return self.store.save()

    def restore(self, objects, folder):
        """As it was when it was saved; what no longer runs starts anew."""
        with self.store.changed:
            objects = copy.deepcopy(objects)
            for key, document in objects.items():
                if key[1] != "pods":
                    continue
                document.pop("status", None)
                if document["metadata"]["uid"] in self.pods:
                    document["status"] = self.store.objects[key].get("status")
            shutil.rmtree(self.claims)
            shutil.copytree(folder, self.claims)
            self.store.restore(objects)
