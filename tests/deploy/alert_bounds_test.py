#!/usr/bin/env python3
"""What deploy/monitoring/rules.yaml tells apart, a little within each of its
bounds and a little beyond, by promtool. (rules_test.yaml has how each alert
begins and ends, and what it says.)"""

import itertools
import re
import unittest

import manifests
import promtool
from manifests import MONITORING

FAULTS = ("UNKNOWN", "INTERNAL", "UNAVAILABLE", "DATA_LOSS")
SERVER = 'namespace="weir", workload="weir", pod="a"'
CONTAINER = 'namespace="weir", pod="a", container="weir"'
INFO = 'image_spec="registry.example.com/weir:0.1.0-cuda"'
# By which labels one firing alert is told from another.
LABELS = "namespace, workload, pod, method, model"


class Bounds(unittest.TestCase):

    def expect(self, series, *cases, rules=None):
        """`series`: {series: promtool's values, every minute}; `cases`:
        (alert, minute, the labels of each that fires then); `rules`: their
        text, if they are not ours."""
        test = {
            "rule_files": [str(MONITORING / "rules.yaml")],
            "evaluation_interval": "1m",
            "group_eval_order": ["weir.recordings", "weir.availability",
                                 "weir.objectives", "weir.load"],
            "tests": [{
                "interval": "1m",
                "input_series": [{"series": name, "values": values}
                                 for name, values in series.items()],
                "promql_expr_test": [{
                    "expr": f'count by ({LABELS}) (ALERTS{{alertname="{alert}",'
                            ' alertstate="firing"})',
                    "eval_time": f"{minute}m",
                    "exp_samples": [{"labels": f"{{{labels}}}", "value": 1}
                                    for labels in fires]}
                    for alert, minute, *fires in cases]}]}
        if rules is not None:
            del test["rule_files"]
        promtool.check(test, rules)

    def calls(self, method, values):
        """{series} of calls by code."""
        return {f'weir_requests_total{{{SERVER}, method="{method}", '
                f'code="{code}"}}': row for code, row in values.items()}

    def refusals(self, method, reason, values):
        return {f'weir_requests_refused_total{{{SERVER}, method="{method}", '
                f'reason="{reason}"}}': values}

    def times(self, method, fast, whole):
        return {f'weir_request_seconds_bucket{{{SERVER}, method="{method}", '
                'le="0.1"}': fast,
                f'weir_request_seconds_count{{{SERVER}, method="{method}"}}':
                    whole, **self.given_up(method, "0x400", "0x400")}

    def given_up(self, method, soon, whole):
        """{series} of calls that nobody waited for, all and those of 100 ms."""
        name = "weir_request_given_up_seconds"
        return {f'{name}_bucket{{{SERVER}, method="{method}", le="0.1"}}': soon,
                f'{name}_count{{{SERVER}, method="{method}"}}': whole}

    def model(self, errors, requests):
        labels = f'{{{SERVER}, model="m", version="1"}}'
        return {f"weir_model_errors_total{labels}": errors,
                f"weir_model_requests_total{labels}": requests}

    def of(self, method):
        return f'namespace="weir", workload="weir", method="{method}"'

    OF_MODEL = 'namespace="weir", workload="weir", model="m"'
    WORKLOAD = 'namespace="weir", workload="weir"'


class Availability(Bounds):

    def test_an_outage_is_told_of_as_long_as_it_lasts(self):
        self.expect({f"weir_ready{{{SERVER}}}": "1x10 stale"},
                    ("WeirDown", 15, self.WORKLOAD),
                    ("WeirDown", 180, self.WORKLOAD))

    def test_servers_without_the_label_workload_beside_others_deployments(self):
        self.expect({'weir_ready{namespace="weir", pod="a"}': "1x10 stale",
                     'kube_deployment_spec_replicas{namespace="weir", '
                     'deployment="weir"}': "2x30"},
                    ("WeirDown", 20, 'namespace="weir"'))

    def test_one_of_three_of_a_name_was_removed(self):
        """Another, in its own namespace, is down; and so is a third, of whose
        namespace kube-state-metrics tells nothing."""
        series = {
            f'weir_ready{{namespace="{name}", workload="weir", pod="a"}}':
                "1x10 stale" for name in ("weir", "other", "third")}
        for name, values in (("weir", "2x10 stale"), ("other", "2x60")):
            series[f'kube_deployment_spec_replicas{{namespace="{name}", '
                   'deployment="weir"}'] = values
        self.expect(series, ("WeirDown", 30, *(
            f'namespace="{name}", workload="weir"'
            for name in ("other", "third"))))

    def test_only_servers_of_ours_are_missed_and_only_such_as_run(self):
        self.expect({'up{namespace="weir", pod="b", job="node-exporter"}':
                         "0x40",
                     f"kube_pod_container_status_running{{{CONTAINER}}}":
                         "0x40",
                     f"kube_pod_container_info{{{CONTAINER}, {INFO}}}": "1x40"},
                    ("WeirNotScraped", 30))

    def test_images_that_are_called_nearly_the_same(self):
        for image in ("example.com/weirdo:1", "example.com/weir/sklearn:1",
                      "example.com/my-weir:1"):
            container = ('namespace="them", pod="t", '
                         'container="kserve-container"')
            self.expect({
                f"kube_pod_container_status_running{{{container}}}": "1x60",
                f'kube_pod_container_info{{{container}, image_spec="{image}"}}':
                    "1x60",
                f"kube_pod_container_status_restarts_total{{{container}}}":
                    "0x5 5x55",
                "kube_pod_container_status_last_terminated_exitcode"
                f"{{{container}}}": "_x5 3x55"},
                        *((alert, 15) for alert in (
                            "WeirNotScraped", "WeirDeviceLost",
                            "WeirRestarting")))

    def test_a_container_beside_the_server_that_ended_with_three(self):
        other = 'namespace="weir", pod="a", container="sidecar"'
        self.expect({
            f"kube_pod_container_status_restarts_total{{{CONTAINER}}}":
                "0x5 1x30",
            f"kube_pod_container_info{{{CONTAINER}, {INFO}}}": "1x40",
            "kube_pod_container_status_last_terminated_exitcode"
            f"{{{CONTAINER}}}": "_x5 1x30",
            "kube_pod_container_status_last_terminated_exitcode"
            f"{{{other}}}": "3x40"},
                    ("WeirDeviceLost", 7), ("WeirDeviceLost", 10))

    def test_a_container_beside_the_server_that_restarts_with_three(self):
        other = 'namespace="weir", pod="a", container="sidecar"'
        self.expect({
            f"kube_pod_container_info{{{CONTAINER}, {INFO}}}": "1x40",
            f"kube_pod_container_status_restarts_total{{{CONTAINER}}}": "0x40",
            f"kube_pod_container_status_restarts_total{{{other}}}":
                "0x5 1x30",
            "kube_pod_container_status_last_terminated_exitcode"
            f"{{{other}}}": "_x6 3x30"},
                    ("WeirDeviceLost", 7), ("WeirDeviceLost", 10))

    def losses(self, **told):
        """{series} of what each kube-state-metrics tells: restarts, and how
        the last one ended."""
        series = {f"kube_pod_container_info{{{CONTAINER}, {INFO}}}": "1x60"}
        for instance, (restarts, codes) in told.items():
            labels = f'{{{CONTAINER}, instance="{instance}"}}'
            series |= {
                f"kube_pod_container_status_restarts_total{labels}": restarts,
                "kube_pod_container_status_last_terminated_exitcode" + labels:
                    codes}
        return series

    def test_a_loss_of_which_another_kube_state_metrics_tells_first(self):
        """As where it was on the node of the lost device."""
        self.expect(self.losses(k1=("0x5 stale", "_x60"),
                                k2=("_x7 1x50", "_x7 3x50")),
                    ("WeirDeviceLost", 6),
                    ("WeirDeviceLost", 7, 'namespace="weir", pod="a"'),
                    ("WeirDeviceLost", 21, 'namespace="weir", pod="a"'),
                    ("WeirDeviceLost", 24))

    def test_a_loss_of_days_ago_of_which_another_one_tells(self):
        self.expect(self.losses(k1=("1x5 stale", "3x5 stale"),
                                k2=("_x7 1x50", "_x7 3x50")),
                    ("WeirDeviceLost", 7), ("WeirDeviceLost", 15))

    def test_a_lost_device_shows_for_a_quarter_of_an_hour(self):
        self.expect({
            f"kube_pod_container_status_restarts_total{{{CONTAINER}}}":
                "0x5 1x40",
            f"kube_pod_container_info{{{CONTAINER}, {INFO}}}": "1x50",
            "kube_pod_container_status_last_terminated_exitcode"
            f"{{{CONTAINER}}}": "_x5 3x40"},
                    ("WeirDeviceLost", 18, 'namespace="weir", pod="a"'),
                    ("WeirDeviceLost", 25))

    def test_a_loss_while_kube_state_metrics_is_away(self):
        self.expect({
            f"kube_pod_container_status_restarts_total{{{CONTAINER}}}":
                "1x5 stale _x4 2x40",
            f"kube_pod_container_info{{{CONTAINER}, {INFO}}}": "1x50",
            "kube_pod_container_status_last_terminated_exitcode"
            f"{{{CONTAINER}}}": "137x5 stale _x4 3x40"},
                    ("WeirDeviceLost", 10),
                    ("WeirDeviceLost", 12, 'namespace="weir", pod="a"'),
                    ("WeirDeviceLost", 30))

    def test_only_another_image_that_runs_in_its_stead_ends_an_outage(self):
        """Neither one that cannot run, nor one of another workload."""
        series = {
            f'weir_ready{{namespace="models", workload="{name}", pod="a"}}':
                "1x10 stale" for name in ("left", "stuck", "beside", "new")}
        series |= {
            f'kube_deployment_spec_replicas{{namespace="models", '
            f'deployment="{name}"}}': "1x40"
            for name in ("left", "stuck", "beside", "beside-triton", "new")}
        # One of ours, whatever its image is called.
        series |= {
            'weir_ready{namespace="models", workload="odd", '
            'pod="odd-5f6c9-abcde"}': "1x10 0x30",
            'kube_deployment_spec_replicas{namespace="models", '
            'deployment="odd"}': "1x40",
            # And another, which runs and answers nobody.
            'weir_ready{namespace="models", workload="hung", '
            'pod="hung-5f6c9-abcde"}': "1x10 stale",
            'kube_deployment_spec_replicas{namespace="models", '
            'deployment="hung"}': "1x40"}
        # Of no Deployment, and called nearly like one.
        container = ('namespace="models", pod="stuck-theirs-0", '
                     'container="kserve-container"')
        series |= {
            'kube_pod_info{namespace="models", pod="stuck-theirs-0", '
            'created_by_kind="StatefulSet", created_by_name="stuck-theirs"}':
                "1x40",
            f'kube_pod_container_info{{{container}, '
            'image_spec="example.com/triton:1"}': "1x40",
            f"kube_pod_container_status_running{{{container}}}": "1x40"}
        for name, running in (("left", 1), ("stuck", 0), ("beside-triton", 1),
                              ("odd", 1), ("hung", 1), ("new", 1)):
            image = "weir" if name == "new" else "triton"
            container = (f'namespace="models", pod="{name}-5f6c9-abcde", '
                         'container="kserve-container"')
            series |= {
                'kube_pod_info{namespace="models", '
                f'pod="{name}-5f6c9-abcde", created_by_kind="ReplicaSet", '
                f'created_by_name="{name}-5f6c9"}}': "_x10 1x30",
                f'kube_pod_container_info{{{container}, '
                f'image_spec="example.com/{image}:1"}}': "_x10 1x30",
                f"kube_pod_container_status_running{{{container}}}":
                    f"_x10 {running}x30"}
        self.expect(series, ("WeirDown", 30, *(
            f'namespace="models", workload="{name}"'
            for name in ("stuck", "beside", "new", "odd", "hung"))))

    def test_a_sidecar_that_waits_excuses_no_server(self):
        other = 'namespace="weir", pod="a", container="sidecar"'
        self.expect({'up{namespace="weir", pod="a", job="weir"}': "1x4 0x40",
                     f"kube_pod_container_info{{{CONTAINER}, {INFO}}}": "1x40",
                     f"kube_pod_container_status_waiting{{{CONTAINER}}}":
                         "0x40",
                     f"kube_pod_container_status_waiting{{{other}}}": "1x40"},
                    ("WeirNotScraped", 20, 'namespace="weir", pod="a"'))

    def test_versions_and_builds(self):
        for labels in (('version="1", build="a"', 'version="1", build="b"'),
                       ('version="1", build="a"', 'version="2", build="a"')):
            self.expect(
                {f'weir_build_info{{namespace="weir", workload="weir", '
                 f'pod="{i}", {row}, device="cpu"}}': "1x90"
                 for i, row in enumerate(labels)},
                ("WeirVersionsDiffer", 80, self.WORKLOAD))


class Objectives(Bounds):

    def test_each_code_of_the_servers_fault_counts_and_each_model(self):
        """A tenth of the calls, from the start."""
        methods = ("Evaluate", "ModelInfer", "Explain", "ListModels")
        series = self.model("0+10x90", "0+100x90")
        for method, code in zip(methods, FAULTS):
            series |= self.calls(method, {"OK": "0+90x90", code: "0+10x90"})
        fires = [*map(self.of, methods), self.OF_MODEL]
        self.expect(series, ("WeirErrorBudgetBurnsFast", 70, *fires),
                    ("WeirErrorBudgetBurnsSlowly", 70, *fires))

    def test_the_codes_are_those_that_the_metric_of_models_names(self):
        [text] = re.findall(
            r"^\| `weir_model_errors_total` .*server's fault: (.*)\. \|$",
            (manifests.ROOT / "docs" / "metrics.md").read_text("utf-8"),
            re.MULTILINE)
        self.assertEqual(tuple(re.findall(r"[A-Z_]+", text)), FAULTS)

    def test_an_hour_after_many_good_ones(self):
        """One in a hundred is too many in a day, and not in an hour."""
        self.expect(
            {**self.calls("Evaluate", {"OK": "0+100x300 30000+99x100",
                                       "INTERNAL": "0x300 0+1x100"}),
             **self.model("0x300 0+1x100", "0+100x400"),
             **self.times("ModelInfer", "0+100x300 30000+90x100",
                          "0+100x400")},
            *((alert, minute) for minute in (345, 400) for alert in (
                "WeirErrorBudgetBurnsSlowly", "WeirErrorBudgetBurnsFast",
                "WeirLatencyBudgetBurnsSlowly", "WeirLatencyBudgetBurnsFast")))

    def test_few_calls_of_which_some_fail_for_hours(self):
        """Seven or eight of sixty in an hour, which is more than ten in two."""
        bad, good, whole = (" ".join(str(count(minute))
                                     for minute in range(161))
                            for count in (lambda minute: minute // 8,
                                          lambda minute: minute - minute // 8,
                                          lambda minute: minute))
        self.expect(
            {**self.calls("Evaluate", {"OK": good, "INTERNAL": bad}),
             **self.model(bad, whole), **self.times("ModelInfer", good, whole)},
            ("WeirErrorBudgetBurnsFast", 150),
            ("WeirLatencyBudgetBurnsFast", 150),
            ("WeirErrorBudgetBurnsSlowly", 150, self.of("Evaluate"),
             self.OF_MODEL),
            ("WeirLatencyBudgetBurnsSlowly", 150, self.of("ModelInfer")))

    def failing(self, minutes, length):
        """All calls of one of these minutes each fail, of a hundred."""
        bad = [100 if minute in minutes else 0 for minute in range(length)]
        return self.calls("Evaluate", {
            code: " ".join(map(str, itertools.accumulate(counts)))
            for code, counts in (("OK", [100 - count for count in bad]),
                                 ("INTERNAL", bad))})

    def test_one_minute_of_a_few_fails_for_hours(self):
        for period in (4, 5, 6, 20):
            self.expect(self.failing(range(60, 300, period), 400), *(
                ("WeirErrorBudgetBurnsFast", minute, *fires)
                for minute, *fires in (
                    (90,), (100, self.of("Evaluate")),
                    (200, self.of("Evaluate")), (299, self.of("Evaluate")),
                    (332,))))

    def test_two_minutes_of_an_hour_fail_and_the_first_of_a_server(self):
        self.expect(self.failing((1, 60, 105), 200), *(
            ("WeirErrorBudgetBurnsFast", minute)
            for minute in (5, 34, 64, 95, 107, 109, 120, 134, 138, 150)))

    def test_servers_that_nobody_calls_but_for_what_fails(self):
        """Of no calls the share that failed is no number, and not too
        large."""
        def errors(minutes):
            return " ".join(str(20 * sum(at <= minute for at in minutes))
                            for minute in range(200))

        self.expect(
            {**self.calls("Evaluate", {"OK": "0x200",
                                       "INTERNAL": errors([60])}),
             **self.calls("Explain", {"OK": "0x200",
                                      "INTERNAL": errors([60, 105])}),
             **self.calls("ListModels", {"OK": "0x200",
                                         "INTERNAL": errors([60, 95])}),
             **self.calls("ModelInfer", {
                 "OK": "0x200", "INTERNAL": errors(range(60, 150, 20))})},
            *(("WeirErrorBudgetBurnsFast", minute)
              for minute in (61, 64, 90)),
            *(("WeirErrorBudgetBurnsFast", minute, self.of("ModelInfer"))
              for minute in (100, 110, 118, 120, 125, 150, 168)),
            ("WeirErrorBudgetBurnsFast", 175))

    def test_half_an_hour_after_the_end_all_is_silent(self):
        self.expect(
            {**self.calls("Evaluate", {"OK": "0+90x180 16200+100x60",
                                       "INTERNAL": "0+10x180 1800x60"}),
             **self.model("0+10x180 1800x60", "0+100x240"),
             **self.times("ModelInfer", "0+80x180 14400+100x60", "0+100x240")},
            ("WeirErrorBudgetBurnsSlowly", 180, self.of("Evaluate"),
             self.OF_MODEL),
            ("WeirLatencyBudgetBurnsSlowly", 180, self.of("ModelInfer")),
            ("WeirErrorBudgetBurnsSlowly", 212),
            ("WeirLatencyBudgetBurnsSlowly", 212))

    def test_calls_that_are_given_up_late_are_slow_ones(self):
        """15 %, of which some succeeded; and 13 %, beside hedges."""
        self.expect(
            {**self.times("ModelInfer", "0+85x90", "0+90x90"),
             **self.given_up("ModelInfer", "0+50x90", "0+60x90"),
             **self.times("Evaluate", "0+87x90", "0+90x90"),
             **self.given_up("Evaluate", "0+50x90", "0+60x90")},
            ("WeirLatencyBudgetBurnsFast", 80, self.of("ModelInfer")))

    def test_where_nobody_is_answered_any_more_all_are_slow(self):
        self.expect({**self.times("ModelInfer", "0x90", "0x90"),
                     **self.given_up("ModelInfer", "0x90", "0+1x90")},
                    ("WeirLatencyBudgetBurnsFast", 80, self.of("ModelInfer")))

    def slow_models(self, *models, bound="0.1"):
        """{series} of models whose every request takes 300 ms."""
        series = {}
        for model in models:
            labels = f'{SERVER}, model="{model}", version="1"'
            for metric in ("weir_model_request_seconds",
                           "weir_model_given_up_seconds"):
                count = "0+10x90" if "request" in metric else "0x90"
                soon = count if float(bound) > 0.3 else "0x90"
                series |= {f"{metric}_count{{{labels}}}": count,
                           f'{metric}_bucket{{{labels}, le="{bound}"}}': soon}
        return series

    def test_a_model_that_is_slow_by_its_nature_is_named_in_one_place(self):
        """As docs/kubernetes.md says; and methods count as ever."""
        named = 'weir:slow_requests:ratio_rate6h{model!~"NAME|OTHER"}'
        self.assertIn(f"`{named}`", self.page())
        rules, count = re.subn(r"weir:slow_requests:ratio_rate6h (?=>)",
                               named + " ", self.rules())
        self.assertEqual(count, 1)
        of = 'namespace="weir", workload="weir", model="{}"'.format
        self.expect({**self.slow_models("NAME", "OTHER", "SLOW"),
                     **self.times("ModelInfer", "0+80x90", "0+100x90")},
                    ("WeirLatencyBudgetBurnsSlowly", 80, of("SLOW"),
                     self.of("ModelInfer")), rules=rules)

    def test_another_bound_for_all(self):
        """Of a second, for what takes 300 ms."""
        self.assertIn('`le="0.1"`', self.page())
        series = {**self.slow_models("m", bound="1")}
        for name, values in self.times("ModelInfer", "0+100x90",
                                       "0+100x90").items():
            series[name.replace('le="0.1"', 'le="1"')] = values
        series |= {  # Of all of which none is below the bound of before.
            name.replace('le="1"', 'le="0.1"'): "0x90" for name in series
            if "le=" in name}
        alerts = ("WeirLatencyBudgetBurnsFast", "WeirLatencyBudgetBurnsSlowly")
        self.expect(series, (alerts[0], 80, self.of("ModelInfer")),
                    (alerts[1], 80, self.of("ModelInfer"), self.OF_MODEL))
        self.expect(series, *((alert, 80) for alert in alerts),
                    rules=self.rules().replace('le="0.1"', 'le="1"'))

    def rules(self):
        return (MONITORING / "rules.yaml").read_text("utf-8")

    def page(self):
        return (manifests.ROOT / "docs" / "kubernetes.md").read_text("utf-8")

    def test_whose_time_counts(self):
        """That of evaluations, not of a long list."""
        series = {}
        for method in ("ModelInfer", "Evaluate", "ListModels", "Explain"):
            series |= self.times(method, "0+50x90", "0+100x90")
        fires = (self.of("ModelInfer"), self.of("Evaluate"))
        self.expect(series, ("WeirLatencyBudgetBurnsFast", 80, *fires),
                    ("WeirLatencyBudgetBurnsSlowly", 80, *fires))


class Load(Bounds):

    def test_shares_that_are_refused(self):
        series = {}
        for method, share in (("Evaluate", 25), ("ModelInfer", 15),
                              ("Explain", 2)):
            series |= self.refusals(method, "QUEUE_FULL", f"0+{share}x40")
            series |= self.calls(method, {
                "OK": f"0+{100 - share}x40",
                "RESOURCE_EXHAUSTED": f"0+{share}x40"})
        self.expect(series, ("WeirOverloaded", 30, self.of("Evaluate")),
                    ("WeirRequestsRefused", 30, *map(self.of, (
                        "Evaluate", "ModelInfer", "Explain"))))

    def test_shares_that_nobody_waited_for(self):
        series = {}
        for method, share in (("Evaluate", 66), ("ModelInfer", 55)):
            series |= self.calls(method, {"OK": f"0+{100 - share}x40",
                                          "CANCELLED": f"0+{share}x40"})
        for model, share in (("most", 66), ("half", 55)):
            series |= {
                f'weir_model_requests_total{{{SERVER}, model="{model}"}}':
                    "0+100x40",
                f'weir_model_given_up_seconds_count{{{SERVER}, '
                f'model="{model}"}}': f"0+{share}x40"}
        fires = (self.of("Evaluate") + ', pod="a"',
                 self.WORKLOAD + ', pod="a", model="most"')
        self.expect({**series, f"up{{{SERVER}}}": "1x40"},
                    ("WeirCallsTimeOut", 30, *fires))

    def test_more_handshakes_that_fail_than_calls(self):
        """Of which there were a hundred a minute before. TCP probes, which fail
        none, are three of four handshakes of one."""
        series = {}
        for name, calls, handshakes in (("more", 3, 4), ("fewer", 5, 4),
                                        ("probed", 3, 16)):
            series |= self.handshakes(
                name, handshakes, f"0+100x10 1000+{calls}x30")
        of = 'namespace="weir", workload="{}"'.format
        self.expect(series,
                    ("WeirNobodyConnects", 30, of("more"), of("probed")),
                    ("WeirHandshakesFail", 30, of("more"), of("fewer")))

    def test_how_many_calls_are_missed(self):
        """Of twelve in the hour before, all; of three a minute, two, or one."""
        series = {}
        for name, calls in (("twelve", "0x48 0+1x12 12x60"),
                            ("two", "0+3x60 180+1x60"),
                            ("one", "0+3x60 180+2x60"),
                            ("eight", "0x50 0+1x8 8x60")):
            series |= self.handshakes(name, 4, calls, since=60)
        of = 'namespace="weir", workload="{}"'.format
        self.expect(series,
                    ("WeirNobodyConnects", 80, of("twelve"), of("two")),
                    ("WeirHandshakesFail", 80, *map(of, (
                        "twelve", "two", "one", "eight"))))

    def handshakes(self, workload, handshakes, calls, since=0):
        """{series} of so many a minute, of which four fail, and of calls."""
        labels = f'namespace="weir", workload="{workload}", pod="{workload}"'
        before = f"0x{since} " if since else ""
        return {
            f"weir_tls_handshake_failures_total{{{labels}}}":
                before + "0+4x100",
            f"weir_tls_handshakes_total{{{labels}}}":
                before + f"0+{handshakes}x100",
            f'weir_requests_total{{{labels}, method="Evaluate", code="OK"}}':
                calls}

    def test_how_long_the_oldest_has_waited(self):
        queue = "weir_queue_age_seconds"
        self.expect({f'{queue}{{namespace="weir", pod="a"}}': "8x20",
                     f'{queue}{{namespace="weir", pod="b"}}': "12x20"},
                    ("WeirQueueOld", 10, 'namespace="weir", pod="b"'))


if __name__ == "__main__":
    unittest.main()
