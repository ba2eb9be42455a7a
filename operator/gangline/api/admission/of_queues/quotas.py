"""Resource groups and fair-sharing weights: shared by ClusterQueues and Cohorts."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from gangline.api.admission import amounts, syntax
from gangline.api.admission.findings import (
    NEGATIVE,
    NOTHING,
    FieldError,
    Json,
    duplicate,
    invalid,
    listing,
    objects,
    text,
)

MAX_FLAVORS: Final = 256
MAX_RESOURCES: Final = 256
MAX_PAIRS_PER_GROUP: Final = 512


@dataclass(frozen=True, slots=True)
class QuotaRules:
    """How strict the limits are for the kind at hand."""

    has_parent: bool
    parent_word: str  # the parent's name in messages
    lending_within_nominal: bool


def check_groups(path: str, value: object, rules: QuotaRules) -> list[FieldError]:
    """`spec.resourceGroups`: each resource and each flavor once, consistent quotas and limits."""
    groups = objects(value)
    errors: list[FieldError] = []
    resources: set[str] = set()
    flavors: set[str] = set()
    for i, group in enumerate(groups):
        at = f"{path}[{i}]"
        errors += _covered(f"{at}.coveredResources", group, resources)
        errors += _flavors(f"{at}.flavors", group, flavors, rules)
    return errors + _totals(path, groups)


def flavor_names(groups: object) -> list[str]:
    """Names of all flavors, in order."""
    return [text(flavor.get("name")) for group in objects(groups) for flavor in objects(group.get("flavors"))]


def _covered(path: str, group: Json, seen: set[str]) -> list[FieldError]:
    errors: list[FieldError] = []
    for i, name in enumerate(listing(group.get("coveredResources"))):
        at = f"{path}[{i}]"
        errors += syntax.resource_name(at, name)
        if text(name) in seen:
            errors.append(duplicate(at, name))
        seen.add(text(name))
    return errors


def _flavors(path: str, group: Json, seen: set[str], rules: QuotaRules) -> list[FieldError]:
    covered = listing(group.get("coveredResources"))
    errors: list[FieldError] = []
    for i, flavor in enumerate(objects(group.get("flavors"))):
        at = f"{path}[{i}]"
        name = flavor.get("name")
        errors += syntax.dns_subdomain(f"{at}.name", name)
        if text(name) in seen:
            errors.append(duplicate(f"{at}.name", name))
        seen.add(text(name))
        errors += _quotas(f"{at}.resources", objects(flavor.get("resources")), covered, rules)
    return errors


def _quotas(path: str, quotas: list[Json], covered: list[object], rules: QuotaRules) -> list[FieldError]:
    errors: list[FieldError] = []
    if len(quotas) != len(covered):
        errors.append(invalid(path, NOTHING, "must have the same number of resources as the coveredResources"))
    for i, (quota, expected) in enumerate(zip(quotas, covered, strict=False)):
        at = f"{path}[{i}]"
        if quota.get("name") != expected:
            errors.append(invalid(f"{at}.name", quota.get("name"), "must match the name in coveredResources"))
        errors += amounts.check_quota(f"{at}.nominalQuota", quota.get("nominalQuota"))
        errors += _limits(at, quota, rules)
    return errors


def _limits(path: str, quota: Json, rules: QuotaRules) -> list[FieldError]:
    errors: list[FieldError] = []
    for limit in ("borrowingLimit", "lendingLimit"):
        value = quota.get(limit)
        if value is None:
            continue
        errors += amounts.check_quota(f"{path}.{limit}", value)
        if not rules.has_parent:
            errors.append(invalid(f"{path}.{limit}", value, f"must be nil when {rules.parent_word} is empty"))
    if rules.lending_within_nominal and amounts.exceeds(quota.get("lendingLimit"), quota.get("nominalQuota")):
        message = "must be less than or equal to the nominalQuota"
        errors.append(invalid(f"{path}.lendingLimit", quota["lendingLimit"], message))
    return errors


def _totals(path: str, groups: list[Json]) -> list[FieldError]:
    errors: list[FieldError] = []
    flavors = sum(len(objects(group.get("flavors"))) for group in groups)
    if flavors > MAX_FLAVORS:
        message = f"total number of flavors across all resourceGroups must be ≤ {MAX_FLAVORS}, got {flavors}"
        errors.append(invalid(path, flavors, message))
    resources = sum(len(listing(group.get("coveredResources"))) for group in groups)
    if resources > MAX_RESOURCES:
        message = (
            f"total number of covered resources across all resourceGroups must be ≤ {MAX_RESOURCES}, got {resources}"
        )
        errors.append(invalid(path, resources, message))
    for i, group in enumerate(groups):
        pairs = sum(len(objects(flavor.get("resources"))) for flavor in objects(group.get("flavors")))
        if pairs > MAX_PAIRS_PER_GROUP:
            message = (
                "number of flavor-resource combinations in a resourceGroup must be "
                f"≤ {MAX_PAIRS_PER_GROUP}, got {pairs}"
            )
            errors.append(invalid(f"{path}[{i}]", pairs, message))
    return errors


def check_weight(path: str, value: object) -> list[FieldError]:
    """`spec.fairSharing.weight`: 0, or large enough to be distinguished from 0. A missing one is 1."""
    if value is None:
        return []
    try:
        weight = amounts.exact(value)
    except amounts.BadAmountError as error:
        return [invalid(path, value, str(error))]
    if weight < 0:
        return [invalid(path, value, NEGATIVE)]
    if 0 < weight <= Fraction(1, 10**9):
        return [invalid(path, value, "When not 0, weight must be > 10e-9")]
    return []
