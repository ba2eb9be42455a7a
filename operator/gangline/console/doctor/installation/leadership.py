"""Checks of who decides: the Lease, the leader's own answers, and the visibility API that it serves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from prometheus_client.parser import text_string_to_metric_families

from gangline.api import names
from gangline.api.read.conditions import millis_of
from gangline.api.read.configuration.manager import KUEUES
from gangline.console.doctor.cluster import ClusterReads, Finding, failure, ok, short, unknown, warning
from gangline.console.doctor.examination import Findings
from gangline.console.doctor.installation import endpoints
from gangline.console.doctor.kueue_names import NAMESPACE as KUEUES_NAMESPACE
from gangline.console.views import reach
from gangline.control.answers.api import api_service, discovery
from gangline.kube import resources as kube
from gangline.kube.errors import Forbidden
from gangline.kube.resources import Json
from gangline.objects import Stored

# --- metrics in Prometheus' text format, as the operator shows them ---------------------------------------------------


#: metric name, labels, value
Samples: TypeAlias = list[tuple[str, dict[str, str], float]]
_LONGEST = 32 * 2**20


def read(text: str) -> Samples:
    """The gauges and counters of Gangline itself. Raises ValueError."""
    if len(text) > _LONGEST:
        raise ValueError(f"metrics of more than {_LONGEST} characters")
    lines = [line for line in text.splitlines() if "gangline_" in line]
    families = text_string_to_metric_families("\n".join(lines) + "\n")
    return [(sample.name, dict(sample.labels), sample.value) for family in families for sample in family.samples]


def total(samples: Samples, name: str) -> float:
    return sum(value for found, _, value in samples if found == name)


def by(samples: Samples, name: str, label: str) -> Iterator[tuple[str, float]]:
    """The values of a metric by one of its labels, without those that are zero."""
    return ((labels.get(label, ""), value) for found, labels, value in samples if found == name and value)


_START: Final = "start `gangline admin operator`, or look at its log"
#: the operator's APIServices, and what is missing without them
_APIS: Final = {
    f"{version}.{group.name}": lack
    for group, lack in (
        (discovery.VISIBILITY, "there are no positions in queues"),
        (discovery.ANSWERS, "users' commands can't ask the operator"),
    )
    for version in group.versions
}
#: writes that wait for their turn: more are a backlog that a healthy operator works off within seconds
BACKLOG: Final = 1000


async def leases(cluster: ClusterReads) -> list[tuple[str, Json]]:
    """The Lease with which Gangline and Kueue elect their leader, where it exists and may be read."""
    try:
        found = await cluster.get(kube.LEASES, KUEUES.namespace, KUEUES.name)
    except Forbidden:
        return []
    return [] if found is None else [(f"Lease {KUEUES}", found)]


async def lease(cluster: ClusterReads) -> Findings:
    where = f"Lease {KUEUES}"
    found = await cluster.get(kube.LEASES, KUEUES.namespace, KUEUES.name)
    if found is None:
        yield warning(f"there is no {where}: no operator with leader election has run here", _START)
        return
    spec = found.get("spec") or {}
    holder = str(spec.get("holderIdentity") or "")
    if not holder:
        yield failure(f"{where} is held by nobody: nothing is decided", _START)
        return
    now, _ = await cluster.server_clock()
    age = (now - millis_of(spec.get("renewTime"))) / 1000
    lasts = float(spec.get("leaseDurationSeconds") or KUEUES.lease_duration)
    pod = await _pod_of(cluster, holder)
    if age > lasts:
        gone = f"; pod {_host(holder)} is gone" if pod is None else ""
        yield failure(f"{where} was renewed {age:.0f} s ago by {holder}, and lasts {lasts:.0f} s{gone}", _START)
        return
    yield ok(f"held by {holder}, renewed {max(0.0, age):.0f} s ago")
    if pod is not None and (pod.get("status") or {}).get("phase") not in ("Running", None):
        phase = pod["status"]["phase"]
        yield warning(
            f"the holder's pod {pod['metadata']['name']} is {phase}", "look at the pod: it still renews the lease"
        )


async def _pod_of(cluster: ClusterReads, holder: str) -> Json | None:
    """The pod of that host name, in Gangline's or Kueue's namespace."""
    for namespace in dict.fromkeys((names.SYSTEM_NAMESPACE, KUEUES_NAMESPACE)):
        for pod in await cluster.list(kube.PODS, namespace):
            if pod["metadata"]["name"] == _host(holder):
                return pod
    return None


def _host(holder: str) -> str:
    """The host name of a leader's identity, which is a host name and a random suffix."""
    return holder.rpartition("_")[0] or holder


async def leader(cluster: ClusterReads) -> Findings:
    """Check of what the leader itself says, through the API server's proxy or on this machine."""
    if await reach.ask(cluster.api, "/cluster") is None:
        if await reach.was_here(cluster.api):
            yield failure("the operator that ran on this machine does not answer: nothing is admitted", _START)
            return
        advice = "it answers users who may proxy to its pod, and on its own machine"
        yield unknown("the leader does not answer, or you may not ask it", advice)
        return
    for path, meaning in (("/healthz", "its loop stands still"), ("/readyz", "it is not ready")):
        answer = await reach.page(cluster.api, path)
        if answer is None or answer.status != 200:
            said = f" ({answer.status}: {answer.text})" if answer else ""
            yield failure(f"{path} of the leader does not say ok: {meaning}{said}", "look at the operator's log")
    answer = await reach.page(cluster.api, "/metrics")
    if answer is None or answer.status != 200:
        advice = "see gangline_waiting_writes there"
        yield unknown("how far the leader is behind: it shows its metrics at another address, over TLS", advice)
        return
    for finding in _lag(read(answer.text)):
        yield finding


def _lag(shown: Samples) -> list[Finding]:
    """The findings about whether the leader keeps up, from its metrics."""
    found: list[Finding] = []
    if not total(shown, "gangline_leader"):
        found.append(failure("the process that answers does not lead", _START))
    waiting = total(shown, "gangline_waiting_writes")
    if waiting > BACKLOG:
        advice = "see whether the API server is slow: the operator slows down to its pace"
        found.append(warning(f"{waiting:.0f} writes wait for their turn", advice))
    stuck = total(shown, "gangline_quarantined_objects")
    if stuck:
        kinds = ", ".join(f"{count:.0f} {kind}" for kind, count in by(shown, "gangline_quarantined_objects", "kind"))
        advice = "each has an event `Misconfigured` that names the field"
        found.append(warning(f"objects that cannot be handled are left alone: {kinds}", advice))
    for queue, paused in by(shown, "gangline_recovery_paused", "cluster_queue"):
        if paused:
            advice = "bring the nodes back, or delete them; see the event `RecoveryPaused`"
            found.append(warning(f"ClusterQueue {queue}: too many nodes were lost at once, no gang is moved", advice))
    return found or [ok(f"healthy, ready, {waiting:.0f} writes wait")]


async def visibility(cluster: ClusterReads) -> Findings:
    for name, lack in _APIS.items():
        found = await cluster.get(api_service.API_SERVICES, None, name)
        if found is None:
            advice = "give the operator --visibility-listen, or POD_IP in a pod"
            yield warning(f"APIService {name} is not registered: {lack}", advice)
            continue
        service = found["spec"].get("service") or {}
        row = Stored(found).condition("Available") or {}
        if row.get("status") == "True":
            yield ok(f"APIService {name} is available")
            continue
        dead = await endpoints.trouble(cluster, {"service": service}) if service else ""
        where = f"Service {service.get('namespace')}/{service.get('name')}"
        detail = f"APIService {name} is not available ({short(str(row.get('message') or dead))}): no namespace can be deleted"
        yield failure(f"{detail}; it leads to {where}", f"start the operator, or kubectl delete apiservice {name}")
