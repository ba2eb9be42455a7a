"""Every command that lists, in every format, sorted, filtered and watched; the operator's answers are those of the pictures."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner, Result
from tests.console import screens
from tests.console.objects import NOW
from tests.console.texts import happened, texts

from gangline.console import cli
from gangline.console.commands.admin import swap
from gangline.console.commands.see import events, history
from gangline.console.output import presenting
from gangline.console.output.formats import dated
from gangline.console.views import access, asking, watch
from gangline.control.answers.desk import Wish
from gangline.control.answers.sight import ALL, Everybody
from gangline.control.answers.usage import decided
from gangline.control.answers.usage.happenings import EventSubject
from gangline.control.audit import audit_log
from gangline.control.audit.decision_index import RecordedDecision
from gangline.engine import model
from gangline.kube.errors import Expired, Unavailable

Json = dict[str, Any]

#: a command that lists -> a column of its table by which it is sorted, and a field of its JSON
LISTS = {
    "queue": ("name", "jobName"),
    "queue -t": ("gpus", "expectedStart"),
    "eta": ("name", "gpus"),
    "plan": ("-gpus", "gpus"),
    "share": ("-used", "level"),
    "limits": ("flavor", "flavor"),
    "history": ("-ran", "ranSeconds"),
    "history --attempts": ("-lost-h", "lostSeconds"),
    "events": ("at", "event"),
    "nodes": ("-node", "capacity"),
    "nodes --cards": ("card", "uuid"),
    "admin swap list": ("age", "how"),
    "admin swap dry-run gpu-1": ("-gpus", "how"),
    "preempt --dry-run probe": ("-gpus", "lostGpuHours"),
    "admin audit": ("-late", "promised"),
    "admin audit --starts": ("-started", "promised"),
    "admin audit --decisions": ("-gpus", "decision"),
}
#: a command that prints one answer, which is JSON or YAML as well
ANSWERS = ("eta probe --history", "eta --accuracy", "admin swap show llama-3-70b-pretrain-continued-0017")
FORMATS = ("", "wide", "json", "yaml", "name")


async def answered() -> dict[str, Any]:
    """Name of a resource -> its items, or the answer."""
    here = screens.busy()
    answers = here.answers()
    shares = (await answers.shares(Everybody(), "")).items
    nodes = [dict(item) for item in (await answers.nodes(Everybody(), "")).items]
    nodes[0] |= {
        "cards": [{name: value for name, value in card.items() if name != "node"} for card in screens.carded()]
    }
    job = {"jobName": "probe", "clusterQueue": "language-models", "position": 2}
    promises = {"at": NOW, "p50": NOW, "p90": NOW + 9, "because": "", "cause": ""}
    return {
        "queuedjobs": (await answers.jobs(Everybody(), Wish("ml", times=True))).items,
        "plannedruns": (await answers.plan(Everybody(), "", "", 86_400)).items,
        "flavornodes": nodes,
        "queueshares": shares,
        "pastruns": screens.past(),
        "jobattempts": screens.attempts(),
        "jobevents": [{**each, "metadata": {"resourceVersion": "1", "name": "e"}} for each in happened()],
        "gangswaps": swap.rows_of([screens.swapped()]),
        "queueaudits": [
            {
                "clusterQueue": name,
                "planned": 9,
                "promised": 9,
                "coverage": 1 - late / 9,
                "promisedSeconds": 900.0,
                "missedBy": {"forecast": late},
                "late": late,
                "lateSeconds": 1.0,
                "delaySeconds": {},
                "starts": [screens.reserved(user, since) for user, since in (("mira", 60), ("tom", 90_000))],
            }
            for name, late in (("a", 2), ("b", 1))
        ],
        "decisions": decisions(),
        "forecastaccuracies": [],
        "moves": {"gangs": [{k: v for k, v in each.items() if k != "node"} for each in screens.moving()]},
        "victims": {"job": job, "starts": False, "victims": screens.victims(), "obstacle": ""},
        "promises": {"job": job, "promises": [promises], "started": None, "record": None},
    }


def decisions() -> list[Json]:
    """An admission of each of two queues, and a warning about a node."""
    found: list[Json] = []
    for place, (queue, gpus) in enumerate((("a", 8), ("b", 16))):
        pod_sets = (model.PodSetAssignment("main", 1, {"nvidia.com/gpu": "h100"}, {"nvidia.com/gpu": gpus}),)
        admit = model.Admit(f"ml/job-{queue}", "u", model.Admission(queue, pod_sets), True, 0)
        each = RecordedDecision(place, place, 0, "Admit", admit.workload, admit)
        of = {admit.workload: EventSubject("ml", f"job-{queue}", "Job", queue, "mira", queue, queue, gpus, 1, ())}
        found.append(decided.row(each, of, ALL, {}))
    warn = model.Warn("Node", "n1", "NodeLost", "Node n1 counts as lost")
    return [*found, decided.row(RecordedDecision(2, 2, 0, "Warn", "", warn), {}, ALL, {})]


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    return asyncio.run(answered())


@pytest.fixture
def asked(answers: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An operator that has these answers; the paths that it was asked for."""
    paths: list[str] = []

    class Api:
        login = SimpleNamespace(namespace="ml")

        async def list(self, *_: Any) -> Any:
            return SimpleNamespace(items=[screens.swapped()])

    async def get(api: Any, path: str, query: Any = None) -> Json:
        paths.append(path)
        found = answers[path.rpartition("/")[2]]
        return found if isinstance(found, dict) else {"items": found, "metadata": {"resourceVersion": "7"}}

    @asynccontextmanager
    async def client(*_: Any) -> AsyncIterator[Api]:
        yield Api()

    monkeypatch.setattr(asking, "get", get)
    monkeypatch.setattr(access, "client", client)
    return paths


def call(line: str, *more: str) -> Result:
    return CliRunner().invoke(cli.main, [*line.split(), *more], catch_exceptions=False)


def printed_by(line: str, *more: str) -> str:
    done = call(line, *more)
    assert done.exit_code == 0, f"{line} {more}: {done.output}"
    return done.stdout


def found_in(line: str, text: str) -> list[Json]:
    body = json.loads(text)
    return body["victims"] if line.startswith("preempt") else body


@pytest.mark.parametrize("line", LISTS)
def test_every_list_has_every_format(line: str, asked: list[str]) -> None:
    _, field = LISTS[line]
    printed = {kind: printed_by(line, *(["-o", kind] if kind else [])) for kind in FORMATS}
    assert asked and all(text.strip() for text in printed.values())
    entries = found_in(line, printed["json"])
    assert entries and field in entries[0]
    assert yaml.safe_load(printed["yaml"]) == json.loads(printed["json"])
    names = printed["name"].splitlines()
    assert len(names) == len(entries) and all(printed.values())
    header, *rows = printed_by(line, "-o", f"custom-columns=FIELD:.{field},N:.nothing").splitlines()
    assert header.split() == ["FIELD", "N"] and len(rows) >= len(entries)
    assert all(row.endswith("<none>") for row in rows[: len(entries)])
    assert not any("\x1b" in text for text in printed.values())
    assert call(line, "-o", "xml").exit_code == 2


def _numbers(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _numbers(each, f"{path}.{name}")
    elif isinstance(value, list):
        for each in value:
            yield from _numbers(each, path)
    elif isinstance(value, (int, float)):
        yield path, value


@pytest.mark.parametrize("line", [*LISTS, *ANSWERS])
def test_every_instant_is_a_date_in_json(line: str, asked: list[str]) -> None:
    """The screens' instants are of 2020 to 2030 in seconds, and nothing else that they count is as large as that."""
    printed = json.loads(printed_by(line, "-o", "json"))
    assert [path for path, number in _numbers(printed) if 1.577e9 < number < 1.893e9] == []


def test_an_instant_is_sorted_by_its_time_and_printed_as_a_date(asked: list[str]) -> None:
    rows = printed_by("history", "--sort", ".ended", "-o", "custom-columns=ENDED:.ended").splitlines()[1:]
    assert len(rows) > 1 and rows == sorted(rows)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z", row.strip()) for row in rows)


@pytest.mark.parametrize(("line", "found"), [("history", screens.past), ("history --attempts", screens.attempts)])
def test_the_queue_of_a_run_is_the_local_queue_in_a_namespace_and_the_cluster_queue_elsewhere(
    line: str, found: Callable[[], list[Json]], asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def rows(*_: Any) -> list[Json]:
        return [found()[0] | {"localQueue": "mine", "clusterQueue": "theirs"}]

    monkeypatch.setattr(history, "rows", rows)
    of_namespace, of_all = printed_by(line), printed_by(line, "-A")
    assert "mine" in of_namespace and "theirs" not in of_namespace
    assert "theirs" in of_all and "mine" not in of_all


@pytest.mark.parametrize(
    ("at", "printed"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_700_000_000.5, "2023-11-14T22:13:20.500Z"),
        (1_700_000_000.9996, "2023-11-14T22:13:21Z"),
        (None, None),
        ("noon", "noon"),
        (True, True),
        (1e300, 1e300),
    ],
)
def test_what_is_no_time_stays_as_it_is(at: Any, printed: Any) -> None:
    body = {"rows": [{"at": at, "n": 7}], "times": {"a": at}, "n": 7}
    assert dated(body, ("rows.at", "times.*", "gone.at", "n.at")) == {
        "rows": [{"at": printed, "n": 7}],
        "times": {"a": printed},
        "n": 7,
    }


@pytest.mark.parametrize("line", LISTS)
def test_every_list_is_sorted(line: str, asked: list[str]) -> None:
    column, field = LISTS[line]
    up, down = (
        printed_by(line, "--sort", order, "-o", "name").splitlines()
        for order in (column.lstrip("-"), f"-{column.lstrip('-')}")
    )
    assert sorted(up) == sorted(down)
    assert printed_by(line, "--sort", f".{field}", "-o", "name").split()
    assert call(line, "--sort", "nonsense").exit_code == 2


def test_bars_are_in_the_order_that_was_asked_for(asked: list[str]) -> None:
    names = [printed_by("plan", "--sort", order, "-o", "name").split() for order in ("gpus", "-gpus")]
    assert names[0] != names[1]
    for order, wanted in zip(("gpus", "-gpus"), names, strict=True):
        bars = printed_by("plan", "--sort", order).splitlines()[1:]
        drawn = [row.split()[1] for row in bars[: len(wanted)]]
        shown = 11  # characters of a long name; the next one may say that it goes on
        assert [name[:shown] for name in drawn] == [name[:shown] for name in wanted]


@pytest.mark.parametrize("line", LISTS)
def test_every_list_filters_by_what_its_help_says(line: str, asked: list[str]) -> None:
    command = cli.main
    for word in line.split():
        found = command.get_command(click.Context(command), word) if isinstance(command, click.Group) else None
        command = found or command
    options = {option for param in command.params for option in param.opts}
    for option in {"--user", "--queue"} & options:
        assert printed_by(line, option, "nobody", "-o", "name") == ""
    if "--state" in options:
        assert call(line, "--state", "nonsense", "-o", "name").stdout == ""


@pytest.mark.parametrize("line", LISTS)
def test_every_list_is_watched(line: str, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pipe everything is printed once; what does not change is not printed again."""

    once, get = printed_by(line, "-o", "name"), asking.get
    looks = len(asked)
    asked.clear()

    async def interrupted(api: Any, path: str, query: Any = None) -> Json:
        if len(asked) >= 3 * looks:
            raise KeyboardInterrupt
        return await get(api, path, query)

    async def nothing(*_: Any) -> AsyncIterator[Json]:
        if line == "events":
            raise KeyboardInterrupt
        await asyncio.Event().wait()
        yield {}

    monkeypatch.setattr(presenting, "EVERY", 0)
    monkeypatch.setattr(asking, "get", interrupted)
    monkeypatch.setattr(watch, "SLOWLY", 0.0)
    monkeypatch.setattr(watch, "events", nothing)
    done = CliRunner().invoke(cli.main, [*line.split(), "-w", "-o", "name"])
    assert done.exit_code == 130 and "Aborted" not in done.output
    assert done.stdout == once


@pytest.mark.parametrize("line", ANSWERS)
def test_an_answer_that_is_no_list_is_a_document(line: str, asked: list[str]) -> None:
    assert printed_by(line).strip()
    body = json.loads(printed_by(line, "-o", "json"))
    assert body and yaml.safe_load(printed_by(line, "-o", "yaml")) == body
    for wrong in ("wide", "name", "custom-columns=A:.b"):
        assert call(line, "-o", wrong).exit_code == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("eta probe --history --sort gpus", "--sort"),
        ("eta --accuracy -u mira", "--user"),
        ("eta --accuracy -w", "--watch"),
        ("eta --accuracy probe", "without JOB"),
        ("eta --history", "name it"),
        ("eta probe -A", "without -A"),
        ("limits -n ml set a --flavor f --nominal 1", "--namespace has no effect before `set`"),
        ("limits --kubeconfig x set a --flavor f --nominal 1", "--kubeconfig has no effect"),
        ("preempt probe", "--dry-run"),
        ("admin audit pyproject.toml -w", "--watch"),
        ("admin audit pyproject.toml -n ml", "--starts belong"),
        ("admin audit pyproject.toml --decisions -w", "--watch"),
        ("admin audit --decisions --starts", "choose one"),
        ("admin audit pyproject.toml -u mira", "--user"),
        ("admin audit pyproject.toml --queue a -o json", "JSON is of the whole record"),
        ("plan -A -n ml", "choose one"),
    ],
)
def test_what_would_have_no_effect_is_refused(
    line: str, said: str, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    done = call(line)
    assert done.exit_code == 2 and said in " ".join(done.stderr.split()) and asked == []


def test_filters_hold_for_documents_of_victims(asked: list[str]) -> None:
    everybody = found_in("preempt", printed_by("preempt --dry-run probe -o json"))
    mine = found_in("preempt", printed_by("preempt --dry-run probe -o json --user mira"))
    assert len(everybody) == 2 and [each["user"] for each in mine] == ["mira"]


def test_reserved_starts_are_told_one_by_one(asked: list[str]) -> None:
    assert len(found_in("audit", printed_by("admin audit --starts -o json"))) == 4
    mine = found_in("audit", printed_by("admin audit -u mira --queue a -o json"))
    assert [(each["user"], each["clusterQueue"]) for each in mine] == [("mira", "a")]
    assert "31.5 s" in printed_by("admin audit -u mira --queue a")
    assert printed_by("admin audit --since 1h -o name") == "", "pictures are of years ago"


def test_decisions_are_told_one_per_line(asked: list[str], answers: dict[str, Any], tmp_path: Path) -> None:
    lines = printed_by("admin audit --decisions").splitlines()
    assert len(lines) == 4 and "The job starts on h100." in lines[1] and "Node n1 counts as lost." in lines[3]
    mine = found_in("audit", printed_by("admin audit --decisions -u mira --queue a -o json"))
    assert [(each["jobName"], each["gpus"]) for each in mine] == [("a", 8)]
    printed_by("admin audit --decisions -n ml --since 5m")
    assert asked[-1] == "/namespaces/ml/decisions"
    path = tmp_path / "audit"
    entries = [audit_log.Round(at, (model.Evict(f"ml/w{at}", "u", "Stalled", "It hangs"),)) for at in (0, 500_000)]
    path.write_bytes(b"".join(map(audit_log.to_line, entries)))
    assert [line.split()[-3:] for line in printed_by(f"admin audit {path} --decisions").splitlines()[1:]] == [
        ["evicted:", "It", "hangs."]
    ] * 2
    assert len(found_in("audit", printed_by(f"admin audit {path} --decisions --since 60s -o json"))) == 1
    done = call(f"admin audit {tmp_path} --decisions")
    assert done.exit_code != 0


def test_an_operator_without_a_record_says_so(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(*_: Any) -> Json:
        return {"items": [], "metadata": {"record": False, "from": None}}

    monkeypatch.setattr(asking, "get", none)
    done = call("admin audit --decisions")
    assert done.exit_code == 1 and "keeps no record of its decisions" in done.output


def test_a_plan_is_filtered_by_user_state_and_local_queue(asked: list[str]) -> None:
    everything = found_in("plan", printed_by("plan -A -o json"))
    assert {each["state"] for each in everything} == {"Running", "Pending"}
    for option, name in {"-u": "user", "-s": "state", "--queue": "queue"}.items():
        wanted = next(each[name] for each in reversed(everything) if each[name])
        found = found_in("plan", printed_by("plan", option, wanted, "-o", "json"))
        assert found == [each for each in everything if each[name] == wanted], option
    assert 0 < len(printed_by("plan -s running").splitlines()) < len(printed_by("plan").splitlines())


def test_starts_are_told_of_jobs_in_the_states_that_are_asked_for(asked: list[str]) -> None:
    states = [
        {each["state"] for each in found_in("eta", printed_by(line))}
        for line in ("eta -o json", "eta -s starting -o json")
    ]
    assert states == [{"Pending"}, {"Starting"}]
    assert "it has started" in printed_by("eta -s starting")


def test_runs_of_a_queue_are_asked_for_in_all_namespaces(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    queries: list[Any] = []
    get = asking.get

    async def noted(api: Any, path: str, query: Any = None) -> Json:
        queries.append((path, query["clusterQueue"]))
        return await get(api, path, query)

    monkeypatch.setattr(asking, "get", noted)
    printed_by("history -q vision")
    printed_by("history -q vision -n ml")
    printed_by("history")
    printed_by("history --attempts -q vision")
    own = "/namespaces/ml/pastruns"
    assert queries == [("/pastruns", "vision"), (own, "vision"), (own, ""), ("/jobattempts", "vision")]


async def test_events_go_on_when_the_operator_comes_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    away = Unavailable(503, "ServiceUnavailable", "nobody is there")
    one, two = ({"metadata": {"resourceVersion": version}} for version in ("8", "9"))
    streams = iter([[one], away, away, Expired(410, "Expired", "too old"), [two], KeyboardInterrupt()])
    since: list[str] = []

    async def stream(api: Any, namespace: Any, after: str, query: Any) -> AsyncIterator[Json]:
        since.append(after)
        found = next(streams)
        if isinstance(found, BaseException):
            raise found
        for each in found:
            yield each

    async def lately(*_: Any) -> tuple[list[Json], str]:
        return [], "20"

    monkeypatch.setattr(watch, "events", stream)
    monkeypatch.setattr(events, "_lately", lately)
    monkeypatch.setattr(events, "PAUSE", 0.0)
    heard: list[Json] = []
    with pytest.raises(KeyboardInterrupt):
        await events.follow(object(), "ml", {}, "7", heard.extend)  # type: ignore[arg-type]
    assert heard == [one, two] and since == ["7", "8", "8", "8", "20", "9"]
    said = capsys.readouterr().err
    assert said.count("nobody is there") == 1 and said.count("some events were missed") == 1


def test_texts_for_people_are_drawn_for_any_terminal() -> None:
    lines: dict[str, Callable[[int], list[str]]] = texts()
    assert all(len(line) <= 80 for draw in lines.values() for line in map(click.unstyle, draw(80)))
