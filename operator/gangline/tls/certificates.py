"""A CA of our own, a serving certificate, and when each is made anew.

Everything here is a function of its arguments and the time: webhooks keep the result in a Secret, the operator in memory.

The CA lives ten years, the serving certificate one; both are renewed after two thirds of their life. A new CA is published
beside the old one first and signs only after `SETTLE`, when every API server has the new bundle; the old one leaves the
bundle `GRACE` later, when no replica serves a certificate of it any more.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_LIFE: Final = timedelta(days=3650)
SERVING_LIFE: Final = timedelta(days=365)
SETTLE: Final = timedelta(minutes=10)
GRACE: Final = timedelta(days=7)
#: clocks of API servers may be behind ours
BACKDATE: Final = timedelta(minutes=5)


class CertificateError(Exception):
    """The certificates can't be used; the text says which and why."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes

    @property
    def parsed(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.certificate)


@dataclass(frozen=True, slots=True)
class Certificates:
    """All that replicas share: the CA that signs, the CA before it while that is still trusted, and what is served."""

    authority: KeyPair
    serving: KeyPair
    previous: bytes = b""  # PEM of the CA before, no key: it signs nothing any more

    @property
    def bundle(self) -> bytes:
        """What API servers should trust."""
        return self.authority.certificate + self.previous


@dataclass(frozen=True, slots=True)
class Names:
    """What the server is reached by."""

    dns: tuple[str, ...]
    addresses: tuple[str, ...] = ("127.0.0.1",)


def service_names(service: str, namespace: str) -> Names:
    """All names of an in-cluster service, and the loopback for local use."""
    short = f"{service}.{namespace}"
    return Names((service, short, f"{short}.svc", f"{short}.svc.cluster.local", "localhost"))


def create(names: Names, now: datetime) -> Certificates:
    authority = new_authority(now)
    return Certificates(authority, new_serving(authority, names, now))


def renewed(held: Certificates, names: Names, now: datetime) -> Certificates | None:
    """The next step of renewal that is due at `now`; None if nothing is. Steps follow each other over several calls."""
    authority, serving = held.authority.parsed, held.serving.parsed
    if now >= authority.not_valid_after_utc:
        return create(names, now)
    if now >= _due(authority):
        published = new_authority(now)
        return replace(held, authority=published, previous=held.authority.certificate)
    signed_by_current = serving.issuer == authority.subject and _is_signed_by(serving, authority)
    is_settled = now >= authority.not_valid_before_utc + BACKDATE + SETTLE
    is_stale = now >= _due(serving) or not _covers(serving, names)
    expires_soon = now >= serving.not_valid_after_utc - SETTLE
    if (is_stale and (signed_by_current or is_settled or expires_soon)) or (not signed_by_current and is_settled):
        return replace(held, serving=new_serving(held.authority, names, now))
    if held.previous and signed_by_current and now >= serving.not_valid_before_utc + BACKDATE + GRACE:
        return replace(held, previous=b"")
    return None


def new_authority(now: datetime) -> KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    # the name carries the moment, so that two CAs in one bundle can be told apart
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"gangline-ca {now:%Y-%m-%dT%H:%M:%S.%fZ}")])
    certificate = (
        _builder(name, name, key.public_key(), now, CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def new_serving(authority: KeyPair, names: Names, now: datetime) -> KeyPair:
    """A server certificate for `names`, signed by `authority`, never outliving it."""
    issuer = authority.parsed
    issuer_key = serialization.load_pem_private_key(authority.key, None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise ValueError("the key of the CA is not an elliptic-curve key")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names.dns[0][:64] if names.dns else "gangline")])
    life = min(SERVING_LIFE, issuer.not_valid_after_utc - now)
    certificate = (
        _builder(subject, issuer.subject, key.public_key(), now, life)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_general_names(names)), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    return _pair(certificate, key)


def check(held: Certificates) -> None:
    """Raises ValueError unless keys fit their certificates and the served one is signed by a CA that is published."""
    for pair in (held.authority, held.serving):
        key = serialization.load_pem_private_key(pair.key, None)
        if key.public_key() != pair.parsed.public_key():
            raise ValueError("a private key does not fit its certificate")
    serving = held.serving.parsed
    if not any(_is_signed_by(serving, issuer) for issuer in x509.load_pem_x509_certificates(held.bundle)):
        raise ValueError("the serving certificate is signed by none of the published CAs")


def expiry(certificate: bytes) -> datetime:
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def _is_signed_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except Exception:  # a wrong name, type or signature: each has its own exception, and all mean no
        return False
    return True


def _due(certificate: x509.Certificate) -> datetime:
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return start + (end - start) * 2 / 3


def _covers(certificate: x509.Certificate, names: Names) -> bool:
    try:
        san = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    dns = set(san.get_values_for_type(x509.DNSName))
    addresses = {str(address) for address in san.get_values_for_type(x509.IPAddress)}
    return set(names.dns) <= dns and set(names.addresses) <= addresses


def _general_names(names: Names) -> Sequence[x509.GeneralName]:
    addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in names.addresses]
    return [*(x509.DNSName(name) for name in names.dns), *addresses]


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    moment = now.astimezone(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - BACKDATE)
        .not_valid_after(moment + life)
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


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
