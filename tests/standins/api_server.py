"""A stand-in for the API server of a cluster, which a real kubectl or helm
talks to: what a Store keeps, over HTTP, with watches, logs, and the streams of
exec and port-forward."""

import http.server
import json
import re
import socket
import threading
import urllib.parse

import yaml

from standins import protobuf
from standins import spdy
from standins import store as stores
from standins.store import Refused

PATH = re.compile(r"/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+/[^/]+))"
                  r"(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
                  r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?"
                  r"(?:/(?P<sub>[a-z]+))?")
PATCHES = {"application/strategic-merge-patch+json": stores.strategic,
           "application/apply-patch+yaml": stores.strategic,
           "application/merge-patch+json": stores.merge,
           "application/json-patch+json": stores.json_patch}
# No types, in the form that kubectl 1.27 asks for: then it takes those that it
# knows by itself.
OPENAPI_V2 = b"\x0a\x032.0"
# What a watch sends first, if it was asked to.
ALL_SENT = {"k8s.io/initial-events-end": "true"}


class Raw(Exception):
    """An answer that is no object: text, or a stream of it."""

    def __init__(self, chunks, kind="application/json"):
        super().__init__()
        self.chunks = chunks
        self.kind = kind


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server = None  # an ApiServer

    def log_message(self, *_):
        pass

    def do(self):
        split = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(split.query,
                                            keep_blank_values=True))
        many = urllib.parse.parse_qs(split.query)
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length) if length else b""
        try:
            try:
                self.answer(200, self.serve(split.path, query, many, body))
            except Refused as why:
                self.answer(why.status["code"], why.status)
            except Raw as raw:
                self.answer_in_chunks(raw)
        except ConnectionError:  # Who asked has left, as from a watch.
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do

    def answer(self, code, document):
        text = json.dumps(document).encode()
        self.send_response(201 if self.command == "POST" and code == 200
                           else code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def answer_in_chunks(self, raw):
        self.send_response(200)
        self.send_header("Content-Type", raw.kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in raw.chunks:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def serve(self, path, query, many, body):
        server = self.server
        if path == "/openapi/v2":
            raise Raw([OPENAPI_V2], "application/"
                      "com.github.proto-openapi.spec.v2.v1.0+protobuf")
        if path in server.fixed:
            return server.fixed[path]
        if path.startswith("/apis/custom.metrics.k8s.io/"):
            return server.custom_metric(path)
        found = PATH.fullmatch(path)
        if not found:
            raise Refused(404, "NotFound",
                          "the server could not find the requested resource")
        version = found["core"] or found["group"]
        group = version.rpartition("/")[0]
        try:
            resource = server.store.resource(found["plural"], group)
        except KeyError:
            resource = None
        if resource is None or resource.version != version:
            raise Refused(404, "NotFound",
                          "the server could not find the requested resource")
        return self.serve_resource(resource, found, query, many, body)

    def serve_resource(self, resource, found, query, many, body):
        namespace, name, sub = found["namespace"], found["name"], found["sub"]
        if resource.group == "metrics.k8s.io":
            return self.server.metrics(resource, namespace, name)
        if sub and sub != "status":
            return self.serve_part(resource, namespace, name, sub, query, many,
                                   body)
        store, group = self.server.store, resource.group
        dry = query.get("dryRun") == "All"
        strict = query.get("fieldValidation") == "Strict"
        if self.command == "GET" and name:
            return store.get(resource.plural, namespace, name, group)
        if self.command == "GET":
            return self.list_or_watch(resource, namespace, query)
        if self.command == "DELETE":
            return self.server.delete(resource, namespace, name, dry)
        document = (protobuf.document(body)
                    if body.startswith(protobuf.MAGIC)
                    else yaml.safe_load(body))
        if self.command == "POST":
            return store.create(resource.plural, document, namespace, dry,
                                group, strict)
        change = lambda old: document
        if self.command == "PATCH":
            kind = self.headers["Content-Type"].partition(";")[0]
            if (kind == "application/apply-patch+yaml"
                    and store.find(resource.plural, namespace, name) is None):
                return store.create(resource.plural, document, namespace, dry,
                                    group, strict)
            change = lambda old: PATCHES[kind](old, document)
        return store.replace(resource.plural, namespace, name, change, dry,
                             group, strict)

    def list_or_watch(self, resource, namespace, query):
        labels = query.get("labelSelector", "")
        fields = [re.fullmatch("(.+?)(!=|==?)(.*)", term).groups() for term
                  in query.get("fieldSelector", "").split(",") if term]
        for field, _, _ in fields:
            if field not in ("metadata.name", "metadata.namespace",
                             *stores.SELECTABLE.get(resource.plural, ())):
                raise Refused(400, "BadRequest", "Unable to find "
                              f'"{resource.version}, Resource={resource.plural}'
                              f'": field label not supported: {field}')

        def wanted(document):
            return (stores.labels_match(labels, document["metadata"].get(
                        "labels", {}))
                    and all((str(stores.look(document, field) or "") == value)
                            == (relation != "!=")
                            for field, relation, value in fields))

        if query.get("watch") in ("true", "1"):
            raise Raw(self.watch(resource, namespace, query, wanted))
        store = self.server.store
        with store.changed:
            return {"kind": f"{resource.kind}List",
                    "apiVersion": resource.version,
                    "metadata": {"resourceVersion": str(store.number)},
                    "items": [document for document in store.list(
                        resource.plural, namespace, resource.group)
                        if wanted(document)]}

    def watch(self, resource, namespace, query, wanted):
        store = self.server.store

        def event(kind, document):
            return json.dumps({"type": kind, "object": document}).encode(
                ) + b"\n"

        with store.changed:
            at = len(store.changes)
            since = query.get("resourceVersion", "")
            if query.get("sendInitialEvents") == "true" or since in ("", "0"):
                first = [event("ADDED", document) for document in store.list(
                    resource.plural, namespace, resource.group)
                    if wanted(document)]
                if query.get("sendInitialEvents") == "true":
                    first.append(event("BOOKMARK", {
                        "kind": resource.kind, "apiVersion": resource.version,
                        "metadata": {"resourceVersion": str(store.number),
                                     "annotations": ALL_SENT}}))
            else:
                first = []
                while at and store.changes[at - 1][0] > int(since):
                    at -= 1
        yield from first
        while not self.server.ended:
            with store.changed:
                store.changed.wait_for(lambda: len(store.changes) > at
                                       or self.server.ended)
                some, at = store.changes[at:], len(store.changes)
            for _, kind, key, document in some:
                if (key[:2] == (resource.group, resource.plural)
                        and namespace in (None, key[2]) and wanted(document)):
                    yield event(kind, document)

    def serve_part(self, resource, namespace, name, sub, query, many, body):
        """A part of an object that is no object itself."""
        if sub not in stores.SUBRESOURCES.get(resource.plural, ()):
            raise Refused(404, "NotFound",
                          "the server could not find the requested resource")
        document = self.server.store.get(resource.plural, namespace, name)
        if sub == "eviction":
            self.server.kubelet.evict(document)
            return {"kind": "Status", "apiVersion": "v1", "metadata": {},
                    "status": "Success"}
        if sub == "log":
            text = self.server.kubelet.log(
                document, query.get("container"),
                query.get("previous") == "true")
            if "tailLines" in query:
                lines = text.splitlines(keepends=True)
                text = "".join(lines[len(lines) - int(query["tailLines"]):])
            raise Raw([text.encode()] if text else [])
        if "SPDY/3.1" not in self.headers.get("Upgrade", ""):
            # As servers without websockets do: kubectl tries the other way.
            raise Refused(400, "BadRequest", "upgrade to SPDY/3.1 only")
        session = self.server.kubelet.session(document, sub, query, many)
        self.switch(session.protocol)
        connection = spdy.Connection(self.rfile, self.wfile, session.on_stream)
        session.connection = connection
        connection.run()
        session.end()
        raise BrokenPipeError

    def switch(self, protocol):
        self.send_response(101)
        self.send_header("Connection", "Upgrade")
        self.send_header("Upgrade", "SPDY/3.1")
        self.send_header("X-Stream-Protocol-Version", protocol)
        self.end_headers()
        self.close_connection = True


class ApiServer(http.server.ThreadingHTTPServer):
    """Serves on a free port of the loopback interface until it is closed."""

    daemon_threads = True
    address_family = socket.AF_INET

    def __init__(self, store):
        super().__init__(("127.0.0.1", 0), Handler)
        self.store = store
        self.kubelet = None  # who runs the pods
        self.ended = False
        self.fixed = discovery(store)
        threading.Thread(target=self.serve_forever, args=(0.05,),
                         daemon=True).start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"

    def close(self):
        with self.store.changed:
            self.ended = True
            self.store.changed.notify_all()
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address):
        if not self.ended:
            super().handle_error(request, client_address)

    def delete(self, resource, namespace, name, dry):
        document = self.store.get(resource.plural, namespace, name,
                                  resource.group)
        if not dry:
            if resource.plural == "pods":
                self.kubelet.delete(document)
            else:
                self.store.delete(resource.plural, namespace, name,
                                  resource.group)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {},
                "status": "Success", "details": {
                    "name": name, "kind": resource.plural,
                    "uid": document["metadata"]["uid"]}}

    def metrics(self, resource, namespace, name):
        """Of metrics-server: what pods and nodes use."""
        usage = {"cpu": "100m", "memory": "100Mi"}
        about = {"timestamp": stores.now(), "window": "15s"}
        items = []
        for of in self.store.list(resource.plural, namespace, group=""):
            item = {"metadata": {"name": of["metadata"]["name"],
                                 "namespace": namespace}, **about}
            if resource.plural == "pods":
                item["containers"] = [{"name": one["name"], "usage": usage}
                                      for one in of["spec"]["containers"]]
            else:
                item["usage"] = usage
            if name in (None, of["metadata"]["name"]):
                items.append(item)
        return {"kind": f"{resource.kind}List", "metadata": {},
                "apiVersion": resource.version, "items": items}

    def custom_metric(self, path):
        """Of prometheus-adapter, if somebody has installed it: the metrics that
        its rules make."""
        found = re.fullmatch(r"/apis/custom.metrics.k8s.io/v1beta1/namespaces/"
                             r"([^/]+)/pods/\*/(\w+)",
                             urllib.parse.unquote(path))
        values = self.kubelet.adapter_values()
        names = {rule["name"]["as"] for rule in values["rules"]["custom"]}
        if not found or found[2] not in names:
            raise Refused(404, "NotFound",
                          "the server could not find the requested resource")
        return {"kind": "MetricValueList",
                "apiVersion": "custom.metrics.k8s.io/v1beta1", "metadata": {},
                "items": [{"describedObject": {
                    "kind": "Pod", "namespace": found[1],
                    "name": pod["metadata"]["name"], "apiVersion": "/v1"},
                    "metricName": found[2], "value": "0"}
                    for pod in self.store.list("pods", found[1], group="")]}


def discovery(store):
    """What there is, by path: kinds and, for what is checked of a request, the
    parameters that it may have."""
    versions = {}
    for resource in store.resources:
        versions.setdefault(resource.version, []).append(resource)
    fixed = {"/version": {"major": "1", "gitVersion":
                          f"v{store.checker.version}.0",
                          "minor": store.checker.version.split(".")[1]},
             "/api": {"kind": "APIVersions", "versions": ["v1"]},
             "/apis": {"kind": "APIGroupList", "apiVersion": "v1",
                       "groups": []},
             "/openapi/v3": {"paths": {}}}
    groups = {}
    for version, found in versions.items():
        path = f"/api{'s' if '/' in version else ''}/{version}"
        fixed[path] = {"kind": "APIResourceList", "apiVersion": "v1",
                       "groupVersion": version,
                       "resources": list(api_resources(found))}
        at = f"/openapi/v3{path}"
        fixed["/openapi/v3"]["paths"][path[1:]] = {
            "serverRelativeURL": f"{at}?hash=0"}
        fixed[at] = {"openapi": "3.0.0", "info": {"title": "Kubernetes"},
                     "paths": dict(map(openapi_path, found))}
        if "/" in version:
            named = {"groupVersion": version,
                     "version": version.split("/")[1]}
            groups.setdefault(version.split("/")[0], []).append(named)
    for name, named in groups.items():
        fixed["/apis"]["groups"].append({"name": name, "versions": named,
                                         "preferredVersion": named[-1]})
    return fixed


def api_resources(found):
    verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
    for one in found:
        yield {"name": one.plural, "singularName": one.kind.lower(),
               "namespaced": one.namespaced, "kind": one.kind, "verbs": verbs,
               **({"shortNames": [one.short]} if one.short else {})}
        for sub in stores.SUBRESOURCES.get(one.plural, ()):
            if one.group == "metrics.k8s.io":
                continue
            row = {"name": f"{one.plural}/{sub}", "singularName": "",
                   "namespaced": True, "kind": one.kind,
                   "verbs": ["create", "get"]}
            if sub == "eviction":
                row |= {"group": "policy", "version": "v1", "kind": "Eviction"}
            yield row


def openapi_path(one):
    group, _, version = one.version.rpartition("/")
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}}
                  for name in ("dryRun", "fieldManager", "fieldValidation")]
    return f"/{one.version}/{one.plural}/{{name}}", {"patch": {
        "parameters": parameters, "responses": {},
        "x-kubernetes-action": "patch", "x-kubernetes-group-version-kind": {
            "group": group, "version": version, "kind": one.kind}}}
