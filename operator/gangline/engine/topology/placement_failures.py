"""Why a topology request fails, in Kueue's words."""

from __future__ import annotations

from collections.abc import Sequence

from gangline.engine.topology.domain_counts import Counts
from gangline.engine.topology.placement_request import Goal


def no_domains(level: str) -> str:
    return f"no topology domains at level: {level}"


def stale_domain(host: str) -> str:
    return (
        "Cannot replace the node, because the existing topologyAssignment is invalid, "
        f"as it contains the stale domain {host}"
    )


def no_replacement(host: str) -> str:
    return f"cannot find replacement assignment for unhealthy node: {host}"


def does_not_fit(
    counts: Counts, goal: Goal, fitting: int, *, level: int, topology: str, levels: Sequence[str], hostnames: bool
) -> str:
    """`fitting` slices have room at `level`; with several slice layers, the numbers of each layer are given instead."""
    if len(goal.layers) > 1:
        text = f'topology "{topology}" doesn\'t allow to fit' + _layers_fitting(counts, goal, level, levels, hostnames)
    else:
        unit = "pod" if goal.slice_size == 1 else "slice"
        found = f"allows to fit only {fitting} out of" if fitting else "doesn't allow to fit any of"
        text = f'topology "{topology}" {found} {goal.slices} {unit}(s)'
    return text + _exclusions(counts)


def _exclusions(counts: Counts) -> str:
    reasons = sorted(f"{reason}: {leaves}" for reason, leaves in counts.tally.items() if leaves)
    return f". Total nodes: {len(counts.reasons)}; excluded: {', '.join(reasons)}" if reasons else ""


def _layers_fitting(counts: Counts, goal: Goal, level: int, levels: Sequence[str], hostnames: bool) -> str:
    """What fits into the domain that holds most slices, per slice layer."""
    tree, slices = counts.tree, counts.slices[level]

    def rank(position: int) -> tuple[int, str]:
        path = tree.paths[level][position]
        name = path[-1] if hostnames and level == tree.lowest else ",".join(path)
        return -slices[position], name

    best = min(range(tree.size(level)), key=rank)
    text = ""
    for layer_level, size in goal.layers:
        domains = [best]
        for step in range(level, layer_level):
            domains = tree.children_of_all(step, domains)
        fitting = sum(counts.pods[layer_level][position] // size for position in domains)
        text += f"; {fitting}/{goal.count // size} slice(s) fit on level {levels[layer_level]}"
    return text
