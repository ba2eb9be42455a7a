"""A CA of our own, a serving certificate, and their renewal.

Everything here is a function of its arguments and the time: webhooks store the result in a Secret, the operator in memory.

The CA is valid for ten years, the serving certificate for one; both are renewed after two thirds of their life. A new CA is
first published beside the old one and signs only after `SETTLE`, when every API server has the new bundle; the old one leaves
the bundle `GRACE` later, when no replica serves a certificate of it any more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gangline.tls import issuing
from gangline.tls.issuing import CertificateError, KeyPair, Life

__all__ = ["CertificateError", "Certificates", "ServerNames", "create", "renewed", "service_names"]

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
    return issuing.authority(name, _life(now, CA_LIFE))


def new_serving(authority: KeyPair, names: ServerNames, now: datetime) -> KeyPair:
    """A server certificate for `names`, signed by `authority`, never outliving it."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names.dns[0][:64] if names.dns else "gangline")])
    life = _life(now, min(SERVING_LIFE, authority.parsed.not_valid_after_utc - now))
    usages = [ExtendedKeyUsageOID.SERVER_AUTH]
    return issuing.signed(authority, subject, life, usages, (*names.dns, *names.addresses))


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
