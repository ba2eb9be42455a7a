"""Cluster-wide settings of the engine, and the names of the fixes that they turn on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gangline.engine.model.units import Millis, millis, millis_or_none


@dataclass(frozen=True, slots=True)
class FairSharing:
    strategies: tuple[str, ...] = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")


@dataclass(frozen=True, slots=True)
class AdmissionFairSharing:
    half_life_seconds: float = 0.0
    sampling_interval_seconds: float = 300.0
    resource_weights: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def half_life(self) -> Millis:
        return millis(self.half_life_seconds)

    @property
    def sampling_interval(self) -> Millis:
        return millis(self.sampling_interval_seconds)


@dataclass(frozen=True, slots=True)
class PodsReadyPolicy:
    """`waitForPodsReady` of Kueue's configuration."""

    timeout_seconds: float = 1800.0
    recovery_timeout_seconds: float | None = None  # None = as timeout
    block_admission: bool = False
    timestamp: str = "Eviction"  # Eviction | Creation
    backoff_limit: int | None = None
    backoff_base_seconds: float = 60.0
    backoff_max_seconds: float = 3600.0
    #: for pods for which the Kubernetes scheduler finds no node; None = `timeout` applies to them, too
    unscheduled_seconds: float | None = None

    @property
    def timeout(self) -> Millis:
        return millis(self.timeout_seconds)

    @property
    def unscheduled_timeout(self) -> Millis | None:
        return millis_or_none(self.unscheduled_seconds)

    @property
    def recovery_timeout(self) -> Millis:
        seconds = self.recovery_timeout_seconds
        return self.timeout if seconds is None else millis(seconds)

    def backoff(self, count: int) -> Millis:
        """The back-off after this many evictions: it doubles each time, up to the longest one."""
        return millis(min(self.backoff_max_seconds, self.backoff_base_seconds * 2.0 ** min(count - 1, 62)))


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """Changes to the engine's table of health signals (`HEALTH_SIGNALS`)."""

    #: node condition type -> Lost | Suspect | LeavingSoon | DegradedDevice while it is True; Ignore = the condition has no
    #: effect
    conditions: Mapping[str, str] = field(default_factory=dict[str, str])
    #: signal, as the table names it -> seconds that it must last before it counts
    grace_seconds: Mapping[str, float] = field(default_factory=dict[str, float])

    def grace(self, signal: str) -> Millis | None:
        return millis_or_none(self.grace_seconds.get(signal))


@dataclass(frozen=True, slots=True)
class Settings:
    """Cluster-wide settings; `gates` override Kueue's default feature gates by name."""

    fair_sharing: FairSharing | None = None
    admission_fair_sharing: AdmissionFairSharing | None = None
    pods_ready: PodsReadyPolicy | None = PodsReadyPolicy()
    gates: Mapping[str, bool] = field(default_factory=dict[str, bool])
    ignore_undeclared_resources: bool = False
    #: named fixes of Kueue quirks, per ClusterQueue name ("*" = all); see `FIXES`
    fixes: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    health: HealthPolicy = HealthPolicy()
    #: how long heads are delayed, and why, is counted; a counterfactual needs no accounts
    counts_delays: bool = True
    #: one pod set may get flavors that give a label different values, as in Kueue: only its recorded scenarios are decided so
    merges_labels: bool = False

    @property
    def concurrent_admission(self) -> bool:
        """Whether workloads may have variants, and are restricted to the flavors that they allow."""
        return self.gates.get("ConcurrentAdmission", False)

    @property
    def elastic_jobs(self) -> bool:
        """Whether a workload may be a slice that replaces another one."""
        return self.gates.get("ElasticJobsViaWorkloadSlices", True)

    @property
    def preemption_gates(self) -> bool:
        """Whether preemption gates count: nothing is preempted for a workload with a closed gate."""
        return self.concurrent_admission or self.gates.get("MultiKueueOrchestratedPreemption", False)


# --- fixes ------------------------------------------------------------------------------------------------------------
# Kueue's quirks that Gangline can correct, each under a name, per ClusterQueue. All are off by default.
#
# `ClusterQueue.fixes` and `Settings.fixes` name them. `docs/engine.md` shows the harm and the cure of each.


#: With preference PreemptionOverBorrowing, a flavor where one resource fits by borrowing and another needs preemption counts
#: as fitting: no victims are looked for and the gang is skipped, cycle after cycle. Fixed: the resource that is short
#: decides.
FALSE_FIT: Final = "PreemptionOverBorrowingFalseFit"

#: Victims are chosen without regard to the quota of `pods`, so they may not free enough of it. Fixed: it counts.
PODS_IN_SEARCH: Final = "PodsInVictimSearch"

#: What victims free is available to all, and a gang of another queue may take it before their preemptor. Fixed: it is held
#: for the preemptor, against all but higher priorities in its own queue.
HOLD_QUOTA: Final = "HoldFreedQuota"

#: A victim that fits again at once is readmitted before its preemptor has started, only to be preempted again. Fixed: it
#: waits until the preemptor has started or no longer waits.
NO_READMIT: Final = "NoReadmitBeforePreemptor"

#: A workload that fits once the victims of a cycle are gone is admitted at once, though these still hold their quota: until
#: they have stopped, more is admitted than there is. Fixed: what they still hold is not granted.
STILL_HELD: Final = "QuotaOfVictimsStillHeld"

#: With a topology, the places of finished pods stay taken until their whole workload has ended, though their quota is given
#: back. Fixed: these places are free once all its other pods are known to be on theirs.
FREE_PLACES: Final = "PlacesOfFinishedPods"

FIXES: Final = frozenset({FALSE_FIT, PODS_IN_SEARCH, HOLD_QUOTA, NO_READMIT, STILL_HELD, FREE_PLACES})
