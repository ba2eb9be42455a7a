"""The context of a part under test: what the test gives, and as little as possible of everything else."""

from __future__ import annotations

from typing import Any

from gangline.control.isolation.quarantine import Quarantine
from gangline.control.kernel.context import Context
from gangline.control.metrics.operator_metrics import Metrics
from gangline.control.parts.messages import Messages


def a_context(**given: Any) -> Context:
    """A context with these fields. Without a mirror, messages are new ones; with one they are the mirror's."""
    mirror = given.get("mirror")
    nothing: dict[str, Any] = dict.fromkeys(
        ("client", "engine", "mirror", "pods", "owners", "writes", "writer", "recorder", "notices")
    )
    usual: dict[str, Any] = {
        "metrics": Metrics(),
        "messages": getattr(mirror, "messages", None) or Messages(),
        "quarantine": Quarantine(lambda subject, obj, what: None),
        "gates": {},
        "served": lambda resource: True,
        "now": lambda: 0,
        "wake": lambda: None,
    }
    return Context(**{**nothing, **usual, **given})
