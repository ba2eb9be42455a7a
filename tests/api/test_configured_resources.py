"""The section `resources` of Kueue's configuration file: what it says, and what is refused."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
import yaml

from gangline.api.read import configuration
from gangline.api.read.counting.resource_rules import EVERYTHING, Transformation


def test_what_counts() -> None:
    loaded = configuration.load(
        yaml.safe_load("""
        resources:
          excludeResourcePrefixes: [networking.example.com/, cpu]
          transformations:
            - {input: nvidia.com/mig-1g.5gb, strategy: Replace, outputs: {example.com/memory: 5Gi, example.com/share: 0.25}}
            - {input: nvidia.com/gpumem, multiplyBy: nvidia.com/gpu, outputs: {example.com/memory: "-1k"}}
            - {input: example.com/nothing, strategy: Replace}
        """)
    )
    assert loaded.resources.excluded == ("networking.example.com/", "cpu")
    assert loaded.resources.transformations == {
        "nvidia.com/mig-1g.5gb": Transformation(
            {"example.com/memory": Fraction(5 * 2**30), "example.com/share": Fraction(1, 4)}, retain=False
        ),
        "nvidia.com/gpumem": Transformation({"example.com/memory": Fraction(-1000)}, "nvidia.com/gpu"),
        "example.com/nothing": Transformation(retain=False),
    }
    assert loaded.ignored == ()


@pytest.mark.parametrize("section", [None, {}, {"excludeResourcePrefixes": None, "transformations": []}])
def test_usually_everything_counts(section: Any) -> None:
    assert configuration.load({"resources": section}).resources == EVERYTHING


def transformations(*rows: Any) -> dict[str, Any]:
    return {"transformations": list(rows)}


@pytest.mark.parametrize(
    ("section", "field"),
    [
        (transformations({"input": "a", "strategy": "Drop"}), r"transformations\[0\]\.strategy: Retain or Replace"),
        (transformations({"input": "a"}, {"input": "a"}), r"transformations\[1\]\.input: 'a' is there twice"),
        (transformations({"outputs": {"a": 1}}), r"transformations\[0\]\.input: is required"),
        (transformations({"input": "a", "output": {}}), r"transformations\[0\]\.output: there is no such field"),
        (transformations({"input": "a", "outputs": {"b": "much"}}), r"transformations\[0\]\.outputs\[b\]: 'much'"),
        (transformations({"input": "a", "outputs": {"b": True}}), r"transformations\[0\]\.outputs\[b\]"),
        (transformations({"input": "a", "outputs": {"b": "1e99999"}}), r"transformations\[0\]\.outputs\[b\]"),
        (transformations({"input": "a", "multiplyBy": 2}), r"transformations\[0\]\.multiplyBy"),
        (transformations("a"), r"transformations\[0\]: a mapping"),
        ({"transformations": {"input": "a"}}, "transformations: a list"),
        ({"excludeResourcePrefixes": "nvidia.com/"}, "excludeResourcePrefixes: a list"),
        ({"excludeResourcePrefixes": [1]}, r"excludeResourcePrefixes\[0\]: a text"),
        (
            {"excludeResourcePrefixes": ["a"], "quotaCheckStrategy": "IgnoreUndeclared"},
            "excludeResourcePrefixes: is not allowed when quotaCheckStrategy is IgnoreUndeclared",
        ),
        ({"excludedPrefixes": []}, "resources.excludedPrefixes: there is no such field"),
    ],
)
def test_what_is_refused_names_the_field(section: Any, field: str) -> None:
    with pytest.raises(configuration.ConfigurationError, match=field):
        configuration.load({"resources": section})
