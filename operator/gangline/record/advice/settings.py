"""The settings that `gangline admin tune` tries, as specifications of QueuePolicies. The seed alone chooses them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, Final

import orjson

from gangline.kube.resources import Json

_KEYS: Final = (
    "Priority",
    "ShortestFirst",
    "AgedShortestFirst",
    "AgedShortestFirst",
    "SmallestFirst",
    "HighestResponseRatio",
)
_AGE_WEIGHTS: Final = ("1", "2", "5", "10", "20")
_AGE_CAPS: Final = (None, "4h", "16h", "48h")
_MAX_WAITS: Final = (None, None, None, "12h", "48h")
_DEPTHS: Final[Sequence[Any]] = (0, 1, 1, 1, "Conservative")
_CANDIDATES: Final = ("0.5", "0.75", "0.9", "0.95")
_OVERDUE: Final = (None, "0.25", "1")
_IDLE: Final = (None, "0.05", "0.1")
_LONGER_THAN: Final = (None, "3", "10")
_SHARES: Final = (0.2, 0.5, 1.0)
#: draws in a row that bring nothing new: all have been tried
_VAIN: Final = 1000


def tried(count: int, seed: int, most_lost: float, *, saving: bool) -> list[Json]:
    """Parts `order` and `backfill` of `count` policies, all different; the first ones are what is known to do well.

    `most_lost`: the largest budget of losses; `saving`: some jobs save their work, so that they can give way.
    """
    found: dict[bytes, Json] = {}
    for spec in _candidates(random.Random(seed), most_lost, saving):
        found.setdefault(orjson.dumps(spec, option=orjson.OPT_SORT_KEYS), spec)
        if len(found) == count:
            break
    return list(found.values())


def _candidates(chance: random.Random, most_lost: float, saving: bool) -> Iterator[Json]:
    yield {"order": {"key": "ShortestFirst"}}
    yield {"backfill": {"depth": 1, "quantiles": {"candidate": "0.9"}}}
    aged = {"key": "AgedShortestFirst", "ageWeight": "5", "ageCap": "16h"}
    yield {"order": aged, "backfill": {"depth": 1, "quantiles": {"candidate": "0.9"}}}
    if saving and most_lost > 0:
        way = {"longerThan": "10", "lossShare": "0.1", "longerThanBackfilled": "0.3", "maxPreemptions": 3}
        overdue = {"revoke": "Overdue", "overdueFactor": "0.25", "lossBudget": _share(most_lost), "giveWay": way}
        yield {
            "order": {**aged, "optimism": "0.75"},
            "backfill": {"depth": 1, "quantiles": {"candidate": "0.9"}, "idleShare": "0.1", **overdue},
        }
    for _ in range(_VAIN):
        yield from (_drawn(chance, most_lost, saving) for _ in range(4))


def _drawn(chance: random.Random, most_lost: float, saving: bool) -> Json:
    order: Json = {"key": chance.choice(_KEYS)}
    if order["key"] == "AgedShortestFirst":
        order["ageWeight"] = chance.choice(_AGE_WEIGHTS)
        order["ageCap"] = chance.choice(_AGE_CAPS)
    order["maxWait"] = chance.choice(_MAX_WAITS)
    backfill: Json = {"depth": chance.choice(_DEPTHS), "quantiles": {"candidate": chance.choice(_CANDIDATES)}}
    if (idle := chance.choice(_IDLE)) is not None:
        backfill["idleShare"] = idle
    if most_lost > 0:
        if (factor := chance.choice(_OVERDUE)) is not None:
            backfill |= {"revoke": "Overdue", "overdueFactor": factor}
        if saving and (longer := chance.choice(_LONGER_THAN)) is not None:
            backfill["giveWay"] = {"longerThan": longer, "lossShare": "0.1", "maxPreemptions": 3}
            order["optimism"] = chance.choice(("0", "0.75"))
        backfill["lossBudget"] = _share(chance.choice(_SHARES) * most_lost)
    order = {name: value for name, value in order.items() if value is not None}
    return {"order": order, "backfill": backfill} if backfill["depth"] else {"order": order}


def _share(value: float) -> str:
    """Millionths count."""
    return f"{value:.6f}".rstrip("0").rstrip(".")
