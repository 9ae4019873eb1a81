#!/usr/bin/env python3
"""Is the dashboard what its script makes, is every metric of ours on it, and
does each of its queries, asked of a Prometheus that scrapes a loaded server,
say what is so?"""

import functools
import math
import operator
import pathlib
import re
import subprocess
import time
import unittest
from typing import NamedTuple

import dashboard
import monitoring_test
import promql
import promtool
import running
from loaded_server import (
    BUDGETS, CLOSED, CONNECTIONS, EVALUATIONS, FAILING_INFERENCES, FAULTS,
    INFERENCES, MOST_CONNECTIONS, QUEUE, REFUSED, REST, RESTARTS, ROWS, SPACES,
    STREAMS, UNKNOWN_INFERENCES, WINDOW, WINDOW_SECONDS, scrape_with,
    wait_for_series, LoadedServer)
from manifests import BIN, MONITORING

# Not on the dashboard.
ELSEWHERE = {
    # Says little: a driver maps a hundred times what is used.
    "process_virtual_memory_bytes",
}
# Of panels, the metrics that a server on a CPU does not have.
OF_GPUS = {"weir_device_memory_bytes", "weir_kernel_cache_hits_total",
           "weir_kernel_cache_misses_total",
           "weir_kernel_cache_write_failures_total"}


def family(metric):
    """The table's name of a series."""
    base = re.sub(r"_(bucket|sum|count)$", "", metric)
    return base if base in monitoring_test.documented() else metric


def metrics_of(query):
    return {family(use.metric) for use in promql.read(query)[0]}


class Dashboard(unittest.TestCase):

    def test_is_what_its_script_makes(self):
        made = subprocess.run([MONITORING / "make_dashboard.py"], check=True,
                              capture_output=True, text=True).stdout
        self.assertEqual(dashboard.FILE.read_text("utf-8"), made)

    def test_panels_are_whole(self):
        numbers = [panel["id"] for panel in dashboard.dashboard()["panels"]]
        self.assertEqual(len(numbers), len(set(numbers)))
        titles = [panel["title"] for panel in dashboard.panels()]
        self.assertEqual(len(titles), len(set(titles)))
        places = set()
        for panel in dashboard.panels():
            for target in panel["targets"]:
                self.assertIn("$namespace", target["expr"], panel["title"])
                self.assertIn("$pod", target["expr"], panel["title"])
            grid = panel["gridPos"]
            self.assertLessEqual(grid["x"] + grid["w"], 24, panel["title"])
            for x in range(grid["x"], grid["x"] + grid["w"]):
                for y in range(grid["y"], grid["y"] + grid["h"]):
                    self.assertNotIn((x, y), places, panel["title"])
                    places.add((x, y))

    def test_every_metric_is_on_it(self):
        shown = {name for panel in dashboard.panels()
                 for target in panel["targets"]
                 for name in metrics_of(target["expr"])}
        ours = {name for name in monitoring_test.documented()
                if not name.startswith("nv_")}
        self.assertEqual(ours - shown, ELSEWHERE)

    def test_each_alert_has_a_panel(self):
        for alert in monitoring_test.alerts():
            self.assertTrue(monitoring_test.panels_that_show(alert), alert)

    def test_the_runbooks_name_panels_that_there_are(self):
        titles = {panel["title"] for panel in dashboard.panels()}
        text = monitoring_test.RUNBOOKS.read_text("utf-8")
        _, _, alerts = text.partition("## Alerts")
        named = re.findall(r'panels? "([^"]+)"(?: and\s"([^"]+)")?', alerts)
        self.assertTrue(named)
        for title in {title for titles in named for title in titles if title}:
            self.assertTrue(any(known.startswith(title) for known in titles),
                            title)


class Within(NamedTuple):
    least: float
    most: float


ABOVE_ZERO = Within(math.ulp(0), math.inf)
ANY = Within(0, math.inf)

class OnAGpu(unittest.TestCase):
    """What there is on GPUs alone, from a stand-in, for there is no GPU here.
    That it is shaped as a server's is seen in the table of metrics."""

    # Series that count, and by how much they grow.
    COUNTED = {
        'weir_kernel_cache_hits_total{device="cuda:0",level="memory"}': 50,
        'weir_kernel_cache_hits_total{device="cuda:0",level="disk"}': 7,
        'weir_kernel_cache_misses_total{device="cuda:0"}': 4,
        'weir_kernel_cache_write_failures_total{device="cuda:0"}': 3,
    }
    OTHERS = {
        'weir_device_memory_bytes{device="cuda:0",state="used"}': 5 << 30,
        'weir_device_memory_bytes{device="cuda:0",state="free"}': 3 << 30,
        "weir_ready": 1,
    }

    def text(self, counts):
        return "".join(f"{series} {value}\n"
                       for series, value in (counts | self.OTHERS).items())

    def test_the_stand_in_is_shaped_as_a_server_is(self):
        names = set()
        for series in self.COUNTED | self.OTHERS:
            name, labels = re.fullmatch(r"(\w+)(?:{(.*)})?", series).groups()
            kind, known, text = monitoring_test.documented()[name]
            self.assertEqual(kind == "counter", series in self.COUNTED)
            found = dict(re.findall(r'(\w+)="([^"]*)"', labels or ""))
            self.assertEqual(set(found), known)
            for label, value in found.items():
                if label != "device":
                    self.assertRegex(text, rf"\b{value}\b")
            names.add(name)
        self.assertEqual(names - {"weir_ready"}, OF_GPUS)

    def test_each_panel_says_what_is_so(self):
        panels = {panel["title"]: panel for panel in dashboard.panels()
                  if any(metrics_of(target["expr"]) & OF_GPUS
                         for target in panel["targets"])}
        gpu = self.enterContext(running.Exporter(
            self.text(dict.fromkeys(self.COUNTED, 0))))
        prometheus = self.enterContext(running.Prometheus(
            gpu, monitoring_test.RULES))
        wait_for_series(prometheus,
                        f"count_over_time(weir_ready[{WINDOW}]) > 1")
        gpu.text = self.text(self.COUNTED)
        at = scrape_with(prometheus, "weir_kernel_cache_misses_total == 4")
        shown = {}
        for title, panel in panels.items():
            for target in panel["targets"]:
                query = dashboard.fill(target["expr"], rate=WINDOW)
                for one in prometheus.query(query, at):
                    name = dashboard.legend(target, one["metric"])
                    shown[title, name] = float(one["value"][1])
        expected = {
            ("Memory of the device", "cuda:0 used"): 5 << 30,
            ("Memory of the device", "cuda:0 free"): 3 << 30,
            ("Kernels looked up", "cuda:0 memory"): 50 / WINDOW_SECONDS,
            ("Kernels looked up", "cuda:0 disk"): 7 / WINDOW_SECONDS,
            ("Kernels looked up", "cuda:0 misses"): 4 / WINDOW_SECONDS,
            ("Kernels that could not be kept", "weir-0"): 3 / WINDOW_SECONDS}
        self.assertEqual(set(shown), set(expected))
        for name, value in expected.items():
            self.assertAlmostEqual(shown[name], value, 9, name)


class OfKubernetes(unittest.TestCase):
    """What kube-state-metrics tells, of longer than a test could wait."""

    CONTAINER = 'namespace="weir", pod="weir-0", container="weir"'

    def expect_losses(self, told, *cases):
        """`told`: {instance of kube-state-metrics: (restarts, exit codes)};
        `cases`: (minute, how many losses the panel shows then)."""
        [panel] = [panel for panel in dashboard.panels()
                   if panel["title"] == "Devices lost, last day"]
        [target] = panel["targets"]
        names = ("kube_pod_container_status_restarts_total",
                 "kube_pod_container_status_last_terminated_exitcode")
        promtool.check({
            "rule_files": [str(monitoring_test.RULES)],
            "evaluation_interval": "1m",
            "tests": [{
                "interval": "1m",
                "input_series": [
                    {"series": f"kube_pod_container_info{{{self.CONTAINER}"
                               ', image_spec="weir:1"}',
                     "values": "1x2000"}, *(
                         {"series": f"{name}{{{self.CONTAINER}, "
                                    f'instance="{instance}"}}',
                          "values": values}
                         for instance, both in told.items()
                         for name, values in zip(names, both))],
                "promql_expr_test": [{
                    "expr": dashboard.fill(target["expr"]),
                    "eval_time": f"{minute}m",
                    "exp_samples": [{"labels": "{}", "value": count}]}
                    for minute, count in cases]}]})

    def test_replicas_are_ours_and_envoy_s(self):
        [panel] = [panel for panel in dashboard.panels()
                   if panel["title"] == "Replicas"]
        series = {'weir_ready{namespace="weir", pod="a", workload="weir"}': 1}
        for name, wanted in (("weir", 3), ("weir-envoy", 2), ("theirs", 5)):
            labels = f'namespace="weir", deployment="{name}"'
            series |= {
                f"kube_deployment_spec_replicas{{{labels}}}": wanted,
                f"kube_deployment_status_replicas_available{{{labels}}}":
                    wanted - 1}
        promtool.check({"tests": [{
            "interval": "1m",
            "input_series": [{"series": name, "values": f"{value}x10"}
                             for name, value in series.items()],
            "promql_expr_test": [{
                "expr": dashboard.fill(target["expr"]), "eval_time": "5m",
                "exp_samples": [
                    {"labels": f'{{workload="{name}"}}',
                     "value": count - missing}
                    for name, count in (("weir", 3), ("weir-envoy", 2))]}
                for missing, target in enumerate(panel["targets"])]}]})

    def test_a_loss_counts_that_is_seen_once(self):
        self.expect_losses(
            {"k1": ("0x5 1 2 3 3 4 4 4 4 5x2000", "_x6 3 1x2000")},
            (5, 0), (6, 1), (30, 1), (1440, 1), (1447, 0))

    def test_a_loss_counts_of_which_another_kube_state_metrics_tells(self):
        self.expect_losses({"k1": ("0x5 stale", "_x90"),
                            "k2": ("_x7 1x90", "_x7 3x90")},
                           (6, 0), (8, 1), (60, 1))
        self.expect_losses({"k1": ("1x5 stale", "3x5 stale"),
                            "k2": ("_x7 1x90", "_x7 3x90")},
                           (6, 0), (8, 0), (60, 0))

    def test_one_that_tells_late_takes_none_away(self):
        self.expect_losses({"k1": ("0x5 1x10 2x90", "_x6 3x10 137x90"),
                            "k2": ("0x5 1x14 2x90", "_x6 3x14 137x90")},
                           (10, 1), (18, 1), (60, 1))

    def test_only_restarts_by_losses_count(self):
        both = ("0x5 1x5 2x5 3x5 4x5 5x5 6x5 7x100", "_x6 137x23 3x11 137x100")
        self.expect_losses({"k1": both, "k2": both},
                           (27, 0), (30, 1), (37, 2), (50, 2))


class Live(unittest.TestCase):
    """Each query, at one moment of a server that holds still."""

    @classmethod
    def setUpClass(cls):
        cls.loaded = LoadedServer(cls)
        cls.loaded.drive()
        cls.expected = cls.expect()

    @classmethod
    def expect(cls):
        """{panel: {legend: value, or between which}}; what has another legend
        must be 0. Where a panel is missing here, the server has none."""
        loaded = cls.loaded
        infers = (INFERENCES + FAILING_INFERENCES + UNKNOWN_INFERENCES +
                  loaded.loaded)
        evaluations = EVALUATIONS + FAULTS + REFUSED

        def rate(count):
            return count / WINDOW_SECONDS

        # What the client asks besides.
        calls = {}
        for labels, count in loaded.series("weir_requests_total"):
            calls[labels["method"]] = calls.get(labels["method"], 0) + count
        calls |= {"ModelInfer": infers, "Evaluate": evaluations}
        answered = INFERENCES + loaded.loaded + EVALUATIONS
        total = sum(calls.values())
        failed = FAULTS + FAILING_INFERENCES
        version = subprocess.run(
            [BIN / "weir-server", "--version"], check=True,
            capture_output=True, text=True).stdout.split()[1]
        [(info, _)] = loaded.series("weir_build_info")
        bounds = {labels["le"] for labels, _ in
                  loaded.series("weir_request_seconds_bucket")}
        process = pathlib.Path("/proc", str(loaded.server.process.pid))
        files = re.search(r"Max open files +(\d+)",
                          (process / "limits").read_text())
        threads = re.search(r"Threads:\s+(\d+)",
                            (process / "status").read_text())
        peak = re.search(r"VmHWM:\s+(\d+) kB",
                         (process / "status").read_text())
        stages = {"queue": "weir_queue_wait_seconds",
                  "lane": "weir_lane_wait_seconds",
                  "compute": "weir_compute_seconds"}
        used = {labels["pool"]: value for labels, value
                in loaded.series("weir_memory_bytes")
                if labels["state"] == "used"}
        return {
            "Servers ready": {"ready": 1},
            "Calls per second": {"calls": rate(total)},
            "Failed in the server": {"failed": failed / total},
            "Refused": {"refused": REFUSED / total},
            # Of the other methods it would be another.
            "p99 of ModelInfer and Evaluate": {"p99": Within(
                *sorted(loaded.quantile("p99", "weir_request_seconds",
                                        method=method)
                        for method in ("ModelInfer", "Evaluate")))},
            "Fullest queue": {"queue": 1},
            "Models not served": {"unavailable": 1},
            "Devices lost, last day": {"lost": RESTARTS},
            "Calls by method": {
                method: rate(count) for method, count in calls.items()},
            "Calls by server": {"weir-0": rate(total)},
            "Calls by status code": {
                "INTERNAL": rate(failed),
                "NOT_FOUND": rate(UNKNOWN_INFERENCES),
                "RESOURCE_EXHAUSTED": rate(REFUSED)},
            "Failed in the server, by method": {
                "Evaluate": FAULTS / evaluations,
                "ModelInfer": FAILING_INFERENCES / infers},
            "Refused by reason": {"QUEUE_FULL": rate(REFUSED)},
            "Refused, by method": {"Evaluate": REFUSED / evaluations},
            "Latency": functools.reduce(operator.or_, (
                loaded.quantiles(method, "weir_request_seconds", method=method)
                for method in calls if calls[method])),
            "Given up, by method": {},
            "Latency distribution": {
                bound: answered if bound == "+Inf" else Within(0, answered)
                for bound in bounds},
            "Where the time goes (p99)": {
                stage: loaded.quantile("p99", histogram)
                for stage, histogram in stages.items()},
            "Where the time goes (mean)": {
                stage: loaded.mean(histogram)
                for stage, histogram in stages.items()},
            "Queue": {"weir-0": QUEUE, "limit": QUEUE},
            "Oldest request of the queue": {"weir-0": ABOVE_ZERO},
            "In flight": {"weir-0": STREAMS + QUEUE},
            "Bytes in flight": {
                "weir-0": loaded.metric("weir_request_bytes_in_flight")},
            "Lanes by state": {"cpu leased": STREAMS, "cpu max": STREAMS},
            "Waiting": {"cpu lane": QUEUE},
            "Leases per second": {"weir-0": rate(
                answered + failed + STREAMS)},
            "Rows per execution": {"weir-0": (
                INFERENCES * ROWS + loaded.loaded + FAILING_INFERENCES) / (
                    INFERENCES + loaded.loaded + FAILING_INFERENCES)},
            "Models by state": {"ready": 3, "unavailable": 1},
            "Requests by model": {
                "digits 1": rate(INFERENCES), "again 1": rate(loaded.loaded),
                REST: rate(FAILING_INFERENCES)},
            "Failed requests by model": {REST: 1},
            "Given up, by model": {},
            "Latency by model": functools.reduce(operator.or_, (
                loaded.quantiles(f"{model} 1", "weir_model_request_seconds",
                                 model=model)
                for model in ("digits", "again"))),
            "Memory by pool": {
                f"cpu {pool} used": value for pool, value in used.items()
            } | {f"cpu {pool} cached": ANY for pool in ("host", "tensor")},
            "Share of the memory budget": {
                f"cpu {pool}": used[pool] / budget
                for pool, budget in BUDGETS.items()} | {
                    "cpu program": used["program"] / loaded.metric(
                        "weir_memory_budget_bytes", pool="program")},
            "Compile time": loaded.quantiles("cpu", "weir_compile_seconds"),
            "Compilations": {},
            "Programs in the cache": {"cpu": 3},
            # A program is looked for anew by each of its calls.
            "Programs looked up": {
                "cpu hits": rate(EVALUATIONS - 1 + FAULTS - 1 + QUEUE),
                "cpu misses": rate(3)},
            "Connections": {"weir-0": CONNECTIONS, "limit": MOST_CONNECTIONS},
            "Connections closed as they came": {
                "PEER_CONNECTIONS": rate(CLOSED)},
            "TLS handshakes": {"begun": ABOVE_ZERO},
            "Cut for what they sent": {},
            "Messages on their way": {},
            "Uploads cut": {},
            "Answers not delivered": {},
            "CPU": {"weir-0": Within(math.ulp(0), 2 / WINDOW_SECONDS * (
                loaded.metric("process_cpu_seconds_total")))},
            "Resident memory": {"weir-0": Within(1, int(peak[1]) * 1024)},
            "File descriptors": {
                "weir-0": Within(CONNECTIONS, int(files[1])),
                "limit": int(files[1])},
            "Threads": {"weir-0": Within(2, int(threads[1]) + 8)},
            "Ready": {"weir-0": 1},
            "Replicas": {"weir wanted": 2, "weir available": 1},
            # The kernel says in whole seconds when it started itself.
            "Running for": {"weir-0": Within(
                0, time.time() - loaded.started + 1.5)},
            "Servers by version and device": {
                f"{version} ({info['build']}) on cpu": 1},
            "Healthy devices": {"weir-0 cpu": 1},
            "Device stalls": {},
            "Spaces": {"weir-0": SPACES - 1},
            "Spaces opened and closed": {"opened": rate(SPACES),
                                         "closed": rate(1)},
            "Kept in spaces": {},
            "Bytes kept in spaces": {},
            "Days until a certificate ends": {
                "weir-0 certificate": Within(.9, 1),
                "weir-0 client_ca": Within(.9, 1)},
            "Certificates not loaded": {},
            "Log lines lost": {},
        }

    def shown(self, target, **variables):
        """{legend: value} of a query."""
        query = dashboard.fill(target["expr"], rate=WINDOW, **variables)
        series = self.loaded.prometheus.query(query, self.loaded.at)
        found = [(dashboard.legend(target, one["metric"]),
                  float(one["value"][1])) for one in series]
        self.assertEqual(len(dict(found)), len(found), f"{query}: {found}")
        return dict(found)

    def test_each_panel_says_what_is_so(self):
        for panel in dashboard.panels():
            with self.subTest(panel=panel["title"]):
                expected = self.expected.get(panel["title"])
                if expected is None:
                    for target in panel["targets"]:
                        self.assertLessEqual(metrics_of(target["expr"]),
                                             OF_GPUS)
                        self.assertEqual(self.shown(target), {})
                    continue
                shown = {}
                for target in panel["targets"]:
                    more = self.shown(target)
                    self.assertTrue(more, f"no data: {target['expr']}")
                    self.assertFalse(shown.keys() & more.keys())
                    shown |= more
                for name in expected:
                    self.assertIn(name, shown)
                for name, value in shown.items():
                    self.check(name, value, expected.get(name, 0))

    def check(self, name, value, expected):
        if isinstance(expected, Within):
            self.assertLessEqual(expected.least, value, name)
            self.assertLessEqual(value, expected.most, name)
            self.assertTrue(math.isfinite(value), name)
        else:
            self.assertTrue(math.isclose(value, expected, rel_tol=1e-6),
                            f"{name}: {value}, not {expected}")

    def test_each_query_is_of_the_chosen_servers(self):
        for panel in dashboard.panels():
            for target in panel["targets"]:
                with self.subTest(panel=panel["title"]):
                    everywhere = self.shown(target)
                    self.assertEqual(
                        self.shown(target, namespace="(weir|other)",
                                   pod="(weir-0|weir-1)"), everywhere)
                    for other in ({"namespace": "other"}, {"pod": "weir-1"}):
                        shown = self.shown(target, **other)
                        self.assertLessEqual(set(shown.values()), {0.}, other)
                        if "or vector(0)" not in target["expr"]:
                            self.assertEqual(shown, {}, other)

    def test_an_idle_server_shows_numbers_or_nothing(self):
        for query, values in self.loaded.idle:
            for value in values:
                self.assertTrue(math.isfinite(value), query)

    def test_the_variables_are_the_servers(self):
        found = {where: self.loaded.prometheus.query(query, self.loaded.at)
                 for where, query in dashboard.queries()
                 if where.startswith("variable ")}
        self.assertEqual(
            {where: [one["metric"] for one in series]
             for where, series in found.items()},
            {"variable namespace": [{"namespace": "weir"}],
             "variable pod": [{"pod": "weir-0"}]})


if __name__ == "__main__":
    unittest.main()
