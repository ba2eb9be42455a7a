"""ClusterQueue between versions, the legacy recipe form included.

A recipe leaves out fields that v1beta2 requires: they are derived here and noted, so that reading the object in v1beta1 shows
what was written. A note counts only while the derived value is unchanged: a change in v1beta2 has precedence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gangline.api import quantity
from gangline.api.convert.fields import Json, Shape, is_time, items, make, move, own, own_items, rename
from gangline.api.unchecked import listing, mapping

# --- usage over time in the status of ClusterQueues, which only v1beta1 has -------------------------------------------


_USAGE: Final = "admissionFairSharingStatus"
#: characters of the longest quantity that is restored
_LONGEST: Final = 64


def _is_quantity(value: Any) -> bool:
    if type(value) not in (int, str) or len(str(value)[: _LONGEST + 1]) > _LONGEST:
        return False
    try:
        quantity.parse(value)
    except quantity.QuantityError:
        return False
    return True


FAIR_SHARING_NOTES: Final[Mapping[str, Shape]] = {
    _USAGE: {"consumedResources": {"*": _is_quantity}, "lastUpdate": is_time},
}


def upgrade_fair_sharing(obj: Json, restored: Json) -> Json:
    notes: Json = {}
    move(own(own(obj, "status"), "fairSharing"), _USAGE, notes)
    return notes


def downgrade_fair_sharing(obj: Json, restored: Json) -> Json:
    """Restored as long as there is a status in fair sharing."""
    fair = own(own(obj, "status"), "fairSharing")
    if fair is not None and _USAGE in restored:
        fair[_USAGE] = restored[_USAGE]
    return {}


#: the key of the notes on fields that v1beta2 lacks
RECLAIM: Final = "reclaimOutOfCohort"
_COVERED: Final = "derivedCoveredResources"
_SELECTOR: Final = "derivedNamespaceSelector"
_WITHIN: Final = "derivedWithinClusterQueue"
_CHECKS: Final = "admissionChecks"
_UNUSED_CHECKS: Final = "unusedAdmissionChecks"
_FUNGIBILITY: Final = "flavorFungibility"
_PENDING: Final = "pendingWorkloadsStatus"
_CONCURRENT: Final = "concurrentAdmissionPolicy"

RECLAIM_NOTES: Final[Mapping[str, Shape]] = {"enable": bool, "reclaimMoreThanNominalQuota": bool}
NOTES: Final[Mapping[str, Shape]] = {
    _COVERED: [int],
    _SELECTOR: bool,
    _WITHIN: str,
    _CHECKS: [str],
    _UNUSED_CHECKS: [str],
    _FUNGIBILITY: {"*": str},
    _PENDING: {"clusterQueuePendingWorkload": [{"name": str, "namespace": str}], "lastChangeTime": is_time},
    **FAIR_SHARING_NOTES,
    _CONCURRENT: {"migration": {"mode": str, "constraints": {"lastAcceptableFlavorName": str}}},
}

_OLD_POLICIES: Final = ("Borrow", "Preempt")
_PREEMPTS: Final = "LowerPriority"


def upgrade(queue: Json, restored: Json) -> Json:
    """Turn a v1beta1 queue into v1beta2, in place. Returns the notes. `restored` are the notes of `downgrade`."""
    notes: Json = {}
    spec = own(queue, "spec")
    if spec is not None:
        preemption = own(spec, "preemption")
        move(preemption, RECLAIM, notes)
        _derive_resources(spec, notes)
        _derive_selector(spec, notes)
        _derive_preemption(preemption, notes)
        _upgrade_checks(spec, notes)
        _upgrade_fungibility(spec, notes)
        rename(spec, "cohort", "cohortName")
        move(restored, _CONCURRENT, spec)
    move(own(queue, "status"), _PENDING, notes)
    return notes | upgrade_fair_sharing(queue, restored)


def downgrade(queue: Json, restored: Json) -> Json:
    """Turn a v1beta2 queue into v1beta1, in place. Returns the notes. `restored` are the notes of `upgrade`."""
    notes: Json = {}
    spec = own(queue, "spec")
    if spec is not None:
        _restore_resources(spec, restored)
        _restore_selector(spec, restored)
        _restore_preemption(spec, restored)
        _downgrade_checks(spec, restored)
        _downgrade_fungibility(spec, restored)
        rename(spec, "cohortName", "cohort")
        move(spec, _CONCURRENT, notes)
    if _PENDING in restored:
        make(queue, "status")[_PENDING] = restored[_PENDING]
    return notes | downgrade_fair_sharing(queue, restored)


# --- the legacy recipe form -------------------------------------------------------------------------------------------


def listed_resources(group: Json) -> list[str]:
    """The resources of a group's flavors, in the order of their first occurrence."""
    named = (
        resource.get("name") for flavor in items(group.get("flavors")) for resource in items(flavor.get("resources"))
    )
    return list(dict.fromkeys(name for name in named if isinstance(name, str)))


def _derive_resources(spec: Json, notes: Json) -> None:
    for i, group in enumerate(own_items(spec, "resourceGroups")):
        if not group.get("coveredResources"):
            group["coveredResources"] = listed_resources(group)
            notes.setdefault(_COVERED, []).append(i)


def _restore_resources(spec: Json, restored: Json) -> None:
    derived = listing(restored.get(_COVERED))
    for i, group in enumerate(own_items(spec, "resourceGroups") if derived else ()):
        if i in derived and group.get("coveredResources") == listed_resources(group):
            del group["coveredResources"]


def _derive_selector(spec: Json, notes: Json) -> None:
    """Write out an absent selector where it means every namespace, which it does in recipes only; otherwise it means no
    namespace.
    """
    if spec.get("namespaceSelector") is None and (RECLAIM in notes or _COVERED in notes):
        spec["namespaceSelector"] = {}
        notes[_SELECTOR] = True


def _restore_selector(spec: Json, restored: Json) -> None:
    if restored.get(_SELECTOR) is True and spec.get("namespaceSelector") == {}:
        del spec["namespaceSelector"]


def _derive_preemption(preemption: Json | None, notes: Json) -> None:
    if preemption is None or mapping(notes.get(RECLAIM)).get("enable") is not True:
        return
    if preemption.get("withinClusterQueue", "Never") == "Never":
        notes[_WITHIN] = preemption.get("withinClusterQueue", "")
        preemption["withinClusterQueue"] = _PREEMPTS


def _restore_preemption(spec: Json, restored: Json) -> None:
    if RECLAIM not in restored:
        return
    preemption = make(spec, "preemption")
    if _WITHIN not in restored:
        preemption[RECLAIM] = restored[RECLAIM]
    elif preemption.get("withinClusterQueue") == _PREEMPTS:
        preemption[RECLAIM] = restored[RECLAIM]
        _put_back(preemption, "withinClusterQueue", restored[_WITHIN])


def _put_back(parent: Json, key: str, value: Any) -> None:
    if value:
        parent[key] = value
    else:
        del parent[key]


# --- fields that changed ----------------------------------------------------------------------------------------------


def _strategy(names: Any) -> Json | None:
    rules = [{"name": name} for name in listing(names)]
    return {"admissionChecks": rules} if rules else None


def _upgrade_checks(spec: Json, notes: Json) -> None:
    if spec.get("admissionChecksStrategy") is not None:
        move(spec, _CHECKS, notes, _UNUSED_CHECKS)
        return
    move(spec, _CHECKS, notes)
    if (strategy := _strategy(notes.get(_CHECKS))) is not None:
        spec["admissionChecksStrategy"] = strategy


def _downgrade_checks(spec: Json, restored: Json) -> None:
    if _UNUSED_CHECKS in restored:
        spec[_CHECKS] = restored[_UNUSED_CHECKS]
    elif _CHECKS in restored and spec.get("admissionChecksStrategy") == _strategy(restored[_CHECKS]):
        spec.pop("admissionChecksStrategy", None)
        spec[_CHECKS] = restored[_CHECKS]


def _upgrade_fungibility(spec: Json, notes: Json) -> None:
    fungibility = own(spec, _FUNGIBILITY) or {}
    old = {key: value for key, value in fungibility.items() if value in _OLD_POLICIES}
    if old:
        fungibility.update(dict.fromkeys(old, "MayStopSearch"))
        notes[_FUNGIBILITY] = old


def _downgrade_fungibility(spec: Json, restored: Json) -> None:
    fungibility = own(spec, _FUNGIBILITY) or {}
    old = mapping(restored.get(_FUNGIBILITY))
    fungibility.update({key: value for key, value in old.items() if fungibility.get(key) == "MayStopSearch"})
