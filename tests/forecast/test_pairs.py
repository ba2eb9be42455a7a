"""Measured pairs of a file, and priors that are learned from them and judged on families left out."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from gangline.console.cli import main
from gangline.engine.model import CompanySpeed, JobProfile
from gangline.forecast.pairs import pair_file, priors
from gangline.forecast.pairs.pair_file import PairFileError

DATA = Path(__file__).parent.parent / "data" / "pairs"
SIMULATION, PHYSICAL = DATA / "gavel-simulation.json.gz", DATA / "gavel-physical.json.gz"


def job(name: str) -> str:
    return f"('{name}', 1)"


def written(path: Path, document: Any) -> Path:
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return path


def test_the_file_of_gavel_is_read() -> None:
    found = pair_file.read(SIMULATION)
    assert found.gpus == ("k80", "p100", "v100") and len(found.profiles) == 26
    assert len(set(found.families.values())) == 7 and found.families["ResNet-50/batch-32"] == "ResNet-50"
    pairs = [pair for profile in found.profiles.values() for pair in profile.pairs if pair.gpu == "v100"]
    barred = {tuple(sorted((name, pair.beside))) for name, profile in found.profiles.items()
              for pair in profile.pairs if pair.gpu == "v100" and pair.out_of_memory}  # fmt: skip
    assert len(pairs) == 26 * 26 and len(barred) == 21, "21 of 351 pairs do not fit on V100"
    together = [pair.speed for pair in pairs if not pair.out_of_memory]
    assert np.mean(together) == pytest.approx(0.657, abs=0.001)
    alone = {each.gpu: each for each in found.profiles["ResNet-18/batch-16"].alone}
    assert alone["v100"].rate == pytest.approx(32.353) and 0 < alone["v100"].utilisation < 100
    assert found.profiles["A3C"].alone[0].utilisation == 0, "of one batch size nothing follows"


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "has to be an object of models of cards"),
        ({"v100": {}}, "has no job with one worker"),
        ({"v100": {job("a"): {}}}, 'needs its rate alone, as "null"'),
        ({"v100": {job("a"): {"null": -1}}}, 'needs its rate alone, as "null"'),
        ({"v100": {job("a"): {"null": 1, job("b"): [1]}}}, "needs two rates"),
        ({"v100": {job("a"): {"null": 1, job("b"): [1, True]}}}, "needs two rates"),
        ({"v100": {job(f"a{n}"): {"null": 1} for n in range(201)}}, "201 classes of jobs, at most 200"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, document: Any, said: str) -> None:
    with pytest.raises(PairFileError, match=said):
        pair_file.read(written(tmp_path / "pairs.json.gz", document))


def test_jobs_that_do_not_run_alone_have_no_pairs(tmp_path: Path) -> None:
    table = {job("a"): {"null": 4, job("a"): [2, 2], job("b"): [1, 0]}, job("b"): {"null": 0, job("a"): [0, 1]}}
    found = pair_file.read(written(tmp_path / "pairs.json", {"k80": table}))
    assert found.profiles["a"].pairs == (CompanySpeed("a", "k80", speed=0.5),)
    assert found.profiles["b"] == JobProfile("b")


@pytest.mark.parametrize("path", [SIMULATION, PHYSICAL])
def test_the_prior_beats_a_constant_on_families_that_it_never_saw(path: Path) -> None:
    measured = pair_file.read(path)
    found = priors.learn(measured.profiles, measured.families)
    assert not found.refused and [score.gpu for score in found.scores] == ["k80", "p100", "v100"]
    for score in found.scores:
        assert score.used and score.prior < 0.9 * score.constant and score.prior < score.by_utilisation, score.verdict
    assert {prior.gpu for prior in found.priors} == {"k80", "p100", "v100"}


def test_expected_speeds_are_calibrated_on_unseen_families() -> None:
    measured = pair_file.read(SIMULATION)
    for score in priors.learn(measured.profiles, measured.families).scores:
        many = [each for each in score.calibration if each.pairs >= 150]
        assert many and all(abs(each.expected - each.measured) < 0.08 for each in many), score.calibration


def test_learned_from_one_file_it_also_beats_a_constant_on_the_other() -> None:
    learned_from, judged_on = pair_file.read(SIMULATION), pair_file.read(PHYSICAL)
    for gpu in learned_from.gpus:
        score = priors.judge(learned_from.profiles, learned_from.families, gpu, judged_on=judged_on.profiles)
        assert score.prior < score.constant < score.by_utilisation, score.verdict


def test_a_prior_that_is_no_better_than_a_constant_is_not_used() -> None:
    """Speeds that have nothing to do with the classes."""
    rng = np.random.default_rng(1)
    names = [f"f{family}-{each}" for family in range(5) for each in range(3)]
    noise = {
        name: JobProfile(name, tuple(CompanySpeed(other, "x", speed=float(rng.uniform(0.2, 1))) for other in names))
        for name in names
    }
    found = priors.learn(noise, {name: name[:2] for name in names})
    (score,) = found.scores
    assert not score.used and not found.priors and "the prior is not used: its error" in score.verdict
    few = {name: noise[name] for name in names if name[:2] in ("f0", "f1")}
    learned = priors.learn(few, {name: name[:2] for name in names})
    assert not learned.priors and "2 families were measured, it takes 3" in (learned.scores[0].verdict)


def test_probes_of_an_unseen_family_bring_the_error_down() -> None:
    measured = pair_file.read(PHYSICAL)
    errors = [
        priors.after_probes(measured.profiles, measured.families, "p100", probes, np.random.default_rng(1))
        for probes in (0, 4, 32)
    ]
    assert errors[0] > errors[1] > errors[2]


def test_the_command_shows_errors_calibration_and_the_verdict() -> None:
    shown = CliRunner().invoke(main, ["admin", "forecast", "pairs", str(SIMULATION)])
    assert shown.exit_code == 0, shown.output
    for expected in ("1/SUM OF USE", "PRECISION", "RECALL", "EXPECTED SPEED", "v100: the prior is used: its error"):
        assert expected in shown.output
    words = ["admin", "forecast", "pairs", str(SIMULATION), "--judge", str(PHYSICAL), "-o", "json"]
    document = json.loads(CliRunner().invoke(main, words).stdout)
    assert [each["gpu"] for each in document["pairs"]] == ["k80", "p100", "v100"] and document["pairs"][2]["join"][
        "precision"
    ]


def test_the_command_names_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    shown = CliRunner().invoke(main, ["admin", "forecast", "pairs", str(written(tmp_path / "p.json", {}))])
    assert shown.exit_code == 1 and "has no job with one worker" in shown.output
