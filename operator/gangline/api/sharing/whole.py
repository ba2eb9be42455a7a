"""Whole cards, as device plugins give them, and equal slices of cards under a name of their own.

`nvidia.com/gpu` may be a whole card or, where its plugin shares cards out and does not rename them, a slice of one; with
`renameByDefault` slices are `nvidia.com/gpu.shared`. What a unit is says the node. A pod that asks for two slices gets no more
of a card than with one, so that each counts, and each has to be on another card.
"""

from __future__ import annotations

from gangline.engine import is_accelerator
from gangline.engine.model import Requests, Share


def of_container(requests: Requests) -> tuple[Share, ...]:
    return tuple(
        Share(count=amount, unit=True, resource=name)
        for name, amount in sorted(requests.items())
        if amount > 0 and is_accelerator(name)
    )
