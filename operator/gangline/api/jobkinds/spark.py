"""sparkoperator.k8s.io/v1beta2 SparkApplication: a driver and executors, written as amounts, not as pod templates.

What counts is what Spark asks for its pods (3.5, on Kubernetes). A field of the driver or of the executors has precedence over
`spec.sparkConf`, and that over Spark's own defaults, in the order in which Spark's operator hands them on. Beside that count
sidecars, init containers and the containers of the roles' pod templates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gangline import bounded
from gangline.api import names, quantity
from gangline.api.jobkinds.declaration import (
    MOST_PODS,
    Behaviour,
    Declaration,
    JobError,
    Json,
    Key,
    Path,
    PodSetPlace,
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
_CONF: Final[Path] = ("spec", "sparkConf")
#: Spark's defaults: executors, cores of a pod, and MiB of memory and of what is added to it at least
_EXECUTORS: Final = 2
_CORES: Final = 1
_MEMORY: Final = 1024
_OVERHEAD: Final = 384
#: MiB of memory that fit into a quantity of bytes
_MOST_MIB: Final = 2**43 - 1
_MOST_FACTOR: Final = 1000
#: prefixes of the keys of a node selector, of all pods and of those of a role
_SELECTOR: Final = "spark.kubernetes.node.selector."
_SELECTOR_OF: Final = {role: f"spark.kubernetes.{role}.node.selector." for role in (DRIVER, EXECUTOR)}
_DYNAMIC: Final = "spark.dynamicAllocation.enabled"
_APP_NAME: Final = "sparkoperator.k8s.io/app-name"
#: on an application whose `spec.nodeSelector` was moved into both roles, since Spark's operator refuses the two together
MOVED: Final = f"{names.OWN_GROUP}/node-selector-moved"


# --- pod sets ---------------------------------------------------------------------------------------------------------


def _places(job: Json) -> list[PodSetPlace]:
    return [
        PodSetPlace(
            name=DRIVER, count=1, path=("spec", DRIVER), counted=_template(job, DRIVER, _resources(job, DRIVER))
        ),
        PodSetPlace(
            name=EXECUTOR,
            count=_executors(job),
            path=("spec", EXECUTOR),
            counted=_template(job, EXECUTOR, _resources(job, EXECUTOR)),
        ),
    ]


def _executors(job: Json) -> int:
    """The number of executors without dynamic allocation, which a job in a queue cannot have. Raises JobError."""
    found = _written(job, EXECUTOR, "instances", "spark.executor.instances")
    if found is None:
        return _EXECUTORS
    value, where = found
    number = bounded.whole(value) if isinstance(value, str) else value
    if type(number) is not int or not 0 <= number <= MOST_PODS:
        raise JobError(f"must be 0 to {MOST_PODS}, is {bounded.shown(value)}", shown(where))
    return number


def _written(job: Json, role: str, field: str, *keys: str) -> tuple[Any, Path] | None:
    """What a role's field says, or else the first of these keys of Spark's configuration; and where it is written."""
    typed: Path = ("spec", role, field)
    return (at(job, typed), typed) if at(job, typed) is not None else _configured(job, *keys)


def _configured(job: Json, *keys: str) -> tuple[Any, Path] | None:
    """What the first of these keys of Spark's configuration says, and where it is written."""
    places: list[Path] = [(*_CONF, Key(key)) for key in keys]
    return next(((found, where) for where in places if (found := at(job, where)) is not None), None)


def _template(job: Json, role: str, resources: Json, *, of_template: bool = True) -> Json:
    """The pod template that counts for a role, whose own container has these resources.

    `of_template`: with the other containers of the template that is written for it.
    """
    path: Path = ("spec", role)
    body = at(job, path)
    if not isinstance(body, dict):
        raise JobError(f"the {role} is needed", shown(path))
    own = mapping_at(job, (*path, "template"))
    beside, first = (_beside(job, role), rows_at(own, ("spec", "initContainers"))) if of_template else ([], [])
    container: Json = {"name": _CONTAINERS[role], "resources": resources}
    spec: Json = {"containers": [container, *rows_at(job, (*path, "sidecars")), *beside]}
    volumes, mounts = _volumes(job, path)
    if mounts:
        container["volumeMounts"], spec["volumes"] = mounts, volumes
    spec["nodeSelector"] = {
        **_selected(job, _SELECTOR),
        **mapping_at(job, ("spec", "nodeSelector")),
        **_selected(job, _SELECTOR_OF[role]),
        **mapping_at(job, (*path, "nodeSelector")),
    }
    spec["initContainers"] = [*first, *rows_at(job, (*path, "initContainers"))]
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
        "spec": {part: found for part, found in spec.items() if found},
    }


def _own_container(job: Json, role: str) -> Json:
    """The container of a role's pod template that becomes Spark's: the one of its name, or else the first."""
    rows = rows_at(job, ("spec", role, "template", "spec", "containers"))
    named = at(job, (*_CONF, f"spark.kubernetes.{role}.podTemplateContainerName")) or _CONTAINERS[role]
    return next((row for row in rows if row.get("name") == named), rows[0] if rows else {})


def _beside(job: Json, role: str) -> list[Json]:
    """The other containers of a role's pod template."""
    own = _own_container(job, role)
    return [row for row in rows_at(job, ("spec", role, "template", "spec", "containers")) if row is not own]


def _selected(job: Json, prefix: str) -> dict[str, str]:
    """The node selector in Spark's configuration."""
    conf = mapping_at(job, _CONF)
    return {key.removeprefix(prefix): str(value) for key, value in conf.items() if key.startswith(prefix)}


# --- amounts ----------------------------------------------------------------------------------------------------------


def _resources(job: Json, role: str) -> Json:
    """Requests and limits of the container in which Spark runs the role."""
    requests: Json = {"cpu": _cpu(job, role), "memory": f"{_memory(job, role)}Mi"}
    limits: Json = {}
    if (found := _written(job, role, "coreLimit", f"spark.kubernetes.{role}.limit.cores")) is not None:
        limits["cpu"] = _amount(*found)
    if (found := _written(job, role, "memoryLimit")) is not None:
        limits["memory"] = _amount(*found, java=True)
    limits |= _devices(job, role)
    given = mapping_at(_own_container(job, role), ("resources",))
    for part, amounts in (("requests", requests), ("limits", limits)):
        others = {key: value for key, value in mapping_at(given, (part,)).items() if key not in ("cpu", "memory")}
        amounts |= {key: value for key, value in others.items() if key not in amounts}
    return {part: amounts for part, amounts in (("requests", requests), ("limits", limits)) if amounts}


def _cpu(job: Json, role: str) -> str:
    if (found := _written(job, role, "coreRequest", f"spark.kubernetes.{role}.request.cores")) is not None:
        return _amount(*found)
    cores, where = _written(job, role, "cores", f"spark.{role}.cores") or (_CORES, ())
    number = bounded.whole(cores) if isinstance(cores, str) else cores
    if type(number) is not int or number < 1:
        raise JobError(f"{bounded.shown(cores)} is not a whole number of at least 1", shown(where))
    return str(number)


def _memory(job: Json, role: str) -> int:
    """The memory that a pod of the role requests, in MiB: that of the JVM with what Spark adds to it."""
    memory = _mib(_written(job, role, "memory", f"spark.{role}.memory"), _MEMORY)
    overhead = _written(job, role, "memoryOverhead", f"spark.{role}.memoryOverhead")
    total = memory + (_mib(overhead, 0) if overhead is not None else max(int(_factor(job, role) * memory), _OVERHEAD))
    if role == EXECUTOR:
        if at(job, ("spec", "type")) == "Python":
            total += _mib(_configured(job, "spark.executor.pyspark.memory"), 0)
        if str(at(job, (*_CONF, "spark.memory.offHeap.enabled"))).lower() == "true":
            total += _mib(_configured(job, "spark.memory.offHeap.size"), 0, unit="")
    if total > _MOST_MIB:
        raise JobError(f"{total}Mi of memory are more than a pod can request", shown(("spec", role, "memory")))
    return total


def _factor(job: Json, role: str) -> Any:
    """The share of the memory that is added, if no amount is written."""
    keys = (f"spark.{role}.memoryOverheadFactor", "spark.kubernetes.memoryOverheadFactor")
    path: Path = ("spec", "memoryOverheadFactor")
    written = _configured(job, *keys) or ((at(job, path), path) if at(job, path) else None)
    if written is None:
        return quantity.parse_number("0.4" if at(job, ("spec", "type")) in ("Python", "R") else "0.1")
    try:
        factor = quantity.parse_number(_kubernetes(str(written[0])))
    except (ValueError, quantity.QuantityError) as error:
        raise JobError(str(error), shown(written[1])) from None
    if not 0 <= factor <= _MOST_FACTOR:
        raise JobError(f"{bounded.shown(written[0])} is not a number from 0 to {_MOST_FACTOR}", shown(written[1]))
    return factor


def _devices(job: Json, role: str) -> Json:
    """GPUs and such: of the role's field, and of Spark's configuration."""
    found: Json = {}
    gpu = mapping_at(job, ("spec", role, "gpu"))
    number = number_at(job, ("spec", role, "gpu", "quantity"), 0)
    if gpu.get("name") and number:
        found[str(gpu["name"])[:_LONGEST_NAME]] = str(number)
    prefix = f"spark.{role}.resource."
    for key, value in mapping_at(job, _CONF).items():
        name, _, what = key.removeprefix(prefix).partition(".")
        if not key.startswith(prefix) or what != "amount":
            continue
        vendor, amount = at(job, (*_CONF, f"{prefix}{name}.vendor")), bounded.whole(str(value))
        if not vendor or not isinstance(vendor, str):
            raise JobError("a vendor is needed, such as nvidia.com", shown((*_CONF, Key(f"{prefix}{name}.vendor"))))
        if amount is None:
            raise JobError(f"{bounded.shown(value)} is not a whole number", shown((*_CONF, Key(key))))
        found[f"{vendor}/{name}"[:_LONGEST_NAME]] = str(amount)
    return found


def _mib(written: tuple[Any, Path] | None, default: int, unit: str = "Mi") -> int:
    if written is None:
        return default
    value, where = written
    try:
        text = _kubernetes(str(value))
        return int(quantity.parse_number(f"{text}{unit}" if text.isdecimal() else text)) >> 20
    except (ValueError, OverflowError, quantity.QuantityError) as error:
        raise JobError(str(error), shown(where)) from None


def _amount(written: object, where: Path, *, java: bool = False) -> str:
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


def _counted_before(job: Json) -> list[Json]:
    """The pod sets of a Workload that Kueue up to 0.19, or an earlier Gangline, has made: only what the roles' fields say."""
    return [
        {
            "name": role,
            "count": 1 if role == DRIVER else number_at(job, ("spec", EXECUTOR, "instances"), 0),
            "template": _as_before(job, role),
        }
        for role in (DRIVER, EXECUTOR)
    ]


def _as_before(job: Json, role: str) -> Json:
    found: Json = {"requests": {}, "limits": {}}
    for part, resource, field in (
        ("requests", "cpu", "coreRequest"),
        ("limits", "cpu", "coreLimit"),
        ("requests", "memory", "memory"),
        ("limits", "memory", "memoryLimit"),
    ):
        if (written := _written(job, role, field)) is not None:
            found[part][resource] = _amount(*written, java=resource == "memory")
    gpu = mapping_at(job, ("spec", role, "gpu"))
    if gpu.get("name") and (number := number_at(job, ("spec", role, "gpu", "quantity"), 0)):
        found["limits"][str(gpu["name"])[:_LONGEST_NAME]] = str(number)
    return _template(job, role, {part: amounts for part, amounts in found.items() if amounts}, of_template=False)


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
                if part == "nodeSelector":
                    configured = {**_selected(job, _SELECTOR), **_selected(job, _SELECTOR_OF[role])}
                    kept = {key: value for key, value in kept.items() if configured.get(key) != value}
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


def _ready(job: Json) -> bool:
    """Whether the driver runs, and each executor has started: the state alone says only that of the driver."""
    if at(job, _STATE) != "RUNNING":
        return False
    started = [state for state in mapping_at(job, ("status", "executorState")).values() if state in _EXECUTOR_STARTED]
    return len(started) >= _executors(job)


def _active(job: Json) -> bool:
    return at(job, _STATE) not in _AT_REST


def _check(job: Json, old: Json | None) -> list[Problem]:
    found: list[Problem] = []
    mode = at(job, ("spec", "mode"))
    if mode != "cluster":
        message = "only Cluster mode is supported for a kueue managed job"
        found.append(Problem("spec.mode", message, value=mode if isinstance(mode, str) else ""))
    scales = {
        "spec.dynamicAllocation.enabled": at(job, ("spec", "dynamicAllocation", "enabled")) is True,
        shown((*_CONF, Key(_DYNAMIC))): str(at(job, (*_CONF, _DYNAMIC))).strip().lower() == "true",
    }
    message = (
        "a kueue managed job can use dynamicAllocation only when the ElasticJobsViaWorkloadSlices feature gate is on and "
        "the job is an elastic job"
    )
    found += [Problem(path, message, value=True) for path, enabled in scales.items() if enabled]
    for role in (DRIVER, EXECUTOR):
        key = f"spark.kubernetes.{role}.podTemplateFile"
        if (file := at(job, (*_CONF, key))) is not None:
            message = f"what the pods of a file request cannot be counted: write spec.{role}.template instead"
            found.append(Problem(shown((*_CONF, Key(key))), message, value=bounded.shown(file)))
    return found


def _creates(job: Json, child: Json) -> bool:
    """Whether the child is the driver of the job, which is all that the job creates: executors are the driver's."""
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
    counted_before=_counted_before,
    prebuilt=False,
    found_by=(_APP_NAME, "spark-app-selector"),
    pod_set_of=labelled("spark-role"),
    words=Words(
        pod_sets="`driver`: 1; `executor`: `spec.executor.instances`, else Spark's configuration, else 2",
        ready="RUNNING, and all executors RUNNING or COMPLETED",
        finished="`status.applicationState.state` COMPLETED, FAILED, SUBMISSION_FAILED",
    ),
)
KINDS: Final = (SPARK_APPLICATION,)
