"""The kinds of an installation's objects: where they are on the API server."""

from __future__ import annotations

from typing import Final

from gangline.control.answers.api import api_service
from gangline.kube import ownership
from gangline.kube import resources as kube
from gangline.kube.resources import Json, ObjectKey, Resource

_RBAC: Final = ("rbac.authorization.k8s.io", "v1")

SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", kind="ServiceAccount")
CLAIMS: Final = kube.PERSISTENT_VOLUME_CLAIMS
CLUSTER_ROLES: Final = ownership.CLUSTER_ROLES
CLUSTER_ROLE_BINDINGS: Final = Resource(*_RBAC, "clusterrolebindings", namespaced=False, kind="ClusterRoleBinding")
ROLES: Final = Resource(*_RBAC, "roles", kind="Role")
ROLE_BINDINGS: Final = Resource(*_RBAC, "rolebindings", kind="RoleBinding")
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


def told(key: ObjectKey) -> str:
    """`Deployment gangline-system/gangline-operator`."""
    return f"{key.resource.kind} {key.text}"
