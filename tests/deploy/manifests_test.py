#!/usr/bin/env python3
"""What a cluster would get from deploy/: do the manifests build, do their
fields exist, and do they fit the server?"""

import contextlib
import copy
import json
import pathlib
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import unittest
import urllib.request

import yaml

import certificates
import kinds
import manifests
import memory
import running
from manifests import KUBERNETES, MONITORING, composed, find, quantity
from memory import constant

sys.path.append(str(manifests.ROOT / "tests"))
from standins import validation  # pylint: disable=wrong-import-position

# What Kubernetes gives a pod that asks for nothing else.
DEFAULT_GRACE_SECONDS = 30
# gRPC ends a connection at its age plus or minus a tenth.
AGE_JITTER = 1.1
# What its clients wait for between two questions to DNS by default
# (grpc.dns_min_time_between_resolutions_ms; Go's and Java's have the same), and
# for how long the cluster's DNS keeps a name.
RESOLUTION_SECONDS = 30
NAME_SECONDS = 5
OVERLAYS = KUBERNETES / "overlays"
# What a served model has on the CPU beside its constants: these packed, so many
# times and a little, and plans.
PACKED_TIMES = constant("kernels/graph/compiler.cc", "kPackedTimes")
PACKED_BYTES = constant("kernels/graph/compiler.cc", "kSparePackedBytes")
USED_PLAN_BYTES = constant("kernels/graph/program.h", "max_used_plan_bytes")


def all_documents():
    """(folder or file, document); once, if many compositions have it."""
    seen = set()
    for path in (*manifests.KUSTOMIZATIONS, *manifests.SINGLE_FILES,
                 *manifests.compositions()):
        for document in manifests.documents(path):
            text = json.dumps(document, sort_keys=True)
            if text not in seen:
                seen.add(text)
                yield path.name, document


def setUpModule():
    global GATEWAY, KEDA
    GATEWAY = composed("cpu", "gateway")
    KEDA = composed("cpu", "keda")


def tearDownModule():
    manifests.folder_of_compositions()[0].cleanup()


class Build(unittest.TestCase):

    def test_there_are_the_overlays_that_the_docs_name(self):
        names = {path.name for path in OVERLAYS.iterdir()}
        self.assertEqual(names, {"cpu", "gpu"})

    def test_every_kubectl_builds_the_same(self):
        kubectls = manifests.kubectls()
        print("with", *kubectls)
        for folder in (*manifests.KUSTOMIZATIONS,
                       composed("cpu", "keda", "tls", "object-storage"),
                       composed("mig", "hpa", "tls", "gateway")):
            first, *others = (self.normalized(folder, kubectl)
                              for kubectl in kubectls)
            self.assertGreater(len(first), 0, folder)
            for other in others:
                self.assertEqual(first, other, folder)

    def normalized(self, folder, kubectl):
        """Documents by kind and name, without the hash of generated names,
        which versions compute differently, and without empty fields."""
        text = manifests.kustomize(folder, kubectl)
        for kind, name in re.findall(
                r"^kind: (\w+)\nmetadata:\n(?:  .*\n)*?  name: (\S+)$", text,
                re.MULTILINE):
            if kind == "ConfigMap":
                text = re.sub(rf"\b{name}\b",
                              manifests.HASH_SUFFIX.sub("-HASH", name), text)
        found = {}
        for document in yaml.safe_load_all(text):
            self.assertTrue(document, f"{folder}: an empty document")
            metadata = document["metadata"]
            found[document["kind"], metadata["name"]] = {
                **document, "metadata": {key: value for key, value
                                         in metadata.items() if value}}
        return found

    def test_what_is_namespaced_says_so(self):
        for path, document in all_documents():
            if document["kind"] in ("Namespace", "ClusterServingRuntime"):
                continue
            self.assertIn("namespace", document["metadata"],
                          (path, manifests.name_of(document)))

    def test_rollouts_are_guarded_by_models(self):
        for server in manifests.servers():
            self.assertIn(server.settings.get("WEIR_STRICT_READINESS"),
                          ("true", ""), server.where)

    def test_references_to_generated_settings_are_kept(self):
        for server in manifests.servers():
            if server.where.startswith("weir-"):
                continue  # KServe: all in its arguments
            self.assertIn("WEIR_DEVICE", server.settings, server.where)


class Kinds(unittest.TestCase):

    def test_fields_exist(self):
        for version in kinds.newest_versions(2):
            checker = kinds.Checker(version)
            checked = 0
            for path, document in all_documents():
                with self.subTest(version=version, file=str(path),
                                  kind=document["kind"]):
                    checker.check(document)
                checked += 1
            print(f"Kubernetes {version}: {checked} documents")

    def test_values_are_those_that_an_api_server_takes(self):
        for path, document in all_documents():
            self.assertEqual(list(validation.faults(document)), [],
                             (path, manifests.name_of(document)))

    def test_the_command_agrees(self):
        """`kubernetes-validate --strict`, the way a person would run it."""
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(manifests.kustomize(OVERLAYS / "gpu"))
            file.flush()
            for version in kinds.newest_versions(2):
                done = subprocess.run(
                    [sys.executable, "-m", "kubernetes_validate", "--strict",
                     "-k", version, file.name],
                    capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stdout)
                self.assertNotIn("WARN", done.stdout)

    def test_every_custom_kind_is_used(self):
        used = {f"{document['apiVersion']} {document['kind']}"
                for _, document in all_documents()}
        listed = yaml.safe_load(kinds.CUSTOM_KINDS.read_text("utf-8"))
        self.assertEqual(set(listed) - used, set())

    def test_wrong_fields_are_found(self):
        checker = kinds.Checker(kinds.newest_versions(1)[0])
        overlay = OVERLAYS / "cpu"
        wrong = (
            (overlay, "Deployment", ("spec", "template", "spec"), "hostname_",
             "x"),
            (KEDA, "ScaledObject", ("spec",), "minReplicas", 2),
            (KEDA, "ScaledObject", ("spec", "triggers", 0,
                                                   "metadata"), "threshold", 8),
            (GATEWAY, "GRPCRoute", ("spec", "rules", 0,
                                                   "backendRefs", 0), "port",
             "8001"),
            (MONITORING, "ServiceMonitor", ("spec", "endpoints", 0), "interval",
             "15"),
            (KEDA, "ScaledObject",
             ("spec", "advanced", "horizontalPodAutoscalerConfig", "behavior"),
             "scaleSideways", {}),
        )
        for path, kind, keys, field, value in wrong:
            document = copy.deepcopy(find(path, kind))
            place = document
            for key in keys:
                place = place[key]
            place[field] = value
            with self.assertRaises(Exception, msg=(kind, field)) as raised:
                checker.check(document)
            self.assertIn(field.rstrip("_"), str(raised.exception))


class Flags(unittest.TestCase):

    def test_every_flag_is_one_of_the_server(self):
        flags = manifests.flags_of("weir-server")
        variables = {manifests.variable_of(flag) for flag in flags}
        for server in manifests.servers():
            for argument in server.container["args"]:
                self.assertIn(argument.partition("=")[0], flags, server.where)
            self.assertEqual(set(server.settings) - variables, set(),
                             server.where)

    def test_the_server_starts_with_them_and_answers_the_probes(self):
        """On this machine: on loopback and the CPU, with files of its own.
        Once for each choice of settings and probes."""
        different = {
            json.dumps([server.settings, *(server.container[name] for name in (
                "startupProbe", "readinessProbe", "livenessProbe"))],
                       sort_keys=True): server
            for server in manifests.servers()}
        print(len(different), "servers")
        for server in different.values():
            with tempfile.TemporaryDirectory() as folder:
                self.start(server, pathlib.Path(folder))

    def start(self, server, folder):
        settings = {**server.settings,
                    "WEIR_GRPC": f"127.0.0.1:0,unix:{folder}/socket",
                    "WEIR_HTTP": "127.0.0.1:0",
                    "WEIR_DEVICE": "cpu", "WEIR_CACHE_DIR": str(folder),
                    "WEIR_MODEL_REPOSITORY": str(
                        manifests.ROOT / "tests" / "data")}
        if "WEIR_TLS_CERT" in settings:
            certificates.make(folder)
            for name in ("WEIR_TLS_CERT", "WEIR_TLS_KEY"):
                file = pathlib.Path(settings[name]).name
                settings[name] = str(folder / file)
        process = subprocess.Popen(
            [manifests.BIN / "weir-server"], text=True,
            env={name: value or "true" for name, value in settings.items()},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            grpc, socket, http = running.wait_for_line(
                process, process.stdout,
                r" ready: grpc=(\S+),(\S+) http=(\S+)").groups()
            self.probe(server, {"grpc": grpc, "http": http})
            self.operate(server, socket)
        finally:
            process.kill()
            process.communicate()

    def operate(self, server, socket):
        """From inside the pod, over the socket, without a token."""
        done = subprocess.run(
            [manifests.BIN / "weir", "admin", "log-level", "info"],
            env={"WEIR_SERVER": socket}, capture_output=True, text=True,
            check=False)
        self.assertEqual(done.returncode, 0, (server.where, done.stderr))

    def probe(self, server, addresses):
        """Asks what the kubelet would ask."""
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = server.container[kind]
            if "httpGet" in probe:
                path = probe["httpGet"]["path"]
                with urllib.request.urlopen(
                        f"http://{addresses['http']}{path}") as reply:
                    self.assertEqual(reply.status, 200, (server.where, kind))
                continue
            service = probe["grpc"].get("service")
            done = subprocess.run(
                [manifests.BIN / "weir", "--server", addresses["grpc"],
                 "status", "--probe",
                 *(["--service", service] if service else [])],
                capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0,
                             (server.where, kind, done.stderr))

    def test_commands_inside_the_pod_find_the_socket(self):
        for overlay in manifests.compositions():
            server = manifests.server_of(overlay)
            [variable] = server.container["env"]
            self.assertEqual(variable["name"], "WEIR_SERVER")
            self.assertIn(variable["value"], server.addresses("--grpc"))
            folder = variable["value"].removeprefix("unix:").rpartition("/")[0]
            [mount] = [mount for mount in server.container["volumeMounts"]
                       if mount["mountPath"] == folder]
            self.assertFalse(mount.get("readOnly", False))

    def test_every_mounted_path_that_a_flag_names_is_mounted(self):
        for overlay in manifests.compositions():
            server = manifests.server_of(overlay)
            mounts = {mount["mountPath"]: mount
                      for mount in server.container["volumeMounts"]}
            self.assertIn(server.settings["WEIR_MODEL_REPOSITORY"], mounts)
            cache = mounts[server.settings["WEIR_CACHE_DIR"]]
            self.assertFalse(cache.get("readOnly", False))
            for name, value in server.settings.items():
                if name.startswith("WEIR_TLS_"):
                    self.assertIn(value.rsplit("/", 1)[0], mounts, name)

    def test_the_memory_limit_is_what_the_bounds_need(self):
        """Of all servers with the same resources, which TLS does not change,
        the one that needs most."""
        needs = {}
        for server in manifests.servers():
            resources = server.container["resources"]
            limit = resources["limits"]["memory"]
            self.assertEqual(resources["requests"]["memory"], limit)
            device = server.settings["WEIR_DEVICE"]
            needs.setdefault(
                (quantity(limit), device, "nvidia.com/gpu" in resources[
                    "limits"]), set()).add(
                        memory.needed_limit(server.settings))
        for (limit, *what), needed in needs.items():
            self.assertEqual(limit, max(needed), what)
        self.assertEqual(len(needs), 5, needs)

    def test_settings_that_allow_more_make_the_sum_more(self):
        for settings, more in (
                ({"WEIR_DEVICE": "cpu", "WEIR_ARENA_BYTES": 2**35}, 2**35),
                ({"WEIR_DEVICE": "cuda", "WEIR_IO_THREADS": 64}, 12288 * (
                    2 * memory.STREAM_BYTES + memory.CALL_BYTES)),
                ({"WEIR_TLS_CERT": "x"}, 4096 * 72 * 2**10)):
            [changed] = [name for name in settings if name != "WEIR_DEVICE"]
            without = {**settings, changed: 1 if "ARENA" in changed else ""}
            limit = 2**34
            self.assertGreaterEqual(
                memory.total(settings, limit) - memory.total(without, limit),
                more - 1, settings)
        # Of those that the server makes by itself all keep within the bound.
        for threads in (1, 16):
            self.assertEqual(
                memory.total({"WEIR_IO_THREADS": threads}, 2**34),
                memory.total({}, 2**34))

    def test_the_least_limit_holds_the_arena_that_is_asked_for(self):
        """The server caps none of a single CPU."""
        limit = memory.needed_limit({"WEIR_DEVICE": "cpu",
                                     "WEIR_ARENA_BYTES": 2**35})
        rest = memory.total({"WEIR_DEVICE": "cpu", "WEIR_ARENA_BYTES": 1},
                            limit)
        self.assertGreater(0.8 * limit, 2**35 + rest - 1)

    def test_several_devices_are_refused(self):
        for devices in ("cuda:0,1", "cpu,cuda:0"):
            done = subprocess.run(
                [sys.executable, KUBERNETES / "memory.py",
                 f"WEIR_DEVICE={devices}"], capture_output=True, text=True,
                check=False)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(f"WEIR_DEVICE={devices}: the sum is of one device",
                          done.stderr)

    def test_a_connection_takes_no_more_than_is_counted(self):
        """Of connections that do nothing, what the process grows by."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            certificates.make(folder)
            tls = ssl.create_default_context(cafile=folder / "tls.crt")
            tls.set_alpn_protocols(["h2"])
            for context, flags, counted in (
                    (None, ["--insecure"], memory.PLAIN_BYTES),
                    (tls, [f"--tls-cert={folder}/tls.crt",
                           f"--tls-key={folder}/tls.key"], memory.TLS_BYTES)):
                size = self.size_of_a_connection(context, flags)
                print(f"{size / 2**10:.0f} KiB a connection, "
                      f"{counted >> 10} are counted")
                self.assertLessEqual(size, counted, flags)
                # Or the limits are for nothing.
                self.assertGreater(size, counted / 2, flags)

    def size_of_a_connection(self, tls, flags, count=400):
        with running.Server(*flags, "--max-peer-connections=0",
                            "--max-connection-age=0") as server:
            address = server.grpc.rsplit(":", 1)
            with contextlib.ExitStack() as stack:

                def connect():
                    plain = socket.create_connection(address)
                    connection = stack.enter_context(
                        tls.wrap_socket(plain, server_hostname=address[0])
                        if tls else plain)
                    # HTTP/2's first words, and empty SETTINGS.
                    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                                       b"\0\0\0\4\0\0\0\0\0")
                    self.assertTrue(connection.recv(1))

                for _ in range(count):
                    connect()
                before = self.memory_of(server)
                for _ in range(count):
                    connect()
                return (self.memory_of(server) - before) / count

    def memory_of(self, server):
        status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text(
            "utf-8")
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 2**10

    def test_the_sum_takes_the_servers_defaults(self):
        text = manifests.help_of("weir-server")
        for variable in ("WEIR_QUEUE_BYTES", "WEIR_MAX_MESSAGE_BYTES",
                         "WEIR_QUEUE_LENGTH", "WEIR_STREAMS",
                         "WEIR_HOST_BYTES", "WEIR_TENSOR_BYTES",
                         "WEIR_ARENA_BYTES", "WEIR_MAX_CONNECTIONS"):
            [value] = re.findall(rf"=(\d+) \(Env:{variable}\)", text)
            self.assertEqual(int(value), memory.default(variable), variable)

    def test_the_guide_has_the_sums_that_the_script_prints(self):
        """A row for each part, a column for each kind of server."""
        kinds_of_server = {server.where: server
                           for server in manifests.servers()}
        columns = [kinds_of_server[name] for name in
                   ("cpu", "gpu", "mig", "weir-cpu", "weir-cuda")]
        rows = {}
        for server in columns:
            limit = quantity(server.container["resources"]["limits"]["memory"])
            for what, size in memory.parts(server.settings, limit):
                rows.setdefault(what, []).append(f"{size / 2**30:.2f}")
            rows.setdefault("**in all**", []).append(
                f"{memory.total(server.settings, limit) / 2**30:.2f}")
            rows.setdefault("**limit**", []).append(f"{limit / 2**30:g}")
        guide = (manifests.ROOT / "docs" / "kubernetes.md").read_text("utf-8")
        for what, sizes in rows.items():
            self.assertIn(f"| {what} | {' | '.join(sizes)} |\n", guide)

    def test_the_script_judges_what_kustomize_prints(self):
        script = KUBERNETES / "memory.py"
        for settings, code in (("", 0), ("WEIR_QUEUE_BYTES=1073741824\n", 1)):
            folder = composed("cpu", options=("--tag", f"t{code}"))
            (folder / "settings.env").write_text(settings, "utf-8")
            done = subprocess.run(
                [sys.executable, script, "-"], capture_output=True, text=True,
                input=manifests.kustomize(folder), check=False)
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            self.assertIn("of a limit of 14 GiB", done.stdout)
        done = subprocess.run([sys.executable, script, "QUEUE=1"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("QUEUE=1: neither", done.stderr)

    def test_the_guide_names_the_sum_s_constants(self):
        guide = (manifests.ROOT / "docs" / "kubernetes.md").read_text("utf-8")
        for text in (f"+ {memory.UNREAD_BYTES >> 20} MiB |",
                     f"{memory.SMALL_CALL_BYTES >> 20} MiB + "
                     f"{memory.HEALTH_BYTES >> 20} MiB |",
                     f"| {memory.REFUSALS * memory.CALL_BYTES >> 20} MiB | "
                     "the same |",
                     f"| {memory.REPLY_TIMES} x `WEIR_QUEUE_BYTES` (",
                     f"{memory.STREAM_BYTES >> 10} KiB for each",
                     f"{memory.FRAME_BYTES + memory.PLAIN_BYTES >> 10} KiB "
                     "for each",
                     f"{memory.FRAME_BYTES + memory.TLS_BYTES >> 10} KiB with "
                     "TLS",
                     f"| {memory.PROGRAM_BYTES >> 30} GiB | "
                     f"{memory.PROGRAM_BYTES * 1.25 / 2**30} GiB |",
                     f"| 2 x `WEIR_MAX_MESSAGE_BYTES` + "
                     f"{memory.MAKING_BYTES / 2**30} GiB | twice that |",
                     f"| {memory.COMPILE_BYTES >> 30} GiB | "
                     f"2 x {memory.COMPILE_BYTES >> 30} GiB |",
                     f"| none | {memory.PICTURE_BYTES / 2**30} GiB |",
                     "| the process, and the driver in it | "
                     f"{memory.PROCESS_BYTES >> 20} MiB | "
                     f"{memory.PROCESS_BYTES + memory.DRIVER_BYTES >> 20} "
                     "MiB |",
                     f"1 + {PACKED_TIMES} times its constants, "
                     f"{PACKED_BYTES >> 20} MiB and {USED_PLAN_BYTES >> 20} "
                     "MiB"):
            self.assertIn(text, guide)

    def test_scratch_volumes_fit_the_limit(self):
        for overlay in manifests.compositions():
            server = manifests.server_of(overlay)
            volumes = sum(quantity(volume["emptyDir"]["sizeLimit"])
                          for volume in server.pod["volumes"]
                          if "emptyDir" in volume)
            limit = server.container["resources"]["limits"]
            self.assertLessEqual(volumes, quantity(limit["ephemeral-storage"]),
                                 server.where)


class Envoy(unittest.TestCase):
    """The gateway for strangers."""

    def setUp(self):
        folder = KUBERNETES / "envoy"
        self.files = find(folder, "ConfigMap", "weir-envoy")["data"]
        self.config = yaml.safe_load(self.files["envoy.yaml"])
        [self.callers, self.ready] = self.config["static_resources"][
            "listeners"]
        [self.cluster] = self.config["static_resources"]["clusters"]
        [chain] = self.callers["filter_chains"]
        self.chain = chain
        self.manager = chain["filters"][0]["typed_config"]
        deployment = find(folder, "Deployment", "weir-envoy")["spec"]
        self.replicas = deployment["replicas"]
        self.pod = deployment["template"]["spec"]
        [self.container] = self.pod["containers"]

    def test_it_bounds_what_the_server_cannot(self):
        self.assertLessEqual(self.manager["max_request_headers_kb"], 16)
        self.assertLessEqual(
            self.manager["common_http_protocol_options"]["max_headers_count"],
            64)
        self.assertEqual(self.manager["request_headers_timeout"], "10s")
        self.assertEqual(self.chain["transport_socket_connect_timeout"], "10s")
        self.assertLessEqual(
            self.manager["http2_protocol_options"]["max_concurrent_streams"],
            100)
        heap, connections = self.config["overload_manager"][
            "resource_monitors"]
        self.assertLess(heap["typed_config"]["max_heap_size_bytes"], quantity(
            self.container["resources"]["limits"]["memory"]))
        self.assertLessEqual(
            connections["typed_config"]["max_active_downstream_connections"],
            1000)

    def test_it_holds_little_that_nobody_takes(self):
        [options] = self.cluster["typed_extension_protocol_options"].values()
        options = options["explicit_http_config"]["http2_protocol_options"]
        [bounds] = self.cluster["circuit_breakers"]["thresholds"]
        stream = options["initial_stream_window_size"]
        self.assertGreaterEqual(options["initial_connection_window_size"],
                                stream * bounds["max_requests"])
        # A window on each side of Envoy.
        stream += self.manager["http2_protocol_options"][
            "initial_stream_window_size"]
        heap, _ = self.config["overload_manager"]["resource_monitors"]
        # Of messages and of replies.
        self.assertLess(2 * stream * bounds["max_requests"],
                        heap["typed_config"]["max_heap_size_bytes"] * 0.9)
        page = (manifests.ROOT / "docs" / "threat_model.md").read_text("utf-8")
        self.assertIn(f"{stream * bounds['max_requests'] >> 20} MiB of all",
                      page)

    def test_callers_cannot_make_its_probes_fail(self):
        ports = {port["name"]: port["containerPort"]
                 for port in self.container["ports"]}
        self.assertEqual(
            self.ready["address"]["socket_address"]["port_value"],
            ports["ready"])
        self.assertIs(self.ready["ignore_global_conn_limit"], True)
        self.assertIs(self.ready["bypass_overload_manager"], True)
        for name in ("readinessProbe", "livenessProbe"):
            self.assertEqual(self.container[name]["httpGet"]["port"], "ready")
        self.assertNotIn("ignore_global_conn_limit", self.callers)
        self.assertNotIn("bypass_overload_manager", self.callers)

    def test_callers_have_left_before_it_ends(self):
        age = self.manager["common_http_protocol_options"][
            "max_connection_duration"]
        sleep = self.container["lifecycle"]["preStop"]["sleep"]["seconds"]
        # Envoy asks them for 5 s, then ends what has no calls.
        self.assertGreater(sleep, float(age.removesuffix("s")) + 5)
        self.assertGreater(self.pod["terminationGracePeriodSeconds"], sleep)
        budget = find(KUBERNETES / "envoy", "PodDisruptionBudget",
                      "weir-envoy")["spec"]
        self.assertLess(budget["maxUnavailable"], self.replicas)

    def test_the_page_says_when_it_cuts_a_call(self):
        page = (manifests.ROOT / "docs" / "threat_model.md").read_text("utf-8")
        rows = dict(re.findall(r"(?m)^\| ([^|]*) \| ([^|]*) \|$", page))

        def seconds(text):
            return text.replace("s", " s")

        [host] = self.manager["route_config"]["virtual_hosts"]
        for route in host["routes"]:
            duration = route["route"]["max_stream_duration"]
            self.assertEqual(
                rows["a caller's deadline"],
                "at most " + seconds(duration["grpc_timeout_header_max"]))
        self.assertEqual(
            rows["a call on which nothing moves, a `Watch` of health too"],
            seconds(self.manager["stream_idle_timeout"]))

    def test_it_lets_the_same_services_through_as_the_route(self):
        [host] = self.manager["route_config"]["virtual_hosts"]
        prefixes = [route["match"]["prefix"] for route in host["routes"]]
        rules = find(GATEWAY, "GRPCRoute")["spec"]["rules"]
        self.assertEqual(prefixes, [
            f"/{match['method']['service']}/"
            for rule in rules for match in rule["matches"]])
        self.assertNotIn("/weir.v1.Admin/", prefixes)

    def test_it_finds_the_servers_and_is_found(self):
        [group] = self.cluster["load_assignment"]["endpoints"]
        [endpoint] = group["lb_endpoints"]
        where = endpoint["endpoint"]["address"]["socket_address"]
        service = find(OVERLAYS / "cpu", "Service",
                       where["address"])
        [port] = service["spec"]["ports"]
        self.assertEqual(where["port_value"], port["port"])
        ports = {p["name"]: p["containerPort"]
                 for p in self.container["ports"]}
        self.assertEqual(
            self.callers["address"]["socket_address"]["port_value"],
            ports["grpc"])

    def test_a_renewed_certificate_is_read(self):
        mounts = {mount["mountPath"]: mount for mount in
                  self.container["volumeMounts"]}
        common = self.chain["transport_socket"]["typed_config"][
            "common_tls_context"]
        [secret] = common["tls_certificate_sds_secret_configs"]
        folder, _, name = secret["sds_config"]["path_config_source"][
            "path"].rpartition("/")
        self.assertIn(folder, mounts)
        [resource] = yaml.safe_load(self.files[name])["resources"]
        self.assertEqual(resource["name"], secret["name"])
        certificate = resource["tls_certificate"]
        watched = certificate["watched_directory"]["path"]
        self.assertNotIn("subPath", mounts[watched])
        for part in ("certificate_chain", "private_key"):
            self.assertEqual(
                certificate[part]["filename"].rpartition("/")[0], watched)
        # Without both Envoy takes no secrets from files.
        self.assertEqual(set(self.config["node"]), {"id", "cluster"})


class Shutdown(unittest.TestCase):

    def test_the_grace_period_holds_the_drain(self):
        for server in manifests.servers():
            sleep = 0
            if "lifecycle" in server.container:
                command, seconds = server.container["lifecycle"]["preStop"][
                    "exec"]["command"]
                self.assertEqual(command, "sleep")
                sleep = float(seconds)
            grace = server.pod.get("terminationGracePeriodSeconds",
                                   DEFAULT_GRACE_SECONDS)
            delay = server.number("--drain-delay", "nan")
            timeout = server.number("--drain-timeout", "nan")
            age = server.number("--max-connection-age", "nan")
            # Whatever hangs, the process ends by itself, and says so.
            overrun = constant("server/drain_times.h", "kOverrun")
            self.assertGreater(grace, sleep + delay + timeout + overrun,
                               server.where)
            self.assertLess(age * AGE_JITTER, timeout, server.where)

    def test_an_update_never_stops_all(self):
        for overlay in manifests.compositions():
            update = find(overlay, "Deployment")["spec"]["strategy"][
                "rollingUpdate"]
            least = self.least_pods(overlay)
            self.assertLess(update["maxUnavailable"], least, overlay.name)
            budget = find(overlay, "PodDisruptionBudget")["spec"]
            self.assertLess(budget["maxUnavailable"], least, overlay.name)

    def least_pods(self, folder):
        """Of the autoscaler, or the number that is set."""
        for document in manifests.documents(folder):
            for field in ("minReplicas", "minReplicaCount"):
                if field in document.get("spec", {}):
                    return document["spec"][field]
        return find(folder, "Deployment")["spec"]["replicas"]

    def test_either_an_autoscaler_owns_the_number_of_pods_or_the_file(self):
        for components in manifests.combinations():
            deployment = find(composed(*components), "Deployment")["spec"]
            self.assertEqual("replicas" in deployment,
                             not {"hpa", "keda"} & set(components), components)

    def test_clients_know_a_new_pod_before_an_old_one_leaves(self):
        """They ask DNS when a connection ends, but not within half a minute of
        the last time."""
        for overlay in manifests.compositions():
            age = manifests.server_of(overlay).number("--max-connection-age",
                                                      "nan")
            self.assertGreater(
                find(overlay, "Deployment")["spec"]["minReadySeconds"],
                max(age * AGE_JITTER, RESOLUTION_SECONDS) + NAME_SECONDS,
                overlay.name)

    def test_an_update_is_not_called_failed_while_a_pod_may_still_start(self):
        """Its deadline begins anew with each pod that comes, is ready, or has
        been for long enough."""
        for overlay in manifests.compositions():
            spec = find(overlay, "Deployment")["spec"]
            self.assertGreaterEqual(
                spec["progressDeadlineSeconds"], manifests.compose.MAX_START +
                spec["minReadySeconds"], overlay.name)

    def test_the_guide_waits_for_an_update_of_all_pods(self):
        """One after another, each the old one's end, a minute's start, and what
        a new one must have been ready for."""
        spec = find(composed("gpu", "hpa"), "Deployment")["spec"]
        pods = find(composed("gpu", "hpa"), "HorizontalPodAutoscaler")["spec"][
            "maxReplicas"]
        whole = pods * (60 + spec["minReadySeconds"] + spec["template"]["spec"][
            "terminationGracePeriodSeconds"])
        guide = (manifests.ROOT / "docs" / "kubernetes.md").read_text("utf-8")
        waits = re.findall(r"rollout status deployment/weir --timeout=(\w+)",
                           guide)
        self.assertGreater(len(waits), 2)
        for wait in waits:
            if wait != "10s":  # a look, not a wait
                self.assertGreaterEqual(
                    {"s": 1, "m": 60}[wait[-1]] * int(wait[:-1]), whole, wait)


class Probes(unittest.TestCase):

    def probes(self, server):
        return {name: probe for name, probe in server.container.items()
                if name.endswith("Probe")}

    def test_each_asks_a_port_and_name_that_the_server_has(self):
        for server in manifests.servers():
            probes = self.probes(server)
            self.assertEqual(set(probes), {"startupProbe", "readinessProbe",
                                           "livenessProbe"}, server.where)
            tls = "WEIR_TLS_CERT" in server.settings
            # Callers may have all connections of gRPC's port. Not every Knative
            # takes probes of another one.
            runtime = server.where.startswith("weir-")
            for name, probe in probes.items():
                where = (server.where, name)
                ready = name == "readinessProbe"
                if tls or (name == "livenessProbe" and not runtime):
                    self.assertEqual(probe["httpGet"]["path"],
                                     "/readyz" if ready else "/healthz", where)
                    self.assertEqual(probe["httpGet"]["port"], "http", where)
                else:
                    self.assertEqual(probe["grpc"]["port"],
                                     server.port("--grpc"), where)
                    self.assertEqual(probe["grpc"].get("service", ""),
                                     "" if ready else "live", where)

    def test_a_start_may_take_minutes_and_is_seen_within_a_second(self):
        for server in manifests.servers():
            probe = server.container["startupProbe"]
            self.assertLessEqual(probe["periodSeconds"], 1)
            self.assertGreaterEqual(
                probe["periodSeconds"] * probe["failureThreshold"], 300)


class Ports(unittest.TestCase):

    def test_services_reach_the_server(self):
        for overlay in manifests.compositions():
            server = manifests.server_of(overlay)
            ports = {port["name"]: port["containerPort"]
                     for port in server.container["ports"]}
            self.assertEqual(ports, {"grpc": server.port("--grpc"),
                                     "http": server.port("--http")})
            labels = find(overlay, "Deployment")["spec"]["template"][
                "metadata"]["labels"]
            for name in ("weir", "weir-headless"):
                service = find(overlay, "Service", name)["spec"]
                self.assertLessEqual(service["selector"].items(),
                                     labels.items())
                for port in service["ports"]:
                    self.assertEqual(port["port"], ports[port["targetPort"]])
            self.assertEqual(
                find(overlay, "Service", "weir-headless")["spec"]["clusterIP"],
                "None")
            for rule in find(overlay, "NetworkPolicy")["spec"]["ingress"]:
                for port in rule["ports"]:
                    self.assertIn(port["port"], ports)

    def test_others_reach_the_services(self):
        overlay = OVERLAYS / "cpu"
        ports = {port["name"]: port["port"]
                 for port in find(overlay, "Service")["spec"]["ports"]}
        for rule in find(GATEWAY, "GRPCRoute")["spec"]["rules"]:
            for backend in rule["backendRefs"]:
                self.assertEqual(backend["name"], "weir")
                self.assertEqual(backend["port"], ports["grpc"])
        monitor = find(MONITORING, "ServiceMonitor")["spec"]
        service = find(overlay, "Service")["metadata"]["labels"]
        self.assertLessEqual(monitor["selector"]["matchLabels"].items(),
                             service.items())
        self.assertIn(monitor["jobLabel"], service)
        self.assertEqual(service[monitor["jobLabel"]], "weir")
        self.assertIn(monitor["endpoints"][0]["port"], ports)

    def test_a_service_never_becomes_a_flag(self):
        for overlay in manifests.compositions():
            self.assertIs(
                manifests.server_of(overlay).pod["enableServiceLinks"], False)

    def test_gateway_routes_every_service_that_clients_call(self):
        routed = {match["method"]["service"]
                  for rule in find(GATEWAY, "GRPCRoute")[
                      "spec"]["rules"] for match in rule["matches"]}
        offered = {"grpc.health.v1.Health"}
        for file in (manifests.ROOT / "proto").rglob("*.proto"):
            text = file.read_text("utf-8")
            package = re.search(r"^package ([\w.]+);", text, re.MULTILINE)
            offered.update(f"{package[1]}.{name}" for name in
                           re.findall(r"^service (\w+)", text, re.MULTILINE))
        self.assertLessEqual(routed, offered)
        # Administration is no business of those who come through a gateway.
        self.assertEqual(offered - routed - {"weir.v1.Admin"}, set())


class Security(unittest.TestCase):
    """Kubernetes' restricted profile, and a root file system nobody writes."""

    def pods(self):
        for path, document in all_documents():
            spec = document["spec"] if "spec" in document else {}
            if document["kind"] == "Deployment":
                yield path, spec["template"]["spec"]
            elif document["kind"] in ("Pod", "ClusterServingRuntime"):
                yield path, spec

    def test_restricted(self):
        for path, pod in self.pods():
            whole = pod.get("securityContext", {})
            for container in (*pod["containers"],
                              *pod.get("initContainers", ())):
                own = container["securityContext"]
                both = {**whole, **own}
                where = (str(path), container["name"])
                self.assertIs(both["runAsNonRoot"], True, where)
                self.assertEqual(both["runAsUser"], 65532, where)
                self.assertEqual(both["seccompProfile"],
                                 {"type": "RuntimeDefault"}, where)
                self.assertIs(own["allowPrivilegeEscalation"], False, where)
                self.assertIs(own["readOnlyRootFilesystem"], True, where)
                self.assertEqual(own["capabilities"], {"drop": ["ALL"]}, where)
                self.assertIn("memory", container["resources"]["limits"],
                              where)
            for volume in pod.get("volumes", ()):
                self.assertNotIn("hostPath", volume, str(path))

    def test_our_images_go_to_nodes_that_can_run_them(self):
        names = set()
        for path, pod in self.pods():
            for container in pod["containers"]:
                if container["image"].startswith("weir"):
                    names.add(path)
                    self.assertEqual(pod.get("nodeSelector"), {
                        "kubernetes.io/arch": "amd64"}, path)
        self.assertLessEqual({"load-models.yaml", "kserve", "gpu"}, names)

    def test_replicas_do_not_share_a_node_if_they_need_not(self):
        for path, document in all_documents():
            if document["kind"] != "Deployment":
                continue
            template = document["spec"]["template"]
            spread = template["spec"]["topologySpreadConstraints"]
            self.assertEqual([rule["topologyKey"] for rule in spread],
                             ["topology.kubernetes.io/zone",
                              "kubernetes.io/hostname"], path)
            for rule in spread:
                self.assertEqual(rule["labelSelector"]["matchLabels"],
                                 document["spec"]["selector"]["matchLabels"])

    def test_the_namespace_enforces_it(self):
        labels = find(KUBERNETES / "namespace.yaml", "Namespace")["metadata"][
            "labels"]
        self.assertEqual(labels["pod-security.kubernetes.io/enforce"],
                         "restricted")

    def test_plain_text_only_without_certificates(self):
        for server in manifests.servers():
            if "WEIR_TLS_CERT" in server.settings:
                self.assertEqual(server.settings.get("WEIR_INSECURE", "false"),
                                 "false", server.where)


if __name__ == "__main__":
    unittest.main()
