#!/usr/bin/env python3
"""How many pods there are: what the queries of both autoscalers answer, by
promtool, where samples are deep or missing; and, in a model of Kubernetes'
autoscaler, what their numbers make of a load."""

import math
import re
import statistics
import unittest

import yaml

import manifests
import promtool
from manifests import KUBERNETES, MONITORING, composed, find

SCRAPE = 15  # seconds, as deploy/monitoring/service-monitor.yaml has it
WINDOW = 60


def adapter_rules():
    values = yaml.safe_load(
        (KUBERNETES / "prometheus-adapter" / "values.yaml").read_text("utf-8"))
    return {rule["name"]["as"]: rule for rule in values["rules"]["custom"]}


def adapter_query(name):
    """What the adapter asks for all pods of the namespace."""
    rule = adapter_rules()[name]
    series = rule["seriesQuery"].partition("{")[0]
    return (rule["metricsQuery"].replace("<<.Series>>", series)
            .replace("<<.LabelMatchers>>", 'namespace="weir"')
            .replace("<<.GroupBy>>", "pod"))


def hpa():
    return find(composed("cpu", "hpa"), "HorizontalPodAutoscaler")["spec"]


def aims():
    """{metric: its aim for each pod}."""
    return {metric["pods"]["metric"]["name"]: manifests.quantity(
                metric["pods"]["target"]["averageValue"])
            for metric in hpa()["metrics"]}


def keda():
    return find(composed("cpu", "keda"), "ScaledObject")["spec"]


def triggers():
    return {trigger["name"]: trigger for trigger in keda()["triggers"]}


class Queries(unittest.TestCase):
    """Of two pods, a and b, after five minutes; and of c, which is of another
    Deployment."""

    WORKLOADS = {"c": "weir-canary"}

    def answers(self, query, series, expected, after="5m"):
        """`series`: {(metric, pod): promtool's values every 15 s};
        `expected`: [(labels, value)]."""
        test = {"evaluation_interval": "15s", "tests": [{
            "interval": "15s",
            "input_series": [
                {"series": f'{metric}{{namespace="weir", job="weir", '
                           f'workload="{self.WORKLOADS.get(pod, "weir")}", '
                           f'pod="{pod}"{more}}}', "values": values}
                for (metric, pod, more), values in series.items()],
            "promql_expr_test": [{
                "expr": query, "eval_time": after,
                "exp_samples": [{"labels": labels, "value": value}
                                for labels, value in expected]}]}]}
        promtool.check(test)

    def queue(self, **pods):
        """{series} of the queues; a pod answers its scrapes unless its values
        end."""
        series = {}
        for pod, values in pods.items():
            series["weir_queue_depth", pod, ""] = values
            series["up", pod, ""] = ("1x5 0x15" if "stale" in values
                                     else "1x20")
        return series

    def keda_queue(self, series, value):
        self.answers(triggers()["queue-depth"]["metadata"]["query"], series,
                     [] if value is None else [("{}", value)])

    def test_keda_adds_the_pods_queues(self):
        self.keda_queue(self.queue(a="4x20", b="6x20"), 10)

    def test_what_another_deployment_has_to_do_brings_no_pods(self):
        query = triggers()["requests-per-stream"]["metadata"]["query"]
        for canary in ("160x20", "160x5 stale"):
            self.keda_queue(self.queue(a="4x20", b="6x20", c=canary), 10)
            self.answers(query, self.requests(16, a="12x20", b="12x20",
                                              c=canary), [("{}", 1.5)])

    def test_one_deep_sample_brings_no_pods(self):
        for samples in ("0x18 256 0", "0x19 256"):
            burst = self.queue(a=samples, b="0x20")
            self.keda_queue(burst, 0)
            self.answers(adapter_query("weir_queue_depth"), burst,
                         [('{pod="a"}', 0), ('{pod="b"}', 0)])

    def test_nor_does_one_of_many_in_flight(self):
        burst = self.requests(16, a="0x19 256", b="0x20")
        self.answers(triggers()["requests-per-stream"]["metadata"]["query"],
                     burst, [("{}", 0)])
        self.answers(adapter_query("weir_requests_per_stream"), burst,
                     [('{pod="a"}', 0), ('{pod="b"}', 0)])

    def test_a_queue_of_a_minute_does(self):
        queue = self.queue(a="0x16 256x3", b="0x16 256x3")
        self.keda_queue(queue, 512)
        self.answers(adapter_query("weir_queue_depth"), queue,
                     [('{pod="a"}', 256), ('{pod="b"}', 256)])

    def test_a_pod_that_is_not_scraped_keeps_its_place(self):
        self.keda_queue(self.queue(a="4x20", b="6x5 stale"), 10)

    def test_it_does_so_for_an_hour(self):
        """As docs/kubernetes.md says."""
        for name, series, both, one in (
                ("queue-depth", self.queue(a="4x260", b="6x5 stale"), 10, 4),
                ("requests-per-stream",
                 self.requests(16, a="4x260", b="8x5 stale"), 0.75, 0.25)):
            for key in series:
                if key[0] == "weir_stream_pool_max_lanes" and key[1] == "a":
                    series[key] = "16x260"
            series["up", "a", ""], series["up", "b", ""] = "1x260", "1x5 0x255"
            query = triggers()[name]["metadata"]["query"]
            self.answers(query, series, [("{}", both)], after="60m")
            self.answers(query, series, [("{}", one)], after="63m")

    def test_and_brings_no_other(self):
        self.keda_queue(self.queue(a="4x20", b="200x5 stale"), 4 + 8)

    def test_one_that_is_gone_counts_no_more(self):
        gone = self.queue(a="4x20", b="6x5 stale")
        gone["up", "b", ""] = "1x5 stale"
        self.keda_queue(gone, 4)

    def test_one_that_has_just_gone_counts_no_more_either(self):
        """Within the minute whose samples are there still."""
        query = triggers()["requests-per-stream"]["metadata"]["query"]
        series = self.requests(16, a="12x20", b="12x18 stale")
        series["up", "b", ""] = "1x18 stale"
        self.answers(query, series, [("{}", 0.75)])
        series = self.queue(a="4x20", b="6x18 stale")
        series["up", "b", ""] = "1x18 stale"
        self.keda_queue(series, 4)

    def test_one_whose_labels_changed_counts_once(self):
        """The series of before are there for an hour, or for the minute."""
        query = triggers()["requests-per-stream"]["metadata"]["query"]
        for last in (8, 18):
            requests = self.requests(16, a=f"12x{last} stale")
            requests["up", "a", ""] = f"1x{last} stale"
            queue = self.queue(a=f"4x{last} stale")
            queue["up", "a", ""] = f"1x{last} stale"
            for series in (requests, queue):
                for (metric, pod, more), values in list(series.items()):
                    value = values.partition("x")[0]
                    series[metric, pod, more + ', instance="10.0.0.9:8002"'] = (
                        f"_x{last} {value}x{19 - last}")
            self.answers(query, requests, [("{}", 0.75)])
            self.keda_queue(queue, 4)
            self.answers(adapter_query("weir_queue_depth"), queue,
                         [('{pod="a"}', 4)])
            self.answers(adapter_query("weir_requests_per_stream"), requests,
                         [('{pod="a"}', 0.75)])

    def test_a_new_one_counts_nothing(self):
        new = self.queue(a="4x20")
        new["up", "b", ""] = "_x15 0x5"
        self.keda_queue(new, 4)

    def test_without_any_metric_there_is_no_number(self):
        self.keda_queue({}, None)
        gone = self.queue(a="4x5 stale", b="6x5 stale")
        for pod in "ab":
            gone["up", pod, ""] = "1x5 stale"
        self.keda_queue(gone, None)
        self.answers(triggers()["requests-per-stream"]["metadata"]["query"],
                     {}, [])

    def requests(self, streams, **pods):
        series = {}
        for pod, values in pods.items():
            series["weir_requests_in_flight", pod, ""] = values
            ends = "stale" in values
            for device in ("cuda:0", "cpu"):
                series["weir_stream_pool_max_lanes", pod,
                       f', device="{device}"'] = (
                           f"{streams}x5 stale" if ends else f"{streams}x20")
            series["up", pod, ""] = "1x5 0x15" if ends else "1x20"
        return series

    def test_requests_count_by_the_streams_that_there_are(self):
        query = triggers()["requests-per-stream"]["metadata"]["query"]
        for streams, flying in ((16, 12), (8, 6)):
            series = self.requests(streams, a=f"{flying}x20",
                                   b=f"{flying}x20")
            self.answers(query, series, [("{}", 1.5)])
            self.answers(adapter_query("weir_requests_per_stream"), series,
                         [('{pod="a"}', 0.75), ('{pod="b"}', 0.75)])

    def test_requests_of_a_pod_that_is_not_scraped(self):
        query = triggers()["requests-per-stream"]["metadata"]["query"]
        self.answers(query, self.requests(16, a="4x20", b="8x5 stale"),
                     [("{}", 0.75)])
        self.answers(query, self.requests(16, a="4x20", b="160x5 stale"),
                     [("{}", 1.0)])

    def test_the_adapter_knows_nothing_of_a_pod_without_samples(self):
        """Kubernetes then takes it to be at the aim, and removes none."""
        self.answers(adapter_query("weir_queue_depth"),
                     self.queue(a="4x20", b="6x5 stale"), [('{pod="a"}', 4)])


class Fields(unittest.TestCase):

    def test_prometheus_scrapes_as_often_as_is_taken_for_granted(self):
        [endpoint] = find(MONITORING, "ServiceMonitor")["spec"]["endpoints"]
        self.assertEqual(endpoint["interval"], f"{SCRAPE}s")
        # Or its operator refuses it.
        self.assertLess(int(endpoint["scrapeTimeout"].removesuffix("s")),
                        SCRAPE)
        self.assertEqual(endpoint["path"], "/metrics")

    def test_both_ask_the_operator_s_prometheus(self):
        """In the namespace from which the servers' policy lets scrapes in."""
        policy = find(composed("cpu", "keda"), "NetworkPolicy")["spec"]
        [source] = [source for rule in policy["ingress"]
                    for source in rule["from"]
                    if {"port": "http"} in rule["ports"]]
        namespace = source["namespaceSelector"]["matchLabels"][
            "kubernetes.io/metadata.name"]
        host = f"http://prometheus-operated.{namespace}.svc"
        self.assertEqual({trigger["metadata"]["serverAddress"]
                          for trigger in triggers().values()}, {f"{host}:9090"})
        values = yaml.safe_load((KUBERNETES / "prometheus-adapter" /
                                 "values.yaml").read_text("utf-8"))
        self.assertEqual(values["prometheus"], {"url": host, "port": 9090})

    def test_hpa_reads_what_the_adapter_offers(self):
        for name, rule in adapter_rules().items():
            self.assertIn("{", rule["seriesQuery"], name)
        self.assertEqual(set(aims()), set(adapter_rules()))

    def test_keda_does_the_same(self):
        spec, scaled = hpa(), keda()
        self.assertEqual(scaled["minReplicaCount"], spec["minReplicas"])
        self.assertEqual(scaled["maxReplicaCount"], spec["maxReplicas"])
        self.assertEqual(
            scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"],
            spec["behavior"])
        self.assertEqual(
            {"weir_" + name.replace("-", "_"): float(
                trigger["metadata"]["threshold"])
             for name, trigger in triggers().items()}, aims())

    def test_a_pod_that_is_not_scraped_counts_for_its_aim_at_most(self):
        for trigger in triggers().values():
            query = trigger["metadata"]["query"]
            [bound] = re.findall(r"clamp_max\(.*,\s*([\d.]+)\)", query,
                                 re.DOTALL)
            self.assertEqual(bound, trigger["metadata"]["threshold"])

    def test_missing_data_never_removes_pods(self):
        for trigger in triggers().values():
            self.assertEqual(trigger["metadata"]["ignoreNullValues"], "false")
            self.assertEqual(trigger["metricType"], "AverageValue")
            self.assertNotIn("vector(", trigger["metadata"]["query"])
        fallback = keda()["fallback"]
        self.assertEqual(fallback["behavior"], "currentReplicasIfHigher")
        self.assertGreaterEqual(fallback["replicas"], keda()["minReplicaCount"])

    def test_without_metrics_keda_sees_to_what_the_guide_says(self):
        guide = (manifests.ROOT / "docs" / "kubernetes.md").read_text("utf-8")
        guide = " ".join(guide.split())
        fallback = keda()["fallback"]
        self.assertEqual(
            fallback["failureThreshold"] * keda()["pollingInterval"], 60)
        self.assertTrue(
            f"after a minute sees to {fallback['replicas']} pods or as many as "
            "there are, if those are more" in guide)

    def test_both_follow_the_pods_of_the_deployment(self):
        for target in (hpa()["scaleTargetRef"], keda()["scaleTargetRef"]):
            self.assertEqual(target, {"apiVersion": "apps/v1",
                                      "kind": "Deployment", "name": "weir"})


def middle(name):
    """What the adapter's query makes of a pod's samples of a minute."""
    [function] = set(re.findall(r"(quantile_over_time\(0\.5|\w+_over_time)"
                                r"[(,]? ?<<\.Series>>",
                                adapter_rules()[name]["metricsQuery"]))
    return {"quantile_over_time(0.5": statistics.median,
            "avg_over_time": statistics.fmean, "max_over_time": max}[function]


class Model:
    """Kubernetes' autoscaler by one metric, the queue's depth: its formula, its
    tolerance, and the windows and policies of ours. A step takes SCRAPE."""

    TOLERANCE = 0.1

    def __init__(self, start=30, spec=None):
        self.start = start  # seconds until a pod is ready
        self.spec = spec or hpa()
        self.aim = aims()["weir_queue_depth"]
        self.of_samples = middle("weir_queue_depth")
        self.now = 0
        # For each pod when it came, and its samples.
        self.pods = [(-WINDOW, [0] * (WINDOW // SCRAPE))
                     for _ in range(self.spec["minReplicas"])]
        self.counts = [(-1, len(self.pods))]
        self.wishes = [(0, len(self.pods))]

    def ready(self):
        return [samples for came, samples in self.pods
                if self.now >= came + self.start]

    def step(self, depths):
        """`depths`: of the pods that are ready, at this scrape."""
        for samples, depth in zip(self.ready(), depths):
            samples.append(depth)
        self.now += SCRAPE
        count = len(self.pods)
        # Pods that show nothing yet count as idle when others are wanted.
        whole = sum(self.of_samples(samples[-(WINDOW // SCRAPE):])
                    for _, samples in self.pods if samples)
        ratio = whole / count / self.aim
        wish = count if abs(ratio - 1) <= self.TOLERANCE else math.ceil(
            whole / self.aim)
        least, most = self.spec["minReplicas"], self.spec["maxReplicas"]
        self.wishes.append((self.now, min(max(wish, least), most)))
        self.set_count(self.allowed(count))

    def allowed(self, count):
        up, down = (self.spec["behavior"][name]
                    for name in ("scaleUp", "scaleDown"))
        rise = min(self.within(self.wishes, up["stabilizationWindowSeconds"]))
        fall = max(self.within(self.wishes, down["stabilizationWindowSeconds"]))
        if rise > count:
            return min(rise, max(self.limit(policy, 1)
                                 for policy in up["policies"]))
        if fall < count:
            return max(fall, min(self.limit(policy, -1)
                                 for policy in down["policies"]))
        return count

    def within(self, rows, seconds):
        return [value for at, value in rows
                if at >= self.now - seconds] or [rows[-1][1]]

    def limit(self, policy, sign):
        before = [value for at, value in self.counts
                  if at <= self.now - policy["periodSeconds"]]
        start = before[-1] if before else self.counts[0][1]
        by = (policy["value"] if policy["type"] == "Pods"
              else start * policy["value"] / 100)
        return int(start + sign * by)

    def set_count(self, count):
        if count == len(self.pods):
            return
        while len(self.pods) < count:
            self.pods.append((self.now, []))
        del self.pods[count:]
        self.counts.append((self.now, count))


class Loads(unittest.TestCase):
    """A pod serves 100 requests/s and lets 256 wait."""

    def run_load(self, need, steps, model=None):
        """The numbers of pods, every SCRAPE, under the load of `need` pods."""
        model, depths, counts = model or Model(), {}, []
        for _ in range(steps):
            ready = model.ready()
            for samples in ready:
                more = (need / len(ready) - 1) * 100 * SCRAPE
                depth = depths.get(id(samples), 0) + more
                depths[id(samples)] = min(max(depth, 0), 256)
            model.step([depths[id(samples)] for samples in ready])
            counts.append(len(model.pods))
        return counts

    def test_one_sample_changes_nothing(self):
        model = Model()
        for depths in ([0, 0], [256, 256], *[[0, 0]] * 8):
            model.step(depths)
            self.assertEqual(len(model.pods), 2)

    def test_nor_do_two(self):
        model = Model()
        for depths in ([0, 0], [256, 256], [0, 0], [256, 256], *[[0, 0]] * 8):
            model.step(depths)
            self.assertEqual(len(model.pods), 2)

    def test_it_brings_what_is_needed_and_not_all(self):
        for need, most in ((2.7, 4), (3.6, 4), (6.5, 8)):
            counts = self.run_load(need, 24)
            self.assertEqual(max(counts), most, counts)
            self.assertGreaterEqual(counts[-1], need, counts)

    def grown(self, need, start, spec):
        """The number of pods before the first one goes."""
        counts = self.run_load(need, 80, Model(start, spec))
        return next((before for before, after in zip(counts, counts[1:])
                     if after < before), counts[-1])

    def test_pods_that_start_slowly_need_steps_further_apart(self):
        for start in (60, 180, 300):
            spec = find(composed("gpu", "hpa", options=(
                f"--start-seconds={start}",)), "HorizontalPodAutoscaler")[
                    "spec"]
            for need, most in ((2.7, 4), (3.6, 4), (6.5, 8)):
                self.assertEqual(self.grown(need, start, spec), most,
                                 (start, need))

    def test_the_guide_says_for_which_pods_they_are_near_enough(self):
        text = " ".join((manifests.ROOT / "docs" / "kubernetes.md").read_text(
            "utf-8").split())
        [start] = re.findall(r"pods that are ready within (\d+) s", text)
        for need in (2.7, 3.6):
            self.assertEqual(self.grown(need, int(start), hpa()), 4)
            self.assertEqual(self.grown(need, int(start) + 30, hpa()), 8)

    def test_it_is_there_within_minutes(self):
        counts = self.run_load(6.5, 40)
        self.assertLessEqual(next(at for at, count in enumerate(counts)
                                  if count > 6.5) * SCRAPE, 240, counts)

    def test_it_shrinks_slowly(self):
        model = Model()
        model.set_count(8)
        model.wishes.append((0, 8))
        counts = []
        for _ in range(30):
            model.step([0] * len(model.ready()))
            counts.append(len(model.pods))
        self.assertEqual(counts[300 // SCRAPE - 1], 8, counts)
        for before, after in zip(counts, counts[1:]):
            self.assertLessEqual(before - after, 1, counts)
        self.assertLess(counts[-1], 8)


def tearDownModule():
    manifests.folder_of_compositions()[0].cleanup()


if __name__ == "__main__":
    unittest.main()
