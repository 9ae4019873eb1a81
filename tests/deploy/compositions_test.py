#!/usr/bin/env python3
"""deploy/kubernetes/compose.py: every sensible choice of components builds and
has all that each of them brings; the others are refused, with the reason."""

import contextlib
import functools
import io
import itertools
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest
from unittest import mock

import yaml

import kinds
import manifests
from manifests import KUBERNETES, compose, composed, find

BASE = {("ConfigMap", "weir-settings"), ("Deployment", "weir"),
        ("NetworkPolicy", "weir"), ("PodDisruptionBudget", "weir"),
        ("Service", "weir"), ("Service", "weir-headless"),
        ("ServiceAccount", "weir")}
# What each adds to that.
ADDED = {"hpa": {("HorizontalPodAutoscaler", "weir")},
         "keda": {("ScaledObject", "weir")},
         "object-storage": {("ConfigMap", "weir-model-store"),
                            ("NetworkPolicy", "weir-model-store")},
         "gateway": {("GRPCRoute", "weir"), ("NetworkPolicy", "weir-gateway")}}

# The settings of each, and of none; a later one goes before.
CUDA = {"WEIR_DEVICE": "cuda", "WEIR_HOST_BYTES": "2147483648",
        "WEIR_TENSOR_BYTES": "4294967296"}
SETTINGS = {
    "cpu": {"WEIR_DEVICE": "cpu", "WEIR_ARENA_BYTES": "1073741824"},
    "gpu": CUDA,
    "mig": {**CUDA, "WEIR_STREAMS": "8", "WEIR_TENSOR_BYTES": "1073741824"},
    "tls": {"WEIR_INSECURE": "false",
            "WEIR_TLS_CERT": "/etc/weir/tls/tls.crt",
            "WEIR_TLS_KEY": "/etc/weir/tls/tls.key"},
}
DEVICE_RESOURCES = {"cpu": {}, "gpu": {"nvidia.com/gpu": "1"},
                    "mig": {"nvidia.com/mig-1g.10gb": "1"}}


def base_settings():
    [generator] = yaml.safe_load(
        (KUBERNETES / "base" / "kustomization.yaml").read_text("utf-8"))[
            "configMapGenerator"]
    return dict(row.split("=", 1) for row in generator["literals"])


def by_hand(folder, *components):
    """A kustomization of these, in this order, whatever compose.py says."""
    base = os.path.relpath(KUBERNETES, folder)
    (folder / "kustomization.yaml").write_text(yaml.safe_dump({
        "namespace": "weir", "resources": [f"{base}/base"],
        "components": [f"{base}/components/{name}" for name in components]}))


def run(*arguments):
    """(exit code, what compose.py says)."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = compose.main(list(map(str, arguments)))
        except SystemExit as end:
            code = end.code
    return code, said.getvalue()


class Folder(unittest.TestCase):

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory()))


def for_each(check):
    """A test that calls check(self, components, folder) for each sensible
    combination."""

    @functools.wraps(check)
    def test(self):
        for components in manifests.combinations():
            with self.subTest(components=components):
                check(self, set(components), composed(*components))

    return test


class Every(unittest.TestCase):

    def test_how_many_there_are(self):
        combinations = list(manifests.combinations())
        print(len(combinations), "combinations")
        self.assertEqual(len(combinations), 3 * 3 * 2**3)
        self.assertEqual({name for chosen in combinations for name in chosen},
                         set(compose.COMPONENTS))

    def test_fields_exist(self):
        checkers = [kinds.Checker(version)
                    for version in kinds.newest_versions(2)]
        checked = set()
        for components in manifests.combinations():
            for document in manifests.documents(composed(*components)):
                text = json.dumps(document, sort_keys=True)
                if text in checked:
                    continue
                checked.add(text)
                for checker in checkers:
                    with self.subTest(components=components,
                                      name=manifests.name_of(document)):
                        checker.check(document)
        print(len(checked), "different documents")

    @for_each
    def test_each_object_is_there_and_no_other(self, chosen, folder):
        expected = BASE.union(*(ADDED.get(name, ()) for name in chosen))
        if {"gateway", "tls"} <= chosen:
            expected |= {("BackendTLSPolicy", "weir")}
        found = [manifests.name_of(document)
                 for document in manifests.documents(folder)]
        self.assertEqual(set(found), expected)
        self.assertEqual(len(found), len(expected))
        for document in manifests.documents(folder):
            self.assertEqual(document["metadata"]["namespace"], "weir")
            self.assertEqual(
                document["metadata"].get("labels", {}).get(
                    "app.kubernetes.io/name", "weir"), "weir")

    @for_each
    def test_the_settings_of_each_component_are_there(self, chosen, folder):
        expected = base_settings()
        for name, settings in SETTINGS.items():
            if name in chosen:
                expected.update(settings)
        found = manifests.server_of(folder).settings
        arguments = {"WEIR_GRPC", "WEIR_HTTP", "WEIR_MODEL_REPOSITORY",
                     "WEIR_CACHE_DIR"}
        self.assertEqual({name: value for name, value in found.items()
                          if name not in arguments}, expected)
        self.assertLessEqual(arguments, set(found))

    @for_each
    def test_one_container_its_ports_and_its_tools_socket(self, _, folder):
        server = manifests.server_of(folder)
        [container] = server.pod["containers"]
        self.assertEqual(container["name"], "weir")
        self.assertEqual(
            [(port["name"], port["containerPort"])
             for port in container["ports"]],
            [("grpc", 8001), ("http", 8002)])
        self.assertEqual(container["env"], [{
            "name": "WEIR_SERVER", "value": "unix:/run/weir/grpc.sock"}])
        self.assertEqual(server.addresses("--grpc"), [
            "0.0.0.0:8001", "unix:/run/weir/grpc.sock"])
        self.assertEqual(
            len(container["volumeMounts"]),
            len({mount["mountPath"]
                 for mount in container["volumeMounts"]}))

    @for_each
    def test_the_device(self, chosen, folder):
        [device] = chosen & set(compose.DEVICES)
        deployment = find(folder, "Deployment")
        pod = deployment["spec"]["template"]["spec"]
        [container] = pod["containers"]
        self.assertEqual(
            container["image"],
            "weir:0.1.0-" + ("cpu" if device == "cpu" else "cuda"))
        storage = "21Gi" if "object-storage" in chosen else "1Gi"
        for what in container["resources"].values():
            what = dict(what)
            self.assertEqual(what.pop("ephemeral-storage"), storage)
            self.assertGreater(int(what.pop("cpu")), 0)
            self.assertRegex(what.pop("memory"), r"^\d+Gi$")
            self.assertEqual(what, DEVICE_RESOURCES[device])
        self.assertEqual(pod["nodeSelector"],
                         {"kubernetes.io/arch": "amd64"})
        self.assertEqual("affinity" in pod, device != "cpu")
        self.assertEqual("tolerations" in pod, device != "cpu")
        update = deployment["spec"]["strategy"]["rollingUpdate"]
        self.assertEqual(update["maxSurge"], 1 if device == "cpu" else 0)

    @for_each
    def test_the_transport(self, chosen, folder):
        tls = "tls" in chosen
        server = manifests.server_of(folder)
        mounts = {mount["name"]: mount
                  for mount in server.container["volumeMounts"]}
        volumes = {volume["name"]: volume
                   for volume in server.pod["volumes"]}
        self.assertEqual(set(mounts), set(volumes))
        self.assertEqual("tls" in mounts, tls)
        if tls:
            self.assertEqual(volumes["tls"]["secret"]["secretName"],
                             "weir-tls")
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            self.assertEqual(
                "httpGet" in server.container[name],
                tls or name == "livenessProbe")
        for name in ("weir", "weir-headless"):
            port = find(folder, "Service", name)["spec"]["ports"][0]
            self.assertEqual(port.get("appProtocol"),
                             None if tls else "kubernetes.io/h2c")

    @for_each
    def test_the_models(self, chosen, folder):
        pod = manifests.server_of(folder).pod
        [models] = [volume for volume in pod["volumes"]
                    if volume["name"] == "models"]
        if "object-storage" in chosen:
            self.assertEqual(models["emptyDir"], {"sizeLimit": "20Gi"})
            self.assertNotIn("persistentVolumeClaim", models)
            [copier] = pod["initContainers"]
            self.assertIn({"name": "models", "mountPath": "/models"},
                          copier["volumeMounts"])
            [name] = [row["configMapRef"]["name"]
                      for row in copier["envFrom"] if "configMapRef" in row]
            [store] = [document["data"]
                       for document in manifests.documents(folder)
                       if document["metadata"]["name"] == name]
            self.assertEqual(store["MODEL_STORE_PATH"], "acme/models")
            self.assertEqual(store["RCLONE_CONFIG_STORE_TYPE"], "s3")
        else:
            self.assertIn("persistentVolumeClaim", models)
            self.assertNotIn("initContainers", pod)

    @for_each
    def test_the_gateway(self, chosen, folder):
        if "gateway" not in chosen:
            return
        route = find(folder, "GRPCRoute")["spec"]
        self.assertEqual(route["parentRefs"],
                         [{"name": "public", "namespace": "edge"}])
        self.assertEqual(route["hostnames"], ["weir.acme.com"])
        policy = find(folder, "NetworkPolicy", "weir-gateway")["spec"]
        self.assertLessEqual(
            policy["podSelector"]["matchLabels"].items(),
            find(folder, "Deployment")["spec"]["template"]["metadata"][
                "labels"].items())
        [source] = policy["ingress"][0]["from"]
        self.assertEqual(source["namespaceSelector"]["matchLabels"],
                         {"kubernetes.io/metadata.name": "edge"})
        if "tls" in chosen:
            backend = find(folder, "BackendTLSPolicy")["spec"]
            [target] = backend["targetRefs"]
            service = find(folder, "Service", target["name"])["spec"]
            self.assertIn(target["sectionName"],
                          [port["name"] for port in service["ports"]])


    @for_each
    def test_the_oldest_and_the_newest_kubectl_agree(self, _, folder):
        oldest, *_, newest = manifests.kubectls()
        self.assertEqual(manifests.kustomize(folder, oldest),
                         manifests.kustomize(folder, newest))


class Nodes(unittest.TestCase):
    """Where pods with a GPU may go, by the labels of its feature discovery."""

    NEW, OLD = "nvidia.com/cuda.driver-version.major", (
        "nvidia.com/cuda.driver.major")
    COMPUTE = "nvidia.com/gpu.compute.major"

    def pods(self):
        for device in ("gpu", "mig"):
            yield manifests.server_of(composed(device)).pod
        yield find(manifests.KSERVE, "ClusterServingRuntime", "weir-cuda")[
            "spec"]

    def takes(self, pod, labels):
        terms = pod["affinity"]["nodeAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"][
                "nodeSelectorTerms"]
        return any(all(self.holds(rule, labels)
                       for rule in term["matchExpressions"]) for term in terms)

    def holds(self, rule, labels):
        """As Kubernetes does: Gt of a label that is missing does not hold."""
        label = labels.get(rule["key"])
        if rule["operator"] == "DoesNotExist":
            return label is None
        self.assertEqual(rule["operator"], "Gt")
        [bound] = rule["values"]
        return label is not None and int(label) > int(bound)

    def test_driver_and_capability(self):
        for pod in self.pods():
            for labels, taken in (
                    ({self.COMPUTE: "9", self.NEW: "580", self.OLD: "580"}, 1),
                    ({self.COMPUTE: "8", self.NEW: "590"}, 1),
                    ({self.COMPUTE: "8", self.OLD: "580"}, 1),
                    ({self.COMPUTE: "7", self.NEW: "580", self.OLD: "580"}, 0),
                    ({self.COMPUTE: "9", self.NEW: "579", self.OLD: "579"}, 0),
                    ({self.COMPUTE: "9", self.OLD: "535"}, 0),
                    ({self.COMPUTE: "10", self.NEW: "1000"}, 1),
                    ({}, 1)):
                self.assertEqual(self.takes(pod, labels), bool(taken), labels)

    def test_it_is_what_the_guide_asks_for(self):
        text = (manifests.ROOT / "README.md").read_text("utf-8")
        self.assertIn("compute capability 8.0 or newer with driver 580 or "
                      "newer", text)


class Order(Folder):

    def test_it_does_not_matter(self):
        for components in (
                ("object-storage", "tls", "keda", "cpu"),
                ("gateway-tls", "hpa", "gpu"),
                ("hpa", "object-storage", "gpu", "tls")):
            built = []
            for order in (components, components[::-1]):
                by_hand(self.folder, *order)
                text = manifests.kustomize(self.folder)
                built.append({manifests.name_of(document): document for document
                              in yaml.safe_load_all(text)})
            first, second = built
            self.assertEqual(self.plain(first), self.plain(second), components)

    def plain(self, documents):
        """Lists of volumes and their mounts may have another order."""
        pod = documents["Deployment", "weir"]["spec"]["template"]["spec"]
        for container in pod["containers"]:
            container["volumeMounts"].sort(key=lambda row: row["name"])
        pod["volumes"].sort(key=lambda row: row["name"])
        return documents


class Senseless(Folder):
    """What is refused: how it was asked, and what the message names."""

    def test_compose_names_reason_and_remedy(self):
        gateway = manifests.OPTIONS["gateway"]
        for arguments, *words in (
                (("cpu", "gpu"), "cpu and gpu", "undo", "keep one device"),
                (("gpu", "mig"), "gpu and mig", "slice", "keep one device"),
                (("cpu", "hpa", "keda"), "hpa and keda", "take turns",
                 "keep one autoscaler"),
                (("hpa", "tls"), "no device", "add one of cpu, gpu, mig"),
                (("cpu", "cpu"), "cpu: given twice", "once is enough"),
                (("cpu", "ssl"), "ssl: there is no such", "tls"),
                (("cpu", "gateway-tls"), "no such component"),
                (("cpu", "gateway"), "gateway: its route", "--host"),
                (("cpu", "gateway", "--host", "a.b"), "give --gateway"),
                (("cpu", "gateway", "--host", "a.b", "--gateway", "public"),
                 "--gateway public", "NAMESPACE/NAME"),
                (("cpu", "object-storage"), "object-storage and --models",
                 "give both"),
                (("cpu", "--models", "a/b"), "object-storage and --models",
                 "give both"),
                (("cpu", *gateway), "there is no route", "add gateway"),
                (("cpu", "hpa", "--replicas", "3"), "owns the number",
                 "leave out --replicas"),
                (("cpu", "--replicas", "1"), "disruption budget",
                 "2 or more"),
                (("cpu", "--proxies", "edge"), "--proxies", "add gateway"),
                (("cpu", "--start-seconds", "60"), "--start-seconds",
                 "nothing adds pods"),
                (("cpu", "hpa", "--start-seconds", "1741"), "1741",
                 "half an hour"),
                (("cpu", "--image", "reg.acme.com/weir:1.0"),
                 "--image reg.acme.com/weir:1.0", "--tag"),
                (("cpu", "--image", "weir:1"), "--image weir:1", "--tag"),
                (("cpu", "--image", "weir@sha256:00"), "--image", "--tag"),
                (("cpu", "--tag", "1.0 "), "--tag 1.0 : write"),
                (("cpu", "object-storage", "--models", "s3://b/m"),
                 "--models s3://b/m", "without a scheme"),
                (("cpu", "object-storage", "--models", "store:b/m"),
                 "--models store:b/m", "BUCKET/FOLDER"),
                (("cpu", "gateway", "--host", "a.b:443", "--gateway", "e/p"),
                 "--host a.b:443", "a host's name alone"),
                (("cpu", "gateway", *gateway, "--proxies", "a/b"),
                 "--proxies a/b", "a namespace")):
            with self.subTest(arguments=arguments):
                code, said = run("--image", "weir", *arguments, "--out",
                                 self.folder / "my-weir")
                self.assertEqual(code, 2, said)
                self.assertTrue(said.startswith("compose.py: "), said)
                for word in words:
                    self.assertIn(word, said)
                self.assertFalse((self.folder / "my-weir").exists())

    def kubectls(self):
        """The oldest and the newest."""
        oldest, *_, newest = manifests.kubectls()
        return oldest, newest

    def test_kustomize_says_it_in_our_words(self):
        """What is written by hand is built by no kubectl, and why not."""
        devices = "two devices, .*; keep one of cpu and gpu"
        slice_of = "name gpu before mig, and no other device"
        scalers = "hpa and keda, would take turns .*; keep one"
        plain = "gateway beside tls .*; name gateway-tls in place of both"
        twice = "is there already, perhaps out of gateway-tls; name it once"
        for components, words in ((("cpu", "gpu"), devices),
                                  (("gpu", "cpu"), devices),
                                  (("cpu", "cpu"), devices),
                                  (("gpu", "mig", "cpu"), devices),
                                  (("mig",), slice_of),
                                  (("mig", "gpu"), slice_of),
                                  (("cpu", "mig"), slice_of),
                                  (("gpu", "mig", "mig"), slice_of),
                                  (("cpu", "hpa", "keda"), scalers),
                                  (("cpu", "keda", "hpa"), scalers),
                                  (("cpu", "tls", "gateway"), plain),
                                  (("cpu", "gateway", "tls"), plain),
                                  (("cpu", "gateway", "gateway-tls"), plain),
                                  (("cpu", "gateway-tls", "tls"), plain),
                                  (("cpu", "gateway-tls", "gateway"), twice),
                                  (("cpu", "tls", "gateway-tls"), twice),
                                  (("cpu", "tls", "tls"), twice),
                                  (("cpu", "gateway", "gateway"), twice)):
            by_hand(self.folder, *components)
            for kubectl in self.kubectls():
                with self.assertRaisesRegex(AssertionError,
                                            f"refused: .*{words}",
                                            msg=components):
                    manifests.kustomize(self.folder, kubectl)

    def test_a_cluster_refuses_what_has_no_device(self):
        """kustomize knows no end of a list of components: the Deployment has
        an annotation until a device comes, whose name says why no cluster
        takes it."""
        for components in ((), ("hpa", "tls"), ("object-storage",)):
            by_hand(self.folder, *components)
            for kubectl in self.kubectls():
                [deployment] = [
                    document for document in yaml.safe_load_all(
                        manifests.kustomize(self.folder, kubectl))
                    if document["kind"] == "Deployment"]
                names = [name for name in deployment["metadata"]["annotations"]
                         if not re.fullmatch(
                             "[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?",
                             name)]
                self.assertEqual(len(names), 1, components)
                self.assertIn("refused: no device; name one of cpu and gpu",
                              names[0])

    @for_each
    def test_a_cluster_takes_the_others(self, _, folder):
        for document in manifests.documents(folder):
            for name in document["metadata"].get("annotations", {}):
                self.assertRegex(name, "^[a-z-]{1,63}$")

    def test_an_old_kubectl_is_named(self):
        kubectl = self.folder / "bin" / "kubectl"
        kubectl.parent.mkdir()
        for version, code in (("v1.20.2", 2), ("v1.26.9", 2), ("v1.27.0", 0),
                              ("v1.30.1", 0)):
            kubectl.write_text(
                "#!/bin/sh\necho '{\"clientVersion\": {\"gitVersion\": "
                f"\"{version}\"}}}}'\n", "utf-8")
            kubectl.chmod(0o755)
            with mock.patch.dict(os.environ, PATH=f"{kubectl.parent}:"
                                 f"{os.environ['PATH']}"):
                answer, said = run("cpu", "--out", self.folder / version,
                                   "--image", "weir")
            self.assertEqual(answer, code, said)
            if code:
                self.assertIn(f"is {version}", said)
                self.assertIn("install kubectl 1.27 or newer", said)

    def test_options_are_refused_one_by_one_too(self):
        for arguments, *words in (
                (("cpu", "gateway", "--gateway", "edge/public"),
                 "gateway: its route", "--host HOST"),
                (("cpu", "--host", "a.b"), "there is no route", "add gateway"),
                (("cpu", "--gateway", "edge/public"), "there is no route",
                 "add gateway"),
                (("cpu", "keda", "--replicas", "3"), "keda and --replicas",
                 "owns the number", "leave out --replicas, or keda")):
            with self.subTest(arguments=arguments):
                code, said = run(*arguments, "--out", self.folder / "my-weir",
                                 "--image", "weir")
                self.assertEqual(code, 2, said)
                for word in words:
                    self.assertIn(word, said)
                self.assertFalse((self.folder / "my-weir").exists())


class File(Folder):

    def test_what_is_there_stays(self):
        folder = self.folder / "my-weir"
        self.assertEqual(run("cpu", "hpa", "--out", folder, "--image", "weir"),
                         (0, mock.ANY))
        (folder / "settings.env").write_text("WEIR_STREAMS=4\n", "utf-8")
        code, said = run("gpu", "--out", folder, "--image", "weir")
        self.assertEqual(code, 2)
        self.assertIn("--force", said)
        self.assertEqual(manifests.server_of(folder).settings["WEIR_DEVICE"],
                         "cpu")
        self.assertEqual(run("gpu", "--out", folder, "--image", "weir",
                             "--force"), (0, mock.ANY))
        manifests.documents.cache_clear()
        settings = manifests.server_of(folder).settings
        self.assertEqual(settings["WEIR_DEVICE"], "cuda")
        self.assertEqual(settings["WEIR_STREAMS"], "4")

    def test_what_the_bucket_needs_stands_in_its_file(self):
        folder = self.folder / "my-weir"
        run("cpu", "object-storage", "--models", "a/b", "--out", folder,
            "--image", "weir")
        (folder / "store.env").write_text("RCLONE_CONFIG_STORE_REGION=us\n")
        store = find(folder, "ConfigMap", "weir-model-store")["data"]
        self.assertEqual(store["RCLONE_CONFIG_STORE_REGION"], "us")
        self.assertEqual(store["MODEL_STORE_PATH"], "a/b")

    def test_ones_own_settings_go_before_all_components(self):
        """Of whatever kubectl: they differ in what they run first."""
        own = {"WEIR_STREAMS": "4", "WEIR_TENSOR_BYTES": "1048576",
               "WEIR_INSECURE": "true", "WEIR_QUEUE_LENGTH": "7"}
        run("mig", "hpa", "tls", "--out", self.folder, "--image", "weir")
        (self.folder / "settings.env").write_text(
            "".join(f"{name}={value}\n" for name, value in own.items()))
        for kubectl in manifests.kubectls():
            [settings] = [
                document["data"] for document in yaml.safe_load_all(
                    manifests.kustomize(self.folder, kubectl))
                if document["kind"] == "ConfigMap"]
            self.assertLessEqual(own.items(), settings.items(), kubectl)
            self.assertEqual(settings["WEIR_DEVICE"], "cuda")

    def test_image_tag_and_number_of_pods(self):
        folder = self.folder / "my-weir"
        run("gpu", "--out", folder, "--image", "registry.acme.com/weir",
            "--tag", "1.0", "--replicas", "3")
        self.assertEqual(manifests.server_of(folder).container["image"],
                         "registry.acme.com/weir:1.0")
        self.assertEqual(find(folder, "Deployment")["spec"]["replicas"], 3)

    def test_every_text_is_taken_for_text(self):
        folder = self.folder / "my-weir"
        code, said = run(
            "cpu", "object-storage", "gateway", "--models", "b/x #1: y",
            "--gateway", "1e3/123", "--proxies", "0", "--host", "1.2",
            "--tag", "1.0", "--image", "reg.acme.com:5000/my__org/weir",
            "--out", folder)
        self.assertEqual(code, 0, said)
        for document in manifests.documents(folder):
            kinds.Checker(kinds.newest_versions(1)[0]).check(document)
        self.assertEqual(manifests.server_of(folder).container["image"],
                         "reg.acme.com:5000/my__org/weir:1.0")
        [store] = [document["data"] for document in manifests.documents(folder)
                   if "MODEL_STORE_PATH" in document.get("data", {})]
        self.assertEqual(store["MODEL_STORE_PATH"], "b/x #1: y")
        route = find(folder, "GRPCRoute")["spec"]
        self.assertEqual(route["parentRefs"],
                         [{"namespace": "1e3", "name": "123"}])
        self.assertEqual(route["hostnames"], ["1.2"])
        [source] = find(folder, "NetworkPolicy", "weir-gateway")["spec"][
            "ingress"][0]["from"]
        self.assertEqual(source["namespaceSelector"]["matchLabels"],
                         {"kubernetes.io/metadata.name": "0"})

    def test_steps_are_as_far_apart_as_a_start_and_the_metrics(self):
        for scaler, kind, place in (
                ("hpa", "HorizontalPodAutoscaler", ()),
                ("keda", "ScaledObject",
                 ("advanced", "horizontalPodAutoscalerConfig"))):
            for options, seconds in (
                    ({}, 90),
                    ({"options": ("--start-seconds", "180")}, 240)):
                folder = composed("gpu", scaler, "gateway", **options)
                spec = find(folder, kind)["spec"]
                for key in place:
                    spec = spec[key]
                [policy] = spec["behavior"]["scaleUp"]["policies"]
                self.assertEqual(policy["periodSeconds"], seconds)
                self.assertEqual(
                    find(folder, "GRPCRoute")["spec"]["hostnames"],
                    ["weir.acme.com"])

    def test_help_names_every_component(self):
        text = subprocess.run([KUBERNETES / "compose.py", "--help"], check=True,
                              capture_output=True, text=True).stdout
        folders = {path.name for path in (KUBERNETES / "components").iterdir()}
        # The way of two together, which nobody chooses.
        self.assertEqual(folders, set(compose.COMPONENTS) | {"gateway-tls"})
        self.assertEqual(folders, set(compose.ORDER))
        for name in compose.COMPONENTS:
            self.assertIn(f"  {name} ", text)

    def test_the_overlays_are_what_it_makes(self):
        for device in ("cpu", "gpu"):
            made, given = (
                {manifests.name_of(document): document
                 for document in manifests.documents(folder)}
                for folder in (composed(device, "hpa"),
                               KUBERNETES / "overlays" / device))
            self.assertEqual(made, given)


class Change(Folder):
    """One composition in the place of another: `kubectl apply` removes the
    fields that went from what is there, and no objects."""

    VIEW = "kubectl -n weir apply view-last-applied deployment/weir"

    def change(self, old, new):
        """What compose.py says."""
        for arguments in (old, (*new, "--force")):
            code, said = run(*arguments, *itertools.chain.from_iterable(
                manifests.OPTIONS.get(name, ()) for name in arguments),
                "--out", self.folder, "--image", "weir")
            self.assertEqual(code, 0, said)
        manifests.documents.cache_clear()
        return said

    def pods(self):
        return find(self.folder, "Deployment")["spec"].get("replicas")

    def test_an_autoscaler_for_a_fixed_number(self):
        for scaler in compose.AUTOSCALERS:
            said = self.change(("cpu", "--replicas", "6", "--force"),
                               ("cpu", scaler))
            self.assertIn(f"before `kubectl apply -k {self.folder}`", said)
            self.assertIn("ends all pods but one", said)
            self.assertIn(self.VIEW, said)
            self.assertNotIn("delete", said)

    def test_a_fixed_number_for_an_autoscaler(self):
        for scaler, left in (("hpa", "hpa/weir"),
                             ("keda", "scaledobject/weir")):
            said = self.change(("cpu", scaler, "--force"), ("cpu",))
            self.assertRegex(said, f"before `kubectl apply -k .*`, or {scaler} "
                             "goes on.*:\n"
                             f"  kubectl -n weir delete {left}\n")
            self.assertIn("makes the pods 2 at once", said)
            self.assertNotIn(self.VIEW, said)

    def test_an_autoscaler_for_another(self):
        for old, new, left in (("hpa", "keda", "hpa/weir"),
                               ("keda", "hpa", "scaledobject/weir")):
            said = self.change(("cpu", old, "--force"), ("cpu", new))
            self.assertRegex(said, f"before `kubectl apply -k .*`, or {old} "
                             "goes on.*:\n"
                             f"  kubectl -n weir delete {left}\n")
            self.assertNotIn(self.VIEW, said)

    def test_the_number_stays(self):
        said = self.change(("cpu", "--replicas", "6"), ("cpu", "tls"))
        self.assertEqual(self.pods(), 6)
        self.assertNotIn("kubectl -n weir", said)
        self.assertNotIn("gone", said)
        self.change(("cpu", "--force"), ("cpu", "--replicas", "3"))
        self.assertEqual(self.pods(), 3)

    def test_objects_that_apply_leaves_are_named(self):
        said = self.change(("cpu", "hpa", "tls", "gateway", "object-storage"),
                           ("gpu", "hpa"))
        self.assertIn("components that are gone: cpu, object-storage, "
                      "gateway-tls\n"
                      "components that are new: gpu\n", said)
        after = said.partition(f"after `kubectl apply -k {self.folder}`")[2]
        self.assertEqual(
            set(re.findall(r"\w+/[a-z-]*weir[a-z-]*", after)),
            {"networkpolicy/weir-model-store", "networkpolicy/weir-gateway",
             "grpcroute/weir", "backendtlspolicy/weir"})

    def test_objects_that_another_component_has_too_stay(self):
        said = self.change(("cpu", "gateway"), ("cpu", "tls", "gateway"))
        self.assertNotIn("delete", said)
        said = self.change(("cpu", "tls", "gateway", "--force"),
                           ("cpu", "gateway"))
        self.assertIn("  kubectl -n weir delete backendtlspolicy/weir\n", said)

    def test_each_component_s_objects_are_known(self):
        """But for the ConfigMap, whose name changes with what it holds."""
        short = {"horizontalpodautoscaler/weir": "hpa/weir"}
        added = {**ADDED, "gateway-tls": {*ADDED["gateway"],
                                          ("BackendTLSPolicy", "weir")}}
        self.assertEqual(
            {name: set(left) for name, left in compose.LEFT_BEHIND.items()},
            {name: {short.get(what, what) for what in (
                f"{kind.lower()}/{name}" for kind, name in objects
                if kind != "ConfigMap")} for name, objects in added.items()})

    def test_lines_of_one_s_own_that_go_are_shown(self):
        said = self.change(("cpu", "--tag", "1.0"), ("cpu",))
        self.assertIn('    newTag: "1.0"\n', said)
        said = self.change(("cpu", "--force"), ("cpu",))
        self.assertNotIn("gone", said)


def tearDownModule():
    manifests.folder_of_compositions()[0].cleanup()


if __name__ == "__main__":
    unittest.main()
