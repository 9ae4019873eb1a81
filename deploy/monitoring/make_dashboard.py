#!/usr/bin/env python3
"""Prints dashboard.json, Grafana's dashboard, made of the panels below:
  deploy/monitoring/make_dashboard.py >deploy/monitoring/dashboard.json

In a query, $SERVERS stands for the matchers of the chosen servers, and $RATE
for what a rate is taken over."""

import json

SERVERS = 'namespace=~"$namespace", pod=~"$pod"'
RATE = "$__rate_interval"
# kube-state-metrics knows Deployments, whose servers may all be gone.
DEPLOYED = ('"workload", "$1", "deployment", "(.*)") and on (namespace, '
            "workload) (max_over_time(weir_ready{$SERVERS}[1d]) or "
            'label_replace(kube_deployment_spec_replicas{namespace=~"$namespace"'
            ', deployment="weir-envoy"}, "workload", "$1", "deployment", '
            '"(.*)"))')
# process_ metrics are whatever process's: ours are of a target that has ours.
OURS = "and on (job, instance) weir_ready{$SERVERS}"
RESTARTS = "kube_pod_container_status_restarts_total{$SERVERS}"
FAILED = ', code=~"UNKNOWN|INTERNAL|UNAVAILABLE|DATA_LOSS"'
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24


def quantiles(metric, by, legend):
    """The median and the 99th percentile of a histogram; of nothing, nothing,
    where PromQL says NaN."""
    return [(f"histogram_quantile({quantile}, sum by (le, {by}) "
             f"(rate({metric}_bucket{{$SERVERS}}[$RATE]))) >= 0",
             f"{legend} {name}")
            for quantile, name in ((0.5, "p50"), (0.99, "p99"))]


def p99(metric, legend, matchers=""):
    return ("histogram_quantile(0.99, sum by (le) (rate("
            f"{metric}_bucket{{$SERVERS{matchers}}}[$RATE]))) >= 0", legend)


def share(part, whole, legend, by="", matchers=""):
    """What `part` has grown by of what `whole` has; of nothing, nothing."""
    total = f"sum{by}(rate({whole}{{$SERVERS}}[$RATE]))"
    return (f"sum{by}(rate({part}{{$SERVERS{matchers}}}[$RATE])) / "
            f"({total} > 0)", legend)


def mean(metric, legend, by=""):
    return share(f"{metric}_sum", f"{metric}_count", legend, by)


def rate(metric, by, legend, matchers=""):
    return (f"sum by ({by}) (rate({metric}{{$SERVERS{matchers}}}[$RATE]))",
            legend)


def stat(title, unit, description, query, *steps):
    """A number; `steps` are (from where on, color), the first from anywhere."""
    return {
        "type": "stat", "title": title, "description": description,
        "fieldConfig": {
            "defaults": {"unit": unit} | ({"thresholds": {
                "mode": "absolute",
                "steps": [{"color": color, "value": value}
                          for value, color in steps]}} if steps else {}),
            "overrides": []},
        "options": {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "",
                              "values": False},
            "colorMode": "value", "graphMode": "area"},
        "targets": [query],
    }


def lines(title, unit, description, *queries, stacked=False, most=None):
    """Lines over time, or areas on top of one another; up to `most`."""
    custom = {"fillOpacity": 40 if stacked else 10, "lineWidth": 1,
              "showPoints": "never"}
    if stacked:
        custom["stacking"] = {"mode": "normal", "group": "A"}
    defaults = {"unit": unit, "custom": custom}
    if most is not None:
        defaults |= {"min": 0, "max": most}
    return {
        "type": "timeseries", "title": title, "description": description,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"},
                    "tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": queries,
    }


def areas(*arguments):
    return lines(*arguments, stacked=True)


def heatmap(title, unit, description, query):
    return {
        "type": "heatmap", "title": title, "description": description,
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "options": {"calculate": False, "yAxis": {"unit": unit},
                    "color": {"mode": "scheme", "scheme": "Oranges"},
                    "cellGap": 1},
        "targets": [query],
    }


# (title of a row, panels side by side, their height, panels)
ROWS = (
    ("Overview", 8, 5, (
        stat("Servers ready", "none",
             "Servers that say they should get traffic.",
             ("sum(weir_ready{$SERVERS})", "ready"),
             (None, "red"), (1, "green")),
        stat("Calls per second", "reqps",
             "Answered calls, all methods and status codes.",
             ("sum(rate(weir_requests_total{$SERVERS}[$RATE]))", "calls")),
        stat("Failed in the server", "percentunit",
             "Share of UNKNOWN, INTERNAL, UNAVAILABLE and DATA_LOSS.",
             share("weir_requests_total", "weir_requests_total", "failed",
                   matchers=FAILED),
             (None, "green"), (0.001, "yellow"), (0.01, "red")),
        stat("Refused", "percentunit",
             "Share of the calls that were refused for want of room or time.",
             share("weir_requests_refused_total", "weir_requests_total",
                   "refused"),
             (None, "green"), (0.01, "yellow"), (0.2, "red")),
        stat("p99 of ModelInfer and Evaluate", "s",
             "Of calls that succeeded, from receiving one to its answer.",
             p99("weir_request_seconds", "p99",
                 ', method=~"ModelInfer|Evaluate"'),
             (None, "green"), (0.05, "yellow"), (0.1, "red")),
        stat("Fullest queue", "percentunit",
             "Of all servers. At 100 % the next request is refused.",
             ("max(weir_queue_depth{$SERVERS} / weir_queue_limit{$SERVERS})",
              "queue"),
             (None, "green"), (0.5, "yellow"), (0.9, "red")),
        stat("Models not served", "none",
             "Model versions that could not be loaded, summed over servers.",
             ('sum(weir_models{$SERVERS, state="unavailable"})', "unavailable"),
             (None, "green"), (1, "red")),
        stat("Devices lost, last day", "none",
             "Processes that ended with exit code 3, as kube-state-metrics "
             "counts them.",
             (f"sum(sum_over_time(((max by (namespace, pod, container) ({RESTARTS}"
              " and kube_pod_container_status_last_terminated_exitcode == 3) - "
              "max by (namespace, pod, container) (last_over_time("
              f"{RESTARTS}[15m] offset 30s)) > 0) and on (namespace, pod, "
              "container) weir:container:info)[1d:30s])) or vector(0)", "lost"),
             (None, "green"), (1, "red")),
    )),
    ("Calls", 3, 8, (
        areas("Calls by method", "reqps", "Whatever became of them.",
              rate("weir_requests_total", "method", "{{method}}")),
        areas("Calls by server", "reqps",
              "One that gets much more than the others: callers keep their "
              "connections to it.",
              rate("weir_requests_total", "pod", "{{pod}}")),
        areas("Calls by status code", "reqps", "All codes but OK.",
              rate("weir_requests_total", "code", "{{code}}",
                   ', code!="OK"')),
        lines("Failed in the server, by method", "percentunit",
              "Share of UNKNOWN, INTERNAL, UNAVAILABLE and DATA_LOSS.",
              share("weir_requests_total", "weir_requests_total", "{{method}}",
                    " by (method) ", FAILED)),
        areas("Refused by reason", "reqps",
              "For want of room or time; docs/limits.md tells which flag sets "
              "which limit.",
              rate("weir_requests_refused_total", "reason", "{{reason}}")),
        lines("Refused, by method", "percentunit",
              "Share of the calls that were refused for want of room or time.",
              share("weir_requests_refused_total", "weir_requests_total",
                    "{{method}}", " by (method) ")),
    )),
    ("Latency", 3, 8, (
        lines("Latency", "s",
              "Of calls that succeeded, from receiving one to its answer.",
              *quantiles("weir_request_seconds", "method", "{{method}}")),
        areas("Given up, by method", "reqps",
              "Nobody waited for their answer any more: their deadlines had "
              "passed, or their callers had left.",
              rate("weir_request_given_up_seconds_count", "method",
                   "{{method}}")),
        heatmap("Latency distribution", "s", "ModelInfer and Evaluate.",
                ("sum by (le) (increase(weir_request_seconds_bucket{$SERVERS, "
                 'method=~"ModelInfer|Evaluate"}[$RATE]))', "{{le}}")),
        lines("Where the time goes (p99)", "s",
              "Queue: until program, plan and inputs are there. Lane: until a "
              "stream is free. Compute: on the device.",
              p99("weir_queue_wait_seconds", "queue"),
              p99("weir_lane_wait_seconds", "lane"),
              p99("weir_compute_seconds", "compute")),
        areas("Where the time goes (mean)", "s",
              "Means add up, where quantiles do not.",
              mean("weir_queue_wait_seconds", "queue"),
              mean("weir_lane_wait_seconds", "lane"),
              mean("weir_compute_seconds", "compute")),
    )),
    ("Queue and lanes", 4, 8, (
        lines("Queue", "none",
              "Requests admitted and not yet launched, by server; the "
              "autoscaler reads this.",
              ("weir_queue_depth{$SERVERS}", "{{pod}}"),
              ("max(weir_queue_limit{$SERVERS})", "limit")),
        lines("Oldest request of the queue", "s", "How long it has waited.",
              ("weir_queue_age_seconds{$SERVERS}", "{{pod}}")),
        lines("In flight", "none", "Requests admitted and not yet answered.",
              ("weir_requests_in_flight{$SERVERS}", "{{pod}}")),
        lines("Bytes in flight", "bytes",
              "Of those requests, what was made of them, and replies that are "
              "not sent yet.",
              ("weir_request_bytes_in_flight{$SERVERS}", "{{pod}}")),
        lines("Lanes by state", "none",
              "Streams of the devices, all servers.",
              ("sum by (device, state) (weir_stream_pool_lanes{$SERVERS})",
               "{{device}} {{state}}"),
              ("sum by (device) (weir_stream_pool_max_lanes{$SERVERS})",
               "{{device}} max")),
        lines("Waiting", "none",
              "Works that wait for a lane, and for other works.",
              ("sum by (device) (weir_stream_pool_waiting{$SERVERS})",
               "{{device}} lane"),
              ("sum by (device) (weir_works_parked{$SERVERS})",
               "{{device}} other works")),
        lines("Leases per second", "ops", "How often a lane was handed out.",
              rate("weir_stream_pool_leases_total", "pod", "{{pod}}")),
        lines("Rows per execution", "none",
              "Mean batch size of served models.",
              mean("weir_batch_size", "{{pod}}", " by (pod) ")),
    )),
    ("Models", 3, 8, (
        areas("Models by state", "none", "Model versions, all servers.",
              ("sum by (state) (weir_models{$SERVERS})", "{{state}}")),
        areas("Requests by model", "reqps",
              "Whatever became of them. All beyond --metrics-models are "
              "\"/other\".",
              rate("weir_model_requests_total", "model, version",
                   "{{model}} {{version}}")),
        lines("Failed requests by model", "percentunit",
              "Share of the requests to a model that failed by the server's "
              "fault.",
              share("weir_model_errors_total", "weir_model_requests_total",
                    "{{model}} {{version}}", " by (model, version) ")),
        areas("Given up, by model", "reqps",
              "Nobody waited for their answer any more.",
              rate("weir_model_given_up_seconds_count", "model, version",
                   "{{model}} {{version}}")),
        lines("Latency by model", "s", "Of requests that succeeded.",
              *quantiles("weir_model_request_seconds", "model, version",
                         "{{model}} {{version}}")),
    )),
    ("Memory", 3, 8, (
        areas("Memory by pool", "bytes",
              "What the server's own pools hold, in use or kept for the next.",
              ("sum by (device, pool, state) (weir_memory_bytes{$SERVERS})",
               "{{device}} {{pool}} {{state}}")),
        lines("Share of the memory budget", "percentunit",
              "The fullest server. At 100 % requests are refused.",
              ("max by (device, pool) (sum by (pod, device, pool) "
               '(weir_memory_bytes{$SERVERS, state="used"}) / '
               "sum by (pod, device, pool) "
               "(weir_memory_budget_bytes{$SERVERS}))",
               "{{device}} {{pool}}"), most=1),
        areas("Memory of the device", "bytes",
              "Of whole GPUs, whoever uses them; a CPU has none.",
              ("sum by (device, state) (weir_device_memory_bytes{$SERVERS})",
               "{{device}} {{state}}")),
    )),
    ("Programs and kernels", 3, 8, (
        lines("Compile time", "s",
              "Of callers' programs, those that were not in the cache.",
              *quantiles("weir_compile_seconds", "device", "{{device}}")),
        lines("Compilations", "none",
              "Those that run, and those that wait for their turn.",
              ("sum by (device) (weir_compiles_running{$SERVERS})",
               "{{device}} running"),
              ("sum by (device) (weir_compiles_waiting{$SERVERS})",
               "{{device}} waiting")),
        lines("Programs in the cache", "none", "All servers.",
              ("sum by (device) (weir_programs{$SERVERS})", "{{device}}")),
        lines("Programs looked up", "ops",
              "Misses are compiled; evictions made room.",
              rate("weir_program_hits_total", "device", "{{device}} hits"),
              rate("weir_program_misses_total", "device", "{{device}} misses"),
              rate("weir_program_evictions_total", "device",
                   "{{device}} evictions")),
        lines("Kernels looked up", "ops",
              "Of GPUs: found in memory, found on disk, or compiled.",
              rate("weir_kernel_cache_hits_total", "device, level",
                   "{{device}} {{level}}"),
              rate("weir_kernel_cache_misses_total", "device",
                   "{{device}} misses")),
        lines("Kernels that could not be kept", "ops",
              "Of GPUs: --cache-dir took no file, as when its disk is full. "
              "They are compiled again at the next start.",
              rate("weir_kernel_cache_write_failures_total", "pod", "{{pod}}")),
    )),
    ("Connections and messages", 3, 8, (
        lines("Connections", "none", "Open gRPC connections, by server.",
              ("weir_connections{$SERVERS}", "{{pod}}"),
              ("max(weir_connections_limit{$SERVERS})", "limit")),
        areas("Connections closed as they came", "cps",
              "--max-connections and --max-peer-connections.",
              rate("weir_connections_closed_total", "reason", "{{reason}}")),
        lines("TLS handshakes", "cps",
              "Those that began, as by a TCP probe too, and of them those that "
              "failed.",
              ("sum(rate(weir_tls_handshakes_total{$SERVERS}[$RATE]))",
               "begun"),
              ("sum(rate(weir_tls_handshake_failures_total{$SERVERS}[$RATE]))",
               "failed")),
        areas("Cut for what they sent", "cps",
              "Connections, and streams of them, that did what no stock client "
              "does (docs/threat_model.md).",
              rate("weir_connections_cut_total", "reason",
                   "connections {{reason}}"),
              ("sum(rate(weir_streams_cut_total{$SERVERS}[$RATE]))",
               "streams")),
        lines("Messages on their way", "none",
              "Calls whose message has not arrived whole, large messages that "
              "wait for a thread, and answers that nobody has taken yet.",
              ("sum(weir_calls_receiving{$SERVERS})", "arriving"),
              ("sum(weir_long_steps_waiting{$SERVERS})", "waiting"),
              ("sum(weir_replies_unsent{$SERVERS})", "unsent")),
        areas("Uploads cut", "cps",
              "Calls that were ended before their message was whole.",
              rate("weir_uploads_cut_total", "reason", "{{reason}}")),
        areas("Answers not delivered", "cps",
              "The caller had left, or did not take its answer in time.",
              rate("weir_replies_dropped_total", "reason", "{{reason}}")),
    )),
    ("Spaces", 4, 8, (
        lines("Spaces", "none",
              "Open, by server, and the sessions of all that have a stream, "
              "or may be resumed.",
              ("weir_spaces{$SERVERS}", "{{pod}}"),
              ("sum by (state) (weir_sessions{$SERVERS})",
               "sessions {{state}}")),
        areas("Spaces opened and closed", "ops",
              "Closed by their callers, or because nobody used them for as "
              "long as their lease.",
              ("sum(rate(weir_spaces_opened_total{$SERVERS}[$RATE]))",
               "opened"),
              rate("weir_spaces_closed_total", "why", "{{why}}")),
        lines("Kept in spaces", "none",
              "Tensors, contexts, timelines, works that are not done, and "
              "calls that wait.",
              ("sum by (what) (weir_space_held{$SERVERS, "
               'what=~"tensors|contexts|timelines|works|waits"})',
               "{{what}}")),
        lines("Bytes kept in spaces", "bytes",
              "Of tensors, on devices; of inputs and programs of works that "
              "are not done, in the host's memory.",
              ("sum by (what) (weir_space_held{$SERVERS, "
               'what=~"tensor_bytes|input_bytes|program_bytes"})',
               "{{what}}")),
    )),
    ("Processes", 4, 8, (
        lines("CPU", "none", "Cores in use, by server.",
              ("sum by (pod) (rate(process_cpu_seconds_total{$SERVERS}[$RATE])"
               f" {OURS})", "{{pod}}")),
        lines("Resident memory", "bytes",
              "What the container's memory limit bounds, by server.",
              ("sum by (pod) (process_resident_memory_bytes{$SERVERS} "
               f"{OURS})", "{{pod}}")),
        lines("File descriptors", "none", "By server; each connection is one.",
              (f"sum by (pod) (process_open_fds{{$SERVERS}} {OURS})",
               "{{pod}}"),
              (f"min(process_max_fds{{$SERVERS}} {OURS})", "limit")),
        lines("Threads", "none", "By server.",
              (f"sum by (pod) (process_threads{{$SERVERS}} {OURS})",
               "{{pod}}")),
    )),
    ("Servers", 3, 8, (
        lines("Ready", "none",
              "1, or 0 while a server loads models, drains, or cannot serve.",
              ("weir_ready{$SERVERS}", "{{pod}}"), most=1),
        lines("Replicas", "none",
              "Wanted and available, as kube-state-metrics tells of the "
              "Deployments that the servers are of, and of Envoy's before them.",
              *((f"sum by (workload) (label_replace({metric}"
                 f'{{namespace=~"$namespace"}}, {DEPLOYED})',
                 f"{{{{workload}}}} {name}")
                for metric, name in (
                    ("kube_deployment_spec_replicas", "wanted"),
                    ("kube_deployment_status_replicas_available",
                     "available")))),
        lines("Running for", "s", "By server.",
              (f"time() - min by (pod) (process_start_time_seconds{{$SERVERS}} "
               f"{OURS})", "{{pod}}")),
        areas("Servers by version and device", "none", "",
              ("count by (version, build, device) (weir_build_info{$SERVERS})",
               "{{version}} ({{build}}) on {{device}}")),
        lines("Healthy devices", "none",
              "0 for the second in which a server ends that lost its device.",
              ("sum by (pod, device) (weir_device_healthy{$SERVERS})",
               "{{pod}} {{device}}")),
        areas("Device stalls", "none",
              "Times that nothing completed although it should have.",
              ("sum by (pod, device) (increase(weir_device_stalls_total"
               "{$SERVERS}[$RATE]))", "{{pod}} {{device}}")),
        lines("Days until a certificate ends", "d",
              "The first of --tls-cert with its chain, and of --tls-client-ca; "
              "under TLS alone.",
              ("(weir_tls_certificate_expiry_timestamp_seconds{$SERVERS} - "
               "time()) / 86400", "{{pod}} {{file}}")),
        areas("Certificates not loaded", "none",
              "Looks at the TLS files, every two seconds, that found no good "
              "ones; under TLS alone.",
              ("sum by (pod) (increase(weir_tls_reload_failures_total{$SERVERS}"
               "[$RATE]))", "{{pod}}")),
        lines("Log lines lost", "cps",
              "Left out because there were too many of a kind, or dropped "
              "because nobody reads standard error in time.",
              ("sum(rate(weir_log_lines_dropped_total{$SERVERS}[$RATE]))",
               "dropped"),
              ("sum(rate(weir_log_lines_suppressed_total{$SERVERS}[$RATE]))",
               "left out")),
    )),
)


def targets(panel):
    """Grafana's form of a panel's (query, legend)s."""
    for i, (query, legend) in enumerate(panel["targets"]):
        yield {
            "refId": chr(ord("A") + i),
            "datasource": DATASOURCE,
            "expr": query.replace("$SERVERS", SERVERS).replace("$RATE", RATE),
            "legendFormat": legend,
        } | ({"format": "heatmap"} if panel["type"] == "heatmap" else {})


def layout():
    """All panels with their places."""
    panels = []
    y = 0
    for title, columns, height, row in ROWS:
        panels.append({"id": len(panels) + 1, "type": "row", "title": title,
                       "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": y},
                       "collapsed": False, "panels": []})
        y += 1
        width = WIDTH // columns
        for i, panel in enumerate(row):
            line, column = divmod(i, columns)
            panels.append({
                "id": len(panels) + 1,
                "datasource": DATASOURCE,
                "gridPos": {"h": height, "w": width, "x": column * width,
                            "y": y + line * height},
                **panel, "targets": list(targets(panel))})
        y += -(-len(row) // columns) * height
    return panels


def variable(name, label, query):
    return {
        "name": name, "label": label, "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name}, "definition": query,
        "refresh": 2, "includeAll": True, "multi": True, "allValue": ".*",
        "current": {"text": "All", "value": "$__all"}, "sort": 1, "hide": 0,
        "options": [], "regex": "",
    }


def dashboard():
    return {
        "uid": "weir",
        "title": "weir",
        "description": "Servers of weir: calls, load, models, memory. Needs a "
                       "job that scrapes /metrics and sets the labels "
                       "namespace and pod. Made by make_dashboard.py.",
        "tags": ["weir", "inference"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": [
            {"name": "datasource", "label": "Data source", "type": "datasource",
             "query": "prometheus", "current": {}, "hide": 0,
             "includeAll": False, "multi": False, "options": [], "refresh": 1,
             "regex": ""},
            variable("namespace", "Namespace",
                     "label_values(weir_ready, namespace)"),
            variable("pod", "Pod", "label_values(weir_ready{namespace=~"
                     '"$namespace"}, pod)'),
        ]},
        "panels": layout(),
    }


if __name__ == "__main__":
    print(json.dumps(dashboard(), indent=2))
