"""Takes an installation off a cluster: first the calls to the webhooks, then the processes, then what they left.

Kinds and their objects stay unless all is to go: queues, workloads and jobs are the users'. Every step may find that it was done
before, so whatever interrupts it, it is run again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gangline.api.schema.kinds import CONVERTED, KINDS, ApiKind
from gangline.install import inventory
from gangline.install.installing import InstallationError, remove
from gangline.install.inventory import BY_KIND, CLAIMS, DEPLOYMENTS, MADE_AT_RUN_TIME, key_of, kind_and_name
from gangline.install.manifests import objects, values
from gangline.install.manifests.tree import (
    KUEUE_NAMESPACE,
    MANAGED_BY,
    OPERATOR,
    OPERATOR_NAME,
    PART_OF,
    PRODUCT,
    UI,
    UI_NAME,
    WEBHOOKS,
    WEBHOOKS_NAME,
)
from gangline.kube.client import ApiClient, ApiError, Conflict, NotFound
from gangline.kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PODS,
    VALIDATING_WEBHOOKS,
    Json,
    ObjectKey,
    Resource,
    deleting,
)
from gangline_webhooks import registration

Say = Callable[[str], None]
Check = Callable[[], Awaitable[bool]]

_OURS: Final = f"{PART_OF}={PRODUCT}"
#: what goes after everything else, if at all
_LAST: Final = (CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES)
_PERIOD: Final = 0.5
_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class Remains:
    """What there is to remove. `objects`: of each kind of ours, how many objects the cluster has."""

    namespace: str
    keys: tuple[ObjectKey, ...]
    adopted: frozenset[ObjectKey]
    objects: dict[str, int]

    @property
    def removed(self) -> list[ObjectKey]:
        """The objects that go, kinds and namespaces left out."""
        return [key for key in self.keys if key.resource not in _LAST and key not in self.adopted]

    def nothing_to_do(self, *, everything: bool) -> bool:
        return not self.removed and not (everything and self.objects)


async def look(api: ApiClient, namespace: str) -> Remains:
    """Find out what there is to remove. Raises InstallationError for an installation by Helm, and ApiError."""
    try:
        live = await api.get(DEPLOYMENTS, namespace, OPERATOR_NAME)
        if (live["metadata"].get("labels") or {}).get(MANAGED_BY) == "Helm":
            raise InstallationError(f"{namespace} has an installation by Helm: helm uninstall, in that namespace")
    except NotFound:
        pass
    noted = await inventory.read(api, namespace) or inventory.Inventory()
    usual = {key_of(body) for body in objects.plain(values.defaults(), namespace)}
    labelled = {key for key in usual - noted.made - noted.adopted if await _ours(api, key)}
    there = {key for key in noted.made if await _live(api, key) is not None} | labelled
    at_run_time = set(await _made_at_run_time(api, namespace))
    counts = {kind.name: await _count(api, resource) for kind, resource in _kinds()}
    return Remains(
        namespace,
        tuple(sorted(there | at_run_time, key=kind_and_name)),
        noted.adopted,
        {name: count for name, count in counts.items() if count is not None},
    )


async def take_off(api: ApiClient, found: Remains, *, everything: bool, seconds: float, say: Say) -> None:
    """Remove what was found, also kinds with all their objects if `everything`. Raises InstallationError where something is left
    after so many seconds, and ApiError.
    """
    deadline = time.monotonic() + seconds
    if everything and await _inhabited(api, KUEUE_NAMESPACE):
        raise InstallationError(f"Kueue is in {KUEUE_NAMESPACE}, and the kinds are its own, too: leave out --all")
    await _unregister(api)
    say("✓ API servers call the webhooks no more")
    components = ((UI_NAME, UI), (OPERATOR_NAME, OPERATOR), (WEBHOOKS_NAME, WEBHOOKS))
    for name, _ in components:
        await remove(api, ObjectKey(DEPLOYMENTS, found.namespace, name))
    for name, component in components:
        await _until(deadline, f"pods of {name} end", _pods_gone(api, found.namespace, component))
    await _unregister(api)  # a process that was about to end may have registered once more
    say("✓ operator and webhooks have ended")
    if everything:
        await _remove_kinds(api, deadline, say)
    else:
        await _free(api, being_deleted_only=True)
    kept = frozenset[ObjectKey]() if everything else frozenset(key for key in found.keys if key.resource is CLAIMS)
    await _remove_rest(api, found, kept)
    await asyncio.gather(*(_disown(api, key) for key in found.adopted))
    await _remove_namespaces(api, found, {key.namespace for key in kept}, deadline)
    # what says which objects were others' goes last
    await remove(api, ObjectKey(BY_KIND["ConfigMap"], found.namespace, inventory.NAME))
    left = ["kinds and their objects", *map(kind_and_name, sorted(kept, key=kind_and_name))]
    say("✓ nothing is left" if everything else f"✓ nothing is left but {', '.join(left)}")


# --- webhooks ---------------------------------------------------------------------------------------------------------


async def _unregister(api: ApiClient) -> None:
    """Stored objects are read without the webhooks from now on."""
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        await remove(api, ObjectKey(resource, "", registration.NAME))
    for kind in CONVERTED:
        try:
            live = await api.get(CUSTOM_RESOURCE_DEFINITIONS, None, kind.name)
            if (live["spec"].get("conversion") or {}).get("strategy") == "Webhook" and _is_ours(live):
                unconverted = [{"op": "replace", "path": "/spec/conversion", "value": {"strategy": "None"}}]
                await api.patch(CUSTOM_RESOURCE_DEFINITIONS, None, kind.name, unconverted, kind="json")
        except NotFound:
            continue


def _is_ours(crd: Json) -> bool:
    """Whether the CRD's conversion goes to our webhooks, not to Kueue's."""
    config: Json = (crd["spec"]["conversion"].get("webhook") or {}).get("clientConfig") or {}
    service: Json = config.get("service") or {}
    return service.get("name", WEBHOOKS_NAME) == WEBHOOKS_NAME


# --- kinds and their objects ------------------------------------------------------------------------------------------


def _kinds() -> list[tuple[ApiKind, Resource]]:
    return [
        (kind, Resource(kind.group, kind.versions[-1].name, kind.plural, kind.namespaced, kind.kind)) for kind in KINDS
    ]


async def _remove_kinds(api: ApiClient, deadline: float, say: Say) -> None:
    """Remove the kinds with all their objects. Nobody is left to take off finalizers, so that is done here, also of objects that
    come late.
    """
    await asyncio.gather(*(remove(api, ObjectKey(CUSTOM_RESOURCE_DEFINITIONS, "", kind.name)) for kind in KINDS))

    async def gone() -> bool:
        await _free(api, being_deleted_only=False)
        return not [kind for kind in KINDS if await _live(api, ObjectKey(CUSTOM_RESOURCE_DEFINITIONS, "", kind.name))]

    await _until(deadline, "the kinds are removed", gone)
    say(f"✓ {len(KINDS)} kinds are removed, with all their objects")


async def _free(api: ApiClient, *, being_deleted_only: bool) -> None:
    """Take the finalizers off objects, which only the operator would take off."""
    for _, resource in _kinds():
        try:
            async for page in api.pages(resource, limit=_PAGE):
                for obj in page.items:
                    if obj["metadata"].get("finalizers") and (deleting(obj) or not being_deleted_only):
                        await _unfinalize(api, resource, obj)
        except NotFound:
            continue


async def _unfinalize(api: ApiClient, resource: Resource, obj: Json) -> None:
    meta = obj["metadata"]
    try:
        body = {"metadata": {"finalizers": None}}
        await api.patch(resource, meta.get("namespace"), meta["name"], body)
    except (NotFound, Conflict):
        return


async def _count(api: ApiClient, resource: Resource) -> int | None:
    """The number of objects of a kind; None where the kind is not served."""
    count = 0
    try:
        async for page in api.pages(resource, limit=_PAGE):
            count += len(page.items)
    except NotFound:
        return None
    return count


# --- the rest ---------------------------------------------------------------------------------------------------------


async def _made_at_run_time(api: ApiClient, namespace: str) -> list[ObjectKey]:
    """What operator and webhooks made, by its label; in no other namespace than the installation's."""
    found: list[ObjectKey] = []
    for resource in (*MADE_AT_RUN_TIME, *(BY_KIND[kind] for kind in ("ConfigMap", "Service"))):
        try:
            listed = await api.list(resource, namespace if resource.namespaced else None, label_selector=_OURS)
        except NotFound:  # an API server without policies
            continue
        found += (ObjectKey.of(resource, obj) for obj in listed.items)
    return found


async def _remove_rest(api: ApiClient, found: Remains, kept: frozenset[ObjectKey]) -> None:
    again = await _made_at_run_time(api, found.namespace)
    keys = {key for key in (*found.removed, *again) if key.name != inventory.NAME}
    await asyncio.gather(*(remove(api, key) for key in keys - kept))


async def _remove_namespaces(api: ApiClient, found: Remains, kept: set[str], deadline: float) -> None:
    """Remove the namespaces that the installation made and nothing is kept in; Kueue's only without anything else in it."""
    going: list[ObjectKey] = []
    for name in (KUEUE_NAMESPACE, found.namespace):
        key = ObjectKey(NAMESPACES, "", name)
        if name in kept or key in found.adopted or not await _ours(api, key):
            continue
        if name == KUEUE_NAMESPACE and await _inhabited(api, name):
            continue
        await remove(api, key)
        going.append(key)
    for key in going:
        await _until(deadline, f"namespace {key.name} is removed", _gone(api, key))


async def _disown(api: ApiClient, key: ObjectKey) -> None:
    """An object that was there before is no part of Gangline any more."""
    try:
        labels = {PART_OF: None, MANAGED_BY: None}
        await api.patch(key.resource, key.namespace, key.name, {"metadata": {"labels": labels}})
    except NotFound:
        return


async def _inhabited(api: ApiClient, namespace: str) -> bool:
    """Deployments or pods that are not ours."""
    for resource in (DEPLOYMENTS, PODS):
        listed: Sequence[Json] = (await api.list(resource, namespace, label_selector=f"{PART_OF}!={PRODUCT}")).items
        if listed:
            return True
    leases = (await api.list(LEASES, namespace)).items
    return any("gangline" not in ((lease.get("spec") or {}).get("holderIdentity") or "gangline") for lease in leases)


async def _live(api: ApiClient, key: ObjectKey) -> Json | None:
    try:
        return await api.get(key.resource, key.namespace, key.name)
    except NotFound:
        return None


async def _ours(api: ApiClient, key: ObjectKey) -> bool:
    live = await _live(api, key)
    return live is not None and (live["metadata"].get("labels") or {}).get(PART_OF) == PRODUCT


def _gone(api: ApiClient, key: ObjectKey):
    async def gone() -> bool:
        return await _live(api, key) is None

    return gone


def _pods_gone(api: ApiClient, namespace: str, component: str):
    async def gone() -> bool:
        selector = f"app.kubernetes.io/name={PRODUCT},app.kubernetes.io/component={component}"
        return not (await api.list(PODS, namespace, label_selector=selector)).items

    return gone


async def _until(deadline: float, what: str, condition) -> None:
    while True:
        try:
            if await condition():
                return
        except ApiError as error:
            if not error.retryable:
                raise
        if time.monotonic() > deadline:
            raise InstallationError(f"not in time: {what}. Run the same command again, it goes on from there")
        await asyncio.sleep(_PERIOD)
