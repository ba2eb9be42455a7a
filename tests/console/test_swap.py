"""`gangline admin swap`: from the records of Workloads to what people read."""

from __future__ import annotations

from tests.console.objects import NOW, workload

from gangline.api import names
from gangline.api.read.workloads import swap_record
from gangline.api.read.workloads.swap_record import RecordedSwap, SwapRecord
from gangline.console.commands.admin import swap
from gangline.console.output.layout import plain

AT = int(NOW * 1000)


def struck(name: str, *swaps: RecordedSwap, **more: object) -> dict[str, object]:
    found = workload(name, admitted_to="gpus", **more)  # type: ignore[arg-type]
    record = SwapRecord(attempt=1, swaps=2, at=AT, log=swaps)
    found["metadata"]["annotations"] = {names.RECOVERY: swap_record.write(record)}
    return found


OVER = RecordedSwap("Restart", "NotReady", ("n1", "n2"), AT - 90_000, AT - 88_000, AT - 86_500, AT - 86_000, ("n7",))
OPEN = RecordedSwap("Replace", "Deleted", tuple(f"n{i}" for i in range(5)), AT - 1000, AT - 900)


def test_the_latest_come_first_and_every_stage_is_told():
    found = swap.rows_of([struck("train", OVER), workload("quiet"), struck("tune", OPEN, namespace="team-b")])
    rows = swap.LISTING.rows(found, NOW)
    assert rows.cells == (
        ("team-b", "job/tune", "gpus", "1s", "Replace", "Deleted", "0.1s", "–", "–", "–", "n0, n1, n2 +2", "…"),
        (
            "team-vision",
            "job/train",
            "gpus",
            "90s",
            "Restart",
            "NotReady",
            "2.0s",
            "1.5s",
            "0.5s",
            "4.0s",
            "n1, n2",
            "n7",
        ),
    )
    assert "n0, n1, n2 +2" in plain(rows)


def test_json_has_times_seconds_and_all_nodes():
    [found] = swap.rows_of([struck("train", OVER)])
    assert (found["state"], found["from"], found["to"]) == ("Recovered", ["n1", "n2"], ["n7"])
    assert found["seconds"] == {"decided": 2.0, "created": 1.5, "running": 0.5, "total": 4.0}
    assert found["times"]["detected"] == OVER.detected / 1000
    [unfinished] = swap.rows_of([struck("tune", OPEN)])
    assert (unfinished["state"], unfinished["times"]["running"]) == ("Recovering", None)


def test_the_story_of_one_gang():
    text = "\n".join(swap.story(struck("train", OVER, OPEN), NOW))
    assert "job/train in namespace team-vision" in text
    assert "2 node(s) replaced while it ran, restarted 1 time(s)" in text
    assert "NotReady: lost n1, n2" in text
    assert "now on n7" in text
    assert text.endswith("not recovered yet")
