"""The user of a request forwarded by the API server's aggregator: the request-header protocol of extension API servers.

The API server has authenticated the user and names it in headers. The headers count only on a connection whose client certificate
is signed by the CA, and carries a name, from the ConfigMap `kube-system/extension-apiserver-authentication`; any other client
could send such headers, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from gangline import bounded
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import NotFound
from gangline.kube.resources import Json

NAMESPACE: Final = "kube-system"
CONFIG_MAP: Final = "extension-apiserver-authentication"
#: system:serviceaccount:NAMESPACE:NAME
_SERVICE_ACCOUNT: Final = "system:serviceaccount:"
_NO_AGGREGATOR: Final = "the API server has no aggregator: it runs without --requestheader-client-ca-file"


class FrontProxyError(Exception):
    """The API server does not publish whom to trust; the text says what is missing."""


class UnauthenticatedError(Exception):
    """The request names no user that the API server vouches for; the text says why."""


@dataclass(frozen=True, slots=True)
class User:
    """The user of a request, with the fields of a SubjectAccessReview."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def account(self) -> str:
        """The account to which requests of this user are charged. Service accounts of a namespace count as one, since whoever may
        edit the namespace makes as many as there is a use for.
        """
        if self.name.startswith(_SERVICE_ACCOUNT):
            return self.name.rpartition(":")[0]
        return self.name

    def as_json(self) -> Json:
        extra = {key: list(values) for key, values in self.extra}
        return {"user": self.name, "groups": list(self.groups), "uid": self.uid, "extra": extra}


@dataclass(frozen=True, slots=True)
class Trust:
    """The content of the ConfigMap. No `names`: any certificate of the CA is accepted."""

    authority: str  # PEM
    names: frozenset[str] = frozenset()
    user_headers: tuple[str, ...] = ("X-Remote-User",)
    group_headers: tuple[str, ...] = ("X-Remote-Group",)
    uid_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = field(default=("X-Remote-Extra-",))

    def user(self, certificate: Mapping[str, Any] | None, headers: Iterable[tuple[str, str]]) -> User:
        """The user of a request on a connection with this (verified) client certificate. Raises UnauthenticatedError."""
        if not certificate:
            raise UnauthenticatedError(
                "send the request through the API server: its aggregator presents a client certificate"
            )
        name = _common_name(certificate)
        if self.names and name not in self.names:
            raise UnauthenticatedError(f"the client certificate of {name!r} is not that of the aggregator")
        values = [(header.lower(), value) for header, value in headers]
        user = _all(values, self.user_headers)
        if not user:
            raise UnauthenticatedError(f"the request names no user in {' or '.join(self.user_headers)}")
        uid = _all(values, self.uid_headers)
        return User(user[0], _all(values, self.group_headers), uid[0] if uid else "", self._extra(values))

    def _extra(self, values: list[tuple[str, str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
        found: dict[str, list[str]] = {}
        for header, value in values:
            for prefix in self.extra_prefixes:
                if header.startswith(prefix.lower()):
                    found.setdefault(unquote(header[len(prefix) :]).lower(), []).append(value)
        return tuple((key, tuple(values)) for key, values in sorted(found.items()))


async def read(client: ApiClient) -> Trust:
    """Read the ConfigMap. Raises FrontProxyError where its content is unusable, ApiError where the API server does not answer."""
    try:
        found = await client.get(kube.CONFIG_MAPS, NAMESPACE, CONFIG_MAP)
    except NotFound:
        raise FrontProxyError(_NO_AGGREGATOR) from None
    return parse(found.get("data") or {})


def parse(data: Mapping[str, str]) -> Trust:
    """The ConfigMap's data. Raises FrontProxyError, which names the field."""
    authority = data.get("requestheader-client-ca-file", "")
    if not authority.strip():
        raise FrontProxyError(_NO_AGGREGATOR)
    users = _names(data, "requestheader-username-headers")
    if not users:
        raise FrontProxyError(f"{CONFIG_MAP}: requestheader-username-headers names no header")
    return Trust(
        authority,
        frozenset(_names(data, "requestheader-allowed-names")),
        users,
        _names(data, "requestheader-group-headers"),
        _names(data, "requestheader-uid-headers"),
        _names(data, "requestheader-extra-headers-prefix"),
    )


#: bytes of the longest list of names
_LONGEST: Final = 64 * 1024


def _names(data: Mapping[str, str], name: str) -> tuple[str, ...]:
    try:
        values = bounded.load_json(data.get(name) or "[]", most_bytes=_LONGEST, most_depth=2)
    except bounded.BadJsonError as error:
        raise FrontProxyError(f"{CONFIG_MAP}: {name}: {error}") from error
    if not isinstance(values, list) or not all(isinstance(item, str) for item in values):
        raise FrontProxyError(f"{CONFIG_MAP}: {name} is not a list of names")
    return tuple(values)


def _all(headers: list[tuple[str, str]], names: tuple[str, ...]) -> tuple[str, ...]:
    """The values of the headers with these names, in the order of the names; empty values are ignored."""
    return tuple(value for name in names for header, value in headers if header == name.lower() and value)


def _common_name(certificate: Mapping[str, Any]) -> str:
    """The common name in the result of `ssl.SSLSocket.getpeercert`."""
    return next((value for row in certificate.get("subject", ()) for key, value in row if key == "commonName"), "")
