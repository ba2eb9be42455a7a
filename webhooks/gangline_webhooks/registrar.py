"""Keeps the registration at the API server correct: reads it, and writes only differences."""

from __future__ import annotations

import asyncio
import base64
import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from gangline.api import names
from gangline.api.convert.conversion import CONVERTED
from gangline.api.read.configuration.managed_jobs import EVERY_QUEUED, ManagedJobs
from gangline.bounded import whole
from gangline.kube import ownership
from gangline.kube.client import ApiClient, Conflict, NotFound, Resource
from gangline.kube.ownership import owned_by
from gangline.kube.resources import BY_KIND, CUSTOM_RESOURCE_DEFINITIONS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Json
from gangline.tls import certificates
from gangline_webhooks import registration, unqueued_kinds
from gangline_webhooks.comparison import contains
from gangline_webhooks.registration import Endpoint

# --- withdrawal -------------------------------------------------------------------------------------------------------
#
# Takes the webhooks out of a cluster for good, as an uninstallation does: `gangline admin webhooks --unregister`.
#
# Webhook processes may still run then, and would register themselves again. So a mark with the time stays on the CRDs:
# processes that were started before it leave the cluster alone.


log = logging.getLogger(__name__)

#: how long the mark counts, since clocks differ: until then the processes should have ended
COUNTS: Final = timedelta(minutes=2)
#: seconds until a registration that was under way meanwhile is removed, too
UNDER_WAY: Final = 1.0
#: the CRDs that the webhooks convert
CRDS: Final = tuple(f"{resource.plural}.{resource.group}" for resource in map(BY_KIND.__getitem__, CONVERTED))


async def withdraw(client: ApiClient, endpoint: Endpoint, now: datetime | None = None) -> None:
    """Set the conversion of the CRDs to None where it leads to these webhooks, and delete the webhook configurations.

    Kueue's CRDs with Kueue's own conversion stay as they are. Raises ApiError.
    """
    mark = str(_millis(now or datetime.now(UTC)))
    for name in CRDS:
        try:
            crd = await client.get(CUSTOM_RESOURCE_DEFINITIONS, None, name)
        except NotFound:
            continue
        change: Json = {"metadata": {"annotations": {names.WEBHOOKS_WITHDRAWN: mark}}}
        if registration.is_ours(crd["spec"].get("conversion") or {}, endpoint):
            change["spec"] = {"conversion": {"strategy": "None", "webhook": None}}
            log.info("%s: no conversion any more", name)
        await client.patch(CUSTOM_RESOURCE_DEFINITIONS, None, name, change)
    await remove(client)
    await asyncio.sleep(UNDER_WAY)
    await remove(client)


async def remove(client: ApiClient) -> None:
    """Delete the webhook configurations. Raises ApiError."""
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        try:
            await client.delete(resource, None, registration.NAME)
        except NotFound:
            continue
        log.info("removed %s", resource)
    await unqueued_kinds.remove(client)


def was_withdrawn(crd: Json, since: datetime, now: datetime) -> bool:
    """Whether the webhooks were withdrawn after `since`, and not long before `now`."""
    mark = whole((crd["metadata"].get("annotations") or {}).get(names.WEBHOOKS_WITHDRAWN))
    return mark is not None and _millis(since) < mark and _millis(now - COUNTS) < mark


def _millis(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


class WithdrawnError(Exception):
    """The webhooks were withdrawn from the cluster while this process ran."""


@dataclass(frozen=True, slots=True)
class Registrar:
    """Registers the webhooks. `inject_from` (cert-manager's `namespace/name` of a Certificate): CA bundles are injected by
    cert-manager.
    """

    client: ApiClient
    endpoint: Endpoint
    inject_from: str = ""
    #: which jobs are managed
    managed: ManagedJobs = EVERY_QUEUED
    #: when this process was started: it leaves the cluster alone once the webhooks were withdrawn
    started: datetime = field(default_factory=lambda: datetime.now(UTC))

    async def ensure(self, bundle: bytes | None) -> list[str]:
        """Register, or correct the registration. Returns the CRDs that are not installed (yet). Raises ApiError, and
        WithdrawnError.
        """
        crds = {name: await self._crd(name) for name in CRDS}
        now = datetime.now(UTC)
        if any(crd is not None and was_withdrawn(crd, self.started, now) for crd in crds.values()):
            raise WithdrawnError("the webhooks were withdrawn: only processes started later register again")
        owned = await owned_by(self.client, ownership.WEBHOOKS)
        registered = registration.configurations(
            self.endpoint, bundle, self.inject_from, pods=registration.GatedPods.of(self.managed)
        )
        if self.managed.without_queue:
            registered = registration.requiring_every_job(registered)
        for resource, wanted in registered.items():
            await self._ensure_configuration(resource, {**wanted, "metadata": {**wanted["metadata"], **owned}})
        await unqueued_kinds.ensure(self.client, self.managed)
        wanted = registration.conversion(self.endpoint, bundle)
        for name, crd in crds.items():
            if crd is not None:
                await self._ensure_conversion(name, crd, wanted)
        return [name for name, crd in crds.items() if crd is None]

    async def trusts(self, chain: bytes) -> bool:
        """Whether API servers accept this certificate: the registered CAs vouch for it. Raises ApiError."""
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
            live = await self.client.get(resource, None, registration.NAME)
            for webhook in live.get("webhooks") or []:
                bundle = base64.b64decode(webhook["clientConfig"].get("caBundle") or "")
                if not certificates.trusted(chain, bundle):
                    return False
        for name in CRDS:
            crd = await self._crd(name)
            # a CRD that was created since has no conversion yet
            conversion = crd["spec"].get("conversion") or {} if crd is not None else {}
            config = (conversion.get("webhook") or {}).get("clientConfig") or {}
            if crd is not None and not certificates.trusted(chain, base64.b64decode(config.get("caBundle") or "")):
                return False
        return True

    async def _crd(self, name: str) -> Json | None:
        try:
            return await self.client.get(CUSTOM_RESOURCE_DEFINITIONS, None, name)
        except NotFound:
            return None

    async def _ensure_configuration(self, resource: Resource, wanted: Json) -> None:
        try:
            live = await self.client.get(resource, None, registration.NAME)
        except NotFound:
            try:
                await self.client.create(resource, None, wanted)
            except Conflict:  # another replica created it; the next round checks it
                return
            log.info("registered %s", resource)
            return
        if contains(live, wanted):
            return
        _keep_bundles(live, wanted)
        meta = {
            **live["metadata"],
            **{key: value for key, value in wanted["metadata"].items() if key == "ownerReferences"},
            "labels": {**(live["metadata"].get("labels") or {}), **wanted["metadata"]["labels"]},
        }
        notes = {**(live["metadata"].get("annotations") or {}), **wanted["metadata"].get("annotations", {})}
        try:
            await self.client.replace(
                resource, None, registration.NAME, {**wanted, "metadata": {**meta, "annotations": notes}}
            )
        except Conflict:
            return
        log.info("updated %s", resource)

    async def _ensure_conversion(self, crd: str, live: Json, wanted: Json) -> None:
        current = live["spec"].get("conversion") or {}
        if contains(current, wanted):
            return
        webhook = wanted["webhook"]
        if "caBundle" not in webhook["clientConfig"]:
            held = (current.get("webhook") or {}).get("clientConfig", {}).get("caBundle")
            kept = {**webhook["clientConfig"], **({"caBundle": held} if held else {})}
            wanted = {**wanted, "webhook": {**webhook, "clientConfig": kept}}
        change = [{"op": "add", "path": "/spec/conversion", "value": wanted}]
        if self.inject_from:
            body = {"metadata": {"annotations": {"cert-manager.io/inject-ca-from": self.inject_from}}}
            await self.client.patch(CUSTOM_RESOURCE_DEFINITIONS, None, crd, body)
        await self.client.patch(CUSTOM_RESOURCE_DEFINITIONS, None, crd, change, kind="json")
        log.info("conversion of %s goes through the webhooks", crd)


def _keep_bundles(live: Json, wanted: Json) -> None:
    """Keep the injected CA bundles where we publish none: they must survive our write."""
    held = {
        webhook["name"]: webhook["clientConfig"]["caBundle"]
        for webhook in live.get("webhooks") or []
        if webhook.get("clientConfig", {}).get("caBundle")
    }
    for webhook in wanted["webhooks"]:
        config = webhook["clientConfig"]
        if "caBundle" not in config and webhook["name"] in held:
            webhook["clientConfig"] = {**config, "caBundle": held[webhook["name"]]}
