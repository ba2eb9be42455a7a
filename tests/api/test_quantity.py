"""Quantities and durations against what Kubernetes' own library makes of them."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.api import quantity
from gangline.api.quantity import QuantityError
from gangline.engine.model import UNLIMITED

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "golden" / "quantities.json").read_text(encoding="utf-8"))


def parsed(text: Any, resource: str) -> int | None:
    try:
        return quantity.parse(text, resource)
    except QuantityError:
        return None


@pytest.mark.parametrize(("text", "milli", "value"), GOLDEN["quantities"])
def test_parses_as_kubernetes_does(text: str, milli: int | None, value: int | None) -> None:
    assert parsed(text, "cpu") == milli
    assert parsed(text, "nvidia.com/gpu") == value


@pytest.mark.parametrize(("amount", "cpu", "decimal", "binary"), GOLDEN["formats"])
def test_formats_as_kubernetes_does(amount: int, cpu: str, decimal: str, binary: str) -> None:
    assert quantity.format(amount, "cpu") == cpu
    assert quantity.format(amount, "nvidia.com/gpu") == decimal
    assert {quantity.format(amount, name) for name in ("memory", "ephemeral-storage", "hugepages-2Mi")} == {binary}


@pytest.mark.parametrize(("text", "nanos", "printed"), GOLDEN["durations"])
def test_durations_as_go_does(text: str, nanos: int | None, printed: str | None) -> None:
    if nanos is None:
        with pytest.raises(QuantityError):
            quantity.parse_duration(text)
    else:
        assert round(quantity.parse_duration(text) * 1e9) == nanos
        assert quantity.format_duration(quantity.parse_duration(text)) == printed


@pytest.mark.parametrize("text", [".", "-", "+", "Ki", "e3", "1" * 300, "1e" + "9" * 30])
def test_refuses_what_has_no_digits_or_no_end(text: str) -> None:
    with pytest.raises(QuantityError):
        quantity.parse(text)


@pytest.mark.parametrize("value", [None, True, [], {}, float("nan"), float("inf"), b"1"])
def test_refuses_what_is_no_text_and_no_number(value: Any) -> None:
    with pytest.raises(QuantityError):
        quantity.parse(value)


def test_error_names_the_text_but_not_all_of_a_megabyte() -> None:
    with pytest.raises(QuantityError, match="'2 GiB' is not a Kubernetes quantity"):
        quantity.parse("2 GiB")
    with pytest.raises(QuantityError) as caught:
        quantity.parse("x" * 1_000_000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("text", ["9223372036854775807", "16Ei", "1e30", "1e400", "9" * 200, 10**30])
def test_absurd_amounts_are_unlimited(text: str | int) -> None:
    assert quantity.parse(text) == quantity.parse(text, "cpu") == UNLIMITED
    assert quantity.parse(f"-{text}") == -UNLIMITED


def test_numbers_in_json_are_quantities_too() -> None:
    assert quantity.parse(32) == 32
    assert quantity.parse(2, "cpu") == 2000
    assert quantity.parse(0.5, "cpu") == 500
    assert quantity.parse(1e-07) == 1


@pytest.mark.parametrize(
    ("text", "number"), [("1500m", 1.5), ("2", 2.0), ("1e-9", 1e-9), ("1Ki", 1024.0), ("1e999", 2.0**63)]
)
def test_plain_numbers(text: str, number: float) -> None:
    assert quantity.parse_number(text) == pytest.approx(number)


amounts = st.integers(min_value=0, max_value=UNLIMITED)
resources = st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "hugepages-1Gi"])


@given(amounts, resources)
def test_formatted_amounts_parse_back(amount: int, resource: str) -> None:
    assert quantity.parse(quantity.format(amount, resource), resource) == amount


@given(
    st.integers(min_value=0, max_value=10**9),
    st.integers(min_value=0, max_value=12),
    st.sampled_from(["", "n", "u", "m", "k", "M", "G", "Ki", "Mi", "Gi", "Ti"]),
)
def test_rounds_up_and_never_down(mantissa: int, decimals: int, suffix: str) -> None:
    powers = {"": 1, "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "k": 1000, "M": 10**6}
    powers |= {"G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
    exact = min(Fraction(mantissa, 10**decimals) * powers[suffix], Fraction(UNLIMITED))
    digits = f"{mantissa:0{decimals + 1}d}"
    text = f"{digits[: len(digits) - decimals]}.{digits[len(digits) - decimals :]}{suffix}"
    found = quantity.parse(text)
    assert 0 <= found - exact < 1


@given(st.text(max_size=20))
def test_any_text_parses_or_is_refused(text: str) -> None:
    for parse in (quantity.parse, quantity.parse_number, quantity.parse_duration):
        try:
            parse(text)
        except QuantityError:
            continue


def test_what_devices_consume_is_printed_as_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantity, "_BYTES", set(quantity._BYTES))
    name, amount = "example.com/mig-memory", 4864 << 20
    assert quantity.format(amount, name) == "5100273664"
    quantity.print_as_bytes({name})
    assert quantity.format(amount, name) == "4864Mi"
    assert quantity.format(amount, "example.com/others") == "5100273664"
    quantity._format.cache_clear()
