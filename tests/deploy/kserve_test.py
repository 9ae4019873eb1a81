#!/usr/bin/env python3
"""deploy/kserve: do the runtimes and the examples fit what KServe, Knative and
the server's own times allow, and do alerts see the pods?"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

import manifests
import pages
import promtool
from manifests import KSERVE, KUBERNETES, MONITORING, find
from memory import constant, default

EXAMPLES = {"example": "hpa", "example-keda": "keda",
            "example-serverless": "kpa"}
CLASS = "serving.kserve.io/autoscalerClass"
KNATIVE_CLASS = "autoscaling.knative.dev/class"
MODE = "serving.kserve.io/deploymentMode"


def service_of(example):
    return find(KSERVE / example, "InferenceService", "digits")


def runtimes():
    return {document["metadata"]["name"]: document["spec"]
            for document in manifests.documents(KSERVE)}


def refusals(service):
    """What KServe's and Knative's webhooks say against it, by
    inference_service_validation.go and Knative's field masks."""
    annotations = service["metadata"]["annotations"]
    predictor = service["spec"]["predictor"]
    raw = annotations[MODE] in ("RawDeployment", "Standard")
    scaler = annotations.get(CLASS, "hpa" if raw else None)
    metric = predictor.get("scaleMetric")
    metrics = predictor.get("autoScaling", {}).get("metrics", [])
    if scaler not in (None, "hpa", "keda", "external", "none"):
        yield f"[{scaler}] is not a supported autoscaler class type"
    if raw and scaler == "hpa":
        if metric not in (None, "cpu", "memory"):
            yield f"[{metric}] is not a supported metric"
        if any(one["type"] != "Resource" for one in metrics):
            yield "invalid HPA metric source type"
    if scaler == "keda":
        if not raw:
            yield "KEDA goes with RawDeployment alone"
        if metric:
            yield "ScaleMetric is not supported for KEDA"
        for one in metrics:
            target = one.get("external", {}).get("target", {})
            if one["type"] == "External" and not (
                    target.get("type") == "Value" and "value" in target):
                yield "the target threshold value should not be empty"
    if not raw:
        if metric not in (None, "concurrency", "rps"):
            yield f"[{metric}] is not a supported metric"
        if annotations.get(KNATIVE_CLASS) not in (
                None, "kpa.autoscaling.knative.dev",
                "hpa.autoscaling.knative.dev"):
            yield "unsupported class"
        for field in ("terminationGracePeriodSeconds", "deploymentStrategy"):
            if field in predictor:
                yield f"must not set the field(s): {field}"


class Examples(unittest.TestCase):

    def test_the_webhooks_take_them(self):
        for example, scaler in EXAMPLES.items():
            service = service_of(example)
            self.assertEqual(list(refusals(service)), [], example)
            annotations = service["metadata"]["annotations"]
            found = (annotations.get(CLASS) or
                     annotations[KNATIVE_CLASS].partition(".")[0])
            self.assertEqual(found, scaler)

    def test_what_the_webhooks_refuse(self):
        for example, fields, words in (
                ("example", {"scaleMetric": "concurrency"}, "supported metric"),
                ("example-keda", {"scaleMetric": "cpu"}, "for KEDA"),
                ("example-serverless", {"scaleMetric": "cpu"}, "metric"),
                ("example-serverless", {"terminationGracePeriodSeconds": 45},
                 "must not set")):
            service = service_of(example)
            service = {**service, "spec": {"predictor": {
                **service["spec"]["predictor"], **fields}}}
            self.assertIn(words, " ".join(refusals(service)), example)

    def test_the_grace_is_longer_than_the_worst_exit(self):
        """Of the runtime's own flags; of Kubernetes' default, the runtime
        alone, manifests_test.py says the same."""
        overrun = constant("server/drain_times.h", "kOverrun")
        worst = {server.where: server.number("--drain-delay", "nan") +
                 server.number("--drain-timeout", "nan") + overrun
                 for server in manifests.runtimes()}
        guide = (manifests.ROOT / "docs" / "kubernetes.md").read_text("utf-8")
        self.assertIn(f"ends within {max(worst.values()):.0f} s", guide)
        for example, scaler in EXAMPLES.items():
            predictor = service_of(example)["spec"]["predictor"]
            # Knative makes its timeout the grace.
            grace = predictor["timeout" if scaler == "kpa" else
                              "terminationGracePeriodSeconds"]
            self.assertGreater(grace, worst[predictor["model"]["runtime"]])

    def test_it_brings_what_it_names(self):
        for example in EXAMPLES:
            documents = manifests.documents(KSERVE / example)
            kinds = [manifests.name_of(document) for document in documents]
            self.assertEqual(sorted(kinds), [
                ("InferenceService", "digits"), ("Namespace", "models"),
                ("NetworkPolicy", "weir"), ("PodMonitor", "weir"),
                ("Secret", "weir-models"), ("ServiceAccount", "weir-models")])
            for document in documents:
                if document["kind"] != "Namespace":
                    self.assertEqual(document["metadata"]["namespace"],
                                     "models")
            predictor = service_of(example)["spec"]["predictor"]
            account = find(KSERVE / example, "ServiceAccount",
                           predictor["serviceAccountName"])
            [secret] = account["secrets"]
            secret = find(KSERVE / example, "Secret", secret["name"])
            self.assertEqual(secret["data"], {"AWS_ACCESS_KEY_ID": "",
                                              "AWS_SECRET_ACCESS_KEY": ""})
            self.assertEqual(set(secret["metadata"]["annotations"]), {
                f"serving.kserve.io/s3-{name}"
                for name in ("endpoint", "region", "usehttps")})

    def test_it_names_a_runtime_and_its_format(self):
        for example in EXAMPLES:
            model = service_of(example)["spec"]["predictor"]["model"]
            runtime = runtimes()[model["runtime"]]
            self.assertIn(model["protocolVersion"],
                          runtime["protocolVersions"])
            self.assertIn(model["modelFormat"]["name"],
                          [f["name"] for f in
                           runtime["supportedModelFormats"]])

    def own(self, kubectl):
        """What a kubectl makes of each kustomization.yaml of one's own that
        docs/kubernetes.md has, {kind: document}: with keys, with a role, with
        more that the policy lets out, and with both."""
        guide = (manifests.ROOT / "docs" / "kubernetes.md").read_text("utf-8")
        parts = re.findall(
            r"cat >>?my-digits/kustomization.yaml <<'END'\n(.*?)^END$", guide,
            re.MULTILINE | re.DOTALL)
        self.assertEqual(len(parts), 3)
        first, role, policy = parts
        with tempfile.TemporaryDirectory(dir=manifests.ROOT / "build") as name:
            folder = pathlib.Path(name)
            (folder / "keys.env").write_text(
                "AWS_ACCESS_KEY_ID=a\nAWS_SECRET_ACCESS_KEY=b\n", "utf-8")
            for text in (first, first + role, first + policy,
                         first + role + policy):
                (folder / "kustomization.yaml").write_text(text.replace(
                    "../deploy", "../../deploy"), "utf-8")
                yield {document["kind"]: document for document in
                       yaml.safe_load_all(manifests.kustomize(folder,
                                                              kubectl))}

    def test_one_s_own_bucket_and_keys(self):
        """As docs/kubernetes.md has it."""
        for kubectl in manifests.kubectls():
            found, *_ = self.own(kubectl)
            self.assertEqual(found["Secret"]["data"], {
                "AWS_ACCESS_KEY_ID": "YQ==",
                "AWS_SECRET_ACCESS_KEY": "Yg=="}, kubectl)
            self.assertIn("serving.kserve.io/s3-endpoint",
                          found["Secret"]["metadata"]["annotations"])
            self.assertEqual(found["Secret"]["metadata"]["name"],
                             "weir-models")
            self.assertEqual(
                found["InferenceService"]["spec"]["predictor"]["model"][
                    "storageUri"], "s3://acme/models")

    def test_a_role_in_place_of_keys(self):
        """KServe reads no Secret then, and of the account what that told."""
        for kubectl in manifests.kubectls():
            keys, role, *_ = self.own(kubectl)
            self.assertNotIn("secrets", role["ServiceAccount"], kubectl)
            annotations = role["ServiceAccount"]["metadata"]["annotations"]
            self.assertRegex(annotations.pop("eks.amazonaws.com/role-arn"),
                             "^arn:aws:iam::[0-9]{12}:role/")
            self.assertEqual(annotations,
                             keys["Secret"]["metadata"]["annotations"])

    def test_what_else_the_policy_is_to_let_out(self):
        """It is added, and undoes none of the patches before it."""
        for kubectl in manifests.kubectls():
            keys, role, *with_policy = self.own(kubectl)
            for before, now in zip((keys, role), with_policy):
                old, new = (made.pop("NetworkPolicy")["spec"]["egress"]
                            for made in (before, now))
                self.assertEqual(now, before, kubectl)
                self.assertEqual(new[:len(old)], old)
                self.assertEqual(
                    [rule["ports"][0]["port"] for rule in new[len(old):]],
                    [9000, 80])


class Runtimes(unittest.TestCase):

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
        policy = find(KSERVE / "example", "NetworkPolicy")["spec"]
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
        store = find(manifests.composed("cpu", "object-storage"),
                     "NetworkPolicy", "weir-model-store")["spec"]
        self.assertEqual(policy["egress"], store["egress"])

    def test_knatives_policy_lets_in_what_its_proxy_takes(self):
        """By the ports of Knative's queue-proxy: calls over HTTP/1 and HTTP/2,
        and its numbers for the autoscaler."""
        plain = find(KSERVE / "example", "NetworkPolicy")["spec"]
        policy = find(KSERVE / "example-serverless", "NetworkPolicy")["spec"]
        *same, added = policy["ingress"]
        self.assertEqual({**policy, "ingress": same}, plain)
        self.assertEqual(added, {
            "from": [{"namespaceSelector": {"matchLabels": labels}}
                     for labels in (
                         {"kubernetes.io/metadata.name": "knative-serving"},
                         {"weir-client": "true"})],
            "ports": [{"port": port, "protocol": "TCP"}
                      for port in (8012, 8013, 9090)]})

    def test_knative_aims_at_three_quarters_of_the_streams(self):
        predictor = service_of("example-serverless")["spec"]["predictor"]
        [server] = [one for one in manifests.runtimes()
                    if one.where == predictor["model"]["runtime"]]
        self.assertEqual(predictor["scaleTarget"],
                         0.75 * server.number("--streams",
                                              default("WEIR_STREAMS")))

    def test_knative_takes_them(self):
        for name, spec in runtimes().items():
            [container] = spec["containers"]
            # It takes one port, and of probes of another port not every
            # version.
            [port] = container["ports"]
            self.assertEqual(port["name"], "h2c")
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                self.assertEqual(container[probe]["grpc"]["port"],
                                 port["containerPort"], name)
            self.assertEqual(
                set(spec) & {"terminationGracePeriodSeconds",
                             "topologySpreadConstraints"}, set())

    def test_pods_with_a_gpu_may_stand_where_gpus_are(self):
        for name, spec in runtimes().items():
            [container] = spec["containers"]
            gpu = "nvidia.com/gpu" in container["resources"]["limits"]
            self.assertEqual(spec.get("tolerations", []), [
                {"key": "nvidia.com/gpu", "operator": "Exists",
                 "effect": "NoSchedule"}] if gpu else [], name)
            self.assertEqual("affinity" in spec, gpu)

    def test_the_guide_says_what_knative_must_allow(self):
        """Its flags of the pod's fields that the runtimes have."""
        guide = (manifests.ROOT / "docs" / "kubernetes.md").read_text("utf-8")
        for spec in runtimes().values():
            for field in {"affinity", "nodeSelector", "tolerations"} & set(
                    spec):
                self.assertIn(f"`kubernetes.podspec-{field.lower()}`", guide)

    def test_memory_py_judges_them(self):
        text = manifests.kustomize(KSERVE)
        for change, code in ((("", ""), 0),
                             (("--queue-bytes=268435456",
                               "--queue-bytes=1073741824"), 1),
                             (("--queue-bytes=268435456", "--reflection"), 1)):
            done = subprocess.run(
                [sys.executable, KUBERNETES / "memory.py", "-"],
                input=text.replace(*change), capture_output=True, text=True,
                check=False)
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            for name in runtimes():
                self.assertIn(f"{name}\n", done.stdout)


class Scraped(unittest.TestCase):
    """What Prometheus' operator makes of the PodMonitor, and the alerts of
    that."""

    def setUp(self):
        self.monitor = find(KSERVE / "example", "PodMonitor")["spec"]

    # As Knative calls it, and so long that its pods' names are cut.
    LONG = "sentiment-classifier-v2-predictor-00001-deployment"

    def target(self, endpoint, ip, deployment):
        """The labels of the target of a Deployment's pod."""
        return manifests.relabeled(endpoint, {
            "__meta_kubernetes_pod_ip": ip, **manifests.pod_of(deployment)})

    def test_it_finds_the_pods_and_their_metrics(self):
        spec = runtimes()
        for server in manifests.runtimes():
            labels = spec[server.where]["labels"]
            self.assertLessEqual(
                self.monitor["selector"]["matchLabels"].items(),
                labels.items())
            self.assertEqual(labels[self.monitor["jobLabel"]], "weir")
            [port] = server.container["ports"]
            # In a Deployment, and as Knative's revision names it.
            self.assertEqual([endpoint["port"] for endpoint in
                              self.monitor["podMetricsEndpoints"]],
                             [port["name"], "user-port"])
            http = server.port("--http")
            for endpoint in self.monitor["podMetricsEndpoints"]:
                for ip, address in (("10.1.2.3", f"10.1.2.3:{http}"),
                                    ("fd00::1:2", f"[fd00::1:2]:{http}")):
                    self.assertEqual(
                        self.target(endpoint, ip, "p")["__address__"], address)

    def test_they_are_asked_as_other_servers_are(self):
        """As often, for as long, and for the same."""
        [own] = find(MONITORING, "ServiceMonitor")["spec"]["endpoints"]
        for endpoint in self.monitor["podMetricsEndpoints"]:
            self.assertEqual(
                {field: value for field, value in endpoint.items()
                 if field not in ("port", "relabelings")},
                {field: value for field, value in own.items()
                 if field not in ("port", "relabelings")})
            for rule in own["relabelings"]:
                self.assertIn(rule, endpoint["relabelings"])

    def test_prometheus_may_ask_them(self):
        for example in EXAMPLES:
            policy = find(KSERVE / example, "NetworkPolicy")["spec"]
            [rule] = [rule for rule in policy["ingress"]
                      if {"port": 8002, "protocol": "TCP"} in rule["ports"]]
            [source] = rule["from"]
            self.assertEqual(source["namespaceSelector"]["matchLabels"],
                             {"kubernetes.io/metadata.name": "monitoring"})

    def test_the_workload_is_the_deployment_s_name(self):
        for endpoint in self.monitor["podMetricsEndpoints"]:
            for name in ("digits-predictor",
                         "digits-predictor-00002-deployment", self.LONG):
                self.assertEqual(
                    self.target(endpoint, "10.0.0.1", name)["workload"], name)

    def test_alerts_apply(self):
        """A device lost, a server that is not scraped, all servers gone: told
        of the pods of InferenceServices as of others."""
        [container] = runtimes()["weir-cuda"]["containers"]
        names, pods = ("digits-predictor", self.LONG), []
        series = []
        for number, name in enumerate(names):
            labels = self.target(self.monitor["podMetricsEndpoints"][0],
                                 f"10.0.0.{number}", name)
            pod = labels["__meta_kubernetes_pod_name"]
            pods.append(pod)
            mine = f'namespace="models", pod="{pod}"'
            scraped = (f'{mine}, job="weir", container="kserve-container", '
                       f'endpoint="h2c", workload="{labels["workload"]}"')
            kube = f'{mine}, container="{container["name"]}"'
            image = f'image_spec="registry.example.com/{container["image"]}"'
            series += [
                (f"weir_ready{{{scraped}}}", "1x30 stale"),
                (f"up{{{scraped}}}", "1x30 0x60"),
                (f"kube_pod_container_info{{{kube}, {image}}}", "1x90"),
                (f"kube_pod_container_status_running{{{kube}}}", "1x90"),
                (f"kube_pod_container_status_restarts_total{{{kube}}}",
                 "0x5 1x85" if number else "0x90"),
                ("kube_pod_container_status_last_terminated_exitcode"
                 f"{{{kube}}}", "_x6 3x85" if number else "_x90"),
                ('kube_deployment_spec_replicas{namespace="models", '
                 f'deployment="{name}"}}', "1x90")]
        [lost, gone] = pods[1], pods
        self.assertFires(series, (
            ("WeirDeviceLost", "4m", []),
            ("WeirDeviceLost", "6m", [{"pod": lost}]),
            ("WeirNotScraped", "30m", []),
            ("WeirNotScraped", "42m", [{"pod": pod} for pod in gone]),
            ("WeirDown", "30m", []),
            ("WeirDown", "34m", [{"workload": name} for name in names])))

    def assertFires(self, series, cases):
        """Each alert fires at that time for just these."""
        rules = yaml.safe_load((MONITORING / "rules.yaml").read_text("utf-8"))
        for group in rules["groups"]:
            for rule in group["rules"]:
                rule.pop("annotations", None)
        severity = {rule["alert"]: rule["labels"]["severity"]
                    for group in rules["groups"]
                    for rule in group["rules"] if "alert" in rule}
        promtool.check({"tests": [{
            "interval": "1m",
            "input_series": [{"series": one, "values": values}
                             for one, values in series],
            "alert_rule_test": [{
                "alertname": alert, "eval_time": time,
                "exp_alerts": [{"exp_labels": {
                    "namespace": "models",
                    "severity": severity[alert], **labels}}
                    for labels in found]}
                for alert, time, found in cases]}]}, yaml.safe_dump(rules))


class Keda(unittest.TestCase):
    """The query that KServe hands to KEDA, which takes nothing for zero."""

    def test_it_asks_what_the_component_asks(self):
        """The same Prometheus, of this workload alone; and for the most pods
        where the component's fallback would take over."""
        predictor = service_of("example-keda")["spec"]["predictor"]
        [metric] = predictor["autoScaling"]["metrics"]
        [trigger] = [one["metadata"] for one in find(
            manifests.composed("cpu", "keda"), "ScaledObject")["spec"][
                "triggers"] if one["name"] == "requests-per-stream"]
        asked = metric["external"]["metric"]
        self.assertEqual(asked["backend"], "prometheus")
        self.assertEqual(asked["serverAddress"], trigger["serverAddress"])
        aim = metric["external"]["target"]["value"]
        self.assertEqual(aim, trigger["threshold"])
        query = "".join(asked["query"].split())
        for of, instead in (('workload="digits-predictor"', 'workload="weir"'),
                            ('namespace="models"', 'namespace="weir"')):
            self.assertIn(of, query)
            query = query.replace(of, instead)
        self.assertEqual(query, "".join(trigger["query"].split())
                         + f"orvector({predictor['maxReplicas']}*{aim})")

    def test_in_another_namespace_it_asks_of_that(self):
        """With the commands of docs/kubernetes.md."""
        [command] = [command for _, command in pages.blocks(
            pages.KUBERNETES, "sh") if "example-keda/" in command]
        [mine] = re.findall("namespace: ([a-z-]+)", command)
        self.assertNotEqual(mine, "models")
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        shutil.copytree(KSERVE, folder / "deploy" / "kserve")
        for kubectl in manifests.kubectls():
            shell = {**os.environ, "PATH":
                     f"{pathlib.Path(kubectl).parent}:{os.environ['PATH']}"}
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", command],
                                  cwd=folder, capture_output=True, text=True,
                                  check=False, env=shell)
            self.assertEqual(done.returncode, 0, done.stderr)
            found = list(yaml.safe_load_all(done.stdout))
            self.assertEqual({
                one["metadata"].get("namespace", one["metadata"]["name"])
                for one in found}, {mine})
            [service] = [one for one in found
                         if one["kind"] == "InferenceService"]
            [metric] = service["spec"]["predictor"]["autoScaling"]["metrics"]
            query = metric["external"]["metric"]["query"]
            asked = re.findall('namespace="(.*?)"', query)
            self.assertEqual(asked, [mine] * 6, kubectl)

    def test_it_never_asks_for_fewer_pods_because_metrics_are_missing(self):
        predictor = service_of("example-keda")["spec"]["predictor"]
        [metric] = predictor["autoScaling"]["metrics"]
        query = metric["external"]["metric"]["query"]
        aim = float(metric["external"]["target"]["value"])
        most = predictor["maxReplicas"]
        mine = 'namespace="models", workload="digits-predictor"'
        # 20 and 4 in flight on 16 streams; the first falls silent, then both.
        series = []
        for pod, flight, seen in (("a", 20, 30), ("b", 4, 50)):
            for name, value in (("weir_requests_in_flight", flight),
                                ("weir_stream_pool_max_lanes", 16)):
                series.append((f'{name}{{{mine}, pod="{pod}"}}',
                               f"{value}x{seen} stale"))
            series.append((f'up{{namespace="models", job="weir", pod="{pod}"}}',
                           f"1x{seen} 0x{200 - seen}"))
        cases = ((20, 20 / 16 + 4 / 16), (40, aim + 4 / 16), (60, aim + 4 / 16),
                 (180, most * aim))
        promtool.check({"tests": [{
            "interval": "1m",
            "input_series": [{"series": one, "values": values}
                             for one, values in series],
            "promql_expr_test": [{
                "expr": query, "eval_time": f"{minutes}m",
                "exp_samples": [{"labels": "{}", "value": value}]}
                for minutes, value in cases]}]})


class Versions(unittest.TestCase):

    def test_the_guide_has_each_with_its_reason(self):
        guide = (manifests.ROOT / "docs" / "kubernetes.md").read_text("utf-8")
        section = guide.partition("\n## KServe\n")[2].partition("\n## ")[0]
        for words in ("KServe 0.15", "Kubernetes 1.30", "Knative 1.15",
                      "`startupProbe`", "KEDA 2.17"):
            self.assertIn(words, section)


def tearDownModule():
    manifests.folder_of_compositions()[0].cleanup()


if __name__ == "__main__":
    unittest.main()
