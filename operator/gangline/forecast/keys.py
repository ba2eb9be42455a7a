"""Classes of runs: under which keys the runtimes of finished runs are remembered and looked up again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Final, TypeAlias

from gangline.forecast.runs import Run, fold, image_name

Key: TypeAlias = Hashable | None  #: None where the run does not tell what the key is made of


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


def _queue_size(run: Run) -> Key:
    return (run.queue, run.gpus) if run.queue else None


#: key name -> key of a run, of what is known when it is submitted: the flavor is not, and is reckoned with in `flavors` instead.
#: The order is that of the columns of a feature vector: append, and raise features.VERSION.
KEYS: Final[Mapping[str, Callable[[Run], Key]]] = {
    "name": _name,
    "command": _command,
    "image": _image,
    "user-limit": _user_limit,
    "user-size": _user_size,
    "user": _user,
    "queue-size": _queue_size,
    "queue": lambda run: run.queue or None,
    "size": lambda run: run.gpus,
    "all": lambda run: "",
}

#: keys that say what a run is, finest first: the class of a run is the first of these that has a history
CLASSES: Final = ("name", "command", "image", "user-limit", "user-size", "user", "queue-size", "queue", "size")


def keys_of(run: Run) -> list[Key]:
    """The run's key under each name of KEYS, in their order."""
    return [key(run) for key in KEYS.values()]
