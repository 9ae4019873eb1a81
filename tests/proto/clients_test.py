#!/usr/bin/env python3
"""weir/v1 in the hands of those who generate clients from it: docs/clients.md
as it stands, with the stock generators of Python, Go and Java, and in one
Python process with tritonclient and googleapis-common-protos.

What a generator made is compiled too where a compiler is at hand.
"""

import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "deploy"))
# pylint: disable=wrong-import-position
import skipping
from manifests import BIN, ROOT
from running import Server

PAGE = (ROOT / "docs" / "clients.md").read_text("utf-8")
FILES = sorted((ROOT / "proto" / "weir" / "v1").glob("*.proto"))
SERVICES = {"admin", "catalog", "evaluator", "spaces"}


def blocks(section, language):
    """The code blocks of one language below one heading."""
    text = re.search(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE,
                     re.MULTILINE | re.DOTALL)[1]
    return re.findall(rf"^```{language}\n(.*?)^```$", text,
                      re.MULTILINE | re.DOTALL)


def with_needs(packages):
    """The names of installed distributions and of all that they stand on."""
    needed, left = set(), [name.partition("[")[0] for name in packages]
    while left:
        name = left.pop().lower()
        if name in needed:
            continue
        try:
            needs = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # of another Python, or system
        needed.add(name)
        left += [re.match(r"[\w.-]+", need)[0] for need in needs
                 if "extra ==" not in need]
    return needed


class Folder(unittest.TestCase):
    """A folder of one's own with nothing of ours in it but what is
    published."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(
            tempfile.TemporaryDirectory()))
        published = cls.folder / "proto" / "weir" / "v1"
        published.mkdir(parents=True)
        for file in FILES:
            shutil.copy(file, published)

    @classmethod
    def run_lines(cls, lines, **environment):
        """What a shell prints that runs them in the folder."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", lines], cwd=cls.folder,
            capture_output=True, text=True, check=False,
            env={**os.environ, **environment})
        if done.returncode != 0:
            raise AssertionError(f"{lines}\n{done.stdout}{done.stderr}")
        return done.stdout

    def made(self, pattern):
        return {path.relative_to(self.folder).as_posix()
                for path in self.folder.glob(pattern)}


class Go(Folder):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.generate, cls.with_path = blocks("Go", "sh")
        cls.run_lines(cls.generate)

    def test_one_package_without_extra_flags(self):
        self.assertNotIn("_opt", self.generate)
        self.assertEqual(
            self.made("gen/**/*.go"),
            {f"gen/weir/v1/{file.stem}.pb.go" for file in FILES}
            | {f"gen/weir/v1/{name}_grpc.pb.go" for name in SERVICES})
        for path in self.folder.glob("gen/**/*.go"):
            text = path.read_text("utf-8")
            self.assertRegex(text, r"(?m)^package weirv1$")
            # No file imports another of ours: the path need not be right.
            self.assertNotRegex(text, r'(?m)^\s+\w* ?"weir')

    def test_compiles(self):
        if shutil.which("go") is None:
            self.skipTest("no Go compiler here")
        libraries = pathlib.Path("/usr/share/gocode/src/google.golang.org")
        for name in ("genproto", "grpc", "protobuf"):
            if not (libraries / name).is_dir():
                self.skipTest(f"no golang-google-{name}-dev here")
        app = self.folder / "go" / "src" / "example.com" / "app"
        shutil.copytree(self.folder / "gen", app / "gen")
        [program] = blocks("Go", "go")
        server = self.enterContext(Server())
        (app / "main.go").write_text(
            program.replace("127.0.0.1:8001", server.grpc), "utf-8")
        printed = self.run_lines("cd go/src/example.com/app && go run -p 2 .",
                                 GO111MODULE="off",
                                 GOCACHE=str(self.folder / "cache"),
                                 GOPATH=f"{self.folder}/go:/usr/share/gocode")
        self.assertRegex(printed, r"\A9 WORK_STATE_COMPLETED\n"
                                  r'NotFound no model "nope".*\n'
                                  r"reason: MODEL_NOT_FOUND\n\Z")

    def test_another_path_if_wanted(self):
        self.run_lines("rm -r gen && mkdir gen\n" + self.with_path)
        made = self.made("gen/**/*.go")
        self.assertEqual(len(made), len(FILES) + len(SERVICES))
        for path in made:
            self.assertTrue(path.startswith("gen/example.com/app/weirv1/"),
                            path)
        self.run_lines("rm -r gen\n" + self.generate)


class Java(Folder):

    # Of libgrpc-java and libprotobuf-java, and what they stand on.
    JARS = ["protobuf", "grpc-api", "grpc-stub", "grpc-protobuf", "guava",
            "geronimo-annotation-1.3-spec"]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.generate, cls.rename = blocks("Java", "sh")
        cls.run_lines(cls.generate)

    def test_a_file_for_each_class(self):
        made = self.made("gen/**/*.java")
        for name in ["TensorProto", "EvaluateRequest", "DataType",
                     "StreamPolicy", "EvaluatorGrpc", "CatalogGrpc",
                     "AdminGrpc"]:
            self.assertIn(f"gen/weir/v1/{name}.java", made)
        for path in made:
            self.assertRegex((self.folder / path).read_text("utf-8"),
                             r"(?m)^package weir\.v1;$")

    def test_compiles(self):
        jars = [f"/usr/share/java/{name}.jar" for name in self.JARS]
        missing = [jar for jar in jars if not os.path.exists(jar)]
        if shutil.which("javac") is None or missing:
            self.skipTest(f"no Java compiler, or no {' '.join(missing)}")
        # What proto-google-common-protos has, which Debian has not.
        import google.rpc
        files = pathlib.Path(next(iter(google.rpc.__path__)))
        self.run_lines(f"mkdir common && protoc -I{files.parents[1]} "
                       f"--java_out=common {files}/status.proto "
                       f"{files}/error_details.proto")
        [program] = blocks("Java", "java")
        (self.folder / "Square.java").write_text(program, "utf-8")
        self.run_lines("javac -proc:none -nowarn -d classes -cp "
                       + ":".join(jars) + " gen/weir/v1/*.java "
                       "common/com/google/rpc/*.java Square.java")
        made = self.made("classes/**/*.class")
        self.assertIn("classes/weir/v1/EvaluatorGrpc.class", made)
        self.assertIn("classes/Square.class", made)

    def test_another_package_if_wanted(self):
        self.run_lines(self.rename)
        texts = [path.read_text("utf-8")
                 for path in self.folder.glob("mine/weir/v1/*.proto")]
        self.assertEqual(len(texts), len(FILES))
        for text in texts:
            self.assertEqual(
                re.findall(r'(?m)^option java_package = "(.*)";$', text),
                ["com.example.weir.v1"])
        self.run_lines("mkdir other && protoc -Imine --java_out=other "
                       "mine/weir/v1/*.proto")
        self.assertIn("other/com/example/weir/v1/TensorProto.java",
                      self.made("other/**/*.java"))


class KServe(Folder):
    """The commands for Triton's files, with ours in their place: the same
    messages, as Copies sees to."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.go, cls.java = blocks("KServe v2 in Go and Java", "sh")
        files = cls.folder / "triton" / "protobuf"
        files.mkdir(parents=True)
        for name in ("grpc_service.proto", "model_config.proto"):
            text = (ROOT / "proto" / "inference" / name).read_text("utf-8")
            (files / name).write_text(
                text.replace('"inference/model', '"model'), "utf-8")
        cls.go = re.sub(r"(?m)^git clone .* triton\n", "", cls.go)

    def test_go(self):
        self.assertNotIn("git", self.go)
        self.run_lines("rm -rf gen\n" + self.go)
        made = self.made("gen/**/*.go")
        self.assertEqual(made, {f"gen/inference/v2/{name}.pb.go" for name in
                                ("grpc_service", "grpc_service_grpc",
                                 "model_config")})
        for path in made:
            self.assertRegex((self.folder / path).read_text("utf-8"),
                             r"(?m)^package inference$")

    def test_java(self):
        self.run_lines("rm -rf gen\n" + self.java)
        self.assertIn("gen/inference/GRPCInferenceServiceGrpc.java",
                      self.made("gen/**/*.java"))


class Python(Folder):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.install, cls.start = blocks("Python", "sh")
        cls.programs = blocks("Python", "python")
        (cls.folder / "venv" / "bin").mkdir(parents=True)
        (cls.folder / "venv" / "bin" / "python").write_text(
            f'#!/bin/sh\nexec {sys.executable} "$@"\n', "utf-8")
        (cls.folder / "venv" / "bin" / "python").chmod(0o755)
        cls.run_lines("".join(
            line for line in cls.install.splitlines(keepends=True)
            if not re.match(r"python3 -m venv|venv/bin/pip", line)))
        cls.server = cls.enterClassContext(Server())

    def run_program(self, text, **environment):
        text = text.replace("127.0.0.1:8001", self.server.grpc)
        (self.folder / "square.py").write_text(text, "utf-8")
        return self.run_lines(self.start, **environment)

    def test_the_packages_are_those_of_this_test(self):
        wanted = (ROOT / "deploy" / "pins.txt").read_text()
        [tests] = re.findall(r"(?ms)^\[tests\]\n(.*?)(?:^\[|\Z)", wanted)
        pinned = re.findall(r"(?m)^want (\S+)==", tests)
        for package in self.installed():
            self.assertIn(package.partition("[")[0], with_needs(pinned))

    def installed(self):
        [line] = re.findall(r"(?m)^venv/bin/pip install (.*)$", self.install)
        return line.replace('"', "").split()

    def test_nothing_else_is_imported(self):
        """`tritonclient` may be left out, as the page says."""
        have = with_needs([package for package in self.installed()
                           if "tritonclient" not in package])
        sources = importlib.metadata.packages_distributions()
        for program in self.programs:
            for module in re.findall(r"(?m)^(?:import|from) (\w+)", program):
                if module == "weir":  # generated
                    continue
                self.assertTrue(
                    have & {name.lower() for name in sources[module]}, module)

    def test_the_first_program(self):
        printed = self.run_program(self.programs[0])
        self.assertRegex(printed, r"\[\[ 1\. +4\.\]\n +\[ 9\. 16\.\]\] "
                                  r"WORK_STATE_COMPLETED\n")
        self.assertIn("\nUNIMPLEMENTED opset 3: ", printed)
        self.assertIn("\nat fault: graph.definition.opset\n", printed)

    def test_the_program_of_the_page_of_errors(self):
        page = (ROOT / "docs" / "errors.md").read_text("utf-8")
        section = page.split("## From Python")[1]
        program, promised = [
            re.sub(r"(?m)^    ", "", text).strip("\n") + "\n"
            for text in re.findall(r"(?:^    .*\n|^\n(?=    ))+", section,
                                   re.MULTILINE)]
        self.assertEqual(self.run_program(program), promised)
        # Where nobody listens there are no details.
        nobody = program.replace("127.0.0.1:8001", "unix:nobody.sock")
        self.assertRegex(self.run_program(nobody),
                         r"\AStatusCode\.UNAVAILABLE .*\n\Z")

    def test_a_list_in_pages(self):
        printed = self.run_program(self.programs[1])
        listed = [line.split(" - ")[0] for line in printed.splitlines()]
        self.assertIn("DecodeImage", listed)
        self.assertEqual(listed, sorted(set(listed)))
        self.assertGreater(len(listed), 5)

    def test_a_chain_in_a_space(self):
        [program] = blocks("Spaces", "python")
        self.assertEqual(self.run_program(program), "[1024. 2048. 3072.]\n")

    def test_commands_of_a_session(self):
        [program] = blocks("Sessions", "python")
        self.assertEqual(self.run_program(program), "[1, 2, 3]\n")

    def test_beside_tritonclient_and_googleapis_in_one_process(self):
        """All three define what our server's own files define too; each call
        and its error are read with the others' classes."""
        program = pathlib.Path(__file__).with_name("one_process.py")
        self.assertEqual(
            self.run_program(program.read_text("utf-8"),
                             SERVED=str(ROOT / "tests" / "data")),
            "weir.v1: WORK_STATE_COMPLETED\n"
            "inference: (1, 10)\n"
            "weir.v1 error: NOT_FOUND weir MODEL_NOT_FOUND graph.model\n"
            "inference error: NOT_FOUND weir MODEL_NOT_FOUND\n"
            "failed work: INVALID_ARGUMENT INDEX_OUT_OF_RANGE "
            "WORK_STATE_ERROR\n")


class Spaces(Folder):

    def test_from_a_shell(self):
        [lines] = blocks("Spaces", "sh")
        with Server() as server:
            printed = self.run_lines(
                lines, WEIR_SERVER=server.grpc,
                PATH=f"{BIN}:{os.environ['PATH']}")
        self.assertRegex(
            printed, r'\Aspace 1 "tour" of anonymous, opened \S+Z, unused for at '
            r"most 60 s\n  tensors    0 of 65536, 0 B of 1 GiB\n")
        self.assertRegex(printed, r"\n1 spaces with 0 tensors of 0 B, .*\n"
                                  r"closed; it held 0 tensors of 0 B, .*\n\Z")


class Copies(unittest.TestCase):
    """What we copied of others' packages says the same as theirs."""

    def fields(self, pool_file):
        def of(message, name):
            for field in message.field:
                yield (f"{name}.{field.name}",
                       (field.number, field.type, field.label,
                        field.type_name, field.HasField("oneof_index")))
            for nested in message.nested_type:
                yield from of(nested, f"{name}.{nested.name}")
        for message in pool_file.message_type:
            yield from of(message, f"{pool_file.package}.{message.name}")

    def ours(self, *files):
        from google.protobuf import descriptor_pb2
        with tempfile.NamedTemporaryFile() as out:
            subprocess.run(["protoc", f"-I{ROOT / 'proto'}",
                            f"--descriptor_set_out={out.name}", *files],
                           check=True)
            described = descriptor_pb2.FileDescriptorSet.FromString(out.read())
        return {name: value for file in described.file
                for name, value in self.fields(file)}

    def theirs(self, *modules):
        from google.protobuf import descriptor_pb2
        found = {}
        for module in modules:
            file = descriptor_pb2.FileDescriptorProto()
            module.DESCRIPTOR.CopyToProto(file)
            found.update(self.fields(file))
        return found

    def test_google_rpc(self):
        from google.rpc import error_details_pb2, status_pb2
        theirs = self.theirs(error_details_pb2, status_pb2)
        for name, value in self.ours("google/rpc/error_details.proto",
                                     "google/rpc/status.proto").items():
            self.assertEqual(theirs.get(name), value, name)

    def test_inference(self):
        from tritonclient.grpc import model_config_pb2, service_pb2
        theirs = self.theirs(model_config_pb2, service_pb2)
        ours = self.ours("inference/grpc_service.proto",
                         "inference/model_config.proto")
        # Of the Open Inference Protocol; Triton's file leaves it out.
        metadata = "inference.ModelMetadataResponse"
        self.assertEqual(ours.pop(f"{metadata}.properties")[0], 6)
        del ours[f"{metadata}.PropertiesEntry.key"]
        del ours[f"{metadata}.PropertiesEntry.value"]
        for name, value in ours.items():
            self.assertEqual(theirs.get(name), value, name)


if __name__ == "__main__":
    skipping.main()
