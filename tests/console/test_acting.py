"""Commands that change jobs and queues, on a small API server made of dictionaries: what is written, and what is refused."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from tests.console import screens
from tests.console.objects import condition, local_queue, pending, running, workload

from gangline.api import names
from gangline.api.read.configuration.manager import KUEUES
from gangline.console import cli
from gangline.console.commands.admin import cordon, swap
from gangline.console.commands.change import cancel, hold, move
from gangline.console.commands.see import share
from gangline.console.output import terminal
from gangline.console.output.selection import ListSelection
from gangline.console.views import access, asking, targets
from gangline.control.answers.workloads.snapshot import JobState
from gangline.kube.client import ObjectList
from gangline.kube.errors import Conflict, Forbidden, NotFound
from gangline.kube.resources import (
    CLUSTER_QUEUES,
    JOBS,
    LEADER_WORKER_SETS,
    LOCAL_QUEUES,
    NODES,
    PODS,
    STATEFUL_SETS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Json,
    Resource,
)

HERE = "team-vision"


class Api:
    """`between` runs before each write: what others do between a look and a write."""

    def __init__(self, *objects: tuple[Resource, Json]) -> None:
        self.objects: dict[tuple[str, str], Json] = {}
        for resource, obj in objects:
            obj["metadata"].setdefault("resourceVersion", "1")
            obj["metadata"].setdefault("uid", obj["metadata"]["name"])
            self.objects[resource.plural, obj["metadata"]["name"]] = obj
        self.deleted: list[str] = []
        self.queries: list[Any] = []
        self.between: Callable[[], None] | None = None
        self.forbidden: set[str] = set()

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Json:
        if resource.plural in self.forbidden:
            raise Forbidden(403, "Forbidden", f"you may not get {resource.plural}")
        if (resource.plural, name) not in self.objects:
            raise NotFound(404, "NotFound", f"{name} not found")
        return copy.deepcopy(self.objects[resource.plural, name])

    async def list(self, resource: Resource, namespace: str | None = None, *, label_selector: str = "") -> ObjectList:
        if resource.plural in self.forbidden and resource != WORKLOADS:  # Workloads may be seen, and not changed
            raise Forbidden(403, "Forbidden", f"you may not list {resource.plural}")
        key, equals, value = label_selector.partition("=")
        found = [copy.deepcopy(obj) for (plural, _), obj in self.objects.items() if plural == resource.plural]
        labels = [(obj, obj["metadata"].get("labels") or {}) for obj in found]
        labelled = [obj for obj, of in labels if not key or (of.get(key) == value if equals else key in of)]
        return ObjectList(labelled, "1")

    async def patch(self, resource: Resource, namespace: str | None, name: str, body: Json, *, query: Any) -> Json:
        if self.between is not None:
            self.between, work = None, self.between
            work()
        if resource.plural in self.forbidden:
            raise Forbidden(403, "Forbidden", REFUSED)
        obj = self.objects[resource.plural, name]
        if body["metadata"].get("resourceVersion") != obj["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", "the object has been modified")
        self.queries.append(query)
        if not query:
            merge(obj, body)
            self.touch(resource, name)
        return obj

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        propagation: str = "",
        uid: str = "",
        resource_version: str = "",
    ) -> Json:
        meta = self.objects[resource.plural, name]["metadata"]
        assert uid == meta["uid"] and resource_version in ("", meta["resourceVersion"])
        self.deleted.append(f"{resource.plural}/{name}")
        return {}

    def touch(self, resource: Resource, name: str) -> None:
        meta = self.objects[resource.plural, name]["metadata"]
        meta["resourceVersion"] = str(int(meta["resourceVersion"]) + 1)


def merge(obj: Json, body: Json) -> None:
    for key, value in body.items():
        if isinstance(value, dict):
            merge(obj.setdefault(key, {}), value)
        else:
            obj[key] = value


def job(name: str, **labels: str) -> tuple[Resource, Json]:
    meta = {
        "name": name,
        "namespace": HERE,
        "uid": f"job-{name}",
        "labels": {"kueue.x-k8s.io/queue-name": "gpus", **labels},
    }
    return JOBS, {"kind": "Job", "metadata": meta}


def of(made: Json) -> tuple[Resource, Json]:
    made["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
    return WORKLOADS, made


def cluster(*more: tuple[Resource, Json]) -> Any:
    return Api(
        *(job("waits"), of(pending("waits")), job("runs"), of(running("runs", pods=2))),
        *((LOCAL_QUEUES, with_spec(local_queue())), (LOCAL_QUEUES, with_spec(local_queue("other")))),
        *more,
    )


def with_spec(obj: Json, **spec: Any) -> Json:
    return {**obj, "spec": {**obj["spec"], **spec}}


def workload_of(api: Api, name: str) -> Json:
    return api.objects["workloads", f"job-{name}-1a2b3"]


# --- hold and release -----------------------------------------------------------------------------------------------------


async def test_a_job_that_waits_is_held_and_released() -> None:
    api = cluster()
    assert await hold.held(api, HERE, "waits") == "job/waits is held"
    assert workload_of(api, "waits")["spec"]["active"] is False
    assert await hold.held(api, HERE, "job/waits") == "job/waits is held already"
    assert await hold.released(api, HERE, "waits") == "job/waits is queued again"
    assert workload_of(api, "waits")["spec"]["active"] is True
    assert await hold.released(api, HERE, "waits") == "job/waits is not held: it waits"


async def test_a_job_that_runs_is_stopped_only_if_that_is_said() -> None:
    api = cluster()
    with pytest.raises(
        click.ClickException, match=r"job/runs runs on 16 GPUs: to hold it would stop it. --stop does so"
    ):
        await hold.held(api, HERE, "runs")
    assert "active" in workload_of(api, "runs")["spec"] and workload_of(api, "runs")["spec"]["active"]
    assert await hold.held(api, HERE, "runs", stop=True) == "job/runs is held, and stops"


async def test_a_job_that_starts_meanwhile_is_not_held() -> None:
    api = cluster()

    def starts() -> None:
        _, started = of(running("waits"))
        api.objects["workloads", "job-waits-1a2b3"] = {
            **started,
            "metadata": {**started["metadata"], "resourceVersion": "7"},
        }

    api.between = starts
    with pytest.raises(click.ClickException, match="job/waits runs on 8 GPUs"):
        await hold.held(api, HERE, "waits")
    assert workload_of(api, "waits")["spec"]["active"]


async def test_a_change_that_does_not_matter_is_no_obstacle() -> None:
    api = cluster()
    api.between = lambda: api.touch(WORKLOADS, "job-waits-1a2b3")
    assert await hold.held(api, HERE, "waits") == "job/waits is held"


async def test_a_dry_run_changes_nothing() -> None:
    api = cluster()
    assert await hold.held(api, HERE, "waits", dry_run=True) == "job/waits is held"
    assert api.queries == [{"dryRun": "All"}] and workload_of(api, "waits")["spec"]["active"]


REFUSED = (
    'workloads.kueue.x-k8s.io "x" is forbidden: User "mira" cannot patch resource "workloads" in API group "kueue.x-k8s.io" '
    'in the namespace "team-vision"'
)


async def test_who_has_no_right_hears_which_role_has_it() -> None:
    api = cluster()
    api.forbidden.add("workloads")
    with pytest.raises(click.ClickException, match="mira may not patch workloads") as refused:
        await hold.held(api, HERE, "runs", stop=True)
    assert "--clusterrole gangline-team-lead-role --user mira" in refused.value.message


async def test_a_researcher_holds_and_releases_her_job_by_its_annotation() -> None:
    """She may change jobs, and no Workloads: in these stands what counts as quota."""
    api = cluster()
    api.forbidden.add("workloads")
    assert await hold.held(api, HERE, "waits") == "job/waits is held"
    annotations = api.objects["jobs", "waits"]["metadata"]["annotations"]
    assert annotations == {"gangline.io/hold": "true"} and workload_of(api, "waits")["spec"]["active"]
    assert await hold.held(api, HERE, "waits") == "job/waits is held already"
    assert await hold.released(api, HERE, "waits") == "job/waits is queued again"
    assert annotations == {"gangline.io/hold": None}
    assert await hold.released(api, HERE, "waits") == "job/waits is not held: it waits"


async def test_who_releases_a_job_that_waits_for_others_hears_how_to_end_that() -> None:
    api = cluster()
    workload_of(api, "waits")["metadata"]["annotations"] = {names.AFTER: "job/first=Succeeded"}
    assert await hold.released(api, HERE, "waits") == (
        "job/waits is not held: it waits for other jobs, which its annotation names: "
        f"`kubectl annotate job/waits -n {HERE} gangline.io/after-` ends that"
    )


async def test_what_an_administrator_held_only_who_may_write_workloads_releases() -> None:
    api = cluster()
    assert await hold.held(api, HERE, "waits") == "job/waits is held"
    api.forbidden.add("workloads")
    with pytest.raises(click.ClickException, match="mira may not patch workloads"):
        await hold.released(api, HERE, "waits")


async def test_queues_are_held_drained_and_released() -> None:
    api = cluster((CLUSTER_QUEUES, {"metadata": {"name": "vision"}, "spec": {}}))
    assert await hold.held(api, HERE, "lq/gpus") == "LocalQueue gpus starts no jobs; those that run go on"
    assert api.objects["localqueues", "gpus"]["spec"]["stopPolicy"] == "Hold"
    assert await hold.held(api, HERE, "clusterqueue/vision", stop=True) == (
        "ClusterQueue vision starts no jobs, and those that run are stopped"
    )
    assert api.objects["clusterqueues", "vision"]["spec"]["stopPolicy"] == "HoldAndDrain"
    assert await hold.released(api, HERE, "localqueue/gpus") == "LocalQueue gpus starts jobs"
    assert await hold.released(api, HERE, "localqueue/gpus") == "LocalQueue gpus starts jobs already"


async def test_what_does_not_exist_or_is_in_no_queue_is_said() -> None:
    api = cluster(job("lost"))
    with pytest.raises(click.ClickException, match="no job 'none' in namespace team-vision that you may read"):
        await hold.held(api, HERE, "none")
    with pytest.raises(click.ClickException, match="job/lost has no Workload, so it is in no queue"):
        await hold.held(api, HERE, "lost")
    ended = Api(of(workload("done", condition("Finished", True, "Succeeded"))), job("done"))
    with pytest.raises(click.ClickException, match="has ended: there is nothing to hold"):
        await hold.held(ended, HERE, "done")  # type: ignore[arg-type]


# --- swap now -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def vacating(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two nodes, and an operator that says who would move; `api.away`: it does not answer."""
    api: Any = Api(*((NODES, {"metadata": {"name": name}, "spec": {}}) for name in ("n1", "n2")))
    api.login, api.away = SimpleNamespace(namespace=HERE), False

    @asynccontextmanager
    async def client(*_: Any) -> AsyncIterator[Any]:
        yield api

    async def get(_: Any, path: str, query: Any = None) -> Json:
        if api.away:
            raise asking.NotServedError("the operator does not answer")
        gangs = screens.moving()[:3] if path.endswith("/flavornodes/n1/moves") else []
        return {"gangs": [{k: v for k, v in each.items() if k != "node"} for each in gangs]}

    monkeypatch.setattr(access, "client", client)
    monkeypatch.setattr(asking, "get", get)
    return api


def taints(api: Api, name: str) -> list[Json]:
    return api.objects["nodes", name]["spec"].get("taints") or []


def test_gangs_leave_nodes_after_a_yes(vacating: Any) -> None:
    asked = call("admin swap now n1 node/n2", "n\n")
    assert asked.exit_code == 1 and "Move the gangs of nodes n1, n2 now?" in asked.stdout
    assert "no healthy nodes have room for it" in asked.stdout, "the reason is printed before"
    assert not taints(vacating, "n1")
    done = call("admin swap now n1 node/n2", "y\n")
    assert done.exit_code == 0 and taints(vacating, "n1") == taints(vacating, "n2") == [swap.TAINT]
    again = call("admin swap now n1 -y")
    assert again.stdout == "Gangs are to leave node n1 already\n" and len(taints(vacating, "n1")) == 1
    assert call("admin uncordon n1 n2").exit_code == 0 and not taints(vacating, "n1")


def test_nothing_is_vacated_where_one_node_does_not_exist(vacating: Any) -> None:
    done = call("admin swap now n1 none -y")
    assert done.exit_code == 1 and "there is no node 'none'" in done.stderr and not taints(vacating, "n1")
    assert "is not a node" in call("admin swap now job/n1 -y").stderr


def test_nodes_are_vacated_where_no_operator_answers(vacating: Any) -> None:
    """The next one acts on it."""
    vacating.away = True
    done = call("admin swap now n1", "y\n")
    assert done.exit_code == 0 and "nobody says what would become of the gangs" in done.stderr
    assert "Gangs are to leave node n1" in done.stdout
    assert "Nobody moves them yet: no operator leads. The next leader does" in done.stdout
    renewed = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    lease = {"metadata": {"name": KUEUES.name}, "spec": {"holderIdentity": "one", "renewTime": renewed}}
    vacating.objects["leases", KUEUES.name] = lease
    assert "Nobody moves" not in call("admin swap now n2 -y").stdout, "one leads that serves no API"
    vacating.forbidden.add("leases")
    assert "Nobody moves" not in call("admin swap now n2 -y").stdout, "it is not known"
    assert taints(vacating, "n1") == [swap.TAINT]
    assert call("admin swap dry-run n1").exit_code == 1


async def test_a_taint_that_others_add_to_a_vacated_node_stays(vacating: Any) -> None:
    other = {"key": "maintenance", "effect": "NoSchedule"}

    def tainted() -> None:
        vacating.objects["nodes", "n1"]["spec"]["taints"] = [other]
        vacating.touch(NODES, "n1")

    vacating.between = tainted
    assert "as far as other nodes have room" in await swap.vacated(vacating, "n1")
    assert taints(vacating, "n1") == [other, swap.TAINT]


# --- many at once ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A cluster with two users' jobs, one of them held, for commands as they are typed."""
    owned = {name: of(pending(name)) for name in ("tuned", "probe")}
    owned["probe"][1]["spec"]["active"] = False
    mira = {"gangline.io/user": "mira"}  # a job has the label, its Workload has not
    api = cluster(job("tuned", **mira), job("probe", **mira), *owned.values())
    api.login = SimpleNamespace(namespace=HERE)

    @asynccontextmanager
    async def client(*_: Any) -> AsyncIterator[Any]:
        yield api

    monkeypatch.setattr(access, "client", client)
    return api


def call(line: str, answer: str = "") -> Result:
    """What a command does, with an answer on a terminal, or without any terminal."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(terminal, "can_ask", lambda: bool(answer))
        return CliRunner().invoke(cli.main, line.split(), input=answer, catch_exceptions=False)


def active(api: Api) -> dict[str, bool]:
    names = ("waits", "runs", "tuned", "probe")
    return {name: workload_of(api, name)["spec"].get("active") is not False for name in names}


def test_jobs_that_filters_choose_are_held_after_a_yes(many: Api) -> None:
    before = active(many)
    done = call("hold --queue gpus", "n\n")
    assert done.exit_code == 1 and "Hold 2 jobs of namespace team-vision (job/" in done.output
    assert active(many) == before
    dry = call("hold --queue gpus --dry-run")
    assert dry.stdout.count("is held (dry run: nothing is changed)") == 2 and active(many) == before
    done = call("hold --queue gpus", "y\n")
    assert done.exit_code == 0, done.output
    assert active(many) == {"waits": False, "runs": True, "tuned": False, "probe": False}, "what runs goes on"
    assert call("release -u mira --yes").stdout.splitlines() == [
        "job/probe is queued again",
        "job/tuned is queued again",
    ]
    assert active(many) == {"waits": False, "runs": True, "tuned": True, "probe": True}


@pytest.mark.parametrize("line", ["hold --queue gpus", "release -u mira", "cancel -u mira", "hold -s running --stop"])
def test_without_a_terminal_to_ask_a_consent_is_wanted(line: str, many: Api) -> None:
    before = active(many)
    done = call(line)
    assert done.exit_code == 2 and "There is no terminal to ask: -y says yes" in done.stderr
    assert active(many) == before and not many.deleted


def test_jobs_of_a_user_are_found_by_the_label_of_the_jobs(many: Api) -> None:
    assert call("cancel -u mira -s pending -y").exit_code == 0
    assert many.deleted == ["jobs/tuned"]
    many.forbidden.add("jobs")
    none = call("cancel -u mira -y")
    assert none.exit_code == 1 and "no job in namespace team-vision is left by these filters" in none.stderr


def test_jobs_that_run_are_chosen_only_to_be_stopped(many: Api) -> None:
    none = call("hold -s running -y")
    assert none.exit_code == 1 and "no job in namespace team-vision that is pending is left" in none.output
    assert call("hold -s running --stop -y").stdout == "job/runs is held, and stops\n"
    assert "no job in namespace team-vision that is inactive is left" in call("release -u nobody -y").output
    assert call("hold").exit_code == call("hold waits --queue gpus").exit_code == 2


def test_a_job_that_starts_meanwhile_costs_the_others_nothing(many: Api) -> None:
    def started() -> None:
        raw = workload_of(many, "tuned")
        raw["status"] = running("tuned", pods=2)["status"]
        many.touch(WORKLOADS, raw["metadata"]["name"])

    many.between = started
    done = call("hold -u mira -s pending --yes")
    assert done.exit_code == 0 and "job/tuned runs on 16 GPUs: to hold it would stop it" in done.stderr
    many.between = started
    assert call("hold tuned").exit_code == 1, "a job that was named was not held"


# --- notify set -----------------------------------------------------------------------------------------------------------


def notes_of(api: Api, name: str) -> Json:
    found = api.objects["jobs", name]["metadata"].get("annotations") or {}
    return {key: value for key, value in found.items() if value is not None}


def test_a_job_says_of_what_it_notifies_and_whom(many: Api) -> None:
    done = call("notify set waits --events failed,STALLED --events Failed --to mira@example.org")
    assert done.stdout == "job/waits: messages about Failed, Stalled are sent to mira@example.org\n"
    assert notes_of(many, "waits") == {names.NOTIFY: "Failed, Stalled", names.NOTIFY_TO: "mira@example.org"}
    again = call("notify set waits --to mira@example.org")
    assert again.stdout == "job/waits: messages about Failed, Stalled are sent to mira@example.org, as before\n"
    assert call("notify set waits --events none").stdout == "job/waits: no messages are sent\n"
    assert notes_of(many, "waits")[names.NOTIFY] == "none"
    dry = call("notify set waits --events all --dry-run")
    assert "all messages that the policy of its queue sends are sent to mira@example.org (dry run" in dry.stdout
    assert call("notify set waits --events all --to none").exit_code == 0 and notes_of(many, "waits") == {}


def test_pods_notify_by_their_workload(many: Api) -> None:
    group = pending("group")
    group["metadata"]["ownerReferences"] = []
    many.objects["workloads", "group"] = {**group, "metadata": {**group["metadata"], "name": "group", "uid": "g"}}
    many.objects["workloads", "group"]["metadata"]["resourceVersion"] = "1"
    assert call("notify set group --events Failed").exit_code == 0
    assert many.objects["workloads", "group"]["metadata"]["annotations"] == {names.NOTIFY: "Failed"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("notify set waits", "--events or --to"),
        ("notify set waits --events started", "'started' is none of Admitted"),
        ("notify set waits --events none,Failed", "none stands alone"),
        ("notify set waits --to a?b", "without spaces"),
    ],
)
def test_what_no_job_can_notify_is_refused(many: Api, line: str, said: str) -> None:
    done = call(line)
    assert done.exit_code == 2 and said in done.stderr and notes_of(many, "waits") == {}


# --- cordon ---------------------------------------------------------------------------------------------------------------


async def test_a_node_is_cordoned_and_used_again() -> None:
    taints = [{"key": "team", "value": "vision", "effect": "NoSchedule"}, {"key": names.VACATE, "effect": "NoSchedule"}]
    api: Any = Api((NODES, {"metadata": {"name": "n1"}, "spec": {"taints": taints}}))
    assert "takes no new pods; those on it go on" in await cordon.cordoned(api, HERE, "n1")
    assert api.objects["nodes", "n1"]["spec"]["unschedulable"] is True
    assert "already" in await cordon.cordoned(api, HERE, "node/n1")
    message = await cordon.uncordoned(api, HERE, "no/n1")
    assert message == "Node n1 takes new pods again, as far as they tolerate its taints (team)"
    spec = api.objects["nodes", "n1"]["spec"]
    assert spec["taints"] == taints[:1] and not spec["unschedulable"]
    assert await cordon.uncordoned(api, HERE, "n1") == "Node n1 is not cordoned"


async def test_a_taint_that_others_add_meanwhile_stays() -> None:
    added = {"key": "maintenance", "effect": "NoExecute"}
    api: Any = Api(
        (NODES, {"metadata": {"name": "n1"}, "spec": {"taints": [{"key": names.VACATE, "effect": "NoSchedule"}]}})
    )

    def tainted() -> None:
        api.objects["nodes", "n1"]["spec"]["taints"].append(added)
        api.touch(NODES, "n1")

    api.between = tainted
    await cordon.uncordoned(api, HERE, "n1")
    assert api.objects["nodes", "n1"]["spec"]["taints"] == [added]


async def test_queues_are_cordoned_and_what_is_neither_is_refused() -> None:
    api = cluster((CLUSTER_QUEUES, {"metadata": {"name": "vision"}, "spec": {}}))
    assert "starts no jobs; those that run go on" in await cordon.cordoned(api, HERE, "clusterqueue/vision")
    assert api.objects["clusterqueues", "vision"]["spec"]["stopPolicy"] == "Hold"
    assert await cordon.uncordoned(api, HERE, "cq/vision") == "ClusterQueue vision starts jobs"
    for name, words in {"job/waits": "is neither a node", "node/none": "there is no node 'none'"}.items():
        with pytest.raises(click.ClickException, match=words):
            await cordon.cordoned(api, HERE, name)


# --- cancel -------------------------------------------------------------------------------------------------------------


async def test_the_job_that_was_looked_at_is_deleted() -> None:
    api = cluster()
    assert await cancel.cancelled(api, HERE, "runs") == "job/runs is cancelled (it runs on 16 GPUs)"
    assert await cancel.cancelled(api, HERE, "waits", dry_run=True) == "job/waits would be cancelled (it waits)"
    assert api.deleted == ["jobs/runs"]


async def test_a_job_that_has_ended_meanwhile_stops_no_other_cancellation(capsys: pytest.CaptureFixture[str]) -> None:
    api = cluster()
    missing = await cancel.cancel(api, HERE, ["job/waits", "gone", "job/runs"])
    assert missing == [f"no job 'gone' in namespace {HERE} that you may read"]
    assert api.deleted == ["jobs/waits", "jobs/runs"]
    assert "job/runs is cancelled" in capsys.readouterr().out


async def test_a_group_of_pods_is_cancelled_by_its_pods() -> None:
    group = pending("group")
    del group["metadata"]["ownerReferences"]
    group["metadata"] |= {"name": "group", "annotations": {"kueue.x-k8s.io/is-group-workload": "true"}}
    pods = [
        (PODS, {"metadata": {"name": f"p{i}", "labels": {"kueue.x-k8s.io/pod-group-name": "group" if i < 2 else "b"}}})
        for i in range(3)
    ]
    api: Any = Api((WORKLOADS, group), *pods)
    assert "podgroup/group is cancelled" in await cancel.cancelled(api, HERE, "group")
    assert api.deleted == ["pods/p0", "pods/p1"]


def serving(kind: str, name: str, **notes: str) -> Json:
    """The Workload of a group that such an object has made, which owns it together with the group's pods."""
    made, group = pending("any"), "apps/v1" if kind == "StatefulSet" else "leaderworkerset.x-k8s.io/v1"
    owners = [
        {"apiVersion": "v1", "kind": "Pod", "name": "p0", "uid": "p0"},
        {"apiVersion": group, "kind": kind, "name": name, "uid": name},
    ]
    annotations = {
        "is-group-workload": "true",
        "job-owner-gvk": f"{group}, Kind={kind}",
        "job-owner-name": name,
        **notes,
    }
    keys = {f"kueue.x-k8s.io/{key}": value for key, value in annotations.items()}
    made["metadata"] |= {"name": f"{name}-1a", "ownerReferences": owners, "annotations": keys}
    return made


async def test_a_group_that_is_named_by_annotation_is_cancelled_by_its_pods() -> None:
    group = pending("group")
    del group["metadata"]["ownerReferences"]
    group["metadata"] |= {"name": "group", "annotations": {"kueue.x-k8s.io/is-group-workload": "true"}}
    pod = {"metadata": {"name": "p0", "annotations": {"kueue.x-k8s.io/pod-group-name": "group"}}}
    api: Any = Api((WORKLOADS, group), (PODS, pod))
    await cancel.cancelled(api, HERE, "group")
    assert api.deleted == ["pods/p0"]


async def test_what_serves_is_cancelled_as_a_whole_and_nothing_that_is_made_again() -> None:
    database = {"metadata": {"name": "db"}}
    api: Any = Api((WORKLOADS, serving("StatefulSet", "db")), (STATEFUL_SETS, database))
    assert "statefulset/db is cancelled" in await cancel.cancelled(api, HERE, "statefulset/db")
    assert api.deleted == ["statefulsets/db"]

    of_group = serving("LeaderWorkerSet", "llm", **{"component-workload-index": "1"})
    api = Api((WORKLOADS, of_group), (LEADER_WORKER_SETS, {"metadata": {"name": "llm"}}))
    with pytest.raises(
        click.ClickException, match=r"leaderworkerset/llm-1 is one group .* or cancel leaderworkerset/llm"
    ):
        await cancel.cancelled(api, HERE, "leaderworkerset/llm-1")
    assert len(await cancel.cancel(api, HERE, ["leaderworkerset/llm-1"])) == 1
    assert api.deleted == []
    assert "leaderworkerset/llm is cancelled" in await cancel.cancelled(api, HERE, "leaderworkerset/llm")
    assert api.deleted == ["leaderworkersets/llm"]

    replica = pending("web-5f")
    replica["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": "web-5f", "controller": True}]
    owner = {"kind": "ReplicaSet", "name": "web", "controller": True}
    api = Api((WORKLOADS, replica), (PODS, {"metadata": {"name": "web-5f", "ownerReferences": [owner]}}))
    assert "the ReplicaSet web that made it makes another" in await cancel.cancelled(api, HERE, "pod/web-5f")


async def test_jobs_are_chosen_by_user_state_and_queue() -> None:
    _, owned = of(pending("tuned"))
    owned["metadata"]["labels"] = {"gangline.io/user": "mira"}
    api = cluster(job("tuned"), (WORKLOADS, owned), of(workload("done", condition("Finished", True, "Succeeded"))))
    assert await targets.matching(api, HERE, ListSelection(users=("mira",))) == ["job/tuned"]
    assert await targets.matching(api, HERE, ListSelection(states=("running",))) == ["job/runs"]
    everything = await targets.matching(api, HERE, ListSelection(queues=("gpus",)))
    assert sorted(everything) == ["job/runs", "job/tuned", "job/waits"], "what has ended is kept"


# --- move and top ---------------------------------------------------------------------------------------------------------


async def test_a_waiting_job_moves_by_its_label() -> None:
    api = cluster()
    assert await move.moved(api, HERE, "waits", "other") == "job/waits moves from gpus to LocalQueue other"
    assert api.objects["jobs", "waits"]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "other"
    assert await move.moved(api, HERE, "waits", "other") == "job/waits is in LocalQueue other already"
    with pytest.raises(click.ClickException, match="has no LocalQueue 'none' \\(there is: gpus, other\\)"):
        await move.moved(api, HERE, "waits", "none")
    with pytest.raises(click.ClickException, match="job/runs runs on 16 GPUs: only a job that waits can be moved"):
        await move.moved(api, HERE, "runs", "other")


async def test_a_job_that_no_queue_has_moves_too_and_a_stopped_queue_is_told() -> None:
    api = cluster(job("lost"))
    api.objects["localqueues", "other"]["spec"]["stopPolicy"] = "Hold"
    assert "LocalQueue other is stopped" in await move.moved(api, HERE, "lost", "other")


def classes(**values: int) -> list[tuple[Resource, Json]]:
    return [(WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value}) for name, value in values.items()]


async def test_a_job_comes_first_by_the_lowest_class_that_suffices() -> None:
    before, behind = of(pending("before", priority=10, ago=60)), of(pending("behind", ago=5))
    api = cluster(before, behind, job("before"), job("behind"), *classes(low=1, same=10, more=11, most=100))
    assert "already" in await move.topped(api, HERE, "before")
    assert await move.topped(api, HERE, "behind") == (
        "job/behind gets WorkloadPriorityClass more, to be before job/before"
    )
    assert api.objects["jobs", "behind"]["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "more"


async def test_a_class_that_is_named_is_set_for_the_first_job_too() -> None:
    api = cluster(of(pending("first", priority=10, ago=60)), job("first"), *classes(low=1, urgent=100))
    assert await move.topped(api, HERE, "first", "urgent") == (
        "job/first gets WorkloadPriorityClass urgent; it was before all others of LocalQueue gpus already"
    )
    assert api.objects["jobs", "first"]["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "urgent"
    assert await move.topped(api, HERE, "first", "urgent") == (
        "job/first is before all others of LocalQueue gpus already, with WorkloadPriorityClass urgent"
    )


async def test_a_class_that_does_not_exist_is_refused_by_its_name() -> None:
    api = cluster(of(pending("first", priority=10, ago=60)), job("first"), *classes(low=1, urgent=100))
    for name in ("first", "waits"):
        with pytest.raises(click.ClickException) as refused:
            await move.topped(api, HERE, name, "urgnt")
        assert refused.value.message == (
            "there is no WorkloadPriorityClass 'urgnt' (there is: low, urgent). Did you mean 'urgent'?"
        )
    assert not api.queries, "nothing was written"


async def test_an_older_job_comes_first_by_an_equal_class() -> None:
    api = cluster(of(pending("newer", priority=10, ago=5)), job("newer"), *classes(same=10, more=11))
    assert "WorkloadPriorityClass same" in await move.topped(api, HERE, "waits")


async def test_without_a_class_that_is_high_enough_it_is_said_which_there_are() -> None:
    api = cluster(of(pending("first", priority=1000)), job("first"), *classes(low=1))
    with pytest.raises(
        click.ClickException, match=r"no WorkloadPriorityClass is above job/first .* \(there is: low \(1\)\)"
    ):
        await move.topped(api, HERE, "waits")
    api.forbidden.add("workloadpriorityclasses")
    with pytest.raises(click.ClickException, match="name the class: --class NAME"):
        await move.topped(api, HERE, "waits")
    assert "gets WorkloadPriorityClass mine" in await move.topped(api, HERE, "waits", "mine")


# --- limits -------------------------------------------------------------------------------------------------------------


def quotas() -> Json:
    rows = [
        {"name": "cpu", "nominalQuota": "8"},
        {"name": "nvidia.com/gpu", "nominalQuota": "8", "borrowingLimit": "4"},
    ]
    flavors = [{"name": "a100", "resources": rows}, {"name": "h100", "resources": copy.deepcopy(rows)}]
    groups = [{"coveredResources": ["cpu", "nvidia.com/gpu"], "flavors": flavors}]
    return {"metadata": {"name": "vision"}, "spec": {"cohortName": "lab", "resourceGroups": groups}}


async def test_a_denial_of_the_webhook_is_no_lack_of_a_role() -> None:
    """A role is advised where RBAC has refused, and nowhere else."""
    denied = 'admission webhook "validate.gangline.io" denied the request: nominalQuota: -4 must not be negative'
    no_right = (
        'clusterqueues.kueue.x-k8s.io "vision" is forbidden: User "mira" cannot patch resource "clusterqueues" in API group '
        '"kueue.x-k8s.io" at the cluster scope'
    )

    class Refusing(Api):
        message = denied

        async def patch(self, *_: Any, **__: Any) -> Json:
            raise Forbidden(403, "Forbidden", self.message)

    api = Refusing((CLUSTER_QUEUES, quotas()))
    with pytest.raises(click.ClickException) as refused:
        await share.changed(api, "vision", "h100", "nvidia.com/gpu", {"nominalQuota": "-4"})  # type: ignore[arg-type]
    assert refused.value.message == denied
    api.message = no_right
    with pytest.raises(click.ClickException, match="mira may not patch clusterqueues"):
        await share.changed(api, "vision", "h100", "nvidia.com/gpu", {"nominalQuota": "4"})  # type: ignore[arg-type]


async def test_one_quota_is_changed_and_all_others_stay() -> None:
    api: Any = Api((CLUSTER_QUEUES, quotas()))
    message = await share.changed(
        api, "vision", "h100", "nvidia.com/gpu", {"nominalQuota": "16", "borrowingLimit": "none"}
    )
    assert message == "ClusterQueue vision, nvidia.com/gpu of h100: nominalQuota 8 → 16, borrowingLimit 4 → none"
    expected = quotas()["spec"]
    expected["resourceGroups"][0]["flavors"][1]["resources"][1] = {"name": "nvidia.com/gpu", "nominalQuota": "16"}
    assert api.objects["clusterqueues", "vision"]["spec"] == expected


async def test_a_quota_that_the_queue_does_not_have_is_refused_with_those_it_has() -> None:
    api: Any = Api((CLUSTER_QUEUES, quotas()))
    with pytest.raises(
        click.ClickException, match=r"has no memory of h100 \(it has: cpu of a100, nvidia.com/gpu of a100"
    ):
        await share.changed(api, "vision", "h100", "memory", {"nominalQuota": "1"})


# --- the kind of a job ----------------------------------------------------------------------------------------------------


def test_a_kind_is_found_by_its_owner_reference() -> None:
    assert targets.resource_of("batch/v1", "Job") == JOBS
    assert targets.resource_of("gangline.io/v1alpha1", "GPUJob").plural == "gpujobs"
    own = targets.resource_of("example.com/v1", "Simulation")
    assert (own.group, own.version, own.plural) == ("example.com", "v1", "simulations")


def test_words_for_what_a_job_does() -> None:
    assert targets.Target("job/x", None, None, None, None).what_it_does() == "is not queued"
    assert targets.Target("job/x", None, None, None, None).state is JobState.NOT_QUEUED
