"""The topology annotations of a pod template: allowed combinations and values."""

from __future__ import annotations

from typing import Final

from gangline import bounded
from gangline.api import names
from gangline.api.admission import syntax
from gangline.api.admission.findings import (
    NOTHING,
    FieldError,
    Json,
    annotations_of,
    duplicate,
    forbidden,
    invalid,
    mapping,
    objects,
    required,
    text,
    whole,
)

SLICE_CONSTRAINTS: Final = f"{names.GROUP}/podset-slice-required-topology-constraints"
MAX_LAYERS: Final = 3
#: characters and levels of their JSON
_LONGEST_LAYERS, _DEEPEST_LAYERS = 16_384, 4

_EXCLUSIVE: Final = (names.REQUIRED_TOPOLOGY, names.PREFERRED_TOPOLOGY, names.UNCONSTRAINED_TOPOLOGY)
_LEVELS: Final = (names.REQUIRED_TOPOLOGY, names.PREFERRED_TOPOLOGY, names.SLICE_REQUIRED_TOPOLOGY)


def check_template(path: str, template: Json, count: int) -> list[FieldError]:
    """Annotations of one pod template whose pod set has `count` pods. `path` is that of the template."""
    asked = annotations_of(template)
    at = f"{path}.metadata.annotations"
    return [
        *_exclusive(at, asked),
        *[error for key in _LEVELS if key in asked for error in syntax.label_key(f"{at}[{key}]", asked[key])],
        *_unconstrained(at, asked),
        *_slice_size(at, asked, count),
        *_group(at, asked),
        *_index_offset(at, asked),
        *_constraints(at, asked, count),
    ]


def check_groups(templates: list[tuple[str, Json, int]]) -> list[FieldError]:
    """Pod-set groups across a job: (path of the template, template, count) of every pod set, in order."""
    groups: dict[str, list[tuple[str, Json, int]]] = {}
    for path, template, count in templates:
        group = text(annotations_of(template).get(names.PODSET_GROUP))
        if group:
            groups.setdefault(group, []).append((f"{path}.metadata.annotations", annotations_of(template), count))
    return [error for group, members in groups.items() for error in _members(group, members)]


def _members(group: str, members: list[tuple[str, Json, int]]) -> list[FieldError]:
    if len(members) != 2:
        message = f"can only define groups of exactly 2 pod sets, got: {len(members)} pod set(s)"
        return [invalid(f"{at}[{names.PODSET_GROUP}]", group, message) for at, _, _ in members]
    (first_at, first, first_count), (second_at, second, second_count) = members
    errors: list[FieldError] = []
    if 1 not in (first_count, second_count):
        message = (
            "can only define groups where at least one pod set has only 1 replica, "
            f"got: {first_count} replica(s) and {second_count} replica(s) in the group"
        )
        errors += [invalid(f"{at}[{names.PODSET_GROUP}]", group, message) for at in (first_at, second_at)]
    if any(first.get(key) != second.get(key) for key in (names.REQUIRED_TOPOLOGY, names.PREFERRED_TOPOLOGY)):
        for at, other in ((first_at, second_at), (second_at, first_at)):
            message = (
                f"must specify '{names.REQUIRED_TOPOLOGY}' or '{names.PREFERRED_TOPOLOGY}' topology "
                f"consistent with '{other}' in group '{group}'"
            )
            errors.append(invalid(at, NOTHING, message))
    return errors


def _exclusive(at: str, asked: Json) -> list[FieldError]:
    if sum(key in asked for key in _EXCLUSIVE) <= 1:
        return []
    listed = ", ".join(f'"{key}"' for key in _EXCLUSIVE)
    return [invalid(at, NOTHING, f"must not contain more than one topology annotation: [{listed}]")]


def _unconstrained(at: str, asked: Json) -> list[FieldError]:
    key = names.UNCONSTRAINED_TOPOLOGY
    if key not in asked:
        return []
    try:
        syntax.go_bool(text(asked[key]))
    except ValueError:
        return [invalid(f"{at}[{key}]", asked[key], "must be a boolean value")]
    return []


def _slice_size(at: str, asked: Json, count: int) -> list[FieldError]:
    key, level = names.SLICE_SIZE, names.SLICE_REQUIRED_TOPOLOGY
    if key not in asked:
        return [required(f"{at}[{key}]", f"must be set when '{level}' is specified")] if level in asked else []
    errors: list[FieldError] = []
    try:
        size = syntax.go_int(text(asked[key]))
    except ValueError:
        errors.append(invalid(f"{at}[{key}]", asked[key], "must be a numeric value"))
    else:
        if size < 1:
            errors.append(invalid(f"{at}[{key}]", asked[key], "must be greater than or equal to 1"))
        if size > count:
            message = f"must not be greater than pod set count {count}"
            errors.append(invalid(f"{at}[{key}]", asked[key], message))
    if level not in asked:
        errors.append(forbidden(f"{at}[{key}]", f"may not be set when '{level}' is not specified"))
    return errors


def _group(at: str, asked: Json) -> list[FieldError]:
    key = names.PODSET_GROUP
    if key not in asked:
        return []
    errors: list[FieldError] = []
    if text(asked[key]).isdecimal():
        errors.append(invalid(f"{at}[{key}]", asked[key], "must not be a number"))
    for other in (names.SLICE_SIZE, names.SLICE_REQUIRED_TOPOLOGY, SLICE_CONSTRAINTS):
        if other in asked:
            errors.append(forbidden(f"{at}[{key}]", f"may not be set when '{other}' is specified"))
    if names.PREFERRED_TOPOLOGY not in asked and names.REQUIRED_TOPOLOGY not in asked:
        message = (
            f"may not be set when neither '{names.PREFERRED_TOPOLOGY}' nor '{names.REQUIRED_TOPOLOGY}' is specified"
        )
        errors.append(forbidden(f"{at}[{key}]", message))
    return errors


def _index_offset(at: str, asked: Json) -> list[FieldError]:
    if names.POD_INDEX_OFFSET not in asked:
        return []
    path = f"{at}[{names.POD_INDEX_OFFSET}]"
    if names.PODSET_GROUP in asked:
        return [forbidden(path, f"may not be set when '{names.PODSET_GROUP}' is specified")]
    if not text(asked[names.POD_INDEX_OFFSET]).isdecimal():
        return [invalid(path, asked[names.POD_INDEX_OFFSET], "must be a non-negative integer")]
    return []


def _constraints(at: str, asked: Json, count: int) -> list[FieldError]:
    """Slices within slices: JSON, outermost first, each size dividing the one above it."""
    if SLICE_CONSTRAINTS not in asked:
        return []
    path = f"{at}[{SLICE_CONSTRAINTS}]"
    errors = [
        forbidden(path, f"may not be set when '{other}' is specified")
        for other in (names.SLICE_REQUIRED_TOPOLOGY, names.SLICE_SIZE)
        if other in asked
    ]
    layers: object
    try:
        layers = bounded.load_json(
            text(asked[SLICE_CONSTRAINTS]), most_bytes=_LONGEST_LAYERS, most_depth=_DEEPEST_LAYERS
        )
    except bounded.BadJsonError as error:
        return [*errors, invalid(path, asked[SLICE_CONSTRAINTS], f"must be a valid JSON array: {error}")]
    if not 1 <= len(objects(layers)) <= MAX_LAYERS:
        return [*errors, invalid(path, asked[SLICE_CONSTRAINTS], f"must contain between 1 and {MAX_LAYERS} layers")]
    return errors + _layers(path, objects(layers), count)


def _layers(path: str, layers: list[Json], count: int) -> list[FieldError]:
    errors: list[FieldError] = []
    above = count
    for i, layer in enumerate(layers):
        topology, size = layer.get("topology"), whole(layer.get("size"), 0)
        errors += syntax.label_key(f"{path}[{i}].topology", topology)
        if topology in [mapping(other).get("topology") for other in layers[:i]]:
            errors.append(duplicate(f"{path}[{i}].topology", topology))
        if size < 1:
            message = "must be greater than or equal to 1"
            errors.append(invalid(f"{path}[{i}].size", layer.get("size"), message))
            continue
        if i == 0 and size > count:
            errors.append(invalid(path, size, f"must not be greater than pod set count {count}"))
        if i > 0 and above % size:
            message = f"must evenly divide the parent layer size {above}"
            errors.append(invalid(f"{path}[{i}].size", size, message))
        above = size
    return errors
