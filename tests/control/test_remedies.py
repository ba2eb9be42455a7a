"""The remedies that would let a waiting job start earlier: only what does, ranked by hours gained, the administrator too."""

from __future__ import annotations

from typing import Any

from tests.builders import clusters
from tests.builders.clusters import GPU, NOW, SECRET
from tests.control.test_room import Reader, flavor, node

from gangline.console.commands.see.why import remedy_lines
from gangline.control.answers.sight import Everybody

Json = dict[str, Any]


async def offers(here: Any, name: str = "mine", asker: Any = None) -> dict[str, Json]:
    here.engine.decide(NOW * 1000)
    _, answer = await here.answers().remedies(asker or Everybody(), "ml", "", name)
    return {row["change"]: row for row in answer["remedies"]}


async def why(here: Any, name: str = "mine") -> dict[str, list[str]]:
    lines: dict[str, list[str]] = {}
    for line in (await here.answers().why(Everybody(), "ml", "", name))[1]:
        lines.setdefault(line.label, []).append(line.text)
    return lines


def short(amount: int) -> str:
    said = f"insufficient unused quota for {GPU} in flavor h100, {amount} more needed"
    return f"couldn't assign flavors to pod set worker: {said}"


def quotas(entries: list[clusters.Entry], **more: Any) -> list[clusters.Entry]:
    entries[0][1]["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0] |= more
    return entries


def idle_cohort(message: str = "") -> Any:
    """16 GPUs are idle in the cohort, and queue a, which has 8 of its own, may borrow none."""
    return clusters.world_of(
        clusters.flavor("h100"),
        *quotas(clusters.queue("a", 8, cohort="lab"), borrowingLimit=8),
        *clusters.queue("b", 16, cohort="lab", namespace="other"),
        *clusters.submitted("runs", 1, "2h", ago=700, started=600),
        *clusters.submitted("mine", 2, "1h", ago=100, message=message),
    )


async def test_a_borrowing_limit_is_told_from_a_full_cluster_and_is_a_remedy() -> None:
    lines = await why(idle_cohort(short(8)))
    assert lines["limit"] == [
        "h100: the borrowingLimit of ClusterQueue a (8) binds; without it 16 GPUs could be used now"
    ]
    found = await offers(idle_cohort())
    (raised,) = [row for change, row in found.items() if change.startswith("borrowingLimit of h100 in ClusterQueue a")]
    assert raised["by"] == "administrator" and "+8 nvidia.com/gpu" in raised["change"]
    assert raised["startsInSeconds"]["p50"] == 0 and 1.5 < raised["gainedHours"] < 2.5
    smaller = next(row for change, row in found.items() if change.startswith("ask for 8 GPUs instead of 16"))
    assert smaller["by"] == "user" and smaller["startsInSeconds"]["p50"] == 0
    assert "the end of runs" in found, "the holder in its own queue"


async def test_a_full_cluster_is_said_to_be_full_and_holders_end_at_a_time() -> None:
    here = clusters.world_of(
        clusters.flavor("h100"),
        *clusters.queue("a", 16),
        *clusters.submitted("runs", 2, "2h", ago=700, started=600),
        *clusters.submitted("mine", 2, "1h", ago=100, message=short(16)),
    )
    lines = await why(here)
    assert lines["limit"] == ["h100: all of the quota is in use"]
    assert lines["held by"][0].startswith("h100: gpujob/runs (16, starting 10m, ends in 113m – ")
    found = await offers(here)
    assert found["the end of runs"]["startsInSeconds"]["p50"] == 0


async def test_reclaim_that_policy_forbids_is_named_and_offered() -> None:
    def world(reclaim: str) -> Any:
        own = clusters.queue("a", 16, cohort="lab")
        own[0][1]["spec"]["preemption"] = {"reclaimWithinCohort": reclaim, "withinClusterQueue": "Never"}
        used = {"name": "h100", "resources": [{"name": GPU, "total": "16", "borrowed": "16"}]}
        theirs = clusters.queue("b", 0, cohort="lab", namespace="other")
        theirs[0][1]["status"]["flavorsReservation"] = [used]
        return clusters.world_of(
            clusters.flavor("h100"),
            *own,
            *theirs,
            *clusters.submitted("theirs", 2, "4h", ago=700, started=600, queue="b", namespace="other"),
            *clusters.submitted("mine", 2, "1h", ago=100, message=short(16)),
        )

    assert (await why(world("Never")))["limit"] == [
        "h100: others borrow 16 GPUs, and reclaimWithinCohort: Never keeps the queue from taking its own back"
    ]
    found = await offers(world("Never"))
    row = found["reclaimWithinCohort of ClusterQueue a: Any instead of Never"]
    assert row["by"] == "administrator" and row["gainedHours"] > 3


async def test_a_gpujob_hears_of_its_own_field_for_fewer_pods() -> None:
    here = clusters.world_of(
        clusters.flavor("h100"),
        *clusters.queue("a", 16),
        *clusters.submitted("runs", 1, "2h", ago=700, started=600),
        *clusters.submitted("mine", 2, "1h", ago=100),
    )
    found = await offers(here)
    assert "let it start with fewer pods (spec.minWorkers)" in found
    assert not [change for change in found if "job-min-parallelism" in change]


async def test_quota_that_is_not_lent_is_named() -> None:
    theirs = quotas(clusters.queue("b", 16, cohort="lab", namespace="other"), lendingLimit=0)
    mine = clusters.submitted("mine", 2, "1h", ago=100, message=short(8))
    here = clusters.world_of(clusters.flavor("h100"), *clusters.queue("a", 8, cohort="lab"), *theirs, *mine)
    assert (await why(here))["limit"] == ["h100: others have 16 GPUs free that they do not lend (lendingLimit)"]


async def test_the_end_of_a_job_is_no_remedy_where_nodes_are_what_is_short() -> None:
    """A job of one GPU on a cordoned node: with its end there is quota, and no node."""
    here = clusters.world_of(
        flavor(pool="fast"),
        *clusters.queue("a", 16),
        node("n1"),
        node("n2", unschedulable=True, taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]),
        *clusters.submitted("runs", 1, "2h", ago=700, started=600),
        *clusters.submitted("mine", 2, "1h", ago=100),
    )
    found = await offers(here)
    assert "the end of runs" not in found
    assert found["kubectl uncordon n2"]["by"] == "administrator"


async def test_a_pod_wider_than_any_node_never_fits() -> None:
    def world(gpus: int, **node_labels: str) -> Any:
        entries = clusters.submitted("mine", 1, "1h", ago=100, message=short(8))
        (row,) = entries[1][1]["spec"]["podSets"]
        row["template"]["spec"]["containers"][0]["resources"] = {"requests": {GPU: str(gpus)}}
        return clusters.world_of(flavor(pool="fast"), *clusters.queue("a", 32), node("n1"), node("n2"), *entries)

    (item,) = (await world(16).answers().why(Everybody(), "ml", "", "mine"))[:1]
    assert item["never_fits" if "never_fits" in item else "neverFits"]
    lines = await why(world(16))
    assert lines["state"][0].endswith("it will never fit")
    said = "each pod of worker asks 16 GPUs, and no node of h100 has more than 8"
    assert lines["because"] == [said] and lines["needs"] == [f"smaller pods: {said}"]
    assert not lines.keys() & {"quota", "limit", "held by", "ahead", "on nodes"}, "nothing of these binds it"
    (item,) = (await world(8).answers().why(Everybody(), "ml", "", "mine"))[:1]
    assert not item["neverFits"]


async def test_a_job_that_may_shrink_does_not_hear_that_it_never_fits() -> None:
    message = (
        "couldn't assign flavors to pod set worker: insufficient quota for nvidia.com/gpu in flavor h100, previously considered"
        " podsets requests (0) + current podset request (32) > maximum capacity (16)"
    )
    entries = clusters.submitted("mine", 4, "1h", ago=100, message=message)
    workload = entries[1][1]
    workload["status"]["conditions"][0]["reason"] = "ExceedsMaxQuota"
    never = await why(clusters.world_of(clusters.flavor("h100"), *clusters.queue("a", 16), *entries))
    assert never["state"][0].endswith("it will never fit")
    workload["spec"]["podSets"][0]["minCount"] = 2
    lines = await why(clusters.world_of(clusters.flavor("h100"), *clusters.queue("a", 16), *entries))
    assert not lines["state"][0].endswith("it will never fit") and "at least 50 %" in lines["needs"][0]


async def test_an_unknown_resource_and_a_missing_flavor_are_named() -> None:
    async def needs(message: str) -> str:
        entries = clusters.submitted(
            "mine", 1, "1h", ago=100, message=f"couldn't assign flavors to pod set worker: {message}"
        )
        entries[1][1]["status"]["conditions"][0]["reason"] = "NoMatchingFlavor"
        return (await why(clusters.world_of(clusters.flavor("h100"), *clusters.queue("a", 16), *entries)))["needs"][0]

    assert await needs("resource example.com/fpga unavailable in ClusterQueue") == (
        "not to ask for example.com/fpga; or an administrator to give ClusterQueue a quota for it "
        "(kubectl edit clusterqueue a: coveredResources and each flavor of spec.resourceGroups)"
    )
    used = f"insufficient unused quota for {GPU} in flavor h100, 8 more needed"
    both = await needs(f"{used}, resource example.com/fpga unavailable in ClusterQueue")
    assert both.startswith("not to ask for example.com/fpga"), "what is in use now does not bind it"
    assert await needs("flavor h200 not found") == "ResourceFlavor h200 to be created"
    assert (
        await needs("flavor h100 doesn't match node affinity") == "a node selector and affinity that match flavor h100"
    )


async def test_a_stopped_queue_is_a_remedy_for_the_administrator() -> None:
    own = clusters.queue("a", 16)
    own[0][1]["spec"]["stopPolicy"] = "Hold"
    found = await offers(
        clusters.world_of(clusters.flavor("h100"), *own, *clusters.submitted("mine", 2, "1h", ago=100))
    )
    row = found["stopPolicy of ClusterQueue a: None instead of Hold"]
    assert row["gainedHours"] is None, "it would not start at all"


async def test_no_remedy_names_another_team() -> None:
    here = clusters.shared()
    here.engine.decide(NOW * 1000)
    _, answer = await here.answers().remedies(Reader("ml"), "ml", "", "next")
    assert SECRET not in str(answer) and answer["remedies"]


def test_remedies_are_lines_best_first() -> None:
    span = {"p50": 0.0, "p90": 0.0}
    answer = {
        "startsInSeconds": {"p50": 3600.0, "p90": 7200.0},
        "because": "after runs ends",
        "remedies": [
            {"change": "x +8", "by": "administrator", "startsInSeconds": span, "gainedHours": 1.0},
            {"change": "y", "by": "user", "startsInSeconds": {"p50": 600.0, "p90": None}, "gainedHours": None},
        ],
    }
    assert [(line.label, line.text) for line in remedy_lines(answer)] == [
        ("starts", "in 60m – 120m, after runs ends"),
        ("remedies", "x +8 (an administrator): starts now, 60m earlier"),
        ("remedies", "y: starts in 10m – ?"),
    ]
    assert remedy_lines({"startsInSeconds": None, "remedies": []})[0].text == "not expected, as things are"
    assert remedy_lines({}) == []
    busy = remedy_lines({"startsInSeconds": None, "remedies": [], "unexamined": 3})[-1]
    assert busy.text == "3 other changes were not tried in time: the operator is busy, ask again"
