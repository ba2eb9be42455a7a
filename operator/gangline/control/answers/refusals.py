"""The reasons why a question has no answer, as exceptions whose text is for the asker."""

from __future__ import annotations


class NoSuchJobError(LookupError):
    """There is no such job with a Workload; the text says where there is one."""


class NotReadableError(Exception):
    """The asker may not read the jobs of the namespace, so no job of it can be named."""


class PodsUnknownError(Exception):
    """The process does not know which pods are on which node."""


class NotWaitingError(Exception):
    """The job does not wait in a queue, so nothing would let it start earlier."""


class NoSuchQueueError(LookupError):
    """There is no such ClusterQueue, or none that the asker's namespace leads to."""


class NoEventsError(Exception):
    """The process keeps no log of what happened to jobs."""


class NoAttemptsError(Exception):
    """The process keeps no record of the stretches in which jobs held quota."""


class NoSuchNodeError(LookupError):
    """There is no such node, or none of a flavor that the asker's namespace may use."""


class NoSuchDecisionError(LookupError):
    """The record has no such decision, or not any more what came before it."""


class TooSlowError(Exception):
    """A replay of the record did not come to an end."""
