"""Sources of certificates: a Secret that all replicas share, or files that cert-manager updates."""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from gangline.kube import ownership
from gangline.kube.client import AlreadyExists, ApiClient, Conflict, NotFound
from gangline.kube.ownership import owned_by
from gangline.kube.resources import NAMESPACES, SECRETS, Json
from gangline.tls import certificates
from gangline.tls.certificates import CertificateError, Certificates, KeyPair, ServerNames

log = logging.getLogger(__name__)

ATTEMPTS: Final = 8
#: the name of the Secret, unless another one is set
SECRET: Final = "gangline-webhook-cert"


@dataclass(frozen=True, slots=True)
class ServingCertificate:
    """The serving certificate, and the CA for API servers. No bundle: another controller publishes it."""

    pair: KeyPair
    bundle: bytes | None


class CertificateSource(Protocol):
    async def fetch(self) -> ServingCertificate:
        """The present certificates, renewed if that is due and up to us.

        Raises ApiError (the API server does not answer) or CertificateError (the stored ones cannot be used).
        """
        ...


def utc_now() -> datetime:
    return datetime.now(UTC)


class SecretSource:
    """Built-in mode. Replicas agree through the Secret's resourceVersion: the second one adopts the first one's
    certificates.
    """

    def __init__(
        self,
        client: ApiClient,
        namespace: str,
        name: str,
        names: ServerNames,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._names = names
        self._now = now

    async def fetch(self) -> ServingCertificate:
        for _ in range(ATTEMPTS):
            try:
                held = await self._settle()
            except (AlreadyExists, Conflict):  # another replica was faster: read what it wrote
                continue
            return ServingCertificate(held.serving, held.bundle)
        raise CertificateError(f"secret {self._namespace}/{self._name}: changed by others {ATTEMPTS} times in a row")

    async def _settle(self) -> Certificates:
        """Read, renew if due, write back on the version that was read."""
        try:
            secret = await self._client.get(SECRETS, self._namespace, self._name)
        except NotFound:
            return await self._create()
        held = _read(secret)
        if held is None:
            log.warning("secret %s/%s does not hold usable certificates: replacing them", self._namespace, self._name)
            due: Certificates | None = certificates.create(self._names, self._now())
        else:
            due = certificates.renewed(held, self._names, self._now())
        if due is None:
            assert held is not None
            return held
        meta = {**secret["metadata"], **await owned_by(self._client, ownership.WEBHOOKS)}
        body = {**secret, "metadata": meta, "data": {**(secret.get("data") or {}), **_data(due)}}
        await self._client.replace(SECRETS, self._namespace, self._name, body)
        log.info("certificates renewed, serving until %s", certificates.expiry(due.serving.certificate))
        return due

    async def _create(self) -> Certificates:
        made = certificates.create(self._names, self._now())
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": {
                "name": self._name,
                "namespace": self._namespace,
                "labels": {"app.kubernetes.io/part-of": "gangline"},
                **await owned_by(self._client, ownership.WEBHOOKS),
            },
            "data": _data(made),
        }
        try:
            await self._client.create(SECRETS, self._namespace, body)
        except NotFound:
            await self._create_namespace()
            await self._client.create(SECRETS, self._namespace, body)
        return made

    async def _create_namespace(self) -> None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._namespace}}
        try:
            await self._client.create(NAMESPACES, None, body)
        except AlreadyExists:
            return


class DirectorySource:
    """cert-manager mode: `tls.crt` and `tls.key` in a directory that a mounted Secret updates."""

    def __init__(self, directory: Path, now: Callable[[], datetime] = utc_now) -> None:
        self._directory = directory
        self._now = now
        self._warned_of: KeyPair | None = None

    async def fetch(self) -> ServingCertificate:
        pair = KeyPair.read(self._directory)
        if pair != self._warned_of and certificates.ends_soon(pair.certificate, self._now()):
            self._warned_of = pair
            log.warning("%s: the certificate ends at %s", self._directory, certificates.expiry(pair.certificate))
        return ServingCertificate(pair, None)


_FIELDS: Final = ("ca.crt", "ca.key", "tls.crt", "tls.key")


def _data(held: Certificates) -> Json:
    plain = {
        "ca.crt": held.authority.certificate,
        "ca.key": held.authority.key,
        "previous-ca.crt": held.previous,
        "tls.crt": held.serving.certificate,
        "tls.key": held.serving.key,
    }
    return {name: base64.b64encode(content).decode() for name, content in plain.items()}


def _read(secret: Json) -> Certificates | None:
    """The certificates in a Secret; None if they are damaged or missing."""
    data = secret.get("data") or {}
    try:
        ca, ca_key, served, served_key = (base64.b64decode(data[name], validate=True) for name in _FIELDS)
        previous = base64.b64decode(data.get("previous-ca.crt", ""), validate=True)
        held = Certificates(KeyPair(ca, ca_key), KeyPair(served, served_key), previous)
        certificates.check(held)
    except (KeyError, ValueError, TypeError, binascii.Error):
        return None
    return held
