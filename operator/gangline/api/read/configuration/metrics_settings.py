"""`metrics` of Kueue's configuration file: which optional metrics there are, and the labels that installations add.

An added label shows a label or an annotation of a queue, a cohort or a workload. Kueue's bounds hold: a workload's label has a
closed list of values, so that no user makes series.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from gangline import bounded
from gangline.api import label_syntax
from gangline.api.read.configuration import selectors
from gangline.api.read.configuration.fields import ConfigurationError, choice, flag, mapping, rows, text
from gangline.api.read.configuration.gates import Gates
from gangline.engine import model
from gangline.engine.model import expression_matches
from gangline.kube.resources import Json

CLUSTER_QUEUE, COHORT, LOCAL_QUEUE, WORKLOAD = "ClusterQueue", "Cohort", "LocalQueue", "Workload"
#: kind -> the most labels from it; label names come in this order of the kinds
MOST_LABELS: Final = {CLUSTER_QUEUE: 6, COHORT: 6, LOCAL_QUEUE: 6, WORKLOAD: 2}
#: the most labels from all kinds
MOST_LABELS_TOGETHER: Final = 20
#: the most values that a label may list
MOST_VALUES, MOST_VALUES_OF_WORKLOADS = 16, 12
#: Kueue's feature gates that matter here
GATES: Final = frozenset(
    {
        *("CustomMetricLabels", "LocalQueueMetrics", "MetricForWorkloadCreationLatency", "MetricsForCohorts"),
        *("SchedulingEquivalenceHashing", "UnadmittedWorkloadsObservability"),
    }
)
#: what stands for a value that is not listed
UNTRACKED: Final = "kueue.x-k8s.io/_UNTRACKED_VALUE_"
#: characters of a value that are shown: annotations may be long
LONGEST_VALUE: Final = 256

#: every LocalQueue
EVERY: Final = model.LabelSelector()
_NAME: Final = re.compile("[a-zA-Z][a-zA-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class CustomLabel:
    """A label `custom_<name>`: the value that an object of `kind` has under `key`. `values`: the only ones shown; () = all."""

    name: str
    kind: str
    key: str
    annotation: bool = False
    values: tuple[str, ...] = ()

    def value(self, obj: Json) -> str:
        metadata: Json = obj.get("metadata") or {}
        found: Json = metadata.get("annotations" if self.annotation else "labels") or {}
        value = str(found.get(self.key, ""))[:LONGEST_VALUE]
        return value if not self.values or value in self.values else UNTRACKED


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """`cluster_queue_resources`: quotas and usage of ClusterQueues. `selector`: the LocalQueues that have metrics.

    The others are feature gates of Kueue.
    """

    cluster_queue_resources: bool = False
    local_queues: bool = True
    selector: model.LabelSelector = EVERY
    custom_labels: tuple[CustomLabel, ...] = ()
    cohort_info: bool = True
    unadmitted: bool = True
    creation_latency: bool = True
    hashes: bool = True

    def shows(self, local_queue: Json) -> bool:
        """Whether there are metrics of a LocalQueue."""
        if not self.local_queues:
            return False
        metadata: Json = local_queue.get("metadata") or {}
        labels: Json = metadata.get("labels") or {}
        return all(expression_matches(expression, labels) for expression in self.selector.expressions)

    def copied_labels(self) -> tuple[str, ...]:
        """Labels of jobs that their Workloads need to have."""
        return tuple(label.key for label in self.custom_labels if label.kind == WORKLOAD and not label.annotation)

    def copied_annotations(self) -> tuple[str, ...]:
        """Annotations of jobs that their Workloads need to have."""
        return tuple(label.key for label in self.custom_labels if label.kind == WORKLOAD and label.annotation)


#: what holds without a configuration file
USUAL: Final = MetricsSettings()


def load(section: Json, gates: Gates) -> tuple[MetricsSettings, list[str]]:
    """The values, and the fields that are set and have no effect. Raises ConfigurationError."""
    on = gates.on
    enabled, selector = _local_queues(section.get("localQueueMetrics"))
    labels = _custom_labels(section.get("customLabels"))
    ignored: list[str] = []
    if labels and not on("CustomMetricLabels"):
        ignored, labels = ["metrics.customLabels (featureGates.CustomMetricLabels is off)"], ()
    settings = MetricsSettings(
        cluster_queue_resources=flag(section, "metrics.enableClusterQueueResources"),
        local_queues=enabled and on("LocalQueueMetrics"),
        selector=selector,
        custom_labels=labels,
        cohort_info=on("MetricsForCohorts"),
        unadmitted=on("UnadmittedWorkloadsObservability"),
        creation_latency=on("MetricForWorkloadCreationLatency"),
        hashes=on("SchedulingEquivalenceHashing"),
    )
    return settings, ignored


# --- LocalQueues ---


def _local_queues(body: Any) -> tuple[bool, model.LabelSelector]:
    """Whether the metrics of LocalQueues are on, and for which. The section says so itself where it exists; without it all
    LocalQueues have them.
    """
    if body is None:
        return True, EVERY
    path = "metrics.localQueueMetrics"
    section = mapping(body, path)
    where = f"{path}.localQueueSelector"
    return flag(section, f"{path}.enable"), selectors.selector(mapping(section.get("localQueueSelector"), where), where)


# --- labels ---


def _custom_labels(body: Any) -> tuple[CustomLabel, ...]:
    path = "metrics.customLabels"
    labels = tuple(_custom_label(row, f"{path}[{i}]") for i, row in enumerate(rows(body, path, MOST_LABELS_TOGETHER)))
    twice = [name for name, count in Counter(label.name for label in labels).items() if count > 1]
    if twice:
        raise ConfigurationError(f"{path}: {twice[0]!r} is there twice")
    for kind, count in Counter(label.kind for label in labels).items():
        if count > MOST_LABELS[kind]:
            raise ConfigurationError(f"{path}: {count} labels are from {kind}s, and at most {MOST_LABELS[kind]} may be")
    return labels


def _custom_label(body: Any, path: str) -> CustomLabel:
    row = mapping(body, path)
    name = text(row, f"{path}.name", "")
    if not _is_name(name):
        raise ConfigurationError(f"{path}.name: {name!r} does not match {_NAME.pattern}")
    label, annotation = text(row, f"{path}.sourceLabelKey", ""), text(row, f"{path}.sourceAnnotationKey", "")
    if label and annotation:
        raise ConfigurationError(f"{path}: sourceLabelKey and sourceAnnotationKey exclude each other")
    where = "sourceAnnotationKey" if annotation else "sourceLabelKey" if label else "name"
    key = _key(annotation or label or name, f"{path}.{where}")
    kind = choice(row, f"{path}.sourceKind", CLUSTER_QUEUE, COHORT, LOCAL_QUEUE, WORKLOAD)
    most = MOST_VALUES_OF_WORKLOADS if kind == WORKLOAD else MOST_VALUES
    listed = f"{path}.trackedValues"
    values = tuple(_value(value, listed) for value in rows(row.get("trackedValues"), listed, most))
    if kind == WORKLOAD and not values:
        raise ConfigurationError(f"{listed}: a label from Workloads lists its values")
    if len(set(values)) < len(values):
        raise ConfigurationError(f"{listed}: a value is there twice")
    return CustomLabel(name, kind, key, bool(annotation), values)


def _value(value: Any, path: str) -> str:
    if not isinstance(value, str) or len(value) > LONGEST_VALUE:
        raise ConfigurationError(
            f"{path}: a text of at most {LONGEST_VALUE} characters is wanted, not {bounded.shown(value)}"
        )
    return value


def _key(value: Any, path: str) -> str:
    if not isinstance(value, str) or not label_syntax.is_key(value):
        raise ConfigurationError(f"{path}: {bounded.shown(value)} is no key of a label")
    return value


@bounded.parser(256, instead=False, worst=("a", "_"))
def _is_name(value: str) -> bool:
    return _NAME.fullmatch(value) is not None
