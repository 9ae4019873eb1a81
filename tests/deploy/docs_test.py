#!/usr/bin/env python3
"""The commands of docs/kubernetes.md, as far as they go without a cluster.

They run in order, in a copy of the tree, so that a file which one writes is
there for the next. What needs a cluster, a registry or a server is not run:
its subcommand and flags must exist, and so must the files it names. What it
would apply is built and checked.
"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

import yaml

import certificates
import kinds
import manifests
import running
from manifests import ROOT

PAGE = ROOT / "docs" / "kubernetes.md"
# Run as they are; the others are looked at.
RUN = {"cat", "deploy/kubernetes/compose.py", "deploy/kubernetes/memory.py",
       "deploy/monitoring/make_prometheus_rule.sh", "echo", "mkdir", "openssl",
       "promtool", "sed"}
PIPED = " | kubectl apply -f -\n"
OURS = {"weir", "weir-server"}
# With this Python's packages for scripts that ask for python3.
PATH = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
# Programs that this machine may lack.
FOREIGN = {"curl", "docker", "helm"}


def blocks(language):
    """(line, text) of the page's code blocks in a language."""
    text = PAGE.read_text("utf-8")
    for found in re.finditer(rf"^( *)```{language}\n(.*?)^\1```$", text,
                             re.MULTILINE | re.DOTALL):
        yield (text.count("\n", 0, found.start()) + 2,
               textwrap.dedent(found[2]))


def section_at(line):
    """The heading of the first order that a line stands under."""
    before = PAGE.read_text("utf-8").splitlines()[:line]
    [*_, last] = [text for text in before if text.startswith("## ")]
    return last.removeprefix("## ")


def commands(section=None):
    """(line, command): a command with its continued lines and here-document.
    Of the whole page, or of what stands under one of its headings."""
    for line, text in blocks("sh"):
        if section not in (None, section_at(line)):
            continue
        rows = text.splitlines(keepends=True)
        at = 0
        while at < len(rows):
            start, command = at, rows[at]
            while command.endswith("\\\n"):
                at += 1
                command += rows[at]
            if "<<'END'" in command:
                while rows[at] != "END\n":
                    at += 1
                    command += rows[at]
            at += 1
            yield line + start, command


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


def split_flags(words):
    """Of a command's words: those that are flags, and the others."""
    flags = [word.partition("=")[0] for word in words if word.startswith("-")]
    return flags, [word for word in words if not word.startswith("-")]


class Commands(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.tree = pathlib.Path(folder.name)
        copy_tree(cls.tree, "deploy", "tests/deploy", "tests/data")
        cls.checkers = [kinds.Checker(version)
                        for version in kinds.newest_versions(2)]

    def setUp(self):
        # What the commands so far have made.
        self.namespaces = {"default", "kube-system"}
        self.helm_repositories = set()

    def test_all(self):
        counts = {"run": 0, "checked": 0}
        for line, command in commands():
            with self.subTest(line=line, command=command):
                counts[self.try_command(command)] += 1
        print(counts)
        self.assertGreater(counts["run"], 10)

    def try_command(self, command):
        words = shlex.split(command.partition("<<'END'")[0])
        program = words[0]
        if command.endswith(PIPED):
            self.check_ones_own(self.run_it(command[:-len(PIPED)]))
            return "run"
        if program in RUN or words[:2] == ["kubectl", "kustomize"]:
            output = self.run_it(command)
            if words[:2] == ["kubectl", "kustomize"] and "|" not in words:
                self.check_documents(output)
            if program == "sed":
                self.check_unedited(words)
            return "run"
        if program == "kubectl":
            self.check_kubectl(words[1:])
        elif program in OURS:
            self.check_ours(words)
        else:
            self.assertIn(program, FOREIGN)
            if words[:2] == ["docker", "build"]:
                self.check_image(words)
            if program == "helm":
                self.check_helm(words)
        self.check_files(words)
        return "checked"

    def run_it(self, command):
        return run_in(self.tree, command)

    def check_documents(self, text):
        count = 0
        for document in yaml.safe_load_all(text):
            for checker in self.checkers:
                checker.check(document)
            count += 1
        self.assertGreater(count, 0)

    def check_ones_own(self, text):
        """What is applied: with the registry's images, not the tree's."""
        self.check_documents(text)
        self.assertNotRegex(text, r"image: weir\b")
        for document in yaml.safe_load_all(text):
            metadata = document["metadata"]
            if document["kind"] == "Namespace":
                self.namespaces.add(metadata["name"])
            self.assertIn(metadata.get("namespace", "default"), self.namespaces)

    def check_helm(self, words):
        if words[1:3] == ["repo", "add"]:
            self.helm_repositories.add(words[3])
        elif words[1] == "install":
            self.assertIn(words[3].partition("/")[0], self.helm_repositories)
            namespace = words[words.index("--namespace") + 1]
            if "--create-namespace" in words:
                self.namespaces.add(namespace)
            self.assertIn(namespace, self.namespaces)

    def check_unedited(self, words):
        """A new version is a `git pull`: files of the tree stay as they are."""
        if "-i" in words:
            self.assertFalse((ROOT / words[-1]).exists(), words[-1])

    def check_files(self, words):
        """Files that a command reads, by how they are written."""
        for word in words:
            for file in re.findall(r"(?:^|[@=])((?:deploy|tests)/[^:]*)", word):
                self.assertTrue((self.tree / file).exists(), file)

    def check_kubectl(self, words):
        before_dashes = words[:words.index("--")] if "--" in words else words
        if words[:2] == ["-n", "weir"] or words[:2] == ["-n", "models"]:
            before_dashes = before_dashes[2:]
        flags, plain = split_flags(before_dashes)
        subcommand = plain[:2] if plain[0] in ("rollout", "create") else plain[:1]
        if subcommand[:2] == ["create", "secret"]:
            subcommand = plain[:3]
        text = subprocess.run(["kubectl", *subcommand, "--help"], check=True,
                              capture_output=True, text=True).stdout
        self.assertIn("Usage:", text)
        self.assertIn(f"kubectl {' '.join(subcommand)} ", text)
        for flag in flags:
            self.assertRegex(text, rf"(^|\s){flag}[,=]", subcommand)
        if subcommand == ["create", "namespace"]:
            self.namespaces.add(plain[2])
        if subcommand == ["apply"]:
            self.check_applied(before_dashes)
        if "--" in words:
            inside = words[words.index("--") + 1:]
            if inside[0] != "mv":  # of the pod that holds the volume open
                self.check_ours(inside)

    def check_applied(self, words):
        where = self.tree / words[-1]
        if words[-2] == "-k":
            self.check_ones_own(manifests.kustomize(where))
        else:
            self.assertEqual(words[-2], "-f")
            self.check_ones_own(where.read_text("utf-8"))

    def check_ours(self, words):
        self.assertIn(words[0], OURS)
        flags, plain = split_flags(words[1:])
        known = manifests.flags_of(words[0])
        if words[0] == "weir":
            subcommands = set(re.findall(r"^  (\w+)  ",
                                         manifests.help_of("weir"),
                                         re.MULTILINE))
            [subcommand] = [word for word in plain if word in subcommands]
            known = known | manifests.flags_of("weir", subcommand)
        self.assertEqual(set(flags) - known, set())

    def check_image(self, words):
        target = words[words.index("--target") + 1]
        self.assertRegex((ROOT / "Dockerfile").read_text("utf-8"),
                         rf"(?m)^FROM .* AS {target}$")


FIRST = "From an image to a served model"


class FirstSection(unittest.TestCase):

    def test_models_land_where_they_are_served(self):
        """As `kubectl cp` does it: into a folder that is there, under its own
        name; as the folder named, if there is none. What pods may be reading
        gets its name once it is whole."""
        folders = {"/models"}
        for _, command in commands(FIRST):
            words = shlex.split(command.partition("<<'END'")[0])
            if words[3:4] == ["exec"] and "mv" in words:
                source, target = words[-2:]
                self.assertEqual(pathlib.Path(source).parent,
                                 pathlib.Path(target).parent)
                self.assertNotIn(target, folders)
                folders.remove(source)
                folders.add(target)
            if words[:4] != ["kubectl", "-n", "weir", "cp"]:
                continue
            source, target = words[4], words[5].partition(":")[2]
            if target in folders:
                target += "/" + pathlib.Path(source).name
            # The first model is there before any server is.
            self.assertRegex(target, r"^/models/([^/.]+|[^/.]+/\.\d+)$")
            self.assertNotIn(target, folders)
            folders |= {target, *(f"{target}/{version.name}" for version
                                  in (ROOT / source).glob("[0-9]*"))}
        self.assertEqual(folders, {"/models", "/models/digits",
                                   "/models/digits/1", "/models/digits/2"})

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


class Runbooks(unittest.TestCase):
    """What the alerts' sections run in a pod, under TLS with certificates of
    clients: the socket and the port of the base manifests."""

    def test_work_under_tls(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            certificates.make(folder)
            socket = f"unix:{folder}/grpc.sock"
            with running.Server(
                    f"--tls-cert={folder}/tls.crt",
                    f"--tls-key={folder}/tls.key",
                    f"--tls-client-ca={folder}/tls.crt",
                    grpc=f"127.0.0.1:0,{socket}") as server:
                for line, command in commands("Alerts"):
                    with self.subTest(line=line):
                        self.try_command(shlex.split(command), server, socket)
        self.assertEqual(self.seen, {"weir", "curl"})

    seen = set()

    def try_command(self, words, server, socket):
        if words[0] == "curl":
            self.assertTrue(running.fetch(
                words[1].replace("127.0.0.1:8002", server.http)))
            self.seen.add("curl")
        elif "--" in words:
            inside = words[words.index("--") + 1:]
            done = subprocess.run(
                [manifests.BIN / inside[0], *inside[1:]], check=False,
                capture_output=True, text=True,
                env={**os.environ, "WEIR_SERVER": socket})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.seen.add(inside[0])
        else:
            self.assertEqual(words[0], "kubectl", "needs a certificate?")


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
        for line, block in blocks("sh"):
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


class Container(unittest.TestCase):
    """The commands of docs/container.md that start the image."""

    def runs(self):
        """(variables, arguments of weir-server) of each."""
        text = (ROOT / "docs" / "container.md").read_text("utf-8")
        for row in text.replace("\\\n", "").splitlines():
            if row.startswith("    docker run "):
                words = shlex.split(row)
                image = words.index("weir:cpu")
                variables = [word for flag, word in zip(words, words[1:image])
                             if flag == "-e"]
                yield (dict(word.split("=", 1) for word in variables),
                       words[image + 1:])

    def test_plain_ports_stay_on_the_machine(self):
        text = (ROOT / "docs" / "container.md").read_text("utf-8")
        for row in text.replace("\\\n", "").splitlines():
            words = shlex.split(row) if row.startswith("    docker run ") else []
            ports = [word for flag, word in zip(words, words[1:])
                     if flag == "-p"]
            for port in ports:
                if port.endswith(":8001") and "--tls-cert" in row:
                    continue
                self.assertTrue(port.startswith("127.0.0.1:"), row)

    def test_flags_exist(self):
        for _, arguments in self.runs():
            self.assertEqual(set(split_flags(arguments)[0])
                             - manifests.flags_of("weir-server"), set())

    def test_the_health_check_is_answered(self):
        """It shows no certificate, and talks TLS wherever it has an authority,
        while a unix socket is plain."""
        mutual = 0
        for variables, arguments in self.runs():
            settings = dict(word.partition("=")[::2] for word in arguments)
            server = variables.get("WEIR_SERVER", "")
            if "--tls-client-ca" in settings:
                mutual += 1
                self.assertTrue(server.startswith("unix:"), variables)
            if server:
                self.assertIn(server, settings["--grpc"].split(","))
            tls = "--tls-cert" in settings and not server
            self.assertEqual("WEIR_TLS_CA" in variables, tls, variables)
        self.assertEqual(mutual, 1)


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
        for line, text in blocks("python"):
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
