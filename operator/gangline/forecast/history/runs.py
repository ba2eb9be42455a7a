"""A run: one gang from its submission to its end. The history stores runs, and the model learns from them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from gangline import bounded
from gangline.engine.model import Workload, accelerators_of, is_accelerator
from gangline.traces import TraceJob

#: minimum runtime, so that its logarithm is defined
MIN_SECONDS: Final = 1.0

#: longer names of jobs and images, and longer words of a command, are replaced by "#", because thousands are kept in caches
LONGEST_WORD: Final = 512
#: characters of a name of a Kubernetes object
LONGEST_NAME: Final = 253
_DIGITS: Final = re.compile(r"\d+")
_HASH: Final = re.compile(r"(?<![a-z0-9])(?=[a-z]*\d)[a-z0-9]{5,}(?![a-z0-9])")


@dataclass(frozen=True, slots=True)
class Run:
    """One run. Times are Unix seconds, durations seconds. Empty strings and None mean: unknown."""

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
    limit: float | None = None  #: maximum runtime, after which the run is stopped
    hint: float | None = None  #: runtime expected by its author
    start: float | None = None
    finish: float | None = None

    @property
    def seconds(self) -> float | None:
        """The runtime; None until the run has finished."""
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
    """The run of a trace's job; without a queueing delay in the trace, it started at its submission."""
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
    """The run of an engine Workload, with attributes of its job: `name` of the job, the main container's image and command line.

    The run starts with the admission, or as much earlier as it saved of its earlier runs; `limit` defaults to the Workload's
    maximum execution time. The API server bounds neither the image of a container nor the name in an owner reference, and
    hundreds of thousands of runs are kept: a longer image is "#", a longer name is cut.
    """
    limit = limit if limit is not None else workload.max_execution_seconds
    return Run(
        uid=workload.uid,
        submit=workload.created / 1000,
        gpus=accelerators_of(workload.pod_sets),
        pods=sum(pods.count for pods in workload.pod_sets),
        namespace=workload.namespace,
        user=user[:LONGEST_NAME],
        queue=workload.queue,
        name=name[:LONGEST_NAME],
        image=image if len(image) <= LONGEST_WORD else "#",
        command=command_shape(command),
        flavor=flavor_of(workload),
        limit=limit,
        hint=hint,
        start=started_at(workload),
        finish=finished_at,
    )


def started_at(workload: Workload) -> float | None:
    """When the workload was admitted, as if it had done directly before what it saved of its earlier runs; None while it is not
    admitted.
    """
    return (workload.admitted_at - workload.saved) / 1000 if workload.admitted else None


def flavor_of(workload: Workload) -> str:
    """The flavor of the workload's accelerators; without accelerators, of its first resource; "" if not admitted."""
    if workload.admission is None:
        return ""
    flavors = {r: f for pods in workload.admission.pod_sets for r, f in pods.flavors.items()}
    return next((f for r, f in flavors.items() if is_accelerator(r)), next(iter(flavors.values()), ""))


# --- similarity of jobs -------------------------------------------------------------------------------------------------


@bounded.parser(LONGEST_WORD, instead="#")
@lru_cache(maxsize=4096)
def fold(name: str) -> str:
    """A job's name without the parts that change from run to run: generated suffixes and digits.

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
    """A command line without its values: the program, its script and the names of its options, in order.

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
    """The author's expected runtime: given directly, or as steps times seconds per step (as analytic step predictors give it).

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
    """A run that has started: its forecast (log seconds by level), and its runtime once it has finished."""

    uid: str
    start: float
    logs: tuple[float, ...]
    finish: float = math.nan
    target: float = math.nan  #: log seconds
    group: str = ""  #: calibration group: a queue's runs of one size class


# --- classes of runs: the keys by which runtimes of finished runs are stored and looked up ----------------------------


Key: TypeAlias = Hashable | None  #: None if the run lacks a part of the key


def _user(run: Run) -> Key:
    return (run.namespace, run.user) if run.user or run.namespace else None


def _name(run: Run) -> Key:
    return (run.namespace, run.user, fold(run.name)) if run.name else None


def _image(run: Run) -> Key:
    return (run.namespace, image_name(run.image)) if run.image else None


def _command(run: Run) -> Key:
    return (run.namespace, run.image and image_name(run.image), run.command) if run.command else None


def _user_size(run: Run) -> Key:
    owner = _user(run)
    return (owner, run.gpus) if owner else None


def _user_limit(run: Run) -> Key:
    owner = _user(run)
    return (owner, run.limit) if owner and run.limit else None


def _queue(run: Run) -> Key:
    """A LocalQueue is its namespace's own: others of the same name have nothing to do with it. Traces have no namespaces."""
    if not run.queue:
        return None
    return (run.namespace, run.queue) if run.namespace else run.queue


def _queue_size(run: Run) -> Key:
    queue = _queue(run)
    return (queue, run.gpus) if queue else None


#: key name -> key of a run, from what is known at its submission. The flavor is not known then; `flavors` accounts for it.
#: The order is that of the columns of a feature vector: only append, and increase features.VERSION.
KEYS: Final[Mapping[str, Callable[[Run], Key]]] = {
    "name": _name,
    "command": _command,
    "image": _image,
    "user-limit": _user_limit,
    "user-size": _user_size,
    "user": _user,
    "queue-size": _queue_size,
    "queue": _queue,
    "size": lambda run: run.gpus,
    "all": lambda run: "",
}

#: keys of which one namespace has its own
OWN: Final = frozenset(("name", "command", "image", "user-limit", "user-size", "user", "queue-size", "queue"))

#: keys that define a run's class, most specific first: the class of a run is the first of these that has a history
CLASSES: Final = ("name", "command", "image", "user-limit", "user-size", "user", "queue-size", "queue", "size")


def keys_of(run: Run) -> list[Key]:
    """The run's keys, in the order of KEYS."""
    return [key(run) for key in KEYS.values()]
