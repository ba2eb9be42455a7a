"""The engine's dataclasses: small, since there are many of them, and immutable where they are facts or decisions."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from types import ModuleType

import pytest

import gangline.engine


def name_of(kind: type) -> str:
    return f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}"


MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(gangline.engine.__path__, f"{gangline.engine.__name__}.")
]
CLASSES = sorted(
    {
        value
        for module in MODULES
        if isinstance(module, ModuleType)
        for value in vars(module).values()
        if isinstance(value, type) and dataclasses.is_dataclass(value) and value.__module__ == module.__name__
    },
    key=lambda found: (found.__module__, found.__name__),
)


@pytest.mark.parametrize("kind", CLASSES, ids=name_of)
def test_a_value_has_slots(kind: type) -> None:
    assert "__slots__" in vars(kind)


#: what the engine changes itself; every other dataclass is a value
MUTABLE = {
    "admission_fairness._Account",
    "array_turns._Array",
    "assignment.FlavorChoice",
    "assignment.PodSetChoice",
    "card_ledger._Holder",
    "hosts.Host",
    "pipeline._Table",
    "scorers.Field",
    "simulation.SimulatedRun",
    "attempt.Attempt",
    "attempt.CycleTally",
    "capacity.NodeHolding",
    "cluster_queue.PodSetRequests",
    "cluster_queue.FlavorOption",
    "cluster_queue.ResourceGroupFlavors",
    "cluster_queue.GroupNeeds",
    "cluster_queue.QuotaHold",
    "cluster_queue.Way",
    "health._Record",
    "loss_budget._Bucket",
    "moves._Search",
    "node_rooms.FitTable",
    "node_rooms.Ground",
    "node_filter._Bounds",
    "node_filter._Label",
    "packer.PackedPodSet",
    "power_ledger.PowerDomain",
    "promises.Lateness",
    "packer.NodeAssignment",
    "node_ledger.TrackedNode",
    "node_ledger._Holder",
    "outlook.CourseResult",
    "timeline_outlook.SpotStay",
    "timeline_outlook._Part",
    "tree_cycle.Nomination",
    "victim_search.Need",
    "workload_intake._Standing",
    "workload_state.CountedPodSet",
    "workload_parts.LastScan",
    "waits.WorkloadWaits",
}


@pytest.mark.parametrize("kind", CLASSES, ids=name_of)
def test_values_are_immutable(kind: type) -> None:
    assert kind.__dataclass_params__.frozen == (name_of(kind) not in MUTABLE)  # type: ignore[attr-defined]
