"""What is planned for queues and nodes, beside what they have: quotas by QuotaPlans, and windows of Reservations on nodes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from tests.builders import clusters
from tests.control.test_capacity import node
from tests.control.test_room import flavor
from tests.control.test_whatif import at, plan

from gangline.api import names
from gangline.console.commands.see import nodes, share
from gangline.console.views import windows
from gangline.control.answers.sight import Asker, Everybody, Sight
from gangline.engine.model import Put, ReservedWindow

Json = dict[str, Any]
GPU = "nvidia.com/gpu"
HOUR = 3600


class Stranger:
    """Sees nothing of others, and knows no ClusterQueue."""

    async def sight(self, namespaces: Collection[str], queues: Collection[str]) -> Sight:
        return Sight()


def planned(written: int, now: int, after: str | None) -> list[clusters.Entry]:
    """Queue a with so much in its spec, and a plan whose status says what it has now and next."""
    resource, obj = plan(gpus=now)
    quota = {"flavor": "h100", "resource": GPU}
    status: Json = {
        "conditions": [{"type": names.ACTIVE, "status": "True", "reason": "InForce"}],
        "effectiveQuotas": [{**quota, "nominalQuota": str(now)}],
        "activeOverrides": ["night"],
    }
    if after is not None:
        status["nextChange"] = {"time": at(1), "overrides": [], "quotas": [{**quota, "nominalQuota": after}]}
    return [flavor(gpu="h100"), *clusters.queue("a", written), (resource, {**obj, "status": status})]


async def shares(entries: list[clusters.Entry], asker: Asker | None = None) -> list[Json]:
    found = await clusters.world_of(*entries).answers().shares(asker or Everybody(), "")
    return [row for row in found.items if row["level"] == "ClusterQueue"]


async def test_a_quota_says_what_is_written_and_what_comes_next_where_a_plan_gives_it() -> None:
    (row,) = await shares(planned(32, 8, "32"))
    (quota,) = row["quotas"]
    assert (quota["written"], quota["next"], row["plan"]["changesAt"]) == ("32", "32", clusters.NOW + HOUR)
    (row,) = await shares(planned(32, 8, None))
    assert (row["quotas"][0]["written"], row["quotas"][0]["next"]) == ("32", None)
    (row,) = await shares([flavor(gpu="h100"), *clusters.queue("a", 32)])
    assert not {"written", "next"} & row["quotas"][0].keys() and row["plan"] is None


async def test_who_may_not_see_a_queue_does_not_learn_of_its_plan() -> None:
    (row,) = await shares(planned(32, 8, "16"), Stranger())
    assert row["name"].startswith("queue-") and row["plan"] is None
    assert not {"written", "next"} & row["quotas"][0].keys()


async def test_tables_of_quota_have_columns_of_a_plan_only_where_there_is_one() -> None:
    (row,) = await shares(planned(32, 8, "16"))
    (limit,) = share.quotas([row])
    texts = {column.name: column.text(limit, clusters.NOW) for column in share.LIMITS.columns}
    assert texts["WRITTEN"] == "32" and texts["NEXT"].startswith("16 ") and texts["NEXT"].endswith("(in 60m)")
    shown = {column.name: column.text(row, clusters.NOW) for column in share.SHARES.columns}
    assert shown["NEXT"] == texts["NEXT"]
    (row,) = await shares([flavor(gpu="h100"), *clusters.queue("a", 32)])
    (limit,) = share.quotas([row])
    sparse = [column for column in share.LIMITS.columns if column.name in ("WRITTEN", "NEXT")]
    assert [column.text(limit, clusters.NOW) for column in sparse] == ["", ""] and all(each.sparse for each in sparse)
    assert next(each for each in share.SHARES.columns if each.name == "NEXT").text(row, clusters.NOW) == ""


# --- windows on nodes -------------------------------------------------------------------------------------------------


def window(name: str, begin: float, end: float, *on: str, soft: bool = False, users: tuple[str, ...] = ()) -> Put:
    """From so many hours from now on. It is announced half an hour before it stops jobs, which is a minute before it begins."""
    now, hour = clusters.NOW * 1000, HOUR * 1000
    return Put(
        ReservedWindow(
            f"{name}/1",
            name,
            now + round(begin * hour) - 60_000,
            now + round(end * hour),
            frozenset(on),
            users=frozenset(users),
            notice=30 * 60_000,
            lead=60_000,
            soft=soft,
        )
    )


async def test_a_node_says_which_window_it_is_in_or_comes_next() -> None:
    here = clusters.world_of(flavor(gpu="h100"), *clusters.queue("a", 32), node("n1"), node("n2"), node("n3"))
    for put in (window("now", -1, 1, "n1"), window("later", 5, 6, "n1", "n2"), window("over", -2, -1, "n3")):
        here.engine.observe(put)
    here.engine.decide(here.now)
    found = {row["metadata"]["name"]: row.get("window") for row in (await here.answers().nodes(Everybody(), "")).items}
    assert found["n1"] == {
        "reservation": "now",
        "maintenance": True,
        "soft": False,
        "announced": clusters.NOW - HOUR - 60 - 1800,
        "from": clusters.NOW - HOUR,
        "to": clusters.NOW + HOUR,
    }
    assert found["n2"] is not None and found["n2"]["reservation"] == "later"
    assert found["n3"] is None


@pytest.mark.parametrize(
    ("put", "words"),
    [
        (window("w", -1, 1, "n1"), "maintenance "),
        (window("w", 0.25, 1, "n1"), "emptying, maintenance "),
        (window("w", 0.25, 1, "n1", users=("mira",)), "emptying, reserved "),
        (window("w", 0.25, 1, "n1", soft=True, users=("mira",)), "soft "),
        (window("w", 5, 6, "n1"), "maintenance "),
    ],
)
async def test_nodes_are_listed_with_their_window(put: Put, words: str) -> None:
    here = clusters.world_of(flavor(gpu="h100"), *clusters.queue("a", 32), node("n1"))
    here.engine.observe(put)
    here.engine.decide(here.now)
    (row,) = (await here.answers().nodes(Everybody(), "")).items
    column = next(each for each in nodes.listing().columns if each.name == "WINDOW")
    told = column.text(row, clusters.NOW)
    assert told.startswith(words) and told.endswith(" (w)") and column.sparse
    assert windows.of_node(row, row["window"]["to"]) == "" == windows.of_node({}, 0)
