"""The TLS side of a login: the CA that is trusted and the client certificate, both of which others renew while we run."""

from __future__ import annotations

import logging
import ssl
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gangline import files

log = logging.getLogger(__name__)

#: seconds between two looks at the files
PERIOD: Final = 60.0


class ClientTls:
    """A context whose content changes for handshakes to come. Open connections keep what they were opened with."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context
        #: how many different client certificates there have been
        self.changes = 0
        self._pair = (b"", b"")

    def present(self, certificate: bytes, key: bytes) -> None:
        """Show this certificate from now on. Raises ssl.SSLError, and keeps the one before, if the key doesn't fit."""
        if (certificate, key) == self._pair:
            return
        # the ssl module only reads files; this one is private to this process and deleted at once
        with tempfile.NamedTemporaryFile() as file:
            file.write(certificate + b"\n" + key)
            file.flush()
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(
                file.name
            )  # a broken pair must not reach the context
            self.context.load_cert_chain(file.name)
        self._pair = (certificate, key)
        self.changes += 1

    def trust(self, authority: bytes) -> None:
        """Trust this CA as well. Raises ssl.SSLError if it is none."""
        self.context.load_verify_locations(cadata=authority.decode(errors="replace"))


@dataclass(slots=True)
class TlsFiles:
    """The files of a login. A CA that leaves its file is trusted until the process ends."""

    tls: ClientTls
    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    _read: tuple[bytes, ...] = ()
    _looked_at: float = 0.0

    def __post_init__(self) -> None:
        self._read, self._looked_at = self._contents(), time.monotonic()

    def reject(self) -> None:
        """The server refused what it was shown: look again at once."""
        self._looked_at = float("-inf")

    def look(self) -> None:
        """Load what has changed, if it is time to look. Files in the middle of a change are left for the next time."""
        if time.monotonic() - self._looked_at < PERIOD:
            return
        self._looked_at = time.monotonic()
        try:
            found = self._contents()
            if found == self._read:
                return
            authority, certificate, key = found
            if authority:
                self.tls.trust(authority)
            if certificate and key:
                self.tls.present(certificate, key)
        except (OSError, ssl.SSLError) as error:
            log.warning("the certificates of the login can't be read, those before stay in use: %s", error)
            return
        self._read = found
        log.info("the certificates of the login have changed")

    def _contents(self) -> tuple[bytes, ...]:
        return tuple(files.read_bytes(path) if path else b"" for path in (self.authority, self.certificate, self.key))
