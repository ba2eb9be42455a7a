"""QuotaPlans that follow nodes, in the operator: quotas for the engine, those that are announced, statuses."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders.clusters import GPU, queue
from tests.builders.objects import T
from tests.control.test_quota_plans import HOUR, MINUTE, PlanningWorld, override, plan
from tests.objects import Stored

from gangline.api.read.conditions import millis_of, timestamp
from gangline.control.queues.followed_nodes import FIRST, LATE, PERIOD
from gangline.engine import model

Json = dict[str, Any]


class FollowingWorld(PlanningWorld):
    """As an engine it says that `usable` of two nodes with 8 GPUs are usable; both are of flavor h100."""

    usable = 2

    def __init__(self, *plans: Stored) -> None:
        super().__init__(*plans)
        self.at(T)

    def nodes_of_flavor(self, flavor: str) -> tuple[list[model.Node], int]:
        assert flavor == "h100"
        return [model.Node(f"n{i}", allocatable={GPU: 8}) for i in range(self.usable)], 2

    def until(self, end: int) -> None:
        """Acts whenever that is due."""
        while self.part.due is not None and self.part.due < end:
            self.at(self.part.due)
        self.at(end)

    def kill(self) -> None:
        """The operator dies; another one reads everything anew."""
        self.restart()
        self.at(self.now)


def follow(percent: int = 100, **more: Any) -> Json:
    return {"flavor": "h100", "resource": GPU, "sharePercent": percent, **more}


def following(*follows: Json, name: str = "p", **spec: Any) -> Stored:
    return plan(name, *spec.pop("overrides", ()), follow=list(follows), **spec)


def test_the_quota_is_the_share_of_the_usable_nodes_within_bounds() -> None:
    world = FollowingWorld(following(follow(75)))
    assert (world.gpus(), world.part.due) == (8, T + FIRST), "the engine has not judged the nodes yet"
    world.at(T + FIRST)
    assert (world.gpus(), world.part.due) == (12, T + FIRST + PERIOD)
    row = world.status()["follow"][0]
    assert (row["usableNodes"], row["nodes"], row["usableCapacity"], row["nominalQuota"]) == (2, 2, "16", "12")
    assert world.status()["effectiveQuotas"][0]["nominalQuota"] == "12"
    world.apply(following(follow(75, max=10)))
    world.at(T + 2 * FIRST)
    assert world.gpus() == 10, "another share or bound counts at once"


def test_a_node_that_flaps_changes_nothing_and_one_that_stays_away_does() -> None:
    world = FollowingWorld(following(follow(damping={"down": "5m", "up": "2m"})))
    world.until(T + FIRST)
    for times in range(1, 8):
        world.usable = 1 + times % 2
        world.until(T + times * 4 * MINUTE)
        assert world.gpus() == 16
    world.usable = 1
    world.until(world.now + PERIOD)
    row = world.status()["follow"][0]
    due = millis_of(row["pendingSince"]) + 5 * MINUTE
    assert (row["pendingCapacity"], row["changesAt"]) == ("8", timestamp(due))
    world.until(due - 1)
    assert world.gpus() == 16
    world.until(due)
    assert (world.gpus(), world.steps()) == (8, [])
    world.usable = 2
    world.until(world.now + 2 * MINUTE + PERIOD)
    assert world.gpus() == 16


@pytest.mark.parametrize("minutes", [0, 1, 4, 6])
def test_an_operator_that_is_killed_does_not_restart_the_damping(minutes: int) -> None:
    world = FollowingWorld(following(follow()))
    world.until(T + FIRST)
    world.usable = 1
    gone = T + FIRST + PERIOD
    world.until(gone + minutes * MINUTE)
    world.kill()
    assert world.gpus() == (16 if minutes < 5 else 8), "it goes on from the status, before it has seen a node"
    assert world.status()["follow"], "which it does not forget"
    world.until(gone + 5 * MINUTE - 1)
    if minutes < 5:
        assert world.gpus() == 16
    world.until(gone + 5 * MINUTE + PERIOD + FIRST)
    assert world.gpus() == 8


def test_a_shrinking_cluster_recalls_by_the_deadlines_of_the_plan() -> None:
    world = FollowingWorld(following(follow(), recall={"notice": "30m", "stopBefore": "2m"}))
    world.until(T + FIRST)
    world.usable = 1
    gone = T + FIRST + PERIOD
    world.until(gone + 5 * MINUTE - 1)
    assert world.steps() == [], "it may be back soon"
    world.until(gone + 5 * MINUTE)
    assert (world.gpus(), world.steps()) == (16, [(FIRST + PERIOD + 37 * MINUTE, 8)])
    ahead = world.ahead()
    assert ahead is not None and ahead.recall == model.Deadline(30 * MINUTE, 2 * MINUTE)
    assert world.status()["nextChange"]["time"] == timestamp(gone + 37 * MINUTE)
    world.until(gone + 37 * MINUTE)
    assert (world.gpus(), world.steps()) == (8, [])


def test_a_fall_that_came_while_nobody_led_is_announced_by_the_next_leader_before_it_counts() -> None:
    world = FollowingWorld(following(follow(), recall={"notice": "30m", "stopBefore": "2m"}))
    world.until(T + FIRST)
    world.usable = 1
    world.until(T + 20 * MINUTE)
    world.now = T + 10 * HOUR
    world.kill()
    assert world.gpus() == 16
    world.until(world.now + FIRST)
    due = 10 * HOUR + FIRST + 2 * MINUTE + LATE
    assert (world.gpus(), world.steps()) == (16, [(due, 8)]), "who exceeds it is stopped in ten seconds"
    world.until(T + due)
    assert (world.gpus(), world.steps()) == (8, [])


def test_nodes_that_come_back_in_time_call_the_recall_off() -> None:
    world = FollowingWorld(following(follow(), recall={"notice": "30m"}))
    world.until(T + FIRST)
    world.usable = 1
    world.until(T + 10 * MINUTE)
    assert len(world.steps()) == 1
    world.usable = 2
    world.until(T + 11 * MINUTE)
    assert (world.gpus(), world.steps()) == (16, [])


def test_an_active_override_of_the_calendar_wins_and_nodes_are_followed_beneath_it() -> None:
    day = override("day", 3, T + HOUR, T + 2 * HOUR)
    world = FollowingWorld(following(follow(), overrides=(day,)))
    world.until(T + HOUR)
    assert (world.gpus(), world.status()["follow"][0]["overriddenBy"]) == (3, "day")
    world.usable = 1
    world.until(T + 2 * HOUR - 1)
    assert world.gpus() == 3
    assert world.status()["follow"][0]["nominalQuota"] == "8"
    world.until(T + 2 * HOUR)
    assert world.gpus() == 8
    assert "overriddenBy" not in world.status()["follow"][0]


def test_shares_above_the_whole_are_said_on_each_plan() -> None:
    world = FollowingWorld(following(follow(60)), following(follow(50), name="q", queue="b"))
    for resource, obj in queue("b", 8, cohort="pool"):
        world.put(resource, Stored(obj))
    world.until(T + FIRST)
    said = ("True", f"ClusterQueue a, ClusterQueue b follow 110 % of {GPU} in flavor h100")
    assert world.conditions()["Oversubscribed"] == world.conditions("q")["Oversubscribed"] == said
    world.apply(following(follow(40), name="q", queue="b"))
    world.until(T + 2 * FIRST)
    assert world.conditions()["Oversubscribed"] == ("False", "Shares of no flavor sum above 100 %")


def test_a_plan_that_is_deleted_gives_the_quota_back_to_the_spec() -> None:
    world = FollowingWorld(following(follow(50)))
    world.usable = 1
    world.until(T + FIRST)
    assert world.gpus() == 4
    world.delete("p")
    world.at(T + 2 * FIRST)
    assert (world.gpus(), world.part.due) == (8, None)


def test_what_is_followed_and_is_no_quota_of_the_queue_is_said() -> None:
    world = FollowingWorld(following({**follow(), "resource": "cpu"}))
    world.until(T + FIRST)
    assert world.conditions()["Conflict"] == ("True", "ClusterQueue a has no quota of cpu in flavor h100")
