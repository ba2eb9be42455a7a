"""Writes the condition Active of the AdmissionChecks that Gangline answers, in one place for all their controllers.

Each controller's package says what is wrong with its own checks and their configuration. Messages are Kueue's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from gangline.api import names
from gangline.api.read import conditions
from gangline.control.kernel.context import Context
from gangline.control.parts.part import Part
from gangline.control.writes.outgoing import Priority
from gangline.kube import resources as kube
from gangline.kube.reflector import Event, Synced
from gangline.kube.resources import Json, ObjectKey, Resource
from gangline.objects import Stored

log = logging.getLogger(__name__)


class UnusableError(Exception):
    """The check cannot be answered as it is configured; the message says why."""


@dataclass(frozen=True, slots=True)
class Activity:
    """The condition Active of an AdmissionCheck."""

    active: bool
    reason: str
    message: str


ACTIVE = Activity(True, "Active", "The admission check is active")


def named_configuration(check: Stored, wanted: Resource) -> str:
    """The name of the configuration of this kind to which the check's parameters refer. Raises UnusableError."""
    parameters: Json | None = check.spec.get("parameters")
    if parameters is None:
        raise UnusableError("missing parameters reference")
    name = parameters.get("name") or ""
    if not name:
        raise UnusableError("empty name: bad parameters reference")
    for what, value, right in (
        ("group", parameters.get("apiGroup") or "", wanted.group),
        ("kind", parameters.get("kind") or "", wanted.kind),
    ):
        if value != right:
            raise UnusableError(f'wrong {what} "{value}", expecting "{right}": bad parameters reference')
    return name


def configuration(check: Stored, wanted: Resource, named: Callable[[str], Stored | None]) -> Stored:
    """The configuration of this kind to which the check refers; `named` finds it by its name. Raises UnusableError."""
    name = named_configuration(check, wanted)
    config = named(name)
    if config is None:
        raise UnusableError(f'{wanted.kind}.{wanted.group} "{name}" not found')
    return config


#: what a controller says about one of its AdmissionChecks
Judge: TypeAlias = Callable[[Stored], Activity]


class ActiveChecks(Part):
    """Judges AdmissionChecks. `judges`: by `spec.controllerName`. All checks are judged again when one of them, or a
    configuration, has changed.
    """

    name = "checks"
    kinds = (kube.PROVISIONING_REQUESTS,)

    def __init__(self, context: Context, judges: Mapping[str, Judge]) -> None:
        self._mirror = context.mirror
        self._writes = context.writes
        self._quarantine = context.quarantine
        self._judges = judges
        self._changed = context.mirror.changes.checks.subscribe(worth=lambda key: True)
        self._look_at_all = False

    def observe(self, resource: Resource, event: Event) -> None:
        """Judge all checks again after a full list: the kind may be served only now."""
        if isinstance(event, Synced):
            self._look_at_all = True

    def lead(self) -> None:
        self._look_at_all = True

    def act(self, now: int) -> None:
        if not (self._changed.take() or self._look_at_all):
            return
        self._look_at_all = False
        for key, check in self._mirror.objects[kube.ADMISSION_CHECKS].items():
            judge = self._judges.get(check.spec.get("controllerName", ""))
            if judge is not None:
                work = partial(self._judge, check, judge, now)
                self._quarantine.attempt("reporting its activity", kube.ADMISSION_CHECKS, key, work)

    def _judge(self, check: Stored, judge: Judge, now: int) -> None:
        self._report(check, judge(check), now)

    def _report(self, check: Stored, found: Activity, now: int) -> None:
        """Write the condition where it is not as it should be."""
        rows: conditions.Conditions = [dict(row) for row in check.conditions]
        generation = check.metadata.get("generation")
        if conditions.put(
            rows, names.ACTIVE, found.active, found.reason, found.message, now=now, generation=generation
        ):
            body = {"metadata": {"resourceVersion": check.resource_version}, "status": {"conditions": rows}}
            key = ObjectKey.of(kube.ADMISSION_CHECKS, check)
            self._writes.send(key, "status", body, priority=Priority.LIFECYCLE, failed=partial(self._refused, key))

    def _refused(self, key: ObjectKey, error: Exception) -> None:
        """Log the refusal. After a conflict the watch shows the check as it is now, and it is judged again."""
        log.info("condition Active of %s: %s", key, error)
