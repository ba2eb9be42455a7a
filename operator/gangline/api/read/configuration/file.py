"""Kueue's configuration file (`config.kueue.x-k8s.io/v1beta1` or v1beta2) → the engine's settings.

The file that configures Kueue configures Gangline unchanged: fair sharing, usage-based fair sharing, waitForPodsReady, feature
gates, undeclared resources, the labels copied to Workloads, metrics, the Lease and the addresses of metrics and probes. A section
of our own, `gangline`, classifies node conditions. Fields of Kueue without effect in Gangline are accepted and listed, so that
users know; unknown ones are errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from gangline.api.read.configuration import manager, metrics_settings
from gangline.api.read.configuration.fields import (
    ConfigurationError,
    choice,
    duration,
    flag,
    mapping,
    number,
    only,
)
from gangline.api.read.configuration.manager import Manager
from gangline.api.read.configuration.metrics_settings import MetricsSettings
from gangline.engine import DEGRADED, HEALTH_SIGNALS, IGNORE, LEAVING, LOST, SUSPECT, model

GROUP = "config.kueue.x-k8s.io"
#: known to Kueue, without effect here
_ACCEPTED = frozenset(
    {
        *(
            "apiVersion",
            "kind",
            "metadata",
            "webhook",
            "controller",
        ),
        *("clientConnection", "internalCertManagement", "manageJobsWithoutQueueName", "managedJobsNamespaceSelector"),
        *("integrations", "multiKueue", "objectRetentionPolicies", "visibilityServer", "tls", "queueVisibility"),
        *("manager", "pprofBindAddress", "gracefulShutDown"),
    }
)
#: accepted above, and set by other means (flags of the commands), so not listed
_SILENT = frozenset({"apiVersion", "kind", "metadata", "webhook", "internalCertManagement"})

#: Kueue's feature gates that are read; others are accepted and have no effect
GATES = frozenset(
    {
        *("FairSharingPreemptWithinNominal", "FairSharingPrioritizeNonBorrowing", "FlavorFungibility"),
        *("FlavorFungibilityPreserveScanProgress", "PartialAdmission", "PriorityBoost", "PrioritySortingWithinCohort"),
        *("RecomputeAssignmentUponPreemptionTargetsOverlap", "SchedulingEquivalenceHashing", "TASBalancedPlacement"),
        *("TASFailedNodeReplacementFailFast", "TASProfileMixed", "TASRecomputeAssignmentWithinSchedulingCycle"),
        "TASRespectNodeAffinityPreferred",
        *metrics_settings.GATES,
    }
)


@dataclass(frozen=True, slots=True)
class Configuration:
    settings: model.Settings
    #: labels of jobs that are copied to their Workloads
    labels_to_copy: tuple[str, ...] = ()
    #: the process itself
    process: Manager = manager.USUAL
    metrics: MetricsSettings = metrics_settings.USUAL
    #: fields that are set and have no effect
    ignored: tuple[str, ...] = ()


def load(body: Any) -> Configuration:
    """Raises ConfigurationError."""
    root = mapping(body, "")
    version = root.get("apiVersion", f"{GROUP}/v1beta2")
    if version not in (f"{GROUP}/v1beta1", f"{GROUP}/v1beta2"):
        raise ConfigurationError(f"apiVersion: {version!r} is not {GROUP}/v1beta1 or {GROUP}/v1beta2")
    known = _ACCEPTED | {
        "waitForPodsReady",
        "fairSharing",
        "admissionFairSharing",
        "resources",
        "featureGates",
        "gangline",
        *manager.SECTIONS,
    }
    for name in root:
        if name not in known:
            raise ConfigurationError(f"{name}: there is no such field")
    resources = mapping(root.get("resources"), "resources")
    integrations = mapping(root.get("integrations"), "integrations")
    gates = mapping(root.get("featureGates"), "featureGates")
    for name, value in gates.items():
        if not isinstance(value, bool):
            raise ConfigurationError(f"featureGates.{name}: true or false is wanted, not {value!r}")
    settings = model.Settings(
        fair_sharing=_fair_sharing(root.get("fairSharing")),
        admission_fair_sharing=_usage_based(root.get("admissionFairSharing")),
        pods_ready=_pods_ready(root.get("waitForPodsReady")),
        gates=cast("dict[str, bool]", gates),
        ignore_undeclared_resources=choice(
            resources, "resources.quotaCheckStrategy", "BlockUndeclared", "IgnoreUndeclared"
        )
        == "IgnoreUndeclared",
        health=_node_health(root.get("gangline")),
    )
    ignored = [name for name in root if name in _ACCEPTED - _SILENT and root[name] not in (None, {}, [])]
    ignored += [f"resources.{name}" for name in resources if name != "quotaCheckStrategy"]
    process, more = manager.load(root)
    metrics, unused = metrics_settings.load(mapping(root.get("metrics"), "metrics"), gates)
    ignored += more + unused
    labels = cast("list[str]", integrations.get("labelKeysToCopy") or [])
    labels = [*labels, *(key for key in metrics.copied_labels() if key not in labels)]
    return Configuration(settings, tuple(labels), process, metrics, tuple(sorted(ignored)))


def _fair_sharing(body: Any) -> model.FairSharing | None:
    """Fair sharing is on if the section exists (v1beta1: `enable`)."""
    if body is None:
        return None
    fair = mapping(body, "fairSharing")
    only(fair, "fairSharing", "enable", "preemptionStrategies")
    if fair.get("enable") is False:
        return None
    first, second = model.FairSharing().strategies
    strategies = tuple(fair.get("preemptionStrategies") or (first, second))
    if strategies not in ((first,), (second,), (first, second)):
        raise ConfigurationError(
            f"fairSharing.preemptionStrategies: [{first}], [{second}] or both in that order are wanted, not {list(strategies)}"
        )
    return model.FairSharing(strategies)


def _usage_based(body: Any) -> model.AdmissionFairSharing | None:
    if body is None:
        return None
    path = "admissionFairSharing"
    usage = mapping(body, path)
    only(usage, path, "usageHalfLifeTime", "usageSamplingInterval", "resourceWeights")
    weights = mapping(usage.get("resourceWeights"), f"{path}.resourceWeights")
    for name, weight in weights.items():
        if not isinstance(weight, int | float) or weight < 0:
            raise ConfigurationError(f"{path}.resourceWeights.{name}: a number from 0 is wanted, not {weight!r}")
    return model.AdmissionFairSharing(
        half_life_seconds=duration(usage, f"{path}.usageHalfLifeTime", "0s"),
        sampling_interval_seconds=duration(usage, f"{path}.usageSamplingInterval", "5m"),
        resource_weights={name: float(weight) for name, weight in weights.items()},
    )


def _pods_ready(body: Any) -> model.PodsReadyPolicy | None:
    """On by default, as in Kueue; v1beta1's `enable: false` turns it off."""
    path = "waitForPodsReady"
    policy = mapping(body, path)
    fields = ("enable", "timeout", "recoveryTimeout", "blockAdmission", "requeuingStrategy")
    only(policy, path, *fields)
    if policy.get("enable") is False:
        return None
    again = mapping(policy.get("requeuingStrategy"), f"{path}.requeuingStrategy")
    where = f"{path}.requeuingStrategy"
    only(again, where, "timestamp", "backoffLimitCount", "backoffBaseSeconds", "backoffMaxSeconds")
    timeout = duration(policy, f"{path}.timeout", "30m")
    recovery = duration(policy, f"{path}.recoveryTimeout", "") if policy.get("recoveryTimeout") else None
    limit = again.get("backoffLimitCount")
    return model.PodsReadyPolicy(
        timeout_seconds=timeout,
        recovery_timeout_seconds=recovery,
        block_admission=flag(policy, f"{path}.blockAdmission"),
        timestamp=choice(again, f"{where}.timestamp", "Eviction", "Creation"),
        backoff_limit=None
        if limit is None
        else int(number({"backoffLimitCount": limit}, f"{where}.backoffLimitCount", 0)),
        backoff_base_seconds=number(again, f"{where}.backoffBaseSeconds", 60),
        backoff_max_seconds=number(again, f"{where}.backoffMaxSeconds", 3600),
    )


def _node_health(body: Any) -> model.HealthPolicy:
    """`gangline.nodeHealth`: classes of node conditions, and graces of signals as the engine's table names them."""
    ours = mapping(body, "gangline")
    only(ours, "gangline", "nodeHealth")
    path = "gangline.nodeHealth"
    section = mapping(ours.get("nodeHealth"), path)
    only(section, path, "conditions", "grace")
    conditions = mapping(section.get("conditions"), f"{path}.conditions")
    for name in conditions:
        choice(conditions, f"{path}.conditions.{name}", LOST, *_CLASSES)
    grace = mapping(section.get("grace"), f"{path}.grace")
    signals = {signal.kind for signal in HEALTH_SIGNALS} | conditions.keys()
    for name in grace.keys() - signals:
        raise ConfigurationError(
            f"{path}.grace.{name}: there is no such signal; there are: {', '.join(sorted(signals))}"
        )
    return model.HealthPolicy(
        conditions={name: str(value) for name, value in conditions.items()},
        grace_seconds={name: duration(grace, f"{path}.grace.{name}", "0s") for name in grace},
    )


_CLASSES = (SUSPECT, LEAVING, DEGRADED, IGNORE)
