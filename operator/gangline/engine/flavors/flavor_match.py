"""Which flavors a pod set may run on: taints and tolerations, node selector, required affinity, and flavors beside each other.

Only label keys that the flavor itself names count; other keys of a selector or an expression, and names of nodes, are left to the
nodes: in Kueue in any case, here where a node of the flavor has what the pods select.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gangline.engine.model import Affinity, Flavor, PodSet
from gangline.engine.topology.expressions import expression_matches
from gangline.engine.topology.node_filter import tolerates

_BINDING_EFFECTS = ("NoSchedule", "NoExecute")


def obstacle(pod_set: PodSet, flavor: Flavor) -> str:
    """Why the pod set cannot use the flavor, in Kueue's words; "" = it can."""
    for taint in flavor.taints:
        if taint.effect in _BINDING_EFFECTS and not any(
            tolerates(toleration, taint) for toleration in (*pod_set.tolerations, *flavor.tolerations)
        ):
            text = f"{taint.key}={taint.value}" if taint.value else taint.key
            return f"untolerated taint {text}:{taint.effect} in flavor {flavor.name}"
    if not _selected(pod_set, flavor.node_labels):
        return f"flavor {flavor.name} doesn't match node affinity"
    return ""


def contradiction(flavor: Flavor, others: Iterable[Flavor]) -> str:
    """Why a pod cannot be on a node of this flavor and of these others, "" = it can: they give a label different values."""
    for other in others:
        for key, value in flavor.node_labels.items():
            if other.node_labels.get(key, value) != value:
                says = f'label {key} is "{value}" in one and "{other.node_labels[key]}" in the other'
                return f"flavor {flavor.name} contradicts flavor {other.name}: {says}"
    return ""


def unnamed(pod_set: PodSet, flavor: Flavor | None, group: Sequence[Flavor | None]) -> tuple[tuple[str, str, str], ...]:
    """What the pod set selects by labels that other flavors of the group name, and this one does not: label, value, flavor."""
    if flavor is None or flavor.autoscaled or not pod_set.node_selector:
        return ()
    naming = {key: each.name for each in reversed(group) if each is not None for key in each.node_labels}
    selected = sorted(pod_set.node_selector.items())
    return tuple(
        (key, value, naming[key]) for key, value in selected if key in naming and key not in flavor.node_labels
    )


def _selected(pod_set: PodSet, labels: Mapping[str, str]) -> bool:
    for key, value in pod_set.node_selector.items():
        if key in labels and labels[key] != value:
            return False
    return _affinity_matches(pod_set.affinity, labels)


def _affinity_matches(affinity: Affinity, labels: Mapping[str, str]) -> bool:
    """Terms are ORed. A term without keys of the flavor matches everything."""
    if not affinity:
        return True
    return any(
        all(
            expression_matches(expression, labels)
            for expression in term
            if expression.key in labels and not expression.field
        )
        for term in affinity
    )
