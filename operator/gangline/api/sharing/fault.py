"""What contradicts itself in a request for shares of cards."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShareFault:
    """`key`: the annotation of the pod's template, `value`: what it says, `message`: why that cannot be."""

    key: str
    value: object
    message: str

    @property
    def field(self) -> str:
        """The path of the annotation within the template."""
        return f"metadata.annotations[{self.key}]"
