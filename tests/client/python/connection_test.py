#!/usr/bin/env python3
"""Connections and their spaces: quotas, leases, TLS, forks, ends."""

import os
import subprocess
import sys
import tempfile
import time
import unittest

from built_package import LIBRARY
from certificates import Authority
from spaces_server import WithServer
import numpy as np
import running
import skipping
import weir
from weir.errors import (
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unavailable,
    Unimplemented,
    UnusableConnection,
)

SECONDS = 60


class Spaces(WithServer):

    def test_a_space_is_what_was_asked_for(self):
        connection = self.connect(label="mine", lease=20,
                                  quota=weir.Amounts(tensors=3))
        space = connection.space()
        self.assertEqual((space.label, space.lease, space.quota.tensors),
                         ("mine", 20, 3))
        self.assertEqual(space.id, connection.space_id)
        self.assertEqual(space.identity, "anonymous")
        self.assertEqual(connection.spaces(), [])
        self.assertEqual([str(each) for each in weir.devices()], ["cpu"])

    def test_what_it_may_not_be(self):
        for options in ({"label": "x" * 257}, {"lease": 1e9},
                        {"quota": weir.Amounts(tensors=1 << 60)}):
            self.connect()  # skips where there are no spaces
            with self.subTest(options):
                with self.assertRaises(InvalidArgument) as raised:
                    weir.connect(self.server.grpc, **options)
                self.assertIn(next(iter(options)), raised.exception.field)

    def test_a_quota_is_kept_to(self):
        connection = self.connect(quota=weir.Amounts(tensor_bytes=1024))
        small = connection.tensor(np.zeros(64))
        with self.assertRaises(ResourceExhausted) as raised:
            connection.tensor(np.zeros(100)).numpy()
        self.assertEqual(raised.exception.reason, "SPACE_QUOTA")
        self.assertIn(__file__, str(raised.exception))
        np.testing.assert_array_equal(small.numpy(), np.zeros(64))

    def test_an_array_beyond_a_message_is_refused_here(self):
        connection = self.connect()
        most = connection.max_message_bytes
        with self.assertRaisesRegex(ResourceExhausted, "Evaluator.Write"):
            connection.tensor(np.zeros(most + 1, np.uint8))

    def test_the_lease_is_renewed_while_the_process_lives(self):
        connection = self.connect(lease=1)
        x = connection.tensor([1.0])
        connection.flush()
        before, end = connection.calls, time.monotonic() + SECONDS
        # A third of it passes between two.
        while connection.calls < before + 6 and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(x.item(), 1)

    def test_after_the_end_it_is_refused(self):
        connection = self.connect()
        x = connection.tensor([1.0])
        connection.close()
        connection.close()
        for use in (x.numpy, connection.space, lambda: x + 1,
                    lambda: connection.tensor([1.0])):
            with self.assertRaisesRegex(UnusableConnection, "closed"):
                use()
        with self.assertRaisesRegex(UnusableConnection, "connect"):
            weir.asarray([1.0])

    def test_after_a_fork_it_is_refused(self):
        connection = self.connect()
        x = connection.tensor([1.0]) + 1
        readable, writable = os.pipe()
        child = os.fork()
        if child == 0:
            said = "nothing"
            try:
                x.numpy()
            except UnusableConnection as error:
                said = str(error)
            except BaseException as error:  # pylint: disable=broad-except
                said = repr(error)
            os.write(writable, said.encode())
            os._exit(0)
        os.close(writable)
        with os.fdopen(readable) as pipe:
            self.assertIn("fork", pipe.read())
        os.waitpid(child, 0)
        self.assertEqual(x.item(), 2)

    def test_nobody_is_there(self):
        with self.assertRaises(Unavailable) as raised:
            weir.connect("127.0.0.1:1", timeout=5)
        self.assertIsInstance(raised.exception, ConnectionError)


class SmallMessages(WithServer):
    """A call that is refused as a whole."""

    FLAGS = ("--max-message-bytes=65536",)

    def test_what_it_was_to_make_says_why_it_is_not_there(self):
        connection = self.connect()
        array = np.zeros(connection.max_message_bytes - 8, np.uint8)
        x = connection.tensor(array)
        for _ in range(2):
            with self.assertRaises(ResourceExhausted) as raised:
                x.numpy()
            self.assertEqual(raised.exception.reason, "MESSAGE_TOO_LARGE")
        half = connection.tensor(array[:9])
        np.testing.assert_array_equal(half.numpy(), array[:9])


class Ends(unittest.TestCase):

    def test_a_server_that_started_again_has_lost_the_space(self):
        with tempfile.TemporaryDirectory() as folder:
            address = f"unix:{folder}/socket"
            with running.Server(grpc=address) as server:
                try:
                    connection = weir.connect(address)
                except Unimplemented:
                    self.skipTest("the server offers no spaces")
                self.addCleanup(connection.close)
                x = connection.tensor([1.0])
                connection.flush()
                server.process.kill()
            with running.Server(grpc=address):
                end = time.monotonic() + SECONDS
                while True:
                    try:
                        x.numpy(timeout=5)
                    except Unavailable:
                        self.assertLess(time.monotonic(), end)
                    except NotFound as error:
                        self.assertEqual(error.reason, "SPACE_LOST")
                        break
                connection.close()

    def test_a_server_without_spaces_says_so(self):
        with running.Server("--max-spaces=0") as server, \
                self.assertRaises(Unimplemented):
            weir.connect(server.grpc)


class Killed(WithServer):
    """A client that ends without a word."""

    FLAGS = ("--linger=1",)

    PROGRAM = """if True:
        import sys
        import weir
        connection = weir.connect(sys.argv[1], lease=1)
        gate = weir.Timeline()
        x = connection.tensor([[1.0] * 512] * 512)
        parked = [weir.ops.add(x, x, after=[gate.at(1)]) for _ in range(20)]
        with weir.EvalContext():
            running = [x @ x for _ in range(100)]
        connection.flush()
        print("taken", flush=True)
        sys.stdin.read()
        """

    def test_what_it_had_is_given_back_and_nobody_is_held_up(self):
        connection = self.connect()
        x = connection.tensor([1.0])
        with subprocess.Popen(
                [sys.executable, "-c", self.PROGRAM, self.server.grpc],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                env={**os.environ, "PYTHONPATH": str(LIBRARY)}) as client:
            self.assertEqual(client.stdout.readline(), "taken\n")
            client.kill()
        self.assertEqual((x + 1).item(), 2)
        held = {"weir_spaces": 1, 'weir_space_held{what="works"}': 0,
                'weir_space_held{what="sessions"}': 1,
                'weir_works_parked{device="cpu"}': 0}
        end = time.monotonic() + SECONDS
        while (found := self.metrics(held)) != held:
            self.assertLess(time.monotonic(), end, found)
            time.sleep(0.1)
        self.assertEqual((x + 2).item(), 3)

    def metrics(self, names):
        """Those of the server, as they are now."""
        lines = self.server.metrics().splitlines()
        return {name: float(line.rpartition(" ")[2]) for name in names
                for line in lines if line.startswith(name + " ")}


class Tls(WithServer):
    """Server and clients have certificates of one authority."""

    @classmethod
    def setUpClass(cls):
        certificates = cls.enterClassContext(Authority())
        cls.folder = certificates.folder
        cls.FLAGS = certificates.server_flags()
        super().setUpClass()

    def test_both_sides_show_their_certificates(self):
        files = {f"tls_{name}": self.folder / file for name, file in (
            ("ca", "ca.crt"), ("cert", "client.crt"), ("key", "client.key"))}
        connection = self.connect(label="mine", **files)
        self.assertEqual((connection.tensor([1.0]) + 1).item(), 2)
        [space] = connection.spaces()
        self.assertEqual((space.label, space.id),
                         ("mine", connection.space_id))
        self.assertIn("client", space.identity)
        self.connect(tls_server_name="gpu", **files)
        with self.assertRaises(Unavailable):
            weir.connect(self.server.grpc, tls_ca=files["tls_ca"], timeout=5)

    def test_files_that_do_not_fit_one_another(self):
        with self.assertRaisesRegex(ValueError, "tls_key"):
            weir.connect(self.server.grpc, tls_ca="ca.crt", tls_cert="c.crt")
        with self.assertRaisesRegex(ValueError, "tls_ca"):
            weir.connect(self.server.grpc, tls_server_name="gpu")


if __name__ == "__main__":
    skipping.main()
