"""A CA of our own, a serving certificate, and their renewal.

Everything here is a function of its arguments and the time: webhooks store the result in a Secret, the operator in memory.

The CA is valid for ten years, the serving certificate for one; both are renewed after two thirds of their life. A new CA is
first published beside the old one and signs only after `SETTLE`, when every API server has the new bundle; the old one leaves
the bundle `GRACE` later, when no replica serves a certificate of it any more.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gangline import files

# --- issuing ----------------------------------------------------------------------------------------------------------
#
# Creates keys and certificates: a self-signed CA, and certificates that it signs. All keys are on the curve P-256, all results
# PEM.


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


CA_LIFE: Final = timedelta(days=3650)
SERVING_LIFE: Final = timedelta(days=365)
SETTLE: Final = timedelta(minutes=10)
GRACE: Final = timedelta(days=7)
#: clocks of API servers may be behind ours
BACKDATE: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Certificates:
    """Shared by all replicas: the CA that signs, the previous CA while it is still trusted, and the serving pair."""

    authority: KeyPair
    serving: KeyPair
    previous: bytes = b""  # PEM of the previous CA, without key: it signs nothing any more

    @property
    def bundle(self) -> bytes:
        """The CAs that API servers should trust."""
        return self.authority.certificate + self.previous


@dataclass(frozen=True, slots=True)
class ServerNames:
    """Names and addresses of the server."""

    dns: tuple[str, ...]
    addresses: tuple[str, ...] = ("127.0.0.1",)


def service_names(service: str, namespace: str) -> ServerNames:
    """All names of an in-cluster service, and the loopback for local use."""
    short = f"{service}.{namespace}"
    return ServerNames((service, short, f"{short}.svc", f"{short}.svc.cluster.local", "localhost"))


def create(names: ServerNames, now: datetime) -> Certificates:
    authority = new_authority(now)
    return Certificates(authority, new_serving(authority, names, now))


def renewed(held: Certificates, names: ServerNames, now: datetime) -> Certificates | None:
    """The next step of renewal that is due at `now`; None if nothing is. Steps follow each other over several calls."""
    authority, serving = held.authority.parsed, held.serving.parsed
    if now >= authority.not_valid_after_utc:
        return create(names, now)
    if now >= _due(authority):
        published = new_authority(now)
        return replace(held, authority=published, previous=held.authority.certificate)
    signed_by_current = serving.issuer == authority.subject and is_signed_by(serving, authority)
    is_settled = now >= authority.not_valid_before_utc + BACKDATE + SETTLE
    is_stale = now >= _due(serving) or not _covers(serving, names)
    expires_soon = now >= serving.not_valid_after_utc - SETTLE
    if (is_stale and (signed_by_current or is_settled or expires_soon)) or (not signed_by_current and is_settled):
        return replace(held, serving=new_serving(held.authority, names, now))
    if held.previous and signed_by_current and now >= serving.not_valid_before_utc + BACKDATE + GRACE:
        return replace(held, previous=b"")
    return None


def new_authority(now: datetime) -> KeyPair:
    # the name contains the moment, so that two CAs in one bundle differ
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"gangline-ca {now:%Y-%m-%dT%H:%M:%S.%fZ}")])
    return authority(name, _life(now, CA_LIFE))


def new_serving(authority: KeyPair, names: ServerNames, now: datetime) -> KeyPair:
    """A server certificate for `names`, signed by `authority`, never outliving it."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names.dns[0][:64] if names.dns else "gangline")])
    life = _life(now, min(SERVING_LIFE, authority.parsed.not_valid_after_utc - now))
    usages = [ExtendedKeyUsageOID.SERVER_AUTH]
    return signed(authority, subject, life, usages, (*names.dns, *names.addresses))


def _life(now: datetime, span: timedelta) -> Life:
    moment = now.astimezone(UTC)
    return Life(moment - BACKDATE, moment + span)


def check(held: Certificates) -> None:
    """Check that keys fit their certificates and that the serving one is signed by a published CA. Raises ValueError if not."""
    for pair in (held.authority, held.serving):
        key = serialization.load_pem_private_key(pair.key, None)
        if key.public_key() != pair.parsed.public_key():
            raise ValueError("a private key does not fit its certificate")
    serving = held.serving.parsed
    if not any(is_signed_by(serving, issuer) for issuer in x509.load_pem_x509_certificates(held.bundle)):
        raise ValueError("the serving certificate is signed by none of the published CAs")


def trusted(chain: bytes, bundle: bytes) -> bool:
    """Whether a CA in `bundle` vouches for the first certificate in `chain`, through the others. Both PEM."""
    try:
        certificate, *intermediate = x509.load_pem_x509_certificates(chain)
        authorities = x509.load_pem_x509_certificates(bundle)
    except ValueError:
        return False
    while certificate not in authorities and not any(is_signed_by(certificate, issuer) for issuer in authorities):
        issuer = next((issuer for issuer in intermediate if is_signed_by(certificate, issuer)), None)
        if issuer is None:
            return False
        intermediate.remove(issuer)
        certificate = issuer
    return True


def ends_soon(certificate: bytes, now: datetime) -> bool:
    """Whether nine tenths of the certificate's life are over: whoever renews certificates has done so before."""
    parsed = x509.load_pem_x509_certificate(certificate)
    life = parsed.not_valid_after_utc - parsed.not_valid_before_utc
    return now > parsed.not_valid_after_utc - life / 10


def expiry(certificate: bytes) -> datetime:
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def is_signed_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except Exception:  # a wrong name, type or signature: each has its own exception, and all mean no
        return False
    return True


def _due(certificate: x509.Certificate) -> datetime:
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return start + (end - start) * 2 / 3


def _covers(certificate: x509.Certificate, names: ServerNames) -> bool:
    try:
        san = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    dns = set(san.get_values_for_type(x509.DNSName))
    addresses = {str(address) for address in san.get_values_for_type(x509.IPAddress)}
    return set(names.dns) <= dns and set(names.addresses) <= addresses
