"""A dashboard for Grafana: what waits, what runs, how fast it is decided, what heals, what is wrong."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from gangline.install.manifests.naming import head
from gangline.install.manifests.tree import Document, Set, Spread
from gangline.kube.resources import Json

_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT = 8, 8
#: standbys show the same gauges
_LEADING: Final = 'replica_role!="follower"'


@dataclass(frozen=True, slots=True)
class Panel:
    """A chart: its title, its unit as Grafana names it, and expressions of PromQL with their legends."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]


def _percentile(share: str, metric: str, by: str = "le") -> str:
    return f"histogram_quantile({share}, sum by ({by}) (rate({metric}_bucket[$__rate_interval])))"


PANELS: Final = (
    Panel(
        "Waiting workloads",
        "short",
        ((f"sum by (cluster_queue, status) (kueue_pending_workloads{{{_LEADING}}})", "{{cluster_queue}} {{status}}"),),
    ),
    Panel(
        "Admitted workloads",
        "short",
        ((f"sum by (cluster_queue) (kueue_admitted_active_workloads{{{_LEADING}}})", "{{cluster_queue}}"),),
    ),
    Panel(
        "Admissions per minute",
        "short",
        (
            (
                "sum by (cluster_queue) (rate(kueue_admitted_workloads_total[$__rate_interval])) * 60",
                "{{cluster_queue}}",
            ),
        ),
    ),
    Panel(
        "Wait for admission, 90 %",
        "s",
        ((_percentile("0.9", "kueue_admission_wait_time_seconds", "le, cluster_queue"), "{{cluster_queue}}"),),
    ),
    Panel(
        "Evictions per hour",
        "short",
        (("sum by (reason) (rate(kueue_evicted_workloads_total[$__rate_interval])) * 3600", "{{reason}}"),),
    ),
    Panel(
        "Heads delayed by others, seconds per hour",
        "s",
        (
            (
                "sum by (cluster_queue, cause) (rate(gangline_head_delay_seconds_total[$__rate_interval])) * 3600",
                "{{cluster_queue}} {{cause}}",
            ),
        ),
    ),
    Panel(
        "Recovery after lost nodes, 90 %",
        "s",
        (
            (_percentile("0.9", "gangline_recovery_seconds"), "whole"),
            (_percentile("0.9", "gangline_swap_seconds", "le, stage"), "{{stage}}"),
        ),
    ),
    Panel(
        "Jobs that hang or overrun, per hour",
        "short",
        (
            ("sum by (action) (rate(gangline_stalled_total[$__rate_interval])) * 3600", "hang: {{action}}"),
            ("sum by (state) (rate(gangline_overrun_total[$__rate_interval])) * 3600", "overrun: {{state}}"),
        ),
    ),
    Panel(
        "Forecasts: share of runs within their quantile",
        "percentunit",
        (
            (
                "sum by (quantile) (rate(gangline_forecast_covered_total[6h]))"
                " / on () group_left () sum(rate(gangline_forecast_finished_total[6h]))",
                "{{quantile}}",
            ),
        ),
    ),
    Panel(
        "A round of deciding",
        "s",
        (
            (_percentile("0.5", "gangline_decide_seconds"), "50 %"),
            (_percentile("0.99", "gangline_decide_seconds"), "99 %"),
        ),
    ),
    Panel(
        "Writes",
        "reqps",
        (("sum by (outcome) (rate(gangline_writes_total[$__rate_interval]))", "{{outcome}}"),),
    ),
    Panel(
        "Leaders, and objects that can't be handled",
        "short",
        (
            ("sum(gangline_leader)", "leaders"),
            ("sum by (kind) (gangline_quarantined_objects)", "quarantined {{kind}}"),
            ("sum by (kind) (rate(gangline_object_failures_total[$__rate_interval]))", "failures/s {{kind}}"),
        ),
    ),
)


def documents() -> list[Document]:
    body = {
        **head("v1", "ConfigMap", "gangline-dashboard", labels={Spread("monitoring.dashboard.labels"): None}),
        "data": {"gangline.json": json.dumps(model(), indent=1)},
    }
    return [Document("dashboard.yaml", body, Set("monitoring.dashboard.enabled"))]


def model() -> Json:
    """The dashboard as Grafana imports it."""
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    return {
        "uid": "gangline",
        "title": "Gangline",
        "tags": ["gangline", "kueue"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source]},
        "panels": [_panel(number, panel) for number, panel in enumerate(PANELS)],
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(number, 24 // _WIDTH)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": _SOURCE, "expr": expression, "legendFormat": legend}
            for index, (expression, legend) in enumerate(panel.queries)
        ],
    }
