"""GPUJob: a gang of roles. The user's spec is not changed; the short form is read, not expanded.

The schema checks enumerations and plain patterns; the rules here check the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gangline import bounded
from gangline.api import quantity
from gangline.api.admission import amounts, syntax
from gangline.api.admission.findings import (
    FieldError,
    Json,
    KindRules,
    duplicate,
    forbidden,
    immutable,
    invalid,
    mapping,
    objects,
    required,
    spec,
    text,
    too_many,
    whole,
)
from gangline.api.admission.of_jobs import jobs, pods, topology_request
from gangline.api.jobkinds.declaration import SPEC_SUSPEND
from gangline.api.names import (
    HAMI_CORES,
    HAMI_GPU,
    HAMI_MEMORY,
    HAMI_PERCENT,
    KAI_DEVICES,
    KAI_FRACTION,
    KAI_MEMORY,
)
from gangline.api.sharing import numbers, share_annotations

MAX_ROLES: Final = 18  # the most pod sets of a Workload
MAX_REPLICAS: Final = 100_000
#: what gpusPerWorker counts, unless gpuResource says otherwise
_GPU: Final = "nvidia.com/gpu"

#: who share GPUs out
SHARERS: Final = ("HAMi", "KAI", "DRA", "VisibleDevices", "Annotations")
#: those that share out any kind of GPU
_ANY_GPU: Final = ("DRA", "VisibleDevices", "Annotations")

#: the short form: one role called "worker"
SHORT_FORM: Final = ("workers", "minWorkers", "gpusPerWorker", "share", "template")
#: fields that cannot change while the gang runs
_SHAPE: Final = ("roles", *SHORT_FORM, "framework", "gpuResource", "topology")


@dataclass(frozen=True, slots=True)
class _Role:
    """One role with the paths of its fields."""

    path: str
    replicas_path: str
    minimum_path: str
    gpus_path: str
    template_path: str
    replicas: object
    minimum: object
    gpus: object
    share: object
    template: Json

    @property
    def count(self) -> int:
        return whole(self.replicas, 1)


def _roles(job: Json) -> list[_Role]:
    body = spec(job)
    if body.get("roles") is None:
        return [
            _Role(
                path="spec",
                replicas_path="spec.workers",
                minimum_path="spec.minWorkers",
                gpus_path="spec.gpusPerWorker",
                template_path="spec.template",
                replicas=body.get("workers"),
                minimum=body.get("minWorkers"),
                gpus=body.get("gpusPerWorker"),
                share=body.get("share"),
                template=mapping(body.get("template")),
            )
        ]
    return [_long_role(f"spec.roles[{i}]", role) for i, role in enumerate(objects(body.get("roles")))]


def _long_role(path: str, role: Json) -> _Role:
    return _Role(
        path=path,
        replicas_path=f"{path}.replicas",
        minimum_path=f"{path}.minReplicas",
        gpus_path=f"{path}.gpus",
        template_path=f"{path}.template",
        replicas=role.get("replicas"),
        minimum=role.get("minReplicas"),
        gpus=role.get("gpus"),
        share=role.get("share"),
        template=mapping(role.get("template")),
    )


def _check(job: Json, old: Json | None) -> list[FieldError]:
    if old is not None and spec(job) == spec(old):
        return []
    roles = _roles(job)
    if len(roles) > MAX_ROLES:  # the rest costs time in proportion
        return [too_many("spec.roles", len(roles), MAX_ROLES)]
    return [
        *_form(job),
        *_names(job),
        *[error for role in roles for error in _role(role)],
        *[error for role in roles for error in _gpus(role, text(spec(job).get("gpuResource")) or _GPU)],
        *[error for role in roles if role.share is not None for error in _share(role, spec(job).get("gpuResource"))],
        *_partial(roles),
        *topology_request.check_groups([(role.template_path, role.template, role.count) for role in roles]),
        *_resource(spec(job)),
        *_runtime(mapping(spec(job).get("runtime"))),
        *_placement(mapping(spec(job).get("topology"))),
        *_running(job, old),
    ]


def _form(job: Json) -> list[FieldError]:
    body = spec(job)
    short = [field for field in SHORT_FORM if body.get(field) is not None]
    if body.get("roles") is None:
        return [] if body.get("template") else [required("spec.roles", "give roles, or workers and a template")]
    errors = [forbidden(f"spec.{field}", "may not be set when roles are given") for field in short]
    roles = objects(body.get("roles"))
    if not roles:
        errors.append(required("spec.roles", "a gang needs at least one role"))
    return errors


def _names(job: Json) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for i, role in enumerate(objects(spec(job).get("roles"))):
        path, name = f"spec.roles[{i}].name", role.get("name")
        errors += syntax.dns_label(path, name) if name else [required(path)]
        if text(name) in seen:
            errors.append(duplicate(path, name))
        seen.add(text(name))
    return errors


def _role(role: _Role) -> list[FieldError]:
    errors = _count(role.replicas_path, role.replicas, lowest=1, highest=MAX_REPLICAS)
    errors += _count(role.minimum_path, role.minimum, lowest=1, highest=MAX_REPLICAS)
    errors += _count(role.gpus_path, role.gpus, lowest=0, highest=MAX_REPLICAS)
    if role.minimum is not None and whole(role.minimum, 0) > role.count:
        errors.append(invalid(role.minimum_path, role.minimum, f"must be less than or equal to {role.replicas_path}"))
    if not role.template:
        return [*errors, required(role.template_path)] if role.path != "spec" else errors
    errors += pods.check_template(role.template_path, role.template)
    return errors + topology_request.check_template(role.template_path, role.template, role.count)


def _gpus(role: _Role, resource: str) -> list[FieldError]:
    """The number of GPUs of a pod is given twice, and differently: neither is obeyed in silence."""
    asked = _asked_for(role.template, resource)
    if asked is None or not isinstance(role.gpus, int) or role.gpus == asked or role.gpus < 0:
        return []
    detail = f"must be {asked}, as {role.template_path} asks for {asked} of {resource} per pod, or be left out"
    return [invalid(role.gpus_path, role.gpus, detail)]


def _asked_for(template: Json, resource: str) -> int | None:
    """What the template itself asks for per pod; None if nothing, or something that is no whole number."""
    found: list[int] = []
    for container in objects(spec(template).get("containers")):
        resources = mapping(container.get("resources"))
        value = mapping(resources.get("limits")).get(resource, mapping(resources.get("requests")).get(resource))
        number = bounded.whole(value if isinstance(value, str) else repr(value)) if value is not None else None
        if value is not None and number is None:
            return None
        if number is not None:
            found.append(number)
    return sum(found) if found else None


def _share(role: _Role, resource: object) -> list[FieldError]:
    """A part of each GPU can be asked for where the job says how many, and where its template leaves it to that."""
    share, path = mapping(role.share), f"{role.path}.share"
    errors = _count(f"{path}.percent", share.get("percent"), lowest=1, highest=99)
    for field in ("by", "percent"):
        if share.get(field) is None:
            errors.append(required(f"{path}.{field}"))
    if share.get("by") not in (None, *SHARERS):
        errors.append(invalid(f"{path}.by", share["by"], f"must be one of {', '.join(SHARERS)}"))
    if (memory := share.get("memory")) is not None:
        if numbers.memory(str(memory)) is None:
            errors.append(invalid(f"{path}.memory", memory, "must be memory of a card, such as 8Gi"))
        if share.get("by") == "KAI":
            errors.append(forbidden(f"{path}.memory", "KAI divides memory as it divides the compute power"))
    errors += _claim(role, share, path)
    if resource not in (None, HAMI_GPU) and share.get("by") not in _ANY_GPU:
        errors.append(forbidden(path, f"only {HAMI_GPU} can be shared, and gpuResource is another resource"))
    if whole(role.gpus, 0) < 1:
        errors.append(required(role.gpus_path, "there is no GPU to share"))
    if _asks_for_gpus(role.template):
        errors.append(forbidden(path, f"{role.template_path} asks for GPUs itself"))
    return errors


def _claim(role: _Role, share: Json, path: str) -> list[FieldError]:
    """What only a ResourceClaim asks for, and what one has to ask for."""
    if share.get("by") != "DRA":
        given = (field for field in ("deviceClass", "compute") if share.get(field) is not None)
        return [forbidden(f"{path}.{field}", "belongs to a claim, which only DRA makes") for field in given]
    errors = [
        required(f"{path}.{field}", why)
        for field, why in (
            ("deviceClass", "the DeviceClass of the cards"),
            ("memory", "a claim that does not say takes all memory of the card"),
        )
        if share.get(field) is None
    ]
    if (name := share.get("deviceClass")) is not None:
        errors += syntax.dns_subdomain(f"{path}.deviceClass", name)
    if (counted := share.get("compute")) is not None and share_annotations.compute(text(counted)) is None:
        said = "must be milli or cores, with the domain of its driver if it has one"
        errors.append(invalid(f"{path}.compute", counted, said))
    if whole(role.gpus, 0) > share_annotations.MOST_CARDS:
        errors.append(invalid(role.gpus_path, role.gpus, f"a claim has at most {share_annotations.MOST_CARDS} GPUs"))
    for i, row in enumerate(objects(spec(role.template).get("resourceClaims"))):
        if row.get("name") == share_annotations.CLAIM:
            errors.append(duplicate(f"{role.template_path}.spec.resourceClaims[{i}].name", share_annotations.CLAIM))
    return errors


def _asks_for_gpus(template: Json) -> bool:
    annotations = mapping(mapping(template.get("metadata")).get("annotations"))
    containers = objects(mapping(template.get("spec")).get("containers"))
    resources = [mapping(container.get("resources")) for container in containers]
    asked = {name for each in resources for part in ("requests", "limits") for name in mapping(each.get(part))}
    return not asked.isdisjoint((HAMI_GPU, HAMI_CORES, HAMI_PERCENT, HAMI_MEMORY)) or any(
        name in annotations for name in (KAI_FRACTION, KAI_DEVICES, KAI_MEMORY, *share_annotations.SHARE_KEYS)
    )


def _count(path: str, value: object, *, lowest: int, highest: int) -> list[FieldError]:
    if value is None:
        return []
    if not isinstance(value, int) or isinstance(value, bool):
        return [invalid(path, value, "must be an integer")]
    if value < lowest:
        return [invalid(path, value, f"must be greater than or equal to {lowest}")]
    return [] if value <= highest else [invalid(path, value, f"must be less than or equal to {highest}")]


def _partial(roles: list[_Role]) -> list[FieldError]:
    """Errors of all roles but the first that use minReplicas: only one pod set of a Workload can shrink."""
    shrinking = [role for role in roles if role.minimum is not None]
    if len(shrinking) <= 1:
        return []
    return [invalid(role.minimum_path, role.minimum, "at most one role can use minReplicas") for role in shrinking[1:]]


def _resource(body: Json) -> list[FieldError]:
    resource = body.get("gpuResource")
    return [] if resource is None else syntax.resource_name("spec.gpuResource", resource)


def _runtime(runtime: Json) -> list[FieldError]:
    """Hints that contradict the limit, or are incomplete, are refused."""
    errors: list[FieldError] = []
    for field in ("expected", "limit", "checkpointInterval"):
        errors += syntax.duration(f"spec.runtime.{field}", runtime.get(field))
    if errors:
        return errors
    limit = _seconds(runtime.get("limit"))
    if limit == 0:
        errors.append(invalid("spec.runtime.limit", runtime["limit"], "must be greater than 0"))
    expected = _seconds(runtime.get("expected"))
    if limit is not None and expected is not None and expected > limit:
        errors.append(invalid("spec.runtime.expected", runtime["expected"], "must not exceed spec.runtime.limit"))
    for given, missing in (("steps", "secondsPerStep"), ("secondsPerStep", "steps")):
        if runtime.get(given) is not None and runtime.get(missing) is None:
            errors.append(required(f"spec.runtime.{missing}", f"must be set when {given} is set"))
    if runtime.get("secondsPerStep") is not None:
        errors += amounts.check("spec.runtime.secondsPerStep", runtime["secondsPerStep"], "cpu")
    return errors


def _seconds(value: object) -> float | None:
    return None if value is None else quantity.parse_duration(text(value))


def _placement(placement: Json) -> list[FieldError]:
    levels = [(field, placement[field]) for field in ("required", "preferred") if placement.get(field) is not None]
    return [error for field, level in levels for error in syntax.label_key(f"spec.topology.{field}", level)]


def _running(job: Json, old: Json | None) -> list[FieldError]:
    """The shape of a gang is fixed while it runs; the write that starts or stops it may still change it."""
    if old is None or SPEC_SUSPEND.read(job) or SPEC_SUSPEND.read(old):
        return []
    errors = [
        error for field in _SHAPE for error in immutable(f"spec.{field}", spec(job).get(field), spec(old).get(field))
    ]
    limits = (mapping(spec(side).get("runtime")).get("limit") for side in (job, old))
    return errors + immutable("spec.runtime.limit", *limits)


RULES: Final[KindRules] = jobs.job_rules(_check, checked_without_queue=True)
