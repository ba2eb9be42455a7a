"""The engine: which workloads run, when and where, as pure decisions.

Standard library only. No clock, no I/O, no Kubernetes: facts come in through `Engine.observe`, decisions go out of
`Engine.decide`, and the same facts with the same `now` give the same decisions.

What others may use is exported here, and in `engine.model` (facts, decisions and settings as plain values). Names are imported
when they are first used: a process that only reads or serves objects needs the values alone, a tenth of the code.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gangline.engine.backfill.head_delay import BACKFILL, BUDGET, EARLY_END, STOPPING
    from gangline.engine.backfill.revocation import REVOKED
    from gangline.engine.cards.card_amounts import CardRoom, Resident, card_name
    from gangline.engine.cycle.attempt import ARRAY_LIMIT, CycleRecord, Requeued
    from gangline.engine.cycle.explanations import FOR_OTHER_JOBS, NEVER_SATISFIED, NOT_TRIED
    from gangline.engine.engine import Engine
    from gangline.engine.floor.floor import Floor
    from gangline.engine.floor.modes import MODES, PLAIN, POLICY, Mode, PolicyFallback, has_floor, under
    from gangline.engine.floor.verdicts import FLOOR_LEAST
    from gangline.engine.floor.waits import Comparison
    from gangline.engine.interference.joining import Company, in_company
    from gangline.engine.interference.pair_speeds import (
        FEATURES,
        PRIOR_COUNTS,
        PairSpeeds,
        by_prior,
        features_of,
        within,
    )
    from gangline.engine.isolated_engine import EngineFault, IsolatedEngine
    from gangline.engine.model import FIXES, accelerators, accelerators_of, is_accelerator, tolerates
    from gangline.engine.model.runtime import Runtime
    from gangline.engine.occupancy.fitting import HOSTNAME, usage_of
    from gangline.engine.placing.hosts import Host, HostPlace, PodRequest
    from gangline.engine.placing.own_scorers import OWN_SCORERS, Fragments, OwnScorers
    from gangline.engine.placing.pipeline import PROFILES, BestPlace, Pipeline, PlacingProfile, Score
    from gangline.engine.placing.scorers import Field
    from gangline.engine.queues.ordering import flavors_of
    from gangline.engine.queues.preemption_log import MOVED
    from gangline.engine.queues.promises import LATE, Lateness, is_late, lateness_of
    from gangline.engine.quota.quota_ledger import BorrowingLimit, QuotaLimits
    from gangline.engine.simulation.outlook import HORIZON, ExpectedStart, Outlook, Stretch, outlook
    from gangline.engine.simulation.simulation import EventKind, SimulatedRun, Simulation
    from gangline.engine.state.lifecycle import RECALLED, RESERVED_FOR_OTHERS
    from gangline.engine.state.overrun import OVERRUN_STATES
    from gangline.engine.state.unscheduled import NOT_SCHEDULED
    from gangline.engine.text.alarms import Alarms
    from gangline.engine.text.wording import hours_text, minute_text, span_text
    from gangline.engine.topology.leaf_ranking import OF_POLICY
    from gangline.engine.topology.placement_request import PlacementRequest, PlacementResult, PlacementRules
    from gangline.engine.topology.placing import ReplacementRequest, levels_of, place, replace_node
    from gangline.engine.topology.policy_filter import kind_mark
    from gangline.engine.topology.topology_ledger import TopologyLedger

_MODULES: Final = {
    "backfill.head_delay": (
        "BACKFILL",
        "BUDGET",
        "EARLY_END",
        "STOPPING",
    ),
    "backfill.revocation": ("REVOKED",),
    "cards.card_amounts": (
        "CardRoom",
        "Resident",
        "card_name",
    ),
    "cycle.attempt": (
        "ARRAY_LIMIT",
        "CycleRecord",
        "Requeued",
    ),
    "cycle.explanations": (
        "FOR_OTHER_JOBS",
        "NEVER_SATISFIED",
        "NOT_TRIED",
    ),
    "engine": ("Engine",),
    "floor.floor": ("Floor",),
    "floor.modes": (
        "MODES",
        "Mode",
        "PLAIN",
        "POLICY",
        "PRIOR_COUNTS",
        "PolicyFallback",
        "has_floor",
        "under",
    ),
    "floor.verdicts": ("FLOOR_LEAST",),
    "floor.waits": ("Comparison",),
    "interference.joining": ("Company", "in_company"),
    "interference.pair_speeds": (
        "FEATURES",
        "PRIOR_COUNTS",
        "PairSpeeds",
        "by_prior",
        "features_of",
        "within",
    ),
    "isolated_engine": (
        "EngineFault",
        "IsolatedEngine",
    ),
    "model": (
        "FIXES",
        "accelerators",
        "accelerators_of",
        "is_accelerator",
        "tolerates",
    ),
    "model.runtime": ("Runtime",),
    "occupancy.fitting": (
        "HOSTNAME",
        "usage_of",
    ),
    "placing.hosts": (
        "Host",
        "HostPlace",
        "PodRequest",
    ),
    "placing.own_scorers": (
        "Fragments",
        "OWN_SCORERS",
        "OwnScorers",
    ),
    "placing.pipeline": (
        "BestPlace",
        "PROFILES",
        "Pipeline",
        "PlacingProfile",
        "Score",
    ),
    "placing.scorers": ("Field",),
    "queues.ordering": ("flavors_of",),
    "queues.preemption_log": ("MOVED",),
    "queues.promises": ("LATE", "Lateness", "is_late", "lateness_of"),
    "quota.quota_ledger": (
        "BorrowingLimit",
        "QuotaLimits",
    ),
    "simulation.outlook": (
        "ExpectedStart",
        "HORIZON",
        "Outlook",
        "Stretch",
        "outlook",
    ),
    "simulation.simulation": (
        "EventKind",
        "SimulatedRun",
        "Simulation",
    ),
    "state.lifecycle": ("RECALLED", "RESERVED_FOR_OTHERS"),
    "state.overrun": ("OVERRUN_STATES",),
    "state.unscheduled": ("NOT_SCHEDULED",),
    "text.alarms": ("Alarms",),
    "text.wording": ("hours_text", "minute_text", "span_text"),
    "topology.leaf_ranking": ("OF_POLICY",),
    "topology.placement_request": (
        "PlacementRequest",
        "PlacementResult",
        "PlacementRules",
    ),
    "topology.placing": (
        "ReplacementRequest",
        "levels_of",
        "place",
        "replace_node",
    ),
    "topology.policy_filter": ("kind_mark",),
    "topology.topology_ledger": ("TopologyLedger",),
}
_MODULE_OF: Final = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "ARRAY_LIMIT",
    "BACKFILL",
    "BUDGET",
    "EARLY_END",
    "FEATURES",
    "FIXES",
    "FLOOR_LEAST",
    "FOR_OTHER_JOBS",
    "HORIZON",
    "HOSTNAME",
    "LATE",
    "MODES",
    "MOVED",
    "NEVER_SATISFIED",
    "NOT_SCHEDULED",
    "NOT_TRIED",
    "OF_POLICY",
    "OVERRUN_STATES",
    "OWN_SCORERS",
    "PLAIN",
    "POLICY",
    "PRIOR_COUNTS",
    "PROFILES",
    "RECALLED",
    "RESERVED_FOR_OTHERS",
    "REVOKED",
    "STOPPING",
    "Alarms",
    "BestPlace",
    "BorrowingLimit",
    "CardRoom",
    "Company",
    "Comparison",
    "CycleRecord",
    "Engine",
    "EngineFault",
    "EventKind",
    "ExpectedStart",
    "Field",
    "Floor",
    "Fragments",
    "Host",
    "HostPlace",
    "IsolatedEngine",
    "Lateness",
    "Mode",
    "Outlook",
    "OwnScorers",
    "PairSpeeds",
    "Pipeline",
    "PlacementRequest",
    "PlacementResult",
    "PlacementRules",
    "PlacingProfile",
    "PodRequest",
    "PolicyFallback",
    "QuotaLimits",
    "ReplacementRequest",
    "Requeued",
    "Resident",
    "Runtime",
    "Score",
    "SimulatedRun",
    "Simulation",
    "Stretch",
    "TopologyLedger",
    "accelerators",
    "accelerators_of",
    "by_prior",
    "card_name",
    "features_of",
    "flavors_of",
    "has_floor",
    "hours_text",
    "in_company",
    "is_accelerator",
    "is_late",
    "kind_mark",
    "lateness_of",
    "levels_of",
    "minute_text",
    "outlook",
    "place",
    "replace_node",
    "span_text",
    "tolerates",
    "under",
    "usage_of",
    "within",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    return value
