"""The examples of the engine's pages do what they say."""

from __future__ import annotations

import doctest
from pathlib import Path


def test_every_example_of_the_engine_page_holds() -> None:
    page = Path(__file__).parents[2] / "docs" / "engine.md"
    result = doctest.testfile(str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 40
    assert result.failed == 0


def test_every_example_of_the_preemption_page_holds() -> None:
    page = Path(__file__).parents[2] / "docs" / "preemption.md"
    result = doctest.testfile(str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 10
    assert result.failed == 0


def test_every_example_of_the_budgets_page_holds() -> None:
    page = Path(__file__).parents[2] / "docs" / "budgets.md"
    result = doctest.testfile(str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 10
    assert result.failed == 0


def test_every_example_of_the_backfill_page_holds() -> None:
    page = Path(__file__).parents[2] / "docs" / "backfill.md"
    result = doctest.testfile(str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 10
    assert result.failed == 0


def test_every_example_of_the_page_of_elastic_jobs_holds() -> None:
    page = Path(__file__).parents[2] / "docs" / "elastic-jobs.md"
    result = doctest.testfile(str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 10
    assert result.failed == 0


def test_every_example_of_the_reservations_page_holds() -> None:
    page = Path(__file__).parents[2] / "docs" / "reservations.md"
    result = doctest.testfile(str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 5
    assert result.failed == 0


def test_every_example_of_the_page_of_moves_holds() -> None:
    page = Path(__file__).parents[2] / "docs" / "moves.md"
    result = doctest.testfile(str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 10
    assert result.failed == 0
