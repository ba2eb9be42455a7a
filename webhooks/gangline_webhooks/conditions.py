"""CEL expressions that decide, inside the API server, whether a request is sent to a webhook.

They are evaluated on the object as sent, whose optional parts may be missing: hence `.?field` and `[?key]` everywhere. An
expression that fails would reject a request (or skip a check), so each must evaluate for any object that its schema allows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gangline.api import names
from gangline.api.admission.of_jobs import jobs
from gangline.api.jobkinds.declaration import Suspension
from gangline.jobs import BY_RESOURCE
from gangline.kube import resources

#: annotations of a job that rules read; others, such as kubectl's own, change without a call
_JOB_ANNOTATIONS: Final = (
    names.QUEUE_NAME,
    names.PREBUILT_WORKLOAD,
    names.ADMISSION_GATED_BY,
    names.PRIORITY_BOOST,
    names.ARRAY_LIMIT,
    names.MIN_PARALLELISM,
    names.COMPLETIONS_EQUAL_PARALLELISM,
    *names.DEPENDENCIES,
    jobs.ELASTIC,
)

IS_NEW: Final = "request.operation == 'CREATE'"
SPEC_CHANGED: Final = f"{IS_NEW} || object.?spec != oldObject.?spec"


def all_of(*expressions: str) -> str:
    """One expression, cheapest part first. Several conditions would all be evaluated, whatever the first one yields."""
    return " && ".join(f"({expression})" for expression in expressions)


def _label(of: str, key: str) -> str:
    return f"{of}.metadata.?labels[?'{key}']"


def _annotation(of: str, key: str) -> str:
    return f"{of}.metadata.?annotations[?'{key}']"


def _names_queue(of: str) -> str:
    key = names.QUEUE_NAME
    return f"({_label(of, key)}.hasValue() || {_annotation(of, key)}.hasValue())"


NAMES_QUEUE: Final = _names_queue("object")
NAMES_NO_QUEUE: Final = f"!{NAMES_QUEUE}"
#: also a job that is about to leave its queue
NAMES_OR_NAMED_QUEUE: Final = f"{NAMES_QUEUE} || (oldObject != null && {_names_queue('oldObject')})"
NEITHER_NAMES_NOR_NAMED_QUEUE: Final = f"!({NAMES_OR_NAMED_QUEUE})"

#: new, or its queue is still named by annotation alone
LACKS_DEFAULTS: Final = f"{IS_NEW} || !{_label('object', names.QUEUE_NAME)}.hasValue()"
#: a running job whose size changes: one that grew is suspended
_SIZE_CHANGED: Final = " || ".join(
    f"object.spec.?{field} != oldObject.spec.?{field}" for field in ("parallelism", "completions", "replicatedJobs")
)
RESIZED_AT_WORK: Final = f"!object.spec.?suspend.orValue(false) && ({_SIZE_CHANGED})"


def _listed(values: Iterable[str]) -> str:
    return "[" + ", ".join(f"'{value}'" for value in values) + "]"


def stands_alone() -> str:
    """An object without a controller that may wait in a queue itself; above all, children of a GPUJob are the operator's own."""
    return (
        "!object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false) && "
        f"o.kind in {_listed(sorted({kind for _, kind in jobs.queued_owners()}))})"
    )


def starts_below(suspension: Suspension, namespace: str) -> str:
    """A job that may run, by creation or since it is unsuspended, and whose controller may wait in a queue. Anybody can write an
    owner reference.

    Children that controllers create cause no call: the requester is a service account of another namespace than theirs. Of a
    GPUJob only the operator creates any, in `namespace` ("" = it has no service account).
    """
    user, accounts = "request.userInfo.username", "system:serviceaccount:"
    by_operator = f"{user}.startsWith('{accounts}{namespace}:')" if namespace else "false"
    by_controller = (
        f"({user}.startsWith('{accounts}') && !{user}.startsWith('{accounts}' + object.metadata.namespace + ':'))"
    )
    other_kinds = _listed(sorted({kind for _, kind in jobs.queued_owners()} - {resources.GPU_JOBS.kind}))
    below = (
        "object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false) && "
        f"((o.kind == '{resources.GPU_JOBS.kind}' && !{by_operator}) || (o.kind in {other_kinds} && !{by_controller})))"
    )
    held, was_held = suspension.cel("object"), suspension.cel("oldObject")
    return f"!({held}) && ({IS_NEW} || ({was_held})) && {below}"


_LABELS_CHANGED: Final = "object.metadata.?labels != oldObject.metadata.?labels"
_ANNOTATIONS_CHANGED: Final = (
    f"{_listed(_JOB_ANNOTATIONS)}.exists(k, object.metadata.?annotations[?k] != oldObject.metadata.?annotations[?k])"
)
#: Unsuspending a job with its admission in the template, and restoring the template after a stop, are the operator's most
#: frequent writes: neither causes a call.
_JOB_SIZE_CHANGED: Final = (
    "object.spec.?parallelism != oldObject.spec.?parallelism || object.spec.?completions != oldObject.spec.?completions"
)
_STAYS_HELD: Final = (
    "object.spec.?suspend.orValue(false) && oldObject.spec.?suspend.orValue(false) && "
    f"!{_annotation('oldObject', names.STOPPING)}.hasValue()"
)
_JOB_META_CHANGED: Final = f"{IS_NEW} || {_LABELS_CHANGED} || {_ANNOTATIONS_CHANGED}"
JOB_CHANGED: Final = (
    f"{_JOB_META_CHANGED} || {_JOB_SIZE_CHANGED} || ({_STAYS_HELD} && object.spec.template != oldObject.spec.template)"
)
JOB_SET_CHANGED: Final = (
    f"{_JOB_META_CHANGED} || ({_STAYS_HELD} && object.spec.?replicatedJobs != oldObject.spec.?replicatedJobs)"
)


def changed_at_work(suspension: Suspension) -> str:
    """A declared job that runs has another spec than before: it may have grown. Starting and stopping it is neither."""
    held, was_held = suspension.cel("object"), suspension.cel("oldObject")
    return f"!({held}) && !({was_held}) && object.?spec != oldObject.?spec"


def declared_job_changed(suspension: Suspension) -> str:
    """What a rule of a declared job may look at: not its start and its stop, which are the operator's."""
    held, was_held = suspension.cel("object"), suspension.cel("oldObject")
    return f"{_JOB_META_CHANGED} || (({held}) == ({was_held}) && object.?spec != oldObject.?spec)"


#: what a rule of a kind may look at whose pods wait in its place
SERVING_CHANGED: Final = f"{_JOB_META_CHANGED} || object.?spec != oldObject.?spec"
_MARK: Final = f".?metadata.?annotations[?'{names.SUSPENDED_BY_PARENT}'].hasValue()"
#: new, or its pods wait, though it names no queue
IS_NEW_OR_MARKED: Final = (
    f"{IS_NEW} || oldObject.?spec.?template{_MARK} || oldObject.?spec.?leaderWorkerTemplate.?workerTemplate{_MARK}"
)
#: anything but the switch
_GPU_JOB_SPEC_CHANGED: Final = (
    "object.spec.exists(k, k != 'suspend' && object.spec[?k] != oldObject.spec[?k]) || "
    "oldObject.spec.exists(k, k != 'suspend' && !(k in object.spec))"
)
GPU_JOB_CHANGED: Final = f"{_JOB_META_CHANGED} || {_GPU_JOB_SPEC_CHANGED}"


def _has_no_job() -> str:
    """Created by hand or by another controller; those that the operator made were derived from a job that was checked."""
    return (
        "!object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false) && "
        f"o.kind in {_listed(sorted(kind.kind for kind in BY_RESOURCE.values()))})"
    )


_POD_SETS_CHANGED: Final = "object.?spec.?podSets != oldObject.?spec.?podSets"
_HAD_QUOTA: Final = (
    "oldObject.?status.?conditions.orValue([]).exists(c, c.type == 'QuotaReserved' && c.status == 'True')"
)
_BOOST, _OLD_BOOST = (_annotation(side, names.PRIORITY_BOOST) for side in ("object", "oldObject"))
_BOOST_IS_ODD: Final = f"{_BOOST}.hasValue() && !{_BOOST}.value().matches('^[+-]?[0-9]{{1,9}}$')"
_ASKS_FOR_PRIORITY: Final = (
    f"{_BOOST}.hasValue() || object.?spec.?priority.orValue(0) > 0 || object.?spec.?priorityClassRef.hasValue() || "
    "object.?spec.?priorityClassName.hasValue()"
)
_PRIORITY_CHANGED: Final = " || ".join(
    f"object.?spec.?{field} != oldObject.?spec.?{field}"
    for field in ("priority", "priorityClassRef", "priorityClassName")
)
_SLICE, _OLD_SLICE = (_annotation(side, names.REPLACEMENT_FOR) for side in ("object", "oldObject"))
_NAMES_ANOTHER_SLICE: Final = f"{_SLICE}.hasValue() && {_SLICE} != {_OLD_SLICE}"
_GATES, _OLD_GATES = (_annotation(side, names.ADMISSION_GATED_BY) for side in ("object", "oldObject"))
#: some are gone and none came, as when the operator removes those that its job lost
_GATES_ARE_FEWER: Final = (
    f"{_GATES}.orValue('') == '' || {_GATES}.value().split(',').all(g, "
    f"{_GATES}.value().split(',').exists_one(h, h == g) && {_OLD_GATES}.orValue('').split(',').exists(h, h == g))"
)
#: Templates are open in the schema, so each step checks the type of what it reads: CEL that fails on an odd object would
#: reject it with an unhelpful message.
_COUNTABLE: Final = (
    "k != 'pods' && (type(r[k]) == string || type(r[k]) == int || type(r[k]) == double) && isQuantity(string(r[k])) && "
    "!string(r[k]).startsWith('-') && quantity(string(r[k])).isLessThan(quantity('1E'))"
)
_PLAIN_CONTAINERS: Final = (
    "object.?spec.?podSets.orValue([]).all(p, "
    "[p.?template.?spec.?initContainers.orValue([]), p.?template.?spec.?containers.orValue([])].all(l, "
    "type(l) == list && l.all(c, type(c) == map && type(c.?resources.orValue({})) == map && "
    "[c.?resources.?requests.orValue({}), c.?resources.?limits.orValue({})].all(r, "
    f"type(r) == map && r.all(k, {_COUNTABLE})))))"
)
_NOTHING_SPECIAL: Final = (
    "object.?spec.?podSets.orValue([]).all(p, !has(p.minCount) && !p.?template.?spec.?overhead.hasValue() && "
    "!p.?template.?spec.?resources.hasValue() && p.?template.?metadata.?labels.orValue({}) == {} && "
    "p.?template.?metadata.?annotations.orValue({}) == {} && p.?topologyRequest.?podSetSliceSize.hasValue() == "
    "p.?topologyRequest.?podSetSliceRequiredTopology.hasValue())"
)
#: what `pods.check_placement` checks
_PLAIN_PLACEMENT: Final = (
    "object.?spec.?podSets.orValue([]).all(p, type(p.?template.?spec.?nodeSelector.orValue({})) == map && "
    "p.?template.?spec.?nodeSelector.orValue({}).all(k, type(p.template.spec.nodeSelector[k]) == string) && "
    "type(p.?template.?spec.?affinity.orValue({})) == map && "
    "type(p.?template.?spec.?affinity.?nodeAffinity.orValue({})) == map && "
    "[p.?template.?spec.?priorityClassName.orValue(''), p.?template.?spec.?runtimeClassName.orValue(''), "
    "p.?template.?spec.?schedulerName.orValue('')].all(t, type(t) == string) && "
    "[p.?template.?spec.?tolerations.orValue([]), p.?template.?spec.?resourceClaims.orValue([]), "
    "p.?template.?spec.?schedulingGates.orValue([]), p.?template.?spec.?topologySpreadConstraints.orValue([])]"
    ".all(l, type(l) == list && l.all(e, type(e) == map)))"
)
#: Almost every workload requests plain amounts, which CEL can check; only the others cause a call, for the error message.
_IS_UNUSUAL: Final = f"!({_PLAIN_CONTAINERS}) || !({_PLAIN_PLACEMENT}) || !({_NOTHING_SPECIAL})"


def workload_is_questionable() -> str:
    """The operator's own writes are none of these: it never changes the pods of a workload with quota."""
    strange = f"{_has_no_job()} && "
    new = f"{_BOOST_IS_ODD} || ({strange}({_GATES}.hasValue() || {_ASKS_FOR_PRIORITY} || {_IS_UNUSUAL}))"
    change = (
        f"({_POD_SETS_CHANGED} && ({_HAD_QUOTA} || ({strange}({_IS_UNUSUAL})))) || "
        f"({_BOOST} != {_OLD_BOOST} && {_BOOST}.hasValue()) || ({_PRIORITY_CHANGED}) || "
        f"({_NAMES_ANOTHER_SLICE}) || ({_GATES} != {_OLD_GATES} && !({_GATES_ARE_FEWER}))"
    )
    return f"{IS_NEW} ? ({new}) : ({change})"


# --- CEL that decides, inside the API server, whether a write of a Workload's status may break a rule -----------------
#
# Status writes are the operator's most frequent ones, so the conditions say what `gangline.api.admission.workload`
# says: a write that breaks no rule causes no call, whoever sends it, and an outage of the webhooks stops none. Only a write
# that seems to break a rule goes on to the webhook, which has the last word, and the words. What is nearly always true stands
# first.
#
# `tests/webhooks/test_on_cluster.py` compares both.


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


# --- CEL expressions that decide which pods are sent to a webhook, where plain pods are queued at all -----------------
#
# Pods are the most frequent objects of a cluster: a pod that names no queue costs it an expression, and no call. The
# operator's own writes, of gates and finalizers, cause none.


_LABELS: Final = (
    *(names.QUEUE_NAME, names.PRIORITY_CLASS, names.MAX_EXEC_TIME, names.PREBUILT_WORKLOAD),
    *(names.MANAGED, names.POD_GROUP, names.POD_GROUP_INDEX),
)
_ANNOTATIONS: Final = (
    *(names.QUEUE_NAME, names.PREBUILT_WORKLOAD, names.ADMISSION_GATED_BY, names.POD_GROUP, names.POD_GROUP_TOTAL),
    names.PRIORITY_BOOST,
    *names.DEPENDENCIES,
    *(names.POD_GROUP_FAST, names.RETRIABLE_IN_GROUP, names.REQUIRED_TOPOLOGY, names.PREFERRED_TOPOLOGY),
    *(names.UNCONSTRAINED_TOPOLOGY, names.SLICE_REQUIRED_TOPOLOGY, names.SLICE_SIZE, names.PODSET_GROUP),
    names.SLICE_CONSTRAINTS,
)


def _listed_pods(keys: tuple[str, ...]) -> str:
    return "[" + ", ".join(f"'{key}'" for key in keys) + "]"


def _has(of: str, part: str, keys: tuple[str, ...]) -> str:
    return f"{_listed_pods(keys)}.exists(k, {of}.metadata.?{part}[?k].hasValue())"


_OURS: Final = (
    f"{_has('object', 'labels', (names.QUEUE_NAME, names.MANAGED, names.POD_GROUP))} || "
    f"{_has('object', 'annotations', (names.QUEUE_NAME, names.POD_GROUP, names.POD_GROUP_TOTAL))}"
)
_WAS_OURS: Final = (
    f"(oldObject != null && ({_has('oldObject', 'labels', (names.QUEUE_NAME, names.MANAGED, names.POD_GROUP))}))"
)
HELD_BY_PARENT: Final = f"object.metadata.?annotations[?'{names.SUSPENDED_BY_PARENT}'].hasValue()"
WAITS: Final = f"{NAMES_QUEUE} || {HELD_BY_PARENT}"
#: for the namespace's default LocalQueue, and for manageJobsWithoutQueueName
MAY_WAIT: Final = f"{NAMES_NO_QUEUE} && !{HELD_BY_PARENT}"
IS_OURS: Final = f"{_OURS} || {_WAS_OURS}"
CHANGED: Final = (
    f"{IS_NEW} || {_listed_pods(_LABELS)}.exists(k, object.metadata.?labels[?k] != oldObject.metadata.?labels[?k]) "
    f"|| {_listed_pods(_ANNOTATIONS)}.exists(k, object.metadata.?annotations[?k] != oldObject.metadata.?annotations[?k])"
)
