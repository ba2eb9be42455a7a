"""CEL selectors of devices (DRA), as Kubernetes evaluates them: which devices of ResourceSlices an expression selects.

In: expressions of ResourceClaims, DeviceClasses and the configuration, and devices as JSON. Out: for each device whether it is
selected, or why that cannot be said. The runtime of CEL is loaded only when the first expression is compiled.
"""

from gangline.api.selecting.expressions import LONGEST
from gangline.api.selecting.judge import CelVerdicts, DeviceGroup, Judge, Judges, LocalJudge, UnavailableError, Verdict

__all__ = ["LONGEST", "CelVerdicts", "DeviceGroup", "Judge", "Judges", "LocalJudge", "UnavailableError", "Verdict"]
