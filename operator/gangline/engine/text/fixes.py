"""Kueue's quirks that Gangline can correct, each under a name, per ClusterQueue. All are off by default.

`ClusterQueue.fixes` and `Settings.fixes` name them. `docs/engine.md` shows the harm and the cure of each.
"""

from __future__ import annotations

from typing import Final

#: With preference PreemptionOverBorrowing, a flavor where one resource fits by borrowing and another needs preemption counts
#: as fitting: no victims are looked for and the gang is skipped, cycle after cycle. Fixed: the resource that is short
#: decides.
FALSE_FIT: Final = "PreemptionOverBorrowingFalseFit"

#: Victims are chosen without regard to the quota of `pods`, so they may not free enough of it. Fixed: it counts.
PODS_IN_SEARCH: Final = "PodsInVictimSearch"

#: What victims free is available to all, and a gang of another queue may take it before their preemptor. Fixed: it is held
#: for the preemptor, against all but higher priorities in its own queue.
HOLD_QUOTA: Final = "HoldFreedQuota"

#: A victim that fits again at once is readmitted before its preemptor has started, only to be preempted again. Fixed: it
#: waits until the preemptor has started or no longer waits.
NO_READMIT: Final = "NoReadmitBeforePreemptor"

#: A workload that fits once the victims of a cycle are gone is admitted at once, though these still hold their quota: until
#: they have stopped, more is admitted than there is. Fixed: what they still hold is not granted.
STILL_HELD: Final = "QuotaOfVictimsStillHeld"

#: With a topology, the places of finished pods stay taken until their whole workload has ended, though their quota is given
#: back. Fixed: these places are free once all its other pods are known to be on theirs.
FREE_PLACES: Final = "PlacesOfFinishedPods"

FIXES: Final = frozenset({FALSE_FIT, PODS_IN_SEARCH, HOLD_QUOTA, NO_READMIT, STILL_HELD, FREE_PLACES})
