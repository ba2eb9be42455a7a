"""The history store: runs and attempts, ended or not, in a database, SQLite by default, or any other that SQLAlchemy supports.

Every call is one atomic transaction. Writing a run or an attempt again replaces it. Calls block; an event loop makes them in a
thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    MetaData,
    Row,
    String,
    Table,
    Text,
    create_engine,
    delete,
    event,
    func,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from gangline import files, tenants
from gangline.forecast.errors import StoreError
from gangline.forecast.history import usage
from gangline.forecast.history.attempts import AttemptQuery, JobAttempt, LastAttempt
from gangline.forecast.history.budgets import UsedSpan
from gangline.forecast.history.runs import Run
from gangline.forecast.history.usage import Group, UsageSum, Window

# --- the tables of the history store, and migrations from older versions ----------------------------------------------


METADATA: Final = MetaData()
#: key of the advisory lock held during migrations: "gangline" in ASCII
_MIGRATING: Final = 0x67616E676C696E65

VERSION_TABLE: Final = Table("gangline_schema", METADATA, Column("version", Integer, nullable=False))

RUNS: Final = Table(
    "gangline_runs",
    METADATA,
    Column("uid", String(253), primary_key=True),
    Column("submit", Float(53), nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("pods", Integer, nullable=False),
    Column("namespace", String(253), nullable=False),
    Column("user", String(253), nullable=False),
    Column("queue", String(253), nullable=False),
    Column("name", String(253), nullable=False),
    Column("image", Text, nullable=False),
    Column("command", Text, nullable=False),
    Column("flavor", String(253), nullable=False),
    Column("limit_seconds", Float(53)),
    Column("hint_seconds", Float(53)),
    Column("start", Float(53)),
    Column("finish", Float(53)),
    Index("gangline_runs_submit", "submit"),
    Index("gangline_runs_finish", "finish"),
)

#: counters that survive a restart of the process, as text in the owner's format
TALLIES: Final = Table(
    "gangline_tallies",
    METADATA,
    Column("name", String(253), primary_key=True),
    Column("text", Text, nullable=False),
)

ATTEMPTS: Final = Table(
    "gangline_attempts",
    METADATA,
    Column("key", String(320), primary_key=True),
    Column("cluster", String(253), nullable=False),
    Column("uid", String(253), nullable=False),
    Column("reserved", Float(53), nullable=False),
    Column("submitted", Float(53), nullable=False),
    Column("queued", Float(53), nullable=False),
    Column("number", Integer, nullable=False),
    Column("namespace", String(253), nullable=False),
    Column("workload", String(253), nullable=False),
    Column("job_kind", String(253), nullable=False),
    Column("job_name", String(253), nullable=False),
    Column("user", String(253), nullable=False),
    Column("local_queue", String(253), nullable=False),
    Column("cluster_queue", String(253), nullable=False),
    Column("flavor", String(253), nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("pods", Integer, nullable=False),
    Column("started", Float(53)),
    Column("ready", Float(53)),
    Column("reports_ready", Boolean, nullable=False),
    Column("unready", Float(53), nullable=False),
    Column("unready_since", Float(53)),
    Column("checkpoint", Float(53)),
    Column("stopped", Float(53)),
    Column("ended", Float(53)),
    Column("end", String(64), nullable=False),
    Column("reason", String(253), nullable=False),
    Column("text", Text, nullable=False),
    Column("by", String(507), nullable=False),
    Column("by_job", String(507), nullable=False),
    Column("by_queue", String(253), nullable=False, server_default=""),
    Column("backfilled", Boolean, nullable=False),
    Column("idle", Float(53)),
    Column("nodes", Text, nullable=False),  # names, with a line for each
    Column("node_count", Integer, nullable=False),
    Column("labels", String(4096), nullable=False, server_default=""),  # KEY=VALUE, with a line for each
    Index("gangline_attempts_ended", "ended"),
    Index("gangline_attempts_uid", "uid"),
    Index("gangline_attempts_job", "namespace", "job_name"),
)


class SchemaError(RuntimeError):
    """The database was made by a newer version of Gangline."""


def _add_tallies(connection: Connection) -> None:
    TALLIES.create(connection, checkfirst=True)


def _add_attempts(connection: Connection) -> None:
    ATTEMPTS.create(connection, checkfirst=True)


def _add_preempting_queues(connection: Connection) -> None:
    if not any(each["name"] == "by_queue" for each in inspect(connection).get_columns(ATTEMPTS.name)):
        connection.exec_driver_sql(f"ALTER TABLE {ATTEMPTS.name} ADD COLUMN by_queue VARCHAR(253) DEFAULT '' NOT NULL")


def _add_labels(connection: Connection) -> None:
    if not any(each["name"] == "labels" for each in inspect(connection).get_columns(ATTEMPTS.name)):
        connection.exec_driver_sql(f"ALTER TABLE {ATTEMPTS.name} ADD COLUMN labels VARCHAR(4096) DEFAULT '' NOT NULL")


def _add_stops(connection: Connection) -> None:
    if not any(each["name"] == "stopped" for each in inspect(connection).get_columns(ATTEMPTS.name)):
        connection.exec_driver_sql(f"ALTER TABLE {ATTEMPTS.name} ADD COLUMN stopped DOUBLE PRECISION")


#: step n migrates a database from version n to n + 1. Released steps are never changed, only added.
MIGRATIONS: Sequence[Callable[[Connection], None]] = (
    _add_tallies,
    _add_attempts,
    _add_preempting_queues,
    _add_labels,
    _add_stops,
)


def migrate(connection: Connection) -> None:
    """Migrate the database to this version, within the caller's transaction. Raises SchemaError for a newer version."""
    latest = 1 + len(MIGRATIONS)
    if connection.dialect.name == "postgresql":  # two processes may migrate at once; SQLite has only one writer anyway
        connection.execute(select(func.pg_advisory_xact_lock(_MIGRATING)))
    version = _version(connection)
    if version > latest:
        raise SchemaError(f"the history has schema version {version}; this Gangline knows up to {latest}")
    if version == 0:
        METADATA.create_all(connection)
        connection.execute(insert(VERSION_TABLE).values(version=latest))
        return
    for step in MIGRATIONS[version - 1 :]:
        step(connection)
    if version < latest:
        connection.execute(update(VERSION_TABLE).values(version=latest))


def _version(connection: Connection) -> int:
    if not inspect(connection).has_table(VERSION_TABLE.name):
        return 0
    return connection.execute(select(VERSION_TABLE.c.version)).scalar() or 0


T = TypeVar("T")

RETENTION: Final = 180 * 86400.0  # seconds since the submission after which a run is forgotten
MAX_RUNS: Final = 200_000  # the latest ones are kept, those of each namespace as far as all have room
ATTEMPT_RETENTION: Final = 400 * 86400.0  # seconds after which an attempt that has ended is forgotten
MAX_ATTEMPTS: Final = 400_000  # … and of attempts: those of 1,000 jobs a day for a year
_BATCH: Final = 500
_RENAMED: Final = {"limit": "limit_seconds", "hint": "hint_seconds"}
_READS: Final = "gangline_reads"
_LARGEST: Final = 2**31 - 1  # that the databases' integers hold
#: attempts that are added up before the threads of others get their turn, for so long
_ADDED: Final = 500
_PAUSE: Final = 0.001
_FIELDS: Final = tuple(field.name for field in fields(Run))
#: fields of which sums are made
_SUMMED: Final = (
    *(
        "uid",
        "reserved",
        "submitted",
        "queued",
        "namespace",
        "user",
        "local_queue",
        "cluster_queue",
        "flavor",
        "job_kind",
    ),
    *("gpus", "started", "ready", "reports_ready", "unready", "unready_since", "checkpoint", "ended", "end", "reason"),
    "idle",
)
_ATTEMPT_FIELDS: Final = tuple(field.name for field in fields(JobAttempt))


class HistoryStore:
    """Store of runs by UID. Times are Unix seconds."""

    def __init__(
        self,
        url: str,
        *,
        retention: float = RETENTION,
        max_runs: int = MAX_RUNS,
        attempt_retention: float = ATTEMPT_RETENTION,
        max_attempts: int = MAX_ATTEMPTS,
    ) -> None:
        """Open or create the store. `url` is an SQLAlchemy URL, or the path of an SQLite file. Raises StoreError."""
        self._runs, self._attempts = (retention, max_runs), (attempt_retention, max_attempts)
        try:
            parsed = make_url(url if "://" in url else f"sqlite:///{url}")
        except ArgumentError as error:
            raise StoreError(f"{url!r} is not a database URL: {error}") from error
        self._name = parsed.render_as_string(hide_password=True)
        file = parsed.get_backend_name() == "sqlite" and parsed.database not in (None, "", ":memory:")
        try:
            if file and parsed.database:
                files.make_private(Path(parsed.database))  # SQLite's other files get this file's mode
            self._engine = create_engine(parsed, **({"poolclass": NullPool} if file else {"pool_pre_ping": True}))
            if file:
                event.listen(self._engine, "connect", _durable)
                event.listen(self._engine, "begin", _begin)
            with self._engine.begin() as connection:
                migrate(connection)
        except (SQLAlchemyError, SchemaError, ImportError, OSError) as error:
            raise StoreError(f"{self._name}: {_reason(error)}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._engine.dispose()

    def put(self, runs: Iterable[Run]) -> int:
        """Write runs atomically, replacing existing ones. Returns their number."""
        return self._put(RUNS, {run.uid: _row(run) for run in runs})

    def _put(self, table: Table, by_key: dict[str, dict[str, Any]]) -> int:
        rows = [by_key[key] for key in sorted(by_key)]  # sorted, so that two writers can't deadlock
        if not rows:
            return 0
        try:
            with self._engine.begin() as connection:
                for first in range(0, len(rows), _BATCH):
                    _upsert(connection, table, rows[first : first + _BATCH])
        except SQLAlchemyError as error:
            raise StoreError(f"{self._name}: {_reason(error)}") from error
        return len(rows)

    def runs(self, *, since: float = 0.0, limit: int | None = None) -> list[Run]:
        """Runs submitted at or after `since`, in order of submission; with a `limit`, the latest ones of each namespace.

        A namespace with many runs displaces its own ones, not those of others (`tenants.fair_limit`).
        """
        latest = (RUNS.c.submit.desc(), RUNS.c.uid.desc())
        query = select(RUNS).where(RUNS.c.submit >= since)
        if limit is not None:
            sizes = self._read(lambda connection: _sizes(connection, RUNS.c.namespace, RUNS.c.submit >= since))
            most = tenants.fair_limit(sizes.values(), limit)
            if any(size > most for size in sizes.values()):
                place = func.row_number().over(partition_by=RUNS.c.namespace, order_by=latest).label("place")
                ranked = select(RUNS.c.uid, place).where(RUNS.c.submit >= since).subquery()
                query = query.join(ranked, ranked.c.uid == RUNS.c.uid).where(ranked.c.place <= most)
        return [_run(row) for row in reversed(self._all(query.order_by(*latest)))]

    def ended(self, since: float, limit: int, namespace: str = "") -> list[Run]:
        """Runs that finished at or after `since`, the last ones first; with a namespace, its own."""
        query = select(RUNS).where(RUNS.c.finish >= since).order_by(RUNS.c.finish.desc(), RUNS.c.uid.desc())
        if namespace:
            query = query.where(RUNS.c.namespace == namespace)
        return [_run(row) for row in self._all(query.limit(limit))]

    def find(self, text: str, limit: int = 20) -> list[Run]:
        """Runs whose UID or name is `text` (or namespace/name), latest first."""
        namespace, _, name = text.rpartition("/")
        wanted = (RUNS.c.name == name) & (RUNS.c.namespace == namespace) if namespace else RUNS.c.name == text
        query = select(RUNS).where((RUNS.c.uid == text) | wanted).order_by(RUNS.c.submit.desc()).limit(limit)
        return [_run(row) for row in self._all(query)]

    def count(self) -> int:
        return int(self._all(select(func.count()).select_from(RUNS))[0][0])

    def keep(self, name: str, text: str) -> None:
        """Store a text under a name, replacing the previous one."""
        try:
            with self._engine.begin() as connection:
                _upsert(connection, TALLIES, [{"name": name, "text": text}])
        except SQLAlchemyError as error:
            raise StoreError(f"{self._name}: {_reason(error)}") from error

    def kept(self, name: str) -> str | None:
        """The text stored under a name, or None."""
        rows = self._all(select(TALLIES.c.text).where(TALLIES.c.name == name))
        return rows[0][0] if rows else None

    def prune(self, now: float) -> int:
        """Delete runs and attempts that are older than the retention or beyond the maximum number. Returns their number.

        Beyond the number, the oldest ones of the namespaces with most go. An attempt in progress is kept, however old it is.
        """
        ended = ATTEMPTS.c.ended.is_not(None)
        try:
            with self._engine.begin() as connection:
                return _prune(connection, RUNS.c.submit, now, *self._runs) + _prune(
                    connection, ATTEMPTS.c.reserved, now, *self._attempts, ended
                )
        except SQLAlchemyError as error:
            raise StoreError(f"{self._name}: {_reason(error)}") from error

    # --- attempts -----------------------------------------------------------------------------------------------------

    def put_attempts(self, cluster: str, attempts: Iterable[JobAttempt]) -> int:
        """Write attempts of a cluster atomically, replacing existing ones. Returns their number."""
        return self._put(ATTEMPTS, {each.key: _attempt_row(cluster, each) for each in attempts})

    def attempts(self, query: AttemptQuery) -> list[JobAttempt]:
        """The attempts that are asked for: those in progress, and those that ended last, in no order."""
        c = ATTEMPTS.c
        wanted = [c.cluster == query.cluster]
        wanted += [
            column == value
            for column, value in (
                (c.namespace, query.namespace),
                (c.cluster_queue, query.cluster_queue),
                (c.job_name, query.job_name),
                (c.end, query.end),
                (c.by_queue, query.by_queue),
            )
            if value
        ]
        if query.by_job:
            wanted.append(c.by_job.endswith(f"/{query.by_job}", autoescape=True))
        if query.by_namespace:
            wanted.append(c.by.startswith(f"{query.by_namespace}/", autoescape=True))
        running = select(ATTEMPTS).where(c.ended.is_(None), *wanted).order_by(c.reserved.desc()).limit(query.most)
        last = select(ATTEMPTS).where(c.ended >= query.since, *wanted).order_by(c.ended.desc()).limit(query.most)
        return [_read_attempt(row) for row in (*self._all(running), *self._all(last))]

    def open_attempts(self, cluster: str) -> list[JobAttempt]:
        """The attempts of a cluster that have not ended, as far as this store knows."""
        return [
            _read_attempt(row)
            for row in self._all(
                select(ATTEMPTS)
                .where(ATTEMPTS.c.ended.is_(None), ATTEMPTS.c.cluster == cluster)
                .limit(self._attempts[1])
            )
        ]

    def last_attempts(self, uids: Collection[str], without: Collection[str] = ()) -> dict[str, LastAttempt]:
        """The last attempt of each of these Workloads that has one, by uid, but for those with the keys `without`."""
        c = ATTEMPTS.c
        query = select(c.uid, func.max(c.reserved), func.max(c.number), func.max(c.ended)).group_by(c.uid)
        left_out: dict[str, list[str]] = {}
        for key in without:
            left_out.setdefault(key.rpartition("/")[0], []).append(key)
        found: dict[str, LastAttempt] = {}
        wanted = sorted(uids)
        for first in range(0, len(wanted), _BATCH):
            some = wanted[first : first + _BATCH]
            keys = [key for uid in some for key in left_out.get(uid, ())]
            rows = self._all(query.where(c.uid.in_(some), c.key.not_in(keys)))
            found.update({uid: LastAttempt(*last) for uid, *last in map(tuple, rows)})
        return found

    def usage(self, window: Window, without: Collection[str]) -> dict[Group, UsageSum]:
        """The sums of a cluster's attempts, but for those with these keys."""
        c, sums = ATTEMPTS.c, dict[Group, UsageSum]()
        summed = (*_SUMMED, "labels") if window.label else _SUMMED
        query = select(c.key, *(c[name] for name in summed)).where(
            c.cluster == window.cluster,
            c.reserved <= window.until,
            (c.ended >= window.since) | c.ended.is_(None),
        )
        if window.queues is not None:
            query = query.where(c.cluster_queue.in_(sorted(window.queues)))

        def counted(rows: Iterable[Row[Any]]) -> Iterator[JobAttempt]:
            for number, row in enumerate(rows):
                if number % _ADDED == _ADDED - 1:
                    time.sleep(_PAUSE)  # decisions are made in another thread, and go first
                if row[0] not in without:
                    found: dict[str, Any] = dict(zip(summed, tuple(row)[1:], strict=True))
                    if window.label:
                        found["labels"] = _labels(found["labels"])
                    yield JobAttempt(**found)

        def add_up(connection: Connection) -> None:
            usage.add(sums, counted(connection.execution_options(yield_per=_BATCH).execute(query)), window)

        self._read(add_up)
        return sums

    def fold_ended(
        self, cluster: str, since: float, without: Collection[str], take: Callable[[UsedSpan], None]
    ) -> None:
        """Hand over what attempts of a cluster took that ended at or after `since`, but for those with these keys."""
        c = ATTEMPTS.c
        columns = (c.cluster_queue, c.namespace, c.local_queue, c.user, c.gpus, c.reserved, c.ended)
        query = select(c.key, c.labels, *columns).where(c.cluster == cluster, c.ended >= since)

        def fold(connection: Connection) -> None:
            for number, row in enumerate(connection.execution_options(yield_per=_BATCH).execute(query)):
                if number % _ADDED == _ADDED - 1:
                    time.sleep(_PAUSE)  # decisions are made in another thread, and go first
                key, labels, *span = tuple(row)
                if key not in without:
                    take(UsedSpan(*span, labels=_labels(labels)))

        self._read(fold)

    def _all(self, query: Any) -> Sequence[Row[Any]]:
        return self._read(lambda connection: connection.execute(query).all())

    def _read(self, work: Callable[[Connection], T]) -> T:
        try:
            with self._engine.connect().execution_options(**{_READS: True}) as connection:
                return work(connection)
        except SQLAlchemyError as error:
            raise StoreError(f"{self._name}: {_reason(error)}") from error


def _sizes(connection: Connection, namespace: Column[str], *among: Any) -> dict[str, int]:
    """Each namespace, and how many rows of a table it has."""
    query = select(namespace, func.count()).where(*among).group_by(namespace)
    return {str(row[0]): int(row[1]) for row in connection.execute(query)}


def _prune(connection: Connection, age: Column[float], now: float, retention: float, most: int, *among: Any) -> int:
    """Delete old rows of a table, `among` those that may go. `age`: its column that says how old each is."""
    table = age.table
    gone = int(connection.execute(delete(table).where(age < now - retention, *among)).rowcount)
    sizes = _sizes(connection, table.c.namespace, *among)
    each = tenants.fair_limit(sizes.values(), most)
    for namespace, size in sizes.items():
        if size > each:
            gone += _keep_latest(connection, age, each, table.c.namespace == namespace, *among)
    return gone


def _keep_latest(connection: Connection, age: Column[float], most: int, *own: Any) -> int:
    """Delete all but about so many rows of a namespace; those of the same age stay together."""
    newest = select(age).where(*own).order_by(age.desc()).offset(max(0, most - 1)).limit(1)
    edge = connection.execute(newest).scalar()
    gone = connection.execute(delete(age.table).where(*own, age < edge))
    return int(gone.rowcount)


def _durable(connection: Any, _record: Any) -> None:
    """Configure SQLite: concurrent readers with one writer, commits that survive a power failure, waits for other writers."""
    connection.isolation_level = None  # _begin starts transactions, so that they include schema changes
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=10000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: Connection) -> None:
    """Begin a transaction; a writer takes its lock at once, because upgrading a read lock can fail."""
    connection.exec_driver_sql("BEGIN" if connection.get_execution_options().get(_READS) else "BEGIN IMMEDIATE")


def _upsert(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows, replacing those with the same key."""
    (key,) = table.primary_key.columns
    dialect = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}.get(connection.engine.dialect.name)
    if dialect is None:  # no upsert that all databases support: delete and insert within the transaction
        connection.execute(delete(table).where(key.in_([row[key.name] for row in rows])))
        connection.execute(insert(table), list(rows))
        return
    statement = dialect(table)
    new = {name: statement.excluded[name] for name in rows[0] if name != key.name}
    connection.execute(statement.on_conflict_do_update(index_elements=[key.name], set_=new), list(rows))


def _limits(table: Table) -> dict[str, int]:
    return {c.name: c.type.length for c in table.columns if isinstance(c.type, String) and c.type.length}


_RUN_TEXTS: Final = _limits(RUNS)
_ATTEMPT_TEXTS: Final = _limits(ATTEMPTS)


def _row(run: Run) -> dict[str, Any]:
    return _stored({_RENAMED.get(name, name): getattr(run, name) for name in _FIELDS}, _RUN_TEXTS)


def _stored(row: dict[str, Any], limits: dict[str, int]) -> dict[str, Any]:
    """The row as databases take it: texts truncated to their columns, without NUL, which PostgreSQL rejects."""
    for name, length in limits.items():
        row[name] = row[name][:length]
    return {name: value.replace("\0", "") if isinstance(value, str) else value for name, value in row.items()}


def _attempt_row(cluster: str, attempt: JobAttempt) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(attempt, name) for name in _ATTEMPT_FIELDS}
    row |= {name: min(_LARGEST, row[name]) for name in ("gpus", "pods", "number", "node_count")}
    labels = "\n".join(f"{key}={value}" for key, value in attempt.labels)
    row |= {"key": attempt.key, "cluster": cluster, "nodes": "\n".join(attempt.nodes), "labels": labels}
    return _stored(row, _ATTEMPT_TEXTS)


def _read_attempt(row: Row[Any]) -> JobAttempt:
    columns = row._mapping
    nodes: str = columns["nodes"]
    return JobAttempt(
        **{name: columns[name] for name in _ATTEMPT_FIELDS if name not in ("nodes", "labels")},
        nodes=tuple(nodes.split("\n")) if nodes else (),
        labels=_labels(columns["labels"]),
    )


def _labels(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((key, value) for key, _, value in (line.partition("=") for line in text.split("\n") if line))


def _run(row: Row[Any]) -> Run:
    columns = row._mapping
    return Run(**{name: columns[_RENAMED.get(name, name)] for name in _FIELDS})


def _reason(error: BaseException) -> str:
    return str(getattr(error, "orig", None) or error).splitlines()[0]
