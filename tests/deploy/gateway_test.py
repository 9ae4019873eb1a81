#!/usr/bin/env python3
"""deploy/docker/compose.yaml: servers that Envoy alone reaches, by the settings
that Kubernetes has."""

import unittest

import yaml

import manifests
from manifests import ROOT

FOLDER = ROOT / "deploy" / "docker"
ENVOY = ROOT / "deploy" / "kubernetes" / "envoy"


def load(path):
    return yaml.safe_load(path.read_text("utf-8"))


class Compose(unittest.TestCase):

    def setUp(self):
        self.file = load(FOLDER / "compose.yaml")
        self.weir, self.envoy = (self.file["services"][name]
                                 for name in ("weir", "envoy"))
        self.settings = load(ENVOY / "envoy.yaml")["static_resources"]

    def test_envoy_alone_has_a_port_and_leads_to_the_servers(self):
        self.assertNotIn("ports", self.weir)
        [network] = self.weir["networks"]
        self.assertTrue(self.file["networks"][network]["internal"])
        self.assertIn(network, self.envoy["networks"])
        [listener] = [each for each in self.settings["listeners"]
                      if each["name"] == "callers"]
        port = listener["address"]["socket_address"]["port_value"]
        self.assertEqual(self.envoy["ports"], [f"443:{port}"])
        [cluster] = self.settings["clusters"]
        [server] = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
        server = server["endpoint"]["address"]["socket_address"]
        self.assertEqual(self.weir["networks"][network]["aliases"],
                         [server["address"]])
        dockerfile = (ROOT / "Dockerfile").read_text("utf-8")
        self.assertIn(f"WEIR_GRPC=0.0.0.0:{server['port_value']} ", dockerfile)

    def test_envoy_is_that_of_kubernetes(self):
        [image] = load(ENVOY / "kustomization.yaml")["images"]
        self.assertEqual(self.envoy["image"],
                         f"{image['newName']}:{image['newTag']}")
        pod = load(ENVOY / "deployment.yaml")["spec"]["template"]["spec"]
        [container] = pod["containers"]
        self.assertEqual(self.envoy["command"], container["args"])
        context = pod["securityContext"]
        self.assertEqual(self.envoy["user"],
                         f"{context['runAsUser']}:{context['runAsGroup']}")
        mounts = {mount["target"]: mount["source"]
                  for mount in self.envoy["volumes"]}
        self.assertEqual(set(mounts), {mount["mountPath"] for mount in
                                       container["volumeMounts"]})
        self.assertEqual(ROOT / mounts["/etc/envoy"], ENVOY)
        self.assertEqual(self.envoy["mem_limit"], "512m")
        self.assertEqual(container["resources"]["limits"]["memory"], "512Mi")

    def test_nobody_writes_or_may_do_more(self):
        for name, service in self.file["services"].items():
            self.assertTrue(service["read_only"], name)
            self.assertEqual(service["cap_drop"], ["ALL"], name)
            for mount in service["volumes"]:
                self.assertTrue(mount["read_only"], mount)
                # Not a folder of docker's own, empty, for a wrong name.
                self.assertEqual(mount["type"], "bind")
                self.assertFalse(mount["bind"]["create_host_path"], mount)

    def test_the_servers_flags_are_flags(self):
        self.assertLessEqual(set(self.weir["command"]),
                             manifests.flags_of("weir-server"))


if __name__ == "__main__":
    unittest.main()
