"""The finalizer that keeps a ClusterQueue or ResourceFlavor while it is in use."""

from __future__ import annotations

from gangline.api import names
from gangline.api.admission.findings import Json, fill, listing


def keep_while_in_use(obj: Json, old: Json | None) -> None:
    """Set the finalizer at creation; a later removal is respected."""
    if old is not None:
        return
    meta = fill(obj, "metadata")
    if meta is None or names.IN_USE_FINALIZER in listing(meta.get("finalizers")):
        return
    meta["finalizers"] = [*listing(meta.get("finalizers")), names.IN_USE_FINALIZER]
