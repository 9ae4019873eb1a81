#!/usr/bin/env python3
"""Rules of deploy/monitoring: are they valid, do the alerts fire when they
should, and does the server have every metric that they, the dashboard and the
autoscalers name?"""

import functools
import json
import pathlib
import re
import subprocess
import tempfile
import time
import unittest

import yaml

import dashboard
import manifests
import promql
import promtool
import rule_variants
import running
from manifests import KUBERNETES, MONITORING, ROOT

RULES = MONITORING / "rules.yaml"
RULES_TEST = pathlib.Path(__file__).with_name("rules_test.yaml")
RUNBOOKS = ROOT / "docs" / "kubernetes.md"

# What Prometheus and the ServiceMonitor add to every series of a server.
TARGET_LABELS = {"namespace", "pod", "job", "instance", "workload"}
# Not ours: Prometheus' own, and kube-state-metrics.
FOREIGN = {"up": set(),
           "ALERTS": {"alertname"},
           "kube_deployment_created": {"deployment"},
           "kube_deployment_spec_replicas": {"deployment"},
           "kube_deployment_status_replicas_available": {"deployment"},
           "kube_deployment_status_replicas_updated": {"deployment"},
           "kube_pod_container_info": {"container", "image_spec"},
           "kube_pod_container_status_last_terminated_exitcode": {"container"},
           "kube_pod_container_status_restarts_total": {"container"},
           "kube_pod_container_status_running": {"container"},
           "kube_pod_container_status_waiting": {"container"},
           "kube_pod_created": set(),
           "kube_pod_info": {"created_by_kind", "created_by_name"}}
HARMLESS = "harmless: "
LONG_MINUTES = 600
# What keeps alerts silent, and what it is to be without that.
GUARDS = ((r"\n +for: \w+", ""),
          (r">= 10\b", ">= 0"),
          (r">= 3\b", ">= 1"),
          (r"> [12]\.5\b", "> 0.5"),
          (r"_exitcode == 3\b", "_exitcode > 0"),
          (r', image_spec=~"[^"]*"', ""),
          (r'\{reason!="DEADLINE_PASSED"\}', ""),
          (r"unless on \(namespace, workload\) weir:workload:removed", ""))
# The same, one at a time: without it, this alert is told of something harmless.
LONE_GUARDS = (
    ("WeirDown", r"unless on \(namespace, workload\) weir:workload:starting"),
    ("WeirDown", r"or time\(\) - kube_deployment_created < 600"),
    ("WeirReplicasMissing",
     r"unless changes\(kube_deployment_status_replicas_updated\[10m\]\)\n"
     r" +> changes\(kube_deployment_spec_replicas\[11m\]\)"),
    ("WeirDeviceLost", r"and on \(namespace, pod\) time\(\) - "
                       r"kube_pod_created < 900"),
    *(("WeirNobodyConnects", r"(?s)(alert: WeirNobodyConnects\n.*?)" + guard)
      for guard in (r" > 1\.5",
                    r"\n +and on \(namespace, workload\) \(.*?\n {12}\)",
                    r"\n +> 2 \* sum[^\n]*",
                    r"\n +and sum[^\n]* >= 10")),
    *((alert, r"(?s)(alert: %s\n.*?)\n +and on \(namespace, pod\) up" % alert)
      for alert in ("WeirNotReady", "WeirCertificateNotLoaded",
                    "WeirCallsTimeOut", "WeirConnectionsRefused",
                    "WeirLogLinesDropped")))
STATUS_CODES = set(
    "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND "
    "ALREADY_EXISTS PERMISSION_DENIED RESOURCE_EXHAUSTED FAILED_PRECONDITION "
    "ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS "
    "UNAUTHENTICATED".split())


@functools.cache
def rules():
    [text] = manifests.documents(RULES)
    return [rule for group in text["groups"] for rule in group["rules"]]


def alerts():
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


@functools.cache
def read_rules_test():
    """Every scalar as it is written: 0x40 is 40 times 0, and not 64."""
    return yaml.load(RULES_TEST.read_text("utf-8"), Loader=getattr(
        yaml, "CBaseLoader", yaml.BaseLoader))


def rule_tests():
    return read_rules_test()["tests"]


def minutes_of(test):
    """How long a test lasts."""
    return max(int(case["eval_time"].removesuffix("m"))
               for case in test["alert_rule_test"])


def run_rule_tests(files):
    """Of [(text of rules, [test])]; promtool's exit code, and what it says."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        written = []
        for number, (rules_text, tests) in enumerate(files):
            rules_file = folder / f"rules{number}.yaml"
            rules_file.write_text(rules_text, "utf-8")
            written.append(folder / f"tests{number}.yaml")
            written[-1].write_text(yaml.safe_dump({
                **read_rules_test(), "rule_files": [rules_file.name],
                "tests": tests}, sort_keys=False), "utf-8")
        return promtool.run("test", "rules", *written)


def alert_tests(alert):
    """(test, minutes at which it must not fire, minutes at which it must) of
    each test of an alert."""
    for test in rule_tests():
        minutes = {False: [], True: []}
        for case in test["alert_rule_test"]:
            if case["alertname"] == alert:
                minutes[bool(case.get("exp_alerts"))].append(
                    int(case["eval_time"].removesuffix("m")))
        if any(minutes.values()):
            yield test, sorted(minutes[False]), sorted(minutes[True])


def metrics_read(name):
    """What an alert or a recording reads, by way of others too."""
    found = set()
    for rule in rules():
        if name in (rule.get("alert"), rule.get("record")):
            for use in promql.read(rule["expr"])[0]:
                if use.metric != name:  # as what it was a moment ago
                    found |= metrics_read(use.metric) or {use.metric}
    return found


def panels_that_show(alert):
    """Those that read what an alert reads, not only to choose by."""
    read = metrics_read(alert)
    return [panel["title"] for panel in dashboard.panels()
            if any(use.metric in read for target in panel["targets"]
                   for use in promql.read(
                       target["expr"].partition(" and on ")[0])[0])]


def adapter_queries():
    values = yaml.safe_load(
        (KUBERNETES / "prometheus-adapter" / "values.yaml").read_text("utf-8"))
    for rule in values["rules"]["custom"]:
        yield "prometheus-adapter", rule["seriesQuery"]
        yield "prometheus-adapter", (
            rule["metricsQuery"].replace(
                "<<.Series>>", rule["seriesQuery"].partition("{")[0])
            .replace("<<.LabelMatchers>>", 'namespace="weir"')
            .replace("<<.GroupBy>>", "namespace,pod"))


def keda_queries():
    scaled = manifests.find(manifests.composed("cpu", "keda"), "ScaledObject")
    for trigger in scaled["spec"]["triggers"]:
        yield "KEDA", trigger["metadata"]["query"]


def queries():
    for rule in rules():
        yield rule.get("alert") or rule["record"], rule["expr"]
    yield from dashboard.queries()
    yield from adapter_queries()
    yield from keda_queries()


@functools.cache
def served():
    """What a server shows: {metric: {label: values}}, series names without a
    histogram's suffix but with its label le."""
    with running.Server() as server:
        codes = server.call_everything()
        if codes != [0, 0, 1]:
            raise AssertionError(f"eval, infer, infer: exit codes {codes}")
        text = server.metrics()
    types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    found = {name: {} for name in types}
    for name, labels in re.findall(r"^(\w+)(?:\{(.*)\})? \S+$", text,
                                   re.MULTILINE):
        family = re.sub(r"_(bucket|sum|count)$", "", name)
        if types.get(family) != "histogram":
            family = name
        for label, value in re.findall(r'(\w+)="([^"]*)"', labels):
            found[family].setdefault(label, set()).add(value)
    return types, found


@functools.cache
def documented():
    """The table of docs/metrics.md: {metric: (type, labels, text)}."""
    text = (ROOT / "docs" / "metrics.md").read_text("utf-8")
    table = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        name = re.fullmatch(r"`(\w+)`", cells[0])
        if name and len(cells) >= 4:
            table[name[1]] = (cells[1], set(re.findall(r"\w+", cells[2])),
                              cells[3])
    return table


class Rules(unittest.TestCase):

    def test_are_valid(self):
        code, output = promtool.run("check", "rules", RULES)
        print(output)
        self.assertEqual(code, 0, output)

    def test_fire_when_they_should(self):
        """In tests that last long, without the rules that their alerts do not
        read: each would be evaluated a thousand times."""
        [file] = read_rules_test()["rule_files"]
        self.assertEqual((RULES_TEST.parent / file).resolve(), RULES)
        rules_text = RULES.read_text("utf-8")
        variants = rule_variants.Variants(rules_text)
        same = variants.add(rules_text, [*alerts()])
        files = [(rules_text, [test for test in rule_tests()
                               if minutes_of(test) <= LONG_MINUTES])]
        for test in rule_tests():
            if minutes_of(test) > LONG_MINUTES:
                told = {case["alertname"] for case in test["alert_rule_test"]}
                files.append((variants.of([(alert, same[alert]) for alert
                                           in sorted(told)]), [test]))
        code, output = run_rule_tests(files)
        print(output)
        self.assertEqual(code, 0, output)
        self.assertEqual(output.count("SUCCESS"), len(files), output)

    def test_each_fires_in_time_and_recovers(self):
        """In one test: silent, firing a minute later, and silent again."""
        for alert in alerts():
            pinned = recovered = False
            for _, quiet, firing in alert_tests(alert):
                for minute in firing[:1]:
                    pinned |= minute - 1 in quiet
                    recovered |= bool(quiet) and quiet[-1] > firing[-1]
            self.assertTrue(pinned, f"{alert}: no test of when it fires")
            self.assertTrue(recovered, f"{alert}: no test that it recovers")

    def test_each_is_silent_in_the_nearest_harmless_case(self):
        """And not for want of data: the test has series that it reads."""
        for alert in alerts():
            tests = [test for test, quiet, firing in alert_tests(alert)
                     if test["name"].startswith(HARMLESS) and quiet
                     and not firing]
            series = {entry["series"].partition("{")[0] for test in tests
                      for entry in test["input_series"]}
            self.assertTrue(series & metrics_read(alert),
                            f"{alert}: no harmless case")

    def test_without_guards_each_fires_in_a_harmless_case(self):
        """Else the case is none, or the alert needs no guard. Without all of
        them; and without one alone, in a case in which it never fires."""
        rules_text = RULES.read_text("utf-8")
        variants = rule_variants.Variants(rules_text)
        unguarded = rules_text
        for guard, instead in GUARDS:
            unguarded, count = re.subn(guard, instead, unguarded)
            self.assertGreater(count, 0, guard)
        # (alert, what it is called without its guard, whether its case may be
        # one in which it fires too, the guard)
        wanted = [(alert, called, True, "all") for alert, called
                  in variants.add(unguarded, [*alerts()]).items()]
        for alert, guard in LONE_GUARDS:
            text, count = re.subn(
                guard, lambda match: match[1] if match.lastindex else "",
                rules_text, count=1)
            self.assertEqual(count, 1, guard)
            [called] = variants.add(text, [alert]).values()
            wanted.append((alert, called, False, guard))
        fired = self.fired_though_harmless(variants, wanted)
        for alert, called, _, guard in wanted:
            with self.subTest(alert=alert, guard=guard):
                self.assertIn(called, fired)

    def fired_though_harmless(self, variants, wanted):
        """What fires, of what is called something in a case that is called
        harmless, where the alert itself does not."""
        files = []
        for test in rule_tests():
            if not test["name"].startswith(HARMLESS):
                continue
            called, cases = [], []
            for alert, variant, too, _ in wanted:
                of_it = [case for case in test["alert_rule_test"]
                         if case["alertname"] == alert]
                quiet = [{**case, "alertname": variant} for case in of_it
                         if not case.get("exp_alerts")]
                if quiet and (too or len(quiet) == len(of_it)):
                    called.append((alert, variant))
                    cases += quiet
            files.append((variants.of(called),
                          [{**test, "alert_rule_test": cases}]))
        _, output = run_rule_tests(files)
        return set(re.findall(r"^ *alertname: (\w+), time", output,
                              re.MULTILINE))

    def test_each_test_is_of_an_alert(self):
        for test in rule_tests():
            for case in test["alert_rule_test"]:
                self.assertIn(case["alertname"], alerts())

    def test_the_label_workload_is_the_deployment(self):
        [endpoint] = manifests.find(MONITORING, "ServiceMonitor")["spec"][
            "endpoints"]
        for workload in ("weir", "weir-canary", "weir-" + "long" * 12):
            self.assertEqual(
                manifests.relabeled(endpoint, manifests.pod_of(workload))[
                    "workload"], workload)
        # Of a pod that is no Deployment's, or nobody's.
        for kind, name in (("StatefulSet", "weir-canary"), ("", "")):
            self.assertNotIn("workload", manifests.relabeled(endpoint, {
                "__meta_kubernetes_pod_controller_kind": kind,
                "__meta_kubernetes_pod_controller_name": name}))

    def test_each_tells_what_to_do(self):
        headings = re.findall(r"^#+ (.*)$", RUNBOOKS.read_text("utf-8"),
                              re.MULTILINE)
        anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")
                   for heading in headings}
        for name, rule in alerts().items():
            self.assertIn(rule["labels"]["severity"], ("critical", "warning"))
            self.assertEqual(set(rule["annotations"]),
                             {"summary", "description", "runbook"}, name)
            file, anchor = rule["annotations"]["runbook"].split("#")
            self.assertEqual(ROOT / file, RUNBOOKS, name)
            self.assertIn(anchor, anchors, name)

    def test_the_custom_resource_is_up_to_date(self):
        made = subprocess.run([MONITORING / "make_prometheus_rule.sh"],
                              check=True, capture_output=True, text=True).stdout
        self.assertEqual(
            (MONITORING / "prometheus-rule.yaml").read_text("utf-8"), made)
        self.assertEqual(yaml.safe_load(made)["spec"],
                         yaml.safe_load(RULES.read_text("utf-8")))


class AcrossClusters(unittest.TestCase):
    """The rules for a ruler that has the series of several."""

    SCRIPT = MONITORING / "across_clusters.sh"

    def test_one_clusters_server_hides_no_outage_of_another(self):
        made = subprocess.run([self.SCRIPT, "cluster"], check=True,
                              capture_output=True, text=True).stdout
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(made)
            file.flush()
            series = []
            for cluster, ready in (("a", "1x10 stale"), ("b", "1x40")):
                of = f'cluster="{cluster}", namespace="weir"'
                series += [
                    {"series": f'weir_ready{{{of}, workload="weir", pod="p"}}',
                     "values": ready},
                    {"series": f"kube_deployment_spec_replicas{{{of}, "
                               'deployment="weir"}', "values": "2x40"}]
            promtool.check({
                "rule_files": [file.name], "evaluation_interval": "1m",
                "group_eval_order": ["weir.recordings", "weir.availability",
                                     "weir.objectives", "weir.load"],
                "tests": [{
                    "interval": "1m", "input_series": series,
                    "promql_expr_test": [{
                        "expr": 'count by (cluster, workload) (ALERTS{'
                                'alertname="WeirDown", alertstate="firing"})',
                        "eval_time": "20m",
                        "exp_samples": [{
                            "labels": '{cluster="a", workload="weir"}',
                            "value": 1}]}]}]})

    def test_every_rule_keeps_the_label(self):
        made = yaml.safe_load(subprocess.run(
            [self.SCRIPT, "site"], check=True, capture_output=True,
            text=True).stdout)
        for group in made["groups"]:
            for rule in group["rules"]:
                for labels in re.findall(r"\b(?:on|by|ignoring|without) "
                                         r"?\(([^)]*)\)", rule["expr"]):
                    self.assertRegex(labels, r"^site\b", rule["expr"])
                text = rule.get("annotations", {}).get("description", "")
                self.assertEqual(text.count("$labels.namespace"),
                                 text.count("$labels.site"))

    def test_what_is_no_label_is_refused(self):
        for arguments in ((), ("a b",), ("a", "b")):
            refused = subprocess.run([self.SCRIPT, *arguments], check=False,
                                     capture_output=True, text=True)
            self.assertEqual(refused.returncode, 2)
            self.assertIn("usage", refused.stderr)


class Queries(unittest.TestCase):

    def test_are_valid(self):
        lines = ["groups:", "- name: queries", "  rules:"]
        found = [*dashboard.queries(), *adapter_queries(), *keda_queries()]
        for i, (_, query) in enumerate(found):
            lines += [f"  - record: query:{i}", f"    expr: {json.dumps(query)}"]
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write("\n".join(lines))
            file.flush()
            code, output = promtool.run("check", "rules", file.name)
        print(len(found), "queries")
        self.assertEqual(code, 0, output)


class Metrics(unittest.TestCase):

    def test_the_server_has_what_is_documented(self):
        types, found = served()
        for name, (kind, labels, _) in documented().items():
            if not name.startswith("weir_"):
                continue  # Triton's names need --triton-metrics
            if name in types:
                self.assertEqual(types[name], kind, name)
                self.assertLessEqual(set(found[name]), labels | {"le"}, name)

    def test_the_bounds_that_an_objective_may_have(self):
        """Those that the page names, which all its histograms have."""
        page = RUNBOOKS.read_text("utf-8")
        [text] = re.findall(r"all four histograms have: (.*);", page)
        bounds = [served()[1][use.metric.removesuffix("_bucket")]["le"]
                  for rule in rules() for use in promql.read(rule["expr"])[0]
                  if use.metric.endswith("_bucket")]
        self.assertGreaterEqual(len(bounds), 4)
        self.assertEqual(set(re.findall(r"[\d.]+", text)),
                         set.intersection(*bounds) - {"+Inf"})

    def test_every_metric_and_label_exists(self):
        checked = set()
        for where, query in queries():
            with self.subTest(where=where):
                checked.update(self.check(query))
        print("metrics:", *sorted(checked))

    def check(self, query):
        """Checks one query; yields the metrics of ours that it names."""
        uses, grouped = promql.read(query)
        known = set(TARGET_LABELS)
        for use in uses:
            labels = self.labels_of(use.metric) | TARGET_LABELS
            known |= labels
            for label, _, value in use.matchers:
                self.assertIn(label, labels, use.metric)
                self.check_value(use.metric, label, value)
        self.assertLessEqual(grouped, known, query)
        return [use.metric for use in uses if use.metric.startswith("weir_")]

    def labels_of(self, metric):
        if metric in FOREIGN:
            return FOREIGN[metric]
        if metric in {rule.get("record") for rule in rules()}:
            return set()
        family = re.sub(r"_(bucket|sum|count)$", "", metric)
        table = documented()
        if metric in table:
            self.assertNotEqual(table[metric][0], "histogram", metric)
            return table[metric][1]
        self.assertTrue(family in table, f"there is no metric {metric}")
        self.assertEqual(table[family][0], "histogram", metric)
        self.assertIn(family, served()[0], "the server does not show it")
        return table[family][1] | ({"le"} if "_bucket" in metric else set())

    def check_value(self, metric, label, value):
        if label in TARGET_LABELS or metric in FOREIGN:
            return
        family = re.sub(r"_(bucket|sum|count)$", "", metric)
        text = documented()[family if family in documented() else metric][2]
        for word in value.split("|"):
            if label == "code":
                self.assertIn(word, STATUS_CODES, metric)
            elif word not in served()[1].get(family, {}).get(label, ()):
                self.assertRegex(text, rf"\b{re.escape(word)}\b",
                                 f"{metric}: {label}")


class Live(unittest.TestCase):
    """A real Prometheus that scrapes a real server."""

    SECONDS = 90

    def test_rules_have_data(self):
        # There is no Kubernetes here that anybody could tell of.
        missing = [rule["record"] for rule in rules()
                   if "record" in rule and "kube_" not in rule["expr"]]
        records = len(missing)
        broken = None
        end = time.monotonic() + self.SECONDS
        with running.Server() as server, \
                running.Prometheus(server, RULES) as prometheus:
            while (missing or broken is None) and time.monotonic() < end:
                server.call_everything()
                missing = [record for record in missing
                           if not prometheus.query(record)]
                broken = prometheus.broken_rules()
        print(records, "recordings have data")
        self.assertEqual(missing, [])
        self.assertEqual(broken, {})


if __name__ == "__main__":
    unittest.main()
