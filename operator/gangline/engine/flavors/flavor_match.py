"""Which flavors a pod set may run on: taints and tolerations, node selector, required affinity.

Only label keys that the flavor itself names count; other keys of a selector or an expression, and names of nodes, are left to the
nodes.
"""

from __future__ import annotations

from collections.abc import Mapping

from gangline.engine.model import Affinity, Flavor, PodSet
from gangline.engine.topology.node_filter import expression_matches, tolerates

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
