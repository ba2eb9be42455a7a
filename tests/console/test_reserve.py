"""`gangline reserve`: what is created, what is said before, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.console.test_acting import Api

from gangline.console import cli
from gangline.console.output import terminal
from gangline.console.views import access, asking, windows
from gangline.kube.resources import CLUSTER_QUEUES, NODES, RESERVATIONS, Json, Resource

ONCE = ("--start", "2030-12-01T08:00:00Z", "--end", "2030-12-02T08:00:00Z")
WEEKLY = ("--days", "sun,Wednesday", "--time", "02:00", "--duration", "6h", "--time-zone", "Europe/Berlin")


class ReserveApi(Api):
    """It also creates, and says what was created."""

    def __init__(self, *objects: tuple[Resource, Json]) -> None:
        super().__init__(*objects)
        self.created: list[Json] = []
        #: what an operator answers, by path; None = there is none
        self.answers: dict[str, list[Json]] | None = {"/flavornodes": [], "/plannedruns": []}
        self.login = SimpleNamespace(namespace="default")

    async def create(self, resource: Resource, namespace: str | None, body: Json, *, query: Any) -> Json:
        assert resource == RESERVATIONS
        if not query:
            self.created.append(body)
        return body


def reserved(name: str, **spec: Any) -> tuple[Resource, Json]:
    window = {"start": "2030-12-01T10:00:00Z", "end": "2030-12-01T12:00:00Z"}
    row = {"type": "Conflict", "status": "True", "reason": "NotHonoured", "message": "There is no node n9"}
    rows = [{"type": "Active", "status": "False", "reason": "Closed"}, {"type": "Scheduled", "status": "True"}, row]
    status = {"conditions": rows, "windows": [window], "nodes": ["n1"], "nodeCount": 1}
    given = {"window": window, "nodes": {"names": ["n1"]}, **spec}
    return RESERVATIONS, {"metadata": {"name": name, "creationTimestamp": "2029"}, "spec": given, "status": status}


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> ReserveApi:
    made = ReserveApi(
        (NODES, {"metadata": {"name": "n1", "labels": {"rack": "r1"}}, "spec": {}}),
        (CLUSTER_QUEUES, {"metadata": {"name": "vision"}, "spec": {}}),
        reserved("other"),
    )

    @asynccontextmanager
    async def client(*_: object, **__: object) -> AsyncIterator[ReserveApi]:
        yield made

    async def listed(_: object, path: str, query: object) -> list[Json]:
        if made.answers is None:
            raise asking.NotServedError("nobody answers")
        return made.answers[path]

    monkeypatch.setattr(access, "client", client)
    monkeypatch.setattr(asking, "listed", listed)
    return made


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, ["reserve", *arguments])


def test_a_weekly_maintenance_is_created_by_labels(api: ReserveApi) -> None:
    result = run(
        "create",
        "weekly",
        *WEEKLY,
        "-l",
        "rack=r1",
        "--maintenance",
        "--notice",
        "1h",
        "--start-with-checkpoints",
        "2h",
        "-y",
    )
    assert result.exit_code == 0, result.output
    (made,) = api.created
    schedule = {"days": ["Sunday", "Wednesday"], "time": "02:00", "duration": "6h", "timeZone": "Europe/Berlin"}
    wanted = {"window": {"schedule": schedule}, "nodes": {"matchLabels": {"rack": "r1"}}, "notice": "1h"}
    wanted["startWithCheckpoints"] = "2h"
    assert (made["metadata"], made["spec"]) == ({"name": "weekly"}, wanted)
    assert result.output.count("n1 (maintenance, Reservation weekly)") == 4


def test_what_cannot_be_honoured_is_said_before_it_is_created(api: ReserveApi) -> None:
    mine = ("--node", "n1", "--node", "n9", "--for", "cq/vision", "--for", "lq/ml/gpus")
    result = run("create", "mine", *ONCE, *mine, "--dry-run")
    assert result.exit_code == 0, result.output
    assert api.created == []
    said = " ".join(result.output.split())
    assert "Not honoured: There is no node n9" in said
    assert "Not honoured: There is no LocalQueue ml/gpus" in said
    assert "Not honoured: Reservation other has n1, too, from 2030-12-01T10:00:00Z until 2030-12-01T12:00:00Z" in said
    assert "Nothing is changed (dry run)" in said


def test_nothing_is_created_without_a_yes(api: ReserveApi, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run("create", "mine", *ONCE, "--node", "n1", "--maintenance")
    assert result.exit_code == 2 and "-y says yes" in result.output
    monkeypatch.setattr(terminal, "can_ask", lambda: True)
    result = CliRunner().invoke(
        cli.main, ["reserve", "create", "a", *ONCE, "--node", "n1", "--maintenance"], input="n\n"
    )
    assert result.exit_code == 1 and "nothing is changed" in result.output
    assert api.created == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*ONCE, "--node", "n1"), "--maintenance"),
        ((*ONCE, "--node", "n1", "--maintenance", "--for", "cq/a"), "--maintenance"),
        (("--node", "n1", "--maintenance"), "--start and --end"),
        ((*ONCE, *WEEKLY, "--node", "n1", "--maintenance"), "not both"),
        (("--start", "2030-12-01T08:00:00Z", "--node", "n1", "--maintenance"), "--start and --end"),
        ((*ONCE, "--maintenance"), "say which nodes"),
        ((*ONCE, "--maintenance", "--flavor", "a"), "belong together"),
        ((*ONCE, "--maintenance", "-l", "rack"), "is not KEY=VALUE"),
        ((*ONCE, "--maintenance", "--flavor", "a", "--amount", "gpu"), "is not RESOURCE=QUANTITY"),
        ((*ONCE, "--maintenance", "--flavor", "a", "--amount", "gpu=1", "--count", "1"), "choose one"),
        ((*ONCE, "--maintenance", "--amount", "gpu=1"), "belong together"),
        ((*ONCE, "--maintenance", "--node", "n1", "--soft"), "nobody could need"),
        ((*ONCE, "--node", "n1", "--for", "user/"), "none of"),
        ((*ONCE, "--node", "n1", "--for", "vision"), "none of"),
        ((*ONCE, "--node", "n1", "--for", "lq/gpus"), "with its namespace"),
        (("--days", "s", "--time", "02:00", "--duration", "6h", "--node", "n1", "--maintenance"), "no day of the week"),
    ],
)
def test_a_line_that_says_too_little_or_too_much_is_refused(
    api: ReserveApi, arguments: tuple[str, ...], said: str
) -> None:
    result = run("create", "a", *arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


def test_reservations_are_listed_with_their_trouble_and_deleted(api: ReserveApi) -> None:
    result = run("list")
    assert result.exit_code == 0, result.output
    assert "other" in result.output and "Scheduled" in result.output and "There is no node n9" in result.output
    assert "reservation/other" in run("list", "-o", "name").output
    assert run("delete", "other", "--dry-run").exit_code == 0 and api.deleted == []
    assert run("delete", "other", "-y").exit_code == 0
    assert api.deleted == ["reservations/other"]
    missing = run("delete", "othr", "-y")
    assert missing.exit_code == 1 and "other" in missing.output


def test_windows_within_a_horizon_are_lines_of_a_plan() -> None:
    _, other = reserved("other", **{"for": {"clusterQueues": ["vision"]}})
    begin = windows.instant("2030-12-01T10:00:00Z") / 1000
    assert windows.lines([other], begin - 3600, begin - 60) == []
    (line,) = windows.lines([other], begin - 3600, begin)
    assert line.startswith("Reserved ") and line.endswith("(in 60m): n1 (vision, Reservation other)")


def test_a_soft_one_for_a_user_reserves_as_many_nodes_as_offer_an_amount(api: ReserveApi) -> None:
    amount = ("--flavor", "a100", "--amount", "nvidia.com/gpu=16")
    result = run("create", "mine", *ONCE, *amount, "--for", "user/mira", "--soft", "-y")
    assert result.exit_code == 0, result.output
    (made,) = api.created
    assert made["spec"]["nodes"] == {"anyOf": {"flavor": "a100", "resources": {"nvidia.com/gpu": "16"}}}
    assert (made["spec"]["for"], made["spec"]["firm"]) == ({"users": ["mira"]}, "Soft")
    assert "(user mira, soft, Reservation mine)" in result.output


# --- alternatives -----------------------------------------------------------------------------------------------------


def machine(name: str, *jobs: str) -> Json:
    occupants = [{"job": job, "namespace": "ml", "outside": False} for job in jobs]
    return {"metadata": {"name": name}, "occupants": [*occupants, {"job": "p", "namespace": "ml", "outside": True}]}


def planned(job: str, began: str, ends: str, state: str = "Running") -> Json:
    times = {"from": windows.instant(began) / 1000, "to": windows.instant(ends) / 1000}
    return {"metadata": {"namespace": "ml", "name": job}, "job": job, "state": state, "gpus": 8, **times}


def test_a_conflict_is_said_with_the_next_free_time_and_other_nodes(api: ReserveApi) -> None:
    for name in ("n1", "n2"):
        meta = {"name": name, "labels": {"gpu": "a100"}, "resourceVersion": "1", "uid": name}
        api.objects["nodes", name] = {"metadata": meta, "spec": {}}
    flavor = {"metadata": {"name": "a100"}, "spec": {"nodeLabels": {"gpu": "a100"}}}
    api.objects["resourceflavors", "a100"] = flavor
    result = run("create", "mine", *ONCE, "--node", "n1", "--for", "cq/vision", "--dry-run")
    said = " ".join(result.output.split())
    free = "from 2030-12-01T12:00:00Z until 2030-12-02T12:00:00Z"
    assert f"Instead: The same nodes are in no other reservation {free}" in said
    assert "Instead: Nodes of flavor a100 that are in no other reservation at that time: n2" in said


def test_jobs_that_would_be_stopped_are_named_with_what_they_have_worked_and_a_later_start(api: ReserveApi) -> None:
    nodes = [machine("n1", "long", "short"), machine("n2", "elsewhere")]
    runs = [
        planned("long", "2030-12-01T00:00:00Z", "2030-12-01T20:00:00Z"),
        planned("short", "2030-12-01T00:00:00Z", "2030-12-01T07:00:00Z"),
        planned("elsewhere", "2030-12-01T00:00:00Z", "2030-12-03T00:00:00Z"),
        planned("long", "2030-12-02T00:00:00Z", "2030-12-03T00:00:00Z", "Pending"),
    ]
    api.answers = {"/flavornodes": nodes, "/plannedruns": runs}
    wanted = ("create", "mine", *ONCE, "--node", "n1", "--maintenance", "--stop-before", "0s", "--dry-run")
    said = " ".join(run(*wanted).output.split())
    assert said.count("Would be stopped") == 1
    assert "Would be stopped: ml/long, with 8 GPUs" in said and "64.0 GPU-hours" in said
    assert "is expected to stop none of them" in said
    soft = ("create", "mine", *ONCE, "--node", "n1", "--for", "cq/vision", "--soft", "--dry-run")
    assert "2 jobs run on its nodes: they go on until" in " ".join(run(*soft).output.split())
    api.answers = None
    assert "No operator says which jobs would be stopped" in " ".join(run(*wanted).output.split())


async def test_who_may_not_see_reservations_sees_none() -> None:
    api = ReserveApi(reserved("other"))
    assert [each["metadata"]["name"] for each in await windows.reservations(api)] == ["other"]  # pyright: ignore
    api.forbidden.add("reservations")
    assert await windows.reservations(api) == []  # pyright: ignore
