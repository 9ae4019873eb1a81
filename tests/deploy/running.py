"""A weir-server, a Prometheus that scrapes it, and a stand-in for whatever else
is scraped. All on free ports of the loopback interface; all end with their
`with` block."""

import contextlib
import http.server
import json
import pathlib
import queue
import re
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import yaml

from manifests import BIN, ROOT

MODELS = ROOT / "tests" / "data"
PROGRAM = """
definition {
  inputs { name: "x" spec { dtype: DATA_TYPE_FLOAT shape: -1 } }
  outputs: "y"
  nodes { op: "Relu" inputs: "x" outputs: "y" }
}
"""


# Until what was begun says what it is waited for.
PATIENCE_SECONDS = 60


def wait_for_line(process, stream, pattern, seconds=PATIENCE_SECONDS):
    """What `pattern` finds in a line of a process's stream. If no line has it,
    ends the process, and raises with all that it said instead."""
    lines = queue.Queue()

    def read():
        for line in stream:
            lines.put(line)
            if re.search(pattern, line):
                return
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    said, end = "", time.monotonic() + seconds
    try:
        while line := lines.get(timeout=max(0, end - time.monotonic())):
            said += line
            if found := re.search(pattern, line):
                return found
        why = f"ended with {process.wait(max(0, end - time.monotonic()))}"
    except (queue.Empty, subprocess.TimeoutExpired):
        why = f"took more than {seconds} s"
    process.kill()
    process.wait()
    raise AssertionError(f"{process.args} {why}: {said}")


def fetch(url):
    with urllib.request.urlopen(url, timeout=10) as reply:
        return reply.read().decode("utf-8")


class Server:

    # `client`: flags of `weir` beside --server.
    def __init__(self, *flags, grpc="127.0.0.1:0", client=(),
                 stderr=subprocess.DEVNULL):
        self.client = client
        self.flags = [f"--grpc={grpc}", *flags]
        if not any(flag.startswith("--model-repository=") for flag in flags):
            self.flags.append(f"--model-repository={MODELS}")
        self.stderr = stderr

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen(
            [BIN / "weir-server", "--http=127.0.0.1:0",
             "--device=cpu", "--drain-delay=0", *self.flags],
            stdout=subprocess.PIPE, stderr=self.stderr, text=True)
        self.grpc, self.http = wait_for_line(
            self.process, self.process.stdout,
            r" ready: grpc=(\S+) http=(\S+)").groups()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        self.folder.cleanup()

    def command(self, *words):
        """The command line of `weir`."""
        return [BIN / "weir", "--server", self.grpc, *self.client, *words]

    def call(self, *words):
        """Runs `weir`; returns its exit code."""
        return subprocess.run(self.command(*words), capture_output=True,
                              check=False).returncode

    def call_everything(self):
        """A program, a model, and a model that does not exist."""
        program = pathlib.Path(self.folder.name, "relu.textproto")
        program.write_text(PROGRAM, "utf-8")
        image = f"image=@{MODELS / 'digits_samples.f32'}:float:360x1x8x8"
        return [self.call("eval", str(program), "--input", "x=float:2:-1,1"),
                self.call("infer", "digits", "--input", image),
                self.call("infer", "none", "--input", image)]

    def metrics(self):
        return fetch(f"http://{self.http}/metrics")


class Exporter:
    """Shows `text` as metrics, which may change."""

    def __init__(self, text=""):
        self.text = text

    def __enter__(self):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):

            def do_GET(self):  # pylint: disable=invalid-name
                with contextlib.suppress(ConnectionError):  # who asked left
                    self.send_response(200)
                    self.end_headers()
                    self.wfile.write(outer.text.encode())

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http = "127.0.0.1:%d" % self.server.server_port
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class Prometheus:
    """Scrapes a server, with the labels that a ServiceMonitor would give, and
    `others` by job, as they are, and evaluates a file of rules; each every so
    many ms, which is what a scrape may take, too."""

    def __init__(self, server, rules, others=None, interval_ms=250):
        self.server = server
        self.rules = rules
        self.others = others or {}
        self.interval = f"{interval_ms}ms"

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        config = pathlib.Path(self.folder.name, "prometheus.yaml")
        config.write_text(yaml.safe_dump({
            "global": {name: self.interval for name in (
                "scrape_interval", "scrape_timeout", "evaluation_interval")},
            "rule_files": [str(self.rules)],
            "scrape_configs": [{"job_name": "weir", "static_configs": [{
                "targets": [self.server.http],
                "labels": {"namespace": "weir", "workload": "weir",
                           "pod": "weir-0"}}]}, *(
                {"job_name": job, "honor_labels": True,
                 "static_configs": [{"targets": [address]}]}
                for job, address in self.others.items())],
        }), "utf-8")
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={config}",
             f"--storage.tsdb.path={self.folder.name}/data",
             "--web.listen-address=127.0.0.1:0"],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.address = wait_for_line(
            self.process, self.process.stderr,
            r'"Listening on" address=(\S+)')[1]
        self.wait_until_ready()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate()
        self.folder.cleanup()

    def wait_until_ready(self):
        """It listens a moment before it answers queries."""
        end = time.monotonic() + PATIENCE_SECONDS
        while self.process.poll() is None:
            try:
                fetch(f"http://{self.address}/-/ready")
                return
            except urllib.error.HTTPError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def query(self, expression, at=None):
        """The series that an expression has now, or had at a Unix time."""
        query = urllib.parse.urlencode(
            {"query": expression} | ({} if at is None else {"time": at}))
        reply = fetch(f"http://{self.address}/api/v1/query?{query}")
        return json.loads(reply)["data"]["result"]

    def broken_rules(self):
        """{rule: error} of those that cannot be evaluated; None as long as
        some have not been."""
        reply = json.loads(fetch(f"http://{self.address}/api/v1/rules"))
        states = [rule for group in reply["data"]["groups"]
                  for rule in group["rules"]]
        if any(rule["health"] == "unknown" for rule in states):
            return None
        return {rule["name"]: rule["lastError"] for rule in states
                if rule["health"] != "ok"}
