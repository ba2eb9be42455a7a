"""Brings a cluster to a version of the installation: what would change, then the changes, each of which may be the last.

Objects are applied by the server (server-side apply), in the order of the tree. Whoever interrupts it runs it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from gangline.install import inventory, kinds
from gangline.install.differences import changes
from gangline.install.inventory import (
    BY_KIND,
    CLUSTER_ROLES,
    DEPLOYMENTS,
    FIELD_MANAGER,
    Inventory,
    key_of,
    kind_and_name,
)
from gangline.install.manifests.tree import KUEUE_NAMESPACE, MANAGED_BY, OPERATOR_NAME, PART_OF, PRODUCT
from gangline.kube.client import ApiClient
from gangline.kube.errors import Forbidden, Invalid, NotFound
from gangline.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, Json, ObjectKey

Action = Literal["create", "take over", "change", "replace", "keep", "remove"]
Say = Callable[[str], None]

#: kinds of which an object of others may be taken over: Kueue's own have the same names and the same purpose
_TAKEN_OVER: Final = frozenset({CUSTOM_RESOURCE_DEFINITIONS, CLUSTER_ROLES, NAMESPACES})
#: kinds with fields that can't be changed, and nothing that is lost when they are made anew
_REPLACED: Final = frozenset({BY_KIND["RoleBinding"], BY_KIND["ClusterRoleBinding"]})
#: kinds that are never removed because a version lacks them: objects go with them
_KEPT: Final = frozenset({CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, BY_KIND["PersistentVolumeClaim"]})
#: group -> the product that brings it
_OF_OTHERS: Final = {"monitoring.coreos.com": "Prometheus operator", "cert-manager.io": "cert-manager"}
_AT_ONCE: Final = 8


class InstallationError(Exception):
    """The installation can't be brought to that version; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """One object: what happens to it, and the fields that change."""

    action: Action
    key: ObjectKey
    body: Json | None = None
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InstallPlan:
    namespace: str
    changes: tuple[ObjectChange, ...]
    before: Inventory | None

    @property
    def is_empty(self) -> bool:
        return all(change.action == "keep" for change in self.changes)

    def keys(self, *actions: Action) -> list[ObjectKey]:
        return [change.key for change in self.changes if change.action in actions]


# --- what would change ------------------------------------------------------------------------------------------------


async def foreign_namespaces(api: ApiClient) -> frozenset[str]:
    """Kueue's namespace, where it is not of an installation's making."""
    try:
        live = await api.get(NAMESPACES, None, KUEUE_NAMESPACE)
    except NotFound:
        return frozenset()
    ours = (live["metadata"].get("labels") or {}).get(PART_OF) == PRODUCT
    return frozenset() if ours else frozenset({KUEUE_NAMESPACE})


async def plan(api: ApiClient, namespace: str, wanted: Sequence[Json]) -> InstallPlan:
    """Compare the objects with the cluster's. Raises InstallationError or ApiError."""
    await _refuse_helms(api, namespace)
    await _refuse_unserved(api, wanted)
    before = await inventory.read(api, namespace)
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(body: Json) -> ObjectChange:
        async with room:
            return await _compare(api, body)

    found = await asyncio.gather(*(one(body) for body in wanted))
    known = before.made if before else frozenset[ObjectKey]()
    left = sorted(known - {key_of(body) for body in wanted}, key=kind_and_name, reverse=True)
    removed = [ObjectChange("remove", key) for key in left if key.resource not in _KEPT and await _there(api, key)]
    return InstallPlan(namespace, (*found, *removed), before)


async def _refuse_helms(api: ApiClient, namespace: str) -> None:
    try:
        live = await api.get(DEPLOYMENTS, namespace, OPERATOR_NAME)
    except NotFound:
        return
    if (live["metadata"].get("labels") or {}).get(MANAGED_BY) == "Helm":
        release = (live["metadata"].get("annotations") or {}).get("meta.helm.sh/release-name", "gangline")
        raise InstallationError(
            f"{namespace} has an installation by Helm: helm upgrade {release} charts/gangline -n {namespace}"
        )


async def _refuse_unserved(api: ApiClient, wanted: Sequence[Json]) -> None:
    """Kinds of other products that values ask for."""
    for resource in {key_of(body).resource for body in wanted}:
        if resource.group in _OF_OTHERS:
            try:
                await api.list(resource, limit=1)
            except NotFound:
                product = _OF_OTHERS[resource.group]
                raise InstallationError(
                    f"the values ask for a {resource.kind}, but the cluster has no {product}: install it first, or turn that off"
                ) from None


async def _there(api: ApiClient, key: ObjectKey) -> bool:
    try:
        await api.get(key.resource, key.namespace, key.name)
    except NotFound:
        return False
    return True


async def _compare(api: ApiClient, body: Json) -> ObjectChange:
    key = key_of(body)
    try:
        live = await api.get(key.resource, key.namespace, key.name)
    except NotFound:
        return ObjectChange("create", key, body)
    ours = (live["metadata"].get("labels") or {}).get(PART_OF) == PRODUCT
    if not ours and key.resource not in _TAKEN_OVER:
        raise InstallationError(
            f"{kind_and_name(key)} is there already and not Gangline's (no label {PART_OF}={PRODUCT}): remove it first"
        )
    try:
        after = await apply(api, body, dry_run=True)
    except Invalid:
        if key.resource not in _REPLACED:
            raise
        return ObjectChange("replace", key, body)
    fields = tuple(changes(live, after))
    return ObjectChange("keep" if not fields else "change" if ours else "take over", key, body, fields)


async def apply(api: ApiClient, body: Json, *, dry_run: bool = False) -> Json:
    """The object as it is stored, or would be. Raises ApiError."""
    key = key_of(body)
    query = {"fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
    return await api.patch(
        key.resource,
        key.namespace,
        key.name,
        body,
        kind="apply",
        field_manager=FIELD_MANAGER,
        force=True,
        query=query,
    )


# --- the changes ------------------------------------------------------------------------------------------------------


async def carry_out(api: ApiClient, decided: InstallPlan, say: Say) -> None:
    """Carry out a plan. Raises InstallationError or ApiError; the same plan made again goes on from there."""
    changes = decided.changes
    namespaces = [each for each in changes if each.key.resource is NAMESPACES]
    crds = [each for each in changes if each.key.resource is CUSTOM_RESOURCE_DEFINITIONS]
    others = [each for each in changes if each.key.resource not in (NAMESPACES, CUSTOM_RESOURCE_DEFINITIONS)]
    for change in namespaces:
        await _carry_out(api, change, say)
    before = decided.before or Inventory()
    both = before.with_objects((each.key for each in changes), decided.keys("take over"))
    await inventory.write(api, decided.namespace, both)
    if crds:
        await _install_kinds(api, crds, say)
    for change in others:
        await _carry_out(api, change, say)
    gone = frozenset(decided.keys("remove"))
    await inventory.write(api, decided.namespace, Inventory(both.version, both.made - gone, both.adopted))


async def _install_kinds(api: ApiClient, crds: Sequence[ObjectChange], say: Say) -> None:
    """Install the kinds and wait until they are served. Kinds that don't change may still have to be served, after an interrupted
    run.
    """
    try:
        names = await kinds.install_kinds(api, [each.body for each in crds if each.body is not None], namespace=False)
    except kinds.InstallError as error:
        raise InstallationError(str(error)) from error
    if any(each.action != "keep" for each in crds):
        say(f"✓ {len(names)} kinds are served")


async def _carry_out(api: ApiClient, change: ObjectChange, say: Say) -> None:
    if change.action == "keep":
        return
    if change.action in ("remove", "replace"):
        await remove(api, change.key)
    if change.body is not None:
        try:
            await apply(api, change.body)
        except NotFound as error:
            raise InstallationError(
                f"{kind_and_name(change.key)}: the cluster does not serve this kind: {error}"
            ) from error
        except Forbidden as error:
            raise InstallationError(f"{kind_and_name(change.key)}: {error.message}") from error
    say(f"✓ {kind_and_name(change.key)}: {_DONE[change.action]}")


_DONE: Final[dict[Action, str]] = {
    "create": "created",
    "take over": "taken over",
    "change": "changed",
    "replace": "made anew",
    "keep": "as it was",
    "remove": "removed",
}


async def remove(api: ApiClient, key: ObjectKey) -> bool:
    """Remove an object; returns whether it was there. Raises ApiError."""
    try:
        await api.delete(key.resource, key.namespace, key.name, propagation="Background")
    except NotFound:
        return False
    return True
