"""A stand-in for the world outside: the few addresses that a page names, over
HTTPS, for programs that are told to trust its certificate and to go through
it (HTTPS_PROXY). Whatever else they ask for is not found."""

import hashlib
import http.server
import io
import pathlib
import ssl
import subprocess
import tarfile
import threading

import yaml

ADAPTER = "https://prometheus-community.github.io/helm-charts"
# Of the chart prometheus-adapter: its name, some values that it knows, and the
# ConfigMap with the rules that it makes of them.
CHART = {
    "Chart.yaml": "apiVersion: v2\nname: prometheus-adapter\nversion: 5.2.0\n",
    "values.schema.json": """
{"type": "object", "properties": {
  "prometheus": {"additionalProperties": false, "properties": {
    "url": {"type": "string"}, "port": {"type": "integer"},
    "path": {"type": "string"}}},
  "rules": {"additionalProperties": false, "properties": {
    "default": {"type": "boolean"}, "custom": {"type": "array"},
    "existing": {}, "external": {}, "resource": {}}},
  "replicas": {}, "resources": {}, "affinity": {}, "tolerations": {},
  "nodeSelector": {}, "image": {}, "metricsRelistInterval": {},
  "global": {}}, "additionalProperties": false}
""",
    "templates/config.yaml": """
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}
  namespace: {{ .Release.Namespace }}
data:
  config.yaml: |
    rules:
{{ toYaml .Values.rules.custom | indent 6 }}
"""}


def packed(name, files):
    """A chart, as its repository has it."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for file, text in files.items():
            about = tarfile.TarInfo(f"{name}/{file}")
            about.size = len(text)
            archive.addfile(about, io.BytesIO(text.encode()))
    return made.getvalue()


def adapter_pages():
    chart = packed("prometheus-adapter", CHART)
    address = f"{ADAPTER}/prometheus-adapter-5.2.0.tgz"
    index = {"apiVersion": "v1", "entries": {"prometheus-adapter": [{
        **yaml.safe_load(CHART["Chart.yaml"]), "urls": [address],
        "digest": hashlib.sha256(chart).hexdigest()}]}}
    return {address: chart, f"{ADAPTER}/index.yaml":
            yaml.safe_dump(index).encode()}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_CONNECT(self):
        self.server_host = self.path.partition(":")[0]
        self.send_response(200)
        self.end_headers()
        try:
            self.connection = self.server.tls.wrap_socket(self.connection,
                                                          server_side=True)
        except OSError:  # Who asks knows the address alone.
            self.close_connection = True
            return
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb", buffering=0)
        self.close_connection = False

    def finish(self):
        super().finish()
        self.connection.close()

    def do_GET(self):
        address = f"https://{getattr(self, 'server_host', '')}{self.path}"
        page = self.server.pages.get(address)
        self.send_response(404 if page is None else 200)
        self.send_header("Content-Length", str(len(page or b"")))
        self.end_headers()
        self.wfile.write(page or b"")


class Web(http.server.ThreadingHTTPServer):
    """Until it is closed; `variables` lead a program to it."""

    daemon_threads = True

    def __init__(self, folder):
        super().__init__(("127.0.0.1", 0), Handler)
        certificate = pathlib.Path(folder, "web.crt")
        key = pathlib.Path(folder, "web.key")
        self.pages = adapter_pages()
        hosts = {page.split("/")[2] for page in self.pages}
        names = ",".join(f"DNS:{host}" for host in hosts)
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
             "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1", "-subj",
             "/CN=web", "-addext", f"subjectAltName={names}", "-keyout", key,
             "-out", certificate], check=True, capture_output=True)
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(certificate, key)
        self.variables = {"SSL_CERT_FILE": str(certificate), "HTTPS_PROXY":
                          f"http://127.0.0.1:{self.server_port}"}
        threading.Thread(target=self.serve_forever, args=(0.05,),
                         daemon=True).start()

    def close(self):
        self.shutdown()
        self.server_close()
