"""An error that names the workload that a failed decision was about."""

from __future__ import annotations


class DecisionError(Exception):
    """Deciding about one workload failed; this exception's cause says how."""

    def __init__(self, workload: str) -> None:
        super().__init__(f"could not decide about {workload}")
        self.workload = workload
