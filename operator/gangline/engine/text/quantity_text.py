"""Amounts in messages, written as Kubernetes writes quantities."""

from __future__ import annotations

from gangline.engine.model import UNLIMITED

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = ("", "k", "M", "G", "T", "P", "E")
_BINARY_RESOURCES = ("memory", "ephemeral-storage")


def text(resource: str, amount: int) -> str:
    """The canonical form, with the largest suffix that leaves a whole number. `amount` is in canonical units (cpu in
    milli-cpu).
    """
    amount = max(-UNLIMITED, min(amount, UNLIMITED))
    if resource == "cpu":
        return f"{amount}m" if amount % 1000 else _scaled(amount // 1000, 1000, _DECIMAL)
    # as Kubernetes does, which writes bytes below 1024 in decimal
    if abs(amount) >= 1024 and (resource in _BINARY_RESOURCES or resource.startswith("hugepages-")):
        return _scaled(amount, 1024, _BINARY)
    return _scaled(amount, 1000, _DECIMAL)


def _scaled(amount: int, base: int, suffixes: tuple[str, ...]) -> str:
    power = 0
    while amount and amount % base == 0 and power + 1 < len(suffixes):
        amount //= base
        power += 1
    return f"{amount}{suffixes[power]}"
