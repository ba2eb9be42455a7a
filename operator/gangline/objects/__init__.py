"""Kubernetes objects as they were read, with names for the fields that the operator asks after.

Names are imported when they are first used: to read a job takes the rules of all kinds, to read a Workload takes none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gangline.objects.queueing import LocalQueueObject, WorkloadObject
    from gangline.objects.stored import Stored
    from gangline.objects.views import JobObject, NodeObject, PodObject, view

_MODULES: Final = {
    "queueing": ("LocalQueueObject", "WorkloadObject"),
    "stored": ("Stored",),
    "views": ("JobObject", "NodeObject", "PodObject", "view"),
}
_MODULE_OF: Final = {name: module for module, names in _MODULES.items() for name in names}

__all__ = ["JobObject", "LocalQueueObject", "NodeObject", "PodObject", "Stored", "WorkloadObject", "view"]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    return value
