"""Service accounts with the rights that `gangline admin rbac` prints, and kubeconfigs by which processes are them."""

from __future__ import annotations

from pathlib import Path

import yaml
from tests.cluster.harness import Api, connect

from gangline.api import names
from gangline.install import rights
from gangline.kube.resources import NAMESPACES, Json, Resource

_RBAC = ("rbac.authorization.k8s.io", "v1")
RESOURCES = {
    "Namespace": NAMESPACES,
    "ServiceAccount": Resource("", "v1", "serviceaccounts"),
    "ClusterRole": Resource(*_RBAC, "clusterroles", namespaced=False),
    "ClusterRoleBinding": Resource(*_RBAC, "clusterrolebindings", namespaced=False),
    "Role": Resource(*_RBAC, "roles"),
    "RoleBinding": Resource(*_RBAC, "rolebindings"),
}
#: of a token, in seconds: longer than any test run
LIFE = 86_400


async def grant(kubeconfig: Path, directory: Path, *, probe_nodes: bool = False) -> dict[str, Path]:
    """Applies the manifests; account -> a kubeconfig with its token. Policies of the tests name Secret `inbox` of `default`."""
    async with connect(kubeconfig) as api:
        granted = {"notify_secrets": ["default/inbox"], "cluster_secrets": ["worker-1", "worker-2"]}
        await apply(api, *rights.manifests(**granted, probe_nodes=probe_nodes, cordon_nodes=True))
        return {account.name: await login(api, kubeconfig, directory, account.name) for account in rights.ACCOUNTS}


async def apply(api: Api, *bodies: Json) -> None:
    """Apply accounts, roles and their bindings."""
    for body in bodies:
        meta, resource = body["metadata"], RESOURCES[body["kind"]]
        await api.client.patch(
            resource, meta.get("namespace"), meta["name"], body, kind="apply", field_manager="test", force=True
        )


async def login(
    api: Api, kubeconfig: Path, directory: Path, account: str, namespace: str = names.SYSTEM_NAMESPACE
) -> Path:
    """As the administrator's kubeconfig, but with the token of the account and nothing else."""
    tokens = Resource("", "v1", f"serviceaccounts/{account}/token")
    answer = await api.client.create(tokens, namespace, {"spec": {"expirationSeconds": LIFE}})
    config = yaml.safe_load(kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": answer["status"]["token"]}
    path = directory / f"{account}.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path
