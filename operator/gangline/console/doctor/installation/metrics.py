"""Metrics in Prometheus' text format, as the operator shows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from prometheus_client.parser import text_string_to_metric_families

#: metric name, labels, value
Samples: TypeAlias = list[tuple[str, dict[str, str], float]]
_LONGEST = 32 * 2**20


def read(text: str) -> Samples:
    """The gauges and counters of Gangline itself. Raises ValueError."""
    if len(text) > _LONGEST:
        raise ValueError(f"metrics of more than {_LONGEST} characters")
    lines = [line for line in text.splitlines() if "gangline_" in line]
    families = text_string_to_metric_families("\n".join(lines) + "\n")
    return [(sample.name, dict(sample.labels), sample.value) for family in families for sample in family.samples]


def total(samples: Samples, name: str) -> float:
    return sum(value for found, _, value in samples if found == name)


def by(samples: Samples, name: str, label: str) -> Iterator[tuple[str, float]]:
    """The values of a metric by one of its labels, without those that are zero."""
    return ((labels.get(label, ""), value) for found, labels, value in samples if found == name and value)
