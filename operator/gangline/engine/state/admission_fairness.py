"""Admission fair sharing: the order of LocalQueues by what each has used so far.

Past usage decays by half every half-life. A reservation counts at once, as a penalty, so that the next head is from another
LocalQueue; the penalty becomes part of the consumed resources when the gang is admitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import floor, inf

from gangline.engine.model import AdmissionFairSharing, LocalQueue, Millis
from gangline.engine.queues.workload_state import WorkloadState

#: Weights where only QueuePolicies ask for fair sharing: accelerator time; a core of cpu counts a hundredth of one.
BY_POLICY = AdmissionFairSharing(resource_weights={"cpu": 0.01, "memory": 0.0, "ephemeral-storage": 0.0, "pods": 0.0})


@dataclass(slots=True)
class _Account:
    """The usage of one LocalQueue; amounts in engine units."""

    consumed: dict[str, float]
    sampled_at: Millis
    weight: float
    penalties: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    #: half-life of a QueuePolicy that differs from the cluster's
    half_life: Millis | None = None


class AdmissionFairness:
    def __init__(self, policy: AdmissionFairSharing) -> None:
        self._policy = policy
        #: a LocalQueue has another weight, or has consumed another amount, by what others say or by a sample
        self.moved = False
        self._accounts: dict[str, _Account] = {}

    def put(self, local_queue: LocalQueue) -> None:
        """Set a LocalQueue. The consumed resources of its status count only if they are new."""
        account = self._accounts.get(local_queue.key)
        if account is None:
            consumed, at = dict(local_queue.consumed), local_queue.consumed_at
            self._accounts[local_queue.key] = _Account(consumed, at, local_queue.weight)
            return
        self.moved = self.moved or account.weight != local_queue.weight
        account.weight = local_queue.weight
        if local_queue.consumed_at > account.sampled_at:
            account.consumed, account.sampled_at = dict(local_queue.consumed), local_queue.consumed_at
            self.moved = True

    def usage(self, key: str) -> float:
        """The weighted usage that orders LocalQueues, in base units (cpu in cores); the lowest is first."""
        account = self._accounts.get(key)
        if account is None:
            return 0.0
        if account.weight <= 0:
            return inf
        total = 0.0
        for used in (account.consumed, *account.penalties.values()):
            for resource, amount in used.items():
                total += self._policy.resource_weights.get(resource, 1.0) * _base_units(resource, amount)
        return total / account.weight

    def consumed(self, key: str) -> tuple[Mapping[str, float], Millis]:
        account = self._accounts.get(key)
        return (account.consumed, account.sampled_at) if account else ({}, 0)

    def reserve(self, gang: WorkloadState) -> None:
        """The LocalQueue pays the share of one sampling interval in advance."""
        account = self._accounts.get(gang.local_queue)
        if account is not None:
            part = self._decay(account, self._policy.sampling_interval)
            account.penalties[gang.uid] = {
                resource: _rounded(amount * part) for resource, amount in gang.requests().items()
            }

    def admit(self, gang: WorkloadState) -> None:
        account = self._accounts.get(gang.local_queue)
        penalty = account.penalties.pop(gang.uid, None) if account else None
        if account is not None and penalty is not None:
            for resource, amount in penalty.items():
                account.consumed[resource] = account.consumed.get(resource, 0.0) + amount

    def cancel(self, gang: WorkloadState) -> None:
        account = self._accounts.get(gang.local_queue)
        if account is not None:
            account.penalties.pop(gang.uid, None)

    def sample(self, key: str, admitted: Iterable[WorkloadState], now: Millis) -> bool:
        """Advance one LocalQueue, if a sampling interval is over. True if something changed."""
        account = self._accounts.get(key)
        if account is None or now < self.due(key):
            return False
        if self._half_life(account) <= 0:
            account.consumed, account.sampled_at = {}, now
            return False
        new = self._decay(account, now - account.sampled_at)
        running: dict[str, int] = {}
        for gang in admitted:
            for (_, resource), amount in gang.quota.usage.items():
                running[resource] = running.get(resource, 0) + amount
        before = dict(account.consumed)
        account.consumed = {
            resource: _rounded(before.get(resource, 0.0) * (1 - new)) + _rounded(running.get(resource, 0) * new)
            for resource in {**before, **running}
        }
        account.sampled_at = now
        return account.consumed != before

    def due(self, key: str) -> Millis:
        return self._accounts[key].sampled_at + self._policy.sampling_interval

    def next_due(self) -> Millis | None:
        """The time of the next sample, if anything has been consumed at all."""
        return min((self.due(key) for key, account in self._accounts.items() if account.consumed), default=None)

    def local_queues(self) -> list[str]:
        return list(self._accounts)

    def forget(self, key: str) -> None:
        self._accounts.pop(key, None)

    def set_half_life(self, key: str, half_life: Millis | None) -> None:
        """Set a LocalQueue's own half-life; None = that of the cluster."""
        account = self._accounts.get(key)
        if account is not None:
            account.half_life = half_life

    def _half_life(self, account: _Account) -> Millis:
        return self._policy.half_life if account.half_life is None else account.half_life

    def _decay(self, account: _Account, span: Millis) -> float:
        """The weight of new usage after this time."""
        half_life = self._half_life(account)
        return 1.0 - 0.5 ** (span / half_life) if half_life > 0 else 0.0


def _base_units(resource: str, amount: float) -> float:
    return amount / 1000 if resource == "cpu" else amount


def _rounded(amount: float) -> float:
    return floor(amount * 1e9) / 1e9
