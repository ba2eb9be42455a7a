"""Keeps the registration at the API server correct: reads it, and writes only differences."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import cast

from gangline.api.convert.conversion import CONVERTED
from gangline.kube.client import ApiClient, Conflict, NotFound, Resource
from gangline.kube.resources import (
    BY_KIND,
    CUSTOM_RESOURCE_DEFINITIONS,
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    Json,
)
from gangline_webhooks import registration
from gangline_webhooks.registration import Endpoint

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Registrar:
    """Registers the webhooks. `inject_from` (cert-manager's `namespace/name` of a Certificate): CA bundles are injected by
    cert-manager.
    """

    client: ApiClient
    endpoint: Endpoint
    inject_from: str = ""

    async def ensure(self, bundle: bytes | None) -> list[str]:
        """Register, or correct the registration. Returns the CRDs that are not installed (yet). Raises ApiError."""
        for resource, wanted in registration.configurations(self.endpoint, bundle, self.inject_from).items():
            await self._ensure_configuration(resource, wanted)
        wanted = registration.conversion(self.endpoint, bundle)
        names = [f"{resource.plural}.{resource.group}" for resource in map(BY_KIND.__getitem__, CONVERTED)]
        return [name for name in names if not await self._ensure_conversion(name, wanted)]

    async def remove(self) -> None:
        """Remove the webhooks; conversion stays, since stored objects cannot be read without it."""
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
            try:
                await self.client.delete(resource, None, registration.NAME)
            except NotFound:
                continue

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

    async def _ensure_conversion(self, crd: str, wanted: Json) -> bool:
        try:
            live = await self.client.get(CUSTOM_RESOURCE_DEFINITIONS, None, crd)
        except NotFound:
            return False
        current = live["spec"].get("conversion") or {}
        if contains(current, wanted):
            return True
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
        return True


def contains(live: object, wanted: object) -> bool:
    """Whether `live` has all values of `wanted`; additions of the API server do not matter."""
    if isinstance(wanted, dict):
        if not isinstance(live, dict):
            return False
        have = cast(Json, live)
        return all(key in have and contains(have[key], value) for key, value in cast(Json, wanted).items())
    if isinstance(wanted, list):
        if not isinstance(live, list) or len(live) != len(cast("list[object]", wanted)):
            return False
        return all(map(contains, cast("list[object]", live), cast("list[object]", wanted)))
    return live == wanted


def _keep_bundles(live: Json, wanted: Json) -> None:
    """If we publish no bundle, the injected one must survive our write."""
    held = {
        webhook["name"]: webhook["clientConfig"]["caBundle"]
        for webhook in live.get("webhooks") or []
        if webhook.get("clientConfig", {}).get("caBundle")
    }
    for webhook in wanted["webhooks"]:
        config = webhook["clientConfig"]
        if "caBundle" not in config and webhook["name"] in held:
            webhook["clientConfig"] = {**config, "caBundle": held[webhook["name"]]}
