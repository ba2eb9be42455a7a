"""Why a ClusterQueue admits no new workloads, in Kueue's words."""

from __future__ import annotations

from collections.abc import Mapping

from gangline.engine.model import AdmissionCheck, ClusterQueue, Flavor, Topology
from gangline.engine.topology.leaf_ranking import OF_POLICY
from gangline.engine.topology.placement import MULTIKUEUE, PROVISIONING


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
    controllers = {check.name: checks[check.name].controller for check in config.checks if check.name in checks}
    multikueue = sorted(name for name, controller in controllers.items() if controller == MULTIKUEUE)
    missing = [check.name for check in config.checks if check.name not in checks]
    if missing:
        found.append(("AdmissionCheckNotFound", f"references missing AdmissionCheck(s): {','.join(missing)}"))
    idle = [check.name for check in config.checks if check.name in checks and not checks[check.name].active]
    if idle:
        found.append(("AdmissionCheckInactive", f"references inactive AdmissionCheck(s): {','.join(idle)}"))
    found += _misused_multikueue(config, multikueue, [n for n, c in controllers.items() if c == PROVISIONING])
    for flavor in offered if not multikueue else ():  # else the topologies are those of other clusters
        topology = flavors[flavor].topology if flavor in flavors else ""
        if topology and topology not in topologies:
            found.append(("TopologyNotFound", f'there is no Topology "{topology}" for TAS flavor "{flavor}"'))
    placed = config.placement is not None and not config.placement.dry_run
    if placed and OF_POLICY not in topologies and not multikueue:
        found.append(("PodsUnknown", "has a placement policy, and pods of others are not all known yet"))
    if not found:
        return "", ""
    return found[0][0], f"Can't admit new workloads: {', '.join(text for _, text in found)}."


def _misused_multikueue(config: ClusterQueue, multikueue: list[str], provisioning: list[str]) -> list[tuple[str, str]]:
    """What is wrong with `multikueue`, the checks that send workloads to other clusters: one is allowed, for all flavors."""
    found: list[tuple[str, str]] = []
    if len(multikueue) > 1:
        text = f"Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: {','.join(multikueue)}"
        found.append(("MultipleMultiKueueAdmissionChecks", text))
    by_flavor = sorted(check.name for check in config.checks if check.name in multikueue and check.on_flavors)
    if by_flavor:
        text = f"Cannot specify MultiKueue AdmissionCheck per flavor, found: {','.join(by_flavor)}"
        found.append(("MultiKueueAdmissionCheckAppliedPerFlavor", text))
    if multikueue and provisioning:
        text = (
            "Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: "
            f"{','.join(multikueue)}, {','.join(sorted(provisioning))}"
        )
        found.append(("MultiKueueWithProvisioningRequest", text))
    return found
