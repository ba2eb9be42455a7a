"""ClusterQueue, in both versions."""

from __future__ import annotations

import json
from typing import Final

from gangline.api import names
from gangline.api.admission import syntax
from gangline.api.admission.findings import (
    NOTHING,
    AdmissionFacts,
    FieldError,
    Json,
    KindRules,
    fill,
    forbidden,
    immutable,
    invalid,
    listing,
    mapping,
    not_supported,
    objects,
    spec,
    text,
)
from gangline.api.admission.of_queues import quotas
from gangline.api.admission.of_queues.finalizers import keep_while_in_use
from gangline.bounded import SHOWN

# --- the recipe form of a v1beta1 ClusterQueue ------------------------------------------------------------------------
#
# Published GKE recipes have ClusterQueues that Kueue's own schema refuses: resource groups without `coveredResources`, no
# `namespaceSelector`, and `preemption.reclaimOutOfCohort`. Their meaning is clear, so it is filled in, with a warning to the
# author. A complete ClusterQueue is not changed.


#: the API server cuts a longer warning
_LONGEST_WARNING: Final = 256

#: The schema sets Never before a webhook sees the object, so Never cannot be distinguished from absent: both are replaced.
_UNSET: Final = (None, "", "Never")


def is_legacy(queue: Json) -> bool:
    """Whether this is a v1beta1 ClusterQueue in the recipe form."""
    if queue.get("apiVersion") != names.V1BETA1:
        return False
    if "reclaimOutOfCohort" in mapping(spec(queue).get("preemption")):
        return True
    return any(_lacks_resources(group) for group in objects(spec(queue).get("resourceGroups")))


def complete(queue: Json) -> list[str]:
    """Fill in what the recipe form leaves out. Returns at most one warning. Idempotent."""
    if not is_legacy(queue):
        return []
    body = fill(queue, "spec")
    if body is None:
        return []
    done = [*_resources(body), *_selector(body), *_legacy_preemption(body)]
    return [_warning(done)] if done else []


def _lacks_resources(group: Json) -> bool:
    return bool(group) and not listing(group.get("coveredResources"))


def _resources(body: Json) -> list[str]:
    """Let each group without `coveredResources` cover the resources of its flavors, in the order of the first flavor."""
    taken: list[str] = []
    groups = list(listing(body.get("resourceGroups")))
    for i, group in enumerate(map(mapping, groups)):
        if not _lacks_resources(group):
            continue
        flavors = objects(group.get("flavors"))
        found = dict.fromkeys(
            text(quota.get("name")) for flavor in flavors for quota in objects(flavor.get("resources"))
        )
        if found:
            groups[i] = {**group, "coveredResources": list(found)}
            taken += found
    if not taken:
        return []
    body["resourceGroups"] = groups
    return [f"coveredResources taken from the flavors ({', '.join(taken)})"]


def _selector(body: Json) -> list[str]:
    if not body or body.get("namespaceSelector") is not None:
        return []
    body["namespaceSelector"] = {}
    return ["namespaceSelector {} (every namespace)"]


def _legacy_preemption(body: Json) -> list[str]:
    preemption = mapping(body.get("preemption"))
    reclaim = mapping(preemption.get("reclaimOutOfCohort"))
    if reclaim.get("enable") is not True:
        return []
    done: list[str] = []
    writable = fill(body, "preemption")
    if writable is not None and preemption.get("withinClusterQueue") in _UNSET:
        writable["withinClusterQueue"] = "LowerPriority"
        done.append("reclaimOutOfCohort.enable read as withinClusterQueue: LowerPriority")
        if reclaim.get("reclaimMoreThanNominalQuota") is True:
            done.append("reclaimMoreThanNominalQuota ignored")
    return done


def _warning(done: list[str]) -> str:
    written = f"legacy ClusterQueue form completed: {'; '.join(done)}"
    return written if len(written) <= _LONGEST_WARNING else f"{written[: _LONGEST_WARNING - 1]}…"


MAX_CONCURRENT_FLAVORS: Final = 16
MIGRATES: Final = "TryPreferredFlavors"
#: number of flavors that a message lists
_MOST_CHOICES: Final = 32


def default(queue: Json, old: Json | None, context: AdmissionFacts) -> list[str]:
    keep_while_in_use(queue, old)
    return complete(queue)


def validate(queue: Json, old: Json | None, context: AdmissionFacts) -> list[FieldError]:
    if old is not None and spec(queue) == spec(old):
        return []
    body = spec(queue)
    return [
        *_cohort(queue),
        *quotas.check_groups("spec.resourceGroups", body.get("resourceGroups"), _quota_rules(queue)),
        *syntax.label_selector("spec.namespaceSelector", body.get("namespaceSelector")),
        *_preemption(mapping(body.get("preemption"))),
        *_fungibility(mapping(body.get("flavorFungibility"))),
        *quotas.check_weight("spec.fairSharing", mapping(body.get("fairSharing")).get("weight")),
        *_checks(queue, old),
        *_concurrent_admission(body, old),
    ]


def _cohort_field(queue: Json) -> str:
    return "cohort" if queue.get("apiVersion") == names.V1BETA1 else "cohortName"


def _cohort(queue: Json) -> list[FieldError]:
    field = _cohort_field(queue)
    cohort = spec(queue).get(field)
    return syntax.dns_subdomain(f"spec.{field}", cohort) if cohort else []


def _quota_rules(queue: Json) -> quotas.QuotaRules:
    return quotas.QuotaRules(
        has_parent=bool(spec(queue).get(_cohort_field(queue))), parent_word="cohort", lending_within_nominal=True
    )


def _preemption(preemption: Json) -> list[FieldError]:
    borrow = mapping(preemption.get("borrowWithinCohort"))
    never_reclaims = preemption.get("reclaimWithinCohort", "Never") == "Never"
    if never_reclaims and borrow.get("policy", "Never") != "Never":
        return [invalid("spec.preemption", NOTHING, "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never")]
    return []


def _fungibility(fungibility: Json) -> list[FieldError]:
    preference = fungibility.get("preference")
    if preference is None:
        return []
    if all(fungibility.get(when) == "TryNextFlavor" for when in ("whenCanBorrow", "whenCanPreempt")):
        return []
    message = f'preference "{preference}" requires both whenCanBorrow and whenCanPreempt to be TryNextFlavor'
    return [invalid("spec.flavorFungibility.preference", preference, message)]


def _checks(queue: Json, old: Json | None) -> list[FieldError]:
    """`onFlavors` must name flavors of this queue; stored names may stay while the flavors do."""
    flavors = dict.fromkeys(quotas.flavor_names(spec(queue).get("resourceGroups")))
    kept: set[str] = set()
    if old is not None and set(flavors) == set(quotas.flavor_names(spec(old).get("resourceGroups"))):
        kept = {_as_text(check) for check in _strategy(old)}
    errors: list[FieldError] = []
    for i, check in enumerate(_strategy(queue)):
        if _as_text(check) in kept:
            continue
        for j, flavor in enumerate(listing(check.get("onFlavors"))):
            if text(flavor) not in flavors:
                path = f"spec.admissionChecksStrategy.admissionChecks[{i}].onFlavors[{j}]"
                errors.append(not_supported(path, flavor, flavors))
    return errors


def _as_text(check: Json) -> str:
    """The same for equal ones."""
    return json.dumps(check, sort_keys=True)


def _strategy(queue: Json) -> list[Json]:
    return objects(mapping(spec(queue).get("admissionChecksStrategy")).get("admissionChecks"))


def _concurrent_admission(body: Json, old: Json | None) -> list[FieldError]:
    policy = body.get("concurrentAdmissionPolicy")
    errors: list[FieldError] = []
    if old is not None:
        errors += immutable("spec.concurrentAdmissionPolicy", policy, spec(old).get("concurrentAdmissionPolicy"))
    if policy is None:
        return errors
    groups = objects(body.get("resourceGroups"))
    if len(groups) != 1:
        message = "must have exactly one ResourceGroup when ConcurrentAdmissionPolicy is defined"
        errors.append(invalid("spec.resourceGroups", len(groups), message))
    elif (flavors := len(objects(groups[0].get("flavors")))) > MAX_CONCURRENT_FLAVORS:
        message = (
            f"cannot have more than {MAX_CONCURRENT_FLAVORS} resource flavors in the ResourceGroup "
            "when ConcurrentAdmissionPolicy is defined"
        )
        errors.append(invalid("spec.resourceGroups[0].flavors", flavors, message))
    if body.get("queueingStrategy") == "StrictFIFO":
        message = "StrictFIFO queueing strategy cannot be used when ConcurrentAdmissionPolicy is defined"
        errors.append(invalid("spec.queueingStrategy", "StrictFIFO", message))
    return errors + _migration(mapping(mapping(policy).get("migration")), groups)


def _migration(migration: Json, groups: list[Json]) -> list[FieldError]:
    """Errors of the constraints on migration: only a workload that may move has a last flavor to move to."""
    constraints, mode = migration.get("constraints"), migration.get("mode")
    path = "spec.concurrentAdmissionPolicy.migration.constraints"
    if constraints is None:
        return []
    if mode and mode != MIGRATES:
        return [forbidden(path, f'may only be set when migration.mode is "{MIGRATES}" (got "{text(mode)[:SHOWN]}")')]
    last, flavors = mapping(constraints).get("lastAcceptableFlavorName"), quotas.flavor_names(groups)
    if last is None or last in flavors:
        return []
    message = f"must be one of the flavors defined in the ClusterQueue: [{' '.join(flavors[:_MOST_CHOICES])}]"
    return [invalid(f"{path}.lastAcceptableFlavorName", last, message)]


def warn(queue: Json) -> list[str]:
    """The policy is alpha in Kueue, and off by default."""
    if spec(queue).get("concurrentAdmissionPolicy") is None:
        return []
    return ["spec.concurrentAdmissionPolicy has an effect only where the feature gate ConcurrentAdmission is on"]


RULES: Final = KindRules(validate=validate, default=default, warn=warn)
