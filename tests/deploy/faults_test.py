#!/usr/bin/env python3
"""Faults of a started server, and what tells of them: which alert, after how
long, and which panels show it. The rules run 60 times as fast as they are
written, so that a minute is a second; what Kubernetes would say of a container
that ended is said by a stand-in for kube-state-metrics."""

import http.server
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
import time
import unittest

import certificates
import monitoring_test
import promql
import running
from manifests import BIN

FAULT = """
definition {
  inputs { name: "x" }
  nodes { domain: "weir" op: "Fault" inputs: "x" outputs: "y"
          attributes { name: "mode" s: "trap" } }
  outputs: "y"
}
"""
KUBERNETES = """\
kube_deployment_spec_replicas{{namespace="weir",deployment="weir"}} 1
kube_pod_container_info{{{labels},image_spec="weir:1"}} 1
kube_pod_container_status_running{{{labels}}} 1
kube_pod_container_status_restarts_total{{{labels}}} {restarts}
"""
LABELS = 'namespace="weir",pod="weir-0",container="weir"'
PATIENCE_SECONDS = 90


def faster(rules):
    """Rules in which a minute is a second."""
    shorter = {"m": "s", "h": "m"}
    rules = re.sub(r"\[1d\]", "[24m]", rules)
    rules = re.sub(r":15s\]", ":250ms]", rules)
    return re.sub(r"(\[|for: )(\d+)([mh])(?!\w)",
                  lambda match: match[1] + match[2] + shorter[match[3]], rules)


class KubeStateMetrics:
    """Says that the container of a server ended, once it is told so."""

    def __enter__(self):
        self.exit_code = None
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):

            def do_GET(self):  # pylint: disable=invalid-name
                self.send_response(200)
                self.end_headers()
                self.wfile.write(outer.text().encode())

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = "127.0.0.1:%d" % self.server.server_port
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def text(self):
        text = KUBERNETES.format(labels=LABELS,
                                 restarts=int(self.exit_code is not None))
        if self.exit_code is not None:
            text += ("kube_pod_container_status_last_terminated_exitcode"
                     f"{{{LABELS}}} {self.exit_code}\n")
        return text


def panels_that_show(alert):
    read = monitoring_test.metrics_read(alert)
    return [panel["title"] for panel in monitoring_test.panels()
            if any(use.metric in read for target in panel["targets"]
                   for use in promql.read(target["expr"])[0])]


class Faults(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.table = []

    @classmethod
    def tearDownClass(cls):
        for fault, alert, seconds in cls.table:
            print(f"| {fault} | {alert} | {seconds:.0f} min | "
                  f"{', '.join(panels_that_show(alert)) or 'none'} |")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.rules = self.folder / "rules.yaml"
        self.rules.write_text(
            faster(monitoring_test.RULES.read_text("utf-8")), "utf-8")

    def start(self, *flags, **kwargs):
        """A server, and a Prometheus that has seen it well: no alert but what
        Kubernetes' absence makes."""
        self.kube = self.enterContext(KubeStateMetrics())
        self.server = self.enterContext(running.Server(*flags, **kwargs))
        self.prometheus = self.enterContext(running.Prometheus(
            self.server, self.rules, {"kube-state-metrics": self.kube.address}))
        self.wait_for("weir_ready == 1 and on () kube_pod_container_info")

    def wait_for(self, expression):
        end = time.monotonic() + PATIENCE_SECONDS
        while not self.prometheus.query(expression):
            self.assertLess(time.monotonic(), end, expression)
            time.sleep(0.1)

    def expect(self, fault, alert, since):
        self.wait_for(f'ALERTS{{alertname="{alert}",alertstate="firing"}}')
        self.table.append((fault, alert, time.monotonic() - since))

    def load(self, *words):
        """Calls a model until the test ends."""
        load = subprocess.Popen(
            [BIN / "weir", "--server", self.server.grpc, "load", "digits",
             "--duration", str(PATIENCE_SECONDS), *words],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(load.wait)
        self.addCleanup(load.kill)

    def test_a_device_is_lost(self):
        self.start("--enable-test-operators")
        program = self.folder / "fault.textproto"
        program.write_text(FAULT, "utf-8")
        since = time.monotonic()
        self.server.call("eval", str(program), "--input", "x=float:1:1")
        self.kube.exit_code = self.server.process.wait()
        self.expect("a device is lost", "WeirDeviceLost", since)

    def test_the_queue_is_full(self):
        self.start("--queue-length=1", "--streams=1")
        since = time.monotonic()
        self.load("-c", "64")
        self.expect("the queue is full", "WeirOverloaded", since)

    def test_a_certificate_is_replaced_by_a_broken_one(self):
        certificates.make(self.folder)
        self.start(f"--tls-cert={self.folder}/tls.crt",
                   f"--tls-key={self.folder}/tls.key")
        since = time.monotonic()
        (self.folder / "tls.crt").write_text("broken", "utf-8")
        self.expect("a certificate is replaced by a broken one",
                    "WeirCertificateNotLoaded", since)
        # What certificates.make makes is good for a day.
        self.expect("a certificate has a day left",
                    "WeirCertificateExpiring", since)

    def test_a_model_is_refused(self):
        models = self.folder / "models"
        shutil.copytree(running.MODELS / "digits", models / "digits")
        (models / "broken" / "1").mkdir(parents=True)
        (models / "broken" / "1" / "model.onnx").write_bytes(b"no model")
        self.start(f"--model-repository={models}")
        since = time.monotonic()
        self.expect("a model is refused", "WeirModelsUnavailable", since)

    def test_a_reader_of_standard_error_stalls(self):
        self.start("--log-level=debug", stderr=subprocess.PIPE)
        since = time.monotonic()
        self.load("-c", "32")
        self.expect("standard error is not read", "WeirLogLinesDropped", since)

    def test_a_server_ends_and_none_comes_after_it(self):
        self.start()
        self.wait_for("weir:workload:known")
        since = time.monotonic()
        self.server.process.terminate()
        self.expect("the last server ends", "WeirDown", since)


if __name__ == "__main__":
    unittest.main()
