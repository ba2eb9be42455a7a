"""CEL that decides, inside the API server, whether a write of a Workload's status may break a rule.

Status writes are the operator's most frequent ones, so the conditions say what `gangline.api.admission.workload_status` says:
a write that breaks no rule causes no call, whoever sends it, and an outage of the webhooks stops none. Only a write that seems
to break a rule goes on to the webhook, which has the last word, and the words. What is nearly always true stands first.

`tests/webhooks/test_on_cluster.py` compares both.
"""

from __future__ import annotations

from typing import Final

_POD_SETS: Final = "object.?spec.?podSets.orValue([])"


def _status(of: str, field: str) -> str:
    return f"{of}.?status.?{field}"


def _same(field: str) -> str:
    return f"{_status('object', field)} == {_status('oldObject', field)}"


def _reserved(of: str) -> str:
    conditions = _status(of, "conditions")
    return f"{conditions}.orValue([]).exists(c, c.type == 'QuotaReserved' && c.status == 'True')"


# --- admission --------------------------------------------------------------------------------------------------------

_NEW, _OLD = (_status(side, "admission") for side in ("object", "oldObject"))
_ASSIGNED: Final = f"{_NEW}.?podSetAssignments.orValue([])"
_ASSIGNED_BEFORE: Final = f"{_OLD}.?podSetAssignments.orValue([])"

#: what was checked when quota was reserved stays right
_KEPT: Final = f"{_same('admission')} && (!{_reserved('object')} || {_reserved('oldObject')})"
_CLEARED: Final = f"!{_NEW}.hasValue() && !{_reserved('object')}"
#: A multiple of the count: in whole units, in milli-units as cpu is counted, or written in them. The remainder is multiplied,
#: not the amount, which could be too large then.
_MULTIPLE: Final = (
    "type(a.resourceUsage[k]) == int ? a.resourceUsage[k] % a.count == 0 : type(a.resourceUsage[k]) == string && ("
    "isQuantity(a.resourceUsage[k]) && quantity(a.resourceUsage[k]).isInteger() ? "
    "quantity(a.resourceUsage[k]).asInteger() % a.count * (k == 'cpu' ? 1000 : 1) % a.count == 0 : "
    "k == 'cpu' && a.resourceUsage[k].matches('^[0-9]{1,15}m$') && "
    "int(a.resourceUsage[k].replace('m', '')) % a.count == 0)"
)
_FITS: Final = (
    f"!{_OLD}.hasValue() && {_ASSIGNED}.all(a, {_POD_SETS}.exists(p, p.name == a.name) && (a.?count.orValue(0) <= 0 || "
    f"a.?resourceUsage.orValue({{}}).all(k, {_MULTIPLE})))"
)
#: only places have changed
_MOVED: Final = (
    f"{_NEW}.hasValue() && {_OLD}.hasValue() && {_reserved('oldObject')} && "
    f"{_NEW}.?clusterQueue == {_OLD}.?clusterQueue && size({_ASSIGNED}) == size({_ASSIGNED_BEFORE}) && "
    f"{_ASSIGNED}.all(a, {_ASSIGNED_BEFORE}.exists(o, o.name == a.name && o.?count == a.?count && "
    "o.?flavors == a.?flavors && o.?resourceUsage == a.?resourceUsage))"
)
_ADMISSION: Final = f"({_KEPT}) || ({_CLEARED}) || ({_NEW}.hasValue() && {_FITS}) || ({_MOVED})"

# --- reclaimable pods, admission checks, cluster ----------------------------------------------------------------------

_GIVEN, _GIVEN_BEFORE = (f"{_status(side, 'reclaimablePods')}.orValue([])" for side in ("object", "oldObject"))
_RECLAIMABLE: Final = (
    f"{_same('reclaimablePods')} || ({_GIVEN}.all(r, {_POD_SETS}.exists(p, p.name == r.name && "
    f"r.count <= p.?count.orValue(1))) && (!({_reserved('object')} && {_reserved('oldObject')}) || "
    f"{_GIVEN_BEFORE}.all(o, {_GIVEN}.exists(r, r.name == o.name && r.count >= o.count))))"
)

_CHECKS, _CHECKS_BEFORE = (f"{_status(side, 'admissionChecks')}.orValue([])" for side in ("object", "oldObject"))
#: no check says anything new about the pods, and none that stays ready takes back what it said
_UPDATES: Final = (
    f"{_same('admissionChecks')} || ({_CHECKS}.all(c, !has(c.podSetUpdates) || {_CHECKS_BEFORE}.exists(o, "
    f"o.name == c.name && o.?podSetUpdates == c.?podSetUpdates)) && {_CHECKS_BEFORE}.all(o, !has(o.podSetUpdates) || "
    f"o.state != 'Ready' || !{_CHECKS}.exists(c, c.name == o.name && c.state == 'Ready' && !has(c.podSetUpdates))))"
)
_CLUSTER: Final = f"!{_status('object', 'clusterName')}.hasValue() || {_same('clusterName')}"

#: the write may break a rule
STATUS_IS_QUESTIONABLE: Final = f"!(({_CLUSTER}) && ({_UPDATES}) && ({_RECLAIMABLE}) && ({_ADMISSION}))"
