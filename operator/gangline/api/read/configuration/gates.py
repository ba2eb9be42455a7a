"""`featureGates`: which gates are on, which of them Gangline reads, and which it cannot follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from gangline.api.read.configuration.fields import ConfigurationError
from gangline.api.read.configuration.gate_table import GATES, NEITHER, OFF, ON, READ, REQUIRES
from gangline.api.read.configuration.versions import NEWEST, VERSIONS, at_least
from gangline.kube.resources import Json

#: gates that the engine and the parts of the operator read in its settings
ENGINE: Final = frozenset(
    {
        *("FairSharingPreemptWithinNominal", "FairSharingPrioritizeNonBorrowing", "FlavorFungibility"),
        *("FlavorFungibilityPreserveScanProgress", "PartialAdmission", "PriorityBoost", "PrioritySortingWithinCohort"),
        *("RecomputeAssignmentUponPreemptionTargetsOverlap", "SchedulingEquivalenceHashing", "TASBalancedPlacement"),
        *("TASFailedNodeReplacementFailFast", "TASProfileMixed", "TASRecomputeAssignmentWithinSchedulingCycle"),
        *("TASRespectNodeAffinityPreferred", "CleanupProvisioningRequestsOnEviction", "ConcurrentAdmission"),
        *("FailureRecoveryPolicy", "MultiKueueOrchestratedPreemption", "ReclaimablePods"),
        *("PrioritizePreemptorWorkloads", "SkipReassignmentForPodOwnedWorkloads", "TASFailedNodeReplacement"),
        *("TASReplaceNodeDueToNotReadyOverFixedTime", "TASReplaceNodeOnNodeTaints", "TASReplaceNodeOnPodTermination"),
        "UnadmittedWorkloadsExplicitStatus",
        *("ElasticJobsViaWorkloadSlices", "ElasticJobsViaWorkloadSlicesWithTAS"),
    }
)
#: set all gates of a stage that are not set themselves
_STAGES: Final = {"AllAlpha": "a", "AllBeta": "b"}
#: from this version on Kueue checks what a gate requires; before, TASProfileMixed alone
_CHECKED_FROM: Final = "0.17"
_NONE: Final[Mapping[str, bool]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Gates:
    """The gates in force. `given`: by name, those of the file; `at`: where they are set without one."""

    version: str = NEWEST
    given: Mapping[str, bool] = field(default_factory=lambda: _NONE)

    def on(self, name: str) -> bool:
        """Whether a gate is on. Raises KeyError for a gate that no version has."""
        state = _state(name, self.version)
        if name in self.given:
            return self.given[name]
        for group, stage in _STAGES.items():
            if group in self.given and state.startswith(stage):
                return self.given[group]
        return "+" in state

    def for_engine(self) -> dict[str, bool]:
        """The gates that the engine reads, as far as they differ from its own defaults, or are set."""
        usual = Gates()
        return {name: self.on(name) for name in sorted(ENGINE) if name in self.given or self.on(name) != usual.on(name)}

    def unheeded(self) -> list[str]:
        """A sentence for each gate that is set to what Gangline does not do."""
        found: list[str] = []
        for name, value in sorted(self.given.items()):
            if name in _STAGES:
                found.append(f"featureGates.{name}: holds for the gates that Gangline reads")
                continue
            does = GATES[name][1]
            if does == OFF and value:
                found.append(f"featureGates.{name}=true has no effect: Gangline does not have what it switches on")
            if does == ON and not value:
                found.append(f"featureGates.{name}=false has no effect: what it switches off is always on in Gangline")
        return found


def load(section: Json, version: str) -> Gates:
    """Read `featureGates`. Raises ConfigurationError for gates that Kueue of this version refuses."""
    for name, value in section.items():
        if not isinstance(value, bool):
            raise ConfigurationError(f"featureGates.{name}: true or false is wanted, not {value!r}")
        if name not in _STAGES:
            _check_known(name, value, version)
    gates = Gates(version, dict(section))
    for name in REQUIRES if at_least(version, _CHECKED_FROM) else ("TASProfileMixed",):
        if _state(name, version) != "." and gates.on(name):
            _check_required(name, gates)
    return gates


def _check_known(name: str, value: bool, version: str) -> None:
    """Gates that came after this version are known as well: Gangline has what they switch."""
    if name not in GATES:
        raise ConfigurationError(f"featureGates: unrecognized feature gate: {name[:80]}")
    last = max((known for known in VERSIONS if _state(name, known) != "."), key=VERSIONS.index)
    if not at_least(last, version):
        raise ConfigurationError(
            f"featureGates: unrecognized feature gate: {name}: Kueue had it up to {last}. Delete it, or set "
            f'gangline.kueueCompatibility: "{last}"'
        )
    state = _state(name, version)
    if state.endswith("!") and value != ("+" in state):
        locked = str("+" in state).lower()
        raise ConfigurationError(
            f"featureGates: cannot set feature gate {name} to {str(value).lower()}, feature is locked to {locked}"
        )


def _check_required(name: str, gates: Gates) -> None:
    for other in REQUIRES[name]:
        if not gates.on(other):
            raise ConfigurationError(f"featureGates: {name} requires {other} to be enabled")


def _state(name: str, version: str) -> str:
    return GATES[name][0].split(" ")[VERSIONS.index(version)]


def does(name: str) -> str:
    """What Gangline does about a gate: READ, ON, OFF or NEITHER; "" for a name that is not in the table."""
    return GATES[name][1] if name in GATES else ""


__all__ = ["ENGINE", "NEITHER", "OFF", "ON", "READ", "Gates", "does", "load"]
