"""Recorded decisions and their inputs as an asker may see them: rows, and what was decided as one sentence in users' words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, assert_never

from gangline.control.answers.sight import Sight
from gangline.control.answers.usage.happenings import LONGEST, EventSubject
from gangline.control.audit.decision_index import RecordedDecision
from gangline.engine import HOSTNAME, MOVED, REVOKED, accelerators, model
from gangline.kube.resources import Json

#: nodes that a row names
MOST_NODES: Final = 64

#: why a job had to go, by the reason of its preemption
PREEMPTIONS: Final = {
    "InClusterQueue": "which goes first in this ClusterQueue",
    "InCohortReclamation": "which takes back quota of its ClusterQueue that was borrowed",
    "InCohortFairSharing": "whose ClusterQueue has the smaller share of the cohort",
    "InCohortReclaimWhileBorrowing": "which goes first and borrows in the cohort",
    REVOKED: "which has a reserved start that this one was let in before",
    "GaveWay": "which has waited long, and this one's work was saved at a checkpoint",
    MOVED: "which waited only because free room was scattered; this one goes on on other nodes",
    "InRecovery": "which lost nodes and needs others to go on",
}
_REQUEUES: Final = {
    "BackoffFinished": "its pause after the eviction is over",
    "Reactivated": "it is active again",
    "ClusterQueueRestarted": "its ClusterQueue is not stopped any more",
    "LocalQueueRestarted": "its LocalQueue is not stopped any more",
}


def sentence(decision: model.Decision) -> str:
    """What was decided. Other jobs are named by the keys of their Workloads, which `Sight.text` replaces."""
    match decision:
        case model.Admit():
            return _admitted(decision)
        case model.AskChecks(checks=checks):
            return f"The job needs these admission checks: {', '.join(checks) or 'none'}."
        case model.CompleteAdmission():
            return "The job starts: all its admission checks are ready."
        case model.Preempt(reason=reason, by=by):
            return f"The job is preempted for {by}, {PREEMPTIONS.get(reason, f'by the rule {reason}')}."
        case model.Evict(message=message, deactivate=deactivate):
            return f"The job is evicted{' and deactivated' if deactivate else ''}: {_ended(message)}"
        case model.Withdraw(ended=ended):
            return f"The job's quota is given back, since the {ended} is being deleted."
        case model.Requeue(reason=reason):
            return f"The job waits in its queue again: {_REQUEUES.get(reason, reason)}."
        case model.ReportPending(explanation=explanation):
            return f"The job waits: {_ended(explanation.message)}"
        case model.Swap():
            return "The job's pods get other places."
        case model.Heal(how=how, message=message):
            what = (
                "The job's lost pods are replaced" if how == "Replace" else "The whole job starts anew on other nodes"
            )
            return f"{what}: {_ended(message)}"
        case model.Warn(message=message):
            return _ended(message)
        case _:
            assert_never(decision)


def _admitted(decision: model.Admit) -> str:
    flavors = ", ".join(flavors_of(decision.admission))
    what = "The job starts" if decision.admitted else "The job has quota"
    where = f" on {flavors}" if flavors else ""
    early = ", before its turn, since that delays no reserved start" if decision.backfilled else ""
    checks = f", once these admission checks are ready: {', '.join(decision.checks)}" if decision.checks else ""
    return f"{what}{where}{early}{checks}."


def _ended(message: str) -> str:
    return message if message.endswith((".", "!", "?")) else f"{message}."


def cause_word(decision: model.Decision | None) -> str:
    """The reason of a decision, as one word; "" where it has none."""
    match decision:
        case model.ReportPending(explanation=explanation):
            return explanation.reason
        case model.Preempt() | model.Evict() | model.Requeue() | model.Warn():
            return decision.reason
        case model.Heal(cause=cause):
            return cause
        case _:
            return ""


def admission_of(decision: model.Decision | None) -> model.Admission | None:
    return decision.admission if isinstance(decision, model.Admit | model.Swap) else None


def flavors_of(admission: model.Admission) -> list[str]:
    return sorted({flavor for pod_set in admission.pod_sets for flavor in pod_set.flavors.values()})


def queue_of(each: RecordedDecision, of: EventSubject | None) -> str:
    """The ClusterQueue of a decision: the one that it names, else that of its job as it is now; "" if that is not known."""
    match each.decision:
        case model.Admit(admission=admission) | model.Swap(admission=admission):
            return admission.cluster_queue
        case model.Warn(kind="ClusterQueue", about=about):
            return about
        case _:
            return of.cluster_queue if of is not None else ""


def preemptor(each: RecordedDecision) -> str:
    """The key of the Workload for which another one is preempted; "" for other decisions."""
    return each.decision.by if isinstance(each.decision, model.Preempt) else ""


def row(each: RecordedDecision, subjects: Mapping[str, EventSubject], sight: Sight, jobs: Mapping[str, str]) -> Json:
    """A decision as a row. Of others' jobs it has what was decided, when, on which flavors, and for how many GPUs."""
    decision, of = each.decision, subjects.get(each.workload)
    seen = sees(each, sight)
    label = sight.label(each.workload) if each.workload else ""
    admission = admission_of(decision)
    gpus = of.gpus if of is not None else None
    if admission is not None:
        gpus = sum(accelerators(pod_set.usage) for pod_set in admission.pod_sets)
    by = preemptor(each)
    namespace, _, name = each.workload.partition("/")
    unknown = "Another version of Gangline recorded what this one can't read."
    text = sight.text(unknown if decision is None else sentence(decision), jobs) if seen else ""
    return {
        "metadata": {"name": str(each.number), **({"namespace": namespace} if seen and namespace else {})},
        "number": each.number,
        "at": each.at / 1000,
        "round": each.round,
        "decision": each.kind,
        "hidden": not seen,
        "namespace": namespace if seen else "",
        "workload": name if seen else label,
        "jobKind": of.job_kind if seen and of is not None else "",
        "jobName": (of.job_name if of is not None else name) if seen else label,
        "user": of.user if seen and of is not None else "",
        "queue": of.queue if seen and of is not None else "",
        "clusterQueue": sight.queue_name(queue_of(each, of)),
        "gpus": gpus,
        "reason": cause_word(decision) if seen else "",
        "text": text[:LONGEST],  # only now: of a name that was cut off before, a part would stay
        "by": job_of(by, subjects, sight) if seen and by else "",
        "flavors": flavors_of(admission) if admission is not None else list(of.flavors) if of is not None else [],
        "nodes": nodes_of(decision)[:MOST_NODES] if seen else [],
        "backfilled": isinstance(decision, model.Admit) and decision.backfilled,
    }


def sees(each: RecordedDecision, sight: Sight) -> bool:
    """Whether the asker may see a decision in full: one about no Workload, whoever sees everything."""
    return sight.sees(each.namespace) if each.workload else sight.everything


def job_of(key: str, subjects: Mapping[str, EventSubject], sight: Sight) -> str:
    """A job as `kind/name`; a label for a hidden one, and the Workload's name for one that is gone."""
    namespace, _, name = key.partition("/")
    if not sight.sees(namespace):
        return sight.label(key)
    of = subjects.get(key)
    return f"{of.job_kind.lower()}/{of.job_name}" if of is not None else name


def nodes_of(decision: model.Decision | None) -> list[str]:
    """The nodes that a decision names: to which a gang is assigned whole, or which it lost."""
    if isinstance(decision, model.Heal):
        return list(decision.lost)
    admission = admission_of(decision)
    found: list[str] = []
    for pod_set in admission.pod_sets if admission is not None else ():
        placed = pod_set.topology
        if placed is not None and placed.levels and placed.levels[-1] == HOSTNAME:
            found += [domain.values[-1] for domain in placed.domains if domain.values]
    return sorted(set(found))


# --- inputs -----------------------------------------------------------------------------------------------------------


def keys_in(answer: Json) -> set[str]:
    """The keys of the Workloads that the inputs of a decision, or the differences of a check, name."""
    found = {key for key in map(_key_of, (*answer.get("recorded", ()), *answer.get("repeated", ()))) if key}
    for each in answer.get("differences", ()):
        found |= keys_in(each)
    known = answer.get("inputs", {})
    found |= {known[name]["workload"] for name in ("workload", "by") if known.get(name)}
    return found | ({known["queue"]["head"]} - {""} if known.get("queue") else set[str]())


def inputs_seen(answer: Json, subjects: Mapping[str, EventSubject], sight: Sight) -> Json:
    """The inputs of a decision as the asker may see them."""
    known, queue = answer["inputs"], answer["inputs"]["queue"]
    if queue is not None:
        head = job_of(queue["head"], subjects, sight) if queue["head"] else ""
        queue = {**queue, "name": sight.queue_name(queue["name"]), "head": head}
    return {
        "same": answer["same"],
        "version": answer["version"],
        **rounds_seen(answer, sight),
        "inputs": {
            **known,
            "workload": _workload_seen(known["workload"], subjects, sight),
            "queue": queue,
            "by": _workload_seen(known["by"], subjects, sight),
        },
    }


def rounds_seen(answer: Json, sight: Sight) -> Json:
    """The recorded and the repeated decisions of a round, each as its kind and the Workload."""
    return {name: [_named(each, sight) for each in answer[name]] for name in ("recorded", "repeated")}


def _workload_seen(known: Json | None, subjects: Mapping[str, EventSubject], sight: Sight) -> Json | None:
    """A workload's inputs; of a hidden one those that every answer has: its size, its state and its position."""
    if known is None:
        return None
    key: str = known["workload"]
    seen = sight.sees(key.partition("/")[0])
    shown = {**known, "workload": key.partition("/")[2] if seen else sight.label(key), "hidden": not seen}
    shown["job"] = job_of(key, subjects, sight)
    return shown if seen else {**shown, "priority": None, "created": None, "queue": "", "forecast": None, "saved": None}


def _key_of(text: str) -> str:
    key = text.partition(" ")[2]
    return key if "/" in key else ""


def _named(text: str, sight: Sight) -> str:
    """`Kind workload` with a label in place of a hidden Workload, and of a node or queue for who does not see everything."""
    kind, _, about = text.partition(" ")
    if sight.everything or ("/" in about and sight.sees(about.partition("/")[0])):
        return text
    return f"{kind} {sight.label(about)}"


def with_user(of: EventSubject, user: str) -> EventSubject:
    return replace(of, user=user or of.user)


def namespaces_of(found: Sequence[RecordedDecision]) -> set[str]:
    """The namespaces of the Workloads that decisions are about, or for which they are made."""
    keys = {key for each in found for key in (each.workload, preemptor(each)) if key}
    return {key.partition("/")[0] for key in keys}
