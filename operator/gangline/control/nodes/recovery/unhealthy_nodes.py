"""Maintains `status.unhealthyNodes` as Kueue does: the failed nodes of a placed gang, until its pods are placed on others.

What follows is the engine's: the recovery moves the gang off the node as soon as the node is lost; where a policy leaves recovery
to Kubernetes, or nobody makes the gang's pods anew for Gangline, it finds another place a moment after the node is listed here,
or the gang is evicted. A node that returns before that is taken off the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from gangline.control.feed.mirror import Mirror
from gangline.control.kernel.context import Context
from gangline.control.nodes.recovery.failed_hosts import FailedNodeGates, Found, done_on, failed_hosts, hosts_of
from gangline.control.parts.part import Part
from gangline.control.writes.outgoing import Priority
from gangline.control.writes.status.change import Change
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.objects import NodeObject, PodObject, WorkloadObject

#: replacement of failed nodes, Kueue's and with it the list
GATE: Final = "TASFailedNodeReplacement"
#: Kueue's limit
MOST: Final = 8


class HostNames:
    """The nodes by their host names, which mostly are also the nodes' names."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._changed = mirror.changes.nodes.subscribe(worth=mirror.has(kube.NODES))
        self._hosts: dict[str, str] = {}  # node -> its host name
        self._nodes: dict[str, str] = {}  # and the other way round

    def learn(self) -> set[str]:
        """Take in the nodes that have changed. Returns the host names that they have, and those that they had."""
        found: set[str] = set()
        for node in self._changed.take():
            host = self._mirror.host_name(node)
            before = self._hosts.pop(node, host)
            if self._nodes.get(before) == node:
                del self._nodes[before]
            if self._mirror.nodes.get(node) is not None:
                self._hosts[node] = host
                self._nodes[host] = node
            found |= {host, before}
        return found

    def host(self, node: str) -> str:
        return self._hosts.get(node, node)

    def node(self, host: str) -> str:
        return self._nodes.get(host, host)

    def node_of(self, host: str) -> NodeObject | None:
        """The node with this host name; None if there is none."""
        return self._mirror.nodes.get(self.node(host))


class UnhealthyNodes(Part):
    """Lists failed nodes on the Workloads of placed gangs."""

    name = "nodes"

    def __init__(self, context: Context) -> None:
        self._mirror = context.mirror
        self._pods = context.pods
        self._owners = context.owners
        self._writes = context.writes
        self._rules = FailedNodeGates.of(context.gates)
        exists = context.mirror.has(kube.WORKLOADS)
        self._changed = context.mirror.changes.placed.subscribe(worth=exists)
        self._changed_pods = context.pods.changed.subscribe(worth=exists)
        context.owners.changed.feed(self._changed_pods)
        self._hosts: dict[str, frozenset[str]] = {}  # placed Workload -> its hosts
        self._at: dict[str, set[str]] = {}  # host -> the Workloads with pods there
        self._names = HostNames(context.mirror)
        self._troubled: set[str] = set()  # Workloads with a host that is not as it should be
        self._times: dict[str, int] = {}

    def lead(self) -> None:
        self._changed.update(self._mirror.placed_workloads())

    def act(self, now: int) -> None:
        look = {key for key, time in self._times.items() if time <= now}
        look |= self._changed_pods.take() & self._troubled
        for key in self._changed.take():
            self._index(key)
            look.add(key)
        for host in self._names.learn():
            look |= self._at.get(host, set())
        for key in sorted(look):
            self._look(key, now)
        self.due = min(self._times.values(), default=None)

    def _index(self, key: str) -> None:
        value = self._mirror.workload_value(key)
        hosts = frozenset(hosts_of(value.admission)) if value is not None else frozenset[str]()
        before = self._hosts.pop(key, frozenset[str]())
        for host in before - hosts:
            there = self._at[host]
            there.discard(key)
            if not there:
                del self._at[host]
        for host in hosts - before:
            self._at.setdefault(host, set()).add(key)
        if hosts:
            self._hosts[key] = hosts

    def _look(self, key: str, now: int) -> None:
        self._times.pop(key, None)
        value, raw = self._mirror.workload_value(key), self._mirror.workloads.get(key)
        if value is None or raw is None:
            self._index(key)
            self._troubled.discard(key)
            return
        if self._writes.in_doubt(kube.WORKLOADS, key):
            self._changed.add(key)
            return
        found = self._found(key, value, raw, now)
        if found.troubled:
            self._troubled.add(key)
        else:
            self._troubled.discard(key)
        if found.due is not None:
            self._times[key] = found.due
        hosts = in_order(value.unhealthy_nodes, found.failed)
        if hosts != value.unhealthy_nodes and value.admitted and not value.evicted and not value.finished:
            change = listed(hosts, raw.admission)
            self._writes.change(key, "unhealthy", change, priority=Priority.LIFECYCLE)

    def _found(self, key: str, value: model.Workload, raw: WorkloadObject, now: int) -> Found:
        pods = self._pods.of(key)
        busy = {pod.node for pod in pods if pod.alive}
        succeeded = [self._names.host(pod.node) for pod in pods if pod.succeeded]
        busy.update(self._names.node(host) for host in done_on(value.admission, succeeded))
        if value.unowned:  # nobody can prove that a pod is of it
            busy |= {pod.node for pod in self._owners.claimants(key) if is_alive(pod)}
        return failed_hosts(
            value,
            busy=busy,
            node_of=self._names.node_of,
            tolerations=Tolerations(self._mirror, raw),
            rules=self._rules,
            now=now,
        )


class Tolerations:
    """The tolerations of each pod set of an admitted Workload: its own, those of its flavors, and those that checks add."""

    def __init__(self, mirror: Mirror, workload: WorkloadObject) -> None:
        self._mirror = mirror
        self._workload = workload

    def __call__(self, pod_set: str) -> list[Json]:
        found: list[Json] = []
        for each in self._workload.pod_sets:
            if each.get("name", "main") == pod_set:
                found += ((each.get("template") or {}).get("spec") or {}).get("tolerations") or ()
        for each in self._workload.assignments:
            if each.get("name", "main") == pod_set:
                for flavor in sorted(set((each.get("flavors") or {}).values())):
                    named = self._mirror.flavor(flavor)
                    found += named.spec.get("tolerations") or () if named is not None else ()
        for check in self._workload.checks:
            for update in check.get("podSetUpdates") or ():
                if update.get("name") == pod_set:
                    found += update.get("tolerations") or ()
        return found


def is_alive(pod: PodObject) -> bool:
    """Whether the pod runs, or will run."""
    return not pod.deleting and not pod.has_ended


def in_order(known: Sequence[str], failed: Iterable[str]) -> tuple[str, ...]:
    """The list with these hosts: those on it first, at most as many as it takes."""
    failed = list(failed)
    kept = [host for host in known if host in failed]
    return tuple([*kept, *(host for host in failed if host not in kept)][:MOST])


def listed(hosts: Sequence[str], admission: Any) -> Change:
    """List these hosts, unless the gang has other places meanwhile."""

    def change(status: Json, now: int) -> None:
        if status.get("admission") != admission:
            return
        if hosts:
            status["unhealthyNodes"] = [{"name": host} for host in hosts]
        else:
            status.pop("unhealthyNodes", None)

    return change
