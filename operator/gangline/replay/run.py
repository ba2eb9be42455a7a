"""One policy from its first job to its metrics, and all policies combined."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from gangline.replay import calibration, conclusion, metrics, windows, world
from gangline.replay.conclusion import Comparison
from gangline.replay.foresight import Blind, Foresight, Guess, LastTwo, Noisy, RequestedTimes, Truth
from gangline.replay.learned import Learned
from gangline.replay.policies import Policy
from gangline.replay.replay_plan import Prepared, ReplayPlan, shake
from gangline.replay.replayed import ReplayResult
from gangline.replay.simulator import Simulator
from gangline.replay.windows import WindowCost
from gangline.replay.world import Saving


def foresight(plan: ReplayPlan, policy: Policy, prepared: Prepared, seed: int) -> Foresight:
    """The source of estimates of this policy."""
    match plan.predictor_of(policy):
        case "blind":
            return Blind()
        case "true":
            return Truth(plan.rules.restart)
        case "limit":
            return RequestedTimes(prepared.limit)
        case "last-two":
            return LastTwo(prepared.history, prepared.limit)
        case "random":
            return Guess(seed, prepared.past_seconds)
        case "noisy":
            return Noisy(seed)
        case _:
            assert prepared.schooling is not None
            retrain = None if plan.retrain_every is None else round(plan.retrain_every * 1000)
            return Learned(prepared.schooling, retrain)


def play(
    plan: ReplayPlan, policy: Policy, prepared: Prepared, shaken: int = 0, progress: Callable[[int], None] | None = None
) -> tuple[PolicyResult, dict[str, Any]]:
    """One policy, and the accuracy of its forecasts. `shaken` > 0 numbers a shaken copy of the input."""
    seed = plan.seed + shaken
    jobs = shake(prepared.jobs, seed, plan.shake) if shaken else prepared.jobs
    believed = foresight(plan, policy, prepared, seed)
    simulator = Simulator(
        jobs,
        plan.cluster,
        policy.queue,
        believed,
        rules=plan.rules,
        quotas=prepared.quotas,
        ranked=policy.ranked,
        progress=progress,
        world=None if prepared.worlds is None else prepared.worlds.under(policy, plan.restart),
        settings=plan.settings,
        planned=prepared.planned,
        handling=policy.windows,
    )
    result = simulator.run()
    if prepared.worlds is not None:  # those submitted before the window only fill the cluster
        result.outcomes = [each for each in result.outcomes if each.job.submit >= plan.first * 1000]
    return PolicyResult(policy.name, result, metrics.of(result)), calibration.of(
        [outcome.job for outcome in result.outcomes], believed
    )


@dataclass(slots=True)
class PolicyResult:
    """The data of a policy for the report: results are kept, traces of jobs are not."""

    policy: str
    result: ReplayResult
    measures: dict[str, Any]


@dataclass(slots=True)
class Replay:
    """The results of a replay."""

    plan: ReplayPlan
    trace_format: str
    stories: list[PolicyResult]
    shaken: dict[str, list[dict[str, Any]]]
    forecast: dict[str, Any]
    limit: float
    notes: list[str]
    #: what each policy saves against the policy `base`
    savings: dict[str, dict[str, Saving]] = field(default_factory=dict[str, dict[str, Saving]])
    base: str = ""

    def window_costs(self) -> list[WindowCost]:
        """What windows of Reservations cost, by policy; empty where none were played."""
        results = {story.policy: story.result for story in self.stories}
        return windows.costs(results, self._measures())

    def comparisons(self) -> list[Comparison]:
        """Each policy compared with plain ones; not the copies of policies that handle windows in another way, or don't move."""
        judged = [policy.name for policy in self.plan.policies if policy.windows == "announced" and not policy.unmoved]
        return conclusion.comparisons(self._measures(), self.shaken, judged, self.base)

    def conclusion(self) -> list[str]:
        """The conclusion in sentences."""
        return conclusion.sentences(self.comparisons(), self._measures())

    def _measures(self) -> dict[str, dict[str, Any]]:
        return {story.policy: story.measures for story in self.stories}

    def as_json(self) -> dict[str, Any]:
        policies: dict[str, Any] = {}
        for story in self.stories:
            policies[story.policy] = dict(story.measures)
            runs = self.shaken.get(story.policy)
            if runs:
                policies[story.policy]["shaken"] = _shaken(runs)
        return {
            "cluster": {"gpus": self.plan.cluster.gpus, "gpus_per_node": self.plan.cluster.per_node},
            "window": {"train_until": self.plan.train_until, "from": self.plan.first, "to": self.plan.last},
            "rules": {
                "predictor": self.plan.predictor,
                "retrain_seconds": self.plan.retrain_every,
                "checkpoint_seconds": self.plan.checkpoint,
                "restart_seconds": self.plan.restart,
                "save_cost_seconds": self.plan.save_cost,
                "jitter": self.plan.shake,
                "limit_seconds": self.limit,
                "tenants": self.plan.tenants,
                "seed": self.plan.seed,
            },
            "format": self.trace_format,
            "notes": self.notes,
            "policies": policies,
            **({"windows": [asdict(each) for each in found]} if (found := self.window_costs()) else {}),
            **({"savings": {"against": self.base, **world.as_json(self.savings)}} if self.savings else {}),
            "forecast": self.forecast,
            "conclusion": conclusion.as_json(self.comparisons()),
        }


def shaken_lines(done: Replay) -> dict[str, str]:
    """What the shaken runs came to, by policy, for people. Differences within a deviation are chance."""
    found: dict[str, str] = {}
    for policy, runs in done.shaken.items():
        sums = _shaken(runs)
        figures = [
            f"{word} {sums[name]['mean']:,.0f} ± {sums[name]['sd']:,.0f} s"
            for name, word in (("wait_mean", "wait"), ("wait_p99", "p99"), ("wait_max", "longest"))
            if name in sums
        ]
        share = "" if "gpu_hours_lost_share" not in sums else f", lost {sums['gpu_hours_lost_share']['mean']:.2%}"
        count = f"{len(runs)} shaken run{'s' if len(runs) > 1 else ''}"
        found[policy] = f"{count}: {', '.join(figures) or 'nothing ended'}{share}{_kept(sums)}"
    return found


def _kept(sums: Mapping[str, Any]) -> str:
    """What shaken runs promised, and which share of it they kept; "" where nothing was promised."""
    kept = sums.get("promises_coverage")
    if kept is None:
        return ""
    return (
        f", {sums['promises_made']['mean']:,.0f} promised starts, {sums['promises_mean_length']['mean']:,.0f} s ahead, "
        f"of which {kept['mean']:.1%} ± {kept['sd']:.1%} were kept"
    )


def _shaken(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean, standard deviation and range of the figures that differ from run to run."""
    found: dict[str, Any] = {"runs": len(runs)}
    for name, pick in _SHAKEN.items():
        values = [value for run in runs if (value := pick(run)) is not None]
        if values:
            mean = sum(values) / len(values)
            deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / max(1, len(values) - 1))
            found[name] = {"mean": mean, "sd": deviation, "min": min(values), "max": max(values)}
    return found


_SHAKEN: Final[dict[str, Callable[[Mapping[str, Any]], float | None]]] = {
    "wait_mean": lambda run: run["wait"]["mean"],
    "wait_p99": lambda run: run["wait"]["p99"],
    "wait_max": lambda run: run["wait"]["max"],
    "wait_gt8_mean": lambda run: run["wait_gt8"]["mean"],
    "bounded_slowdown": lambda run: run["bounded_slowdown"],
    "gpu_hours_lost_share": lambda run: run["gpu_hours_lost_share"],
    "promises_made": lambda run: run["promises"]["made"],
    "promises_coverage": lambda run: run["promises"]["coverage"],
    "promises_mean_length": lambda run: run["promises"]["mean_length"],
    "promises_mean_lateness": lambda run: run["promises"]["mean_lateness"],
}
