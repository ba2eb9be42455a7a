"""The page of metrics."""

from __future__ import annotations

import ast
import re
from typing import Final

from scripts.reference.markdown import as_cell, as_table
from scripts.reference.syntax_trees import Code, Scope
from scripts.reference.texts import Values, last_name

from gangline.control.metrics import kueue_table

#: class -> type, and what Prometheus adds to the name
METRICS: Final = {
    "Counter": ("counter", "_total"),
    "Gauge": ("gauge", ""),
    "Histogram": ("histogram", ""),
    "CounterMetricFamily": ("counter", "_total"),
    "GaugeMetricFamily": ("gauge", ""),
    "_Counts": ("counter", "_total"),
}


def metrics_page(code: Code, values: Values) -> str:
    rows: list[tuple[str, ...]] = []
    for made in METRICS:
        for call, scope in code.calls[made]:
            first = call.args[0] if call.args else None
            if not isinstance(first, ast.Constant) or not re.match(r"gangline_", str(first.value)):
                continue
            read = any(last_name(arg) == "GaugeMetricFamily" for arg in call.args)
            type_, suffix = METRICS["GaugeMetricFamily" if read else made]
            labels = next((keyword.value for keyword in call.keywords if keyword.arg == "labels"), None)
            labels = labels or (call.args[2] if len(call.args) > 2 else None)
            text = " ".join(sorted(values.of(call.args[1], scope)))
            names = ", ".join(f"`{label}`" for label in _strings(labels, scope))
            rows.append((f"`{first.value}{suffix}`", type_, names, as_cell(text)))
    columns = ("metric", "type", "labels", "meaning")
    shown = [metric for metric in kueue_table.TABLE.values() if not metric.absent]
    absent = [metric for metric in kueue_table.TABLE.values() if metric.absent]
    return "\n".join(
        [
            "# Metrics\n",
            "The operator serves them at `/metrics` of its `--listen` address. Histograms have `_bucket`, `_sum` and `_count`"
            " series.\n",
            "## Kueue's\n",
            _KUEUES_METRICS,
            as_table(
                (*columns, "labels of", "there with"),
                (
                    (
                        f"`{metric.name}`",
                        metric.kind,
                        ", ".join(f"`{label}`" for label in metric.labels),
                        as_cell(metric.text),
                        ", ".join(metric.custom),
                        "; ".join(filter(None, (kueue_table.LOCAL_QUEUES * metric.of_local_queues, metric.when))),
                    )
                    for metric in shown
                ),
            ),
            "These have no series:\n",
            "\n".join(f"- `{metric.name}`: {metric.absent}" for metric in absent) + "\n",
            "## Gangline's\n",
            as_table(columns, sorted(rows)),
        ]
    )


#: what holds for all of Kueue's metrics
_KUEUES_METRICS: Final = """Names, types, labels and buckets are Kueue's. `replica_role` is `leader`, `follower` (a standby), or
`standalone` (without leader election). `priority_class` is empty where the class does not exist.

- **Gauges** are read off the ledger at each scrape, so they are right after a restart. Counters and histograms start at 0 then.
  A workload counts as finished, ready or released if the process saw it before.
- **Added labels**: with the gate `CustomMetricLabels`, each entry of `metrics.customLabels` adds `custom_<name>` to the metrics
  whose column *labels of* has its `sourceKind`. An annotation longer than 256 characters is cut. Labels and
  annotations of a Workload come from its job.
- **Series go with their object**: with the ClusterQueue, LocalQueue or Cohort that they name, and when the object gets other
  values of added labels. An object has at most 1,000 series of a counter or histogram; then they begin anew.
"""


def _strings(node: ast.expr | None, scope: Scope) -> list[str]:
    """A list of texts that is written out, or a variable of the function that is one."""
    match node:
        case ast.List(elts=items):
            return [text for item in items for text in _strings(item, scope)]
        case ast.Starred(value=inner):
            return _strings(inner, scope)
        case ast.Constant(value=str(text)):
            return [text]
        case ast.Name(id=name):
            for row in ast.walk(scope.functions[-1]):
                match row:
                    case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                        return _strings(value, scope)
    return []
