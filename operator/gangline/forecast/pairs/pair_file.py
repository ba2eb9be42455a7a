"""Measured pairs from a file: steps per second alone and in pairs, as the artifact of Gavel (OSDI 2020) has them.

    {gpu: {"('job', workers)": {"null": alone, "('other', workers)": [mine, other's], …}, …}, …}

Jobs with one worker are read: pairs of larger ones were not measured. A pair in which both have the speed 0 did not fit into
memory. A name such as `ResNet-50 (batch size 32)` says family and batch size: the class is `ResNet-50/batch-32`. The part of the
family's best rate of samples that a batch size reaches stands for the part of the card that it uses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gangline import bounded, files
from gangline.engine.model import CompanySpeed, JobProfile, SpeedAlone

#: bytes of a file, unpacked
MOST_BYTES: Final = 16 * 2**20
#: classes of jobs of a file: pairs are their square
MOST_CLASSES: Final = 200
#: steps per second
_MOST_RATE: Final = 1e9

_JOB: Final = re.compile(r"\('([^'()]{1,60}(?: \([^'()]{1,30}\))?)', 1\)")
#: what classes of jobs have not in their names
_ODD: Final = re.compile(r"[^A-Za-z0-9._-]+")
_BATCH: Final = re.compile(r"^(.{1,60}?) \(batch size (\d{1,9})\)$")


class PairFileError(ValueError):
    """A file of pairs that cannot be read; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class MeasuredClasses:
    """What a file says: profiles by class, the models of cards on which pairs were measured, and the family of each class."""

    profiles: Mapping[str, JobProfile]
    gpus: tuple[str, ...]
    families: Mapping[str, str]


def read(path: Path) -> MeasuredClasses:
    """A file of measured pairs, gzipped or not. Raises PairFileError."""
    try:
        content = files.read_bytes(path, most=MOST_BYTES, unpack=True)
        document: Any = bounded.load_json(content, most_bytes=MOST_BYTES)
    except OSError as error:
        raise PairFileError(f"{path}: cannot be read: {error.strerror or error}") from error
    except bounded.BadJsonError as error:
        raise PairFileError(f"{path}: {error}") from error
    if not isinstance(document, dict) or not all(isinstance(jobs, dict) for jobs in document.values()):
        raise PairFileError(f"{path}: has to be an object of models of cards, each with an object of jobs")
    found = {gpu: _of_one_worker(jobs) for gpu, jobs in document.items()}
    # the same jobs with workers on several nodes, or another setting: of one worker they say nothing new
    gpus = tuple(gpu for gpu in found if found[gpu] and not gpu.endswith("_unconsolidated"))
    names = sorted({name for gpu in gpus for name in found[gpu]})
    if not names:
        raise PairFileError(f"{path}: has no job with one worker")
    if len(names) > MOST_CLASSES:
        raise PairFileError(f"{path}: has {len(names)} classes of jobs, at most {MOST_CLASSES} are read")
    tables = {gpu: {name: _rates(path, gpu, name, found[gpu][name]) for name in found[gpu]} for gpu in gpus}
    profiles = {name: _profile(name, tables) for name in names}
    return MeasuredClasses(profiles, gpus, {name: _family(name)[0] for name in names})


def _of_one_worker(jobs: Mapping[str, Any]) -> dict[str, Any]:
    return {_class(match[1]): value for key, value in jobs.items() if len(key) < 128 and (match := _JOB.fullmatch(key))}


def _class(job: str) -> str:
    """The class of a job: `ResNet-50/batch-32`."""
    match = _BATCH.match(job)
    family, batch = (match[1], f"/batch-{int(match[2])}") if match else (job, "")
    return _ODD.sub("-", family).strip("-._/") + batch


def _family(name: str) -> tuple[str, int]:
    family, _, batch = name.partition("/batch-")
    return family, int(batch or 1)


@dataclass(frozen=True, slots=True)
class _Rates:
    alone: float
    #: other -> mine and the other's
    beside: Mapping[str, tuple[float, float]]


def _rates(path: Path, gpu: str, name: str, row: Any) -> _Rates:
    where = f"{path}: {bounded.shown(gpu)}, {bounded.shown(name)}"
    if not isinstance(row, dict) or not _is_rate(row.get("null")):
        raise PairFileError(f'{where}: needs its rate alone, as "null"')
    beside: dict[str, tuple[float, float]] = {}
    for other, pair in _of_one_worker(row).items():
        if not (isinstance(pair, list) and len(pair) == 2 and all(map(_is_rate, pair))):
            raise PairFileError(f"{where} beside {bounded.shown(other)}: needs two rates")
        beside[other] = float(pair[0]), float(pair[1])
    return _Rates(float(row["null"]), beside)


def _is_rate(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MOST_RATE


def _profile(name: str, tables: Mapping[str, Mapping[str, _Rates]]) -> JobProfile:
    pairs: list[CompanySpeed] = []
    alone: list[SpeedAlone] = []
    for gpu, table in tables.items():
        rates = table.get(name)
        if rates is None or rates.alone <= 0:  # it does not run there
            continue
        alone.append(SpeedAlone(gpu, rates.alone, utilisation=_utilisation(name, table)))
        for other, (mine, theirs) in sorted(rates.beside.items()):
            if other not in table or table[other].alone <= 0:
                continue
            if mine == theirs == 0:
                pairs.append(CompanySpeed(other, gpu, out_of_memory=True))
            else:
                pairs.append(CompanySpeed(other, gpu, speed=mine / rates.alone))
    return JobProfile(name, tuple(pairs), tuple(alone))


def _utilisation(name: str, table: Mapping[str, _Rates]) -> int:
    """Percent of the family's best rate of samples; 0 = not known, where no other batch size was measured."""
    family, batch = _family(name)
    others = [_family(each)[1] * table[each].alone for each in table if _family(each)[0] == family]
    return max(1, round(100 * batch * table[name].alone / max(others))) if len(others) > 1 else 0
