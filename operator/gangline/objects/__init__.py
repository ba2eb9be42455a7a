"""Kubernetes objects as they were read, with names for the fields that the operator asks after."""

from gangline.objects.stored import Stored
from gangline.objects.views import (
    JobObject,
    LocalQueueObject,
    NodeObject,
    PodObject,
    WorkloadObject,
    view,
)

__all__ = ["JobObject", "LocalQueueObject", "NodeObject", "PodObject", "Stored", "WorkloadObject", "view"]
