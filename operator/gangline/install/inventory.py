"""What an installation has made: a ConfigMap that lists the objects, so that the next version removes what it no longer has.

It is written before anything else, with the objects of both versions; what is interrupted is known to whoever goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import gangline
from gangline import bounded
from gangline.control.answers.api import api_service
from gangline.install.manifests.tree import MANAGED_BY, PART_OF, PRODUCT
from gangline.kube import ownership
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient, NotFound
from gangline.kube.resources import CONFIG_MAPS, Json, ObjectKey, Resource

# --- the kinds of an installation's objects: where they are on the API server -----------------------------------------


_RBAC: Final = ("rbac.authorization.k8s.io", "v1")

SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", kind="ServiceAccount")
CLAIMS: Final = kube.PERSISTENT_VOLUME_CLAIMS
CLUSTER_ROLES: Final = ownership.CLUSTER_ROLES
CLUSTER_ROLE_BINDINGS: Final = kube.CLUSTER_ROLE_BINDINGS
ROLES: Final = Resource(*_RBAC, "roles", kind="Role")
ROLE_BINDINGS: Final = kube.ROLE_BINDINGS
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", kind="Deployment")
DISRUPTION_BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", kind="PodDisruptionBudget")
NETWORK_POLICIES: Final = Resource("networking.k8s.io", "v1", "networkpolicies", kind="NetworkPolicy")
SERVICE_MONITORS: Final = Resource("monitoring.coreos.com", "v1", "servicemonitors", kind="ServiceMonitor")
RULES: Final = Resource("monitoring.coreos.com", "v1", "prometheusrules", kind="PrometheusRule")
ISSUERS: Final = Resource("cert-manager.io", "v1", "issuers", kind="Issuer")
CERTIFICATES: Final = Resource("cert-manager.io", "v1", "certificates", kind="Certificate")

#: kinds that a manifest of an installation may have
BY_KIND: Final[dict[str, Resource]] = {
    resource.kind: resource
    for resource in (
        *(kube.NAMESPACES, kube.CUSTOM_RESOURCE_DEFINITIONS, kube.PRIORITY_CLASSES, kube.CONFIG_MAPS, kube.SERVICES),
        *(SERVICE_ACCOUNTS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS, CLAIMS, DEPLOYMENTS),
        *(DISRUPTION_BUDGETS, NETWORK_POLICIES, SERVICE_MONITORS, RULES, ISSUERS, CERTIFICATES),
    )
}
#: kinds that operator and webhooks make themselves, beside those above
MADE_AT_RUN_TIME: Final[tuple[Resource, ...]] = (
    *(kube.MUTATING_WEBHOOKS, kube.VALIDATING_WEBHOOKS, kube.MUTATING_POLICY_BINDINGS, kube.MUTATING_POLICIES),
    *(kube.VALIDATING_POLICY_BINDINGS, kube.VALIDATING_POLICIES),
    *(api_service.API_SERVICES, api_service.ENDPOINT_SLICES, api_service.ENDPOINTS, kube.SECRETS),
)


def key_of(body: Json) -> ObjectKey:
    """The address of a manifest's object. Raises KeyError for a kind that no manifest of ours has."""
    return ObjectKey.of(BY_KIND[body["kind"]], body)


def kind_and_name(key: ObjectKey) -> str:
    """`Deployment gangline-system/gangline-operator`."""
    return f"{key.resource.kind} {key.text}"


NAME: Final = "gangline-install"
FIELD_MANAGER: Final = "gangline-install"
_LONGEST: Final = 100_000


@dataclass(frozen=True, slots=True)
class Inventory:
    """`made`: objects that the installation created; `adopted`: those that were there before, which it leaves behind."""

    version: str = ""
    made: frozenset[ObjectKey] = frozenset()
    adopted: frozenset[ObjectKey] = frozenset()

    def with_objects(self, made: Iterable[ObjectKey], adopted: Iterable[ObjectKey]) -> Inventory:
        """The inventory with both versions' objects and this process's version. What was adopted once stays adopted."""
        others = self.adopted | frozenset(adopted)
        return Inventory(gangline.__version__, (self.made | frozenset(made)) - others, others)


async def read(api: ApiClient, namespace: str) -> Inventory | None:
    """Read the inventory of an installation; None where there is none. Raises ApiError."""
    try:
        found = await api.get(CONFIG_MAPS, namespace, NAME)
    except NotFound:
        return None
    data = found.get("data") or {}
    return Inventory(data.get("version", ""), _keys(data.get("made", "")), _keys(data.get("adopted", "")))


async def write(api: ApiClient, namespace: str, inventory: Inventory) -> None:
    """Write the inventory of an installation. Raises ApiError."""
    body: Json = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME, "namespace": namespace, "labels": {PART_OF: PRODUCT, MANAGED_BY: PRODUCT}},
        "data": {
            "version": inventory.version,
            "made": _lines(inventory.made),
            "adopted": _lines(inventory.adopted),
        },
    }
    await api.patch(CONFIG_MAPS, namespace, NAME, body, kind="apply", field_manager=FIELD_MANAGER, force=True)


def _lines(keys: Iterable[ObjectKey]) -> str:
    return "\n".join(sorted(f"{key.resource.kind} {key.text}" for key in keys))


@bounded.parser(_LONGEST, instead=frozenset())
def _keys(text: str) -> frozenset[ObjectKey]:
    """Lines that name no object of ours are left out: a newer version may have written them."""
    rows = (line.partition(" ") for line in text.splitlines())
    return frozenset(ObjectKey.parse(BY_KIND[kind], name) for kind, _, name in rows if kind in BY_KIND and name)
