"""A small cluster's runs, made up: users with habits, names with digits, tails, hints that are wrong in a known way."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from gangline.forecast.history.runs import Run

DAY = 86400.0


def make_runs(count: int, seed: int = 7, *, users: int = 8, days: float = 30.0, drift: float = 0.0) -> list[Run]:
    """Runs in the order of submission. A user's runs of one name take about as long; `drift` makes later ones longer (logs)."""
    rng = random.Random(seed)
    habits = {
        (user, kind): (rng.uniform(math.log(60), math.log(40_000)), rng.choice((1, 1, 2, 8, 16)))
        for user in range(users)
        for kind in range(3)
    }
    submits = sorted(rng.uniform(0, days * DAY) for _ in range(count))
    runs: list[Run] = []
    for number, submit in enumerate(submits):
        user, kind = rng.randrange(users), rng.randrange(3)
        center, gpus = habits[user, kind]
        log = center + rng.gauss(0, 0.5) + drift * submit / (days * DAY)
        seconds = max(5.0, math.exp(log))
        start = submit + rng.expovariate(1 / 300)
        runs.append(
            Run(
                uid=f"run-{number}",
                submit=submit,
                gpus=gpus,
                pods=max(1, gpus // 8),
                namespace=f"team-{user % 2}",
                user=f"user-{'abcdefgh'[user % 8]}",
                queue=f"queue-{user % 2}",
                name=f"train-{'xyz'[kind]}-{number}",
                image=f"registry/train:{kind}",
                flavor="a100",
                limit=2 * 86400.0,
                start=start,
                finish=start + seconds,
            )
        )
    return runs


def at_random(runs: list[Run], seed: int = 3) -> list[Run]:
    """The same runs, each with a runtime that nothing tells of."""
    rng = random.Random(seed)
    return [replace(run, finish=(run.start or 0.0) + math.exp(rng.uniform(3, 11))) for run in runs]
