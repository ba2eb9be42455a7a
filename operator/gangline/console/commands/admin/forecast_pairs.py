"""`gangline admin forecast pairs`: how far the expected speeds of jobs that share a card can be trusted."""

from __future__ import annotations

from pathlib import Path

import click

from gangline.console.output import presenting, terminal
from gangline.console.output.formats import OutputFormat, answer_option, document
from gangline.console.output.layout import Rows
from gangline.forecast.pairs import pair_file
from gangline.forecast.pairs.pair_file import MeasuredClasses, PairFileError
from gangline.forecast.pairs.priors import JoinScore, PairScore, judge, learn, settings_of

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("pairs")
@click.argument("file", type=_FILE)
@click.option(
    "--judge", "judge_file", type=_FILE, help="Judge on the pairs of this file; FILE is what is learned from."
)
@answer_option
def command(file: Path, judge_file: Path | None, output: OutputFormat) -> None:
    """Learn from the measured pairs of FILE, and show how near the expected speeds come on families of jobs left out.

    FILE has steps per second of jobs alone and in pairs, as the artifact of Gavel (OSDI 2020) has them. Each family of jobs
    is left out once, with all its pairs. A prior that is no better than a constant is not used.
    """
    learned_from = _read(file)
    scores = (
        learn(learned_from.profiles, learned_from.families).scores
        if judge_file is None
        else _judged(learned_from, _read(judge_file))
    )
    if not scores:
        raise click.ClickException(f"{file}: too few families of jobs were measured to leave one out")
    if output.kind:
        terminal.say(document(output.kind, {"pairs": [score.as_json() for score in scores]}))
        return
    width = presenting.width()
    terminal.say(
        *presenting.styled(_errors(scores), width),
        "",
        *presenting.styled(_joining(scores), width),
        "",
        *presenting.styled(_calibration(scores), width),
        "",
        *(score.verdict for score in scores),
    )


def _read(file: Path) -> MeasuredClasses:
    try:
        return pair_file.read(file)
    except PairFileError as error:
        raise click.ClickException(str(error)) from error


def _judged(learned_from: MeasuredClasses, judged_on: MeasuredClasses) -> tuple[PairScore, ...]:
    found: list[PairScore] = []
    for gpu, mode in settings_of(learned_from.profiles.values()):
        try:
            found.append(judge(learned_from.profiles, learned_from.families, gpu, mode, judged_on=judged_on.profiles))
        except ValueError as error:
            terminal.say(f"· {error}", err=True)
    return tuple(found)


def _errors(scores: tuple[PairScore, ...]) -> Rows:
    header = ("GPU", "DIRECTIONS", "FAMILIES", "CONSTANT", "1/SUM OF USE", "PRIOR", "PRIOR WITHOUT OWN PAIR")
    cells = [
        (
            score.gpu,
            str(score.pairs),
            str(score.families),
            *(f"{each:.3f}" for each in (score.constant, score.by_utilisation, score.prior, score.prior_without_own)),
        )
        for score in scores
    ]
    return Rows(header, tuple(cells), right=frozenset(header[1:]))


def _joining(scores: tuple[PairScore, ...]) -> Rows:
    header = ("JOINED PAIRS BY", "GPU", "PAIRS", "SHOULD JOIN", "WOULD JOIN", "PRECISION", "RECALL")
    cells = [
        (name, score.gpu, str(join.pairs), str(join.should), str(join.would), *_parts(join))
        for score in scores
        for name, join in (("prior", score.join), ("constant", score.join_constant))
    ]
    return Rows(header, tuple(cells), right=frozenset(header[2:]))


def _parts(join: JoinScore) -> tuple[str, str]:
    precision, recall = ("–" if each is None else f"{each:.1%}" for each in (join.precision, join.recall))
    return precision, recall


def _calibration(scores: tuple[PairScore, ...]) -> Rows:
    header = ("EXPECTED SPEED", "GPU", "DIRECTIONS", "EXPECTED", "MEASURED")
    cells = [
        (
            f"{each.low:.1f} to {min(each.high, 1.1):.1f}",
            score.gpu,
            str(each.pairs),
            f"{each.expected:.2f}",
            f"{each.measured:.2f}",
        )
        for score in scores
        for each in score.calibration
    ]
    return Rows(header, tuple(cells), right=frozenset(header[2:]))
