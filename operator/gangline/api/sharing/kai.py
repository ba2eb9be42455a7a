"""KAI: annotations of pods that request no GPU. Its scheduler gives them a part of a card; nothing bounds their memory.

`gpu-fraction` is of memory and compute, `gpu-memory` is MiB. A fraction that KAI would not read counts as a whole card.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import ceil

from gangline.api import names
from gangline.api.sharing import numbers
from gangline.engine.model import Share
from gangline.engine.model.devices import WHOLE


def of_pod(annotations: Mapping[str, object]) -> tuple[Share, ...]:
    if names.KAI_FRACTION not in annotations and names.KAI_MEMORY not in annotations:
        return ()
    count = numbers.count(_text(annotations, names.KAI_DEVICES)) or 1
    if names.KAI_FRACTION in annotations:
        part = numbers.fraction(_text(annotations, names.KAI_FRACTION)) or Fraction(1)
        milli = ceil(WHOLE * part)
        return (Share(count=count, milli=milli, memory_milli=milli),)
    memory = numbers.mebibytes(_text(annotations, names.KAI_MEMORY))
    if memory is None:
        return (Share(count=count, milli=WHOLE, memory_milli=WHOLE),)
    return (Share(count=count, memory=memory, by_memory=True),)


def _text(annotations: Mapping[str, object], key: str) -> str:
    value = annotations.get(key)
    return value if isinstance(value, str) else ""
