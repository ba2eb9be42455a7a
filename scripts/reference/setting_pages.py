"""The pages of the chart's values, of gates, of job kinds, and of what works as in Kueue: from tables in the code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scripts.reference.compatibility import keys
from scripts.reference.compatibility.features import FEATURES, Feature
from scripts.reference.compatibility.settings import SETTINGS
from scripts.reference.markdown import as_cell, as_code, as_table, listed

from gangline.api import jobkinds
from gangline.api.compatibility.fields import FIELDS, Support
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
Every part of Kueue's API: whether it works in Gangline as in Kueue, differs, or does not work. Tests compare the rows with the
code: a field, key or setting without a row fails, and so does one that *works* and is not used. Who sets a field of a spec that
does not work gets a warning from the webhooks; settings and gates without effect are named when the operator starts.

Events have a [page of their own](events.md).
"""


def compatibility_page() -> str:
    gates = {
        "follows the gate": [name for name, (_, does) in gate_table.GATES.items() if does == gate_table.READ],
        "always on": [name for name, (_, does) in gate_table.GATES.items() if does == gate_table.ON],
        "not there": [name for name, (_, does) in gate_table.GATES.items() if does == gate_table.OFF],
        "makes no difference": [name for name, (_, does) in gate_table.GATES.items() if does == gate_table.NEITHER],
    }
    metrics = kueue_table.TABLE.values()
    absent = [(f"`{metric.name}`", _STATES["no"], metric.absent) for metric in metrics if metric.absent]
    frameworks = [(f"`{name}`", _STATES["works"]) for name in sorted(managed_jobs.FRAMEWORKS)]
    return "\n".join(
        [
            "# What works as in Kueue\n",
            _COMPATIBILITY,
            "## Features\n",
            as_table(("feature", "in Gangline", "how", "gates"), (_feature(*row) for row in FEATURES.items())),
            "## Job kinds\n",
            "By their names in `integrations.frameworks`. GPUJob is Gangline's own.\n",
            as_table(("job kind", "in Gangline"), frameworks),
            "## Fields of kinds\n",
            "Of both versions; the [kinds](kueue.md) have their meanings.\n",
            *(_states(kind, "field", fields, "###") for kind, fields in FIELDS.items()),
            _states("Labels, annotations, finalizers and gates of pods", "name", keys.KEYS, "##"),
            _states("Conditions", "condition", keys.CONDITIONS, "##"),
            "Their reasons and messages: [conditions](conditions.md).\n",
            _states("Fields of the configuration file", "field", SETTINGS, "##"),
            "## Feature gates\n",
            "Stages and defaults: [feature gates](gates.md).\n",
            as_table(("Gangline", "gates"), ((how, listed(which)) for how, which in gates.items())),
            "## Metrics\n",
            f"{len(metrics) - len(absent)} of {len(metrics)} work: [metrics](metrics.md).\n",
            *([as_table(("metric", "in Gangline", "how"), absent)] if absent else []),
        ]
    )


def _feature(name: str, feature: Feature) -> tuple[str, ...]:
    title = f"[{name}](../{feature.page})" if feature.page else name
    return (title, _STATES[feature.state.does], _words(feature.state), listed(feature.gates))


def _states(title: str, what: str, rows: Mapping[str, Support], level: str) -> str:
    """The rows that need words as a table, the others as one list."""
    told = [(f"`{name}`", _STATES[state.does], _words(state)) for name, state in rows.items() if state.words]
    plain = [name for name, state in rows.items() if not state.words]
    parts = [f"{level} {title}\n"]
    if told:
        parts.append(as_table((what, "in Gangline", "how"), told))
    if plain:
        parts.append(f"{'These work' if told else 'All work'}: {listed(plain)}.\n")
    return "\n".join(parts)


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
