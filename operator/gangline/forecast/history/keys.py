"""Classes of runs: the keys by which runtimes of finished runs are stored and looked up."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Final, TypeAlias

from gangline.forecast.history.runs import Run, fold, image_name

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
