"""What happens in a history: jobs come and go, administrators change their minds, checks answer, nodes fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tests.builders.engine import GPU
from tests.engine.histories.cluster import Cluster
from tests.engine.histories.configuration import BLOCK, CPU, RACK, ZONE

from gangline.engine.model import (
    CheckState,
    ClusterQueue,
    Expression,
    ForeignPod,
    Gone,
    LocalQueue,
    Node,
    PodSet,
    PreferredTerm,
    RuntimeForecast,
    Slice,
    Taint,
    Toleration,
    TopologyRequest,
    Workload,
)

#: forecast and real run times in seconds
LENGTHS: Final = (20, 60, 300, 1200, 7200)


class Events(Cluster):
    """Each method is one event, about an object drawn at random; it does nothing where there is none."""

    def submit(self) -> None:
        self.count += 1
        name = f"w{self.count}"
        pod_sets = tuple(self._pod_set(part) for part in ("main", "driver")[: self.one_of((1, 1, 1, 2))])
        if self.drawn.theme == "slices":
            pod_sets = self._whole_domains()
        elif len(pod_sets) == 2 and pod_sets[0].topology and self.chance(0.5):
            grouped = replace(pod_sets[0].topology, group="together", slices=())
            one = replace(pod_sets[1], count=1, min_count=None, topology=grouped)
            pod_sets = (replace(pod_sets[0], topology=grouped), one)
        workload = Workload(
            f"uid-{name}",
            "team",
            name,
            self.one_of(tuple(self.drawn.queues)) + self.one_of(("", "", "-other")),
            pod_sets,
            priority=self.between(0, 3),
            created=self.now,
            max_execution_seconds=self.one_of((None, None, None, 900)),
            checkpoint_seconds=self.one_of((None, 20, 60)),
            restarts_whole=self.drawn.theme == "slices" or self.chance(0.2),
            gates=("example.com/gate",) if self.chance(0.01) else (),
        )
        self.lengths[name] = self.one_of(LENGTHS)
        self.tell(workload)
        if self.chance(0.8):
            self._foresee(name, self.lengths[name])

    def _pod_set(self, name: str) -> PodSet:
        count = self.between(1, 4)
        return PodSet(
            name,
            count,
            {GPU: self.one_of((1, 1, 2, 4)), CPU: self.one_of((500, 2000))},
            min_count=self.between(1, count) if self.chance(0.25) else None,
            node_selector=self.one_of(({}, {}, {}, {ZONE: "a"}, {"disk": "ssd"})),
            tolerations=(Toleration("fast", "Exists"),) if self.chance(0.6) else (),
            affinity=((Expression("disk", "In", ("ssd", "hdd")),),) if self.chance(0.1) else (),
            preferred_affinity=(PreferredTerm(10, (Expression("disk", "In", ("ssd",)),)),) if self.chance(0.3) else (),
            topology=self._request(count) if self.drawn.theme == "topology" else None,
        )

    def _request(self, count: int) -> TopologyRequest | None:
        layers = (Slice(RACK, 2),) if count % 2 == 0 and self.chance(0.3) else ()
        return self.one_of(
            (
                None,
                TopologyRequest(required=RACK, slices=layers),
                TopologyRequest(required=BLOCK, slices=layers),
                TopologyRequest(preferred=RACK),
                TopologyRequest(preferred=BLOCK, slices=layers),
                TopologyRequest(unconstrained=True),
            )
        )

    def _whole_domains(self) -> tuple[PodSet, ...]:
        if self.chance(0.3):
            return (self._pod_set("main"),)
        racks = self.between(1, 3)
        fast = (Toleration("fast", "Exists"),) if self.chance(0.5) else ()
        return (PodSet("slice", racks * 2, {GPU: 4}, tolerations=fast, exclusive=RACK, domains=racks),)

    def _foresee(self, name: str, length: int) -> None:
        length = round(length * 1000 * self.one_of((0.4, 1, 1, 3)))
        points = ((0.1, length // 4), (0.5, length), (0.9, length * self.one_of((2, 5))))
        slower = {"h100": tuple((level, time * 2) for level, time in points)} if self.chance(0.3) else {}
        source, samples = self.one_of((("Model", 9), ("Hint", 0), ("Global", 50), ("Class", 20)))
        self.tell(RuntimeForecast(f"team/{name}", points, source, samples, slower))

    def finish_one(self) -> None:
        if running := self.running():
            name = self.one_of(running)
            self.log.append(f"finish {name}")
            self.finish(name)
            self.drop_pods(f"team/{name}")

    def finish_those_at_their_end(self) -> None:
        for name in self.running():
            workload = self.workloads[f"team/{name}"]
            if workload.admitted and self.now >= workload.admitted_at + self.lengths[name] * 1000:
                self.log.append(f"finish {name}")
                self.finish(name)
                self.drop_pods(workload.key)

    def delete_one(self) -> None:
        if self.workloads:
            name = self.one_of(sorted(self.workloads)).partition("/")[2]
            self.log.append(f"delete {name}")
            self.delete(name)
            self.drop_pods(f"team/{name}")

    def _some(self, which: Callable[[Workload], bool]) -> Workload | None:
        those = [workload for _, workload in sorted(self.workloads.items()) if which(workload)]
        return self.one_of(those) if those else None

    def change_workload(self) -> None:
        if not (workload := self._some(lambda _: True)):
            return
        waiting = workload.admission is None
        main = workload.pod_sets[0]
        self.alter(
            workload,
            **self.one_of(
                (
                    {"active": not workload.active or self.chance(0.5)},
                    {"priority": self.between(0, 3)},
                    {"boost": self.between(-1, 2)},
                    {"queue": self.one_of(tuple(self.drawn.queues))} if waiting else {"stalled": "Requeue"},
                    {} if waiting or main.count < 2 else {"reclaimable": {main.name: 1}},
                    {} if waiting else {"preemptions": workload.preemptions + 1},
                    {"checkpoint_seconds": 10},
                    {"gates": ()},
                )
            ),
        )

    def change_queue(self) -> None:
        old = self.drawn.queues[self.one_of(tuple(self.drawn.queues))]
        new = self.drawn.queue(old.name, self.one_of((old.cohort, old.cohort, "left", "right", "")))
        self.drawn.queues[old.name] = new
        self.tell(new)

    def stop_queue(self) -> None:
        stopped = [name for name, queue in self.drawn.queues.items() if queue.stop_policy != "None"]
        name = self.one_of(stopped or tuple(self.drawn.queues))
        policy = "None" if stopped or self.chance(0.6) else self.one_of(("Hold", "HoldAndDrain"))
        if stopped or self.chance(0.5):
            self.drawn.queues[name] = replace(self.drawn.queues[name], stop_policy=policy)
            self.tell(self.drawn.queues[name])
        else:
            self.tell(LocalQueue("team", name, name, stop_policy=policy, weight=self.one_of((1.0, 2.0))))

    def delete_queue(self) -> None:
        name = self.one_of(tuple(self.drawn.queues))
        gone = [each for each in self.drawn.queues if each not in self.engine._store.cluster_queues]
        if gone:
            self.tell(self.drawn.queues[self.one_of(gone)])
        elif self.chance(0.3):
            self.log.append(f"delete queue {name}")
            self.engine.observe(Gone(ClusterQueue, name))
        else:
            self.tell(self.drawn.queues[name])

    def operator_dies(self) -> None:
        self.log.append("operator dies")
        self.restart()
        for key in sorted(self.pods):
            self.report(key)

    def answer_checks(self) -> None:
        if workload := self._some(lambda w: bool(w.checks) and w.admission is not None and not w.evicted):
            answer = self.one_of(workload.checks)
            state = self.one_of(("Ready", "Ready", "Ready", "Retry", "Rejected"))
            after = self.one_of((None, 0, 40))
            state_of_check = CheckState(answer.name, state, "so it is", self.now, after, self.one_of((None, 1)))
            checks = tuple(state_of_check if check.name == state_of_check.name else check for check in workload.checks)
            self.alter(workload, checks=checks)

    def forecast_anew(self) -> None:
        if workload := self._some(lambda _: True):
            self._foresee(workload.name, self.one_of(LENGTHS))

    def pods_ready(self) -> None:
        if workload := self._some(lambda w: w.admitted and not w.evicted):
            ready = not workload.pods_ready
            self.alter(workload, pods_ready=ready, pods_ready_at=self.now, pods_were_ready=not ready)

    # --- nodes and pods -----------------------------------------------------------------------------------------------

    def node_trouble(self) -> None:
        if not self.nodes:
            return
        node = self.nodes[self.one_of(sorted(self.nodes))]
        if self.chance(0.12):
            self.log.append(f"delete node {node.name}")
            self.engine.observe(Gone(Node, node.name))
            return
        silent = replace(node, ready=False, conditions={"Ready": ("Unknown", self.now - 40_000)})
        soon = str((self.now + self.one_of((600_000, 7_200_000))) // 1000)
        self.tell(
            self.one_of(
                (
                    silent,
                    silent,
                    replace(node, ready=False, conditions={"Ready": ("False", self.now)}),
                    replace(node, unschedulable=True),
                    replace(node, taints=(*node.taints, Taint("node.kubernetes.io/out-of-service", "", "NoExecute"))),
                    replace(node, taints=(*node.taints, Taint("odd", "", self.one_of(("NoExecute", "NoSchedule"))))),
                    replace(node, conditions={"GpuMemWatch": ("True", self.now)}),
                    replace(node, conditions={"DiskSick": ("True", self.now)}),
                    replace(node, labels={**node.labels, "cloud.google.com/scheduled-maintenance-time": soon}),
                    replace(node, labels={**node.labels, "dgxc.nvidia.com/nvsentinel-state": "draining"}),
                    replace(node, allocatable={**node.allocatable, GPU: 2}),
                )
            )
        )

    def node_back(self) -> None:
        sick = [node for name, node in sorted(self.drawn.nodes.items()) if self.nodes.get(name) != node]
        if sick:
            node = self.one_of(sick)
            if node.name not in self.nodes and self.chance(0.5):
                node = self.drawn.nodes[node.name] = replace(node, uid=f"{node.uid}+")
            self.tell(node)

    def foreign_pod(self) -> None:
        name = self.one_of(sorted(self.drawn.nodes))
        key = f"other/{name}"
        if key in self.engine._store.foreign_pods:
            self.log.append(f"delete pod {key}")
            self.engine.observe(Gone(ForeignPod, key))
        else:
            self.tell(ForeignPod(key, name, {CPU: 16_000, GPU: self.between(0, 2), "pods": 1}))

    def pod_trouble(self) -> None:
        keys = [key for key, pods in sorted(self.pods.items()) if pods]
        if not keys:
            return
        key = self.one_of(keys)
        pod = self.one_of(self.pods[key])
        failed: tuple[tuple[str, str], ...] = ()
        if self.chance(0.5):
            going = replace(pod, terminating=True, due=self.now + self.one_of((0, 30_000)))
            self.pods[key] = [going if each == pod else each for each in self.pods[key]]
        else:
            self.pods[key] = [each for each in self.pods[key] if each != pod]
            failed = ((pod.name, pod.node),)
        self.report(key, failed)
