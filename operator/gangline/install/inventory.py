"""What an installation has made: a ConfigMap that lists the objects, so that the next version removes what it no longer has.

It is written before anything else, with the objects of both versions; what is interrupted is known to whoever goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import gangline
from gangline import bounded
from gangline.install.cluster_kinds import BY_KIND
from gangline.install.manifests.naming import MANAGED_BY, PART_OF, PRODUCT
from gangline.kube.client import ApiClient, NotFound
from gangline.kube.resources import CONFIG_MAPS, Json, ObjectKey

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
