"""A server for the tests of a class, and connections to it."""

import unittest

import built_package  # pylint: disable=unused-import
import running
import weir

NEVER = 3600  # seconds: what waits is sent when it must be


class WithServer(unittest.TestCase):
    """Its tests are skipped if the server offers no spaces."""

    FLAGS = ()

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(running.Server(*cls.FLAGS))

    def connect(self, **options):
        try:
            connection = weir.connect(**{
                "target": self.server.grpc, "send_after": NEVER, **options})
        except weir.errors.Unimplemented as error:
            if "Spaces" not in str(error):
                raise
            self.skipTest("the server offers no spaces")
        self.addCleanup(connection.close)
        return connection
