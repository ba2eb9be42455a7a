"""Access reviews: whether a user may see an object, asked of the API server and cached for some seconds."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gangline.control.visibility.front_proxy import User
from gangline.kube.client import ApiClient
from gangline.kube.resources import Json, Resource

REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", namespaced=False, kind="SubjectAccessReview"
)
#: seconds for which an answer is cached; as in the API server's own extension servers
HOLDS: Final = 10.0
#: number of cached answers
REMEMBERED: Final = 1000
#: seconds for the API server to answer
PATIENCE: Final = 5.0
#: a group that may do everything; asking would only add a way to fail, since the API server uses it for health checks
MASTERS: Final = "system:masters"


@dataclass(frozen=True, slots=True)
class Access:
    """`get` of a subresource, in the words of a SubjectAccessReview."""

    group: str
    version: str
    resource: str
    subresource: str
    name: str
    namespace: str = ""

    def as_json(self) -> Json:
        fields = {field: getattr(self, field) for field in self.__slots__}
        return {"verb": "get", **{field: text for field, text in fields.items() if text}}

    def __str__(self) -> str:
        where = f' in the namespace "{self.namespace}"' if self.namespace else ""
        return f'get resource "{self.resource}/{self.subresource}" in API group "{self.group}"{where}'


class Reviews:
    """Asks SubjectAccessReviews of one API server."""

    def __init__(self, client: ApiClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._known: OrderedDict[tuple[User, Access], tuple[bool, float]] = OrderedDict()

    async def allowed(self, user: User, access: Access) -> bool:
        """Whether this user has this access. Raises ApiError without an answer."""
        if MASTERS in user.groups:
            return True
        asked = (user, access)
        known = self._known.get(asked)
        if known is not None and self._clock() < known[1]:
            return known[0]
        body = {
            "apiVersion": REVIEWS.api_version,
            "kind": REVIEWS.kind,
            "metadata": {},
            "spec": {**user.as_json(), "resourceAttributes": access.as_json()},
        }
        answer = await self._client.create(REVIEWS, None, body, within=PATIENCE)
        status = answer.get("status") or {}
        allowed = bool(status.get("allowed")) and not status.get("denied")
        self._known[asked] = (allowed, self._clock() + HOLDS)
        self._known.move_to_end(asked)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return allowed
