"""What a job waits for before it is queued: other jobs of its namespace, and the state that each has to reach.

The annotation `gangline.io/after` of a job lists them, such as `job/prepare=Succeeded,gpujob/server=Running`. Its Workload has a
copy, and in `gangline.io/after-met` the entries that have come true: what was met once stays met.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from gangline import bounded
from gangline.api import names

#: entries of one annotation, and characters of it
MOST: Final = 16
LONGEST: Final = 4096
#: the kind by which a group of plain pods is named
POD_GROUP: Final = "podgroup"
#: kinds of which each pod has a Workload of its own: no one of these says how the whole object stands
_WITHOUT_ONE_STATE: Final = frozenset({"deployment"})

_LONGEST_NAME: Final = 253
_KIND: Final = re.compile(r"[a-z][a-z0-9]{0,62}")
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")


class DependencyState(StrEnum):
    """What another job has to reach."""

    SUCCEEDED = "Succeeded"
    RUNNING = "Running"
    FAILED = "Failed"
    FINISHED = "Finished"

    @property
    def verb(self) -> str:
        """What the other job has to do, such as `succeed`."""
        return {"Succeeded": "succeed", "Running": "run", "Failed": "fail", "Finished": "end"}[self]


class DependencyPolicy(StrEnum):
    """What happens to a job with a dependency that cannot be met any more."""

    HOLD = "Hold"
    CANCEL = "Cancel"


class DependencyError(ValueError):
    """The annotation cannot be read. The text says what is wrong with which entry."""


class Dependency(NamedTuple):
    """Another job of the namespace, by its kind in small letters and its name, and the state that it has to reach."""

    kind: str
    name: str
    state: DependencyState

    @property
    def job(self) -> str:
        return f"{self.kind}/{self.name}"

    @property
    def title(self) -> str:
        """The job in a sentence. A slash in answers stands between a namespace and a name, which not everybody may see."""
        return f"{self.kind} {self.name}"

    @property
    def words(self) -> str:
        """What has to be, such as `job prepare to succeed`."""
        return f"{self.title} to {self.state.verb}"

    def __str__(self) -> str:
        return f"{self.job}={self.state}"


def _too_long(text: str) -> DependencyError:
    return DependencyError(f"must have at most {LONGEST} characters, not {len(text)}")


@bounded.parser(LONGEST, refuse=_too_long, worst=("job/a=Running,", ",", "job/", "=", "a.-"))
def parse(text: str) -> tuple[Dependency, ...]:
    """The entries of an annotation, in its order. Raises DependencyError."""
    written = [entry.strip() for entry in text.split(",")]
    if len(written) > MOST:
        raise DependencyError(f"may list at most {MOST} jobs, not {len(written)}")
    found = tuple(_entry(entry) for entry in written)
    for number, each in enumerate(found):
        if each in found[:number]:
            raise DependencyError(f"lists {each} twice")
    return found


def _entry(entry: str) -> Dependency:
    job, equals, state = (part.strip() for part in entry.partition("="))
    kind, slash, name = job.partition("/")
    shown = bounded.shown(entry)
    if not (job and equals and slash):
        raise DependencyError(f"{shown} must be KIND/NAME=STATE, such as job/prepare=Succeeded")
    if "/" in name:
        raise DependencyError(f"{shown} must name a job of the same namespace, as KIND/NAME=STATE")
    if not _KIND.fullmatch(kind.lower()):
        raise DependencyError(f"{shown} names no kind of jobs")
    if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        raise DependencyError(
            f"{shown} names no job: a name has small letters, digits, '-' and '.', at most 253 of them"
        )
    try:
        return Dependency(kind.lower(), name, DependencyState(state))
    except ValueError:
        states = ", ".join(DependencyState)
        raise DependencyError(f"{shown} names no state of a job: it must be one of {states}") from None


def written(dependencies: Sequence[Dependency]) -> str:
    """The annotation that lists these."""
    return ",".join(map(str, dependencies))


def policy(annotations: Mapping[str, str]) -> DependencyPolicy:
    """What the annotations of a job or a Workload ask for. An unknown word, which the webhook refuses, is no wish to cancel."""
    cancels = annotations.get(names.AFTER_FAILED) == DependencyPolicy.CANCEL
    return DependencyPolicy.CANCEL if cancels else DependencyPolicy.HOLD


def kinds() -> frozenset[str]:
    """The kinds of jobs that others can wait for, as they are written."""
    from gangline.api import jobkinds  # thirty declarations, which who writes the annotation does not need

    return frozenset({each.kind.lower() for each in jobkinds.known()} - _WITHOUT_ONE_STATE | {POD_GROUP})


def unmet(annotations: Mapping[str, str]) -> tuple[Dependency, ...]:
    """What a Workload still waits for, by its annotations. Raises DependencyError.

    A slice that replaces one with quota waits for nothing: its job has started.
    """
    text = annotations.get(names.AFTER)
    if not text or names.REPLACEMENT_FOR in annotations:
        return ()
    met = known_as(annotations.get(names.AFTER_MET, ""))
    return tuple(each for each in parse(text) if str(each) not in met)


def waits_for(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """What a Workload still waits for, in words. An annotation that cannot be read keeps it waiting, too."""
    try:
        return tuple(each.words for each in unmet(annotations))
    except DependencyError as error:
        return (f"annotation {names.AFTER}: {error}",)


@bounded.parser(LONGEST, instead=frozenset[str](), worst=("job/a=Running,", ","))
def known_as(text: str) -> frozenset[str]:
    """The entries of the operator's own annotations of a Workload."""
    return frozenset(text.split(",")) - {""}
