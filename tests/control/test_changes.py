"""What a change would do: the job's start before and after, who gains and who loses, and what can't be asked about."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.builders import clusters
from tests.control.test_answers import Reader
from tests.control.test_room import flavor, node

from gangline.api.read.conditions import timestamp
from gangline.control.answers.ahead import changes
from gangline.control.answers.ahead.changes import WrongChangeError
from gangline.control.answers.refusals import NotReadableError, NotWaitingError
from gangline.control.answers.sight import Everybody

Json = dict[str, Any]


async def asked(here: Any, asker: Any = None, **change: Any) -> Json:
    return await here.answers().what_if_changed(asker or Everybody(), "ml", change)


async def test_a_shorter_job_lets_the_one_behind_it_start_earlier() -> None:
    here = clusters.busy()
    facts, objects = here.engine.facts(), copy.deepcopy(here.mirror.objects)
    answer = await asked(here, name="next", durationSeconds=600)
    assert answer["before"]["p50"] == pytest.approx(answer["after"]["p50"]), "what it waits for stays"
    assert [row["job"] for row in answer["gains"]] == ["last"] and answer["gains"][0]["seconds"] > 600
    assert answer["loses"] == [] and answer["gpuHours"] < 0
    assert answer["command"].startswith("kubectl patch gpujob/next -n ml") and '"expected":"600s"' in answer["command"]
    assert here.engine.facts() == facts and here.mirror.objects == objects, "nothing of it stays"


async def test_a_longer_job_makes_the_one_behind_it_wait() -> None:
    answer = await asked(clusters.busy(), name="next", durationSeconds=20 * 3600)
    assert answer["gains"] == [] and [row["job"] for row in answer["loses"]] == ["last"]
    assert answer["loses"][0]["seconds"] > 3600 and answer["gpuHours"] > 0


async def test_a_smaller_job_starts_beside_what_runs() -> None:
    here = clusters.busy()
    answer = await asked(here, name="last", gpus=8)
    assert answer["command"] == 'kubectl patch gpujob/last -n ml --type merge -p \'{"spec":{"workers":1}}\''
    assert answer["gpuHours"] < 0
    with pytest.raises(WrongChangeError, match="multiple of 8"):
        await asked(here, name="last", gpus=12)


async def test_another_queue_is_idle() -> None:
    answer = await asked(clusters.busy(), name="last", queue="b")
    assert answer["after"]["p50"] < 1 < answer["before"]["p50"]
    assert answer["command"] == "gangline move gpujob/last b -n ml"
    with pytest.raises(WrongChangeError, match="no LocalQueue 'none'"):
        await asked(clusters.busy(), name="last", queue="none")


async def test_more_quota_is_room_for_those_who_wait() -> None:
    here = clusters.busy()
    answer = await asked(here, clusterQueue="a", flavor="h100", gpus=512)
    assert {row["job"] for row in answer["gains"]} == {"next", "last"} and answer["before"] is None
    assert answer["command"] == "gangline limits set a --flavor h100 --nominal 512"
    with pytest.raises(WrongChangeError, match="no ClusterQueue 'none'"):
        await asked(here, clusterQueue="none", flavor="h100", gpus=1)
    with pytest.raises(WrongChangeError, match="no GPU resources of flavor 'none'"):
        await asked(here, clusterQueue="a", flavor="none", gpus=1)


async def test_a_quota_changes_at_a_date() -> None:
    here = clusters.busy()
    at_once = await asked(here, clusterQueue="a", flavor="h100", gpus=512)
    later = await asked(here, clusterQueue="a", flavor="h100", gpus=512, at=timestamp(here.now + 600_000))
    assert 0 < max(row["seconds"] for row in later["gains"]) < max(row["seconds"] for row in at_once["gains"])
    assert (later["command"], later["note"]) == ("", "A QuotaPlan changes quotas at a time.")
    past = await asked(here, clusterQueue="a", flavor="h100", gpus=512, at=timestamp(here.now - 600_000))
    assert past["gains"] == at_once["gains"]


async def test_a_drained_node_is_named_with_its_command() -> None:
    here = clusters.world_of(
        clusters.flavor("h100"),
        *clusters.queue("a", 16),
        node("n1"),
        node("n2"),
        *clusters.submitted("runs", 1, "2h", ago=700, started=600),
    )
    answer = await asked(here, drain="n1")
    assert answer["command"] == "gangline admin swap now n1" and answer["gpuHours"] is None
    with pytest.raises(WrongChangeError, match="no node 'none'"):
        await asked(here, drain="none")


def maintenance(here: Any, minutes: int, *nodes: str, **spec: Any) -> Json:
    """A Reservation's spec: for an hour, from so many minutes on."""
    start = here.now + minutes * 60_000
    window = {"start": timestamp(start), "end": timestamp(start + 3_600_000)}
    return {"window": window, "nodes": {"names": list(nodes)}, "stopBefore": "1m", **spec}


async def test_a_maintenance_says_whom_it_would_stop_and_what_that_costs() -> None:
    here = clusters.world_of(
        flavor(pool="fast"),
        *clusters.queue("a", 16),
        node("n1"),
        node("n2"),
        *clusters.submitted("runs", 1, "2h", ago=700, started=600),
    )
    facts, objects = here.engine.facts(), copy.deepcopy(here.mirror.objects)
    answer = await asked(here, reservation=maintenance(here, 31, "n1", "n2"))
    assert [row["job"] for row in answer["stopped"]] == ["runs"]
    assert answer["gpuHoursLost"] == pytest.approx(8 * 40 / 60, rel=0.01), (
        "ten minutes ago it started, it stops in thirty"
    )
    assert answer["note"] == "" and answer["gpuHours"] is None
    assert here.engine.facts() == facts and here.mirror.objects == objects, "nothing of it stays"
    over = await asked(here, reservation=maintenance(here, -120, "n1", "n9"))
    assert (over["stopped"], over["gpuHoursLost"]) == ([], 0)
    assert over["note"] == "Not honoured: There is no node n9. The Reservation has no window ahead."
    later = await asked(here, reservation=maintenance(here, 600, "n1", "n2"))
    assert later["stopped"] == [], "it has ended by then"


async def test_others_are_labels_and_quotas_are_for_who_sees_everything() -> None:
    here = clusters.busy()
    answer = await asked(here, Reader("ml"), name="next", durationSeconds=600)
    assert [row["job"] for row in answer["gains"]] == ["last"]
    for change in (
        {"clusterQueue": "a", "flavor": "h100", "gpus": 1},
        {"drain": "n1"},
        {"reservation": maintenance(here, 9, "n1")},
    ):
        with pytest.raises(NotReadableError):
            await asked(here, Reader("ml"), **change)
    with pytest.raises(NotReadableError):
        await asked(here, Reader("other"), name="next", durationSeconds=600)


async def test_only_a_waiting_job_can_be_asked_about() -> None:
    with pytest.raises(NotWaitingError, match="starting"):
        await asked(clusters.busy(), name="runs", durationSeconds=600)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("all", "must be an object"),
        ({}, "must name a job"),
        ({"name": "a"}, "must change durationSeconds, gpus or queue"),
        ({"name": "a", "duration": 1}, "no such field"),
        ({"name": "a", "durationSeconds": True}, "durationSeconds"),
        ({"name": "a", "durationSeconds": 10**300}, "durationSeconds"),
        ({"name": "a", "durationSeconds": float("nan")}, "durationSeconds"),
        ({"name": "a", "gpus": 1.5}, "whole number"),
        ({"name": "a", "gpus": -1}, "whole number"),
        ({"name": ["a"], "gpus": 1}, "must be a name"),
        ({"name": "a" * 300, "gpus": 1}, "must be a name"),
        ({"clusterQueue": "a"}, "flavor and gpus"),
        ({"clusterQueue": "a", "queue": "b"}, "no such field"),
        ({"drain": "n", "gpus": 1}, "no such field"),
        ({"reservation": {}, "gpus": 1}, "no such field"),
        ({"reservation": "weekly"}, r"spec.change.reservation: must be an object"),
        ({"reservation": {"nodes": {}}}, r"spec.change.reservation.nodes: give names, matchLabels or anyOf"),
        ({"clusterQueue": "a", "flavor": "f", "gpus": 1, "at": 12}, "must be a time"),
        ({"clusterQueue": "a", "flavor": "f", "gpus": 1, "at": "tomorrow"}, "must be a time"),
    ],
)
def test_odd_changes_are_refused_by_field(given: object, words: str) -> None:
    with pytest.raises(WrongChangeError, match=words):
        changes.read(given)
