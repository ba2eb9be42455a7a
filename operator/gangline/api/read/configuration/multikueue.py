"""`multiKueue` of Kueue's configuration file, and the gates about it: how workloads are sent to other clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gangline.api import jobkinds, label_syntax, names
from gangline.api.read.configuration import access_providers, external_frameworks
from gangline.api.read.configuration.access_providers import AccessProvider
from gangline.api.read.configuration.fields import ConfigurationError, duration, mapping, text
from gangline.api.read.configuration.gates import Gates
from gangline.api.read.configuration.managed_jobs import ManagedJobs
from gangline.kube import resources as kube
from gangline.kube.resources import Json, Resource

SECTION: Final = "multiKueue"
#: dispatchers of Kueue's; any other name is a controller that writes `status.nominatedClusterNames` itself
ALL_AT_ONCE: Final = f"{names.GROUP}/multikueue-dispatcher-all-at-once"
INCREMENTAL: Final = f"{names.GROUP}/multikueue-dispatcher-incremental"
#: clusters that an incremental dispatcher adds in each round, and the most that a configuration may say
STEP: Final = 3
_MOST_STEP: Final = 1000
_EXTERNAL: Final = f"{SECTION}.externalFrameworks"
#: Without it `externalFrameworks` has no effect.
EXTERNAL_GATE: Final = "MultiKueueAdaptersForCustomJobs"
_ORCHESTRATED: Final = "MultiKueueOrchestratedPreemption"
#: Without it MultiKueueClusters name no ClusterProfiles.
PROFILES_GATE: Final = "MultiKueueClusterProfile"
_PROFILES: Final = f"{SECTION}.clusterProfile"
_QUOTAS: Final = "MultiKueueManagerQuotaAutomation"
#: pods of Deployments are sent one by one; of these kinds, the whole
_DEPLOYMENT: Final = "deployment"
_BY_GATES: Final = {
    each.framework: each.resource for each in jobkinds.BUILT_IN if each.by_pods and each.framework != _DEPLOYMENT
}
#: Kueue's gates that are read here
GATES: Final = frozenset(
    {
        *("MultiKueue", "MultiKueueAllowInsecureKubeconfigs", "MultiKueueKubeConfigPathValidation"),
        *("MultiKueueIncrementalDispatcherConfig", "MultiKueueIncrementalDispatcherRespectConfigOrder"),
        *(EXTERNAL_GATE, "MultiKueueRemoteSpecSync", _QUOTAS, _ORCHESTRATED, PROFILES_GATE),
    }
)


@dataclass(frozen=True, slots=True)
class MultiKueueSettings:
    """Times in seconds."""

    #: workloads are sent to other clusters at all
    enabled: bool = True
    #: how often copies without a workload here are looked for; 0 = never
    gc_interval: float = 60.0
    #: value of the label by which this manager knows its objects in other clusters
    origin: str = "multikueue"
    #: how long a cluster may be unreachable until its workloads are queued again
    worker_lost_timeout: float = 900.0
    dispatcher: str = ALL_AT_ONCE
    step: int = STEP
    #: rounds follow the order of the MultiKueueConfig, not that of names
    in_listed_order: bool = True
    #: kubeconfig files are read below one directory only
    paths_checked: bool = True
    #: kubeconfigs may skip the verification of servers, run plugins and name files
    insecure_allowed: bool = False
    #: custom resources that other controllers queue, and that are sent, too
    external: tuple[Resource, ...] = ()
    #: what changes in a job here while it runs in another cluster is passed on, for kinds that have such fields
    jobs_follow: bool = True
    #: quotas here follow those of the clusters, where a MultiKueueConfig says so
    sums_quotas: bool = False
    #: of a workload's copies, one at a time has others preempted for it
    orchestrates: bool = False
    #: clusters may be reached as ClusterProfiles say
    profiles: bool = False
    #: how logins to them are made; None: there is no such section
    access_providers: tuple[AccessProvider, ...] | None = None
    #: of the Secrets with kubeconfigs, and of the ClusterProfiles
    namespace: str = names.KUEUE_NAMESPACE


#: what holds without the section
USUAL: Final = MultiKueueSettings()


def load(root: Json, gates: Gates) -> MultiKueueSettings:
    """Read the settings of MultiKueue. Raises ConfigurationError."""
    section = mapping(root.get(SECTION), SECTION)
    origin = text(section, f"{SECTION}.origin", USUAL.origin)
    if not label_syntax.is_value(origin):
        raise ConfigurationError(f"{SECTION}.origin: {origin[:80]!r} cannot be the value of a label")
    return MultiKueueSettings(
        enabled=gates.on("MultiKueue"),
        gc_interval=duration(section, f"{SECTION}.gcInterval", f"{USUAL.gc_interval}s"),
        origin=origin,
        worker_lost_timeout=duration(section, f"{SECTION}.workerLostTimeout", f"{USUAL.worker_lost_timeout}s"),
        dispatcher=(dispatcher := text(section, f"{SECTION}.dispatcherName", ALL_AT_ONCE)),
        step=_step(section, dispatcher, gates),
        in_listed_order=gates.on("MultiKueueIncrementalDispatcherRespectConfigOrder"),
        paths_checked=gates.on("MultiKueueKubeConfigPathValidation"),
        insecure_allowed=gates.on("MultiKueueAllowInsecureKubeconfigs"),
        jobs_follow=gates.on("MultiKueueRemoteSpecSync"),
        sums_quotas=gates.on(_QUOTAS),
        profiles=gates.on(PROFILES_GATE),
        access_providers=access_providers.load(section.get("clusterProfile"), _PROFILES),
        orchestrates=gates.on(_ORCHESTRATED),
        external=_external(section) if gates.on(EXTERNAL_GATE) else (),
        namespace=text(root, "namespace", names.KUEUE_NAMESPACE),
    )


def sent(managed: ManagedJobs, settings: MultiKueueSettings) -> list[Resource]:
    """The kinds of jobs that are sent: those that are managed and can run in another cluster, those that the section names,
    and those whose pods wait here.
    """
    kinds = [each for each in (*jobkinds.BUILT_IN, *managed.declared) if each.managed_by]
    listed = [
        each.resource
        for each in kinds
        if managed.kind(each.resource.api_version, each.kind) or each.resource in settings.external
    ]
    by_gates = [kube.PODS] if managed.pods or _DEPLOYMENT in managed.pods_of else []
    by_gates += [each for name, each in _BY_GATES.items() if name in managed.pods_of]
    return [*listed, *(each for each in settings.external if each not in listed), *by_gates]


def unheeded(root: Json, gates: Gates) -> list[str]:
    """A sentence about what is set and has no effect."""
    section = mapping(root.get(SECTION), SECTION)
    without_kind = external_frameworks.unheeded(section.get("externalFrameworks") or [], _EXTERNAL)
    set_with = {
        _EXTERNAL: (_external(section), EXTERNAL_GATE),
        _PROFILES: (access_providers.load(section.get("clusterProfile"), _PROFILES), PROFILES_GATE),
    }
    return without_kind + [
        f"{path} has no effect while the gate {gate} is off"
        for path, (named, gate) in set_with.items()
        if named and not gates.on(gate)
    ]


def _external(section: Json) -> tuple[Resource, ...]:
    return external_frameworks.load(section.get("externalFrameworks") or [], _EXTERNAL)


def _step(section: Json, dispatcher: str, gates: Gates) -> int:
    path = f"{SECTION}.incrementalDispatcherConfig"
    if section.get("incrementalDispatcherConfig") is None:
        return STEP
    if dispatcher != INCREMENTAL:
        raise ConfigurationError(f"{path}: is only for {SECTION}.dispatcherName: {INCREMENTAL}")
    value = mapping(section["incrementalDispatcherConfig"], path).get("stepSize", STEP)
    if type(value) is not int or not 1 <= value <= _MOST_STEP:
        raise ConfigurationError(f"{path}.stepSize: a whole number from 1 to {_MOST_STEP} is wanted, not {value!r}")
    return value if gates.on("MultiKueueIncrementalDispatcherConfig") else STEP
