"""The subjects of an import and what becomes of each, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from gangline.engine import model
from gangline.jobs.base import JobKind
from gangline.kube.resources import Json
from gangline.objects import JobObject, PodObject


class NotAdoptableError(Exception):
    """Says why something cannot be adopted, as one sentence for its user."""


@dataclass(frozen=True, slots=True)
class AdoptableJob:
    """A job of the cluster, with the functions of its kind."""

    kind: JobKind
    obj: JobObject

    @property
    def called(self) -> str:
        return f"{self.kind.kind.lower()}/{self.obj.key}"

    @property
    def uids(self) -> frozenset[str]:
        """The uids of the objects that own the job's Workload."""
        return frozenset({self.obj.uid})


@dataclass(frozen=True, slots=True)
class AdoptablePods:
    """One plain pod, the pods of the group `group`, or one pod of the Deployment `parent`."""

    pods: tuple[PodObject, ...]
    group: str = ""
    parent: JobObject | None = None

    @property
    def called(self) -> str:
        first = self.pods[0]
        return f"podgroup/{first.namespace}/{self.group}" if self.group else f"pod/{first.key}"

    @property
    def uids(self) -> frozenset[str]:
        return frozenset(pod.uid for pod in self.pods)


@dataclass(frozen=True, slots=True)
class Parent:
    """An object without a suspend field, whose pods are queued in its place."""

    obj: JobObject

    @property
    def called(self) -> str:
        return f"{self.obj['kind'].lower()}/{self.obj.key}"

    @property
    def uids(self) -> frozenset[str]:
        return frozenset({self.obj.uid})


Subject: TypeAlias = AdoptableJob | AdoptablePods | Parent


@dataclass(frozen=True, slots=True)
class Adoption:
    """A subject that is adopted, its LocalQueue, and its Workload with the admission that it is to get."""

    job: Subject
    queue: str
    workload: Json
    admission: model.Admission
    #: the ClusterQueue's admission checks that hold for it: they count as passed
    checks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RollOut:
    """An object that gets its queue by a roll-out, in which its pods start anew, and the LocalQueue."""

    job: Parent
    queue: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """A subject that is left alone, and why; `fault`: because something is wrong."""

    job: Subject
    reason: str
    fault: bool = True
