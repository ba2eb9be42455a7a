"""A part of the operator: one concern, with its own state, driven by the controller's loop.

Every round the loop calls, in the order in which the controller lists its parts: `observe` for each event of a kind that the part
wants, `settle` once all events that arrived were observed, and `act` where this process leads. A standby observes and settles.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from gangline.kube.reflector import Event
from gangline.kube.resources import Resource


class Part:
    """A part that does nothing: a real part overrides what it needs. `name` labels its failures in metrics and logs."""

    name: ClassVar[str]
    #: the kinds whose events the part observes
    kinds: Collection[Resource] = ()
    #: when it has to act next if nothing happens before, in milliseconds since the epoch; None: whenever something happens
    due: int | None = None

    def observe(self, resource: Resource, event: Event) -> None:
        """Process one event. Called on leader and standby; an exception quarantines the object."""

    def settle(self) -> None:
        """Evaluate all events of this round. Called on leader and standby."""

    def lead(self) -> None:
        """Start leading: look at everything once, whatever happened before."""

    def act(self, now: int) -> None:
        """Do what is due. Called in every round of the leader."""

    async def close(self) -> None:
        """Shut down: finish pending output and release resources."""
