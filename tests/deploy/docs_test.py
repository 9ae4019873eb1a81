#!/usr/bin/env python3
"""What docs/kubernetes.md says beside its commands, which pages_test.py runs:
the files that they make, links, settings, times.
"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

import manifests
import pages
from manifests import ROOT

PAGE = pages.KUBERNETES
# What makes files, and needs no cluster.
RUN = {"cat", "deploy/kubernetes/compose.py", "deploy/kubernetes/memory.py",
       "deploy/monitoring/across_clusters.sh",
       "deploy/monitoring/make_dashboard.py",
       "deploy/monitoring/make_prometheus_rule.sh", "echo", "mkdir", "openssl",
       "sed"}
PIPED = " | kubectl apply -f -\n"
# With this Python's packages for scripts that ask for python3.
PATH = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"


def commands(section):
    return pages.commands(PAGE, section)


def run_in(tree, command):
    """What a shell prints that runs the command in a copy of the tree."""
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", command],
                          cwd=tree, capture_output=True, text=True,
                          check=False, env={**os.environ, "PATH": PATH})
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stderr}")
    return done.stdout


def copy_tree(tree, *folders):
    for name in folders:
        shutil.copytree(ROOT / name, tree / name)
    # Read, for the server's constants.
    for name in ("server", "kernels"):
        (tree / name).symlink_to(ROOT / name)


def make_files(tree, *sections):
    """What the commands of the sections make that write files."""
    copy_tree(tree, "deploy", "tests/deploy")
    for section in sections:
        for _, command in commands(section):
            if (shlex.split(command.partition("<<'END'")[0])[0] in RUN
                    and not command.endswith(PIPED)):
                run_in(tree, command)


def objects(folder, kubectl):
    """What a kubectl makes of a kustomization, by kind and name."""
    return {manifests.name_of(document): document for document
            in yaml.safe_load_all(manifests.kustomize(folder, kubectl))}


def images(manifest):
    return set(re.findall(r"\bimage: (\S+)", manifest))


FIRST = "From an image to a served model"


class FirstSection(unittest.TestCase):

    def test_every_image_was_pushed(self):
        for edits in ((), (("--target cpu", "--target cuda"),
                           ("0.1.0-cpu", "0.1.0-cuda"),
                           ("compose.py cpu", "compose.py gpu"))):
            with self.subTest(edits=edits), \
                    tempfile.TemporaryDirectory() as folder:
                tree = pathlib.Path(folder)
                shutil.copytree(ROOT / "deploy", tree / "deploy")
                pushed, used = set(), set()
                for _, command in commands(FIRST):
                    for edit in edits:
                        command = command.replace(*edit)
                    words = shlex.split(command.partition("<<'END'")[0])
                    if words[:2] == ["docker", "push"]:
                        pushed.add(words[2])
                    elif command.endswith(PIPED):
                        used |= images(run_in(tree, command[:-len(PIPED)]))
                    elif words[0] in RUN:
                        run_in(tree, command)
                used |= images(manifests.kustomize(tree / "my-weir"))
                self.assertEqual(used, pushed)


class Patches(unittest.TestCase):
    """What a reader adds to a kustomization.yaml of his own. A patch for an
    object that is not there is none, and of two lists `patches:` the last alone
    counts; kubectl says nothing of either."""

    def test_nothing_begins_a_list_that_may_be_there(self):
        added = [text for _, text in pages.blocks(PAGE, "yaml")]
        for _, block in pages.blocks(PAGE, "sh"):
            added += re.findall(
                r"(?ms)^cat >>\S+kustomization.yaml <<'END'\n(.*?)^END$",
                block)
        self.assertGreaterEqual(len(added), 4)
        for text in added:
            with self.subTest(text=text):
                self.assertIsInstance(yaml.safe_load(text), list)

    def test_the_policy_of_a_bucket(self):
        """Beside the patches of the components, and without any."""
        entries = pages.patches(PAGE, "Models in a bucket")
        gateway = ("gateway", "--gateway", "edge/public", "--host", "a.com")
        for more in ((), gateway):
            with self.subTest(more=more), \
                    tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:
                folder = pathlib.Path(folder)
                run_in(ROOT, shlex.join([
                    "deploy/kubernetes/compose.py", "cpu", "hpa",
                    "object-storage", *more, "--models", "my-bucket/models",
                    "--out", str(folder), "--image", "weir"]))
                file = folder / "kustomization.yaml"
                before = [objects(folder, kubectl)
                          for kubectl in manifests.kubectls()]
                file.write_text(pages.with_patches(file.read_text("utf-8"),
                                                   entries), "utf-8")
                for kubectl, objects_before in zip(manifests.kubectls(),
                                                   before):
                    now = objects(folder, kubectl)
                    policy = "NetworkPolicy", "weir-model-store"
                    [old, new] = [made.pop(policy)["spec"]["egress"]
                                  for made in (objects_before, now)]
                    self.assertEqual(now, objects_before)
                    self.assertEqual(new[:len(old)], old)
                    self.assertEqual(let_out(new[len(old):]), {
                        ("minio", 9000), *METADATA})

    def test_the_page_says_where_metadata_are(self):
        [text] = re.findall(r"(?s)\n### Models in a bucket\n(.*?)```yaml",
                            PAGE.read_text("utf-8"))
        for address in ("169.254.169.254, port 80", "169.254.170.23, port 80",
                        "169.254.169.252, ports 987 and 988"):
            self.assertIn(address, " ".join(text.split()))


# Of EC2 and others, and of GKE with workload identity and Calico.
METADATA = {("169.254.169.254/32", 80), ("169.254.169.252/32", 987),
            ("169.254.169.252/32", 988)}


def let_out(rules):
    """(namespace or addresses, port) of rules of a policy."""
    return {(peer["ipBlock"]["cidr"] if "ipBlock" in peer else
             peer["namespaceSelector"]["matchLabels"][
                 "kubernetes.io/metadata.name"], port["port"])
            for rule in rules for peer in rule["to"] for port in rule["ports"]}


class MutualTls(unittest.TestCase):
    """Sections are followed in any order, or left out: never may a server take
    everybody's calls because one was."""

    def settings(self, *sections):
        """What my-weir sets, once the sections' files have been made."""
        with tempfile.TemporaryDirectory() as folder:
            tree = pathlib.Path(folder)
            make_files(tree, *sections)
            for kubectl in manifests.kubectls():
                built = objects(tree / "my-weir", kubectl)
                settings = built["ConfigMap", "weir-settings"]["data"]
                self.assertEqual(settings["WEIR_INSECURE"], "false", kubectl)
                self.assertEqual(settings.get("WEIR_TLS_CLIENT_CA"),
                                 "/etc/weir/tls/ca.crt", kubectl)
            return settings

    def test_without_other_settings(self):
        self.settings(FIRST, "TLS")

    def test_with_settings_in_either_order(self):
        for sections in (("Settings", "TLS"), ("TLS", "Settings")):
            with self.subTest(sections=sections):
                settings = self.settings(FIRST, *sections)
                self.assertEqual(settings["WEIR_QUEUE_LENGTH"], "512")


class Names(unittest.TestCase):
    """What the commands and the text name, whatever is composed."""

    # Of cert-manager, or by hand.
    ELSEWHERE = {("secret", "weir-tls")}

    def test_objects_of_the_runbooks_are_there(self):
        named = set()
        for _, command in commands("Alerts"):
            if command.startswith("kubectl -n weir "):
                named.update(re.findall(r" (?:get|describe|delete) (\w+) "
                                        r"([a-z][a-z-]*)(?=\s)", command))
                named.update(re.findall(r" ([a-z]+)/([a-z-]+)(?=\s)", command))
        self.assertIn(("deployment", "weir"), named)
        for components in ((), ("hpa",), ("keda", "tls"),
                           tuple(manifests.OPTIONS)):
            folder = manifests.composed("cpu", *components)
            there = {(kind.lower(), name) for kind, name in map(
                manifests.name_of, manifests.documents(folder))}
            self.assertEqual(named - self.ELSEWHERE - there, set(), folder)

    def test_who_composes_anew_is_told_what_it_replaces(self):
        """In the same folder, or in place of another."""
        text = PAGE.read_text("utf-8")
        applied = {}
        for line, block in pages.blocks(PAGE, "sh"):
            for command in re.findall(r"compose\.py (?:\\\n|.)*", block):
                words = shlex.split(command.replace("\\\n", " "))
                folder = words[words.index("--out") + 1]
                if f"apply -k {folder}" not in text:
                    continue
                start = text.splitlines()[:line]
                before = " ".join(" ".join(start).split("```")[-3:])
                if folder in applied:
                    self.assertIn("with your components in place of",
                                  before, line)
                    self.assertIn("--force", words)
                elif applied:
                    self.assertIn("takes the place of `my-weir`", before, line)
                applied[folder] = line
        self.assertGreater(len(applied), 2)

    def test_the_certificate_has_the_names_that_callers_check(self):
        names = {"weir-headless.weir.svc.cluster.local", find_hostname()}
        text = PAGE.read_text("utf-8")
        [by_hand] = re.findall(r"subjectAltName=(\S+)", text)
        self.assertLessEqual({f"DNS:{name}" for name in names},
                             set(by_hand.split(",")))
        for name in names:
            self.assertIn(f"`{name}`", text)


def find_hostname():
    """What a gateway checks the servers' certificate for."""
    return manifests.find(manifests.composed("cpu", "gateway", "tls"),
                          "BackendTLSPolicy")["spec"]["validation"]["hostname"]


class Page(unittest.TestCase):

    def test_links_lead_somewhere(self):
        text = PAGE.read_text("utf-8")
        anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")
                   for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
        for target in re.findall(r"\]\((?!https:)([^)]*)\)", text):
            file, _, anchor = target.partition("#")
            if file:
                self.assertTrue((PAGE.parent / file).exists(), target)
            else:
                self.assertIn(anchor, anchors)

    def test_python_is_python(self):
        for line, text in pages.blocks(PAGE, "python"):
            compile(text, f"{PAGE.name}:{line}", "exec")

    def test_settings_are_flags(self):
        variables = {manifests.variable_of(flag)
                     for flag in manifests.flags_of("weir-server")}
        named = set(re.findall(r"\bWEIR_[A-Z_]*[A-Z]\b",
                               PAGE.read_text("utf-8")))
        named.remove("WEIR_PORT")  # what Kubernetes would set
        named.remove("WEIR_SERVER")  # the command line's
        self.assertEqual(named - variables, set())

    def test_times_are_those_of_the_manifests(self):
        server = manifests.server_of(manifests.KUBERNETES / "overlays" / "cpu")
        text = " ".join(PAGE.read_text("utf-8").split())
        for name, flag in (("WEIR_DRAIN_DELAY", "--drain-delay"),
                           ("WEIR_DRAIN_TIMEOUT", "--drain-timeout"),
                           ("WEIR_MAX_CONNECTION_AGE", "--max-connection-age")):
            seconds = int(server.number(flag, "nan"))
            self.assertRegex(text, rf"`{name}`[ (,]+{seconds} s")
        grace = server.pod["terminationGracePeriodSeconds"]
        self.assertIn(f"| {grace} | `terminationGracePeriodSeconds`", text)

    def test_every_overlay_is_named(self):
        text = PAGE.read_text("utf-8")
        for folder in manifests.KUSTOMIZATIONS:
            name = folder.name
            self.assertRegex(text, rf"[`/]{name}[`/\s]", folder)

    def test_every_component_is_named(self):
        text = PAGE.read_text("utf-8")
        for name in manifests.compose.COMPONENTS:
            self.assertIn(f"\n| `{name}` |", text)


def tearDownModule():
    manifests.folder_of_compositions()[0].cleanup()


if __name__ == "__main__":
    os.environ.pop("KUBECONFIG", None)
    unittest.main()
