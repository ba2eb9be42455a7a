"""The ConfigMap that an installation's operator and webhooks read when they start."""

from __future__ import annotations

from typing import Final

from gangline.api import names
from gangline.api.read.configuration import Configuration, ConfigurationError, load, parse
from gangline.console.doctor.cluster import ClusterReads
from gangline.console.doctor.examination import Findings
from gangline.console.doctor.finding import failure, ok, some, warning
from gangline.install.manifests.workloads import CONFIGURATION
from gangline.kube import resources as kube

_WHERE: Final = f"ConfigMap {names.SYSTEM_NAMESPACE}/{CONFIGURATION}"


async def stored(cluster: ClusterReads) -> Configuration | None:
    """The configuration of the operator in its ConfigMap; None without the ConfigMap. Raises ConfigurationError."""
    found = await cluster.get(kube.CONFIG_MAPS, names.SYSTEM_NAMESPACE, CONFIGURATION)
    return load(parse((found.get("data") or {}).get("config.yaml") or "")) if found is not None else None


async def configuration(cluster: ClusterReads) -> Findings:
    try:
        chosen = await stored(cluster)
    except ConfigurationError as error:
        yield failure(f"{_WHERE}: {error}", "operator and webhooks do not start with it: correct the field")
        return
    if chosen is None:
        yield ok(f"there is no {_WHERE}: the processes have a file of their own, or none")
        return
    yield ok(f"{_WHERE} is read as Kueue {chosen.version} reads it")
    if chosen.ignored:
        yield warning(f"without effect: {some(chosen.ignored)}", "see docs/kueue-compatibility.md", chosen.ignored)
    for text in chosen.warnings:
        yield warning(text, "see docs/kueue-compatibility.md")
