"""MIG: instances by profile, `nvidia.com/mig-1g.5gb`; a pod may get several on one card. What an instance is of its card says
the node.
"""

from __future__ import annotations

import re
from typing import Final

from gangline.bounded import parser
from gangline.engine.model import Requests, Share

PREFIX: Final = "nvidia.com/mig-"
_PROFILE: Final = re.compile(r"[0-9]{1,2}g\.([0-9]{1,4})gb(?:[.+][a-z0-9.+]{1,16})?")


def of_container(requests: Requests) -> tuple[Share, ...]:
    return tuple(
        Share(count=amount, apart=False, mode="MIG", profile=name.removeprefix(PREFIX), resource=name)
        for name, amount in sorted(requests.items())
        if amount > 0 and name.startswith(PREFIX)
    )


@parser(64, instead=0, worst=("9g.", "+a", ".a"))
def nominal_memory(profile: str) -> int:
    """The MiB in the name of a profile, such as 1g.5gb; 0 for any other name."""
    found = _PROFILE.fullmatch(profile)
    return int(found.group(1)) << 10 if found is not None else 0
