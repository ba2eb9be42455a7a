"""Usage of processes and the API server: read from /proc and from /metrics."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
_SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds so far and the highest resident memory, in MB (10⁶ bytes)."""

    cpu_seconds: float
    peak_mb: float

    def since(self, before: Usage) -> Usage:
        return Usage(self.cpu_seconds - before.cpu_seconds, self.peak_mb)


def usage(pid: int) -> Usage:
    """The usage of one process, without its ended children. Raises OSError when it is gone."""
    process = Path(f"/proc/{pid}")
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    status = (process / "status").read_text()
    peak = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return Usage((int(fields[11]) + int(fields[12])) / TICKS, int(peak.group(1)) * 1024 / 1e6 if peak else 0.0)


def samples(text: str, name: str) -> Iterable[tuple[Mapping[str, str], float]]:
    """(labels, value) of one metric in Prometheus' text format."""
    for line in text.splitlines():
        if line.startswith(name) and (found := _SAMPLE.match(line)) and found["name"] == name:
            yield dict(_LABEL.findall(found["labels"] or "")), float(found["value"])


def requests(text: str, metric: str) -> Counter[str]:
    """Requests by "verb resource[/subresource]" of an API server's or an operator's metrics."""
    counted: Counter[str] = Counter()
    for labels, value in samples(text, metric):
        resource = labels.get("resource", "")
        if labels.get("subresource"):
            resource += f"/{labels['subresource']}"
        verb = {"post": "create", "put": "replace"}.get(labels["verb"].lower(), labels["verb"].lower())
        counted[f"{verb} {resource}"] += int(value)
    return counted


def total(text: str, name: str, **labels: str) -> float:
    """The sum of a metric over all series with these labels."""
    return sum(value for found, value in samples(text, name) if labels.items() <= found.items())
