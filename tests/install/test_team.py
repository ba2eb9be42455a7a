"""What `gangline setup` makes of a cluster's nodes and of what is wished for a team."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gangline.api import names
from gangline.api.read import parse
from gangline.engine.model import Flavor, Node, Taint
from gangline.install import team
from gangline.install.team import ClusterObjects, TeamWishes, WishError, checked, kinds_of, manifests

GPU = "nvidia.com/gpu"
GKE = "cloud.google.com/gke-accelerator"
TAINT = Taint("reserved-for", "gangs", "NoSchedule")
Json = dict[str, Any]


def node(
    name: str, product: str = "nvidia-tesla-a100", gpus: int = 8, taints: tuple[Taint, ...] = (), **labels: str
) -> Node:
    offered = {"cpu": 96_000, "memory": 1 << 40, "pods": 110, **({GPU: gpus} if gpus else {})}
    return Node(
        name, {"kubernetes.io/hostname": name, **({GKE: product} if product else {}), **labels}, offered, taints
    )


A100 = [node(f"a{n}") for n in range(8)]
H100 = [node(f"h{n}", "nvidia-h100-80gb", taints=(TAINT,)) for n in range(4)]
CPU_ONLY = node("cpu-1", "", 0)


def made(
    wishes: TeamWishes, nodes: list[Node], cluster: ClusterObjects | None = None, flavors: tuple[Flavor, ...] = ()
) -> dict[str, Json]:
    bodies = manifests(checked(wishes), kinds_of(nodes, flavors), cluster or ClusterObjects())
    return {f"{body['kind']}/{body['metadata']['name']}": body for body in bodies}


def test_flavors_come_of_labels_taints_and_what_nodes_have() -> None:
    h100, a100 = kinds_of([*A100, *H100, CPU_ONLY], ())
    assert (a100.flavor, a100.labels, a100.gpus, a100.taints) == (
        "nvidia-tesla-a100",
        {GKE: "nvidia-tesla-a100"},
        64,
        (),
    )
    assert (h100.flavor, h100.gpus, h100.taints) == ("nvidia-h100-80gb", 32, (TAINT,))
    assert str(h100) == (
        "nvidia-h100-80gb: 4 nodes (cloud.google.com/gke-accelerator=nvidia-h100-80gb) with 32 nvidia.com/gpu, 384 cpu, "
        "4Ti memory, 440 pods; tainted reserved-for=gangs:NoSchedule"
    )
    (plain,) = kinds_of([node("n1", ""), node("n2", "")], ())
    assert (plain.flavor, plain.labels, plain.gpus) == ("default", {}, 16)
    (none,) = kinds_of([CPU_ONLY], ())
    assert (none.flavor, none.resource) == ("default", "")


def test_a_flavor_that_exists_is_taken_and_a_name_that_is_taken_is_not() -> None:
    exists = Flavor("big", {GKE: "nvidia-tesla-a100"})
    taken = Flavor("nvidia-h100-80gb", {"other": "x"})
    h100, a100 = kinds_of([*A100, *H100], (exists, taken))
    assert (a100.flavor, a100.exists, h100.flavor, h100.exists) == ("big", True, "nvidia-h100-80gb-2", False)
    found = made(TeamWishes("vision", gpus={"big": 8}), [*A100, *H100], flavors=(exists, taken))
    assert not [name for name in found if name.startswith("ResourceFlavor")]


def test_a_team_gets_all_that_a_job_needs() -> None:
    wishes = TeamWishes(
        "vision",
        gpus={"nvidia-tesla-a100": 40, "nvidia-h100-80gb": 8},
        cohort="research",
        borrowing=16,
        users=("mira",),
        groups=("vision-researchers",),
        leads=("lena",),
    )
    found = made(wishes, [*A100, *H100])
    assert list(found) == [
        "ResourceFlavor/nvidia-tesla-a100",
        "ResourceFlavor/nvidia-h100-80gb",
        "ClusterQueue/vision",
        "Namespace/vision",
        "LocalQueue/gpus",
        "RoleBinding/gangline-researchers",
        "RoleBinding/gangline-team-leads",
        "ClusterRoleBinding/gangline-priority-classes-vision",
    ]
    h100 = found["ResourceFlavor/nvidia-h100-80gb"]["spec"]
    assert h100["tolerations"] == [
        {"key": "reserved-for", "operator": "Equal", "value": "gangs", "effect": "NoSchedule"}
    ]
    spec = found["ClusterQueue/vision"]["spec"]
    assert (spec["cohortName"], spec["preemption"]["reclaimWithinCohort"]) == ("research", "Any")
    (group,) = spec["resourceGroups"]
    assert group["coveredResources"] == [GPU, "cpu", "memory"]
    assert group["flavors"][0]["resources"] == [
        {"name": GPU, "nominalQuota": 40, "borrowingLimit": 16},
        {"name": "cpu", "nominalQuota": 480},
        {"name": "memory", "nominalQuota": "5120Gi"},
    ]
    parsed = parse.cluster_queue(found["ClusterQueue/vision"])
    assert parsed.namespace_selector is not None
    assert found["LocalQueue/gpus"]["metadata"]["namespace"] == "vision"
    assert found["RoleBinding/gangline-researchers"]["roleRef"]["name"] == names.RESEARCHER
    assert [each["name"] for each in found["RoleBinding/gangline-researchers"]["subjects"]] == [
        "vision-researchers",
        "mira",
    ]
    assert found["RoleBinding/gangline-team-leads"]["roleRef"]["name"] == names.TEAM_LEAD


def test_terminals_are_for_all_whom_the_team_has_and_only_if_that_is_wished() -> None:
    people = TeamWishes("vision", gpus={"nvidia-tesla-a100": 8}, users=("mira",), leads=("lena",))
    first = made(people, A100)
    assert "RoleBinding/gangline-terminals" not in first
    both = made(replace(people, terminals=True), A100)["RoleBinding/gangline-terminals"]
    assert (both["roleRef"]["name"], both["metadata"]["namespace"]) == (names.TERMINAL_USER, "vision")
    assert [each["name"] for each in both["subjects"]] == ["mira", "lena"]
    bindings = {each: first[f"RoleBinding/{each}"] for each in ("gangline-researchers", "gangline-team-leads")}
    there = ClusterObjects([first["ClusterQueue/vision"]], (), bindings)
    later = made(TeamWishes("vision", groups=("guests",), terminals=True), A100, there)[
        "RoleBinding/gangline-terminals"
    ]
    assert [each["name"] for each in later["subjects"]] == ["mira", "lena", "guests"], (
        "those who are in it already, too"
    )
    kept = made(people, A100, replace(there, bindings={**bindings, "gangline-terminals": later}))
    assert kept["RoleBinding/gangline-terminals"]["subjects"] == later["subjects"], "nobody loses a right"
    with pytest.raises(WishError, match="say who may open terminals"):
        made(TeamWishes("vision", gpus={"nvidia-tesla-a100": 8}, terminals=True), A100)


def test_what_no_option_says_is_what_the_cluster_has() -> None:
    first = made(
        TeamWishes("vision", gpus={"nvidia-tesla-a100": 40}, cohort="research", borrowing=4, users=("mira",)),
        [*A100, *H100],
    )
    flavor = parse.flavor(first["ResourceFlavor/nvidia-tesla-a100"])
    there = ClusterObjects(
        [first["ClusterQueue/vision"]], (), {"gangline-researchers": first["RoleBinding/gangline-researchers"]}
    )
    again = made(TeamWishes("vision"), [*A100, *H100], there, (flavor,))
    assert again["ClusterQueue/vision"] == first["ClusterQueue/vision"]
    assert again["RoleBinding/gangline-researchers"] == first["RoleBinding/gangline-researchers"]
    more = made(TeamWishes("vision", users=("lena",)), [*A100, *H100], there, (flavor,))
    assert [each["name"] for each in more["RoleBinding/gangline-researchers"]["subjects"]] == ["mira", "lena"]
    second = made(TeamWishes("vision", gpus={"nvidia-h100-80gb": 8}), [*A100, *H100], there, (flavor,))
    flavors = second["ClusterQueue/vision"]["spec"]["resourceGroups"][0]["flavors"]
    assert [(each["name"], each["resources"][0]["nominalQuota"]) for each in flavors] == [
        ("nvidia-tesla-a100", 40),
        ("nvidia-h100-80gb", 8),
    ]


def test_a_second_namespace_is_selected_beside_the_first() -> None:
    first = made(TeamWishes("vision", gpus={"": 8}), A100)
    there = ClusterObjects([first["ClusterQueue/vision"]])
    flavor = parse.flavor(first["ResourceFlavor/nvidia-tesla-a100"])
    second = made(TeamWishes("vision", namespace="vision-2"), A100, there, (flavor,))
    rows = second["ClusterQueue/vision"]["spec"]["namespaceSelector"]["matchExpressions"]
    assert rows == [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["vision", "vision-2"]}]
    third = made(TeamWishes("vision", namespace="a"), A100, ClusterObjects([second["ClusterQueue/vision"]]), (flavor,))
    assert third["ClusterQueue/vision"]["spec"]["namespaceSelector"]["matchExpressions"][0]["values"] == [
        "a",
        "vision",
        "vision-2",
    ]


def test_without_a_number_the_team_owns_what_no_queue_owns() -> None:
    other = made(TeamWishes("language", gpus={"": 24}), A100)["ClusterQueue/language"]
    flavor = Flavor("nvidia-tesla-a100", {GKE: "nvidia-tesla-a100"})
    found = made(TeamWishes("vision"), A100, ClusterObjects([other]), (flavor,))
    quota = found["ClusterQueue/vision"]["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]
    assert quota == {"name": GPU, "nominalQuota": 40}


def test_quota_without_accelerators_is_of_cpu_and_memory() -> None:
    found = made(TeamWishes("web"), [CPU_ONLY])
    group = found["ClusterQueue/web"]["spec"]["resourceGroups"][0]
    assert group["coveredResources"] == ["cpu", "memory"] and group["flavors"][0]["resources"][0]["nominalQuota"] == 96
    job = team.sample_job(checked(TeamWishes("web")), kinds_of([CPU_ONLY], ()))
    assert job["spec"]["template"]["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "1"}}


OTHER = made(TeamWishes("language", gpus={"": 24}), A100)["ClusterQueue/language"]
TAKEN = Flavor("nvidia-tesla-a100", {GKE: "nvidia-tesla-a100"})


@pytest.mark.parametrize(
    ("wishes", "flag", "words"),
    [
        (TeamWishes("Vision Team"), "TEAM", "is no name"),
        (TeamWishes("v" * 10_000), "TEAM", "is no name"),
        (TeamWishes("vision", namespace="kube-system"), "--namespace", "manages no jobs in kube-system"),
        (TeamWishes("vision", namespace="../etc"), "--namespace", "is no name"),
        (TeamWishes("vision", queue="a b"), "--queue", "is no name"),
        (TeamWishes("vision", cohort="\x1b[31m"), "--cohort", "is no name"),
        (TeamWishes("vision", users=("a\nb",)), "--user", "is no name of a user or group"),
        (TeamWishes("vision", groups=("",)), "--group", "is no name of a user or group"),
        (TeamWishes("vision", leads=tuple(map(str, range(100)))), "--lead", "more than 64"),
        (TeamWishes("vision", gpus={"": -4}), "--gpus", "0 or more"),
        (TeamWishes("vision", gpus={"": 10**30}), "--gpus", "0 or more"),
        (TeamWishes("vision", borrowing=-1, cohort="c"), "--borrow", "0 or more"),
        (TeamWishes("vision", borrowing=8), "--borrow", "name it with --cohort"),
        (TeamWishes("vision", gpus={"": 1000}), "--gpus", "have 64 GPUs, of which other queues own 24: at most 40"),
        (
            TeamWishes("vision", gpus={"v100": 8}),
            "--gpus",
            "there is no flavor 'v100'; there is: nvidia-tesla-a100 (64 GPUs)",
        ),
    ],
)
def test_odd_wishes_are_refused_with_the_option_at_fault(wishes: TeamWishes, flag: str, words: str) -> None:
    with pytest.raises(WishError) as refused:
        made(wishes, A100, ClusterObjects([OTHER]), (TAKEN,))
    assert refused.value.flag == flag and words in str(refused.value)
    assert len(str(refused.value)) < 400


def test_one_number_for_several_flavors_is_refused() -> None:
    with pytest.raises(WishError, match=r"there are several flavors, nvidia-h100-80gb \(32 GPUs\), nvidia-tesla-a100"):
        made(TeamWishes("vision", gpus={"": 8}), [*A100, *H100])


def test_a_label_that_some_nodes_lack_and_a_cluster_without_nodes_are_refused() -> None:
    with pytest.raises(WishError, match="1 GPU nodes have no label pool, such as b"):
        kinds_of([node("a", pool="x"), node("b")], (), "pool")
    with pytest.raises(WishError, match="no nodes"):
        kinds_of([], ())


def test_a_queue_of_which_more_is_known_than_here_is_not_written() -> None:
    strange = made(TeamWishes("vision", gpus={"": 8}), A100)["ClusterQueue/vision"]
    group = strange["spec"]["resourceGroups"][0]
    group["flavors"].append(
        {"name": "spot", "resources": [{"name": each, "nominalQuota": 1} for each in group["coveredResources"]]}
    )
    with pytest.raises(WishError, match=r"has quota of flavor spot.*kubectl edit clusterqueue vision"):
        made(TeamWishes("vision"), A100, ClusterObjects([strange]), (TAKEN,))


def test_names_of_flavors_are_names_whatever_the_label_says() -> None:
    (kind,) = kinds_of([node("a", "NVIDIA A100-SXM4_80GB." + "x" * 40)], ())
    assert kind.flavor == "nvidia-a100-sxm4-80gb-" + "x" * 28
    (odd,) = kinds_of([node("a", "___")], ())
    assert odd.flavor == "default"
