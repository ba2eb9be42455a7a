"""Checks of the surroundings of Kueue: alerts on its metrics, its visibility API."""

from __future__ import annotations

import json
import re
from typing import Final

from gangline import bounded
from gangline.console.doctor.cluster import ClusterReads, ok, some, warning
from gangline.console.doctor.examination import Findings
from gangline.control.answers.api import api_service, discovery
from gangline.control.answers.workloads.words import counted
from gangline.control.metrics.kueue_table import TABLE
from gangline.install import inventory

_METRIC: Final = re.compile(r"\bkueue_[a-z_]+")
#: endings that a histogram's or a counter's series has beyond the metric's name
_SERIES: Final = ("_bucket", "_count", "_sum", "_total")


async def metrics(cluster: ClusterReads) -> Findings:
    """Alerts and recorded series that use metrics of Kueue which Gangline does not have."""
    rules = await cluster.list(inventory.RULES)
    known = {name for metric in TABLE.values() if not metric.absent for name in (metric.name, _family(metric.name))}
    used = {name for rule in rules for name in _metrics_in(json.dumps(rule.get("spec") or {}))}
    absent = sorted({name for name in used if _family(name) not in known and name not in known})
    if absent:
        detail = f"PrometheusRules use {counted(len(absent), 'metric')} that Gangline does not have: {some(absent)}"
        yield warning(detail, "change these rules", absent)
    elif used:
        yield ok(f"all {counted(len(used), 'metric')} in PrometheusRules are there")
    else:
        yield ok("no PrometheusRule uses Kueue's metrics")


@bounded.parser(1_048_576, instead=frozenset(), worst=("kueue_", "kueue_a"))
def _metrics_in(text: str) -> frozenset[str]:
    return frozenset(_METRIC.findall(text))


def _family(name: str) -> str:
    return next((name.removesuffix(ending) for ending in _SERIES if name.endswith(ending)), name)


async def visibility(cluster: ClusterReads) -> Findings:
    for version in discovery.VISIBILITY.versions:
        found = await cluster.get(api_service.API_SERVICES, None, f"{version}.{discovery.VISIBILITY.name}")
        service = ((found or {}).get("spec") or {}).get("service") or {}
        if found is None:
            yield ok(f"{version} is not registered")
        else:
            where = f"{service.get('namespace')}/{service.get('name')}"
            yield ok(
                f"{version} leads to {where} now; the operator takes it over with --visibility-listen, or POD_IP in a pod"
            )
