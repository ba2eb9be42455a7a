"""What it is worth to know who slows whom: `make bench-interference`, JSON on stdout.

`pairs`: expected speeds of pairs that nobody measured, judged on families left out, and learned from one file and judged on
another. `knom2020`: eight jobs on one node as Kim and Kim measured them, under their policies and ours, in several orders of
arrival. `packed`: jobs of public traces with one GPU share cards in twos, beside the same jobs alone on a card each; each job is
one of Gavel's 26 trainings, drawn by the seed, and runs in company as these were measured to do.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Final

from tests.bench import knom2020
from tests.bench.fill import TraceError

from gangline import traces
from gangline.console.options import Instant
from gangline.engine import PairSpeeds, kind_mark
from gangline.engine.model import CompanyPolicy, JobProfile, Share
from gangline.forecast.pairs import pair_file, priors
from gangline.forecast.pairs.pair_file import MeasuredClasses
from gangline.replay.corun import CorunJob, CorunOutcome, CorunPolicy, PairLaw, hosts_of, play

DATA: Final = Path(__file__).parent.parent / "data" / "pairs"
SIMULATION, PHYSICAL = DATA / "gavel-simulation.json.gz", DATA / "gavel-physical.json.gz"
#: file and first day of the window of each trace
WINDOWS: Final = {
    "philly": ("philly-vc-2017-sep-oct.csv.gz", "2017-10-16"),
    "venus": ("helios-venus-gpu-2020-mar-aug.csv.gz", "2020-08-10"),
}
#: seconds of the jobs that are played: longer ones would decide about the makespan alone
SHORTEST, LONGEST = 60.0, 6 * 3600.0
#: seconds of a window
WINDOW: Final = 2 * 86_400
#: cards of a host
CARDS: Final = 2

#: whom ours may join: twice as slow at most, and half as much faster together than alone
OURS: Final = CompanyPolicy(max_slowdown=2.0, min_gain=1.4)
#: the same with a cap that few pairs keep
CAREFUL: Final = CompanyPolicy(max_slowdown=1.25, min_gain=1.1)
#: as the packing policies of Gavel: whoever has the greatest sum of speeds beside him, from 1.5 on, however slow one of both is
GAVEL: Final = CompanyPolicy(max_slowdown=20.0, min_gain=1.5)


# --- pairs ------------------------------------------------------------------------------------------------------------


def judged() -> dict[str, Any]:
    """Scores by file and model of card."""
    simulation, physical = pair_file.read(SIMULATION), pair_file.read(PHYSICAL)
    found: dict[str, Any] = {
        name: {score.gpu: score.as_json() for score in priors.learn(file.profiles, file.families).scores}
        for name, file in (("simulation", simulation), ("physical", physical))
    }
    found["learned_from_simulation_judged_on_physical"] = {
        gpu: priors.judge(simulation.profiles, simulation.families, gpu, judged_on=physical.profiles).as_json()
        for gpu in simulation.gpus
    }
    return found


# --- eight jobs -------------------------------------------------------------------------------------------------------


def eight_jobs(seed: int, orders: int) -> dict[str, Any]:
    """The report of knom2020, and ours in so many orders of arrival."""
    rng = random.Random(seed)
    drawn = ["".join(rng.sample("LLGGTTQQ", 8)) for _ in range(orders)]
    found = knom2020.report()
    for name in found:
        if name.startswith("ours"):
            runs = [knom2020.run(name, order) for order in drawn]
            found[name]["any_order_of_arrival"] = {
                "makespan": _spread([run.makespan for run in runs]),
                "mean_completion": _spread([run.mean_completion for run in runs]),
            }
    return found


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"least": round(min(values), 3), "mean": round(fmean(values), 3), "most": round(max(values), 3)}


# --- packed -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Drawn:
    """A job of a trace, and which training it is taken for."""

    name: str
    submit: float
    seconds: float
    kind: str


def drawn(path: Path, first: str, count: int, seed: int, kinds: Sequence[str]) -> list[Drawn]:
    """So many jobs with one GPU of the window, each a training at random. Raises TraceError if there are fewer."""
    begin = Instant().convert(first, None, None)
    found = traces.load(path).between(begin, begin + WINDOW).jobs
    able = [job for job in found if job.gpus == 1 and not job.gpu_milli and SHORTEST <= job.duration <= LONGEST]
    if len(able) < count:
        raise TraceError(f"{path}: {len(able)} jobs with one GPU from {first} on, {count} are wanted")
    rng = random.Random(seed)
    chosen = sorted(rng.sample(range(len(able)), count))
    return [Drawn(f"{place}", able[place].submit - begin, able[place].duration, rng.choice(kinds)) for place in chosen]


def _on(gpu: str, file: MeasuredClasses) -> dict[str, JobProfile]:
    """The classes that run on this model of card, with their pairs there."""
    return {
        name: JobProfile(name, tuple(pair for pair in each.pairs if pair.gpu == gpu), each.alone)
        for name, each in file.profiles.items()
        if any(alone.gpu == gpu for alone in each.alone)
    }


def _law(profiles: Mapping[str, JobProfile]) -> PairLaw:
    """What was measured; a pair that does not fit into memory gets nowhere."""
    return PairLaw(
        {
            (name, pair.beside): 0.01 if pair.out_of_memory else pair.speed
            for name, each in profiles.items()
            for pair in each.pairs
        }
    )


def packed(path: Path, first: str, gpu: str, count: int, load: float, seeds: Sequence[int]) -> dict[str, Any]:
    """Times as parts of those of the same jobs with a card each, in a cluster to which they are such a load."""
    known, physical = _on(gpu, pair_file.read(SIMULATION)), _on(gpu, pair_file.read(PHYSICAL))
    kinds = sorted(known.keys() & physical.keys())
    speeds = PairSpeeds(known, mark=kind_mark)
    # one world as it is known, and one that was measured anew
    worlds = {"": _law(known), ", on the physical cluster": _law(physical)}
    runs: dict[str, list[tuple[CorunOutcome, CorunOutcome]]] = {}
    for seed in seeds:
        jobs = drawn(path, first, count, seed, kinds)
        cards = max(CARDS, round(sum(job.seconds for job in jobs) / WINDOW / load))
        hosts = -(-cards // CARDS)
        alone = play(
            [CorunJob(job.name, job.kind, job.submit, job.seconds, Share(exclusive=True)) for job in jobs],
            hosts_of(hosts, CARDS, gpu=gpu),
            CorunPolicy("exclusive", "Pack"),
            worlds[""],
        )
        share = Share(milli=0, mode="Software")
        shared = [CorunJob(job.name, job.kind, job.submit, job.seconds, share) for job in jobs]
        for name, rule, world in (
            ("ours", OURS, ""),
            ("ours", OURS, ", on the physical cluster"),
            ("ours, learning", OURS, ", on the physical cluster"),
            ("ours, slowdown at most 1.25", CAREFUL, ""),
            ("ours, slowdown at most 1.25", CAREFUL, ", on the physical cluster"),
            ("ours, slowdown at most 1.25, learning", CAREFUL, ", on the physical cluster"),
            ("sum of speeds at least 1.5, no cap", GAVEL, ""),
        ):
            policy = CorunPolicy(name, "Interference", rule, speeds, learns="learning" in name)
            outcome = play(shared, hosts_of(hosts, CARDS, gpu=gpu, slots=2), policy, worlds[world])
            runs.setdefault(name + world, []).append((outcome, alone))
            print(
                f"{path.name} {gpu} seed {seed}: {name}{world} {outcome.mean_completion / alone.mean_completion:.3f}",
                file=sys.stderr,
            )
    return {name: _beside(each) for name, each in runs.items()}


def _beside(runs: Sequence[tuple[CorunOutcome, CorunOutcome]]) -> dict[str, Any]:
    """Parts of the exclusive times: the mean of all seeds with its standard error, and what else matters."""
    return {
        "mean_completion": _mean([ours.mean_completion / alone.mean_completion for ours, alone in runs]),
        "makespan": _mean([ours.makespan / alone.makespan for ours, alone in runs]),
        "joined_percent": round(100 * fmean(ours.joined / len(ours.ends) for ours, _ in runs), 1),
        "slowdown_most": round(max(end.slowdown for ours, _ in runs for end in ours.ends), 2),
        "known_pairs_beyond_cap": sum(ours.broken_caps for ours, _ in runs),
    }


def _mean(values: Sequence[float]) -> dict[str, float]:
    error = stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return {**_spread(values), "standard_error": round(error, 4)}


def _packed(given: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    for name, (file, first) in WINDOWS.items():
        for gpu in ("v100", "k80"):
            seeds = range(given.seed, given.seed + given.copies)
            yield f"{name}, {gpu}", packed(given.traces / file, first, gpu, given.jobs, given.load, seeds)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.interference")
    parser.add_argument("--traces", type=Path, help="the folder with the traces; without it no trace is played")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--copies", type=int, default=3, help="seeds, one after the other (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=200, help="of each trace (default: %(default)s)")
    parser.add_argument("--load", type=float, default=3.0, help="work of the window by cards (default: %(default)s)")
    given = parser.parse_args(arguments)
    if not (1 <= given.copies <= 100 and 1 <= given.jobs <= 100_000 and 0 < given.load <= 100):
        parser.error("--copies is from 1 to 100, --jobs from 1 to 100000, --load above 0 and at most 100")
    found = {"seed": given.seed, "pairs": judged(), "knom2020": eight_jobs(given.seed, 20)}
    if given.traces is not None:
        try:
            found["packed"] = {"jobs": given.jobs, "load": given.load, **dict(_packed(given))}
        except TraceError as error:
            parser.error(str(error))
    print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
