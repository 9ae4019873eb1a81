"""Certificates as a Secret of type kubernetes.io/tls has them."""

import subprocess


def make(folder, name="weir"):
    """Writes tls.crt, signed by itself, and tls.key."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
         "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1", "-subj",
         f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", folder / "tls.key", "-out", folder / "tls.crt"],
        check=True, capture_output=True)
