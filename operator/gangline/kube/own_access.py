"""What the API server says of the one who asks: by which name it knows them, and what they may do."""

from __future__ import annotations

from typing import Final

from gangline.kube.client import ApiClient
from gangline.kube.resources import Json, Resource

_SELF: Final[Json] = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
_REVIEWS: Final = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", namespaced=False)
_ACCESS: Final = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", namespaced=False)


async def who_is(client: ApiClient) -> str:
    """The name by which the API server knows the person. Raises ApiError: Unauthorized for a token that it does not accept."""
    found = await client.create(_REVIEWS, None, _SELF)
    return str(((found.get("status") or {}).get("userInfo") or {}).get("username") or "")


async def may(client: ApiClient, verb: str, resource: Resource, namespace: str = "", subresource: str = "") -> bool:
    """Whether the person may do this in a namespace ("" = in all, or for what is in none). Raises ApiError."""
    asked = {
        "verb": verb,
        "group": resource.group,
        "version": resource.version,
        "resource": resource.plural,
        **({"subresource": subresource} if subresource else {}),
        **({"namespace": namespace} if namespace else {}),
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    found = await client.create(_ACCESS, None, body)
    return bool((found.get("status") or {}).get("allowed"))
