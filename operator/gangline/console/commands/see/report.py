"""`gangline report`: GPU-hours of a time by queue, user, flavor or day, and what became of them, as Slurm's sreport does."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any, Final

import click

from gangline import bounded, files
from gangline.api import label_syntax
from gangline.console.options import Span
from gangline.console.output import presenting, remarks, selection, sheets, terminal
from gangline.console.output.columns import Column, Listing
from gangline.console.output.formats import Output, OutputFormat, document
from gangline.console.output.selection import ListSelection
from gangline.console.output.sheets import SheetCell
from gangline.console.views import access, asking, completing, own_rights
from gangline.control.answers.api import question
from gangline.control.answers.workloads.words import age
from gangline.kube.client import ApiClient
from gangline.kube.resources import Json

#: a value of --by -> the operator's word for it
BY: Final = {
    "queue": "clusterQueue",
    "localqueue": "localQueue",
    "namespace": "namespace",
    "user": "user",
    "flavor": "flavor",
    "kind": "jobKind",
    "day": "day",
}
#: what stands before the key of a label in --by
LABEL: Final = "label:"
#: causes to which GPU-hours are lost, as the operator names them
CAUSES: Final = ("preemption", "failure", "overrun", "cancel", "eviction")
#: characters of a file of prices, and flavors in it
_LONGEST: Final = 256 * 1024
_MOST_PRICES: Final = 1000
#: columns of a sheet that are texts, beside the first, and those that are whole numbers
_TEXTS: Final = frozenset({"hidden", "currency"})
_WHOLE: Final = frozenset({"jobs", "attempts", "preemptions"})
#: characters of a date with its time
_DATE: Final = 40


# --- what a GPU-hour costs ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PriceList:
    """What a GPU-hour of each flavor costs."""

    currency: str
    by_flavor: Mapping[str, float]

    @classmethod
    def read(cls, path: Path) -> PriceList:
        """The prices in a YAML file. Raises click.ClickException, which names the file and the field."""
        try:
            text = files.read_text(path, most=_LONGEST)
        except UnicodeDecodeError as error:
            raise click.ClickException(f"{path}: it is not UTF-8") from error
        except OSError as error:
            raise click.ClickException(f"{path}: cannot be read: {error.strerror or error}") from error
        try:
            return cls.parse(text)
        except ValueError as error:
            raise click.ClickException(f"{path}: {error}") from error

    @classmethod
    def parse(cls, text: str) -> PriceList:
        """The prices in a YAML text. Raises ValueError, which names the field."""
        import yaml

        if len(text) > _LONGEST:
            raise ValueError(f"it has more than {_LONGEST} characters")
        try:
            body: Any = yaml.safe_load(text)
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            raise ValueError(f"it is not YAML: {str(error).splitlines()[0]}") from None
        if not isinstance(body, dict):
            raise ValueError("it must have the fields currency and prices")
        for name in body:
            if name not in ("currency", "prices"):
                raise ValueError(f"{bounded.shown(name)}: there is no such field, only currency and prices")
        currency, prices = body.get("currency"), body.get("prices")
        if not isinstance(currency, str) or not 0 < len(currency) <= 16:
            raise ValueError("currency: must be a text of 1 to 16 characters, such as EUR")
        if not isinstance(prices, dict) or not 0 < len(prices) <= _MOST_PRICES:
            raise ValueError(f"prices: must have 1 to {_MOST_PRICES} flavors, each with the price of a GPU-hour")
        for flavor, price in prices.items():
            if not isinstance(flavor, str):
                raise ValueError(f"prices.{bounded.shown(flavor)}: the name of a flavor must be a text")
            if isinstance(price, bool) or not isinstance(price, int | float) or not 0 <= price < math.inf:
                raise ValueError(f"prices.{bounded.shown(flavor)}: must be a number from 0, not {bounded.shown(price)}")
        return cls(currency, prices)

    def cost(self, row: Json, hours: str) -> float:
        """What the GPU-hours of a row cost, as far as their flavors have a price. `hours`: which of them."""
        return sum(each[hours] * self.by_flavor.get(each["flavor"], 0.0) for each in row["flavors"])

    def without_price(self, row: Json) -> dict[str, float]:
        """Flavors of a row that have no price, and their GPU-hours."""
        return {
            each["flavor"]: each["gpuHours"]
            for each in row["flavors"]
            if each["flavor"] not in self.by_flavor and each["gpuHours"]
        }


# --- the report ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReportRow:
    """A row of a report. `sums`: the operator's answer about a group; `cost`, `lost_cost`: None without prices."""

    name: str
    sums: Json
    cost: float | None = None
    lost_cost: float | None = None
    is_total: bool = False

    @property
    def hours(self) -> float:
        return self.sums["gpuHours"]

    @property
    def useful_part(self) -> float | None:
        return self.sums["usefulGpuHours"] / self.hours if self.hours else None

    def as_json(self) -> Json:
        kept = {name: value for name, value in self.sums.items() if name not in ("metadata", "weightedGpuHours")}
        costs = {} if self.cost is None else {"cost": self.cost, "lostCost": self.lost_cost}
        return {**kept, "name": "" if self.is_total else self.name, **costs}


@dataclass(frozen=True, slots=True)
class Report:
    """GPU-hours of a time, by one of `BY`."""

    by: str
    start: float
    end: float
    zone: tzinfo
    rows: Sequence[ReportRow]
    total: ReportRow
    prices: PriceList | None = None
    #: what the operator was asked beside this, such as the ClusterQueue
    asked: Json = field(default_factory=dict[str, Any])

    @classmethod
    def of(
        cls, by: str, zone: tzinfo, answer: Json, prices: PriceList | None = None, asked: Json | None = None
    ) -> Report:
        """The report from an answer about sums, all pages of it."""

        def row(sums: Json, name: str, *, is_total: bool = False) -> ReportRow:
            if prices is None:
                return ReportRow(name, sums, is_total=is_total)
            cost, lost = (round(prices.cost(sums, hours), 2) for hours in ("gpuHours", "lostGpuHours"))
            return ReportRow(name, sums, cost, lost, is_total)

        rows = [row(each, each["name"]) for each in answer["items"]]
        total = row(answer["total"], "total", is_total=True)
        return cls(by, answer["start"], answer["end"], zone, rows, total, prices, asked or {})

    def as_json(self) -> Json:
        return {
            "by": self.by,
            "start": self.start,
            "end": self.end,
            "timeZone": str(self.zone),
            **self.asked,
            **({"currency": self.prices.currency} if self.prices is not None else {}),
            "items": [row.as_json() for row in self.rows],
            "total": self.total.as_json(),
        }

    def instant(self, at: float) -> str:
        return datetime.fromtimestamp(at, self.zone).isoformat(" ", "minutes")

    def remarks(self) -> list[str]:
        """What one should know of the numbers."""
        found = [f"from {self.instant(self.start)} to {self.instant(self.end)} ({self.zone})"]
        if self.prices is not None and (missing := self.prices.without_price(self.total.sums)):
            named = ", ".join(f"{flavor or '?'} ({hours:.1f} GPU-hours)" for flavor, hours in sorted(missing.items()))
            found.append(f"these flavors have no price, and cost nothing here: {named}")
        return found

    def listing(self) -> Listing[ReportRow]:
        return listing(self.by, self.prices.currency if self.prices is not None else "")

    def sheet(self) -> tuple[list[str], list[list[SheetCell]]]:
        """Each group with all numbers, below their names. There is no row of totals, which sums would count again."""
        header = [
            self.by,
            "hidden",
            "jobs",
            "attempts",
            "gpuHours",
            "usefulGpuHours",
            "startingGpuHours",
            "idleGpuHours",
        ]
        header += [*(f"lostTo{cause.capitalize()}GpuHours" for cause in CAUSES)]
        header += ["waitedGpuHours", "medianWaitSeconds", "preemptions"]
        priced = self.prices is not None
        header += ["cost", "lostCost", "currency"] if self.prices is not None else []
        rows: list[list[SheetCell]] = []
        for row in self.rows:
            sums = row.sums
            numbers = [sums[name] for name in ("jobs", "attempts", "gpuHours", "usefulGpuHours", "startingGpuHours")]
            lost = [sums["lost"][cause] for cause in CAUSES]
            waits = [sums[name] for name in ("waitedGpuHours", "medianWaitSeconds", "preemptions")]
            cells: list[SheetCell] = [row.name, "yes" if sums["hidden"] else "no", *numbers, sums["idleGpuHours"]]
            costs = [row.cost, row.lost_cost, self.prices.currency] if self.prices is not None and priced else []
            rows.append([*cells, *lost, *waits, *costs])
        return header, rows

    def as_csv(self) -> str:
        return sheets.as_csv(*self.sheet())

    def write_parquet(self, file: Path) -> None:
        """Write the sheet, with the time of the report in the file's metadata. Raises click.ClickException."""
        about = {"by": self.by, "start": f"{self.start:.0f}", "end": f"{self.end:.0f}", "timeZone": str(self.zone)}
        sheets.write_parquet(file, *self.sheet(), texts=_TEXTS, whole=_WHOLE, about=about)

    def as_html(self) -> str:
        rows = self.listing().rows([*self.rows, self.total], self.end, wide=True)
        return sheets.as_html(f"GPU-hours by {self.by}", self.remarks(), rows, 1)


def _hours(name: str, field_name: str, rank: int, *, sparse: bool = True) -> Column[ReportRow]:
    return _number(name, lambda row: row.sums[field_name], rank, sparse=sparse)


def _number(name: str, value: Any, rank: int, *, sparse: bool = True, wide: bool = False) -> Column[ReportRow]:
    def text(row: ReportRow, _: float) -> str:
        found = value(row)
        return f"{found:.1f}" if found or (found is not None and not sparse) else ""

    return Column(name, text, right=True, rank=rank, sparse=sparse, wide=wide, key=lambda row, _: value(row))


def listing(by: str, currency: str = "") -> Listing[ReportRow]:
    """The columns of a report."""

    def money(name: str, value: Any, rank: int) -> Column[ReportRow]:
        def text(row: ReportRow, _: float) -> str:
            return "" if value(row) is None else f"{value(row):.2f}"

        return Column(name, text, right=True, rank=rank, sparse=True, key=lambda row, _: value(row))

    def lost_to(cause: str) -> Any:
        return lambda row: row.sums["lost"][cause]

    return Listing(
        columns=(
            Column(by.removeprefix(LABEL).upper(), lambda row, _: row.name or "–", least=12),
            Column(
                "JOBS", lambda row, _: str(row.sums["jobs"]), right=True, rank=2, key=lambda row, _: row.sums["jobs"]
            ),
            Column(
                "ATTEMPTS",
                lambda row, _: str(row.sums["attempts"]),
                right=True,
                wide=True,
                key=lambda row, _: row.sums["attempts"],
            ),
            _hours("GPU-H", "gpuHours", 0, sparse=False),
            _hours("USEFUL", "usefulGpuHours", 1, sparse=False),
            Column(
                "USEFUL%",
                lambda row, _: "" if row.useful_part is None else f"{100 * row.useful_part:.0f}%",
                right=True,
                rank=6,
                key=lambda row, _: row.useful_part,
            ),
            _hours("STARTING", "startingGpuHours", 5),
            _hours("IDLE", "idleGpuHours", 4),
            *(_number(cause.upper(), lost_to(cause), 3) for cause in CAUSES),
            _number("WAITED", lambda row: row.sums["waitedGpuHours"], 7, wide=True),
            Column(
                "PREEMPTED",
                lambda row, _: str(row.sums["preemptions"] or ""),
                right=True,
                wide=True,
                sparse=True,
                key=lambda row, _: row.sums["preemptions"],
            ),
            money(f"COST {currency}", lambda row: row.cost, 0),
            money(f"LOST {currency}", lambda row: row.lost_cost, 1),
            Column(
                "WAIT",
                lambda row, _: "" if (wait := row.sums["medianWaitSeconds"]) is None else age(wait),
                right=True,
                key=lambda row, _: row.sums["medianWaitSeconds"],
            ),
        ),
        as_json=lambda row: row.as_json(),
        name=lambda row: row.name,
        empty="No job has held quota in this time.",
        style=lambda row: "bold" if row.is_total else "dim" if row.sums["hidden"] else "",
    )


class ReportKey(click.Choice[str]):
    """A value of --by: one of those that every report has, or `label:KEY`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if isinstance(value, str) and value.startswith(LABEL):
            if label_syntax.is_key(value.removeprefix(LABEL)):
                return value
            self.fail(f"{bounded.shown(value)}: behind {LABEL} stands the key of a label", param, ctx)
        return super().convert(value, param, ctx)


# --- the command --------------------------------------------------------------------------------------------------------


@click.command("report")
@access.cluster_options
@click.option(
    "-A", "--all-namespaces", is_flag=True, help="Sums of all ClusterQueues, not only of those of your namespace."
)
@click.option(
    "-q",
    "--cluster-queue",
    default="",
    help="Only of this ClusterQueue.",
    shell_complete=completing.cluster_queues,
)
@click.option(
    "--by",
    type=ReportKey(list(BY)),
    metavar=f"{'|'.join(BY)}|{LABEL}KEY",
    default="queue",
    show_default=True,
    help="What a row is; label:KEY: a value of a label of jobs that the operator keeps.",
)
@click.option("--since", type=Span(), default=None, help="How far to look back, such as 12h or 30d.  [default: 30d]")
@click.option(
    "--from", "first", metavar="DATE", help="Since when, such as 2026-11-01 or 2026-11-01T12:00, in place of --since."
)
@click.option("--to", "last", metavar="DATE", help="Until when, with --from: this instant, or day, is not in it.")
@click.option("--tz", default="UTC", show_default=True, help="Time zone of dates and days, such as Europe/Berlin.")
@click.option(
    "--prices",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML with `currency` and `prices`, a GPU-hour's by flavor: adds what was used and lost in money.",
)
@click.option("--sort", multiple=True, metavar="COLUMN[,…]", help="Sort by columns or paths; -COLUMN: descending.")
@click.option(
    "-o",
    "--output",
    type=Output("wide", "json", "yaml", "csv", "html", "parquet"),
    default=OutputFormat(),
    help="Another form than the table. Parquet needs gangline[parquet].",
)
@click.option(
    "--file", type=click.Path(dir_okay=False, path_type=Path), help="Write it to this file; -o parquet needs one."
)
def command(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    all_namespaces: bool,
    cluster_queue: str,
    by: str,
    since: float | None,
    first: str | None,
    last: str | None,
    tz: str,
    prices: Path | None,
    sort: tuple[str, ...],
    output: OutputFormat,
    file: Path | None,
) -> None:
    """Show the GPU-hours of a time and what became of them: useful, starting, idle, lost to which cause; like sreport.

    Everybody's jobs count in the ClusterQueues that your namespace uses; names that you may not see are labels. Jobs in progress
    count up to now.
    """
    query: dict[str, str | bool | int] = {"by": BY.get(by, by), "clusterQueue": cluster_queue, "limit": question.MOST}
    if (output.kind == "parquet") != (file is not None):
        raise click.UsageError("-o parquet and --file FILE belong together; other forms are printed")
    zone = _zone(tz)
    query |= {"timeZone": tz} if by == "day" else {}
    query |= _window(since, first, last, zone)
    prices_ = PriceList.read(prices) if prices is not None else None
    order = ListSelection(sort=selection.words(sort))

    async def work() -> None:
        async with access.client(kubeconfig, context) as api:
            where = namespace or api.login.namespace
            everywhere = all_namespaces or bool(cluster_queue and namespace is None)
            found = await answer(api, where, everywhere, query)
        asked = {"clusterQueue": cluster_queue} if cluster_queue else {}
        show(Report.of(by, zone, found, prices_, asked), order, output, file)

    access.run(work())


def show(report: Report, order: ListSelection, output: OutputFormat, file: Path | None = None) -> None:
    """Print a report, or write it to a file."""
    listed = report.listing()
    report = replace(report, rows=order.of(listed, report.rows, time.time()))
    if file is not None:
        report.write_parquet(file)
        terminal.say(f"{len(report.rows)} rows in {file}", err=True)
    elif output.kind in ("json", "yaml"):
        terminal.say(document(output.kind, report.as_json()))
    elif output.kind == "csv":
        terminal.say(report.as_csv())
    elif output.kind == "html":
        terminal.say(report.as_html())
    elif not report.rows:
        terminal.say(listed.empty, err=True)
    else:
        rows = listed.rows([*report.rows, report.total], report.end, wide=output.kind == "wide")
        terminal.say(*presenting.styled(rows, None if output.kind == "wide" else presenting.width()))
    if output.tabular or output.kind == "csv":
        for text in report.remarks():
            remarks.remark(text)


async def answer(api: ApiClient, namespace: str, everywhere: bool, query: Mapping[str, str | bool | int]) -> Json:
    """The operator's sums, all pages of them, with their total and their time. Raises click.ClickException."""
    try:
        return await asking.in_scope(
            lambda scope: _pages(api, f"{scope}/usagesums", query),
            namespace,
            everywhere=everywhere,
            shown=f"these are the ClusterQueues of namespace {namespace}",
        )
    except own_rights.NoOperator as error:
        raise own_rights.refusal(error) from error


async def _pages(api: ApiClient, path: str, query: Mapping[str, str | bool | int]) -> Json:
    items: list[Json] = []
    token = ""
    while True:
        page = await asking.get(api, path, {**query, "continue": token})
        if "total" not in page:
            raise click.ClickException("the operator is older than this command: it makes no reports")
        items += page["items"]
        token = page["metadata"].get("continue", "")
        if not token:
            return {**page, "items": items}


def _zone(name: str) -> tzinfo:
    try:
        return question.time_zone(name)
    except question.QuestionError as error:
        raise click.BadParameter(str(error).removeprefix("timeZone: "), param_hint="--tz") from error


def _window(since: float | None, first: str | None, last: str | None, zone: tzinfo) -> dict[str, int]:
    """The parameters of the time that is asked for. Raises click.UsageError."""
    if first is None:
        if last is not None:
            raise click.UsageError("--to needs --from")
        return {"sinceSeconds": max(1, round(since if since is not None else 30 * 86_400))}
    if since is not None:
        raise click.UsageError("--since and --from are two ways to say the same: give one of them")
    start = _instant(first, zone, "--from")
    if last is None:
        return {"start": start}
    end = _instant(last, zone, "--to")
    if end <= start:
        raise click.UsageError("--to must be after --from")
    return {"start": start, "end": end}


def _instant(text: str, zone: tzinfo, option: str) -> int:
    """The Unix seconds of a date, or of a date with a time, which is one of the zone unless it names another."""
    try:
        parsed = datetime.fromisoformat(text) if len(text) <= _DATE else None
        found = (parsed if parsed.tzinfo else parsed.replace(tzinfo=zone)).timestamp() if parsed is not None else 0.0
    except (ValueError, OverflowError, OSError):
        found = 0.0
    if found < 1:
        raise click.BadParameter(
            f"{bounded.shown(text)} is no date such as 2026-11-01 or 2026-11-01T12:00", param_hint=option
        )
    return math.floor(found)
