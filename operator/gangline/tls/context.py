"""The TLS context of the running server, whose certificate can be changed without dropping a connection."""

from __future__ import annotations

import ssl
import tempfile

from gangline.tls.certificates import CertificateError
from gangline.tls.issuing import KeyPair


class LiveContext:
    """New handshakes use the certificate loaded last; open connections keep theirs."""

    def __init__(self) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._loaded: KeyPair | None = None

    def load(self, pair: KeyPair) -> bool:
        """True if the certificate changed. Raises CertificateError and keeps the previous one."""
        if pair == self._loaded:
            return False
        probe = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # the ssl module reads files only; this one is private to this process and deleted at once
        with tempfile.NamedTemporaryFile() as file:
            file.write(pair.certificate + b"\n" + pair.key)
            file.flush()
            try:
                probe.load_cert_chain(file.name)  # a broken pair must not reach the live context
                self.context.load_cert_chain(file.name)
            except (ssl.SSLError, OSError) as error:
                raise CertificateError(f"the serving certificate can't be loaded: {error}") from error
        self._loaded = pair
        return True
