"""Who sends a request with a bearer token: asks the API server (TokenReview), and caches the answer for some seconds."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from gangline.control.visibility.front_proxy import User
from gangline.kube.client import ApiClient
from gangline.kube.resources import Resource

TOKEN_REVIEWS: Final = Resource("authentication.k8s.io", "v1", "tokenreviews", namespaced=False, kind="TokenReview")
#: an answer is valid for this long, in seconds
HOLDS: Final = 10.0
#: how many answers are cached
REMEMBERED: Final = 1000
#: seconds for the API server to answer
PATIENCE: Final = 5.0
#: reviews at a time: whoever sends invented tokens must not occupy the API server
AT_ONCE: Final = 4


class TokenReviews:
    """Creates TokenReviews on one API server. Only digests of tokens are kept."""

    def __init__(self, client: ApiClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._room = asyncio.Semaphore(AT_ONCE)
        self._known: OrderedDict[bytes, tuple[User | None, float]] = OrderedDict()

    async def user(self, token: str) -> User | None:
        """The user of the token; None where it is not valid. Raises ApiError where the API server does not answer."""
        digest = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
        async with self._room:
            known = self._known.get(digest)
            if known is not None and self._clock() < known[1]:
                return known[0]
            found = await self._ask(token)
            self._known[digest] = (found, self._clock() + HOLDS)
            self._known.move_to_end(digest)
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
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
