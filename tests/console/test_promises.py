"""What a run of an example says of its promises, from the record that the operator left."""

from __future__ import annotations

from pathlib import Path

from tests.builders.engine import gang
from tests.control.test_audit import Recorded

from gangline.console.run import example as examples
from gangline.console.run import progress
from gangline.engine.model import RuntimeForecast

ROOT = Path(__file__).parents[2]


def story(path: Path) -> Recorded:
    """A long run on half of the GPUs, a head that needs all, a short one beside it that stays too long."""
    world = Recorded(path)
    for name, gpus, minutes in (("long", 4, 60), ("head", 8, 30), ("short", 4, 10)):
        quantiles = ((0.5, minutes * 60_000), (0.9, minutes * 60_001))
        world.put(RuntimeForecast(f"team/{name}", quantiles), gang(name, gpus, created=world.now))
        world.decide()
    assert world.running() == ["long", "short"]
    world.now += 50 * 60_000
    world.finish("long")
    world.decide()
    assert world.evicted() == ["short"], "it has overstayed, and the head could start"
    world.complete_evictions()
    world.decide()
    assert world.running() == ["head"]
    world.log.close()
    return world


def test_a_kept_promise_is_told_with_its_times(tmp_path: Path) -> None:
    story(tmp_path / "audit")
    kept = progress.kept(tmp_path / "audit", ())
    assert kept.broken == ()
    assert kept.lines[0].startswith("team/head was planned to start at 3600.0 s; it started at 300")
    assert kept.lines[0].endswith("s earlier")
    assert "started before a reserved job: team/short" in kept.lines
    assert "stopped because they overran: team/short" in kept.lines
    assert kept.lines[-1].endswith(", 0 differ")


def test_a_decision_that_does_not_follow_breaks_it(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    story(path)
    path.write_text(path.read_text().replace('"BackfillRevoked"', '"SomethingElse"'))
    kept = progress.kept(path, ())
    assert any("differ in the replay" in words for words in kept.broken)


def test_a_run_in_which_nobody_was_promised_anything_shows_nothing(tmp_path: Path) -> None:
    world = Recorded(tmp_path / "audit")
    world.put(gang("alone", 1))
    world.decide()
    world.log.close()
    assert progress.kept(tmp_path / "audit", ()).broken == ("no job had a planned start",)
    assert "cannot be read" in progress.kept(tmp_path / "missing", ()).broken[0]


def test_only_examples_that_backfill_have_promises() -> None:
    assert progress.matter(examples.load(ROOT / "examples" / "backfill"))
    assert not progress.matter(examples.load(ROOT / "examples" / "quickstart"))
