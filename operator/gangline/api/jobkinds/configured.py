"""Job kinds that a configuration file declares (`integrations.declared`): a user's own CRD, without code.

Values only: paths, products of counts, conditions. They have been read and bounded by `api.read.configuration.declared_kinds`,
and can be sent to another process.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gangline import bounded
from gangline.api.jobkinds.declaration import (
    MOST_PODS,
    JobError,
    JobOutcome,
    Json,
    Key,
    Path,
    PodSetPlace,
    at,
    condition,
    drop,
    mapping_at,
    number_at,
    rows_at,
    shown,
    template_at,
    without_condition,
)

#: characters and fields of the longest path
LONGEST_PATH: Final = 256
DEEPEST_PATH: Final = 12
#: factors of a count
MOST_FACTORS: Final = 4
_FIELD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")
_NUMBER: Final = re.compile(r"[0-9]{1,9}")


def _too_long(text: str) -> ValueError:
    return ValueError(f"{bounded.shown(text)} is longer than {LONGEST_PATH} characters")


@bounded.parser(LONGEST_PATH, refuse=_too_long, worst=("a.", "a", "."))
def path(text: str) -> Path:
    """Names of fields with dots between them. Raises ValueError."""
    parts = text.split(".")
    if len(parts) > DEEPEST_PATH:
        raise ValueError(f"{bounded.shown(text)} has more than {DEEPEST_PATH} fields")
    for part in parts:
        if not _FIELD.fullmatch(part):
            raise ValueError(f"{bounded.shown(text)} is not a path such as spec.workers.replicas")
    return tuple(parts)


@bounded.parser(LONGEST_PATH, refuse=_too_long, worst=("1*", "a*", "*", " "))
def factors(text: str) -> tuple[int | Path, ...]:
    """A count: numbers and paths with `*` between them, such as `replicas * hosts`. Raises ValueError."""
    parts = [part.strip() for part in text.split("*")]
    if len(parts) > MOST_FACTORS:
        raise ValueError(f"{bounded.shown(text)} has more than {MOST_FACTORS} factors")
    return tuple(int(part) if _NUMBER.fullmatch(part) else path(part) for part in parts)


@dataclass(frozen=True, slots=True)
class ConfiguredPods:
    """One pod set, or one for each entry of a list or a map."""

    template: Path
    count: tuple[int | Path, ...] = (1,)
    #: the list or map; () for one pod set, whose paths then begin at the job
    each: Path = ()
    #: the name of the one pod set, or the field of a list's entry with its name; in a map the key is the name
    name: str = "main"
    index_label: str = ""

    def places(self, job: Json) -> list[PodSetPlace]:
        if not self.each:
            return [self._place(job, (), self.name)]
        found = at(job, self.each)
        if isinstance(found, dict):
            return [self._place(job, (*self.each, Key(key)), key) for key in mapping_at(job, self.each)]
        return [
            self._place(job, (*self.each, i), self._name_in(row, (*self.each, i)))
            for i, row in enumerate(rows_at(job, self.each))
        ]

    def _name_in(self, row: Json, where: Path) -> str:
        name = row.get(self.name)
        if not isinstance(name, str):
            raise JobError("a name is needed", shown((*where, self.name)))
        return name

    def _place(self, job: Json, entry: Path, name: str) -> PodSetPlace:
        template = (*entry, *self.template)
        return PodSetPlace(
            name.lower(), self._count(job, entry), template, template_at(job, template), index_label=self.index_label
        )

    def _count(self, job: Json, entry: Path) -> int:
        """A field that is missing counts as 1."""
        product = 1
        for factor in self.count:
            product *= factor if isinstance(factor, int) else number_at(job, (*entry, *factor), 1)
            if product > MOST_PODS:
                raise JobError(f"must be 0 to {MOST_PODS} pods", shown((*entry, *self.template)))
        return product


@dataclass(frozen=True, slots=True)
class AllPods:
    """The pod sets of a job, in the order of the declaration."""

    rows: tuple[ConfiguredPods, ...]

    def __call__(self, job: Json) -> Sequence[PodSetPlace]:
        return [place for row in self.rows for place in row.places(job)]


@dataclass(frozen=True, slots=True)
class StatusSign:
    """Something in a job's status: a condition that is true, one of some values, or a number above 0 (true also counts)."""

    condition: str = ""
    path: Path = ()
    values: tuple[str, ...] = ()

    def __call__(self, job: Json) -> bool:
        if self.condition:
            return condition(self.condition)(job)
        found = at(job, self.path)
        if self.values:
            return found in self.values
        return isinstance(found, int) and found > 0

    def message(self, job: Json) -> str:
        rows = rows_at(job, ("status", "conditions"))
        return next((str(row.get("message") or "") for row in rows if row.get("type") == self.condition), "")


@dataclass(frozen=True, slots=True)
class AtRest:
    """The status of a job without what these signs show."""

    signs: tuple[StatusSign, ...]

    def __call__(self, job: Json) -> Json:
        found: Json = {"status": mapping_at(job, ("status",))}
        for sign in self.signs:
            if sign.condition:
                found["status"] = without_condition(found["status"], sign.condition)
            elif sign(found):
                drop(found, sign.path)
        return found["status"]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a job ends; without a sign it never does."""

    succeeded: StatusSign | None
    failed: StatusSign | None

    def __call__(self, job: Json) -> JobOutcome | None:
        for sign, success in ((self.succeeded, True), (self.failed, False)):
            if sign is not None and sign(job):
                return JobOutcome(success, sign.message(job))
        return None
