"""Owners of what a process makes at run time: when Gangline is uninstalled, the garbage collector removes it.

The owner is the ClusterRole that a process is installed with. On clusters without it, such as those of `gangline up`, nothing
has an owner.
"""

from __future__ import annotations

from typing import Final

from gangline.kube.client import ApiClient
from gangline.kube.errors import Forbidden, NotFound
from gangline.kube.resources import Json, Resource

CLUSTER_ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", namespaced=False, kind="ClusterRole")
#: ClusterRoles, and the service accounts that they are for
OPERATOR: Final = "gangline-operator"
WEBHOOKS: Final = "gangline-webhooks"
#: a service account that only reads: `gangline admin record`
RECORDER: Final = "gangline-record"


async def owned_by(client: ApiClient, role: str) -> Json:
    """Metadata that makes an object owned by this ClusterRole; empty where it does not exist. Raises ApiError.

    Asked for before each write: an owner that was created anew has another uid, and what names the old one is removed.
    """
    try:
        found = await client.get(CLUSTER_ROLES, None, role)
    except (NotFound, Forbidden):
        return {}
    reference = {"apiVersion": CLUSTER_ROLES.api_version, "kind": CLUSTER_ROLES.kind, "name": role}
    return {"ownerReferences": [{**reference, "uid": found["metadata"]["uid"]}]}
