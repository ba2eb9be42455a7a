"""What Prometheus scrapes, and the alerts that follow: each is about something that a person has to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gangline.install.manifests.naming import OPERATOR, OPERATOR_NAME, head, selector
from gangline.install.manifests.tree import Document, Not, Set, Spread, Value, When
from gangline.kube.resources import Json

_API: Final = "monitoring.coreos.com/v1"
_SECURE: Final = Set("metrics.secure")
_PLAIN: Final = Not(_SECURE)
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


def documents() -> list[Document]:
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
            "annotations": {"summary": alert.summary, "description": alert.text},
        }
        for alert in ALERTS
    ]
    return {
        **head(_API, "PrometheusRule", "gangline", labels={Spread("monitoring.rules.labels"): None}),
        "spec": {"groups": [{"name": "gangline", "rules": rules}]},
    }
