"""The tables of the history store, and migrations from older versions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from sqlalchemy import (
    Column,
    Connection,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    func,
    insert,
    inspect,
    select,
    update,
)

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


class SchemaError(RuntimeError):
    """The database was made by a newer version of Gangline."""


def _add_tallies(connection: Connection) -> None:
    TALLIES.create(connection, checkfirst=True)


#: step n migrates a database from version n + 1 to n + 2. Released steps are never changed, only added.
MIGRATIONS: Sequence[Callable[[Connection], None]] = (_add_tallies,)


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
