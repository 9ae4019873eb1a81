#!/usr/bin/env python3
"""What a cluster would get from deploy/: do the manifests build, do their
fields exist, and do they fit the server?"""

import copy
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import urllib.request

import yaml

import certificates
import kinds
import manifests
from manifests import KSERVE, KUBERNETES, MONITORING, find, quantity

# What Kubernetes gives a pod that asks for nothing else.
DEFAULT_GRACE_SECONDS = 30
# gRPC ends a connection at its age plus or minus a tenth.
AGE_JITTER = 1.1
# What a server needs beside all that has a bound, models aside; and NVIDIA's
# driver with its libraries.
PROCESS_BYTES = 256 * 2**20
DRIVER_BYTES = 512 * 2**20


def constant(path, name):
    """A number in the server's sources: `NAME = size_t{A} << B`, `NAME = A`,
    `NAME = absl::Seconds(A)`."""
    text = (manifests.ROOT / path).read_text("utf-8")
    [(size, shift)] = re.findall(
        rf"\b{name} =\s+(?:size_t{{|int64_t{{|absl::Seconds\()?(\d+)"
        r"(?:}? << (\d+))?\)?;", text)
    return int(size) << int(shift or 0)


def default(flag):
    """What weir-server --help says that a flag is without being given."""
    [value] = re.findall(rf"^ +{flag} .*=(\d+) \(Env",
                         manifests.help_of("weir-server"), re.MULTILINE)
    return int(value)


CACHE = "kernels/graph/program_cache.h"
PROGRAM_BYTES = constant(CACHE, "max_bytes")
COMPILE_BYTES = constant("kernels/graph/compile_queue.h", "max_queued_bytes")
# What gRPC may hold unread.
UNREAD_BYTES = constant("server/server.cc", "kUnread")
SMALL_CALL_BYTES = constant("server/scheduling/admission.h", "kSmallCallRoom")
HEALTH = "server/rpc/health_service.h"
HEALTH_BYTES = SMALL_CALL_BYTES + constant(HEALTH, "kMaxWatches") * (
    constant("server/rpc/call_policy.h", "kCallBytes") +
    2 * constant(HEALTH, "kMaxMessageBytes"))
REFUSAL_BYTES = constant("server/rpc/transport.h", "max_refusals") * constant(
    "server/rpc/call_policy.h", "kCallBytes")
# A request alone may grow by its message's size and so much.
ALONE_BYTES = 2**20
# What docs/threat_model.md says that pieces of messages take beyond gRPC's
# limit: for each open stream, for each connection, and of gRPC's limit.
STREAM_BYTES = 36 * 2**10
CONNECTION_BYTES = 17 * 2**10
PIECES_SHARE = 0.2
# A reply that nobody takes has up to so many times what it counts.
REPLY_TIMES = 3
# What is being made at the moment comes on top of PROGRAM_BYTES: a program,
# which is a message, the constants that it computes with, the message's parts
# and what is folded; and plans. Each thread may evaluate a node on the host.
PLAN_THREADS = constant("kernels/graph/plan_queue.h", "threads")
MAKING_BYTES = (
    constant("server/models/parsed_size.h", "kMaxParsedBytes") +
    constant("kernels/graph/compiler.cc", "kFoldBudgetBytes") +
    PLAN_THREADS * constant("kernels/graph/planner.cc", "kMaxHeldBytes") +
    (1 + PLAN_THREADS) * constant("kernels/graph/host_evaluator.h",
                                  "kMaxScratchBytes"))
# In the host's memory, for a GPU: pictures on their way, nvJPEG's decoders.
PICTURE_BYTES = constant("kernels/device/cuda/staged_copy.h",
                         "kMaxBytes") + constant(
                             "kernels/device/cuda/nvjpeg.cc", "kMaxBytes")
# What a served model has on the CPU beside its constants: these packed, so many
# times and a little, and plans.
PACKED_TIMES = constant("kernels/graph/compiler.cc", "kPackedTimes")
PACKED_BYTES = constant("kernels/graph/compiler.cc", "kSparePackedBytes")
USED_PLAN_BYTES = constant("kernels/graph/program.h", "max_used_plan_bytes")


def all_documents():
    for path in (*manifests.KUSTOMIZATIONS, *manifests.SINGLE_FILES):
        for document in manifests.documents(path):
            yield path.relative_to(manifests.ROOT), document


class Build(unittest.TestCase):

    def test_there_are_the_overlays_that_the_docs_name(self):
        names = {path.name for path in (KUBERNETES / "overlays").iterdir()}
        self.assertEqual(names, {"cpu", "gpu", "tls", "object-storage"})

    def test_every_kubectl_builds_the_same(self):
        kubectls = manifests.kubectls()
        print("with", *kubectls)
        for folder in manifests.KUSTOMIZATIONS:
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

    def test_the_command_agrees(self):
        """`kubernetes-validate --strict`, the way a person would run it."""
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(manifests.kustomize(KUBERNETES / "overlays" / "gpu"))
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
        overlay = KUBERNETES / "overlays" / "cpu"
        wrong = (
            (overlay, "Deployment", ("spec", "template", "spec"), "hostname_",
             "x"),
            (KUBERNETES / "keda", "ScaledObject", ("spec",), "minReplicas", 2),
            (KUBERNETES / "keda", "ScaledObject", ("spec", "triggers", 0,
                                                   "metadata"), "threshold", 8),
            (KUBERNETES / "gateway", "GRPCRoute", ("spec", "rules", 0,
                                                   "backendRefs", 0), "port",
             "8001"),
            (MONITORING, "ServiceMonitor", ("spec", "endpoints", 0), "interval",
             "15"),
            (KUBERNETES / "keda", "ScaledObject",
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
        """On this machine: on loopback and the CPU, with files of its own."""
        for server in manifests.servers():
            with tempfile.TemporaryDirectory() as folder:
                self.start(server, pathlib.Path(folder))

    def start(self, server, folder):
        settings = {**server.settings,
                    "WEIR_GRPC": f"127.0.0.1:0,unix:{folder}/socket", "WEIR_HTTP": "127.0.0.1:0",
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
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            line = process.stdout.readline()
            if " ready: " in line:
                addresses = dict(re.findall(r"(\w+)=(\S+)", line))
                addresses["grpc"], socket = addresses["grpc"].split(",")
                self.probe(server, addresses)
                self.operate(server, socket)
        finally:
            process.kill()
            error = process.communicate()[1]
        self.assertIn(" ready: ", line, (server.where, error))

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
        for overlay in sorted((KUBERNETES / "overlays").iterdir()):
            server = manifests.server_of(overlay)
            [variable] = server.container["env"]
            self.assertEqual(variable["name"], "WEIR_SERVER")
            self.assertIn(variable["value"], server.addresses("--grpc"))
            folder = variable["value"].removeprefix("unix:").rpartition("/")[0]
            [mount] = [mount for mount in server.container["volumeMounts"]
                       if mount["mountPath"] == folder]
            self.assertFalse(mount.get("readOnly", False))

    def test_every_mounted_path_that_a_flag_names_is_mounted(self):
        for overlay in sorted((KUBERNETES / "overlays").iterdir()):
            server = manifests.server_of(overlay)
            mounts = {mount["mountPath"]: mount
                      for mount in server.container["volumeMounts"]}
            self.assertIn(server.settings["WEIR_MODEL_REPOSITORY"], mounts)
            cache = mounts[server.settings["WEIR_CACHE_DIR"]]
            self.assertFalse(cache.get("readOnly", False))
            for name, value in server.settings.items():
                if name.startswith("WEIR_TLS_"):
                    self.assertIn(value.rsplit("/", 1)[0], mounts, name)

    def open_streams(self, server):
        """At most, that hold memory of gRPC."""
        return (constant("server/rpc/transport.h", "max_receiving") +
                server.number("--queue-length", default("--queue-length")) +
                server.number("--streams", default("--streams")) +
                constant(HEALTH, "kMaxWatches") +
                constant("server/rpc/transport.h", "max_refusals"))

    def test_memory_pools_fit_the_limit(self):
        for server in manifests.servers():
            limit = quantity(
                server.container["resources"]["limits"]["memory"])
            arena = min(server.number("--arena-bytes", "inf"), limit / 2)
            host = server.number("--host-bytes", "nan")
            pools = host + server.number("--tensor-bytes", "nan") + arena
            programs, process, engines = PROGRAM_BYTES, PROCESS_BYTES, 1
            if server.settings["WEIR_DEVICE"] != "cpu":
                # A quarter is of the CPU beside it, and as much as its arena
                # again for the CPU's decoders; the rest is on the device.
                pools = (pools + arena) / 4 + host + PICTURE_BYTES
                programs, engines = programs * 1.25, 2
                process += DRIVER_BYTES
            queue = server.number("--queue-bytes", "nan")
            message = server.number("--max-message-bytes",
                                    default("--max-message-bytes"))
            messages = 2 * max(queue, message) + UNREAD_BYTES
            made_of_them = REPLY_TIMES * max(queue, message + ALONE_BYTES)
            pieces = (PIECES_SHARE * messages +
                      STREAM_BYTES * self.open_streams(server) +
                      CONNECTION_BYTES * server.number(
                          "--max-connections", default("--max-connections")))
            made = engines * (2 * message + MAKING_BYTES + COMPILE_BYTES)
            total = (messages + made_of_them + pieces + SMALL_CALL_BYTES +
                     HEALTH_BYTES + REFUSAL_BYTES + pools + programs + made +
                     process)
            self.assertLessEqual(
                total, limit * 0.8,
                f"{server.where}: {total / limit:.0%}, nothing left for models")

    def test_the_guide_names_the_sum_s_constants(self):
        guide = (manifests.ROOT / "docs" / "kubernetes.md").read_text("utf-8")
        for text in (f"+ {UNREAD_BYTES >> 20} MiB |",
                     f"{SMALL_CALL_BYTES >> 20} MiB + "
                     f"{HEALTH_BYTES >> 20} MiB |",
                     f"| {REFUSAL_BYTES >> 20} MiB | the same |",
                     f"| {REPLY_TIMES} x `WEIR_QUEUE_BYTES` (",
                     f"{STREAM_BYTES >> 10} KiB for each",
                     f"{CONNECTION_BYTES >> 10} KiB for each",
                     f"| {PROGRAM_BYTES >> 30} GiB | "
                     f"{PROGRAM_BYTES * 1.25 / 2**30} GiB |",
                     f"| 2 x `WEIR_MAX_MESSAGE_BYTES` + "
                     f"{MAKING_BYTES / 2**30} GiB | twice that |",
                     f"| {COMPILE_BYTES >> 30} GiB | "
                     f"2 x {COMPILE_BYTES >> 30} GiB |",
                     f"| none | {PICTURE_BYTES / 2**30} GiB |",
                     f"| the process, and the driver in it | {PROCESS_BYTES >> 20} MiB | "
                     f"{PROCESS_BYTES + DRIVER_BYTES >> 20} MiB |",
                     f"1 + {PACKED_TIMES} times its constants, "
                     f"{PACKED_BYTES >> 20} MiB and {USED_PLAN_BYTES >> 20} "
                     "MiB"):
            self.assertIn(text, guide)

    def test_scratch_volumes_fit_the_limit(self):
        for overlay in sorted((KUBERNETES / "overlays").iterdir()):
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
        rules = find(KUBERNETES / "gateway", "GRPCRoute")["spec"]["rules"]
        self.assertEqual(prefixes, [
            f"/{match['method']['service']}/"
            for rule in rules for match in rule["matches"]])
        self.assertNotIn("/weir.v1.Admin/", prefixes)

    def test_it_finds_the_servers_and_is_found(self):
        [group] = self.cluster["load_assignment"]["endpoints"]
        [endpoint] = group["lb_endpoints"]
        where = endpoint["endpoint"]["address"]["socket_address"]
        service = find(KUBERNETES / "overlays" / "cpu", "Service",
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
        for overlay in sorted((KUBERNETES / "overlays").iterdir()):
            update = find(overlay, "Deployment")["spec"]["strategy"][
                "rollingUpdate"]
            least = find(overlay, "HorizontalPodAutoscaler")["spec"][
                "minReplicas"]
            self.assertLess(update["maxUnavailable"], least, overlay.name)
            budget = find(overlay, "PodDisruptionBudget")["spec"]
            self.assertLess(budget["maxUnavailable"], least, overlay.name)

    def test_the_autoscaler_owns_the_number_of_pods(self):
        for overlay in sorted((KUBERNETES / "overlays").iterdir()):
            self.assertNotIn("replicas", find(overlay, "Deployment")["spec"])


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
        for overlay in sorted((KUBERNETES / "overlays").iterdir()):
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
        overlay = KUBERNETES / "overlays" / "cpu"
        ports = {port["name"]: port["port"]
                 for port in find(overlay, "Service")["spec"]["ports"]}
        for rule in find(KUBERNETES / "gateway", "GRPCRoute")["spec"]["rules"]:
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
        for overlay in sorted((KUBERNETES / "overlays").iterdir()):
            self.assertIs(
                manifests.server_of(overlay).pod["enableServiceLinks"], False)

    def test_gateway_routes_every_service_that_clients_call(self):
        routed = {match["method"]["service"]
                  for rule in find(KUBERNETES / "gateway", "GRPCRoute")[
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


class Scaling(unittest.TestCase):

    def test_hpa_reads_what_the_adapter_offers(self):
        adapter = yaml.safe_load(
            (KUBERNETES / "prometheus-adapter" / "values.yaml").read_text())
        offered = set()
        for rule in adapter["rules"]["custom"]:
            name = rule["name"]["as"]
            self.assertTrue(rule["seriesQuery"].startswith(name + "{"))
            offered.add(name)
        metrics = find(KUBERNETES / "hpa", "HorizontalPodAutoscaler")["spec"][
            "metrics"]
        read = {metric["pods"]["metric"]["name"] for metric in metrics}
        self.assertIn("weir_queue_depth", read)
        self.assertEqual(read, offered)

    def test_keda_does_the_same(self):
        hpa = find(KUBERNETES / "hpa", "HorizontalPodAutoscaler")["spec"]
        keda = find(KUBERNETES / "keda", "ScaledObject")["spec"]
        self.assertEqual(keda["minReplicaCount"], hpa["minReplicas"])
        self.assertEqual(keda["maxReplicaCount"], hpa["maxReplicas"])
        self.assertEqual(
            keda["advanced"]["horizontalPodAutoscalerConfig"]["behavior"],
            hpa["behavior"])
        targets = {metric["pods"]["metric"]["name"]:
                   metric["pods"]["target"]["averageValue"]
                   for metric in hpa["metrics"]}
        for trigger in keda["triggers"]:
            [metric] = re.findall(r"weir_\w+", trigger["metadata"]["query"])
            self.assertEqual(trigger["metadata"]["threshold"],
                             targets.pop(metric))
        self.assertEqual(targets, {})


class KServe(unittest.TestCase):

    def test_runtimes(self):
        for runtime in manifests.documents(KSERVE):
            spec = runtime["spec"]
            [container] = spec["containers"]
            self.assertEqual(container["name"], "kserve-container")
            self.assertIn("--model-repository=/mnt/models", container["args"])
            [port] = container["ports"]
            self.assertEqual(port["name"], "h2c")
            self.assertEqual(spec["protocolVersions"], ["grpc-v2"])
            self.assertEqual([f["name"] for f in spec["supportedModelFormats"]],
                             ["onnx"])
            server = manifests.Server("", spec, container, {})
            self.assertEqual(port["containerPort"], server.port("--grpc"))
            self.assertEqual(
                int(spec["annotations"]["prometheus.kserve.io/port"]),
                server.port("--http"))

    def test_the_policy_is_the_servers_own(self):
        policy = find(KSERVE / "network-policy.yaml", "NetworkPolicy")["spec"]
        for runtime in manifests.documents(KSERVE):
            spec = runtime["spec"]
            self.assertLessEqual(policy["podSelector"]["matchLabels"].items(),
                                 spec["labels"].items())
            server = manifests.Server("", spec, spec["containers"][0], {})
            numbers = {"grpc": server.port("--grpc"),
                       "http": server.port("--http")}
            own = find(KUBERNETES / "overlays" / "cpu", "NetworkPolicy")["spec"]
            self.assertEqual(
                [(rule["from"], [port["port"] for port in rule["ports"]])
                 for rule in policy["ingress"]],
                [(rule["from"],
                  [numbers[port["port"]] for port in rule["ports"]])
                 for rule in own["ingress"]])
        self.assertEqual(policy["policyTypes"], ["Ingress", "Egress"])
        store = find(KUBERNETES / "overlays" / "object-storage",
                     "NetworkPolicy", "weir-model-store")["spec"]
        self.assertEqual(policy["egress"], store["egress"])

    def test_the_example_names_a_runtime_and_its_format(self):
        runtimes = {runtime["metadata"]["name"]: runtime["spec"]
                    for runtime in manifests.documents(KSERVE)}
        model = find(KSERVE / "inference-service.yaml", "InferenceService",
                     "digits")["spec"]["predictor"]["model"]
        runtime = runtimes[model["runtime"]]
        self.assertIn(model["protocolVersion"], runtime["protocolVersions"])
        self.assertIn(model["modelFormat"]["name"],
                      [f["name"] for f in runtime["supportedModelFormats"]])


if __name__ == "__main__":
    unittest.main()
