"""Sign-in with an OIDC issuer: the code flow with PKCE. The ID token that it ends with is what the API server is asked with.

Between the two redirects all that has to be remembered is in a cookie of the browser, so any replica can end what another began.
The API server checks the token's signature, with each request; here it is only checked that it answers this sign-in.
"""

from __future__ import annotations

import base64
import hmac
import secrets
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import orjson
from fastapi import Request, Response
from oauthlib.oauth2 import OAuth2Error, WebApplicationClient

from gangline import bounded
from gangline.kube.resources import Json
from gangline.ui.sessions import LONGEST_TOKEN

#: seconds that the issuer has for an answer, and bytes of one
PATIENCE: Final = 10.0
LONGEST: Final = 1_000_000
#: seconds for which the issuer's description is believed, and that a person has to sign in there
DESCRIBED: Final = 3600.0
SIGN_IN: Final = 600
#: characters of a code and of a state that come back
_LONGEST_PARAMETER: Final = 4096
#: what is asked for, where nobody says otherwise
SCOPES: Final = ("openid", "email", "groups")
_PATH: Final = "/.well-known/openid-configuration"


class OidcError(Exception):
    """Says, in a sentence, why nobody was signed in."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """An OIDC issuer, and how the dashboard is known there. `url`: of the dashboard for browsers; it ends with a slash."""

    issuer: str
    client_id: str
    url: str
    client_secret: str = ""
    scopes: tuple[str, ...] = SCOPES
    #: of the issuer's certificate; None: the system's
    authority: str | None = None

    @property
    def callback(self) -> str:
        return f"{self.url}login/callback"


@dataclass(slots=True)
class OidcLogin:
    """Leads browsers to the issuer and back."""

    issuer: Issuer
    secure: bool = True
    _described: Json = field(default_factory=dict[str, Any])
    _until: float = 0.0

    @property
    def _cookie(self) -> str:
        return "__Host-gangline-login" if self.secure else "gangline-login"

    async def begin(self, after: str) -> tuple[str, str]:
        """The issuer's page, and what the browser has to keep meanwhile. `after`: the page that is shown in the end. Raises
        OidcError.
        """
        described = await self._description()
        client = WebApplicationClient(self.issuer.client_id)
        kept = {
            "state": secrets.token_urlsafe(24),
            "nonce": secrets.token_urlsafe(24),
            "verifier": secrets.token_urlsafe(48),
            "after": after if _is_own(after) else "",
        }
        challenge = client.create_code_challenge(kept["verifier"], "S256")
        page = client.prepare_request_uri(
            described["authorization_endpoint"],
            redirect_uri=self.issuer.callback,
            scope=list(self.issuer.scopes),
            state=kept["state"],
            nonce=kept["nonce"],
            code_challenge=challenge,
            code_challenge_method="S256",
        )
        return page, base64.urlsafe_b64encode(orjson.dumps(kept)).decode()

    def remember(self, kept: str, response: Response) -> None:
        """Keep this in the browser until it comes back. The issuer's redirect is another site's, so the cookie is not Strict."""
        response.set_cookie(
            self._cookie, kept, max_age=SIGN_IN, httponly=True, samesite="lax", secure=self.secure, path="/"
        )

    def forget(self, response: Response) -> None:
        response.delete_cookie(self._cookie, path="/", secure=self.secure)

    async def end(self, request: Request) -> tuple[str, str]:
        """The ID token for which the browser has brought a code, and the page that is shown next. Raises OidcError."""
        kept = _kept(request.cookies.get(self._cookie, ""))
        given = {name: request.query_params.get(name, "")[:_LONGEST_PARAMETER] for name in ("state", "code", "error")}
        if not kept or not hmac.compare_digest(kept["state"].encode(), given["state"].encode()):
            raise OidcError("This sign-in was not begun in this browser, or took too long: begin again.")
        if given["error"] or not given["code"]:
            raise OidcError(
                f"The issuer refused the sign-in: {bounded.printable(given['error'] or 'it sent no code')}."
            )
        client = WebApplicationClient(self.issuer.client_id)
        body = client.prepare_request_body(
            code=given["code"],
            redirect_uri=self.issuer.callback,
            code_verifier=kept["verifier"],
            client_secret=self.issuer.client_secret or None,
        )
        described = await self._description()
        answer = await self._fetch(described["token_endpoint"], body)
        try:
            client.parse_request_body_response(answer.decode(errors="replace"))
        except OAuth2Error as error:
            raise OidcError(f"The issuer gave no token: {bounded.printable(str(error))[:200]}.") from None
        token = (client.token or {}).get("id_token")
        if not isinstance(token, str):
            raise OidcError("The issuer gave no ID token: is `openid` among the scopes?")
        self._check(token, kept["nonce"])
        return token, kept["after"]

    def _check(self, token: str, nonce: str) -> None:
        """Raises OidcError for a token that answers another sign-in, or is for somebody else."""
        claims = _claims(token)
        audience = claims.get("aud")
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise OidcError("The issuer's token answers another sign-in: begin again.")
        if self.issuer.client_id not in (audience if isinstance(audience, list) else [audience]):
            raise OidcError("The issuer's token is for another application.")
        if claims.get("iss") != self.issuer.issuer:
            raise OidcError("The token comes from another issuer.")

    async def _description(self) -> Json:
        """The issuer's description of itself. Raises OidcError."""
        if time.monotonic() > self._until:
            try:
                found = bounded.load_json(await self._fetch(self.issuer.issuer.rstrip("/") + _PATH), most_bytes=LONGEST)
            except bounded.BadJsonError as error:
                raise OidcError(f"The issuer's description is {error}.") from None
            if not isinstance(found, dict) or found.get("issuer") != self.issuer.issuer:
                raise OidcError("The issuer describes another issuer.")
            for name in ("authorization_endpoint", "token_endpoint"):
                if not str(found.get(name, "")).startswith(("https://", "http://")):
                    raise OidcError(f"The issuer's description has no {name}.")
            self._described, self._until = found, time.monotonic() + DESCRIBED
        return self._described

    async def _fetch(self, url: str, body: str | None = None) -> bytes:
        """A whole answer of the issuer; of a refused sign-in, too. Raises OidcError."""
        context = ssl.create_default_context(cadata=self.issuer.authority) if self.issuer.authority else True
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.request(
                    "GET" if body is None else "POST", url, data=body, headers=headers if body else None, ssl=context
                ) as answer,
            ):
                found = await answer.content.read(LONGEST)
                if answer.status >= 500 or (body is None and answer.status != 200):
                    raise OidcError(f"The issuer answers {answer.status}.")
                return found
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise OidcError(f"The issuer does not answer: {type(error).__name__}.") from error


@bounded.parser(_LONGEST_PARAMETER, instead=None)
def _kept(cookie: str) -> Mapping[str, str] | None:
    """What was remembered when the sign-in began."""
    try:
        found = bounded.load_json(base64.urlsafe_b64decode(cookie.encode()), most_bytes=_LONGEST_PARAMETER)
    except ValueError:
        return None
    wanted = ("state", "nonce", "verifier", "after")
    if not isinstance(found, dict) or not all(isinstance(found.get(name), str) for name in wanted):
        return None
    return {name: found[name] for name in wanted}


@bounded.parser(LONGEST_TOKEN, instead={})
def _claims(token: str) -> Json:
    """What the token says; nothing of one that can't be read."""
    part = token.split(".")[1] if token.count(".") == 2 else ""
    try:
        found = bounded.load_json(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)), most_bytes=LONGEST_TOKEN)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _is_own(page: str) -> bool:
    """Whether this is a page of the dashboard, below its base: nobody is led to another site."""
    return bool(page) and not page.startswith(("/", "\\")) and ":" not in page.split("?")[0] and page.isprintable()
