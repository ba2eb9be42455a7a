"""The history store: what is written stays, also when the writer is killed; older databases are brought up to date."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, text
from tests.forecast.generator import DAY, make_runs

from gangline.control.answers.api import question
from gangline.forecast.errors import StoreError
from gangline.forecast.history import run_store
from gangline.forecast.history import run_store as store_module
from gangline.forecast.history.attempts import LONGEST_LABEL_KEY, MOST_LABELS, AttemptQuery, JobAttempt, LastAttempt
from gangline.forecast.history.run_store import HistoryStore
from gangline.forecast.history.runs import Run
from gangline.forecast.history.usage import Window

RUNS = make_runs(50)
NOW = 1 + len(run_store.MIGRATIONS)  #: this version of the schema
#: The SQLAlchemy URL of a PostgreSQL database, whose tables of ours are dropped; without it SQLite alone is tested.
POSTGRESQL = os.environ.get("GANGLINE_TEST_POSTGRESQL", "")


@pytest.fixture(params=["sqlite", *(["postgresql"] if POSTGRESQL else [])])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/deep/history.db"
    engine = create_engine(POSTGRESQL)
    run_store.METADATA.drop_all(engine)
    engine.dispose()
    return POSTGRESQL


@pytest.fixture
def store(url: str) -> Iterator[HistoryStore]:
    with HistoryStore(url) as opened:
        yield opened


def test_runs_come_back_as_they_were(store: HistoryStore) -> None:
    assert store.put(RUNS) == 50
    assert store.runs() == RUNS
    assert store.runs(limit=50) == RUNS
    assert store.runs(since=RUNS[40].submit) == RUNS[40:]


def test_writing_again_replaces(store: HistoryStore) -> None:
    waiting = replace(RUNS[0], start=None, finish=None)
    store.put([waiting])
    store.put(RUNS)
    store.put(RUNS)
    assert store.count() == 50
    assert store.put([waiting, RUNS[0]]) == 1  # the last word counts
    assert store.runs() == RUNS


def test_another_database_than_sqlite_or_postgresql(store: HistoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the database has no upsert that we speak, the rows are replaced."""
    monkeypatch.setattr(store._engine.dialect, "name", "other")
    store.put([replace(RUNS[0], finish=None)])
    store.put(RUNS)
    assert store.runs() == RUNS


def test_the_runs_that_ended_last_come_first(store: HistoryStore) -> None:
    store.put([*RUNS, replace(RUNS[0], uid="open", finish=None)])
    ended = sorted(RUNS, key=lambda run: (-(run.finish or 0.0), run.uid))
    assert [run.finish for run in store.ended(0.0, 5)] == [run.finish for run in ended[:5]]
    since = ended[9].finish or 0.0
    assert {run.uid for run in store.ended(since, 100)} == {run.uid for run in RUNS if (run.finish or 0.0) >= since}
    namespace = RUNS[0].namespace
    assert {run.uid for run in store.ended(0.0, 100, namespace)} == {
        run.uid for run in RUNS if run.namespace == namespace
    }
    assert store.ended(0.0, 100, "elsewhere") == []


def test_find(store: HistoryStore) -> None:
    store.put([*RUNS, replace(RUNS[0], uid="again", submit=9e9)])
    named = RUNS[0]
    assert [r.uid for r in store.find(named.name)] == ["again", named.uid]
    assert [r.uid for r in store.find(f"{named.namespace}/{named.name}")] == ["again", named.uid]
    assert store.find(f"elsewhere/{named.name}") == []
    assert store.find("run-7") == [RUNS[7]]


def test_retention_bounds_it(tmp_path: Path) -> None:
    store = HistoryStore(str(tmp_path / "h.db"), retention=10 * DAY, max_runs=10)
    store.put(RUNS)
    now = RUNS[-1].submit
    assert store.prune(now) == 40
    assert store.runs() == RUNS[-10:]
    assert store.prune(now) == 0
    assert store.prune(now + 20 * DAY) == 10
    assert store.count() == 0


def test_a_namespace_with_many_runs_displaces_its_own_ones(tmp_path: Path) -> None:
    store = HistoryStore(str(tmp_path / "h.db"), max_runs=60)
    quiet = [replace(RUNS[number], namespace="quiet") for number in range(10)]
    loud = [replace(RUNS[-1], uid=f"loud{n}", namespace="loud", submit=RUNS[-1].submit + n) for n in range(500)]
    store.put([*quiet, *loud])
    assert store.runs(limit=30) == [*quiet, *loud[-20:]]
    assert store.runs(since=loud[0].submit, limit=30) == loud[-30:]
    assert store.prune(loud[-1].submit) == 450
    assert store.runs() == [*quiet, *loud[-50:]]


def test_long_names_fit(store: HistoryStore) -> None:
    store.put([replace(RUNS[0], name="n" * 1000, image="i" * 1000)])
    assert (len(store.runs()[0].name), len(store.runs()[0].image)) == (253, 1000)


def test_readers_and_writers_side_by_side(store: HistoryStore) -> None:
    def write(part: int) -> None:
        for _ in range(5):
            store.put(make_runs(200, seed=part))

    threads = [threading.Thread(target=write, args=(part,)) for part in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert store.count() in (0, 200)  # all of a write or nothing of it
    for thread in threads:
        thread.join()
    assert store.count() == 200


def _all_at_once(doing: Callable[[], object]) -> list[StoreError]:
    """What went wrong when several did it at the same time."""
    errors: list[StoreError] = []

    def attempt() -> None:
        try:
            doing()
        except StoreError as error:
            errors.append(error)

    threads = [threading.Thread(target=attempt) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_several_open_an_empty_database_at_once(url: str) -> None:
    assert _all_at_once(lambda: HistoryStore(url).close()) == []
    with HistoryStore(url) as store:
        store.put(RUNS)
        assert store.runs() == RUNS


def test_several_keep_a_text_at_once(store: HistoryStore) -> None:
    assert _all_at_once(lambda: [store.keep("a", "1") for _ in range(10)]) == []
    assert store.kept("a") == "1"


def test_texts_that_no_database_takes_are_kept_without_what_it_refuses(store: HistoryStore) -> None:
    store.put([replace(RUNS[0], command="a\0b")])
    assert store.runs()[0].command == "ab"


KILLED = """
import sys
from dataclasses import replace
from gangline.forecast.history.run_store import HistoryStore
from gangline.forecast.history.runs import Run
from gangline.forecast.history.usage import Window
store = HistoryStore(sys.argv[1])
for batch in range(10**6):
    store.put([Run(uid=f"{batch}-{i}", submit=float(batch), gpus=i) for i in range(700)])
    print(batch, flush=True)
"""


def test_a_kill_loses_nothing_that_was_written(tmp_path: Path) -> None:
    path = str(tmp_path / "h.db")
    writer = subprocess.Popen([sys.executable, "-c", KILLED, path], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    last = -1
    for line in writer.stdout:
        last = int(line)
        if last >= 3:
            os.kill(writer.pid, signal.SIGKILL)
            break
    last = max([last, *(int(line) for line in writer.stdout)])
    writer.wait()
    with HistoryStore(path) as store:
        whole = {f"{b}-{i}" for b in range(last + 1) for i in range(700)}
        found = {run.uid for run in store.runs()}
        assert found >= whole
        assert len(found) % 700 == 0  # of a batch under way there is nothing, or all
        store.put(RUNS)


# --- versions ---------------------------------------------------------------------------------------------------------


def _add_note(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE gangline_runs ADD COLUMN note TEXT"))


def _fail(connection: Connection) -> None:
    _add_note(connection)
    raise StoreError("the power went out")


def test_a_database_of_the_first_version_gets_its_tallies(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    HistoryStore(str(path)).put(RUNS)
    with create_engine(f"sqlite:///{path}").begin() as connection:
        connection.execute(text("DROP TABLE gangline_tallies"))
        connection.execute(text("UPDATE gangline_schema SET version = 1"))
    with HistoryStore(str(path)) as store:
        store.keep("a", "1")
        store.keep("a", "2")
        assert (store.kept("a"), store.kept("b"), store.runs()) == ("2", None, RUNS)


def test_an_older_database_is_migrated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "h.db"
    HistoryStore(str(path)).put(RUNS)
    monkeypatch.setattr(run_store, "MIGRATIONS", (*run_store.MIGRATIONS, _add_note))
    for _ in range(2):
        with HistoryStore(str(path)) as store:
            assert store.runs() == RUNS
    with create_engine(f"sqlite:///{path}").connect() as connection:
        assert connection.execute(text("SELECT version FROM gangline_schema")).all() == [(NOW + 1,)]
        assert connection.execute(text("SELECT note FROM gangline_runs LIMIT 1")).all() == [(None,)]


def test_a_migration_that_breaks_off_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "h.db"
    HistoryStore(str(path)).put(RUNS)
    with monkeypatch.context() as patch:
        patch.setattr(run_store, "MIGRATIONS", (*run_store.MIGRATIONS, _fail))
        with pytest.raises(StoreError, match="power"):
            HistoryStore(str(path))
    monkeypatch.setattr(run_store, "MIGRATIONS", (*run_store.MIGRATIONS, _add_note))
    assert HistoryStore(str(path)).runs() == RUNS


def test_a_newer_database_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "h.db"
    with monkeypatch.context() as patch:
        patch.setattr(run_store, "MIGRATIONS", (*run_store.MIGRATIONS, _add_note, _add_note))
        HistoryStore(str(path))
    with pytest.raises(StoreError, match=f"schema version {NOW + 2}; this Gangline knows up to {NOW}"):
        HistoryStore(str(path))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nosuch://host/db", "nosuch"),
        ("postgresql+nodriver://ann:secret@host/db", "nodriver"),
        ("sqlite:////proc/nowhere/h.db", "proc"),
        ("://", "not a database URL"),
    ],
)
def test_a_wrong_url_is_told_without_the_password(url: str, words: str) -> None:
    with pytest.raises(StoreError, match=words) as caught:
        HistoryStore(url)
    assert "secret" not in str(caught.value)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "h.db").write_text("not a database, but long enough to be taken for one" * 100)
    with pytest.raises(StoreError, match="not a database"):
        HistoryStore(str(tmp_path / "h.db"))


def test_retention_defaults_are_bounded() -> None:
    assert store_module.RETENTION == 180 * DAY
    assert store_module.ATTEMPT_RETENTION == question.LONGEST_USAGE, "as far back as sums may be asked for"
    assert store_module.MAX_ATTEMPTS >= 365 * 1000, "a year of 1,000 jobs a day"
    assert Run(uid="x", submit=0.0).seconds is None


# --- attempts -----------------------------------------------------------------------------------------------------------

AT = 1_790_000_000.0


def attempt(place: int, /, **fields: Any) -> JobAttempt:
    """The attempt of a Workload of its own, which took a minute."""
    at = AT + 100 * place
    given = {"uid": f"w{place}", "reserved": at, "submitted": at - 5, "queued": at - 5, "started": at, "ready": at}
    ended = {"ended": at + 60, "end": "Succeeded"}
    more = {"namespace": "ml", "workload": "w", "job_name": "train", "cluster_queue": "a", "gpus": 8}
    return JobAttempt(**given | ended | more | fields)


def test_attempts_come_back_as_they_were(store: HistoryStore) -> None:
    whole = attempt(
        1,
        number=3,
        job_kind="Job",
        user="mira",
        local_queue="q",
        flavor="h100",
        pods=4,
        reports_ready=False,
        unready=2.5,
        unready_since=AT,
        checkpoint=60.0,
        stopped=AT + 50,
        end="Preempted",
        reason="InClusterQueue",
        text="preempted for ml/other",
        by="ml/other",
        by_job="job/other",
        backfilled=True,
        idle=12.0,
        nodes=("n1", "n2"),
        node_count=70,
        labels=(("example.com/project", "alpha"), ("team", 'a"b')),
    )
    assert store.put_attempts("here", [whole, attempt(2)]) == 2
    assert store.attempts(AttemptQuery("here")) == [attempt(2), whole]
    assert store.attempts(AttemptQuery("another cluster")) == []


def test_writing_an_attempt_twice_changes_nothing_and_its_end_replaces_its_beginning(store: HistoryStore) -> None:
    begun = attempt(1, ended=None, end="")
    for _ in range(2):
        store.put_attempts("here", [begun])
        assert store.open_attempts("here") == [begun]
    for _ in range(2):
        store.put_attempts("here", [attempt(1)])
        assert (store.open_attempts("here"), store.attempts(AttemptQuery("here"))) == ([], [attempt(1)])


def test_attempts_are_found_by_what_is_asked(store: HistoryStore) -> None:
    other = attempt(4, namespace="other", cluster_queue="b", job_name="eval")
    running = attempt(0, ended=None, end="")
    store.put_attempts("here", [attempt(1), attempt(2), attempt(3), other, running])
    store.put_attempts("there", [attempt(9)])

    def found(**query: Any) -> list[str]:
        return [each.uid for each in store.attempts(AttemptQuery("here", **query))]

    assert found() == ["w0", "w4", "w3", "w2", "w1"]
    assert found(since=AT + 260) == ["w0", "w4", "w3", "w2"], "those in progress go on"
    assert found(namespace="other") == found(cluster_queue="b") == found(job_name="eval") == ["w4"]
    assert found(most=2) == ["w0", "w4", "w3"]
    stopped = {"end": "Preempted", "by": "m_l/w9", "by_job": "job/eval", "by_queue": "q"}
    store.put_attempts(
        "here", [attempt(5, **stopped), attempt(6, **stopped | {"by": "mxl/w9", "by_job": "job/an-eval"})]
    )
    assert found(end="Preempted") == found(by_queue="q") == ["w6", "w5"]
    assert found(by_namespace="m_l") == found(by_job="eval") == ["w5"], "no name is a pattern"
    assert found(by_job="%") == found(by_namespace="m") == []


def test_the_last_attempt_of_each_workload_is_known(store: HistoryStore) -> None:
    store.put_attempts("here", [attempt(1), attempt(2, uid="w1", number=2, ended=None), attempt(3)])
    assert store.last_attempts({"w1", "w9"}) == {"w1": LastAttempt(AT + 200, 2, AT + 160)}
    assert store.last_attempts({"w1"}, {attempt(2, uid="w1").key, "w9/5"}) == {"w1": LastAttempt(AT + 100, 1, AT + 160)}
    assert store.last_attempts({"w3"}, {attempt(3).key}) == {}
    assert store.last_attempts([f"x{number}" for number in range(2000)]) == {}


def test_sums_are_made_of_one_clusters_attempts(store: HistoryStore) -> None:
    running = attempt(5, ended=None, end="")
    store.put_attempts("here", [*map(attempt, range(5)), running])
    store.put_attempts("there", [attempt(9)])
    window = Window(AT + 130, AT + 530, cluster="here")
    (found,) = store.usage(window, ()).values()
    seconds = 30 + 3 * 60 + 30
    assert (found.attempts, round(found.hours * 3600)) == (5, 8 * seconds)
    (less,) = store.usage(window, {running.key, attempt(1).key}).values()
    assert round(less.hours * 3600) == 8 * 3 * 60
    assert store.usage(replace(window, queues=frozenset({"b"})), ()) == {}


def test_an_old_attempt_is_forgotten_unless_it_is_in_progress(tmp_path: Path) -> None:
    store = HistoryStore(str(tmp_path / "h.db"), attempt_retention=10 * DAY)
    running = attempt(0, ended=None, end="")
    store.put_attempts("here", [running, attempt(1), attempt(2)])
    assert store.prune(AT + 150 + 10 * DAY) == 1
    assert store.attempts(AttemptQuery("here")) == [running, attempt(2)]


def test_a_namespace_with_many_attempts_displaces_its_own_ones(tmp_path: Path) -> None:
    store = HistoryStore(str(tmp_path / "h.db"), max_attempts=20)
    quiet = [attempt(number, namespace="quiet") for number in range(5)]
    store.put_attempts("here", [*quiet, *(attempt(number, namespace="loud") for number in range(100, 200))])
    assert store.prune(AT) == 85
    kept = store.attempts(AttemptQuery("here"))
    assert {each.uid for each in kept if each.namespace == "quiet"} == {each.uid for each in quiet}
    assert [each.uid for each in kept if each.namespace == "loud"] == [f"w{n}" for n in range(199, 184, -1)]


def test_texts_of_attempts_fit_their_columns(store: HistoryStore) -> None:
    long = attempt(1, text="a\0b", user="u" * 999, nodes=tuple(f"node-{n}" for n in range(64)), gpus=2**40)
    store.put_attempts("here", [long])
    (kept,) = store.attempts(AttemptQuery("here"))
    assert (kept.text, len(kept.user), len(kept.nodes), kept.gpus) == ("ab", 253, 64, 2**31 - 1)


def test_a_database_of_the_second_version_gets_its_attempts(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    HistoryStore(str(path)).put(RUNS)
    with create_engine(f"sqlite:///{path}").begin() as connection:
        connection.execute(text("DROP TABLE gangline_attempts"))
        connection.execute(text("UPDATE gangline_schema SET version = 2"))
    for _ in range(2):
        with HistoryStore(str(path)) as store:
            store.put_attempts("here", [attempt(1)])
            assert (store.attempts(AttemptQuery("here")), store.runs()) == ([attempt(1)], RUNS)
    with create_engine(f"sqlite:///{path}").connect() as connection:
        assert connection.execute(text("SELECT version FROM gangline_schema")).all() == [(NOW,)]


def test_a_database_of_the_third_version_gets_the_queues_of_preemptors(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    HistoryStore(str(path)).put_attempts("here", [attempt(1)])
    with create_engine(f"sqlite:///{path}").begin() as connection:
        connection.execute(text("ALTER TABLE gangline_attempts DROP COLUMN by_queue"))
        connection.execute(text("UPDATE gangline_schema SET version = 3"))
    for _ in range(2):
        with HistoryStore(str(path)) as store:
            store.put_attempts("here", [attempt(2, by_queue="q")])
            found = store.attempts(AttemptQuery("here"))
            assert [(each.uid, each.by_queue) for each in found] == [("w2", "q"), ("w1", "")]


def test_a_database_of_the_fourth_version_gets_the_labels_of_jobs(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    HistoryStore(str(path)).put_attempts("here", [attempt(1)])
    with create_engine(f"sqlite:///{path}").begin() as connection:
        connection.execute(text("ALTER TABLE gangline_attempts DROP COLUMN labels"))
        connection.execute(text("UPDATE gangline_schema SET version = 4"))
    for _ in range(2):
        with HistoryStore(str(path)) as store:
            store.put_attempts("here", [attempt(2, labels=(("team", "a"),))])
            found = store.attempts(AttemptQuery("here"))
            assert [(each.uid, each.label("team")) for each in found] == [("w2", "a"), ("w1", "")]
            sums = store.usage(Window(AT - 1e6, AT + 1e6, "label:team", cluster="here"), ())
            assert {name: each.attempts for name, each in sums.items()} == {("ml", "a"): 1, ("ml", ""): 1}


def test_as_many_labels_as_are_kept_fit_their_column(store: HistoryStore) -> None:
    labels = tuple((f"{number}{'k' * (LONGEST_LABEL_KEY - 1)}", "v" * 63) for number in range(MOST_LABELS))
    store.put_attempts("here", [attempt(1, labels=labels)])
    assert [each.labels for each in store.attempts(AttemptQuery("here"))] == [labels]
