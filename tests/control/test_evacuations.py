"""Who would leave a node, were it vacated: played on a copy, shown to each asker as far as may be seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.builders.clusters import NOW, key_of
from tests.console import screens
from tests.control.test_answers import Reader
from tests.engine.node_world import NodeWorld, node, plain, queue

from gangline.console.views.own_answers import _OwnForesight
from gangline.control.answers.refusals import NoSuchNodeError
from gangline.control.answers.sight import Everybody
from gangline.control.forecasting import simulation_process
from gangline.control.forecasting.rehearsals import Move, evacuation
from gangline.engine.model import Recovery, Taint, Workload
from gangline.kube import resources as kube

Json = dict[str, Any]
TAINT = "gangline.io/vacate"
THREE, FOUR = "gpu-a100-rack-17-node-0003", "gpu-a100-rack-17-node-0004"


def leave(world: NodeWorld, name: str = "n0") -> tuple[Move, ...]:
    return evacuation(world.engine.facts(), world.engine.settings, world.now, name, TAINT)


def running(world: NodeWorld, *gangs: Workload) -> NodeWorld:
    for each in gangs:
        world.put(each)
        world.settle(2)
    return world


def test_it_is_what_the_operator_would_decide_and_changes_nothing() -> None:
    world = running(NodeWorld(node("n0"), node("n1"), queue(100)), plain("w1", 1))
    assert leave(world) == (Move("team/w1", "Replace"),)
    assert leave(world, "n1") == leave(world, "none") == ()
    assert world.settle() == [], "the engine itself has not heard of it"
    answered = simulation_process.in_process(
        simulation_process.evacuation_request(world.engine.facts(), world.engine.settings, world.now, "n0", TAINT)
    )
    assert answered == (Move("team/w1", "Replace"),)
    world.put(replace(world.nodes["n0"], taints=(Taint(TAINT),)))
    assert [each.workload for each in world.settle() if type(each).__name__ == "Heal"] == ["team/w1"]


def test_what_waits_takes_no_room_and_what_runs_is_not_preempted() -> None:
    full = running(NodeWorld(node("n0"), node("n1"), queue(100)), plain("w1", 1, priority=9), plain("w2", 1))
    assert leave(full) == ()
    full.put(plain("waits", 1, priority=100))
    full.settle()
    full.put(node("n2"))
    assert [move.workload for move in leave(full)] == ["team/w1"]
    off = running(NodeWorld(node("n0"), node("n1"), queue(100, recovery=Recovery(enabled=False))), plain("w1", 1))
    assert leave(off) == ()


# --- answers ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two gangs with pods on a node, one of which moves, and pods outside of queues."""
    world = screens.busy()
    for job, number in (("llama-3-70b-pretrain-continued-0018", 1), ("resnet", 2)):
        workload = key_of(world, job).partition("/")[2]
        world.pods.upsert(screens._pod(f"{job}-{number}", THREE, workload))
    world.pods.upsert(screens._pod("serving-5d8f7c9b4-x2x7k", THREE))
    moves = (Move(key_of(world, "resnet"), "Restart", (FOUR,)),)

    async def given_moves(_: Any, node: str) -> tuple[Move, ...]:
        assert node == THREE
        return moves

    monkeypatch.setattr(_OwnForesight, "evacuation", given_moves)
    return world


async def moved(world: Any, asker: Any, namespace: str = "ml", name: str = THREE) -> list[Json]:
    return await world.answers().moves(asker, namespace, name)


async def test_who_moves_is_first_and_who_stays_says_why(here: Any) -> None:
    moves, stays = await moved(here, Everybody())
    assert (moves["job"], moves["user"], moves["gpus"], moves["how"], moves["to"]) == (
        "gpujob/resnet", "mira", 16, "Restart", [FOUR]
    )  # fmt: skip
    assert (stays["moves"], stays["obstacle"]) == (False, "no healthy nodes have room for it without a preemption")
    assert await moved(here, Everybody(), name=FOUR) == [], "nobody sits there: nothing is played"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"unowned": True}, "it has no job that would make its pods anew"),
        ({"replaced": ((NOW * 1000 - 60_000, 5),)}, "it has used up its budget of 5 swapped nodes an hour"),
        ({"replaced": ((NOW * 1000 - 7_200_000, 5),)}, "no healthy nodes have room for it without a preemption"),
        ({"admission": None}, "it is stopping"),
    ],
)
async def test_each_reason_to_stay(
    here: Any, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], why: str
) -> None:
    value = here.mirror.workload_value(key_of(here, "llama-3-70b-pretrain-continued-0018"))
    monkeypatch.setattr(type(here.mirror), "workload_value", lambda *_: replace(value, **changed))
    _, stays = await moved(here, Everybody())
    assert stays["obstacle"] == why


async def test_others_see_sizes_and_only_nodes_of_their_flavors(here: Any) -> None:
    rows = await moved(here, Reader("ml"))
    assert [row["job"] for row in rows] == ["gpujob/resnet", "gpujob/llama-3-70b-pretrain-continued-0018"]
    for row in await moved(here, Reader("other")):
        assert row["hidden"] and row["job"].startswith("hidden-") and row["gpus"] and not row["to"]
        assert (row["namespace"], row["user"], row["obstacle"]) == ("", "", "")
    with pytest.raises(NoSuchNodeError, match=f"no node {THREE} of a flavor that the queues of namespace other offer"):
        await moved(here, Reader("other"), "other")
    with pytest.raises(NoSuchNodeError):
        await moved(here, Everybody(), name="none")
    del here.mirror.objects[kube.NODES][FOUR]
    assert len(await moved(here, Everybody(), "other")) == 2, "who sees everything sees every node"
