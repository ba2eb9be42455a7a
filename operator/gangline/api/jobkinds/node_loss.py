"""What becomes of a job when nodes under it fail: what its kind does, and what its author may choose instead.

Either way no gang is left with a part of its pods: the engine has room for all of them before anything is done, or evicts it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gangline.api import names
from gangline.bounded import shown

#: only the lost pods are replaced; the whole gang starts again within its admission
REPLACE: Final = "Replace"
RESTART: Final = "Restart"


@dataclass(frozen=True, slots=True)
class NodeLoss:
    """`usual`: without a word of the job's author; `choices`: the values by which the author decides, () = no choice."""

    usual: str
    choices: tuple[str, ...]
    #: in the table of kinds
    words: str
    #: completes "is ignored: …" where there is no choice
    why_no_choice: str = ""

    def of(self, annotations: Mapping[str, object]) -> str:
        """Replace or Restart, for a job with these annotations; "" for Replace where its author has not asked for it."""
        chosen = annotations.get(names.NODE_LOSS)
        usual = RESTART if self.usual == RESTART else ""
        return str(chosen) if chosen in self.choices else usual

    def fault(self, annotations: Mapping[str, object]) -> str:
        """Why the annotation is ignored; "" if it is not, or if there is none."""
        chosen = annotations.get(names.NODE_LOSS)
        if chosen is None or chosen in self.choices:
            return ""
        why = f"it must be {' or '.join(self.choices)}" if self.choices else self.why_no_choice
        return f"annotation {names.NODE_LOSS}: {shown(str(chosen))} is ignored: {why}"


_CHOICES: Final = (REPLACE, RESTART)
#: its controller makes a new pod where one is lost, and the others run on
REPLACES: Final = NodeLoss(REPLACE, _CHOICES, "lost pods are replaced; `Restart`: the job restarts")
#: a job whose pods need each other
RESTARTS: Final = NodeLoss(RESTART, _CHOICES, "the job restarts; `Replace`: lost pods are replaced")
#: a JobSet runs all of its Jobs again when one has failed
ALWAYS_RESTARTS: Final = NodeLoss(RESTART, (), "the job restarts", "a JobSet always starts again as a whole")
#: a GPUJob has fields for it
BY_ITS_SPEC: Final = NodeLoss(
    RESTART,
    (),
    "as `spec.restart` says: the job restarts (usual), lost pods are replaced, it is queued again, or fails",
    "spec.restart says it for a GPUJob",
)
#: pods without a suspend field: those that are lost are deleted, and whoever made them makes others
BY_ITS_PODS: Final = NodeLoss(
    REPLACE, (), "lost pods are deleted, for their controller to replace", "only the lost pods are deleted"
)
