"""A job kind that is only declared: what the operator does with its jobs follows from `gangline.api.jobkinds`.

Both starting and stopping are one patch each: the write that unsuspends the job injects its admission, and the write that
suspends it restores what its user wrote. So a suspended job has the user's own templates, without an intermediate step that could
be lost. Only where the job's controller refuses that while pods run (`withdrawn_at_rest`), stopping takes a second patch. The
job's own controller makes its pods; nothing here writes them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import orjson

from gangline.api.jobkinds import declaration_of
from gangline.api.jobkinds.declaration import (
    SPEC_SUSPEND,
    UNKNOWN_FIELDS,
    Behaviour,
    Declaration,
    Path,
    PodSetPlace,
    Suspension,
    at,
    drop,
    put,
    shown,
)
from gangline.api.read import merge
from gangline.api.read.configuration.external_frameworks import MANAGED_BY
from gangline.jobs import base, podspec
from gangline.jobs.base import (
    Children,
    Declared,
    JobError,
    JobOutcome,
    JobWrite,
    Patch,
    PodSetInfo,
    RuntimeHints,
    SentAlone,
)
from gangline.kube.resources import Json, Resource
from gangline.objects import JobObject

#: names of pod sets: what the schema of a Workload allows
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LONGEST_NAME: Final = 63


class DeclaredKind(Declared):
    """Implements `gangline.jobs.base.JobKind`."""

    def __init__(self, declaration: Declaration, behaviour: Behaviour) -> None:
        self.declaration = declaration
        self._behaviour = behaviour

    def is_suspended(self, job: JobObject) -> bool:
        return self.declaration.suspension.read(job)

    def pod_sets(self, job: JobObject) -> list[Json]:
        return [_pod_set(place) for place in self._places(job)]

    def resizable(self, job: JobObject) -> frozenset[str]:
        """The pod sets of an elastic job, without those that its controller makes by itself."""
        if not self.declaration.elastic:
            return frozenset()
        return frozenset(place.name for place in self._places(job) if place.default is None)

    def start(self, job: JobObject, infos: Sequence[PodSetInfo]) -> Patch | None:
        if not self.is_suspended(job):
            return None
        known = {info.name: info for info in infos}
        wanted = self._draft(job)
        places = self._places(job)
        if known.keys() != {place.name for place in places}:
            raise JobError(f"the admission is for the pod sets {', '.join(sorted(known))}: they are others now", "spec")
        if self._behaviour.injection is not None:
            if self._behaviour.injected_first and not self.not_kept(job, infos):
                self.declaration.suspension.release(wanted)
                return Patch(_change(job, wanted))
            added = {
                place.name: podspec.additions(
                    place.counted, known[place.name], shown(place.path), self._behaviour.replaced
                )
                for place in places
            }
            self._behaviour.injection.write(wanted, added)
            if self._behaviour.injected_first:
                return Patch(_change(job, wanted))
        else:
            for place in places:
                template = at(job, place.path) or place.default or place.counted
                put(wanted, place.path, podspec.merge(template, known[place.name], shown(place.path)))
        self.declaration.suspension.release(wanted)
        return Patch(_change(job, wanted))

    def not_kept(self, job: JobObject, infos: Sequence[PodSetInfo]) -> list[str]:
        known = {info.name: info for info in infos}
        missing: list[str] = []
        injection = self._behaviour.injection
        written = injection.written(job) if injection is not None else {}
        for place in self._places(job):
            if (info := known.get(place.name)) is None:
                continue
            if injection is not None:
                have, where = written.get(place.name) or {}, f"pod set {place.name}"
            else:
                have, where = podspec.parts_of(at(job, place.path) or {}), shown(place.path)
            missing += [f"{where}: {part}" for part in podspec.lacking(have, podspec.additions_of(info))]
        return missing

    def stop(self, job: JobObject, pod_sets: Sequence[Json]) -> Patch | None:
        if self.finished(job):
            return None
        if self._behaviour.withdrawn_at_rest and not self.is_suspended(job):
            wanted = self._draft(job)
            self.declaration.suspension.hold(wanted)
        elif self._behaviour.withdrawn_at_rest and self._behaviour.active(job):
            return None
        else:
            wanted = self._restored(job, pod_sets)
        change = _change(job, wanted)
        return Patch(change) if change else None

    def restored(self, job: JobObject, pod_sets: Sequence[Json]) -> Json:
        """`spec` of the suspended job, as its user wrote it; templates of which `pod_sets` says nothing stay."""
        return self._restored(job, pod_sets)["spec"]

    def _restored(self, job: JobObject, pod_sets: Sequence[Json]) -> Json:
        wanted = self._draft(job)
        originals = {pod_set["name"]: pod_set["template"] for pod_set in pod_sets}
        if self._behaviour.injection is not None:
            self._behaviour.injection.clear(wanted, originals)
        else:
            for place in self._places(job):
                if at(job, place.path) is not None and (original := originals.get(place.name)) is not None:
                    _restore(wanted, place, original)
        self.declaration.suspension.hold(wanted)
        return wanted

    def runtime_hints(self, job: JobObject) -> RuntimeHints:
        return RuntimeHints(podspec.annotated(job))

    def workload_annotations(self, job: JobObject) -> dict[str, str]:
        return self.node_loss(job) | base.checkpoints(job)

    def attempt(self, job: JobObject) -> int | None:
        if self._behaviour.injection is not None:
            written = [{"metadata": added} for added in self._behaviour.injection.written(job).values()]
        else:
            written = [at(job, place.path) for place in self._places(job)]
        return min((podspec.attempt_of(template) for template in written if template is not None), default=0)

    def is_active(self, job: JobObject, children: Children) -> bool:
        if self.declaration.remakes_children and children.jobs:
            return any(map(_runs, children.jobs))
        return self._behaviour.active(job)

    def finished(self, job: JobObject) -> JobOutcome | None:
        return self._behaviour.finished(job)

    def pods_ready(self, job: JobObject) -> bool:
        return self._behaviour.ready(job)

    def reclaimable(self, job: JobObject) -> dict[str, int]:
        return self._behaviour.reclaimable(job)

    def sync(self, job: JobObject, infos: Sequence[PodSetInfo] | None, children: Children) -> list[JobWrite]:
        return []

    def sent(self, job: JobObject, pod_sets: Sequence[Json]) -> Json:
        body: Json = {"spec": self.restored(job, pod_sets)}
        for path in (self.managed_by, self.declaration.expiry):
            if path:
                drop(body, path)
        return body["spec"]

    def size_of(self, job: JobObject) -> Json:
        return self.declaration.size(job)

    def resized(self, remote: JobObject, job: JobObject) -> Json:
        return self.declaration.resized(remote, job)

    def mirrored(self, job: JobObject, remote: JobObject | None) -> Json | None:
        status: Json = job.status
        if remote is None:
            runs = self._behaviour.active(job) and self.finished(job) is None
            wanted = self._behaviour.idle(job) if runs else status
        elif self.is_suspended(job) and self.finished(remote) is None and self._is_starting(job, remote):
            return None
        else:
            wanted = remote.status
        return wanted if merge.difference(status, wanted) else None

    def _is_starting(self, job: JobObject, remote: JobObject) -> bool:
        """Whether the job here waits for its check while the other one runs: pods that run would keep it from being started."""
        idle = not self._behaviour.active(job)
        return not self.is_suspended(remote) or (idle and self._behaviour.active(remote))

    def _draft(self, job: JobObject) -> Json:
        """The parts of a job that starting and stopping write, to be changed by `put`; an injection changes what it likes."""
        metadata: Json = {"annotations": dict(job.annotations)} if job.annotations else {}
        shared = self._behaviour.injection is None
        spec = job.spec if shared else orjson.loads(orjson.dumps(job.spec))
        draft: Json = {"metadata": metadata, "spec": spec}
        return {**draft, UNKNOWN_FIELDS: job[UNKNOWN_FIELDS]} if UNKNOWN_FIELDS in job else draft

    def _places(self, job: JobObject) -> Sequence[PodSetPlace]:
        """The pod sets, each with a name that a Workload can have. Raises JobError."""
        places = self._behaviour.places(job)
        seen: set[str] = set()
        for place in places:
            if len(place.name) > _LONGEST_NAME or not _NAME.fullmatch(place.name):
                raise JobError(f"{place.name[:80]!r} cannot be the name of a pod set", shown(place.path))
            if place.name in seen:
                raise JobError(f'there are two pod sets "{place.name}"', shown(place.path))
            seen.add(place.name)
        if not places:
            raise JobError("the job has no pods", "spec")
        return places


def _runs(child: JobObject) -> bool:
    """Whether pods of this job may run, now or soon."""
    declaration = declaration_of(str(child.get("apiVersion", "")).rpartition("/")[0], str(child.get("kind", "")))
    if declaration is None or declaration.behaviour is None:
        return True
    return not declaration.suspension.read(child) or declaration.behaviour.active(child)


def _change(job: JobObject, wanted: Json) -> Json:
    """The merge patch to a changed draft, {} for none."""
    metadata = {"annotations": job.annotations}
    change = {
        "metadata": merge.difference(metadata, {"annotations": {}, **wanted["metadata"]}),
        "spec": merge.difference(job.spec, wanted["spec"]),
    }
    return {part: found for part, found in change.items() if found}


def _pod_set(place: PodSetPlace) -> Json:
    pod_set: Json = {"name": place.name, "count": place.count, "template": place.counted}
    if request := podspec.topology_request(place.counted, place.index_label, shown(place.path)):
        if place.sub_groups is not None:
            label, count = place.sub_groups
            request |= {"subGroupIndexLabel": label, "subGroupCount": count}
        pod_set["topologyRequest"] = request
    return pod_set


def _restore(wanted: Json, place: PodSetPlace, original: Json) -> None:
    """Put the template back as the Workload has it; one that only the admission had written is removed."""
    restored = podspec.restore(at(wanted, place.path), original)
    if not restored.get("metadata") and "metadata" not in original:
        restored.pop("metadata", None)
    put(wanted, place.path, None if restored == place.default else restored)


# --- external ---------------------------------------------------------------------------------------------------------
#
# A kind that another controller queues, and that may be sent to other clusters all the same (`multiKueue.externalFrameworks`).
#
# Nothing here starts, stops or counts it: its controller makes its Workload, here and in the other cluster.


class ExternalKind(SentAlone):
    """Implements `gangline.jobs.base.RunsOnOtherCluster`."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        #: as in Kueue, whatever the kind
        self.managed_by: Path = MANAGED_BY
        self.suspension: Suspension = SPEC_SUSPEND
        self.followed: Sequence[Path] = ()

    def sent(self, job: JobObject, pod_sets: Sequence[Json]) -> Json:
        return {name: value for name, value in job.spec.items() if name != "managedBy"}

    def mirrored(self, job: JobObject, remote: JobObject | None) -> Json | None:
        """The status of the job in the other cluster. What it says of pods is not known, so the status stays when nothing runs
        for the job any more.
        """
        if remote is None:
            return None
        return remote.status if merge.difference(job.status, remote.status) else None
