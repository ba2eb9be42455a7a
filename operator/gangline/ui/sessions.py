"""Sign-in and its cookies: whose rights a request of a browser has.

On a laptop the dashboard has the rights of the kubeconfig, and the browser proves by a one-time link that its user started it. In
a cluster each person brings a token, pasted or from an OIDC issuer, which stays in a cookie that no script can read and goes to
the API server with each question. Whoever changes something also sends a header that another site cannot know.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, replace
from typing import Final

from fastapi import Request, Response

from gangline.kube.config import Login
from gangline.kube.tokens import FixedToken

#: bytes of the longest token, and of one cookie: browsers keep 4,096 with name and attributes
LONGEST_TOKEN: Final = 16_384
_PIECE: Final = 3_500
_PIECES: Final = -(-LONGEST_TOKEN // _PIECE)
#: the header that each request which changes something carries
CSRF_HEADER: Final = "X-Gangline-Csrf"
#: its value before anybody is signed in: no form of another site can send a header at all
CSRF_LOGIN: Final = "login"


class SignedOutError(Exception):
    """The request belongs to nobody who is signed in."""


class ForgedError(Exception):
    """The request would change something, and does not carry the session's header."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The rights of one person. `key` tells persons apart and tells nobody the token."""

    key: str
    login: Login
    kind: str

    @property
    def csrf(self) -> str:
        """The value of the header: pages of our own learn it, other sites cannot."""
        return hashlib.blake2b(self.key.encode(), person=b"gangline-csrf", digest_size=16).hexdigest()


def check_header(request: Request, credentials: Credentials) -> None:
    """Raises ForgedError."""
    if not hmac.compare_digest(request.headers.get(CSRF_HEADER, "").encode(), credentials.csrf.encode()):
        raise ForgedError


class LaptopSessions:
    """Lets in the browser that opens the one-time link, with the rights of the kubeconfig."""

    kinds: Final = ("laptop",)

    def __init__(self, login: Login) -> None:
        self.link_secret = secrets.token_urlsafe(32)
        self._session = secrets.token_urlsafe(32)
        self._cookie = f"gangline_{secrets.token_hex(4)}"  # cookies of one host are shared by all its ports
        self._login = login

    def of(self, request: Request) -> Credentials:
        """Whose rights the request has. Raises SignedOutError."""
        given = request.cookies.get(self._cookie, "")
        if not hmac.compare_digest(given.encode(), self._session.encode()):
            raise SignedOutError
        return Credentials(self._session, self._login, "laptop")

    def enter(self, secret: str, response: Response) -> bool:
        """Whether this is the link's secret; if so, the response signs its browser in, and the link is used up."""
        if not self.link_secret or not hmac.compare_digest(secret.encode(), self.link_secret.encode()):
            return False
        self.link_secret = ""
        response.set_cookie(self._cookie, self._session, httponly=True, samesite="strict", path="/")
        return True

    def leave(self, response: Response) -> None:
        """Sign the browser out; a new link is needed."""
        self._session = secrets.token_urlsafe(32)
        response.delete_cookie(self._cookie, path="/")


class TokenSessions:
    """Keeps the asker's own token in cookies. `server`: the API server, without anybody's credentials (`config.load`); `secure`:
    cookies are sent over TLS alone.
    """

    def __init__(self, server: Login, *, secure: bool = True, kinds: tuple[str, ...] = ("token",)) -> None:
        self.kinds = kinds
        if server.tokens is not None or server.fixed_headers or server.certificates:
            raise ValueError("the API server would be shown other credentials than the asker's")
        self._server = server
        self._secure = secure
        self._cookie = "__Host-gangline" if secure else "gangline"

    def of(self, request: Request) -> Credentials:
        """Whose rights the request has. Raises SignedOutError."""
        pieces = (request.cookies.get(self._name(number), "") for number in range(_PIECES))
        token = "".join(pieces)
        if not is_token(token):
            raise SignedOutError
        return self.with_token(token)

    def with_token(self, token: str) -> Credentials:
        key = hashlib.blake2b(token.encode(), digest_size=24).hexdigest()
        return Credentials(key, replace(self._server, tokens=FixedToken(token)), self.kinds[0])

    def keep(self, token: str, response: Response) -> None:
        """Keep a token that the API server accepts in the browser."""
        for number in range(_PIECES):
            piece = token[number * _PIECE : (number + 1) * _PIECE]
            if piece:
                response.set_cookie(
                    self._name(number), piece, httponly=True, samesite="strict", secure=self._secure, path="/"
                )
            else:
                response.delete_cookie(self._name(number), path="/", secure=self._secure)

    def leave(self, response: Response) -> None:
        self.keep("", response)

    def _name(self, number: int) -> str:
        return f"{self._cookie}{number or ''}"


Sessions = LaptopSessions | TokenSessions


def is_token(text: str) -> bool:
    """Whether this may be a bearer token, as RFC 6750 writes them."""
    return (
        0 < len(text) <= LONGEST_TOKEN and text.isascii() and all(char.isalnum() or char in "-._~+/=" for char in text)
    )
