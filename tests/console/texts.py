"""What the commands say that print no list, for pictures of the terminal: `screens` draws them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.builders.clusters import NOW
from tests.console.objects import NOW as LATER
from tests.console.test_swap import OPEN, OVER, struck

from gangline.console.commands.admin import audit, forecast, replay, swap
from gangline.console.commands.future import eta
from gangline.console.commands.see import why
from gangline.console.output import presenting
from gangline.console.output.layout import wrapped
from gangline.console.views import what_if
from gangline.control.answers.workloads.snapshot import WorkloadView, workload_view
from gangline.control.answers.workloads.words import Line
from gangline.forecast.evaluate import Report, Scores, Window
from gangline.forecast.learning.guard import ModelVerdict
from gangline.forecast.metrics import PointScore, QuantileScore
from gangline.objects import WorkloadObject

Json = dict[str, Any]
SHORT = "insufficient unused quota for nvidia.com/gpu in flavor h100, 8 more needed"
LONG = "mixtral-8x22b-finetune-legal-summaries-a"


def texts() -> dict[str, Callable[[int], list[str]]]:
    """Name -> the lines for a terminal of so many columns."""
    return {
        "why": lambda width: why.rendered(_waits(), _explained(), width),
        "whatif": lambda width: what_if.answer_lines(_answer(), width),
        "whatif-nothing": lambda width: what_if.answer_lines(
            {**_answer(), "suggestions": [], "startsInSeconds": None, "obstacle": SHORT, "because": ""}, width
        ),
        "eta-history": lambda width: [
            *presenting.styled(eta.promise_rows(_promised()["promises"], NOW), width),
            *(part for line in eta.outcome_lines(_promised(), NOW) for part in wrapped(line, width)),
        ],
        "audit": lambda width: presenting.drawn(
            audit.LISTING, presenting.Presentation(), audit.with_reservations(_audited()), NOW, width
        ),
        "forecast-eval": lambda width: forecast.lines(_evaluated(), width),
        "replay": lambda width: presenting.styled(replay.table(_replayed()), width),
        "swap-show": lambda width: [
            part for line in swap.story(struck("train", OVER, OPEN), LATER) for part in wrapped(line, width)
        ],
    }


def _waits() -> WorkloadView:
    owner = [{"kind": "Job", "name": LONG, "uid": "j", "controller": True, "apiVersion": "batch/v1"}]
    meta = {"name": f"job-{LONG}-1f2e3", "namespace": "language-models-research", "uid": "u", "ownerReferences": owner}
    waits = {
        "type": "QuotaReserved",
        "status": "False",
        "reason": "WaitingForQuota",
        "message": f"couldn't assign {SHORT}",
    }
    raw = WorkloadObject({"metadata": meta, "spec": {"podSets": []}, "status": {"conditions": [waits]}})
    found = workload_view(raw, {})
    assert found is not None
    return found


def _explained() -> list[Line]:
    offers = {
        "startsInSeconds": {"p50": 7200, "p90": 86_400},
        "because": "after llama-3-70b-pretrain-continued-0017 ends",
        "remedies": [
            {
                "change": "ask for 24 GPUs instead of 32",
                "by": "author",
                "startsInSeconds": {"p50": 0, "p90": 0},
                "gainedHours": 2.0,
            },
            {
                "change": "borrowingLimit of h100 in ClusterQueue language-models +8 nvidia.com/gpu",
                "by": "administrator",
                "startsInSeconds": {"p50": 600, "p90": None},
                "gainedHours": 1.8,
            },
        ],
    }
    return [
        Line("state", "Pending for 47m, 2nd of 12 waiting in ClusterQueue language-models (cohort lab)"),
        Line("asks for", "32 nvidia.com/gpu in 4 pods, all at once; priority 100"),
        Line("because", "WaitingForQuota: h100: 8 more GPUs needed"),
        Line("quota", "h100: language-models uses 64 of its 64 GPUs, may borrow 0; cohort lab uses 72 of 80"),
        Line("quota", "a100: language-models uses 16 of its 16 GPUs"),
        Line(
            "limit",
            "h100: the borrowingLimit of ClusterQueue language-models (0) binds; without it 8 GPUs could be used now",
        ),
        Line(
            "held by",
            f"h100: job/{LONG[:-1]}b (32, running 2h, ends in 40m – 3h), hidden-1a2b3c4d of queue-5e6f7a8b (8)",
        ),
        Line("needs", "8 more GPUs of h100 free: the end of hidden-1a2b3c4d (8) frees as much"),
        *why.remedy_lines(offers),
    ]


def _answer() -> Json:
    runs = {"p50": 5400, "p90": 9000}
    suggestion = {
        "change": "submit it to queue vision-shared-with-others (ClusterQueue vision-and-everything-else)",
        "startsInSeconds": {"p50": 60, "p90": 600},
        "gainedHours": 1.9,
        "runsForSeconds": runs,
        "flavor": "a100",
    }
    return {
        "queue": "language-models",
        "startsInSeconds": {"p50": 7200, "p90": 14_400},
        "because": "after llama-3-70b-pretrain-continued-0017 ends",
        "obstacle": "",
        "forecast": {"source": "History", "samples": 412},
        "runsForSeconds": runs,
        "flavor": "",
        "unexamined": 0,
        "suggestions": [suggestion, {**suggestion, "change": "ask for 16 GPUs instead of 32", "gainedHours": 0.5}],
    }


def _promised() -> Json:
    first = {"at": NOW - 7200, "p50": NOW - 3600, "p90": NOW - 600, "because": f"after {LONG} ends", "cause": ""}
    moved = {"at": NOW - 5000, "p50": NOW - 2400, "p90": None, "because": "after probe ends"}
    moved["cause"] = f"before: after {LONG} ends; now: after probe ends"
    record = {"starts": 412, "withinP50": 0.52, "withinP90": 0.91, "medianError": 0.14}
    return {
        "promises": [first, moved],
        "started": NOW - 900,
        "record": record,
        "job": {"clusterQueue": "language-models"},
    }


def _audited() -> list[Json]:
    kept = {
        "clusterQueue": "language-models",
        "planned": 140,
        "promised": 120,
        "coverage": 0.9833,
        "promisedSeconds": 432_000.0,
        "late": 2,
        "lateSeconds": 31.5,
        "missedBy": {"forecast": 1, "new_head": 1},
    }
    return [
        {**kept, "delaySeconds": {"backfill": 0.0, "early_end": 12.5, "loss_budget": 0.0, "stopping": 19.0}},
        {
            **kept,
            "clusterQueue": "vision",
            "late": 0,
            "lateSeconds": 0.0,
            "missedBy": {},
            "coverage": 1.0,
            "delaySeconds": {},
        },
    ]


def _evaluated() -> Report:
    """By size and for a queue with a long name; without a single request."""
    names = ("q10", "q50", "q80", "q90", "q95")
    quantiles = QuantileScore(3620, dict.fromkeys(names, 0.873), dict.fromkeys(names, 0.1234), 1.7)
    point = PointScore(3620, 0.612, 0.81, 0.55, 0.402)
    points = {"forecast": point, "last-two": point, "class-median": point, "request": None, "alike": point}
    scores = Scores(quantiles, points, {"last-two": 0.19}, quantiles)
    return Report(
        Window(NOW - 864_000, NOW - 864_000, NOW),
        12_000,
        3,
        {"Model": 3500, "History": 120},
        ModelVerdict(True, 0.61, 0.75, 3620, "the model is used: 19 % better than last-two"),
        scores,
        {"≤8 GPUs": scores, ">8 GPUs": scores},
        {"language-models-research-shared": scores},
    )


def _replayed() -> dict[str, Json]:
    one: Json = {
        "wait": {"mean": 123_456.0, "p90": 345_678.0, "p99": 1_234_567.0, "max": 2_345_678.0},
        "wait_gt8": {"mean": None},
        "wait_le8": {"mean": 98_765.0},
        "bounded_slowdown": 123.45,
        "utilisation": 0.876,
        "evictions": 1234,
        "gpu_hours_lost_share": 0.0123,
        "head_delay_backfill_seconds": 0.0,
        "head_delay_loss_budget_seconds": 0.0,
        "head_delay_early_end_seconds": 1234.0,
        "promises": {"made": 120, "coverage": 0.969},
        "unfinished": 0,
        "impossible": 3,
        "replay_seconds": 12.3,
    }
    other: Json = {
        "promises": {"made": 0, "coverage": None},
        "bounded_slowdown": None,
        "evictions": 0,
        "gpu_hours_lost_share": 0.0,
        "head_delay_backfill_seconds": 500.0,
        "head_delay_loss_budget_seconds": None,
        "head_delay_early_end_seconds": None,
        "wait": dict.fromkeys(("mean", "p90", "p99", "max"), 12_345.0),
        "wait_le8": {"mean": None},
        "unfinished": 2,
    }
    return {"besteffort": {**one, **other}, "gangline-any": one}


def happened() -> list[Json]:
    """Events of one's own job and of a hidden one."""
    own = {
        "namespace": "ml",
        "jobKind": "Job",
        "jobName": LONG,
        "user": "mira",
        "queue": "main",
        "clusterQueue": "language-models",
    }
    text = f"couldn't assign flavors to pod set worker: {SHORT}"
    common = {"hidden": False, "gpus": 32, "pods": 4, "flavors": ["h100"], "reason": ""}
    other = {
        **own,
        "namespace": "",
        "jobKind": "",
        "jobName": "hidden-1a2b3c4d",
        "user": "",
        "queue": "",
        "hidden": True,
        "gpus": 8,
    }
    return [
        {**common, **own, "at": NOW - 600, "event": "Submitted", "text": ""},
        {**common, **own, "at": NOW - 599, "event": "Pending", "text": text},
        {**common, **other, "at": NOW - 60, "event": "Stopping", "text": ""},
        {
            **common,
            **own,
            "at": NOW - 50,
            "event": "Running",
            "text": "All pods reached readiness and the workload is running",
        },
    ]
