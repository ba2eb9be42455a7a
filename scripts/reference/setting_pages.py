"""The pages of the chart's values, of gates, of job kinds, and of what differs from Kueue: from tables in the code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from scripts.reference.compatibility import keys
from scripts.reference.compatibility.features import FEATURES, Feature
from scripts.reference.compatibility.fields import FIELDS, Rows, Support, fields_of_kinds, is_covered
from scripts.reference.compatibility.settings import SETTINGS, fields_of_file
from scripts.reference.markdown import as_cell, as_code, as_table, listed

from gangline.api import jobkinds
from gangline.api.jobkinds.declaration import shown
from gangline.api.read.configuration import gate_table, managed_jobs
from gangline.api.read.configuration.versions import VERSIONS
from gangline.control.metrics import kueue_table
from gangline.install.manifests import chart


def values_page() -> str:
    return "\n".join(
        [
            "# Values of an installation\n",
            "The values of the Helm chart, `gangline admin install` and `gangline admin manifests`:"
            " [Install on your cluster](../install.md).\n",
            chart.table(),
        ]
    )


#: what a state is called
_STATES: Final = {"works": "works", "differs": "differs", "no": "does not work"}
_COMPATIBILITY: Final = """\
Each row names what differs, or what may surprise although it works as in Kueue. Whatever has no row works as in Kueue. Tests
compare the rows with the code, and fail for a field without a row that the code does not use. Settings and gates without effect
are named when the operator starts. A row of a field holds for all fields below it, too.

Events have a [page of their own](events.md).
"""


def compatibility_page() -> str:
    by_effect: dict[str, list[str]] = {}
    for name, (_, does) in gate_table.GATES.items():
        by_effect.setdefault(does, []).append(name)
    gates = [(_DOES[does], listed(by_effect[does])) for does in (gate_table.ON, gate_table.OFF, gate_table.NEITHER)]
    metrics = kueue_table.TABLE.values()
    absent = [(f"`{metric.name}`", _STATES["no"], metric.absent) for metric in metrics if metric.absent]
    fields = fields_of_kinds()
    counts = {kind: _uncovered(every, FIELDS.get(kind, {})) for kind, every in fields.items()}
    return "\n".join(
        [
            "# What differs from Kueue\n",
            _COMPATIBILITY,
            "## Features\n",
            as_table(("feature", "in Gangline", "how", "gates"), _features()),
            f"These work as in Kueue: {'; '.join(_title(*row) for row in FEATURES.items() if not row[1].state.words)}.\n",
            "## Job kinds\n",
            f"All {len(managed_jobs.FRAMEWORKS)} names of `integrations.frameworks` work: [job kinds](job-kinds.md). GPUJob is"
            " Gangline's own.\n",
            "## Fields of kinds\n",
            as_table(
                ("kind", "field", "in Gangline", "how"),
                ((kind, *row) for kind, rows in FIELDS.items() for row in _worded(rows)),
            ),
            f"The other {sum(counts.values())} fields of both versions work as in Kueue:"
            f" {', '.join(f'{count} of {kind}' for kind, count in counts.items())}. The [kinds](kueue.md) have their"
            " meanings.\n",
            "## Labels, annotations, finalizers and gates of pods\n",
            _differing("name", keys.KEYS),
            f"The other {_plain(keys.KEYS)} work as in Kueue. The page of [names](names.md) says what most of them are for.\n",
            "## Conditions\n",
            _differing("condition", keys.CONDITIONS),
            f"The other {_plain(keys.CONDITIONS)} work as in Kueue. Their reasons and messages: [conditions](conditions.md).\n",
            "## Fields of the configuration file\n",
            _differing("field", SETTINGS),
            f"The other {_uncovered(fields_of_file(), SETTINGS)} fields of both versions work as in Kueue.\n",
            "## Feature gates\n",
            as_table(("Gangline", "gates"), gates),
            f"The other {len(by_effect[gate_table.READ])} gates work as in Kueue. Stages and defaults:"
            " [feature gates](gates.md).\n",
            "## Metrics\n",
            f"{len(metrics) - len(absent)} of {len(metrics)} work: [metrics](metrics.md).\n",
            *([as_table(("metric", "in Gangline", "how"), absent)] if absent else []),
        ]
    )


def _features() -> Iterator[tuple[str, ...]]:
    for name, feature in FEATURES.items():
        if feature.state.words:
            yield _title(name, feature), _STATES[feature.state.does], _words(feature.state), listed(feature.gates)


def _title(name: str, feature: Feature) -> str:
    return f"[{name}](../{feature.page})" if feature.page else name


def _differing(what: str, rows: Mapping[str, Support]) -> str:
    return as_table((what, "in Gangline", "how"), _worded(rows))


def _worded(rows: Mapping[str, Support]) -> Iterator[tuple[str, ...]]:
    """The rows that need words."""
    return ((f"`{name}`", _STATES[state.does], _words(state)) for name, state in rows.items() if state.words)


def _plain(rows: Mapping[str, Support]) -> int:
    """The number of rows without words."""
    return sum(not state.words for state in rows.values())


def _uncovered(paths: Iterable[str], rows: Rows) -> int:
    """The number of fields that no row is about."""
    return sum(not is_covered(path, rows) for path in paths)


def _words(state: Support) -> str:
    return state.words.replace("|", "&#124;")


_STAGES: Final = {"a": "alpha", "b": "beta", "g": "GA", "d": "deprecated"}
_DOES: Final = {
    gate_table.READ: "as the gate says",
    gate_table.ON: "always on",
    gate_table.OFF: "not there",
    gate_table.NEITHER: "makes no difference",
}


def gates_page() -> str:
    rows = [
        (as_code(name), *map(_gate_state, states.split(" ")), _DOES[does])
        for name, (states, does) in sorted(gate_table.GATES.items())
    ]
    return (
        "# Feature gates\n\n`featureGates` in [Kueue's configuration file](../kueue-compatibility.md#feature-gates): "
        "the stage and default of each gate by version of Kueue, and what Gangline does. 0.20 is Kueue's development branch.\n\n"
        f"{as_table(('gate', *VERSIONS, 'Gangline'), rows)}"
    )


def job_kinds_page() -> str:
    rows = [
        (
            f"{each.kind}<br>`{each.resource.api_version}`",
            as_code(each.framework) or "always managed",
            "the gate of its pods" if each.by_pods else as_code(each.suspension.shown),
            as_cell(each.words.pod_sets),
            as_cell(each.words.ready),
            as_cell(each.words.finished),
            as_cell(each.node_loss.words),
            as_code(shown(each.priority_class)) or "–",
            as_code(shown(each.managed_by)) or "–",
        )
        for each in jobkinds.BUILT_IN
    ]
    columns = (
        "kind",
        "framework",
        "held by",
        "pod sets",
        "ready",
        "finished",
        "when nodes fail",
        "priority class",
        "managed by",
    )
    return (
        "# Job kinds\n\nThe kinds that Gangline queues, as they are declared in `gangline.api.jobkinds`. "
        "[Job kinds](../job-kinds.md) says which are managed, and how to declare more. "
        "*When nodes fail* has what is done first, and after `;` what the annotation `gangline.io/node-loss` may ask for instead "
        "([hotswap](../hotswap.md#what-happens-to-your-job)).\n\n" + as_table(columns, rows)
    )


def _gate_state(state: str) -> str:
    if state == ".":
        return "–"
    return f"{_STAGES[state[0]]}, {'on' if '+' in state else 'off'}{', locked' if state.endswith('!') else ''}"
