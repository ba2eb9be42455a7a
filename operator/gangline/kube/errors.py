# ruff: noqa: N818 — named after the answers, as in client-go
"""Errors of an API server, as types that say what the caller can do about them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from itertools import islice
from typing import Any, ClassVar, Final

import orjson

#: how an API server names a field that it does not know, in its answer to a strict write
_UNKNOWN_FIELD: Final = re.compile(r'unknown field "([^"]{1,1024})"')
#: fields that are read off one answer
_MOST_FIELDS: Final = 64


class ApiError(Exception):
    """A refused or failed request.

    `status` is the HTTP status, 0 without an answer. `reason` is the machine-readable word of the server's `Status` object,
    `causes` its list of `{reason, message, field}`, `group` the API group in its details.
    """

    #: the same request may succeed later, unchanged
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        status: int,
        reason: str = "",
        message: str = "",
        *,
        causes: tuple[Mapping[str, Any], ...] = (),
        retry_after: float | None = None,
        group: str = "",
    ) -> None:
        super().__init__(f"{status} {reason}: {message}" if status else f"{reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = causes
        self.group = group
        #: seconds that the server asked to wait, if it did
        self.retry_after = retry_after


class NotFound(ApiError):
    """The object, its namespace or its whole kind does not exist."""

    @property
    def kind_is_unknown(self) -> bool:
        """Whether it is the kind that the API server does not know, or its group."""
        return "could not find the requested resource" in self.message or self.message.endswith(": 404 page not found")


class Conflict(ApiError):
    """The object has changed since the version that the request was based on (or a precondition failed)."""


class AlreadyExists(Conflict):
    """A create found the name taken."""


class Expired(ApiError):
    """The resourceVersion or continue token is too old: list again."""


class Invalid(ApiError):
    """The request is wrong in itself (400, 413, 415, 422); repeating it does not help. `causes` name the fields."""

    @property
    def unknown_fields(self) -> tuple[str, ...]:
        """The fields of a strict write that the API server does not know, such as spec.runtimePatches."""
        found = _UNKNOWN_FIELD.finditer(self.message[:65_536])
        return tuple(dict.fromkeys(match[1] for match in islice(found, _MOST_FIELDS)))


#: the words of an API server whose RBAC refuses a request
_NOT_GRANTED: Final = "is forbidden: User "


class Forbidden(ApiError):
    """RBAC, a quota or an admission plugin refused the request."""

    @property
    def lacks_right(self) -> bool:
        """Whether RBAC refused it, so that a role would help."""
        return _NOT_GRANTED in self.message


class Unauthorized(ApiError):
    """The credentials were not accepted, even after they were renewed."""

    retryable = True


class TooManyRequests(ApiError):
    """The server sheds load; wait for `retry_after` seconds."""

    retryable = True


class Unavailable(ApiError):
    """The server gave no usable answer: refused or reset connection, timeout, or 5xx. A write may or may not have been done."""

    retryable = True

    def __init__(
        self,
        status: int,
        reason: str = "",
        message: str = "",
        *,
        timeout: bool = False,
        unreached: bool = False,
        **more: Any,
    ) -> None:
        super().__init__(status, reason, message, **more)
        #: no connection to the server could be made
        self.unreached = unreached
        #: the server was reached but did not answer in time
        self.timeout = timeout or status == 504


_BY_STATUS: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    413: Invalid,
    415: Invalid,
    422: Invalid,
    429: TooManyRequests,
}


def from_response(status: int, body: bytes, retry_after: str | None = None, *, asked: str = "the request") -> ApiError:
    """The error of an HTTP answer; understands a `Status` object and survives any other body (proxies speak HTML), whose message
    says what was `asked`.
    """
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        answer = None
    if not isinstance(answer, dict) or answer.get("kind") != "Status":
        text = " ".join(body[:500].decode(errors="replace").split())
        phrase = HTTPStatus(status).phrase if status in set(HTTPStatus) else ""
        answer = {
            "message": f"{asked} was answered with {f'{status} {phrase}'.strip()}" + (f": {text}" if text else "")
        }
    return from_status({**answer, "code": status}, retry_after)


def from_status(answer: Mapping[str, Any], retry_after: str | None = None) -> ApiError:
    """The error of a `Status` object, which also occurs inside a watch stream."""
    code = int(answer.get("code") or 500)
    reason = str(answer.get("reason") or "")
    details = answer.get("details") or {}
    seconds = _seconds(retry_after)
    if seconds is None:
        seconds = _seconds(details.get("retryAfterSeconds"))
    if code == 409 and reason == "AlreadyExists":
        error = AlreadyExists
    else:
        error = _BY_STATUS.get(code, Unavailable if code >= 500 else ApiError)
    return error(
        code,
        reason,
        str(answer.get("message") or ""),
        causes=tuple(details.get("causes") or ()),
        retry_after=seconds,
        group=str(details.get("group") or ""),
    )


def _seconds(value: object) -> float | None:
    try:
        return max(0.0, float(str(value))) if value else None
    except ValueError:  # an HTTP date, which the API server never sends
        return None
