"""Certificates of a local control plane: a CA of its own, server and client certificates, service-account keys."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gangline import files
from gangline.tls import certificates
from gangline.tls.certificates import KeyPair, Life

YEARS = datetime.timedelta(days=3650)
CLOCK_SKEW = datetime.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Pair(KeyPair):
    """A certificate (or public key) and its private key, in PEM, to be kept in files."""

    def save(self, directory: Path, name: str) -> tuple[Path, Path]:
        """Write NAME.crt and NAME.key, both readable by the owner alone. Returns the two paths."""
        paths = directory / f"{name}.crt", directory / f"{name}.key"
        for path, content in zip(paths, (self.certificate, self.key), strict=True):
            files.write(path, content)
        return paths


class Authority:
    """A certificate authority."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair

    @classmethod
    def create(cls, name: str) -> Authority:
        made = certificates.authority(_subject(name), _life())
        return cls(Pair(made.certificate, made.key))

    @classmethod
    def load(cls, directory: Path, name: str) -> Authority:
        """The authority that `pair.save(directory, name)` stored."""
        return cls(Pair(*((directory / f"{name}.{part}").read_bytes() for part in ("crt", "key"))))

    def issue_server(self, name: str, hosts: Sequence[str]) -> Pair:
        """A certificate for servers (and their own client calls) reached as any of `hosts` (names or addresses)."""
        return self._issue(_subject(name), [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH], hosts)

    def issue_client(self, user: str, groups: Sequence[str] = ()) -> Pair:
        """A client certificate that identifies `user` as a member of `groups` to the API server."""
        return self._issue(_subject(user, groups), [ExtendedKeyUsageOID.CLIENT_AUTH])

    def _issue(self, subject: x509.Name, usages: Sequence[x509.ObjectIdentifier], hosts: Sequence[str] = ()) -> Pair:
        made = certificates.signed(self.pair, subject, _life(), usages, hosts)
        return Pair(made.certificate, made.key)


def signing_keys() -> Pair:
    """A bare key pair (public, private), for service-account tokens."""
    key = certificates.new_key()
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return Pair(public, certificates.key_pem(key))


def _subject(name: str, groups: Sequence[str] = ()) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _life() -> Life:
    now = datetime.datetime.now(datetime.UTC)
    return Life(now - CLOCK_SKEW, now + YEARS)
