"""The TLS context of the running server, whose certificate can be changed without dropping a connection."""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass
from typing import Final

from gangline.tls.certificates import CertificateError
from gangline.tls.issuing import KeyPair


@dataclass(frozen=True, slots=True)
class Handshakes:
    """Which handshakes a server accepts: from which version on, and for TLS 1.2 with which ciphers, by OpenSSL's names.

    `ciphers` is None for those that Python takes; empty for none at all, which leaves TLS 1.3, whose ciphers are always the same.
    """

    least: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    ciphers: tuple[str, ...] | None = None

    def demand(self, context: ssl.SSLContext) -> None:
        """Let a context accept no others. Raises ssl.SSLError for a cipher that this OpenSSL does not have."""
        context.minimum_version = self.least if self.ciphers != () else ssl.TLSVersion.TLSv1_3
        if self.ciphers:
            context.set_ciphers(":".join(self.ciphers))


#: what servers accept where nothing is configured
USUAL: Final = Handshakes()


class LiveContext:
    """New handshakes use the certificate loaded last; open connections keep theirs."""

    def __init__(self, handshakes: Handshakes = USUAL) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        handshakes.demand(self.context)
        self._loaded: KeyPair | None = None

    def ask_for_client_certificates(self, authority: str) -> None:
        """Verify the certificate that a client shows by this CA (PEM). One that shows none is let in: the server answers it in
        words. Raises CertificateError.
        """
        self.context.verify_mode = ssl.CERT_OPTIONAL
        try:
            self.context.load_verify_locations(cadata=authority)
        except (ssl.SSLError, ValueError) as error:
            raise CertificateError(f"no certificate of a CA: {error}") from error

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
