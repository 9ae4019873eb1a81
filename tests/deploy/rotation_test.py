#!/usr/bin/env python3
"""A renewed Secret reaches a running server: the kubelet writes the new files
beside the old ones and swaps a link."""

import pathlib
import ssl
import tempfile
import time
import unittest

import certificates
import running

SECONDS = 60


class Rotation(unittest.TestCase):

    def test_new_connections_get_the_new_certificate(self):
        with tempfile.TemporaryDirectory() as name:
            secret = pathlib.Path(name)
            old = self.write(secret, "old")
            self.publish(secret, "old")
            for file in ("tls.crt", "tls.key"):
                (secret / file).symlink_to(pathlib.Path("..data", file))
            with running.Server(f"--tls-cert={secret / 'tls.crt'}",
                                f"--tls-key={secret / 'tls.key'}") as server:
                self.assertEqual(self.served(server), old)
                new = self.write(secret, "new")
                self.publish(secret, "new")
                end = time.monotonic() + SECONDS
                while self.served(server) == old and time.monotonic() < end:
                    pass
                self.assertEqual(self.served(server), new)
                self.assertEqual(
                    server.call("--tls-ca", str(secret / "tls.crt"), "status",
                                "--probe"), 0)

    def write(self, secret, version):
        folder = secret / version
        folder.mkdir()
        certificates.make(folder, version)
        return (folder / "tls.crt").read_text("utf-8")

    def publish(self, secret, version):
        link = secret / "..tmp"
        link.symlink_to(version)
        link.rename(secret / "..data")

    def served(self, server):
        host, port = server.grpc.rsplit(":", 1)
        return ssl.get_server_certificate((host, int(port)))


if __name__ == "__main__":
    unittest.main()
