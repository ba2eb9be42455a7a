"""Asks Prometheus what the telemetry rules of QueuePolicies measure, and carries out what follows.

The leader asks all queries, a few at a time. One that fails costs only its own rule, and is asked less and less often. What rules
say of nodes is part of the engine's facts about them. A workload that has to leave its node is a fact, too; the engine evicts it.

Which nodes are excluded is kept in the policies' statuses. Whoever leads next starts from there, so that a node whose number has
not come back far enough stays excluded. How many periods in a row a node has violated a rule is not kept: after a change of
leaders a workload leaves later than it would have, and never too early.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, Protocol

from gangline.api.read import policy_reader
from gangline.api.read.parse import ParseError
from gangline.control.kernel.context import Context
from gangline.control.nodes.telemetry.rule_state import RuleState, kept, measured
from gangline.control.parts.part import Part
from gangline.control.writes.status.policy_status import TelemetryReport
from gangline.engine import HOSTNAME, model
from gangline.engine.model import Gone, Millis, NodeEviction, Put
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.objects import Stored
from gangline.telemetry import Sample, SourceError

log = logging.getLogger(__name__)

#: rules that are asked, of all policies together: the first by their names
MOST_RULES: Final = 64
#: queries that are asked at a time, seconds and bytes for each
AT_ONCE: Final = 4
TIMEOUT: Final = 10.0
LONGEST_ANSWER: Final = 8 << 20
#: a query that fails is asked again after this at the latest, in milliseconds, or after its period
LONGEST_PAUSE: Final[Millis] = 300_000
#: pods that were placed within so many milliseconds before a measurement are not in it yet
UNSEEN: Final[Millis] = 60_000
#: nodes that the engine learns of in one round
NODES_AT_ONCE: Final = 500
#: nodes in a row of a status, and characters of its message
MOST_NODES: Final = 256
LONGEST_MESSAGE: Final = 500
#: scorers that look at a load
_OF_LOAD: Final = frozenset({"TargetLoad", "RiskBalance"})

NO_SOURCE: Final = "the operator has no Prometheus: its option --telemetry names none"
TOO_MANY: Final = f"it is not asked: {MOST_RULES} rules of all QueuePolicies are, the first by name"

#: policy and name of a rule
Key = tuple[str, str]


class Source(Protocol):
    async def series(self, query: str, *, seconds: float, most_bytes: int) -> list[Sample]:
        """What a query says. Raises SourceError."""
        ...


class TelemetryRules(Part):
    """The part. `observe` gives a change to the engine; without a `source` no rule measures anything."""

    name = "telemetry"

    def __init__(self, context: Context, observe: Callable[[model.Change], None], source: Source | None = None) -> None:
        self._mirror = context.mirror
        self._engine = context.engine
        self._recorder = context.recorder
        self._now = context.now
        self._wake = context.wake
        self._observe = observe
        self._source = source
        self._rules: dict[Key, RuleState] = {}
        self._ask_at: dict[Key, Millis] = {}
        self._failures: dict[Key, int] = {}
        #: failures of all questions so far
        self._failed: dict[Key, float] = {}
        self._asking: dict[Key, asyncio.Task[list[Sample]]] = {}
        #: nodes of which the engine does not know yet what the rules say
        self._news: dict[str, None] = {}
        self._evictions: dict[str, NodeEviction] = {}
        #: rules whose last answer has not been looked at for workloads that have to leave
        self._fresh: set[Key] = set()
        #: called when statuses of policies may have changed
        self.moved: Callable[[], None] = lambda: None
        self._changed = context.mirror.changes.policies.subscribe(worth=context.mirror.has(kube.QUEUE_POLICIES))
        context.metrics.show_telemetry(self._figures, lambda: self._failed)

    def lead(self) -> None:
        self._changed.take()
        self._configure([self._mirror.get(kube.QUEUE_POLICIES, name) for name in self._policies()])

    # --- rounds ---

    def act(self, now: int) -> None:
        changed = self._changed.take()
        if changed and (
            changed & self._mirror.objects[kube.QUEUE_POLICIES].keys() or any(key[0] in changed for key in self._rules)
        ):
            self._configure()
        if not (self._rules or self._news or self._evictions):
            self.due = None
            return
        for key, task in list(self._asking.items()):
            if task.done():
                del self._asking[key]
                self._take(key, task, now)
        for state in self._rules.values():
            if concerned := state.expire(now):
                self._news.update(dict.fromkeys(concerned))
                self.moved()
        self._ask(now)
        self._tell()
        self._end_evictions()
        if not self._news:
            for key in sorted(self._fresh):
                self._evict(self._rules[key])
            self._fresh.clear()
        self.due = now if self._news else min(self._times(), default=None)

    def _times(self) -> Iterator[Millis]:
        if len(self._asking) < AT_ONCE:  # else the next answer wakes the loop
            yield from (self._ask_at[key] for key in self._to_ask())
        yield from (state.at + kept(state.rule) + 1 for state in self._rules.values() if state.at)

    async def close(self) -> None:
        for task in self._asking.values():
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)

    # --- rules ---

    def _policies(self) -> list[str]:
        """The policies that have telemetry rules."""
        found = self._mirror.objects[kube.QUEUE_POLICIES].items()
        return sorted(name for name, policy in found if (policy.spec.get("placement") or {}).get("telemetry"))

    def _configure(self, recalled: Iterable[Stored | None] = ()) -> None:
        """Follow the rules that policies have now. `recalled`: policies from whose statuses to go on."""
        before, self._rules = self._rules, {}
        known = {
            (policy.name, row.get("name")): row for policy in recalled if policy is not None for row in _rows(policy)
        }
        changed = False
        for policy in self._policies():
            for state in self._states_of(policy):
                key = policy, state.rule.name
                old = before.pop(key, None)
                if old is not None and old.rule == state.rule:
                    changed = changed or (old.scored, old.as_load) != (state.scored, state.as_load)
                    old.scored, old.as_load = state.scored, state.as_load
                    state = old
                else:
                    changed = True
                    self._stop_asking(key)
                    excluded = old.excluded() if old is not None else _excluded(known.get(key, {}))
                    if excluded:
                        state.recall(excluded, self._now())
                self._rules[key] = state
                if self._source is None or len(self._rules) > MOST_RULES:
                    state.fail(NO_SOURCE if self._source is None else TOO_MANY)
        for key in before:
            self._stop_asking(key)
            self._failed.pop(key, None)
        self._fresh &= self._rules.keys()
        if changed or before:
            self._look_at_all()
            self.moved()

    def _look_at_all(self) -> None:
        """What the rules say may be new for each node."""
        self._news.update(dict.fromkeys((*self._mirror.nodes, *self._mirror.readings)))

    def _stop_asking(self, key: Key) -> None:
        """Forget a question that is not to be answered any more."""
        self._failures.pop(key, None)
        self._ask_at.pop(key, None)
        if (task := self._asking.pop(key, None)) is not None:
            task.cancel()

    def _states_of(self, name: str) -> Iterator[RuleState]:
        """The rules of a policy, of which nothing is known yet; none of a policy that cannot be read."""
        policy = self._mirror.get(kube.QUEUE_POLICIES, name)
        try:
            placement = policy_reader.placement(policy)
            rules = policy_reader.telemetry_rules(policy) if policy is not None else ()
        except (ParseError, ValueError):
            return
        scores = placement.scores if placement is not None else ()
        looked_at = {key for score in scores for key in (score.annotation, score.deviation)}
        loads = {score.annotation for score in scores if score.name in _OF_LOAD}
        for rule in rules:
            yield RuleState(rule, rule.reading in looked_at, rule.reading in loads)

    # --- questions ---

    def _to_ask(self) -> list[Key]:
        """The rules that are asked, and not being asked right now."""
        asked = list(self._rules)[:MOST_RULES] if self._source is not None else ()
        return [key for key in asked if key not in self._asking]

    def _ask(self, now: Millis) -> None:
        if self._source is None:
            return
        for key in sorted(self._to_ask(), key=lambda key: self._ask_at.setdefault(key, now)):
            if len(self._asking) >= AT_ONCE or self._ask_at[key] > now:
                break
            rule = self._rules[key].rule
            self._ask_at[key] = now + rule.period
            question = self._source.series(rule.query, seconds=TIMEOUT, most_bytes=LONGEST_ANSWER)
            task = self._asking[key] = asyncio.get_running_loop().create_task(question)
            task.add_done_callback(lambda _: self._wake())

    def _take(self, key: Key, task: asyncio.Task[list[Sample]], now: Millis) -> None:
        state = self._rules[key]
        before, trouble, count = state.excluded(), state.trouble, len(state.values)
        try:
            found = measured(task.result(), state.rule, self._mirror.nodes.__contains__, now)
        except (SourceError, asyncio.CancelledError) as error:
            self._fail(key, str(error) or "the question was given up", now)
        except Exception as error:
            log.exception("telemetry rule %s of QueuePolicy %s", key[1], key[0])
            self._fail(key, type(error).__name__, now)
        else:
            self._failures.pop(key, None)
            state.take(found, now)
            state.taken = self._engine.cpu_taken(now - UNSEEN) if state.as_load else {}
            self._fresh.add(key)
            if state.scored:
                self._look_at_all()
            else:
                self._news.update(dict.fromkeys((*before, *state.excluded())))
        if (before, trouble, count) != (state.excluded(), state.trouble, len(state.values)):
            self.moved()

    def _fail(self, key: Key, why: str, now: Millis) -> None:
        state = self._rules[key]
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self._failed[key] = self._failed.get(key, 0.0) + 1
        pause = min(state.rule.period << min(failures, 8), max(state.rule.period, LONGEST_PAUSE))
        self._ask_at[key] = now + pause
        policy = self._mirror.get(kube.QUEUE_POLICIES, key[0])
        if not state.failed and policy is not None:
            self._recorder.record(
                policy, "Warning", "TelemetryUnavailable", f"Telemetry rule {key[1]}: {why}"[:LONGEST_MESSAGE]
            )
        state.fail(why)

    # --- what follows ---

    def _tell(self) -> None:
        """Let the engine know what the rules say of nodes, of so many in a round."""
        for node in list(self._news)[:NODES_AT_ONCE]:
            del self._news[node]
            said: dict[str, str] = {}
            for state in self._rules.values() if node in self._mirror.nodes else ():
                said |= state.marks(node)
            self._mirror.put_reading(node, said)

    def _evict(self, state: RuleState) -> None:
        """Let one workload leave the nodes from which workloads are due to leave, if there is one."""
        if state.rule.dry_run:
            return
        nodes = [node for node in state.due() if node in self._mirror.nodes]
        hosts = {self._mirror.nodes[node].labels.get(HOSTNAME, node): node for node in nodes}
        placed = self._placed(state.rule.policy, hosts) if hosts else {}
        for host, node in hosts.items():
            if host not in placed:
                continue
            victim = min(placed[host], key=lambda each: (each.priority, -each.admitted_at, each.key))
            eviction = NodeEviction(victim.key, victim.admitted_at, state.why_evicted(node))
            state.evicted_from(node)
            self._evictions[victim.key] = eviction
            self._observe(Put(eviction))
            self._wake()
            return

    def _placed(self, policy: str, hosts: Collection[str]) -> dict[str, list[model.Workload]]:
        """The running workloads that a policy has placed on these hosts, by host, without those that leave anyway."""
        in_force = dict[str, bool]()
        found: dict[str, list[model.Workload]] = {}
        for key in self._mirror.workloads:
            value = self._mirror.workload_value(key)
            if value is None or value.admission is None or not value.admitted or value.evicted or value.finished:
                continue
            queue = value.admission.cluster_queue
            if queue not in in_force:
                in_force[queue] = self._is_in_force(policy, queue)
            if in_force[queue] and key not in self._evictions:
                for host in _hosts_of(value.admission).intersection(hosts):
                    found.setdefault(host, []).append(value)
        return found

    def _is_in_force(self, policy: str, queue: str) -> bool:
        obj = self._mirror.get(kube.CLUSTER_QUEUES, queue)
        try:
            found = self._mirror.policy_of(obj) if obj is not None else None
        except ParseError:
            return False
        return found is not None and found.key == policy

    def _end_evictions(self) -> None:
        """Forget what was said to workloads that have left, or were stopped for another reason."""
        for key, eviction in list(self._evictions.items()):
            value = self._mirror.workload_value(key)
            if value is None or value.evicted or value.finished or value.admitted_at != eviction.admitted_at:
                del self._evictions[key]
                self._observe(Gone(NodeEviction, key))

    # --- out ---

    def report(self, policy: str) -> TelemetryReport | None:
        """What the status of a policy says of its telemetry rules; None for one without rules."""
        states = [state for (name, _), state in sorted(self._rules.items()) if name == policy]
        if not states:
            return None
        failed = [f"{state.rule.name}: {state.trouble}" for state in states if state.failed]
        return TelemetryReport([_row(state) for state in states], "; ".join(failed))

    def _figures(self) -> Mapping[tuple[str, ...], float]:
        found: dict[tuple[str, ...], float] = {}
        for key, state in self._rules.items():
            found[*key, "measured"] = len(state.values)
            found[*key, "excluded"] = len(state.excluded())
        return found


def _rows(policy: Stored) -> list[Json]:
    rows = policy.status.get("telemetry")
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _excluded(row: Json) -> list[str]:
    """The nodes that a row of a status names."""
    names = row.get("excluded")
    return [node for node in names if isinstance(node, str)] if isinstance(names, list) else []


def _row(state: RuleState) -> Json:
    row: Json = {"name": state.rule.name, "measured": len(state.values)}
    if excluded := state.excluded():
        row["excluded"] = excluded[:MOST_NODES]
    if state.trouble:
        row["message"] = state.trouble[:LONGEST_MESSAGE]
    return row


def _hosts_of(admission: model.Admission) -> set[str]:
    """The hosts on which a topology has placed pods."""
    return {
        domain.values[-1]
        for pod_set in admission.pod_sets
        if pod_set.topology is not None and HOSTNAME in pod_set.topology.levels
        for domain in pod_set.topology.domains
    }
