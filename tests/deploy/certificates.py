"""Certificates: one as a Secret of type kubernetes.io/tls has it, and those of
one authority for a server and its clients."""

import pathlib
import subprocess
import tempfile

_NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
            "-nodes"]


def make(folder, name="weir"):
    """Writes tls.crt, signed by itself, and tls.key."""
    subprocess.run(
        ["openssl", "req", "-x509", *_NEW_KEY, "-days", "1", "-subj",
         f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", folder / "tls.key", "-out", folder / "tls.crt"],
        check=True, capture_output=True)


class Authority:
    """A folder with ca.crt, and .crt and .key of "server", which is at
    127.0.0.1 and is also called "gpu", and of "client"."""

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self._folder.name)
        self._run("req -x509 -days 1 -subj /CN=authority "
                  "-keyout ca.key -out ca.crt", new_key=True)
        (self.folder / "names").write_text(
            "subjectAltName=IP:127.0.0.1,DNS:gpu", "utf-8")
        for name in ("server", "client"):
            self._run(f"req -subj /CN={name} -keyout {name}.key "
                      f"-out {name}.csr", new_key=True)
            self._run(f"x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key "
                      f"-CAcreateserial -days 1 -extfile names "
                      f"-out {name}.crt")
        return self

    def __exit__(self, *_):
        self._folder.cleanup()

    def server_flags(self):
        """Of a server that asks its clients for theirs."""
        return (f"--tls-cert={self.folder / 'server.crt'}",
                f"--tls-key={self.folder / 'server.key'}",
                f"--tls-client-ca={self.folder / 'ca.crt'}")

    def _run(self, arguments, new_key=False):
        key = _NEW_KEY if new_key else []
        words = arguments.split()
        subprocess.run(["openssl", words[0], *key, *words[1:]],
                       cwd=self.folder, check=True, capture_output=True)
