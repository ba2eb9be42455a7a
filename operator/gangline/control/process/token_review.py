"""Finds out who sends a request with a bearer token: asks the API server (TokenReview), and caches the answer for some seconds.

A known token never waits. Reviews of unknown ones are few at a time, and few of one address: whoever sends invented tokens can
occupy neither the API server nor this server, nor make the cache forget valid ones.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from gangline.control.answers.api.front_proxy import User
from gangline.kube.client import ApiClient
from gangline.kube.resources import Resource
from gangline.tls.requests import Turnstile

TOKEN_REVIEWS: Final = Resource("authentication.k8s.io", "v1", "tokenreviews", namespaced=False, kind="TokenReview")
#: an answer is valid for this long, in seconds
HOLDS: Final = 10.0
#: how many valid tokens are cached, and how many others
REMEMBERED: Final = 1000
#: seconds for the API server to answer
PATIENCE: Final = 5.0
#: reviews at a time, those that wait for their turn, and those of one address, made or waiting
AT_ONCE: Final = 4
WAITING: Final = 16
PER_ADDRESS: Final = 3


class TokenReviews:
    """Creates TokenReviews on one API server. Only digests of tokens are kept."""

    def __init__(self, client: ApiClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._turns = Turnstile(AT_ONCE, WAITING, PER_ADDRESS)
        #: digests of valid tokens and of others, apart: invented ones take no room from valid ones
        self._valid: OrderedDict[bytes, tuple[User | None, float]] = OrderedDict()
        self._invalid: OrderedDict[bytes, tuple[User | None, float]] = OrderedDict()
        #: digest -> its review in progress, for which further requests with the same token wait
        self._asked: dict[bytes, asyncio.Future[User | None]] = {}

    async def user(self, token: str, address: str) -> User | None:
        """The user of the token that this address sends; None where it is not valid.

        Raises ApiError where the API server does not answer, and BusyError where there are too many reviews.
        """
        digest = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
        known = self._valid.get(digest) or self._invalid.get(digest)
        if known is not None and self._clock() < known[1]:
            return known[0]
        asked = self._asked.get(digest)
        if asked is None:
            asked = self._asked[digest] = asyncio.ensure_future(self._review(token, digest, address))
            asked.add_done_callback(lambda done: self._answered(digest, done))
        return await asyncio.shield(asked)

    def _answered(self, digest: bytes, done: asyncio.Future[User | None]) -> None:
        del self._asked[digest]
        if not done.cancelled():
            done.exception()  # whoever waited has it; nobody may have

    async def _review(self, token: str, digest: bytes, address: str) -> User | None:
        async with self._turns.turn(address):
            found = await self._ask(token)
        self._valid.pop(digest, None)
        self._invalid.pop(digest, None)
        cache = self._invalid if found is None else self._valid
        cache[digest] = (found, self._clock() + HOLDS)
        if len(cache) > REMEMBERED:
            cache.popitem(last=False)
        return found

    async def _ask(self, token: str) -> User | None:
        body = {
            "apiVersion": TOKEN_REVIEWS.api_version,
            "kind": TOKEN_REVIEWS.kind,
            "metadata": {},
            "spec": {"token": token},
        }
        status: dict[str, Any] = (await self._client.create(TOKEN_REVIEWS, None, body, within=PATIENCE)).get(
            "status"
        ) or {}
        user: dict[str, Any] = status.get("user") or {}
        if not status.get("authenticated") or not user.get("username"):
            return None
        extra = tuple((key, tuple(values)) for key, values in sorted((user.get("extra") or {}).items()))
        return User(user["username"], tuple(user.get("groups") or ()), user.get("uid") or "", extra)
