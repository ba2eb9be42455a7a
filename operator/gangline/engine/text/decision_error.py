"""Whom a decision was about when it failed."""

from __future__ import annotations


class DecisionError(Exception):
    """Deciding about one workload failed, with the cause of this exception."""

    def __init__(self, workload: str) -> None:
        super().__init__(f"could not decide about {workload}")
        self.workload = workload
