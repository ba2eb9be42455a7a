"""Every place that reads a text is marked with `bounded.parser`, measures the text itself, or is listed with a reason."""

from __future__ import annotations

import pytest
from tests.fuzz import readers

#: no reader of texts: what is converted is a number already, by its type, by a schema or by a marked parser
NUMBERS = (
    "gangline.api.jobkinds.spark._memory",
    "gangline.api.jobkinds.spark._mib",
    "gangline.api.quantity._parse_number",
    "gangline.api.quantity.parse_number",
    "gangline.api.read.configuration.file._pods_ready",
    "gangline.api.read.configuration.file._usage_based",
    "gangline.api.read.parse._consumed",
    "gangline.api.read.policy_reader._give_way",
    "gangline.api.read.policy_reader._loss_budget",
    "gangline.api.read.policy_reader._when_full",
    "gangline.api.read.policy_reader.backfill",
    "gangline.api.read.policy_reader.overrun",
    "gangline.api.read.policy_reader.recovery",
    "gangline.control.answers.workloads.words.age",
    "gangline.api.quantity.exact",
    "gangline.api.selecting.values._fraction",
    "gangline.api.selecting.values._normalized",
    "gangline.api.selecting.values._numbers",
    "gangline.api.selecting.values._order",
    "gangline.api.selecting.values.as_float",
    "gangline.api.selecting.values.as_integer",
    "gangline.api.selecting.child.main",
    "gangline.api.read.counting.resource_rules._units",
    "gangline.control.forecasting.expected_starts.Accuracy.restore",
    "gangline.control.nodes.windows.save_times.SaveTimes.of",
    "gangline.engine.cards.card_amounts.CardRoom._bars",
    "gangline.control.forecasting.expected_starts._recorded",
    "gangline.control.forecasting.group_coverage.counts_of",
    "gangline.control.forecasting.promises.PromiseRecord.of",
    "gangline.control.forecasting.tallies._record",
    "gangline.control.checks.multikueue.multikueue.MultiKueue.__init__",
    "gangline.control.checks.multikueue.multikueue.MultiKueue._times",
    "gangline.control.checks.multikueue.plan.stopping.patience",
    "gangline.control.process.lease.Elector._free",
    "gangline.control.process.lease.Elector._write",
    "gangline.control.metrics.operator_metrics.Metrics.show_phases",
    "gangline.control.nodes.stall.progress_reports._number",
    "gangline.control.nodes.stall.progress_reports._quantile",
    "gangline.control.writes.pacing.Pace.__post_init__",
    "gangline.control.writes.pacing.Pace._cut",
    "gangline.control.writes.pacing.Pace.allowance",
    "gangline.control.writes.pacing.Pace.answered",
    "gangline.control.writes.writer",
    "gangline.control.writes.writer.Writer.submit",
    "gangline.engine.engine.Engine.end_in_company.work_of",
    "gangline.engine.backfill.loss_budget._halves",
    "gangline.engine.queues.ordering.Ranking._area",
    "gangline.engine.queues.ordering.Ranking._expected",
    "gangline.engine.queues.ordering.Ranking.rank",
    "gangline.engine.queues.ordering.Ranking.rank_with",
    "gangline.engine.queues.ordering._largest",
    "gangline.forecast.forecaster.Forecaster._learn",
    "gangline.forecast.learning.guard.ModelGuard.recall",
    "gangline.forecast.learning.quantile_model._from_json",
    "gangline.forecast.learning.shifts._answer",
    "gangline.forecast.history.run_store.HistoryStore.count",
    "gangline.forecast.history.run_store._keep_latest",
    "gangline.forecast.history.run_store._sizes",
    "gangline.forecast.history.run_store._prune",
    "gangline.forecast.learning.training._validated",
    "gangline.forecast.learning.training.fit",
    "gangline.jobs.podspec.positive",
    "gangline.kube.errors.from_status",
    "gangline.kube.reflector.Reflector._watch",
    "gangline.record.values.seconds",
    "gangline.telemetry.PrometheusSource.read",
)
#: the operator's own files, database, environment, addresses and Secrets: whoever writes these is its administrator
OWN = (
    "gangline.control.audit.decision_index.DecisionIndex._look_at",
    "gangline.control.audit.decision_index.DecisionIndex._note",
    "gangline.control.audit.decision_index._Line.decided",
    "gangline.control.audit.decision_index.files",
    "gangline.control.audit.audit_log.from_line",
    "gangline.control.forecasting.tallies.Tallies._take",
    "gangline.control.writes.notify.outbox._decoded",
    "gangline.control.answers.api.api_service.Address.alias",
    "gangline.control.answers.api.api_service.Address.routable",
    "gangline.control.writes.writer.FaultHook.from_environment",
    "gangline.forecast.learning.quantile_model.load",
    "gangline.forecast.learning.worker.main",
    "gangline.install.manifests.chart._constant",
    "gangline.kube.config._Entry.content",
    "gangline.kube.config._Kubeconfig.read",
    "gangline.kube.plain_client.PlainClient.__init__",
    "gangline.kube.oidc.main",
    "gangline.kube.plain_client.PlainClient.__init__",
    "gangline.kube.tokens.ExecToken._run_plugin",
    "gangline.kube.tokens.OidcToken._refresh",
    "gangline.kube.tokens.OidcToken._store",
    "gangline.kube.tokens.OidcToken._stored",
    "gangline.kube.tokens._epoch",
    "gangline.kube.tokens._jwt_expiry",
    "gangline.forecast.pairs.pair_file._class",
    "gangline.forecast.pairs.pair_file._family",
    "gangline.forecast.pairs.pair_file._rates",
    "gangline.progress._Deadline.look",
    "gangline.progress._interval",
    "gangline.record.folder.Folder.begin",
    "gangline.record.folder.files_of",
    "gangline.telemetry.PrometheusSource.__init__",
    "gangline.tls.certificates._general_name",
    "gangline_webhooks.certificate_store._read",
    "gangline_webhooks.registration._name_of",
    "gangline_webhooks.server._names",
)
#: answers of the API server, which bounds its objects; what people wrote in them is read by marked functions
API_SERVER = (
    "gangline.bounded._cut",
    "gangline.bounded.load_shallow",
    "gangline.kube.discovery.ServedVersions._ask",
    "gangline.kube.errors.Invalid.unknown_fields",
    "gangline.kube.errors._seconds",
    "gangline.kube.errors.from_response",
    "gangline.kube.resources.as_revision",
    "gangline.kube.versions.of",
    "gangline_webhooks.registrar.Registrar.trusts",
)
#: JSON that the same process has just written, of an object that was measured when it came in
WRITTEN_HERE = (
    "gangline.api.queue_orders._steps",
    "gangline.api.read.counting.device_charges._devices",
    "gangline.api.read.podspec._known",
    "gangline.api.read.policy_reader._known",
    "gangline.api.selecting.judge.LocalJudge.judge",
    "gangline.control.audit.replay_process._replayed",
    "gangline.control.audit.replay_process.main",
    "gangline.control.checks.multikueue.workloads.local_jobs._unpacked",
    "gangline.control.feed.selector_process.SelectorProcess._ask",
    "gangline.control.feed.selector_process.SelectorProcess.judge",
    "gangline.control.writes.writes.Writes._render",
    "gangline.jobs.declared.DeclaredKind._draft",
    "gangline.jobs.pods.member.GroupPod.seen",
    "gangline_webhooks.facts.Facts._warnings",
    "gangline_webhooks.facts._is_queued",
)
#: one pass of a pattern that cannot go back: over names that the API server keeps short, or no further than 400 characters
ONE_PASS = (
    "gangline.api.read.workloads.parse_workload._moved_for",
    "gangline.engine.model.devices.is_accelerator",
)
#: commands that a person starts for herself, on her own files and arguments, a cluster on her own machine, and images from
#: locked packages
COMMANDS = (
    "gangline.console",
    "gangline.debian",
    "gangline.devcluster",
    "gangline.image",
    "gangline.replay",
    "gangline.traces",
)

ALLOWED = frozenset({*NUMBERS, *OWN, *API_SERVER, *WRITTEN_HERE, *ONE_PASS})


def _is_command(function: str) -> bool:
    return any(function.startswith(f"{package}.") for package in COMMANDS)


def test_every_reader_of_texts_is_marked_or_explained():
    found = [
        reader for reader in readers.everywhere() if reader.function not in ALLOWED and not _is_command(reader.function)
    ]
    assert found == [], "mark them with gangline.bounded.parser"


def test_every_exception_is_still_needed():
    found = {reader.function for reader in readers.everywhere()}
    assert ALLOWED - found == set()
    assert [package for package in COMMANDS if not any(name.startswith(f"{package}.") for name in found)] == []


@pytest.mark.parametrize(
    "reader",
    [
        "int(text)",
        "int(text or 0)",
        'float(text.strip("s"))',
        'int("1" + text)',
        "int(text * 2)",
        'int("%s" % text)',
        "int(min(text))",
        "Decimal(text)",
        "Fraction(text)",
        "json.loads(text)",
        "orjson.loads(text)",
        "yaml.safe_load_all(text)",
        're.fullmatch("a*", text)',
        're.compile("a*").match(text)',
        "PATTERN.search(text)",
        "self.PATTERN.sub('', text)",
        "datetime.fromisoformat(text)",
        "base64.b64decode(text)",
        "ast.literal_eval(text)",
        "ipaddress.ip_address(text)",
        "urlsplit(text)",
        "[int(part) for part in text.split()]",
        "(lambda: int(text))()",
    ],
)
def test_a_reader_without_a_mark_is_found(reader: str):
    source = f"PATTERN: Final = re.compile('a*')\nclass Some:\n    def read(self, text):\n        return {reader}\n"
    assert [found.function for found in readers.unmarked(source)] == ["module.Some.read"]
    marked = source.replace("    def", "    @bounded.parser(10)\n    def")
    assert readers.unmarked(marked) == []
    measured = source.replace("        return", "        if len(text) > 10:\n            return None\n        return")
    assert readers.unmarked(measured) == []
    only_seen_to_be_there = source.replace(
        "        return", "        if len(text) > 0:\n            pass\n        return"
    )
    assert len(readers.unmarked(only_seen_to_be_there)) == 1


@pytest.mark.parametrize(
    "number",
    [
        "1",
        "len(text)",
        "round(a)",
        "a - b",
        "a / b",
        "-a",
        "2 + a",
        "2 * len(text)",
        "time.time()",
        "max(0, a)",
        "a == b",
    ],
)
def test_what_is_a_number_already_is_no_text(number: str):
    assert readers.unmarked(f"def read(text, a, b):\n    return int({number})\n") == []
