"""A part of the operator: one concern, with its own state, driven by the controller's loop.

Every round the loop calls, in the order in which the controller lists its parts: `observe` for each event of a kind that the
part wants, `settle` once all events that arrived were observed, and `act` if this process leads. A standby observes and
settles.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from gangline.kube.reflector import Event
from gangline.kube.resources import Resource


class Part:
    """The base of parts; it does nothing, and a part overrides what it needs. `name` labels its failures in metrics and
    logs.
    """

    name: ClassVar[str]
    #: the kinds whose events it observes
    kinds: Collection[Resource] = ()
    #: when it has to act next if nothing happens before, in milliseconds since the epoch; None: whenever something happens
    due: int | None = None

    def observe(self, resource: Resource, event: Event) -> None:
        """Process one event. Called by leader and standby; an exception quarantines this object."""

    def settle(self) -> None:
        """Draw conclusions from all events of this round. Called by leader and standby."""

    def lead(self) -> None:
        """This process leads from now on: examine everything once, whatever happened before."""

    def act(self, now: int) -> None:
        """Do what is due. Called in every round of a leader."""

    async def close(self) -> None:
        """The process ends: hand over what is left, release resources."""
