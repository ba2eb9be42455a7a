"""Kueue's configuration file (`config.kueue.x-k8s.io/v1beta1` or v1beta2) → the engine's settings, and those of the processes.

The file that configures Kueue configures Gangline unchanged. A section of our own, `gangline`, classifies node conditions, and
says as which version of Kueue the file is read. Fields that have no effect in Gangline are accepted and listed, so that users
know; unknown ones are errors at any depth.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import yaml

from gangline.api.read.configuration import (
    external_frameworks,
    managed_jobs,
    manager,
    metrics_settings,
    multikueue,
    sections,
    selectors,
    shapes,
    versions,
)
from gangline.api.read.configuration import gates as feature_gates
from gangline.api.read.configuration import resources as resources_section
from gangline.api.read.configuration.fields import (
    ConfigurationError,
    choice,
    duration,
    flag,
    mapping,
    number,
)
from gangline.api.read.configuration.gates import Gates
from gangline.api.read.configuration.managed_jobs import ManagedJobs
from gangline.api.read.configuration.manager import Manager
from gangline.api.read.configuration.metrics_settings import MetricsSettings
from gangline.api.read.configuration.multikueue import MultiKueueSettings
from gangline.api.read.configuration.sections import Retention
from gangline.api.read.counting.resource_rules import EVERYTHING, ResourceRules
from gangline.engine import model
from gangline.engine.model import DEGRADED, HEALTH_SIGNALS, IGNORE, LEAVING, LOST, SUSPECT
from gangline.kube.resources import Json
from gangline.tls.connections import USUAL, Handshakes

GROUP: Final = "config.kueue.x-k8s.io"
_V1BETA1: Final = f"{GROUP}/v1beta1"
_V1BETA2: Final = f"{GROUP}/v1beta2"
#: Kueue's gates that are read by name
GATES: Final = (
    feature_gates.ENGINE | {*resources_section.GATES, sections.GATE} | metrics_settings.GATES | multikueue.GATES
)
#: from these versions on, waitForPodsReady is on without its section, and recoveryTimeout is the timeout where it is missing
_READY_BY_DEFAULT: Final = "0.19"
_RECOVERS_BY_DEFAULT: Final = "0.16"
#: seconds that no run lasts
_NEVER: Final = 10.0 * 365 * 86400
_LABEL_KEYS: Final = "integrations.labelKeysToCopy"
#: characters of the file: a hundred times as many as Kueue's own has
LONGEST: Final = 262_144


@dataclass(frozen=True, slots=True)
class Configuration:
    settings: model.Settings
    #: labels of jobs that are copied to their Workloads
    labels_to_copy: tuple[str, ...] = ()
    #: annotations of jobs that are copied to their Workloads
    annotations_to_copy: tuple[str, ...] = ()
    #: the process itself
    process: Manager = manager.USUAL
    #: when finished and deactivated Workloads are deleted
    retention: Retention = sections.FOR_EVER
    metrics: MetricsSettings = metrics_settings.USUAL
    #: which TLS the servers speak
    tls: Handshakes = USUAL
    #: fields that are set and have no effect
    ignored: tuple[str, ...] = ()
    #: which resources count in quota, and as what
    resources: ResourceRules = EVERYTHING
    jobs: ManagedJobs = managed_jobs.EVERY_QUEUED
    multikueue: MultiKueueSettings = multikueue.USUAL
    gates: Gates = field(default_factory=Gates)
    #: sentences for the log: what is set, and does not do here what it does in Kueue
    warnings: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """The version of Kueue as which the file is read."""
        return self.gates.version


class _Strict(yaml.SafeLoader):
    """Refuses a mapping that names a field twice, as Kueue does: one of the two would be lost in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise ConfigurationError(
                        f"line {key.start_mark.line + 1}: the field {key.value[:80]!r} is there twice"
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def parse(text: str) -> Any:
    """The document in a file's text, or in the block string that the file is. Raises ConfigurationError."""
    if len(text) > LONGEST:
        raise ConfigurationError(f"it is longer than {LONGEST} characters")
    try:
        found = yaml.load(text, _Strict)
        return yaml.load(found, _Strict) if isinstance(found, str) else found
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if isinstance(error, ConfigurationError):
            raise
        raise ConfigurationError(f"it cannot be read: {error}") from error


def load(body: Any, *, default_version: str = versions.NEWEST) -> Configuration:
    """`default_version`: as which Kueue a file is read that does not say it. Raises ConfigurationError."""
    root = mapping(body, "")
    api_version = root.get("apiVersion") or _V1BETA2
    if api_version not in (_V1BETA1, _V1BETA2):
        raise ConfigurationError(f"apiVersion: {str(api_version)[:80]!r} is not {_V1BETA1} or {_V1BETA2}")
    if root.get("kind") not in (None, "", "Configuration"):
        raise ConfigurationError(f"kind: Configuration is wanted, not {str(root['kind'])[:80]!r}")
    old = api_version == _V1BETA1
    shapes.check(root, sections.V1BETA1 if old else sections.V1BETA2)
    ours = mapping(root.get("gangline"), "gangline")
    version = versions.chosen(ours.get("kueueCompatibility"), default_version)
    gates = feature_gates.load(mapping(root.get("featureGates"), "featureGates"), version)
    jobs = managed_jobs.load(root, gates)
    multikueue_settings = multikueue.load(root, gates)
    declared, external = external_frameworks.settled(jobs.declared, multikueue_settings.external)
    process, ignored = manager.load(root)
    resources = mapping(root.get("resources"), "resources")
    metrics, unused = metrics_settings.load(mapping(root.get("metrics"), "metrics"), gates)
    tls, untaken = sections.load_tls(mapping(root.get("tls"), "tls"), gates)
    labels = selectors.label_keys(_at(root, _LABEL_KEYS) or [], _LABEL_KEYS)
    return Configuration(
        settings=model.Settings(
            fair_sharing=_fair_sharing(root.get("fairSharing"), old=old),
            admission_fair_sharing=_usage_based(root.get("admissionFairSharing"))
            if gates.on("AdmissionFairSharing")
            else None,
            pods_ready=_pods_ready(root.get("waitForPodsReady"), old=old, gates=gates),
            gates=gates.for_engine(),
            ignore_undeclared_resources=_ignores_undeclared(resources, gates),
            health=_node_health(ours),
        ),
        labels_to_copy=(*labels, *(key for key in metrics.copied_labels() if key not in labels)),
        annotations_to_copy=metrics.copied_annotations(),
        process=process,
        retention=sections.load_retention(root),
        resources=resources_section.load(resources, gates),
        metrics=metrics,
        tls=tls,
        ignored=tuple(sorted([*ignored, *unused, *untaken, *_without_effect(root)])),
        jobs=replace(jobs, declared=declared),
        multikueue=replace(multikueue_settings, external=external),
        gates=gates,
        warnings=(
            *gates.unheeded(),
            *managed_jobs.unheeded(root),
            *multikueue.unheeded(root, gates),
            *_of_the_other_version(root, old=old),
        ),
    )


def _without_effect(root: Json) -> list[str]:
    found = [path for path in sections.WITHOUT_EFFECT if _at(root, path) not in (None, "", {}, [])]
    found += [path for path, usual in sections.ONLY_AS_USUAL.items() if _at(root, path) not in (None, "", usual)]
    return found


def _at(root: Json, path: str) -> Any:
    value: Any = root
    for step in path.split("."):
        value = cast("dict[str, Any]", value).get(step) if isinstance(value, dict) else None
    return value


def _of_the_other_version(root: Json, *, old: bool) -> list[str]:
    """What Gangline takes, and Kueue refuses in a file of this version."""
    found: list[str] = []
    if not old:
        for section in ("waitForPodsReady", "fairSharing"):
            if mapping(root.get(section), section).get("enable") is not None:
                found.append(f"{section}.enable: a field of v1beta1, which Kueue refuses in v1beta2")
    elif root.get("visibilityServer") is not None:
        found.append("visibilityServer: a section of v1beta2, which Kueue refuses in v1beta1")
    return found


def _ignores_undeclared(resources: Json, gates: Gates) -> bool:
    """Whether resources without quota are ignored. Kueue reads the field only with its gate; the versions that lack the gate lack
    the field.
    """
    strategy = choice(resources, "resources.quotaCheckStrategy", "BlockUndeclared", "IgnoreUndeclared")
    return strategy == "IgnoreUndeclared" and gates.on("QuotaCheckStrategy")


def _fair_sharing(body: Any, *, old: bool) -> model.FairSharing | None:
    """Read `fairSharing`; None if it is off. In v1beta1 `enable: true` turns it on, in v1beta2 the section itself."""
    if body is None:
        return None
    fair = mapping(body, "fairSharing")
    if not flag(fair, "fairSharing.enable", default=not old):
        return None
    first, second = model.FairSharing().strategies
    strategies = tuple(fair.get("preemptionStrategies") or (first, second))
    if strategies not in ((first,), (second,), (first, second)):
        raise ConfigurationError(
            f"fairSharing.preemptionStrategies: [{first}], [{second}] or both in that order are wanted, not "
            f"{str(list(strategies))[:80]}"
        )
    return model.FairSharing(strategies)


def _usage_based(body: Any) -> model.AdmissionFairSharing | None:
    if body is None:
        return None
    path = "admissionFairSharing"
    usage = mapping(body, path)
    weights = mapping(usage.get("resourceWeights"), f"{path}.resourceWeights")
    return model.AdmissionFairSharing(
        half_life_seconds=duration(usage, f"{path}.usageHalfLifeTime", "0s"),
        sampling_interval_seconds=duration(usage, f"{path}.usageSamplingInterval", "5m") or duration({}, path, "5m"),
        resource_weights={
            name: float(number(weights, f"{path}.resourceWeights.{name}", 0, key=name)) for name in weights
        },
    )


def _pods_ready(body: Any, *, old: bool, gates: Gates) -> model.PodsReadyPolicy | None:
    """Read `waitForPodsReady`; None if it is off. In v1beta1 only `enable: true` turns it on. In v1beta2 it is on with its
    section, and from 0.19 on without it too.
    """
    path = "waitForPodsReady"
    policy = mapping(body, path)
    by_default = not old and (body is not None or versions.at_least(gates.version, _READY_BY_DEFAULT))
    if not flag(policy, f"{path}.enable", default=by_default) or gates.on("DisableWaitForPodsReady"):
        return None
    where = f"{path}.requeuingStrategy"
    again = mapping(policy.get("requeuingStrategy"), where)
    limit = again.get("backoffLimitCount")
    base, most = model.PodsReadyPolicy().backoff_base_seconds, model.PodsReadyPolicy().backoff_max_seconds
    timeout = _ready_within(policy, f"{path}.timeout", old=old, version=gates.version)
    return model.PodsReadyPolicy(
        timeout_seconds=timeout,
        unscheduled_seconds=_scheduled_within(policy, f"{path}.unscheduledTimeout", timeout),
        recovery_timeout_seconds=_recovered_within(policy, f"{path}.recoveryTimeout", gates.version),
        block_admission=flag(policy, f"{path}.blockAdmission", default=old),
        timestamp=choice(again, f"{where}.timestamp", "Eviction", "Creation"),
        backoff_limit=None if limit is None else int(number(again, f"{where}.backoffLimitCount", 0)),
        backoff_base_seconds=number(again, f"{where}.backoffBaseSeconds", base),
        backoff_max_seconds=number(again, f"{where}.backoffMaxSeconds", most),
    )


def _ready_within(policy: Json, path: str, *, old: bool, version: str) -> float:
    """The timeout in seconds. Without a value it is 5 m in v1beta1, and in v1beta2 30 m from 0.19 on; before 0.19 that is an
    error.
    """
    seconds = duration(policy, path, "5m" if old else "0s")
    if not seconds and (old or not versions.at_least(version, _READY_BY_DEFAULT)):
        raise ConfigurationError(f"{path}: must be specified")
    return seconds or duration({}, path, "30m")


def _scheduled_within(policy: Json, path: str, timeout: float) -> float | None:
    """The time limit for pods that are not scheduled, in seconds; None = there is none, as in Kueue without the field."""
    seconds = duration(policy, path, "0s")
    if seconds > timeout:
        raise ConfigurationError(f"{path}: must not exceed waitForPodsReady.timeout")
    return seconds or None


def _recovered_within(policy: Json, path: str, version: str) -> float | None:
    """The recovery timeout in seconds; None = the same as `timeout`. Kueue 0.15 waits for ever where the field is missing."""
    if policy.get("recoveryTimeout"):
        return duration(policy, path, "")
    return None if versions.at_least(version, _RECOVERS_BY_DEFAULT) else _NEVER


def _node_health(ours: Json) -> model.HealthPolicy:
    """`gangline.nodeHealth`: classes of node conditions, and graces of signals as the engine's table names them."""
    path = "gangline.nodeHealth"
    section = mapping(ours.get("nodeHealth"), path)
    conditions = mapping(section.get("conditions"), f"{path}.conditions")
    for name in conditions:
        choice(conditions, f"{path}.conditions.{name}", LOST, *_CLASSES, key=name)
    grace = mapping(section.get("grace"), f"{path}.grace")
    signals = {signal.kind for signal in HEALTH_SIGNALS} | conditions.keys()
    for name in grace.keys() - signals:
        raise ConfigurationError(
            f"{path}.grace.{name}: there is no such signal; there are: {', '.join(sorted(signals))}"
        )
    return model.HealthPolicy(
        conditions={name: str(value) for name, value in conditions.items()},
        grace_seconds={name: duration(grace, f"{path}.grace.{name}", "0s", key=name) for name in grace},
    )


_CLASSES = (SUSPECT, LEAVING, DEGRADED, IGNORE)
