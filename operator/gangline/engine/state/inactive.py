"""Why a ClusterQueue admits no new workloads, in Kueue's words."""

from __future__ import annotations

from collections.abc import Mapping

from gangline.engine.model import AdmissionCheck, ClusterQueue, Flavor, Topology


def why_inactive(
    config: ClusterQueue,
    flavors: Mapping[str, Flavor],
    topologies: Mapping[str, Topology],
    checks: Mapping[str, AdmissionCheck],
    *,
    in_cycle: bool,
) -> tuple[str, str]:
    """Reason and message; ("", "") = it is active. `in_cycle`: its cohort is its own ancestor."""
    if config.terminating:
        return "Terminating", "Can't admit new workloads; clusterQueue is terminating"
    found: list[tuple[str, str]] = []
    if config.stop_policy != "None":
        found.append(("Stopped", "is stopped"))
    if in_cycle:
        found.append(("Unknown", "is part of a cycle of cohorts"))
    offered = list(dict.fromkeys(quotas.name for group in config.groups for quotas in group.flavors))
    missing = [flavor for flavor in offered if flavor not in flavors]
    if missing:
        found.append(("FlavorNotFound", f"references missing ResourceFlavor(s): {','.join(missing)}"))
    wanted = [flavors[flavor].topology for flavor in offered if flavor in flavors]
    missing = list(dict.fromkeys(name for name in wanted if name and name not in topologies))
    if missing:
        found.append(("TopologyNotFound", f"references missing Topology(ies): {','.join(missing)}"))
    missing = [check.name for check in config.checks if check.name not in checks]
    if missing:
        found.append(("AdmissionCheckNotFound", f"references missing AdmissionCheck(s): {','.join(missing)}"))
    idle = [check.name for check in config.checks if check.name in checks and not checks[check.name].active]
    if idle:
        found.append(("AdmissionCheckInactive", f"references inactive AdmissionCheck(s): {','.join(idle)}"))
    if not found:
        return "", ""
    return found[0][0], f"Can't admit new workloads: {', '.join(text for _, text in found)}."
