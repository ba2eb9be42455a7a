"""The engine's dataclasses: small, since there are many of them, and immutable where they are facts or decisions."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from types import ModuleType

import pytest

import gangline.engine
from gangline.engine import model

MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(gangline.engine.__path__, f"{gangline.engine.__name__}.")
]
CLASSES = sorted(
    {
        value
        for module in MODULES
        if isinstance(module, ModuleType)
        for value in vars(module).values()
        if isinstance(value, type) and dataclasses.is_dataclass(value) and value.__module__ == module.__name__
    },
    key=lambda found: (found.__module__, found.__name__),
)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_value_has_slots(kind: type) -> None:
    assert "__slots__" in vars(kind)


@pytest.mark.parametrize("kind", [each for each in CLASSES if each.__module__.startswith(model.__name__)])
def test_facts_and_decisions_are_immutable(kind: type) -> None:
    if kind.__module__ != "gangline.engine.model.runtime":
        assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
