"""Objects that could not be handled. Each is quarantined alone: its error is reported once, and all other objects are handled.

Work on objects runs in turn (`turns`), and wherever an object enters, as an `attempt`. Any exception ends that attempt and
nothing else. The object is tried again when it changes, or when another change gives reason to look at it.
"""

from __future__ import annotations

import itertools
import logging
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from gangline import bounded
from gangline.control.isolation.time_limit import TookTooLongError
from gangline.control.isolation.turns import K, Turns
from gangline.kube import resources as kube
from gangline.kube.resources import Resource
from gangline.objects import Stored

log = logging.getLogger(__name__)

#: resource and key of an object
Subject: TypeAlias = tuple[Resource, str]
#: called with the object's key, its JSON where available, and a description of the error
Report: TypeAlias = Callable[[Subject, Stored | None, str], None]

#: how many objects are remembered; each of them was reported
MOST: int = 10_000


@dataclass(slots=True)
class Quarantine:
    """The errors of each object, by the work that failed (`stage`)."""

    report: Report
    #: whose objects are worked on next
    turns: Turns = field(default_factory=Turns)
    #: stage and kind -> how many attempts failed
    failures: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    _errors: dict[Subject, dict[str, str]] = field(default_factory=dict[Subject, dict[str, str]])

    def in_turn(self, keys: Collection[K], put_back: Callable[[list[K]], object]) -> Iterator[K]:
        """The keys, those of the namespace that used least first, until the round is over; the rest is put back."""
        return self.turns.each(keys, put_back)

    def attempt(
        self, stage: str, resource: Resource, key: str, work: Callable[[], object], obj: Stored | None = None
    ) -> bool:
        """Run `work`, which concerns this object alone. Returns False if it failed."""
        try:
            work()
        except Exception as error:
            self.note(stage, resource, key, error, obj)
            return False
        if self._errors:
            self._recovered(stage, (resource, key))
        return True

    def note(self, stage: str, resource: Resource, key: str, error: Exception, obj: Stored | None = None) -> None:
        """Record an error of this object. The same error is reported once."""
        self.failures[stage, resource.kind] += 1
        what = describe(error)
        errors = self._errors.setdefault((resource, key), {})
        if errors.get(stage) == what:
            return
        errors[stage] = what
        while len(self._errors) > MOST:
            del self._errors[next(iter(self._errors))]
        trace = {"trace": _where(error)}
        log.error("%s %s is quarantined: %s failed: %s", resource.kind, key, stage, what, extra=trace)
        try:
            self.report((resource, key), obj, what)
        except Exception:
            log.exception("%s %s: the error could not be reported", resource.kind, key)

    def note_unreadable(self, obj: Stored, error: Exception) -> None:
        """Record that an object cannot be read: its last good value stays in use."""
        resource = kube.BY_KIND.get(str(obj.get("kind")), kube.WORKLOADS)
        self.note("reading it", resource, obj.key, error, obj)

    def note_readable(self, resource: Resource, key: str) -> None:
        """Record that an object can be read again."""
        self._recovered("reading it", (resource, key))

    def _recovered(self, stage: str, subject: Subject) -> None:
        errors = self._errors.get(subject)
        if errors is not None and errors.pop(stage, None) is not None and not errors:
            del self._errors[subject]

    def forget(self, resource: Resource, key: str) -> None:
        """Forget a deleted object."""
        self._errors.pop((resource, key), None)

    def count(self) -> Mapping[tuple[str, ...], float]:
        """The number of objects in quarantine, by kind."""
        return Counter((resource.kind,) for resource, _ in self._errors)

    def latest(self, most: int) -> Iterator[tuple[Resource, str, str]]:
        """The latest objects in quarantine, this many at most: kind, key, and what failed."""
        for (resource, key), errors in itertools.islice(reversed(self._errors.items()), most):
            yield resource, key, "; ".join(f"{stage}: {what}" for stage, what in errors.items())

    def __contains__(self, subject: Subject) -> bool:
        return subject in self._errors


def _where(error: Exception) -> str:
    """The last calls before the error, without the error's message, which may be of any length."""
    return "".join(traceback.format_tb(error.__traceback__, -8)).rstrip()[-4000:]


def describe(error: Exception) -> str:
    """Describe the error in one sentence for the object's owner. Readers' errors name the field; of others the type says most."""
    message = str(error)[: 4 * bounded.SHOWN]
    if isinstance(error, TookTooLongError):
        return message
    if isinstance(error, ValueError) and not isinstance(error, UnicodeError) and message:
        return message
    return (
        f"internal error: {type(error).__name__}: {message}" if message else f"internal error: {type(error).__name__}"
    )
