#!/usr/bin/env python3
"""Follows docs/kubernetes.md, with the runbooks in it, and docs/container.md:
every command is run, as it is pasted, in a copy of the tree.

kubectl (the oldest that the manifests need, and the newest), helm, openssl,
curl and promtool are real. The cluster that they speak to is `standins`: an API
server that checks what it is sent, and pods that are weir-servers with the
arguments, environment and files that their manifests give them. docker is a
stand-in too. Only what is particular to a reader is put in: the name of a pod,
and where a port is forwarded to on this machine.
"""

import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import certificates
import kinds
import lanes
import manifests
import pages
import running
from manifests import BIN, ROOT

sys.path.append(str(ROOT / "tests"))
# pylint: disable=wrong-import-position
from standins import api_server
from standins import containers
from standins import images
from standins import kubelet
from standins import probes
from standins import store as stores
from standins import web

STANDINS = ROOT / "tests" / "standins"
FIRST = "From an image to a served model"
# What is not run here, and why.
EXCEPTIONS = {
    "promtool test rules tests/deploy/rules_test.yaml":
        "monitoring_test.py runs its tests, which take as long as the rest",
    "make image-cpu": "runs image_test.py, which takes an hour and needs root",
    "make image-cuda": "the same",
    "make test-all": "runs this",
    "weir status --probe": "the health check, of every container here",
    "make bundle": "bundle_test.py packs one, of a whole build",
    "deploy/pins.py refresh cuda":
        "asks for wheels of PyPI's; pins_test.py asks an index of its own",
    "deploy/pins.py refresh base":
        "asks Docker's registry; pins_test.py asks one of its own",
    "git pull": "takes a newer tree from wherever this one came from",
    "docker run": "a name", "kubectl apply": "a name", "kubectl cp": "a name"}
# How the commands in the text are completed; others are run as they are.
CPU_BUILD = "docker build {} --target cpu -t weir:cpu ."
COMPOSE = "deploy/kubernetes/{} --out inline --image registry.example.com/weir"
INSIDE = "kubectl -n weir exec deployment/weir -- {}"
COMPLETED = {
    "docker run --gpus all": "docker build --target cuda -t weir:cuda . && "
                             "{} --rm weir:cuda",
    "docker run --stop-timeout 35": "{} --rm weir:cpu",
    "--build-arg BASE=...": CPU_BUILD,
    '--build-arg BASE="$(deploy/pins.py base)"': CPU_BUILD,
    "docker build --pull": "{} --target cpu -t weir:cpu .",
    "docker build --no-cache --pull": "{} --target cpu -t weir:cpu .",
    "compose.py gpu": COMPOSE,
    "compose.py DEVICE AUTOSCALER tls": COMPOSE,
    "compose.py DEVICE AUTOSCALER object-storage --models BUCKET/FOLDER":
        COMPOSE,
    "compose.py DEVICE keda": COMPOSE,
    "weir load": INSIDE + " MODEL --duration 1",
    "weir devices": INSIDE,
    "kubectl -n weir rollout undo deployment/weir-envoy":
        "kubectl -n weir rollout restart deployment/weir-envoy && {}",
    "openssl x509 -noout -enddate": "{} <tls.crt"}
PLACES = {"DEVICE": "gpu", "AUTOSCALER": "hpa", "BUCKET/FOLDER": "acme/models",
          "MODEL": "digits"}
# The buckets that there are.
BUCKETS = {"my-bucket/models", "acme/models"}
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
SECONDS = 60
# (page, line) of the commands that were run, and (page, line, command) of those
# in the text. By the pages' names, for one process tells another.
EXECUTED = set()
# One for each of two cores; each takes about as long.
LANES = (("Oldest", "Patience"), ("Newest", "Container"))


def tearDownModule():  # pylint: disable=invalid-name
    """Tells the process that began this one."""
    if folder := os.environ.get("WEIR_PAGES_EXECUTED"):
        pathlib.Path(folder, str(os.getpid())).write_text(
            json.dumps([*EXECUTED]), "utf-8")


def link(folder, name, target):
    (folder / name).symlink_to(target)


def inline_commands(page):
    """(line, command) of those in the text that are to be run, whole."""
    for line, text in pages.inline_commands(page):
        if text not in EXCEPTIONS:
            command = COMPLETED.get(text, "{}").format(text)
            for place, value in PLACES.items():
                command = re.sub(rf"\b{place}\b", value, command)
            yield line, command


class Reader:
    """Somebody who pastes commands, in a copy of the tree, into a shell that
    finds the programs of the page and no others beside this system's."""

    def __init__(self, folder, **programs):
        self.folder = pathlib.Path(folder)
        self.programs = self.folder / "bin"
        self.programs.mkdir()
        self.tree = self.folder / "tree"
        for name in ("deploy", "tests/data", "Dockerfile"):
            containers.copy(ROOT / name, self.tree / name)
        (self.tree / "tests" / "deploy").mkdir()
        shutil.copy(ROOT / "tests/deploy/rules_test.yaml",
                    self.tree / "tests/deploy")
        # Read, for the server's constants.
        for name in ("server", "kernels"):
            link(self.tree, name, ROOT / name)
        for name, target in {
                "docker": STANDINS / "docker.py", "sudo": STANDINS / "sudo.py",
                "weir": BIN / "weir", "promtool": shutil.which("promtool"),
                # With the packages that the tree's own scripts ask for.
                "python3": sys.executable, **programs}.items():
            (self.programs / name).write_text(
                f'#!/bin/sh\nexec {target} "$@"\n', "utf-8")
            (self.programs / name).chmod(0o755)
        self.variables = {
            "PATH": f"{self.programs}:/usr/bin:/bin",
            "HOME": str(self.folder), "HELM_CONFIG_HOME": ".helm",
            "WEIR_STANDINS": str(self.folder),
            "GOGC": "400",  # kubectl and helm need not collect so much
            "PYTHONDONTWRITEBYTECODE": "1", **{
                name: os.environ[name] for name in ("WEIR_BIN_DIR",)
                if name in os.environ}}

    def run(self, command):
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command], cwd=self.tree,
            capture_output=True, text=True, check=False, timeout=SECONDS,
            env=self.variables)

    def begin(self, command, **options):
        """Starts what goes on until somebody ends it."""
        return subprocess.Popen(
            ["bash", "-euc", f"exec {command}"], cwd=self.tree, text=True,
            env=self.variables, **options)


class Cluster:
    """A cluster, and a reader whose kubectl speaks to it."""

    def __init__(self, folder, kubectl):
        folder = pathlib.Path(folder)
        self.store = stores.Store(kinds.newest_versions(1)[0])
        self.api = api_server.ApiServer(self.store)
        self.kubelet = kubelet.Kubelet(
            self.store, images.Shelf(folder / "registry.json"), folder,
            BUCKETS)
        self.api.kubelet = self.kubelet
        self.web = web.Web(folder)
        self.reader = Reader(folder, kubectl=kubectl, helm=shutil.which(
            "helm", path=os.path.dirname(newest())))
        config = folder / "kubeconfig"
        config.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {
                "server": self.api.address}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {
                "cluster": "c", "user": "u"}}]}), "utf-8")
        self.reader.variables |= {"KUBECONFIG": str(config),
                                  **self.web.variables}
        # By its port in the pod: where a port-forward listens, and itself.
        self.forwards = {}
        self.give()

    def close(self):
        self.end_forwards()
        self.kubelet.close()
        self.api.close()
        self.web.close()

    def give(self):
        """What the page takes for granted: another version of the model, a
        namespace of callers, certificates by an authority of one's own."""
        tree = self.reader.tree
        shutil.copytree(tree / "tests/data/digits/1", tree / "digits/2")
        certificates.make(tree)
        shutil.copy(tree / "tls.crt", tree / "ca.crt")
        self.store.create("namespaces", {"metadata": {"name": "my-app"}})

    def give_certificates(self):
        """As cert-manager has them, where it renews the Secret."""
        about = {"name": "weir-tls", "namespace": "weir"}
        for plural in ("certificates", "certificaterequests"):
            self.store.create(plural, {"metadata": about}, "weir")

    def save(self):
        folder = self.reader.folder
        containers.copy(self.reader.tree, folder / "tree.saved")
        self.saved = self.kubelet.save(folder / "claims.saved")

    def restore(self):
        """As it was when it was saved."""
        folder = self.reader.folder
        self.end_forwards()
        shutil.rmtree(self.reader.tree)
        containers.copy(folder / "tree.saved", self.reader.tree)
        self.kubelet.restore(self.saved, folder / "claims.saved")
        self.settle()

    def settle(self):
        """Waits until all that was applied runs."""
        self.wait_for(lambda: self.kubelet.seen == self.store.number
                      and not self.unsettled())

    def wait_for(self, happened, seconds=SECONDS / 2):
        """Raises with what does not run as it should, if it takes longer."""
        with self.store.changed:
            if not self.store.changed.wait_for(happened, seconds):
                raise AssertionError("\n".join(
                    [f"more than {seconds} s", *self.unsettled()]))

    def unsettled(self):
        """What does not run as it should, in words."""
        found = []
        for one in self.store.list("deployments"):
            count, status = one["spec"]["replicas"], one.get("status", {})
            if (status.get("observedGeneration") != one["metadata"][
                    "generation"] or [status[f"{name}eplicas"] for name in (
                        "r", "updatedR", "readyR")] != 3 * [count]):
                found.append(f"{one['metadata']['name']}: {status}")
        for pod in self.kubelet.pods.values():
            if not pod.ready:
                found += [f"{pod.name}: {pod.waiting or 'not ready'}",
                          *filter(None, [pod.unhealthy]), *(
                    log.read_text("utf-8") for log in (
                        pod.folder / "previous", pod.folder / "log")
                    if log.exists())]
        for one in self.store.list("horizontalpodautoscalers"):
            for state in one.get("status", {}).get("conditions", ()):
                if state["status"] != "True":
                    found.append(f"{one['metadata']['name']}: {state}")
        return found

    def pods(self):
        """Of servers, in the namespace weir."""
        return [pod for pod in self.kubelet.pods.values()
                if pod.namespace == "weir" and pod.labels.get(
                    "app.kubernetes.io/component") == "server"]

    def crash(self):
        """A server ends, and its container starts again."""
        pod = self.pods()[0]
        with self.store.changed:
            pod.container.process.kill()
            self.wait_for(lambda: pod.restarts and pod.ready)
        return pod

    def forward(self, command):
        """A port-forward, to a free port of this machine."""
        here, there = re.search(r" (\d+):(\d+)$", command.strip()).groups()
        command = command.strip().removesuffix(f"{here}:{there}")
        with contextlib.suppress(KeyError):
            self.end_forward(here)
        process = self.reader.begin(f"{command} :{there}",
                                    stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT)
        found = running.wait_for_line(
            process, process.stdout,
            r"^Forwarding from 127\.0\.0\.1:(\d+) ", SECONDS)
        self.forwards[here] = found[1], process

    def end_forward(self, port):
        _, process = self.forwards.pop(port)
        process.kill()
        process.communicate()

    def end_forwards(self):
        for port in list(self.forwards):
            self.end_forward(port)

    def port_here(self, found):
        if found[2] not in self.forwards:
            raise AssertionError(f"nobody listens at {found[0]}")
        return f"{found[1]}:{self.forwards[found[2]][0]}"


class Kubernetes:
    """The page, with one kubectl."""

    KUBECTL = None

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(cls.enterClassContext(
            tempfile.TemporaryDirectory(prefix="w")), cls.KUBECTL())
        cls.addClassCleanup(cls.cluster.close)
        cls.outputs = {}
        cls().follow(FIRST)
        cls.cluster.save()

    def runTest(self):
        """For setUpClass, which needs the methods."""

    def follow(self, section):
        for line, command in pages.commands(pages.KUBERNETES, section):
            scene = pages.heading_at(pages.KUBERNETES, line, "### ")
            if scene in UNDER_TLS and not self.under_tls():
                continue
            try:
                if command.strip() not in EXCEPTIONS:
                    self.paste(command, scene)
            except (AssertionError, subprocess.TimeoutExpired) as why:
                raise AssertionError(
                    f"kubernetes.md:{line}: {command}{why}") from None
            EXECUTED.add((pages.KUBERNETES.name, line))

        # A new version is a `git pull`: what came with the tree stays as it is.
        for file in (ROOT / "deploy").rglob("*"):
            if file.is_file():
                mine = self.cluster.reader.tree / file.relative_to(ROOT)
                self.assertEqual(mine.read_bytes(), file.read_bytes(), mine)

    def paste(self, command, scene):
        cluster = self.cluster
        if re.search(r"\b(POD|NODE)\b", command):
            pod = cluster.pods()[0]
            if scene in CRASHED and not pod.restarts:
                pod = cluster.crash()
            node = cluster.store.get("pods", pod.namespace,
                                     pod.name)["spec"]["nodeName"]
            command = re.sub(r"\bPOD\b", pod.name, command)
            command = re.sub(r"\bNODE\b", node, command)
        if " port-forward " in command:
            cluster.forward(command)
            return
        command = re.sub(r"\b(127\.0\.0\.1|localhost):(\d+)\b",
                         cluster.port_here, command)
        done = cluster.reader.run(command)
        # `diff` says so that there is a difference.
        self.assertEqual(done.returncode, int(" diff " in command),
                         done.stdout + done.stderr)
        if scene not in FINDS_NOTHING:
            self.look(command, done)
        if re.search(r"kubectl .*\b(apply|undo|restart|create|install)\b",
                     command):
            cluster.settle()

    def look(self, command, done):
        """What asks for something must find it."""
        words = shlex.split(command.partition("<<")[0])
        if words[0] == "kubectl" and {"get", "logs", "describe", "top",
                                      "kustomize"} & set(words):
            self.assertNotEqual(done.stdout.strip(), "", done.stderr)

    def under_tls(self):
        return any("WEIR_TLS_CERT" in pod.container.environment
                   for pod in self.cluster.pods())

    def in_a_pod(self, command):
        done = self.cluster.reader.run(
            f"kubectl -n weir exec deployment/weir -- {command}")
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def begin(self):
        self.cluster.restore()

    def refused(self, command):
        done = self.cluster.reader.run(command)
        self.assertNotEqual(done.returncode, 0, command)
        return done.stderr

    def test_what_a_cluster_refuses(self):
        """As it did when pages were wrong."""
        self.begin()
        pod = self.cluster.pods()[0].name
        volume = "deploy/kubernetes/model-volume.yaml"
        loader = "deploy/kubernetes/load-models.yaml"
        for command, why in {
                "kubectl kustomize deploy/kubernetes/base |"
                " kubectl apply --dry-run=server -f -":
                    'metadata.annotations: Invalid value: "refused: no device;',
                f"kubectl -n weir logs {pod} --previous":
                    "previous terminated container \"weir\" .* not found",
                f"sed 's/: weir$/: none/' {volume} | kubectl apply -f -":
                    'namespaces "none" not found',
                f"sed 's/  accessModes/  accesModes/' {volume} |"
                " kubectl apply -f -": "strict decoding error: .*accesModes",
                f"sed 's/ReadWriteMany/ReadWriteOnce/' {volume} |"
                " kubectl apply -f -": "field is immutable",
                f"kubectl -n weir exec {pod} -- vi":
                    "executable file not found",
                f"kubectl -n weir exec {pod} -c server -- weir models":
                    "container server is not valid|container not found",
                "kubectl -n weir get events --field-selector pod=weir":
                    "field label not supported",
                "kubectl -n weir get gateways": "doesn't have a resource type",
                "kubectl -n weir create secret tls t --cert=none --key=none":
                    "no such file",
                "kubectl get --raw /apis/custom.metrics.k8s.io/v1beta1/"
                "namespaces/weir/pods/*/weir_queue_depth": "not find",
                "helm install a prometheus-community/prometheus-adapter":
                    "repo prometheus-community not found",
                "helm repo add a https://example.com/charts":
                    "not a valid chart repository",
                "sed 's/^  restartPolicy/  serviceAccountName: none\\n&/' "
                f"{loader} | kubectl apply -f -":
                    'serviceaccount "none" not found',
                f"sed 's/readOnlyRootFilesystem/privileged/' {loader} |"
                " kubectl apply -f -":
                    r'PodSecurity "restricted:latest": privileged \('}.items():
            with self.subTest(command=command):
                self.assertRegex(self.refused(command), why)

    def test_what_a_cluster_refuses_of_a_deployment(self):
        """Though every field is one of the kind."""
        self.begin()
        pod = "/spec/template/spec"
        container = f"{pod}/containers/0"
        for path, value, why in (
                ("/metadata/annotations/a:b", "", 'Invalid value: "a:b": name'),
                ("/metadata/labels/a..b~1c", "", "a..b/c\": prefix part"),
                ("/spec/template/metadata/labels", {"app": "weir"},
                 "`selector` does not match template `labels`"),
                (f"{container}/ports/0/name", "metrics-and-more",
                 "no more than 15 characters"),
                (f"{container}/ports/0/name", "http", "Duplicate value"),
                (f"{container}/ports/0/containerPort", 99999,
                 "between 1 and 65535"),
                (f"{container}/volumeMounts/0/name", "none",
                 'volumeMounts.0..name: Not found: "none"'),
                (f"{container}/volumeMounts/0/mountPath", "/tmp",
                 "must be unique"),
                (f"{container}/resources/requests/memory", "999Gi",
                 "less than or equal to memory limit"),
                (f"{container}/resources/requests/nvidia.com~1gpu", 1,
                 "must be equal to nvidia.com/gpu limit"),
                (f"{container}/livenessProbe/successThreshold", 2,
                 r"livenessProbe\.successThreshold: .* must be 1"),
                (f"{container}/startupProbe/successThreshold", 2,
                 r"startupProbe\.successThreshold: .* must be 1"),
                ("/spec/minReadySeconds", 1800, "greater than minReadySeconds"),
                ("/spec/progressDeadlineSeconds", 40,
                 "greater than minReadySeconds"),
                *((f"/spec/{field}", -1, f"spec.{field}: .* or equal to 0")
                  for field in ("replicas", "minReadySeconds",
                                "revisionHistoryLimit",
                                "progressDeadlineSeconds")),
                ("/spec/strategy/rollingUpdate/maxSurge", 0,
                 "may not be 0 when `maxSurge` is 0"),
                (f"{pod}/restartPolicy", "Never",
                 'Unsupported value: "Never"')):
            patch = [{"op": "add", "path": path, "value": value}]
            with self.subTest(path=path, value=value):
                self.assertRegex(self.refused(
                    "kubectl -n weir patch deployment weir --type=json "
                    f"--dry-run=server -p '{json.dumps(patch)}'"), why)
        for path, value, why in (
                ("/spec/ports/0/port", 0, "between 1 and 65535"),
                ("/spec/ports/0/targetPort", "metrics-and-more",
                 "targetPort: Invalid value")):
            patch = [{"op": "add", "path": path, "value": value}]
            with self.subTest(path=path, value=value):
                self.assertRegex(self.refused(
                    "kubectl -n weir patch service weir --type=json "
                    f"--dry-run=server -p '{json.dumps(patch)}'"), why)

    def test_logs_of_all_servers_are_told_though_one_waits_to_start(self):
        """As in the outage that the runbook is for; and no Envoy's beside
        them."""
        self.begin()
        cluster = self.cluster
        servers = cluster.pods()
        for name, component in (("waits", "server"), ("door", "envoy")):
            cluster.store.create("pods", {
                "metadata": {"name": f"weir-{name}", "labels": {
                    "app.kubernetes.io/name": "weir",
                    "app.kubernetes.io/component": component}},
                "spec": {**servers[0].spec, "nodeName": "node-1", "containers": [
                    {**servers[0].main,
                     "image": f"registry.example.com/{name}"}]}}, "weir")
        cluster.wait_for(lambda: sum(
            pod.waiting == "ImagePullBackOff"
            for pod in cluster.kubelet.pods.values()) == 2)
        found = [(pages.heading_at(pages.KUBERNETES, line, "### "), command)
                 for line, command in pages.commands(pages.KUBERNETES, "Alerts")
                 if " logs " in command and "--selector" in command]
        self.assertGreater(len(found), 3)
        for scene, command in found:
            with self.subTest(scene=scene):
                done = cluster.reader.run(command)
                self.assertEqual(done.returncode, 0, done.stderr)
                if scene == "WeirEnvoyDown":
                    self.assertIn('in pod "weir-door" is waiting', done.stdout)
                    continue
                self.assertIn('in pod "weir-waits" is waiting', done.stdout)
                self.assertNotIn("weir-door", done.stdout)
                self.assertEqual(done.stdout.count(" ready: "), len(servers))

    def test_pods_that_a_cluster_does_not_let_in(self):
        """The Deployment is taken, and has none."""
        self.begin()
        patch = {"spec": {"template": {"spec": {"serviceAccountName": "none"}}}}
        done = self.cluster.reader.run(
            "kubectl -n weir patch deployment weir --type=merge -p "
            f"'{json.dumps(patch)}'")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.cluster.wait_for(lambda: 'serviceaccount "none" not found' in str(
            self.cluster.store.get("deployments", "weir", "weir")["status"]))

    def test_what_a_kubelet_asks(self):
        """Of a server that has started and is ready."""
        self.begin()
        pod = self.cluster.pods()[0]
        for probe, why in (
                ({"grpc": {"port": 8001}}, None),
                ({"grpc": {"port": 8001, "service": "live"}}, None),
                ({"grpc": {"port": 8001, "service": "none"}}, "NOT_FOUND"),
                ({"grpc": {"port": 8002}}, "UNAVAILABLE"),
                ({"grpc": {"port": 9999}}, "refused"),
                ({"httpGet": {"port": "http", "path": "/readyz"}}, None),
                ({"httpGet": {"port": 8002, "path": "/none"}}, "HTTP 404"),
                ({"httpGet": {"port": 9999, "path": "/readyz"}}, "refused"),
                ({"httpGet": {"port": "none", "path": "/"}}, "no port none"),
                ({"tcpSocket": {"port": "grpc"}}, None),
                ({"tcpSocket": {"port": 9999}}, "refused")):
            with self.subTest(probe=probe):
                found = probes.failure({**probe, "timeoutSeconds": 10},
                                       pod.container.address,
                                       pod.main["ports"])
                self.assertRegex(str(found), str(why))

    def test_an_autoscaler_is_not_given_another(self):
        self.begin()
        for _, command in pages.commands(pages.KUBERNETES, "Scaling"):
            if "keda" not in command:
                continue
            if "apply" in command:
                self.assertIn("already managed by the hpa 'weir'",
                              self.refused(command))
                return
            self.paste(command, None)
        self.fail("keda-weir is never applied")

    def test_first_section(self):
        self.begin()
        self.assertRegex(self.in_a_pod("weir models"), r"digits +2 +READY")

    def test_other_sections(self):
        for section in pages.headings(pages.KUBERNETES):
            if section in (FIRST, "TLS", "Monitoring", "Alerts"):
                continue
            with self.subTest(section=section):
                self.begin()
                self.follow(section)

    def test_commands_in_the_text(self):
        self.begin()
        self.follow("Balancing calls")  # brings an Envoy
        for line, command in inline_commands(pages.KUBERNETES):
            with self.subTest(line=line, command=command):
                self.cluster.reader.run("rm -rf inline")
                for step in command.split(" && "):
                    self.paste(step, None)
                EXECUTED.add((pages.KUBERNETES.name, line, command))

    def test_an_authority_of_clients_in_a_secret_of_its_own(self):
        """In place of a ca.crt in the server's, as cert-manager needs it."""
        self.begin()
        self.follow("TLS")
        text = pages.KUBERNETES.read_text("utf-8")
        [setting] = re.findall(
            r"`(WEIR_TLS_CLIENT_CA=/etc/weir/clients/\S+)`", text)
        folder = self.cluster.reader.tree / "my-weir"
        for file, text in (
                ("kustomization.yaml", pages.with_patches(
                    (folder / "kustomization.yaml").read_text("utf-8"),
                    pages.patches(pages.KUBERNETES, "TLS"))),
                ("settings.env", re.sub(
                    "WEIR_TLS_CLIENT_CA=.*", setting,
                    (folder / "settings.env").read_text("utf-8")))):
            (folder / file).write_text(text, "utf-8")
        self.paste("kubectl apply -k my-weir", None)
        for pod in self.cluster.pods():
            self.assertIn(setting.partition("=")[2],
                          pod.container.environment["WEIR_TLS_CLIENT_CA"])
            self.assertTrue(self.under_tls())

    def test_runbooks(self):
        self.begin()
        self.follow("Monitoring")
        self.follow("Alerts")

    def test_runbooks_under_tls(self):
        self.begin()
        self.follow("TLS")
        self.follow("Monitoring")
        self.cluster.give_certificates()
        self.follow("Alerts")
        self.assertTrue(self.under_tls())


# The alerts in whose time a container has ended.
CRASHED = {"WeirDeviceLost", "WeirRestarting"}
# Those that come because what the command asks for is not there.
FINDS_NOTHING = {"WeirKubeStateMetricsAbsent", "WeirEnvoyDown"}
# Those that are about a certificate.
UNDER_TLS = {"WeirCertificateExpiring", "WeirCertificateNotLoaded",
             "WeirHandshakesFail", "WeirNobodyConnects"}


def oldest():
    return min(manifests.kubectls(), key=manifests.minor_of)


def newest():
    return max(manifests.kubectls(), key=manifests.minor_of)


class Oldest(Kubernetes, unittest.TestCase):
    KUBECTL = staticmethod(oldest)


class Newest(Kubernetes, unittest.TestCase):
    KUBECTL = staticmethod(newest)


class Container(unittest.TestCase):
    """docs/container.md. A container that serves is asked what docker's health
    check asks, and killed before the next command."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="w")
        self.addCleanup(folder.cleanup)
        self.reader = Reader(folder.name)
        self.health = []

    def containers(self):
        """What docker knows of those that run."""
        return [json.loads(file.read_text("utf-8")) for file
                in (self.reader.folder / "containers").glob("*.json")]

    def paste(self, command):
        *before, last = command.split(" && ")
        for one in before:
            self.paste(one)
        if last.startswith("docker run ") and "--version" not in last:
            self.serve(last)
            return
        if last.startswith("docker compose "):
            with self.started(last) as container:
                self.assertTrue(self.is_healthy(container))
            return
        command = last
        done = self.reader.run(command)
        self.assertEqual(done.returncode, 0, done.stderr)

    @contextlib.contextmanager
    def started(self, command):
        """The container of a `docker run`, once it serves."""
        process = self.reader.begin(command.strip(), stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT)
        running.wait_for_line(process, process.stdout, " ready: ", SECONDS)
        [container] = self.containers()
        try:
            yield container
        finally:
            os.kill(container["pid"], signal.SIGKILL)
            process.communicate()

    def is_healthy(self, container):
        done = subprocess.run(container["health"], capture_output=True,
                              check=False, env=container["variables"])
        return done.returncode == 0

    def serve(self, command):
        # Everybody's interface is for TLS alone.
        words = shlex.split(command)
        for flag, port in zip(words, words[1:]):
            if flag == "-p" and "--tls-cert" not in command:
                self.assertTrue(port.startswith("127.0.0.1:"), port)
        with self.started(command) as container:
            # Without a model the server is not ready, but there.
            healthy = self.is_healthy(container)
            self.assertTrue(healthy or "/models" not in command, command)
            with self.subTest("the same port again"):
                if "-p" in words:
                    again = self.reader.run(command)
                    self.assertEqual(again.returncode, 125)
                    self.assertIn("port is already allocated", again.stderr)

    def follow(self, leave_out=None):
        last = None
        for line, command in pages.commands(pages.CONTAINER):
            if command.strip() in EXCEPTIONS:
                self.assertIn("\nimage-%:", MAKEFILE)
            elif leave_out is None or leave_out not in command:
                with self.subTest(line=line, command=command):
                    self.paste(command)
            EXECUTED.add((pages.CONTAINER.name, line))
            last = command if command.startswith("docker run ") else last
        return last

    def test_every_command(self):
        last = self.follow()
        # "With WEIR_TLS_CA, `weir` talks TLS on a socket too, and the health
        # check fails."
        self.assertIn("--tls-client-ca", last)
        with self.started(last.replace(
                " -e ", " -e WEIR_TLS_CA=/tls/ca.crt -e ", 1)) as container:
            self.assertFalse(self.is_healthy(container))
        for line, command in inline_commands(pages.CONTAINER):
            with self.subTest(line=line, command=command):
                self.paste(command)
                EXECUTED.add((pages.CONTAINER.name, line, command))

    COMPOSE = ("docker compose --project-directory . -f "
               "deploy/docker/compose.yaml up")

    def give_certificate(self):
        for _, text in pages.commands(pages.CONTAINER):
            if text.startswith(("mkdir", "openssl", "cp", "sudo chown")):
                self.paste(text)

    def test_what_compose_needs(self):
        """The image, and a certificate and its key that Envoy may read."""
        self.assertIn(self.COMPOSE, [text for _, text in pages.inline_commands(
            pages.CONTAINER)])
        steps = [None, "docker build --target cpu -t weir:cpu .",
                 *(text for _, text in pages.commands(pages.CONTAINER)
                   if text.startswith(("mkdir", "openssl")))]
        for why, step in zip(("image 'weir:cpu'", "does not exist: .*/tree/tls$",
                              "tls.crt: no such file",
                              "tls.key: permission denied"), steps):
            with self.subTest(after=step):
                if step:
                    self.paste(step)
                done = self.reader.run(self.COMPOSE)
                self.assertEqual(done.returncode, 125)
                self.assertRegex(done.stderr.strip(), why)

    def test_folders_for_compose_begin_in_the_root_of_the_tree(self):
        self.paste("docker build --target cpu -t weir:cpu .")
        self.give_certificate()
        tree = self.reader.tree
        (tree / "mine").symlink_to("tls")
        shutil.copytree(tree / "tests/data", tree / "models")
        for models in ("models", "./models", f"{tree}/models"):
            self.reader.variables |= {"WEIR_MODELS": models,
                                      "WEIR_TLS": models.replace("models",
                                                                 "mine")}
            with self.subTest(models=models), self.started(
                    self.COMPOSE) as container:
                self.assertTrue(self.is_healthy(container))
        self.reader.variables["WEIR_MODELS"] = "mdoels"
        self.assertIn("bind source path does not exist",
                      self.reader.run(self.COMPOSE).stderr)

    def test_an_image_can_say_of_which_commit_it_is(self):
        git = ("git -c user.name=w -c user.email=w@example.com -c "
               "init.defaultBranch=main ")
        self.paste(f"{git} init -q")
        self.paste(f"{git} commit -q --allow-empty -m w")
        commit = self.reader.run("git rev-parse HEAD").stdout.strip()
        found = []
        for _, command in pages.commands(pages.CONTAINER):
            if command.strip().startswith("docker build "):
                self.paste(command.strip())
                found.append(images.Shelf(self.reader.folder / "images.json")
                             .get("weir:cpu")["labels"]
                             ["org.opencontainers.image.revision"])
        self.assertEqual(found, ["unknown", commit])

    def test_a_server_must_be_told_how_it_is_secured(self):
        self.paste("docker build --target cpu -t weir:cpu .")
        done = self.reader.run("docker run --rm weir:cpu --queue-length=256")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--insecure", done.stderr)

    def test_the_key_must_be_readable(self):
        commands = [command for _, command in pages.commands(pages.CONTAINER)]
        self.paste(commands[0])
        for command in commands:
            if command.startswith(("mkdir", "openssl", "cp")):
                self.paste(command)
        [first, *_] = [command for command in commands if "--tls-key" in command
                       and command.startswith("docker run ")]
        done = self.reader.run(first)
        self.assertEqual(done.returncode, 1)
        self.assertIn("/tls.key: Permission denied", done.stderr)


class Patience(unittest.TestCase):
    """What is waited for is given up, and its words are told."""

    def wait(self, command, seconds):
        process = subprocess.Popen(["sh", "-c", command], text=True,
                                   stdout=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        with self.assertRaises(AssertionError) as raised:
            running.wait_for_line(process, process.stdout, "ready", seconds)
        self.assertIsNotNone(process.returncode)
        return str(raised.exception)

    def test_one_that_says_nothing(self):
        self.assertIn("took more than 0.1 s: ",
                      self.wait("exec sleep 1000", 0.1))

    def test_one_that_ends(self):
        self.assertIn("ended with 3: no port\n",
                      self.wait("echo no port; exit 3", SECONDS))


class Everything(unittest.TestCase):
    """Runs after the others."""

    def test_was_run(self):
        for page in (pages.KUBERNETES, pages.CONTAINER):
            left = [f"{page.name}:{line}: {command}" for line, command
                    in pages.commands(page)
                    if (page.name, line) not in EXECUTED]
            left += [f"{page.name}:{line}: {command}" for line, command
                     in inline_commands(page)
                     if (page.name, line, command) not in EXECUTED]
            self.assertEqual(left, [])

    def test_every_alert_has_a_command(self):
        told = {pages.heading_at(pages.KUBERNETES, line, "### ")
                for line, _ in pages.commands(pages.KUBERNETES, "Alerts")}
        alerts = set(re.findall(r"(?m)^ +- alert: (\w+)$", (
            manifests.MONITORING / "rules.yaml").read_text("utf-8")))
        self.assertGreater(len(alerts), 10)
        self.assertEqual(alerts - told, set())

    def test_exceptions_are_of_the_pages(self):
        commands = {command.strip() for page in (
            pages.KUBERNETES, pages.CONTAINER)
            for _, command in (*pages.commands(page),
                               *pages.inline_commands(page))}
        self.assertEqual({*EXCEPTIONS, *COMPLETED} - commands, set())


def main():
    """Those that are named. Or all of them, side by side, and then a look at
    what they ran."""
    for name in ("KUBECONFIG", "WEIR_SERVER"):
        os.environ.pop(name, None)
    if len(sys.argv) > 1:
        unittest.main()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WEIR_PAGES_EXECUTED"] = folder
        code = lanes.run(LANES)
        for file in pathlib.Path(folder).iterdir():
            EXECUTED.update(map(tuple, json.loads(file.read_text("utf-8"))))
        del os.environ["WEIR_PAGES_EXECUTED"]
    done = unittest.main(argv=[sys.argv[0], "Everything"], exit=False)
    sys.exit(code or not done.result.wasSuccessful())


if __name__ == "__main__":
    main()
