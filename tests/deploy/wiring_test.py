#!/usr/bin/env python3
"""What the objects of a composition name is there, and means what they mean by
it."""

import re
import shutil
import unittest

import yaml

import manifests
import scaling_test
from manifests import KUBERNETES, MONITORING, composed, find

# What the images for GPUs put on their nodes.
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present",
             "effect": "NoSchedule"}


def compositions(*components):
    """The folders of those that have these, out of a few in which everything
    is: in whatever company a component is the same (compositions_test.py)."""
    few = [(device, scaler, "tls", "object-storage", "gateway")
           for device, scaler in zip(("cpu", "gpu", "mig"),
                                     ("hpa", "keda", "hpa"))]
    return [composed(*chosen) for chosen in (*few, ("cpu",),
                                             ("cpu", "gateway"))
            if set(components) <= set(chosen)]


def labels_of_pods(folder):
    return find(folder, "Deployment")["spec"]["template"]["metadata"]["labels"]


def tolerates(pod, taint):
    """As Kubernetes does."""
    return any(
        toleration.get("key", taint["key"]) == taint["key"]
        and toleration.get("effect", taint["effect"]) == taint["effect"]
        and (toleration.get("operator", "Equal") == "Exists"
             or toleration.get("value") == taint["value"])
        for toleration in pod.get("tolerations", ()))


class Wiring(unittest.TestCase):

    def test_the_gateways_policy_opens_the_port_of_grpc(self):
        for folder in compositions("gateway"):
            server = manifests.server_of(folder)
            [rule] = find(folder, "NetworkPolicy", "weir-gateway")["spec"][
                "ingress"]
            [port] = rule["ports"]
            ports = {row["name"]: row["containerPort"]
                     for row in server.container["ports"]}
            self.assertEqual(ports[port["port"]], server.port("--grpc"))
            [route] = find(folder, "GRPCRoute")["spec"]["rules"]
            [backend] = route["backendRefs"]
            [port] = [row for row in find(folder, "Service", backend["name"])[
                "spec"]["ports"] if row["port"] == backend["port"]]
            self.assertEqual(ports[port["targetPort"]], server.port("--grpc"))

    def test_the_gateway_asks_for_the_name_that_the_guide_certifies(self):
        guide = (manifests.ROOT / "docs" / "kubernetes.md").read_text("utf-8")
        guide = " ".join(guide.split())
        for folder in compositions("gateway", "tls"):
            policy = find(folder, "BackendTLSPolicy")
            [target] = policy["spec"]["targetRefs"]
            service = find(folder, "Service", target["name"])
            name = ".".join((service["metadata"]["name"],
                             service["metadata"]["namespace"],
                             "svc.cluster.local"))
            self.assertEqual(policy["spec"]["validation"]["hostname"], name)
            self.assertTrue(
                f"`{name}` and your own host in its `dnsNames`" in guide)
            [port] = [row for row in service["spec"]["ports"]
                      if row["name"] == target["sectionName"]]
            self.assertEqual(port["targetPort"], "grpc")

    def test_a_renewed_certificate_reaches_the_pod(self):
        """What is mounted by subPath stays as it was."""
        for folder in compositions("tls"):
            server = manifests.server_of(folder)
            [mount] = [mount for mount in server.container["volumeMounts"]
                       if mount["name"] == "tls"]
            self.assertNotIn("subPath", mount)
            self.assertNotIn("subPathExpr", mount)
            for flag in ("--tls-cert", "--tls-key"):
                [path] = server.addresses(flag)
                self.assertEqual(path.rpartition("/")[0], mount["mountPath"])

    def test_the_copier_copies_from_the_bucket_as_its_secret_says(self):
        for folder in compositions("object-storage"):
            server = manifests.server_of(folder)
            [copier] = server.pod["initContainers"]
            self.assertIn({"secretRef": {"name": "weir-model-store"}},
                          copier["envFrom"])
            [settings] = [document["data"]
                          for document in manifests.documents(folder)
                          if manifests.name_of(document) ==
                          ("ConfigMap", "weir-model-store")]
            words = [re.sub(r"\$\((\w+)\)", lambda match: settings[match[1]],
                            word) for word in copier["args"]]
            self.assertEqual(
                [word for word in words if not word.startswith("--")],
                ["copy", "store:acme/models",
                 server.settings["WEIR_MODEL_REPOSITORY"]])

    def test_pods_with_a_gpu_go_to_its_nodes(self):
        for device in manifests.compose.DEVICES:
            for folder in compositions(device):
                self.assertEqual(
                    tolerates(manifests.server_of(folder).pod, GPU_TAINT),
                    device != "cpu", folder)

    def test_what_selects_pods_selects_the_servers(self):
        for folder in compositions():
            labels = labels_of_pods(folder).items()
            found = 0
            for document in manifests.documents(folder):
                spec = document.get("spec", {})
                for selector in (spec.get("selector"),
                                 spec.get("podSelector")):
                    if not selector:
                        continue
                    self.assertLessEqual(
                        selector.get("matchLabels", selector).items(), labels,
                        manifests.name_of(document))
                    found += 1
            # The Deployment, its budget, two Services, the policy.
            self.assertGreaterEqual(found, 5, folder)

    def test_the_tests_know_how_often_servers_are_scraped(self):
        [endpoint] = find(MONITORING, "ServiceMonitor")["spec"]["endpoints"]
        self.assertEqual(endpoint["interval"], f"{scaling_test.SCRAPE}s")

    def test_the_adapter_tells_the_metrics_of_each_pod(self):
        values = yaml.safe_load(
            (KUBERNETES / "prometheus-adapter" / "values.yaml").read_text(
                "utf-8"))
        for rule in values["rules"]["custom"]:
            self.assertEqual(rule["resources"]["overrides"],
                             {name: {"resource": name}
                              for name in ("namespace", "pod")})


class ByHand(unittest.TestCase):

    def test_tls_is_added_as_the_guide_says(self):
        """Where kustomization.yaml was changed, and no gateway is there."""
        guide = (manifests.ROOT / "docs" / "kubernetes.md").read_text("utf-8")
        [added] = re.findall(r"add `(\S+/components/tls)` to the list", guide)
        for components in (("cpu", "hpa"), ("mig", "keda")):
            made = composed(*components)
            # As deep as that, whose ways to the components are relative.
            folder = made.parent / f"{made.name}-by-hand"
            shutil.copytree(made, folder)
            file = folder / "composed" / "kustomization.yaml"
            base = re.search(r"- (.*)/base\n", file.read_text("utf-8"))[1]
            file.write_text(
                file.read_text("utf-8") + "  - " + added.replace(
                    "../../deploy/kubernetes", base) + "\n", "utf-8")
            self.assertEqual(self.objects(folder),
                             self.objects(composed(*components, "tls")))

    def objects(self, folder):
        return {manifests.name_of(document): document
                for document in yaml.safe_load_all(
                    manifests.kustomize(folder))}


def tearDownModule():
    manifests.folder_of_compositions()[0].cleanup()


if __name__ == "__main__":
    unittest.main()
