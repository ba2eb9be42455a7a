"""Creates keys and certificates: a self-signed CA, and certificates that it signs. All keys are on the curve P-256, all results
PEM.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gangline import files


class CertificateError(Exception):
    """The certificates cannot be used; the text says which and why."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes

    @classmethod
    def read(cls, directory: Path) -> KeyPair:
        """`tls.crt` and `tls.key` of a directory, as a mounted Secret has them. Raises CertificateError."""
        try:
            return cls(files.read_bytes(directory / "tls.crt"), files.read_bytes(directory / "tls.key"))
        except OSError as error:
            raise CertificateError(f"{error.filename}: {error.strerror}") from error

    @property
    def parsed(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.certificate)

    @property
    def private_key(self) -> ec.EllipticCurvePrivateKey:
        """The private key as an object. Raises ValueError for a key of another kind, and for text that is no key."""
        key = serialization.load_pem_private_key(self.key, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the private key is not an elliptic-curve key")
        return key


@dataclass(frozen=True, slots=True)
class Life:
    """The validity of a certificate; both moments have a time zone."""

    begin: datetime
    end: datetime


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def authority(name: x509.Name, life: Life) -> KeyPair:
    """A CA, which may sign certificates but no further CAs."""
    key = new_key()
    certificate = (
        _builder(name, name, key, life)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def signed(
    issuer: KeyPair, subject: x509.Name, life: Life, usages: Sequence[x509.ObjectIdentifier], hosts: Sequence[str] = ()
) -> KeyPair:
    """A certificate by `issuer` for these extended key usages; `hosts` are its names and addresses.

    Raises ValueError if the issuer's key is not an elliptic-curve key.
    """
    key, issuer_key = new_key(), issuer.private_key
    builder = (
        _builder(subject, issuer.parsed.subject, key, life)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if hosts:
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return _pair(builder.sign(issuer_key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, life: Life
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(life.begin)
        .not_valid_after(life.end)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), key_pem(key))
