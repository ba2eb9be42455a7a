"""Whether an AdmissionCheck of this controller is active: its configuration names clusters that are. Messages are Kueue's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from gangline.api import names
from gangline.api.admission.multikueue import CONTROLLER
from gangline.control.checks.active_checks import ACTIVE, Activity, UnusableError, configuration
from gangline.kube import resources as kube
from gangline.objects import Stored

#: name -> the MultiKueueConfig, or the MultiKueueCluster
Named: TypeAlias = Callable[[str], Stored | None]

OFF = Activity(
    False, "FeatureGateDisabled", "the feature gate MultiKueue is off: no workload is sent to other clusters"
)


def is_ours(check: Stored) -> bool:
    return check.spec.get("controllerName") == CONTROLLER


def config_of(check: Stored, config_named: Named) -> Stored:
    """The MultiKueueConfig to which the check refers. Raises UnusableError."""
    return configuration(check, kube.MULTI_KUEUE_CONFIGS, config_named)


def clusters_of(check: Stored, config_named: Named) -> list[str]:
    """The clusters that the check's configuration lists. Raises UnusableError."""
    config = config_of(check, config_named)
    clusters = config.spec.get("clusters")
    if not isinstance(clusters, list) or not all(isinstance(each, str) for each in clusters):
        raise UnusableError(f"{kube.MULTI_KUEUE_CONFIGS.kind} {config.name}: spec.clusters: a list of names is wanted")
    return list(dict.fromkeys(clusters))


def activity_of(check: Stored, config_named: Named, cluster_named: Named) -> Activity:
    try:
        listed = clusters_of(check, config_named)
    except UnusableError as error:
        return Activity(False, "BadConfig", f"Cannot load the AdmissionChecks parameters: {error}")
    missing = [name for name in listed if cluster_named(name) is None]
    idle = [name for name in listed if name not in missing and not _is_active(cluster_named(name))]
    if not missing and not idle:
        return ACTIVE
    said = [f"Missing clusters: [{' '.join(missing)}]"] if missing else []
    said += [f"Inactive clusters: [{' '.join(idle)}]"] if idle else []
    some = len(missing) + len(idle) < len(listed)
    return Activity(some, "SomeActiveClusters" if some else "NoUsableClusters", ", ".join(said))


def _is_active(cluster: Stored | None) -> bool:
    return cluster is not None and cluster.is_true(names.ACTIVE)
