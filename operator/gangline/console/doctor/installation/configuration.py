"""The ConfigMap that an installation's operator and webhooks read when they start."""

from __future__ import annotations

from gangline.api import names
from gangline.api.read.configuration import ConfigurationError, load, parse
from gangline.console.doctor.cluster import Cluster
from gangline.console.doctor.examination import Findings
from gangline.console.doctor.finding import failure, ok, some, warning
from gangline.install.manifests.workloads import CONFIGURATION
from gangline.kube import resources as kube


async def configuration(cluster: Cluster) -> Findings:
    where = f"ConfigMap {names.SYSTEM_NAMESPACE}/{CONFIGURATION}"
    found = await cluster.get(kube.CONFIG_MAPS, names.SYSTEM_NAMESPACE, CONFIGURATION)
    if found is None:
        yield ok(f"there is no {where}: the processes have a file of their own, or none")
        return
    try:
        chosen = load(parse((found.get("data") or {}).get("config.yaml") or ""))
    except ConfigurationError as error:
        yield failure(f"{where}: {error}", "operator and webhooks do not start with it: correct the field")
        return
    yield ok(f"{where} is read as Kueue {chosen.version} reads it")
    if chosen.ignored:
        yield warning(f"without effect: {some(chosen.ignored)}", "see docs/kueue-compatibility.md", chosen.ignored)
    for text in chosen.warnings:
        yield warning(text, "see docs/kueue-compatibility.md")
