"""A run: one gang from its submission to its end, as far as it is known. What history stores and the model learns from."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from gangline import bounded
from gangline.engine import accelerators_of, is_accelerator
from gangline.engine.model import Workload
from gangline.traces import TraceJob

#: shorter runs count as this long: the logarithm of a runtime must exist
MIN_SECONDS: Final = 1.0

#: Names of jobs and images, and words of a command, that are longer are all alike: thousands of them are remembered.
LONGEST_WORD: Final = 512
_DIGITS: Final = re.compile(r"\d+")
_HASH: Final = re.compile(r"(?<![a-z0-9])(?=[a-z]*\d)[a-z0-9]{5,}(?![a-z0-9])")


@dataclass(frozen=True, slots=True)
class Run:
    """Times are Unix seconds, spans are seconds. Empty strings and None say: not known."""

    uid: str
    submit: float
    gpus: int = 0  #: of the whole gang
    pods: int = 1
    namespace: str = ""
    user: str = ""
    queue: str = ""
    name: str = ""
    image: str = ""
    command: str = ""
    flavor: str = ""
    limit: float | None = None  #: it is stopped after this long
    hint: float | None = None  #: what its author expects
    start: float | None = None
    finish: float | None = None

    @property
    def seconds(self) -> float | None:
        """How long it ran; None until it has finished."""
        if self.start is None or self.finish is None:
            return None
        return max(MIN_SECONDS, self.finish - self.start)

    @property
    def log_seconds(self) -> float:
        """Natural logarithm of the runtime. Raises ValueError before the run has finished."""
        seconds = self.seconds
        if seconds is None:
            raise ValueError(f"run {self.uid} has not finished")
        return math.log(seconds)


def from_trace(job: TraceJob) -> Run:
    """A job of a trace; where the trace tells no queueing delay, it started when it was submitted."""
    start = job.submit + (job.wait or 0.0)
    return Run(
        uid=job.id,
        submit=job.submit,
        gpus=job.gpus,
        pods=job.pods,
        user=job.user,
        queue=job.vc,
        name=job.name,
        flavor=job.flavor,
        limit=job.limit,
        hint=job.hint,
        start=start,
        finish=start + job.duration if job.ended else None,
    )


def from_workload(
    workload: Workload,
    *,
    name: str,
    user: str = "",
    image: str = "",
    command: Sequence[str] = (),
    limit: float | None = None,
    hint: float | None = None,
    finished_at: float | None = None,
) -> Run:
    """A Workload of the engine with what its job tells beyond it: `name` of the job, the main container's command line.

    The run counts from the admission; `limit` defaults to the Workload's maximum execution time.
    """
    limit = limit if limit is not None else workload.max_execution_seconds
    return Run(
        uid=workload.uid,
        submit=workload.created / 1000,
        gpus=accelerators_of(workload.pod_sets),
        pods=sum(pods.count for pods in workload.pod_sets),
        namespace=workload.namespace,
        user=user,
        queue=workload.queue,
        name=name,
        image=image,
        command=command_shape(command),
        flavor=flavor_of(workload),
        limit=limit,
        hint=hint,
        start=workload.admitted_at / 1000 if workload.admitted else None,
        finish=finished_at,
    )


def flavor_of(workload: Workload) -> str:
    """The flavor of its accelerators, or of whatever it holds where it asks for none."""
    if workload.admission is None:
        return ""
    flavors = {r: f for pods in workload.admission.pod_sets for r, f in pods.flavors.items()}
    return next((f for r, f in flavors.items() if is_accelerator(r)), next(iter(flavors.values()), ""))


# --- what makes two jobs alike ------------------------------------------------------------------------------------------


@bounded.parser(LONGEST_WORD, instead="#")
@lru_cache(maxsize=4096)
def fold(name: str) -> str:
    """A job's name without what changes from run to run: generated suffixes and digits.

    >>> fold("train-resnet-0042-x7k2p")
    'train-resnet-#-#'
    """
    return _DIGITS.sub("#", _HASH.sub("#", name.lower()))


@bounded.parser(LONGEST_WORD, instead="#")
@lru_cache(maxsize=4096)
def image_name(image: str) -> str:
    """An image without digest, and with the digits of its tag folded.

    >>> image_name("registry:5000/team/train:v1.2@sha256:0a1b")
    'registry:5000/team/train:v#.#'
    """
    path, _, _digest = image.partition("@")
    repository, colon, tag = path.rpartition(":")
    if not colon or "/" in tag:
        return path
    return f"{repository}:{fold(tag)}"


def command_shape(command: Sequence[str]) -> str:
    """A command line without its values: the program, its script and the names of its options, in their order.

    >>> command_shape(["python", "train.py", "--lr", "0.1", "--epochs=90", "data/7"])
    'python train.py --lr --epochs'
    """
    shape: list[str] = []
    for index, word in enumerate(part for argument in command for part in argument.split()):
        if word.startswith("-"):
            shape.append(word.partition("=")[0])
        elif index == 0 or word.endswith((".py", ".sh")):
            shape.append(fold(word.rpartition("/")[2]))
    return " ".join(shape)[:200]


def hint_seconds(expected: float | None, steps: int | None, seconds_per_step: float | None) -> float | None:
    """What the author expects: said outright, or as steps times seconds (as analytic predictors of a step give it).

    Raises ValueError for a hint that is not positive.
    """
    if expected is None and steps is not None and seconds_per_step is not None:
        expected = steps * seconds_per_step
    if expected is None:
        return None
    if not math.isfinite(expected) or expected <= 0:
        raise ValueError(f"runtime hint must be a positive number of seconds, not {expected!r}")
    return expected


@dataclass(slots=True)
class StartedRun:
    """A run that has started: what was forecast for it (log seconds by level), and how long it took once that is known."""

    uid: str
    start: float
    logs: tuple[float, ...]
    finish: float = math.nan
    target: float = math.nan  #: log seconds
    group: str = ""  #: runs that may be wrong in a way of their own: a queue's of one size class
