"""A package index on this machine, of wheels that hold next to nothing."""

import contextlib
import functools
import hashlib
import http.server
import os
import threading
import zipfile


class Quiet(http.server.SimpleHTTPRequestHandler):

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def served(handler):
    """Yields the address of a server on a free port."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class Index:
    """The index as files below a folder."""

    def __init__(self, folder):
        self.folder = folder

    def add(self, name, version, files=(), needs=()):
        """Adds a wheel with files, (path, text) each, that asks for others by
        name; returns its SHA-256."""
        plain = name.replace("-", "_")
        info = f"{plain}-{version}.dist-info"
        home = self.folder / name
        home.mkdir(parents=True, exist_ok=True)
        file = home / f"{plain}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(file, "w") as wheel:
            for path, text in files:
                wheel.writestr(path, text)
            wheel.writestr(f"{info}/METADATA",
                           f"Metadata-Version: 2.1\nName: {name}\n"
                           f"Version: {version}\n" + "".join(
                               f"Requires-Dist: {need}\n" for need in needs))
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\n"
                           "Root-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")
        links = []
        for wheel in sorted(home.glob("*.whl")):
            digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
            links.append(f'<a href="{wheel.name}#sha256={digest}">'
                         f"{wheel.name}</a>")
        (home / "index.html").write_text("\n".join(links), "utf-8")
        return hashlib.sha256(file.read_bytes()).hexdigest()

    @contextlib.contextmanager
    def serve(self):
        """Yields the environment in which pip asks this index alone."""
        with served(functools.partial(Quiet, directory=self.folder)) as address:
            yield {"PIP_INDEX_URL": f"http://{address}/", "PIP_RETRIES": "0",
                   "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "",
                   "PIP_FIND_LINKS": "", "PIP_NO_CACHE_DIR": "1",
                   "no_proxy": "127.0.0.1"}
