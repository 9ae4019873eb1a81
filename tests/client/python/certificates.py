"""Certificates of one authority, for a server at 127.0.0.1 that is also called
"gpu", and for its clients."""

import pathlib
import subprocess
import tempfile


class Certificates:
    """A folder with ca.crt, and .crt and .key of "server" and "client"."""

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
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
               "-nodes"] if new_key else []
        words = arguments.split()
        subprocess.run(["openssl", words[0], *key, *words[1:]],
                       cwd=self.folder, check=True, capture_output=True)
