"""Kueue's configuration file (`config.kueue.x-k8s.io/v1beta1` or v1beta2) → the engine's settings.

The file that configures Kueue configures Gangline unchanged: fair sharing, usage-based fair sharing, waitForPodsReady, feature
gates, undeclared resources, and the labels copied to Workloads. A section of our own, `gangline`, classifies node conditions.
Fields of Kueue without effect in Gangline are accepted and listed, so that users know; unknown ones are errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from gangline.api import quantity
from gangline.engine import DEGRADED, HEALTH_SIGNALS, IGNORE, LEAVING, LOST, SUSPECT, model
from gangline.kube.resources import Json

GROUP = "config.kueue.x-k8s.io"
#: known to Kueue, without effect here
_ACCEPTED = frozenset(
    {
        *(
            "apiVersion",
            "kind",
            "metadata",
            "namespace",
            "webhook",
            "health",
            "metrics",
            "leaderElection",
            "controller",
        ),
        *("clientConnection", "internalCertManagement", "manageJobsWithoutQueueName", "managedJobsNamespaceSelector"),
        *("integrations", "multiKueue", "objectRetentionPolicies", "visibilityServer", "tls", "queueVisibility"),
        *("manager", "pprofBindAddress", "gracefulShutDown"),
    }
)
#: accepted above, and set by other means (flags of the commands), so not listed
_SILENT = frozenset({"apiVersion", "kind", "metadata", "leaderElection", "health", "webhook", "internalCertManagement"})


class ConfigurationError(ValueError):
    """The message names the field."""


@dataclass(frozen=True, slots=True)
class Configuration:
    settings: model.Settings
    #: labels of jobs that are copied to their Workloads
    labels_to_copy: tuple[str, ...] = ()
    #: fields that are set and have no effect
    ignored: tuple[str, ...] = ()


def load(body: Any) -> Configuration:
    """Raises ConfigurationError."""
    root = _map(body, "")
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
    }
    for name in root:
        if name not in known:
            raise ConfigurationError(f"{name}: there is no such field")
    resources = _map(root.get("resources"), "resources")
    integrations = _map(root.get("integrations"), "integrations")
    gates = _map(root.get("featureGates"), "featureGates")
    for name, value in gates.items():
        if not isinstance(value, bool):
            raise ConfigurationError(f"featureGates.{name}: true or false is wanted, not {value!r}")
    settings = model.Settings(
        fair_sharing=_fair_sharing(root.get("fairSharing")),
        admission_fair_sharing=_usage_based(root.get("admissionFairSharing")),
        pods_ready=_pods_ready(root.get("waitForPodsReady")),
        gates=cast("dict[str, bool]", gates),
        ignore_undeclared_resources=_choice(
            resources, "resources.quotaCheckStrategy", "BlockUndeclared", "IgnoreUndeclared"
        )
        == "IgnoreUndeclared",
        health=_node_health(root.get("gangline")),
    )
    ignored = [name for name in root if name in _ACCEPTED - _SILENT and root[name] not in (None, {}, [])]
    ignored += [f"resources.{name}" for name in resources if name != "quotaCheckStrategy"]
    labels = cast("list[str]", integrations.get("labelKeysToCopy") or [])
    return Configuration(settings, tuple(labels), tuple(sorted(ignored)))


def _fair_sharing(body: Any) -> model.FairSharing | None:
    """Fair sharing is on if the section exists (v1beta1: `enable`)."""
    if body is None:
        return None
    fair = _map(body, "fairSharing")
    _only(fair, "fairSharing", "enable", "preemptionStrategies")
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
    usage = _map(body, path)
    _only(usage, path, "usageHalfLifeTime", "usageSamplingInterval", "resourceWeights")
    weights = _map(usage.get("resourceWeights"), f"{path}.resourceWeights")
    for name, weight in weights.items():
        if not isinstance(weight, int | float) or weight < 0:
            raise ConfigurationError(f"{path}.resourceWeights.{name}: a number from 0 is wanted, not {weight!r}")
    return model.AdmissionFairSharing(
        half_life_seconds=_duration(usage, f"{path}.usageHalfLifeTime", "0s"),
        sampling_interval_seconds=_duration(usage, f"{path}.usageSamplingInterval", "5m"),
        resource_weights={name: float(weight) for name, weight in weights.items()},
    )


def _pods_ready(body: Any) -> model.PodsReadyPolicy | None:
    """On by default, as in Kueue; v1beta1's `enable: false` turns it off."""
    path = "waitForPodsReady"
    policy = _map(body, path)
    fields = ("enable", "timeout", "recoveryTimeout", "blockAdmission", "requeuingStrategy")
    _only(policy, path, *fields)
    if policy.get("enable") is False:
        return None
    again = _map(policy.get("requeuingStrategy"), f"{path}.requeuingStrategy")
    where = f"{path}.requeuingStrategy"
    _only(again, where, "timestamp", "backoffLimitCount", "backoffBaseSeconds", "backoffMaxSeconds")
    timeout = _duration(policy, f"{path}.timeout", "30m")
    recovery = _duration(policy, f"{path}.recoveryTimeout", "") if policy.get("recoveryTimeout") else None
    limit = again.get("backoffLimitCount")
    return model.PodsReadyPolicy(
        timeout_seconds=timeout,
        recovery_timeout_seconds=recovery,
        block_admission=_flag(policy, f"{path}.blockAdmission"),
        timestamp=_choice(again, f"{where}.timestamp", "Eviction", "Creation"),
        backoff_limit=None
        if limit is None
        else int(_number({"backoffLimitCount": limit}, f"{where}.backoffLimitCount", 0)),
        backoff_base_seconds=_number(again, f"{where}.backoffBaseSeconds", 60),
        backoff_max_seconds=_number(again, f"{where}.backoffMaxSeconds", 3600),
    )


def _node_health(body: Any) -> model.HealthPolicy:
    """`gangline.nodeHealth`: classes of node conditions, and graces of signals as the engine's table names them."""
    ours = _map(body, "gangline")
    _only(ours, "gangline", "nodeHealth")
    path = "gangline.nodeHealth"
    section = _map(ours.get("nodeHealth"), path)
    _only(section, path, "conditions", "grace")
    conditions = _map(section.get("conditions"), f"{path}.conditions")
    for name in conditions:
        _choice(conditions, f"{path}.conditions.{name}", LOST, *_CLASSES)
    grace = _map(section.get("grace"), f"{path}.grace")
    signals = {signal.kind for signal in HEALTH_SIGNALS} | conditions.keys()
    for name in grace.keys() - signals:
        raise ConfigurationError(
            f"{path}.grace.{name}: there is no such signal; there are: {', '.join(sorted(signals))}"
        )
    return model.HealthPolicy(
        conditions={name: str(value) for name, value in conditions.items()},
        grace_seconds={name: _duration(grace, f"{path}.grace.{name}", "0s") for name in grace},
    )


_CLASSES = (SUSPECT, LEAVING, DEGRADED, IGNORE)


# --- fields -----------------------------------------------------------------------------------------------------------


def _map(body: Any, path: str) -> Json:
    if body is None:
        return {}
    if not isinstance(body, Mapping):
        raise ConfigurationError(f"{path or 'the configuration'}: a mapping is wanted, not {body!r}")
    return dict(cast("Mapping[str, Any]", body))


def _only(body: Json, path: str, *fields: str) -> None:
    for name in body:
        if name not in fields:
            raise ConfigurationError(f"{path}.{name}: there is no such field")


def _leaf(path: str) -> str:
    return path.rpartition(".")[2]


def _duration(body: Json, path: str, default: str) -> float:
    text = body.get(_leaf(path)) or default
    try:
        seconds = quantity.parse_duration(str(text))
    except ValueError as error:
        raise ConfigurationError(f"{path}: {error}") from error
    if seconds < 0:
        raise ConfigurationError(f"{path}: {text!r} is negative")
    return seconds


def _number(body: Json, path: str, default: int) -> float:
    value = body.get(_leaf(path))
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise ConfigurationError(f"{path}: a number from 0 is wanted, not {value!r}")
    return value


def _flag(body: Json, path: str) -> bool:
    value = body.get(_leaf(path)) or False
    if not isinstance(value, bool):
        raise ConfigurationError(f"{path}: true or false is wanted, not {value!r}")
    return value


def _choice(body: Json, path: str, default: str, *others: str) -> str:
    value = body.get(_leaf(path)) or default
    if value not in (default, *others):
        raise ConfigurationError(f"{path}: {' or '.join((default, *others))} is wanted, not {value!r}")
    return str(value)
