"""A server that was called in known numbers and now holds known ones, and what
Prometheus has seen of it. Under TLS, on a CPU."""

import json
import math
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import time

import certificates
import dashboard
import monitoring_test
import running

PATIENCE_SECONDS = 120
# Longer than the test: what happened in all of it.
WINDOW = "30m"
WINDOW_SECONDS = 1800

# What the server is given to do, and what the panels must say of it.
STREAMS = 1
QUEUE = 3
EVALUATIONS = 7
SPACES = 3  # of which one is closed
FAULTS = 2
INFERENCES = 11
ROWS = 360
FAILING_INFERENCES = 3
UNKNOWN_INFERENCES = 4
REFUSED = 5
CONNECTIONS = 16
MOST_CONNECTIONS = 64
CLOSED = 3
RESTARTS = 1
# "again" and "digits", by name; and what the others are called together.
MODELS_IN_METRICS = 2
REST = "/other "
BUDGETS = {"host": 64 << 20, "tensor": 32 << 20, "arena": 128 << 20}

SPIN = """
definition {
  inputs { name: "x" spec { dtype: DATA_TYPE_FLOAT shape: -1 } }
  outputs: "z"
  nodes { domain: "weir" op: "Spin" inputs: "x" outputs: "y"
          attributes { name: "microseconds" i: 60000000 } }
  nodes { domain: "weir" op: "Spin" inputs: "y" outputs: "z"
          attributes { name: "microseconds" i: 60000000 } }
}
"""
FAULT = running.PROGRAM.replace('op: "Relu"', 'domain: "weir" op: "Fault"')
# A process in the same pod that is none of ours.
SIDECAR = "".join(
    f'{name}{{{{namespace="weir",pod="weir-0"}}}} {{value}}\n'
    for name in ("process_cpu_seconds_total", "process_resident_memory_bytes",
                 "process_open_fds", "process_max_fds", "process_threads",
                 "process_start_time_seconds"))
KUBERNETES = """\
kube_deployment_spec_replicas{{{deployment}}} 2
kube_deployment_status_replicas_available{{{deployment}}} 1
kube_pod_container_info{{{labels},image_spec="weir:1"}} 1
kube_pod_container_status_last_terminated_exitcode{{{labels}}} 3
kube_pod_container_status_restarts_total{{{labels}}} {restarts}
"""
LABELS = {"deployment": 'namespace="weir",deployment="weir"',
          "labels": 'namespace="weir",pod="weir-0",container="weir"'}


def demand(condition, what):
    if not condition:
        raise AssertionError(what)


def wait_for(condition, what):
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        demand(time.monotonic() < end, f"waited in vain: {what}")
        time.sleep(0.05)


def wait_for_series(prometheus, expression):
    """Returns the value of the first."""
    found = []

    def look():
        found[:] = prometheus.query(expression)
        return found

    wait_for(look, expression)
    return float(found[0]["value"][1])


def scrape_with(prometheus, expression):
    """The Unix time of a scrape of the server at which the expression has
    series. Of that time nothing is on its way into the database any more, and
    a counter that began at 0 has grown by just what it is."""
    found = []

    def look():
        at = wait_for_series(prometheus, "timestamp(weir_ready)")
        # A scrape takes a quarter of a second at most.
        wait_for_series(prometheus, f"timestamp(weir_ready) > {at + 1}")
        found[:] = [at] if prometheus.query(expression, at) else []
        return found

    wait_for(look, expression)
    return found[0]


def onnx_field(number, value):
    """A field of a protobuf message, short enough for lengths of one byte."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    value = value.encode() if isinstance(value, str) else value
    return bytes([number << 3 | 2, len(value)]) + value


def failing_model():
    """An ONNX model of y = weir.Fault(x), x float [1]: INTERNAL, always."""
    shape = onnx_field(2, onnx_field(1, onnx_field(1, 1)))
    value = onnx_field(2, onnx_field(1, onnx_field(1, 1) + shape))
    node = (onnx_field(1, "x") + onnx_field(2, "y") + onnx_field(4, "Fault") +
            onnx_field(7, "weir"))
    graph = (onnx_field(1, node) + onnx_field(2, "g") +
             onnx_field(11, onnx_field(1, "x") + value) +
             onnx_field(12, onnx_field(1, "y") + value))
    return (onnx_field(1, 8) + onnx_field(7, graph) +
            onnx_field(8, onnx_field(1, "") + onnx_field(2, 17)) +
            onnx_field(8, onnx_field(1, "weir") + onnx_field(2, 1)))


class LoadedServer:
    """`test` is a class of unittest, with which all of it ends."""

    def __init__(self, test):
        self.test = test
        self.folder = pathlib.Path(
            test.enterClassContext(tempfile.TemporaryDirectory()))
        certificates.make(self.folder)
        for name, text in (("relu", running.PROGRAM), ("spin", SPIN),
                           ("fault", FAULT)):
            (self.folder / name).write_text(text, "utf-8")
        models = self.folder / "models"
        shutil.copytree(running.MODELS / "digits", models / "digits")
        shutil.copytree(running.MODELS / "digits" / "1", models / "again" / "1")
        for name, content in (("failing", failing_model()), ("none", b"no")):
            (models / name / "1").mkdir(parents=True)
            (models / name / "1" / "model.onnx").write_bytes(content)
        self.server = running.Server(
            f"--model-repository={models}", f"--streams={STREAMS}",
            f"--queue-length={QUEUE}", f"--max-peer-connections={CONNECTIONS}",
            f"--max-connections={MOST_CONNECTIONS}",
            *(f"--{pool}-bytes={budget}" for pool, budget in BUDGETS.items()),
            f"--metrics-models={MODELS_IN_METRICS}", "--enable-test-operators",
            f"--tls-cert={self.folder}/tls.crt",
            f"--tls-key={self.folder}/tls.key",
            f"--tls-client-ca={self.folder}/tls.crt",
            client=("--tls-ca", f"{self.folder}/tls.crt",
                    "--tls-cert", f"{self.folder}/tls.crt",
                    "--tls-key", f"{self.folder}/tls.key"))
        self.started = time.time()
        test.enterClassContext(self.server)
        # The work that holds the lane would not end with the server.
        test.addClassCleanup(self.server.process.kill)
        self.kube = test.enterClassContext(running.Exporter(
            KUBERNETES.format(restarts=0, **LABELS)))
        self.sidecar = test.enterClassContext(
            running.Exporter(SIDECAR.format(value=1e12)))
        self.prometheus = test.enterClassContext(running.Prometheus(
            self.server, monitoring_test.RULES,
            {"kube-state-metrics": self.kube.http,
             "sidecar": self.sidecar.http}))

    def series(self, name):
        """[(labels, value)] of a metric, of the server itself, now."""
        return [(dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value))
                for labels, value in re.findall(
                    rf"^{name}(?:{{(.*)}})? (\S+)$", self.server.metrics(),
                    re.MULTILINE)]

    def metric(self, name, **labels):
        """The same, of those with these labels, added up."""
        return sum(value for found, value in self.series(name)
                   if labels.items() <= found.items())

    def mean(self, histogram):
        return (self.metric(f"{histogram}_sum") /
                self.metric(f"{histogram}_count"))

    def quantile(self, name, histogram, **labels):
        """p50 or p99 as PromQL has it: evenly spread between two bounds."""
        buckets = {}
        for found, value in self.series(f"{histogram}_bucket"):
            if labels.items() <= found.items():
                bound = float(found["le"])
                buckets[bound] = buckets.get(bound, 0) + value
        rank = int(name.removeprefix("p")) / 100 * buckets[math.inf]
        before, below = 0, 0
        for bound, seen in sorted(buckets.items()):
            if seen >= rank:
                break
            before, below = bound, seen
        if bound == math.inf:
            return before
        return before + (bound - before) * (rank - below) / (seen - below)

    def quantiles(self, legend, histogram, **labels):
        return {f"{legend} {name}": self.quantile(name, histogram, **labels)
                for name in ("p50", "p99")}

    def wait_for_metric(self, name, value, **labels):
        wait_for(lambda: self.metric(name, **labels) == value, name)

    def evaluate(self, program):
        return self.server.call("eval", str(self.folder / program), "--input",
                                "x=float:2:-1,1")

    def infer(self, model, value):
        return self.server.call("infer", model, "--input", value)

    def open_space(self):
        """Its token."""
        printed = subprocess.run(
            self.server.command("spaces", "open"), check=True,
            capture_output=True, text=True).stdout
        return printed.split()[-1]

    def begin(self, program):
        """A call that waits until the server is gone."""
        call = subprocess.Popen(
            self.server.command("--timeout", "600", "eval",
                                str(self.folder / program), "--input",
                                "x=float:2:-1,1"),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.test.addClassCleanup(call.wait)
        self.test.addClassCleanup(call.kill)

    def load(self):
        """Two callers for a second; returns how many calls that were, with the
        one by which it sees whether there is a server."""
        done = subprocess.run(
            self.server.command("--json", "load", "again", "-c", "2",
                                "--warmup", "0", "--duration", "1"),
            check=False, capture_output=True, text=True)
        demand(done.returncode == 0, done.stdout + done.stderr)
        return json.loads(done.stdout)["requests"] + 1

    def connect(self):
        """A connection on which nothing is sent."""
        host, port = self.server.grpc.rsplit(":", 1)
        connection = socket.create_connection((host, int(port)))
        connection.settimeout(PATIENCE_SECONDS)
        self.test.addClassCleanup(connection.close)
        return connection

    def is_closed(self, connection):
        try:
            return connection.recv(1) == b""
        except ConnectionResetError:
            return True

    def drive(self):
        # A counter's first sample is one from before the calls. Restarts are
        # looked at every half minute.
        wait_for_series(
            self.prometheus,
            f"count_over_time(weir_ready[{WINDOW}]) > 1 and on () "
            f"count_over_time(kube_pod_container_info[{WINDOW}:30s])")
        self.idle = [
            (query, [float(one["value"][1])
                     for one in self.prometheus.query(query)])
            for _, query in dashboard.queries()]
        self.kube.text = KUBERNETES.format(restarts=RESTARTS, **LABELS)
        self.sidecar.text = SIDECAR.format(value=2e12)
        codes = [self.evaluate("relu") for _ in range(EVALUATIONS)]
        codes += [self.infer(
            "digits", f"image=@{running.MODELS / 'digits_samples.f32'}"
            f":float:{ROWS}x1x8x8") for _ in range(INFERENCES)]
        demand(set(codes) == {0}, codes)
        codes = [self.evaluate("fault") for _ in range(FAULTS)]
        codes += [self.infer("failing", "x=float:1:1")
                  for _ in range(FAILING_INFERENCES)]
        codes += [self.infer("no-such-model", "x=float:1:1")
                  for _ in range(UNKNOWN_INFERENCES)]
        demand(set(codes) == {1}, codes)
        tokens = [self.open_space() for _ in range(SPACES)]
        demand(self.server.call("spaces", "close", "--space", tokens[0]) == 0,
               "it was not closed")
        self.loaded = self.load()
        # Before there are connections, which do not last that long.
        wait_for_series(
            self.prometheus,
            "sum_over_time(kube_pod_container_status_restarts_total"
            f"[{WINDOW}:30s]) >= {RESTARTS}")

        self.begin("spin")
        self.wait_for_metric("weir_stream_pool_lanes", STREAMS, state="leased")
        for _ in range(QUEUE):
            self.begin("relu")
        self.wait_for_metric("weir_queue_depth", QUEUE)
        for _ in range(REFUSED):
            demand(self.evaluate("relu") == 1, "it was taken")
        self.wait_for_metric("weir_connections", QUEUE + STREAMS)
        for _ in range(CONNECTIONS - QUEUE - STREAMS):
            self.connect()
        self.wait_for_metric("weir_connections", CONNECTIONS)
        for _ in range(CLOSED):
            demand(self.is_closed(self.connect()), "it was taken")
        # All of it was scraped, and the stand-in too.
        self.at = scrape_with(
            self.prometheus,
            f"weir_connections == {CONNECTIONS} and "
            f"sum without (reason) (weir_connections_closed_total) == {CLOSED} "
            f"and on (pod) kube_pod_container_status_restarts_total == "
            f"{RESTARTS} and on (pod) weir:container:info and on (pod) "
            f"process_open_fds == 2e12")
