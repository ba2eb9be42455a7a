"""The labels that the configuration adds: `custom_<name>`, with values of ClusterQueues, cohorts, LocalQueues and Workloads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from gangline.api.read.configuration.metrics_settings import MOST_LABELS, CustomLabel
from gangline.objects import Stored

Values: TypeAlias = tuple[str, ...]


class CustomLabels:
    def __init__(self, labels: Iterable[CustomLabel]) -> None:
        labels = tuple(labels)
        self._of = {kind: tuple(label for label in labels if label.kind == kind) for kind in MOST_LABELS}

    def configured(self, kind: str) -> bool:
        return bool(self._of[kind])

    def names(self, kinds: Iterable[str]) -> Values:
        """Names of the labels from these kinds, in the order of the kinds."""
        return tuple(f"custom_{label.name}" for kind in kinds for label in self._of[kind])

    def values(self, kind: str, obj: Stored | None) -> Values:
        """The label values of an object of this kind; empty texts for None."""
        return tuple(label.value(obj) if obj is not None else "" for label in self._of[kind])
