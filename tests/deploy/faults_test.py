#!/usr/bin/env python3
"""Faults of a started server, and what tells of them: which alert, after how
long, and which panels show it. The rules run 60 times as fast as they are
written, so that a minute is a second, or more (PACES); what Kubernetes would
say of a container that ended is said by a stand-in for kube-state-metrics."""

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
import running

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
# A server on a GPU, which is not here.
GPU = """\
weir_ready 1
process_start_time_seconds {start}
weir_kernel_cache_write_failures_total{{device="cuda:0"}} {failures}
"""
SPIN = """
definition {
  inputs { name: "x" spec { dtype: DATA_TYPE_FLOAT shape: -1 } }
  outputs: "y"
  nodes { domain: "weir" op: "Spin" inputs: "x" outputs: "y"
          attributes { name: "microseconds" i: 300000 } }
}
"""
PATIENCE_SECONDS = 180
# Seconds to a minute, and ms from one scrape to the next, which one may take: a
# second, and 250 ms, unless a scrape that fails begins the time of an alert
# anew, and that time is long. On a busy machine some do.
USUAL_PACE = 1, 250
PACES = {"test_a_certificate_is_replaced_by_a_broken_one": (2, 1000)}
# What is done to a server, and the alert that tells.
FAULTS = {
    "a device is lost": "WeirDeviceLost",
    "the last server ends": "WeirDown",
    "the queue is full": "WeirOverloaded",
    "a model is refused": "WeirModelsUnavailable",
    "a certificate is replaced by a broken one": "WeirCertificateNotLoaded",
    "a certificate has a day left": "WeirCertificateExpiring",
    "the authority for clients is replaced by another one, after many calls":
        "WeirNobodyConnects",
    "callers wait for less than a work takes": "WeirCallsTimeOut",
    "the disk of the cache is full": "WeirKernelsNotKept",
    "standard error is not read": "WeirLogLinesDropped",
}


def faster(rules, minute=1):
    """Rules in which a minute is so many seconds."""
    shorter = {"m": "s", "h": "m"}
    rules = rules.replace("[1d]", "[24h]").replace(
        "15s", f"{250 * minute}ms")
    for seconds in (600, 900, 3600):
        rules = rules.replace(f"< {seconds}", f"< {seconds // 60 * minute}")
    return re.sub(r"(\[|:|for: |offset )(\d+)([mh])(?!\w)",
                  lambda match: match[1] + str(int(match[2]) * minute) +
                  shorter[match[3]], rules)


class KubeStateMetrics(running.Exporter):
    """Says that the container of a server ended, once it is told so."""

    def __init__(self):
        super().__init__(KUBERNETES.format(labels=LABELS, restarts=0))

    def ended(self, exit_code):
        self.text = (KUBERNETES.format(labels=LABELS, restarts=1) +
                     "kube_pod_container_status_last_terminated_exitcode"
                     f"{{{LABELS}}} {exit_code}\n")


class Faults(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.table = []

    @classmethod
    def tearDownClass(cls):
        for fault, minutes in cls.table:
            alert = FAULTS[fault]
            panels = ", ".join(monitoring_test.panels_that_show(alert))
            print(f"| {fault} | {alert} | {minutes:.0f} min | {panels} |")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.rules = self.folder / "rules.yaml"
        self.minute, self.scrape_ms = PACES.get(self._testMethodName,
                                                USUAL_PACE)
        self.rules.write_text(faster(
            monitoring_test.RULES.read_text("utf-8"), self.minute), "utf-8")

    def start(self, *flags, **kwargs):
        """A server, and a Prometheus that has seen it well: no alert but what
        Kubernetes' absence makes."""
        self.server = self.enterContext(running.Server(*flags, **kwargs))
        self.watch()

    def watch(self):
        self.kube = self.enterContext(KubeStateMetrics())
        self.prometheus = self.enterContext(running.Prometheus(
            self.server, self.rules, {"kube-state-metrics": self.kube.http},
            self.scrape_ms))
        self.wait_for("weir_ready == 1 and on () kube_pod_container_info")

    def wait_for(self, expression):
        end = time.monotonic() + PATIENCE_SECONDS
        while not self.prometheus.query(expression):
            self.assertLess(time.monotonic(), end, expression)
            time.sleep(0.1)

    def expect(self, fault, since):
        self.wait_for(
            f'ALERTS{{alertname="{FAULTS[fault]}",alertstate="firing"}}')
        self.table.append((fault, (time.monotonic() - since) / self.minute))

    def expect_while(self, fault, since, call):
        """The same, with somebody who calls until then."""
        done = threading.Event()

        def go_on():
            while not done.is_set():
                call()

        caller = threading.Thread(target=go_on)
        caller.start()
        try:
            self.expect(fault, since)
        finally:
            done.set()
            caller.join()

    def load(self, *words):
        """Calls a model until the test ends."""
        load = subprocess.Popen(
            self.server.command("load", "digits", "--duration",
                                str(PATIENCE_SECONDS), *words),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(load.wait)
        self.addCleanup(load.kill)

    def test_a_device_is_lost(self):
        self.start("--enable-test-operators")
        program = self.folder / "fault.textproto"
        program.write_text(FAULT, "utf-8")
        since = time.monotonic()
        self.server.call("eval", str(program), "--input", "x=float:1:1")
        self.kube.ended(self.server.process.wait())
        self.expect("a device is lost", since)

    def test_the_queue_is_full(self):
        self.start("--queue-length=1", "--streams=1")
        since = time.monotonic()
        self.load("-c", "64")
        self.expect("the queue is full", since)

    def test_a_certificate_is_replaced_by_a_broken_one(self):
        certificates.make(self.folder)
        self.start(f"--tls-cert={self.folder}/tls.crt",
                   f"--tls-key={self.folder}/tls.key")
        since = time.monotonic()
        (self.folder / "tls.crt").write_text("broken", "utf-8")
        self.expect("a certificate is replaced by a broken one", since)
        # What certificates.make makes is good for a day.
        self.expect("a certificate has a day left", since)

    def test_the_authority_for_clients_is_replaced_by_another_one(self):
        certificates.make(self.folder)
        other = self.folder / "other"
        other.mkdir()
        certificates.make(other)
        authority = self.folder / "ca.crt"
        shutil.copy(self.folder / "tls.crt", authority)
        self.start(f"--tls-cert={self.folder}/tls.crt",
                   f"--tls-key={self.folder}/tls.key",
                   f"--tls-client-ca={authority}",
                   client=("--tls-ca", f"{self.folder}/tls.crt",
                           "--tls-cert", f"{self.folder}/tls.crt",
                           "--tls-key", f"{self.folder}/tls.key"))
        self.assertEqual(
            self.server.call("load", "digits", "--duration", "3"), 0)
        self.wait_for("sum(increase(weir_requests_total[1m])) > 20")
        since = time.monotonic()
        shutil.copy(other / "tls.crt", authority)
        self.expect_while(
            "the authority for clients is replaced by another one, "
            "after many calls", since,
            lambda: self.server.call("models"))

    def test_callers_wait_for_less_than_a_work_takes(self):
        self.start("--enable-test-operators")
        program = self.folder / "spin.textproto"
        program.write_text(SPIN, "utf-8")
        since = time.monotonic()
        self.expect_while(
            "callers wait for less than a work takes", since,
            lambda: self.server.call("--timeout", "0.1", "eval", str(program),
                                     "--input", "x=float:1:1"))
        # And they count as late, whoever was the first to notice.
        self.wait_for('sum(weir_requests_total{code="DEADLINE_EXCEEDED"}) > '
                      '10 * sum(weir_requests_total{code="CANCELLED"})')

    def test_a_model_is_refused(self):
        models = self.folder / "models"
        shutil.copytree(running.MODELS / "digits", models / "digits")
        (models / "broken" / "1").mkdir(parents=True)
        (models / "broken" / "1" / "model.onnx").write_bytes(b"no model")
        self.start(f"--model-repository={models}")
        since = time.monotonic()
        self.expect("a model is refused", since)

    def test_a_reader_of_standard_error_stalls(self):
        self.start("--log-level=debug", stderr=subprocess.PIPE)
        since = time.monotonic()
        self.load("-c", "32")
        self.expect("standard error is not read", since)

    def test_the_disk_of_the_cache_is_full(self):
        """Of a server that is a stand-in: that what cannot be written counts is
        seen in tests/device/cuda/kernel_cache_test.cc."""
        start = time.time() - 86400
        self.server = self.enterContext(running.Exporter(
            GPU.format(start=start, failures=0)))
        self.watch()
        since = time.monotonic()
        self.server.text = GPU.format(start=start, failures=3)
        self.expect("the disk of the cache is full", since)

    def test_the_page_tells_what_was_seen(self):
        page = monitoring_test.RUNBOOKS.read_text("utf-8")
        rows = re.findall(r'^\| ([^|]+) \| `(\w+)` \| [^|]+ \| (".*") \|$',
                          page, re.MULTILINE)
        self.assertEqual({fault: alert for fault, alert, _ in rows}, FAULTS)
        for _, alert, panels in rows:
            named = re.findall(r'"([^"]+)"', panels)
            self.assertTrue(named)
            self.assertLessEqual(
                set(named), set(monitoring_test.panels_that_show(alert)))

    def test_a_server_ends_and_none_comes_after_it(self):
        self.start()
        self.wait_for("weir:workload:known")
        since = time.monotonic()
        self.server.process.terminate()
        self.expect("the last server ends", since)


if __name__ == "__main__":
    unittest.main()
