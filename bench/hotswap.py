"""How long a gang is without its node: the published GKE recipe, a node of it made NotReady, again and again.

    python -m bench.hotswap --trials 20

Measured from the moment a watch shows the node NotReady to the moment another shows the last of the gang's replacement pods, on
three fields of one cluster:

- *spare*: five slices, two JobSets on four of them;
- *preempt*: four slices, so that the JobSet of low priority has to make room;
- *kubernetes_default*: the same recipe with Gangline's recovery switched off. Its nodes are NotReady but still end their
  pods when these are deleted: a node that never answers would hold a JobSet with BlockingRecreate for ever.

One trial of the default path takes six minutes, so a few of them run beside the others, each on a gang of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench.hotswap_field import Field, FieldError, Json, Trial, Watched
from bench.load import quantile
from bench.report import rounded
from gangline.console.stack import stack
from gangline.devcluster.connect import ClusterChoice
from gangline.devcluster.errors import DevClusterError

#: goals, in seconds: with a spare, and beyond the victims' grace period if a victim has to stop
GOAL_SPARE, GOAL_BEYOND_GRACE = 5.0, 10.0
#: the recipe sets no grace period: Kubernetes' own
GRACE = 30.0
SEED = 6


def summary(trials: Sequence[Trial]) -> Json:
    """Seconds from NotReady to all replacement pods created, and to all of them running."""
    created, running = (sorted(getattr(trial, name) for trial in trials) for name in ("created", "running"))
    if not created:
        return {"trials": 0}
    return {
        "trials": len(trials),
        "p50_seconds": quantile(created, 0.5),
        "p95_seconds": quantile(created, 0.95),
        "max_seconds": created[-1],
        "running_p50_seconds": quantile(running, 0.5),
        "running_p95_seconds": quantile(running, 0.95),
        "low_disturbed": sum(trial.low_disturbed for trial in trials),
    }


async def measure(watched: Watched, trials: int, defaults: int) -> Json:
    """Run all trials. Raises FieldError when one does not finish."""
    chance = random.Random(SEED)
    slow = [Field(watched, f"default{number}", slices=3, recovery=False, low=False) for number in range(defaults)]
    waiting = asyncio.gather(*(_one(field, random.Random(SEED + number)) for number, field in enumerate(slow)))
    try:
        found: dict[str, list[Trial]] = {}
        for name, slices in (("spare", 5), ("preempt", 4)):
            async with Field(watched, name, slices=slices) as field:
                found[name] = [await _trial(field, chance, number, trials) for number in range(trials)]
        if defaults:
            _say(f"waiting for {defaults} trial(s) of the default path")
        found["kubernetes_default"] = list(await waiting)
    finally:
        waiting.cancel()
    result: Json = {name: summary(rows) for name, rows in found.items()}
    result["goals"] = {"spare_p95_seconds": GOAL_SPARE, "preempt_p95_seconds": GRACE + GOAL_BEYOND_GRACE}
    base = result["kubernetes_default"].get("p50_seconds")
    if base is not None:
        result["ratio"] = {name: base / result[name]["p50_seconds"] for name in ("spare", "preempt")}
    result["all_created_seconds"] = {name: [trial.created for trial in rows] for name, rows in found.items()}
    return rounded(result)


async def _one(field: Field, chance: random.Random) -> Trial:
    async with field:
        return await field.trial(chance)


async def _trial(field: Field, chance: random.Random, number: int, of: int) -> Trial:
    trial = await field.trial(chance)
    _say(f"{field.name} {number + 1}/{of}: created {trial.created:.2f} s, running {trial.running:.2f} s")
    return trial


def show(result: Json) -> None:
    """The table on stderr, the JSON on stdout."""
    table = Table(title="NotReady until the replacement pods exist, seconds", title_justify="left")
    for column in ("", "trials", "p50", "p95", "max", "running p50", "times faster"):
        table.add_column(column, justify="left" if not column else "right")
    for name in ("spare", "preempt", "kubernetes_default"):
        row = result[name]
        keys = ("p50_seconds", "p95_seconds", "max_seconds", "running_p50_seconds")
        cells = [f"{row[key]:.2f}" if key in row else "–" for key in keys]
        ratio = result.get("ratio", {}).get(name)
        table.add_row(name, str(row["trials"]), *cells, f"{ratio:.0f}×" if ratio else "")
    Console(stderr=True, highlight=False).print(table)
    sys.stdout.write(json.dumps(result) + "\n")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


async def _run(standing: stack.Stack, trials: int, defaults: int) -> Json:
    async with standing.connection.client() as client, Watched.of(client) as watched:
        return await measure(watched, trials, defaults)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.hotswap", description=__doc__)
    parser.add_argument("--trials", type=int, default=20, help="of spare and of preempt, each")
    parser.add_argument("--default-trials", type=int, default=3, help="of Kubernetes' own path, side by side; 0: none")
    chosen = parser.parse_args(arguments)
    started = time.monotonic()
    try:
        with (
            stack.ended_by_signals(),
            stack.standing(ClusterChoice(source="local"), _say, stack.Wishes(jobset=True)) as standing,
        ):
            result = asyncio.run(_run(standing, chosen.trials, chosen.default_trials))
    except (FieldError, DevClusterError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    show(result | {"wall_seconds": round(time.monotonic() - started, 1)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
