"""What Prometheus scrapes, and the alerts that follow: each is about something that a person has to do."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from gangline.install.manifests.tree import (
    OPERATOR,
    OPERATOR_NAME,
    Document,
    FormattedText,
    Not,
    Set,
    Spread,
    Value,
    When,
    head,
    selector,
)
from gangline.kube.resources import Json

_API: Final = "monitoring.coreos.com/v1"
_SECURE: Final = Set("metrics.secure")
_PLAIN: Final = Not(_SECURE)
_RUNBOOKS: Final = Value("monitoring.rules.runbooks")
_WITH_RUNBOOKS: Final = Set("monitoring.rules.runbooks")
#: the webhooks' names in the metrics of the API server
_OURS: Final = 'name=~".+[.]gangline[.]io"'
#: standbys show the same gauges
_LEADING: Final = 'replica_role!="follower"'
#: outcomes of writes that are part of every day; the others are errors
_USUAL: Final = "done|skipped|replaced|retried|aborted|Conflict|NotFound"


@dataclass(frozen=True, slots=True)
class Alert:
    """An expression of PromQL that has to hold for some time; `text` says what it means and what to look at."""

    name: str
    expression: str
    lasting: str
    severity: str
    summary: str
    text: str

    @property
    def runbook(self) -> str:
        """The section about it on the site of `make docs`."""
        return f"alerts.html#{self.name.lower()}"


ALERTS: Final = (
    Alert(
        "GanglineNoLeader",
        "(sum(gangline_leader) or vector(0)) < 1",
        "2m",
        "critical",
        "No operator leads: no job is admitted, none is healed.",
        "kubectl get pods -l app.kubernetes.io/component=operator; a Kueue that holds the Lease is a reason, too.",
    ),
    Alert(
        "GanglineTwoLeaders",
        "sum(gangline_leader) > 1",
        "1m",
        "critical",
        "Two operators lead at once.",
        "The two operators have different Leases: compare leaderElection in their configurations.",
    ),
    Alert(
        "GanglineAdmissionStalled",
        f'sum by (cluster_queue) (kueue_pending_workloads{{status="active",{_LEADING}}}) > 0'
        f" and on (cluster_queue) sum by (cluster_queue) (kueue_reserving_active_workloads{{{_LEADING}}}) == 0"
        f' and on (cluster_queue) max by (cluster_queue) (kueue_cluster_queue_status{{status="active",{_LEADING}}}) == 1',
        "30m",
        "warning",
        "ClusterQueue {{ $labels.cluster_queue }} holds nothing, and still its workloads wait.",
        "kubectl gangline why JOB says what the first of them waits for.",
    ),
    Alert(
        "GanglineDecidesSlowly",
        "histogram_quantile(0.99, sum by (le) (rate(gangline_decide_seconds_bucket[10m]))) > 0.9",
        "15m",
        "warning",
        "A round of deciding takes {{ $value | humanizeDuration }}.",
        "Does the operator's pod get the CPU that it wants?",
    ),
    Alert(
        "GanglineQuarantine",
        "sum by (kind) (gangline_quarantined_objects) > 0",
        "15m",
        "warning",
        "{{ $value }} {{ $labels.kind }} can't be handled and are left out.",
        "kubectl get events -A --field-selector reason=Misconfigured names the fields.",
    ),
    Alert(
        "GanglineObjectFailures",
        "sum by (stage, kind) (rate(gangline_object_failures_total[10m])) > 0.1",
        "15m",
        "warning",
        "{{ $labels.kind }} fail again and again ({{ $labels.stage }}).",
        "The operator's log has the reason.",
    ),
    Alert(
        "GanglineWritesFail",
        f'sum(rate(gangline_writes_total{{outcome!~"{_USUAL}"}}[10m])) / sum(rate(gangline_writes_total[10m])) > 0.05',
        "15m",
        "warning",
        "{{ $value | humanizePercentage }} of the operator's writes fail.",
        "Rights (`gangline admin rbac`), webhooks of others and the API server's health are the usual reasons.",
    ),
    Alert(
        "GanglineWebhookErrors",
        f'sum(rate(apiserver_admission_webhook_rejection_count{{{_OURS},error_type="calling_webhook_error"}}[5m])) > 0'
        f" or sum(rate(apiserver_admission_webhook_fail_open_count{{{_OURS}}}[5m])) > 0",
        "5m",
        "critical",
        "API servers can't reach the webhooks: jobs with a queue are refused.",
        "kubectl get pods -l app.kubernetes.io/component=webhooks; certificates and NetworkPolicies are reasons, too.",
    ),
    Alert(
        "GanglineWebhooksSlow",
        "histogram_quantile(0.99, sum by (le) "
        f"(rate(apiserver_admission_webhook_admission_duration_seconds_bucket{{{_OURS}}}[5m]))) > 1",
        "10m",
        "warning",
        "The webhooks take {{ $value | humanizeDuration }}.",
        "More replicas, or more CPU.",
    ),
    Alert(
        "GanglineHeadDelayed",
        'sum by (cluster_queue) (increase(gangline_head_delay_seconds_total{cause="backfill"}[1h])) > 60',
        "0m",
        "warning",
        "Backfilled jobs that overrun delayed the head of {{ $labels.cluster_queue }} by {{ $value | humanizeDuration }}.",
        "QueuePolicy spec.backfill.revoke: Overdue stops them.",
    ),
    Alert(
        "GanglineJobsHang",
        "sum(increase(gangline_stalled_total[1h])) > 5",
        "0m",
        "warning",
        "{{ $value | humanize }} jobs were found to hang within an hour.",
        "That many at once share a cause more often than not: file systems, network, a driver.",
    ),
    Alert(
        "GanglineSlowRecovery",
        "histogram_quantile(0.9, sum by (le) (increase(gangline_recovery_seconds_bucket[6h]))) > 600",
        "0m",
        "warning",
        "Gangs that lost a node run again after {{ $value | humanizeDuration }}.",
        "kubectl gangline admin swap shows which stage takes that long.",
    ),
    Alert(
        "GanglineHistoryDown",
        "min(gangline_forecast_history_up) < 1",
        "30m",
        "warning",
        "Finished runs can't be written to the history: forecasts don't learn.",
        "The operator's log names the database's error.",
    ),
    Alert(
        "GanglineNotificationsFail",
        'sum(increase(gangline_notifications_total{outcome!="sent"}[1h])) > 0',
        "15m",
        "warning",
        "{{ $value | humanize }} notifications were not delivered within an hour.",
        "gangline notify test POLICY shows why.",
    ),
)


def alert_documents() -> list[Document]:
    return [
        Document("monitoring.yaml", _service_monitor(), Set("monitoring.serviceMonitor.enabled")),
        Document("monitoring.yaml", _rules(), Set("monitoring.rules.enabled")),
    ]


def _service_monitor() -> Json:
    wanted = {"interval": Value("monitoring.serviceMonitor.interval"), "path": "/metrics"}
    token = {"bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token"}
    # the certificate is signed by itself and lives as long as the process
    secure = {"port": "https", **wanted, "scheme": "https", **token, "tlsConfig": {"insecureSkipVerify": True}}
    return {
        **head(
            _API,
            "ServiceMonitor",
            OPERATOR_NAME,
            OPERATOR,
            labels={Spread("monitoring.serviceMonitor.labels"): None},
        ),
        "spec": {
            "selector": {"matchLabels": selector(OPERATOR)},
            "endpoints": [
                When(_SECURE, secure),
                When(_PLAIN, {"port": "http", **wanted}),
            ],
        },
    }


def _rules() -> Json:
    rules = [
        {
            "alert": alert.name,
            "expr": alert.expression,
            "for": alert.lasting,
            "labels": {"severity": alert.severity},
            "annotations": {
                "summary": alert.summary,
                "description": alert.text,
                "runbook_url": When(_WITH_RUNBOOKS, FormattedText(f"{{}}/{alert.runbook}", (_RUNBOOKS,))),
            },
        }
        for alert in ALERTS
    ]
    return {
        **head(_API, "PrometheusRule", "gangline", labels={Spread("monitoring.rules.labels"): None}),
        "spec": {"groups": [{"name": "gangline", "rules": rules}]},
    }


# --- A dashboard for Grafana: what waits, what runs, how fast it is decided, what heals, what is wrong ----------------


_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT = 8, 8
#: columns of Grafana's grid
_COLUMNS = 24


@dataclass(frozen=True, slots=True)
class Panel:
    """A chart: its title, its unit as Grafana names it, expressions of PromQL with their legends, and a note."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    note: str = ""


def _percentile(share: str, metric: str, by: str = "le") -> str:
    return f"histogram_quantile({share}, sum by ({by}) (rate({metric}_bucket[$__rate_interval])))"


#: resources that are accelerators: nvidia.com/gpu, amd.com/gpu, google.com/tpu …
_GPUS: Final = f'resource=~".+/(gpu|tpu)", {_LEADING}'
_OF_RESOURCES: Final = (
    "The operator has this metric with `metrics.enableClusterQueueResources: true` in its configuration."
)


def _gpus(metric: str) -> str:
    """The GPUs of each ClusterQueue, over its flavors."""
    return f"sum by (cluster_queue) ({metric}{{{_GPUS}}})"


_OWNED: Final = "kueue_cluster_queue_nominal_quota"
_USED: Final = "kueue_cluster_queue_resource_usage"

#: the first row: GPUs per ClusterQueue
GPU_PANELS: Final = (
    Panel("GPUs in use", "short", ((_gpus(_USED), "{{cluster_queue}}"),), _OF_RESOURCES),
    Panel("GPUs owned (nominal quota)", "short", ((_gpus(_OWNED), "{{cluster_queue}}"),), _OF_RESOURCES),
    Panel(
        "GPUs borrowed",
        "short",
        (
            (
                "sum by (cluster_queue) (clamp_min("
                f"sum by (cluster_queue, flavor, resource) ({_USED}{{{_GPUS}}})"
                f" - sum by (cluster_queue, flavor, resource) ({_OWNED}{{{_GPUS}}}), 0))",
                "{{cluster_queue}}",
            ),
        ),
        _OF_RESOURCES,
    ),
    Panel(
        "GPUs that waiting workloads ask for",
        "short",
        ((_gpus("kueue_cluster_queue_resource_pending"), "{{cluster_queue}}"),),
        _OF_RESOURCES,
    ),
)
PANELS: Final = (
    *GPU_PANELS,
    Panel(
        "GPUs in use, by team (namespace)",
        "short",
        ((f"sum by (namespace) (kueue_local_queue_resource_usage{{{_GPUS}}})", "{{namespace}}"),),
        "The operator has this metric with the gate `LocalQueueMetrics` in its configuration.",
    ),
    Panel(
        "GPUs held in vain: a pod of the gang can't be bound",
        "short",
        (
            (
                "sum by (cluster_queue) (rate(gangline_gpu_seconds_held_unbound_total[$__rate_interval]))",
                "{{cluster_queue}}",
            ),
        ),
    ),
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


def dashboard_documents() -> list[Document]:
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


def _place(number: int) -> dict[str, int]:
    """Where a panel is: those of GPUs beside each other in the first row, the others in rows of three."""
    if number < len(GPU_PANELS):
        width = _COLUMNS // len(GPU_PANELS)
        return {"x": number * width, "y": 0, "w": width, "h": _HEIGHT}
    row, column = divmod(number - len(GPU_PANELS), _COLUMNS // _WIDTH)
    return {"x": column * _WIDTH, "y": (row + 1) * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        **({"description": panel.note} if panel.note else {}),
        "datasource": _SOURCE,
        "gridPos": _place(number),
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": _SOURCE, "expr": expression, "legendFormat": legend}
            for index, (expression, legend) in enumerate(panel.queries)
        ],
    }
