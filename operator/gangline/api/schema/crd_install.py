"""The CRDs for an installer, straight from the models."""

from __future__ import annotations

from gangline.api.schema import crdgen
from gangline.api.schema.json_schema import Json
from gangline.api.schema.kinds import CONVERTED, KINDS


def crds(conversion: Json | None = None) -> list[Json]:
    """All CRDs as JSON objects.

    `conversion` is the clientConfig of the conversion webhook (caBundle plus `service` or `url`). Without it kinds with two
    differing versions are not converted: good for checking schemas, wrong for serving both versions.
    """
    return [
        crdgen.with_conversion(kind.crd(), conversion) if conversion and kind in CONVERTED else kind.crd()
        for kind in KINDS
    ]


def files() -> dict[str, str]:
    """File name -> YAML text, as kept under crds/."""
    return crdgen.files(KINDS)
