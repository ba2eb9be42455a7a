"""Takes the webhooks out of a cluster for good, as an uninstallation does: `gangline admin webhooks --unregister`.

Webhook processes may still run then, and would register themselves again. So a mark with the time stays on the CRDs: processes
that were started before it leave the cluster alone.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Final

from gangline.api import names
from gangline.api.convert.conversion import CONVERTED
from gangline.bounded import whole
from gangline.kube.client import ApiClient, NotFound
from gangline.kube.resources import (
    BY_KIND,
    CUSTOM_RESOURCE_DEFINITIONS,
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    Json,
)
from gangline_webhooks import registration, unqueued_kinds
from gangline_webhooks.registration import Endpoint

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
