"""sparkoperator.k8s.io/v1beta2 SparkApplication: a driver and executors, written as amounts, not as pod templates.

What counts is what Kueue counts: `coreRequest`, `memory` without Spark's overhead, `gpu`, sidecars and init containers. Cores
and overhead that are written elsewhere do not count, of which the author is warned.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gangline import bounded
from gangline.api import names, quantity
from gangline.api.jobkinds.declaration import (
    Behaviour,
    Declaration,
    JobError,
    Json,
    Path,
    Place,
    Problem,
    Words,
    at,
    ended_by_values,
    labelled,
    mapping_at,
    number_at,
    put,
    rows_at,
    shown,
)
from gangline.kube.resources import Resource

DRIVER: Final = "driver"
EXECUTOR: Final = "executor"
#: role -> the name of its container in Spark's pods
_CONTAINERS: Final = {DRIVER: "spark-kubernetes-driver", EXECUTOR: "spark-kubernetes-executor"}
#: states in which no pod runs: before the submission, and once the application is suspended
_FAILED: Final = ("FAILED", "SUBMISSION_FAILED")
_AT_REST: Final = (None, "", "SUSPENDED", "COMPLETED", *_FAILED)
_EXECUTOR_STARTED: Final = ("RUNNING", "COMPLETED")
#: Spark's volumes for scratch space
_SCRATCH: Final = "spark-local-dir-"
_LONGEST_AMOUNT: Final = 64
#: of a resource
_LONGEST_NAME: Final = 317
_JAVA_MEMORY: Final = re.compile(r"([0-9.]{1,32})([kmgtp])b?", re.IGNORECASE)
_APP_NAME: Final = "sparkoperator.k8s.io/app-name"
#: on an application whose `spec.nodeSelector` was moved into both roles, since Spark's operator refuses the two together
MOVED: Final = f"{names.OWN_GROUP}/node-selector-moved"


# --- pod sets ---------------------------------------------------------------------------------------------------------


def _places(job: Json) -> list[Place]:
    return [
        Place(name=DRIVER, count=1, path=("spec", DRIVER), counted=_template(job, DRIVER)),
        Place(
            name=EXECUTOR,
            count=number_at(job, ("spec", EXECUTOR, "instances"), 0),
            path=("spec", EXECUTOR),
            counted=_template(job, EXECUTOR),
        ),
    ]


def _template(job: Json, role: str) -> Json:
    """The pod template that counts for a role."""
    path: Path = ("spec", role)
    body = at(job, path)
    if not isinstance(body, dict):
        raise JobError(f"the {role} is needed", shown(path))
    own = mapping_at(job, (*path, "template"))
    container: Json = {"name": _CONTAINERS[role], "resources": _resources(job, path)}
    spec: Json = {"containers": [container, *rows_at(job, (*path, "sidecars"))]}
    volumes, mounts = _volumes(job, path)
    if mounts:
        container["volumeMounts"], spec["volumes"] = mounts, volumes
    spec["nodeSelector"] = {
        **mapping_at(job, ("spec", "nodeSelector")),
        **mapping_at(job, (*path, "nodeSelector")),
    }
    spec["initContainers"] = rows_at(job, (*path, "initContainers"))
    spec["tolerations"] = rows_at(job, (*path, "tolerations"))
    spec["affinity"] = mapping_at(job, (*path, "affinity"))
    spec["schedulingGates"] = rows_at(own, ("spec", "schedulingGates"))
    if name := at(job, (*path, "priorityClassName")):
        spec["priorityClassName"] = name
    metadata = {
        part: {**mapping_at(own, ("metadata", part)), **mapping_at(job, (*path, part))}
        for part in ("labels", "annotations")
    }
    return {
        "metadata": {part: found for part, found in metadata.items() if found},
        "spec": copy.deepcopy({part: found for part, found in spec.items() if found}),
    }


def _resources(job: Json, path: Path) -> Json:
    found: Json = {"requests": {}, "limits": {}}
    for part, resource, field in (
        ("requests", "cpu", "coreRequest"),
        ("limits", "cpu", "coreLimit"),
        ("requests", "memory", "memory"),
        ("limits", "memory", "memoryLimit"),
    ):
        where = (*path, field)
        if (written := at(job, where)) is not None:
            found[part][resource] = _amount(written, where, java=resource == "memory")
    gpu = mapping_at(job, (*path, "gpu"))
    number = number_at(job, (*path, "gpu", "quantity"), 0)
    if gpu.get("name") and number:
        found["limits"][str(gpu["name"])[:_LONGEST_NAME]] = str(number)
    return {part: amounts for part, amounts in found.items() if amounts}


def _amount(written: object, where: Path, *, java: bool) -> str:
    try:
        text = _kubernetes(str(written)) if java else str(written)
        quantity.parse_number(text)
    except (ValueError, quantity.QuantityError) as error:
        raise JobError(str(error), shown(where)) from None
    return text


def _too_long(text: str) -> ValueError:
    return ValueError(f"{bounded.shown(text)} is longer than {_LONGEST_AMOUNT} characters")


@bounded.parser(_LONGEST_AMOUNT, refuse=_too_long, worst=("9", "9g", " "))
def _kubernetes(text: str) -> str:
    """An amount of memory as the JVM writes it, in Kubernetes' units: 512m is 512Mi. Others stay as they are."""
    found = _JAVA_MEMORY.fullmatch(text.strip())
    return f"{found[1]}{found[2].upper()}i" if found else text.strip()


def _volumes(job: Json, path: Path) -> tuple[list[Json], list[Json]]:
    """The volumes that a role mounts, and its mounts of them."""
    known = {str(row.get("name")): row for row in rows_at(job, ("spec", "volumes"))}
    mounts = [
        row
        for row in rows_at(job, (*path, "volumeMounts"))
        if str(row.get("name")) in known and not str(row.get("name")).startswith(_SCRATCH)
    ]
    used = dict.fromkeys(str(row.get("name")) for row in mounts)
    return [known[name] for name in used], mounts


# --- admission --------------------------------------------------------------------------------------------------------


class _IntoRoles:
    """Additions go into the fields of both roles; gates, which have none, into the role's template."""

    def write(self, job: Json, additions: Mapping[str, Json]) -> None:
        everywhere = mapping_at(job, ("spec", "nodeSelector"))
        if everywhere:
            put(job, ("metadata", "annotations", MOVED), "true")
            job["spec"]["nodeSelector"] = None
        for role, added in additions.items():
            body: Json = at(job, ("spec", role))
            for part in ("labels", "annotations"):
                _set(body, part, {**mapping_at(body, (part,)), **added.get(part, {})})
            _set(
                body,
                "nodeSelector",
                {**everywhere, **mapping_at(body, ("nodeSelector",)), **added.get("nodeSelector", {})},
            )
            _set(body, "tolerations", _united(rows_at(body, ("tolerations",)), added.get("tolerations", ())))
            if gates := added.get("schedulingGates"):
                if body.get("template") is None:
                    body["template"] = _empty(role)
                have = rows_at(body, ("template", "spec", "schedulingGates"))
                put(body, ("template", "spec", "schedulingGates"), _united(have, gates))

    def clear(self, job: Json, originals: Mapping[str, Json]) -> None:
        moved = at(job, ("metadata", "annotations", MOVED)) == "true"
        for role, original in originals.items():
            body = mapping_at(job, ("spec", role))
            for part, of in (("labels", "metadata"), ("annotations", "metadata"), ("nodeSelector", "spec")):
                kept = _common(mapping_at(body, (part,)), mapping_at(original, (of, part)))
                if moved and part == "nodeSelector":
                    job["spec"]["nodeSelector"], kept = kept or None, {}
                if body.get(part) is not None:
                    body[part] = kept or None
            if body.get("tolerations") is not None:
                wanted = rows_at(original, ("spec", "tolerations"))
                body["tolerations"] = [row for row in rows_at(body, ("tolerations",)) if row in wanted] or None
            if at(body, ("template", "spec", "schedulingGates")) is not None:
                wanted = rows_at(original, ("spec", "schedulingGates"))
                have = rows_at(body, ("template", "spec", "schedulingGates"))
                put(body, ("template", "spec", "schedulingGates"), [row for row in have if row in wanted] or None)
                if _bare(body["template"]) == _empty(role):
                    body["template"] = None
        if moved:
            job["metadata"]["annotations"][MOVED] = None

    def written(self, job: Json) -> Mapping[str, Json]:
        roles = {role: mapping_at(job, ("spec", role)) for role in (DRIVER, EXECUTOR)}
        gates = {role: rows_at(body, ("template", "spec", "schedulingGates")) for role, body in roles.items()}
        return {role: {**body, "schedulingGates": gates[role]} for role, body in roles.items()}


def _set(body: Json, part: str, value: Any) -> None:
    if value:
        body[part] = value


def _united(have: Sequence[Json], added: Sequence[Json]) -> list[Json]:
    return [*have, *(row for row in added if row not in have)]


def _common(have: Json, original: Json) -> Json:
    return {key: original[key] for key in have if key in original}


def _empty(role: str) -> Json:
    return {"spec": {"containers": [{"name": _CONTAINERS[role]}]}}


def _bare(template: Json) -> Json:
    return {**template, "spec": {part: value for part, value in template["spec"].items() if value is not None}}


# --- status and rules -------------------------------------------------------------------------------------------------


_STATE: Final[Path] = ("status", "applicationState", "state")
_FINISHED: Final = ended_by_values(
    _STATE, ("COMPLETED",), _FAILED, message=("status", "applicationState", "errorMessage")
)
#: factors by which Spark requests no more than the memory that is counted
_ZERO: Final = ("0", "0.", "0.0", "0.00", ".0")


def _ready(job: Json) -> bool:
    """The driver runs, and each executor has started: the state alone says only that of the driver."""
    if at(job, _STATE) != "RUNNING":
        return False
    started = [state for state in mapping_at(job, ("status", "executorState")).values() if state in _EXECUTOR_STARTED]
    return len(started) >= number_at(job, ("spec", EXECUTOR, "instances"), 0)


def _active(job: Json) -> bool:
    return at(job, _STATE) not in _AT_REST


def _check(job: Json, old: Json | None) -> list[Problem]:
    found: list[Problem] = []
    mode = at(job, ("spec", "mode"))
    if mode != "cluster":
        message = "only Cluster mode is supported for a kueue managed job"
        found.append(Problem("spec.mode", message, value=mode if isinstance(mode, str) else ""))
    if at(job, ("spec", "dynamicAllocation", "enabled")) is True:
        message = (
            "a kueue managed job can use dynamicAllocation only when the ElasticJobsViaWorkloadSlices feature gate is on and "
            "the job is an elastic job"
        )
        found.append(Problem("spec.dynamicAllocation.enabled", message, value=True))
    return found


def _warnings(job: Json) -> list[str]:
    """Fields by which Spark's pods request more than is counted."""
    found: list[str] = []
    for role in (DRIVER, EXECUTOR):
        body = mapping_at(job, ("spec", role))
        if body.get("coreRequest") is None and body.get("cores") is not None:
            found.append(f"spec.{role}.cores does not count towards quota: set spec.{role}.coreRequest")
        if body.get("memoryOverhead") is not None:
            found.append(f"spec.{role}.memoryOverhead does not count towards quota: only spec.{role}.memory does")
    factor = at(job, ("spec", "memoryOverheadFactor"))
    if factor is not None and not (isinstance(factor, str) and factor in _ZERO):
        found.append(
            "spec.memoryOverheadFactor does not count towards quota: only the memory of driver and executor does"
        )
    return found


def _creates(job: Json, child: Json) -> bool:
    """Its driver; executors are the driver's."""
    name = job["metadata"]["name"]
    driver = at(job, ("spec", DRIVER, "podName")) or f"{name}-driver"
    is_pod = child.get("kind") == "Pod" and child["metadata"].get("name") == driver
    return is_pod and at(child, ("metadata", "labels", _APP_NAME)) == name


SPARK_APPLICATION: Final = Declaration(
    resource=Resource("sparkoperator.k8s.io", "v1beta2", "sparkapplications", kind="SparkApplication"),
    framework="sparkoperator.k8s.io/sparkapplication",
    behaviour=Behaviour(places=_places, finished=_FINISHED, ready=_ready, active=_active, injection=_IntoRoles()),
    check=_check,
    creates=_creates,
    derived=True,
    prebuilt=False,
    found_by=(_APP_NAME, "spark-app-selector"),
    pod_set_of=labelled("spark-role"),
    warn=_warnings,
    words=Words(
        pod_sets="`driver`: 1; `executor`: `spec.executor.instances`",
        ready="RUNNING, and all executors RUNNING or COMPLETED",
        finished="`status.applicationState.state` COMPLETED, FAILED, SUBMISSION_FAILED",
    ),
)
KINDS: Final = (SPARK_APPLICATION,)
