"""The generated reference: complete where something else can be asked for the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import Counter, Gauge, Histogram
from scripts.reference import __main__ as command
from scripts.reference.pages import PACKAGES
from scripts.reference.status_pages import recorded_events
from scripts.reference.syntax_trees import Code
from scripts.reference.texts import Values

from gangline.api import names
from gangline.control.metrics.operator_metrics import Metrics
from gangline.control.writes.status.event_table import EVENTS

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "reference"


def page(name: str) -> str:
    return (PAGES / f"{name}.md").read_text()


def test_a_stale_page_fails_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make check` compares the pages in the same way, all of them."""
    monkeypatch.setattr(command, "pages", lambda: {path.name: path.read_text() for path in PAGES.glob("*.md")})
    monkeypatch.setattr(command, "PAGES", tmp_path)
    assert command.main([]) == 0
    assert command.main(["--check"]) == 0
    page = tmp_path / "metrics.md"
    page.write_text(page.read_text().replace("gangline_leader", "gangline_follower"))
    assert command.main(["--check"]) == 1
    assert "+| `gangline_leader`" in capsys.readouterr().out


def test_every_metric_of_the_operator_is_listed() -> None:
    metrics = Metrics()
    metrics.count_requests(dict, dict)
    metrics.count_troubles(dict, dict)
    metrics.count_head_delay(dict)
    metrics.count_head_lateness(dict)
    text = page("metrics")
    for family in metrics.registry.collect():
        suffix = "_total" if family.type == "counter" else ""
        assert f"| `{family.name}{suffix}` | {family.type} |" in text
    for metric in vars(metrics).values():
        if isinstance(metric, Counter | Gauge | Histogram):
            labels = ", ".join(f"`{label}`" for label in metric._labelnames)
            assert f"| {labels} | {metric._documentation} |" in text


def test_every_name_has_a_row_that_says_where_it_stands() -> None:
    rows = dict(line.strip("| ").split(" | ", 1) for line in page("names").splitlines() if line.startswith("| `"))
    for name, value in vars(names).items():
        if (
            name.isupper()
            and isinstance(value, str)
            and "/" in value
            and value not in (names.V1ALPHA1, names.V1BETA1, names.V1BETA2)
        ):
            assert f"`{value}`" in rows
    kinds = (
        "label on ",
        "label or annotation on ",
        "annotation on ",
        "finalizer on ",
        "levels of topology assignments ",
        "scheduling gate of ",
        "preemption gate of ",
        "taint on ",
        "topology level of ",
        "resource ",
    )
    assert all(text.startswith(kinds) for text in rows.values())


@pytest.mark.parametrize(
    "reason",
    [
        *("WaitingForQuota", "ExceedsMaxQuota", "WaitingForPreemptedWorkloads", "NoMatchingFlavor"),  # by way of tables
        *("InCohortReclaimWhileBorrowing", "InRecovery", "GaveWay"),  # by way of records
        *("ClusterQueueStopped", "DeactivatedDueToMaximumExecutionTimeExceeded", "PodsReadyTimeout"),
        *("FlavorNotFound", "TopologyNotFound", "UnknownFix", "Swapped", "DeadlineExceeded"),
    ],
)
def test_reasons_are_found_wherever_they_come_from(reason: str) -> None:
    assert f"| `{reason}` |" in page("conditions")


@pytest.mark.parametrize(
    "reason", ["Started", "WriteRefused", "PodLeftBehind", "ForecastModelOff", "NodesLost", "RecoveryPaused"]
)
def test_events_are_found_wherever_they_come_from(reason: str) -> None:
    assert f"| `{reason}` |" in page("events")


def test_fields_have_their_defaults_constraints_and_meanings() -> None:
    text = page("gangline")
    assert "### QueuePolicy.spec.backfill.giveWay\n" in text
    line = next(line for line in text.splitlines() if line.startswith("| `maxCandidates` |"))
    assert line == "| `maxCandidates` | integer | `1000` | ≥ 1, ≤ 100000 | The most candidates that are tried. |"
    assert "| `clusterQueues` | [object](#queuepolicyspecclusterqueues) | required |" in text


def test_the_table_of_events_is_what_the_code_records() -> None:
    code = Code.read(PACKAGES)
    recorded = {reason for _, reason in recorded_events(code, Values(code))}
    assert recorded == EVENTS.keys()
    assert {row.by for row in EVENTS.values()} == {"Kueue", "Gangline"}
    assert all(row.about and row.when for row in EVENTS.values())
