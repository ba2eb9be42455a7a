"""Checks whether a user may see something, an object or a path: asks the API server, and caches the answer for some seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gangline.control.answers.api.front_proxy import User
from gangline.kube.client import ApiClient
from gangline.kube.resources import Json, Resource
from gangline.tenants import SharedRoom

REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", namespaced=False, kind="SubjectAccessReview"
)
#: an answer is valid for this long, in seconds, as in Kubernetes' own extension API servers
HOLDS: Final = 10.0
#: how many answers are cached. Beyond that, the account with most of them loses its oldest one: whoever asks about many names
#: makes nobody else's answers be asked for anew.
REMEMBERED: Final = 1000
#: seconds for the API server to answer
PATIENCE: Final = 5.0
#: members may do everything, and the API server's health checks come from one: a review would only add a way to fail
MASTERS: Final = "system:masters"


@dataclass(frozen=True, slots=True)
class Access:
    """A verb on a resource or one of its subresources, with the fields of a SubjectAccessReview."""

    group: str
    version: str
    resource: str
    subresource: str
    name: str
    namespace: str = ""
    verb: str = "get"

    def as_json(self) -> Json:
        fields = {field: getattr(self, field) for field in self.__slots__}
        return {"resourceAttributes": {field: text for field, text in fields.items() if text}}

    def __str__(self) -> str:
        where = f' in the namespace "{self.namespace}"' if self.namespace else ""
        resource = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        return f'{self.verb} resource "{resource}" in API group "{self.group}"{where}'


@dataclass(frozen=True, slots=True)
class PathAccess:
    """`get` of a path that is no resource, such as /metrics."""

    path: str

    def as_json(self) -> Json:
        return {"nonResourceAttributes": {"verb": "get", "path": self.path}}


class Reviews:
    """Creates SubjectAccessReviews on one API server."""

    def __init__(self, client: ApiClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        #: the questions of each account with the answer, and until when that holds
        self._known: SharedRoom[tuple[User, Access | PathAccess], tuple[bool, float]] = SharedRoom(REMEMBERED)

    async def allowed(self, user: User, access: Access | PathAccess) -> bool:
        """Whether the user has the access. Raises ApiError where the API server does not answer."""
        if MASTERS in user.groups:
            return True
        request = (user, access)
        known = self._known.get(user.account, request)
        if known is not None and self._clock() < known[1]:
            return known[0]
        body = {
            "apiVersion": REVIEWS.api_version,
            "kind": REVIEWS.kind,
            "metadata": {},
            "spec": {**user.as_json(), **access.as_json()},
        }
        answer = await self._client.create(REVIEWS, None, body, within=PATIENCE)
        status = answer.get("status") or {}
        allowed = bool(status.get("allowed")) and not status.get("denied")
        self._known.put(user.account, request, (allowed, self._clock() + HOLDS))
        return allowed
