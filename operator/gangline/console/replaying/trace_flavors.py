"""The flavors of a replay of a trace, and how fast each of its jobs is on which of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from gangline import bounded
from gangline.api import flavor_speeds
from gangline.api.admission import syntax
from gangline.engine.model import JobProfile
from gangline.forecast.pairs import pair_file
from gangline.replay.replay_plan import ReplayPlan
from gangline.replay.replayed import ReplayedCluster, ReplayedJob, ReplayError

#: flavors of a replay, and GPUs of one
MOST_FLAVORS: Final = 16
MOST_GPUS: Final = 1_000_000
#: predictors that learn from runs: they know nothing of flavors
_LEARNING: Final = frozenset({"model", "last-two"})


def cluster(gpus: int | None, per_node: int, written: Sequence[str]) -> ReplayedCluster:
    """The cluster of a trace, of --gpus or of --flavor NAME=GPUS. Raises ReplayError."""
    if not written:
        if gpus is None:
            raise ReplayError("--gpus is missing: a trace does not say how large the cluster is")
        return ReplayedCluster(gpus, per_node)
    if gpus is not None:
        raise ReplayError("--gpus says nothing with --flavor, which says how many GPUs each flavor has")
    if len(written) > MOST_FLAVORS:
        raise ReplayError(f"--flavor: {len(written)} flavors, at most {MOST_FLAVORS} are played")
    found: dict[str, int] = {}
    for each in written:
        name, _, number = each.partition("=")
        amount = bounded.whole(number)
        if syntax.dns_label_faults(name) or amount is None or amount > MOST_GPUS or name in found:
            raise ReplayError(f"--flavor {bounded.shown(each)}: needs NAME=GPUS, each name once")
        found[name] = amount
    return ReplayedCluster.of_flavors(found, per_node)


def check(plan: ReplayPlan, planned: bool) -> None:
    """Raises ReplayError where several flavors can't be played."""
    if not plan.cluster.flavors:
        return
    if plan.tenants or planned:
        raise ReplayError("--flavor is not played with --tenants, --reservation or --quota-plan")
    for policy in plan.policies:
        if (name := plan.predictor_of(policy)) in _LEARNING:
            raise ReplayError(
                f"--flavor: policy {policy.name} would learn from runtimes ({name}) as if all GPUs were alike; "
                "choose --predictor true, limit, random or noisy, and policies that obey it"
            )


def with_speeds(
    jobs: Iterable[ReplayedJob], plan: ReplayPlan, measured: Path | None
) -> tuple[tuple[ReplayedJob, ...], list[str]]:
    """The jobs with their speeds: as the trace's column says, else those of one of the measured classes, which is drawn. Also
    returns notes. Raises ReplayError.
    """
    names = [name for name, _ in plan.cluster.flavors]
    profiles = _profiles(measured, names) if measured is not None else []
    chance = random.Random(plan.seed)
    found = [_with_speeds(job, names, profiles, chance) for job in jobs]
    plain = sum(not job.speeds for job in found)
    return tuple(found), [f"jobs that are as fast on all flavors: {plain}"] if plain else []


def _with_speeds(
    job: ReplayedJob, names: Sequence[str], profiles: Sequence[dict[str, float]], chance: random.Random
) -> ReplayedJob:
    drawn = chance.choice(profiles) if profiles else {}
    if job.trace is None or not (written := job.trace.flavor_speeds):
        return replace(job, speeds=drawn)
    said = flavor_speeds.speeds(written)
    if said is None:
        raise ReplayError(f"job {bounded.shown(job.id)}: flavor_speeds {flavor_speeds.WANTED}")
    return replace(job, speeds={name: said.get(name, 1.0) for name in names})


def _profiles(path: Path, flavors: Sequence[str]) -> list[dict[str, float]]:
    """The speeds of the classes that were measured on all of these flavors, 1 on average."""
    try:
        profiles = pair_file.read(path).profiles
    except pair_file.PairFileError as error:
        raise ReplayError(f"--flavor-speeds {error}") from None
    rates = [_rates(profiles[name]) for name in sorted(profiles)]
    found = [
        flavor_speeds.relative({flavor: each[flavor] for flavor in flavors})
        for each in rates
        if each.keys() >= set(flavors)
    ]
    if not found:
        raise ReplayError(f"--flavor-speeds {path}: no class was measured on all of {', '.join(flavors)}")
    return found


def _rates(profile: JobProfile) -> dict[str, float]:
    return {alone.gpu: alone.rate for alone in profile.alone if alone.rate}
