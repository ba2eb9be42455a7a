"""The small corpus, replayed without a fuzzer: what once reached something, or broke it, is answered as it has to be."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from tests.builders.written import job
from tests.fuzz import corpus, operator_http, targets, webhooks
from tests.fuzz.objects import review

from gangline.api import admission
from gangline.bounded import Parser

TARGETS = targets.targets()


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_of_each_target_passes(name: str) -> None:
    inputs = corpus.inputs(name)
    assert inputs, f"no corpus: make fuzz-coverage TARGETS={name}, then python -m tests.fuzz.coverage --keep {name}"
    for data in inputs:
        TARGETS[name].run(data)


def test_the_corpus_is_small_and_all_of_it_is_replayed() -> None:
    files = {file.stem: file.stat().st_size for file in corpus.CORPUS.iterdir()}
    assert files.keys() == TARGETS.keys()
    assert max(files.values()) <= corpus.LARGEST


def test_every_route_and_every_parser_is_a_target() -> None:
    found = {
        "webhooks-mutate",
        "webhooks-validate-raw",
        "webhooks-convert",
        "operator-post-progress-namespace-name-uid",
    }
    found |= {"operator-get-forecasts", "parser-gangline.api.quantity.parse_duration"}
    assert found <= TARGETS.keys()
    assert sum(name.startswith("visibility") and name.endswith("pendingworkloads") for name in TARGETS) == 4


def broken(*_: Any) -> NoReturn:
    raise KeyError("spec")


def test_an_object_that_breaks_a_webhook_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "validate", broken)
    with pytest.raises(AssertionError, match="code 500"):
        webhooks.judge("/validate", review(job(), None))


def test_an_object_that_makes_its_kind_unlistable_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangline.api.convert.fields.fits", lambda *_: True)
    annotations = {"gangline.io/v1beta1-fields": '{"flavors": [{"name": 7}]}'}
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "q"}}
    queue["metadata"] = {"name": "q", "annotations": annotations}
    with pytest.raises(AssertionError, match="no client can decode"):
        webhooks.judge("/convert", webhooks.conversion_review([queue], "kueue.x-k8s.io/v1beta1"))


def test_a_request_that_breaks_the_operator_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    served = operator_http.operator_http()
    monkeypatch.setattr(served.operator.visibility, "pending", broken)
    path = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/{name}/pendingworkloads"
    with pytest.raises(AssertionError, match="500"):
        TARGETS[f"visibility-get{path.replace('/', '-').replace('{name}', 'name')}"].run(b"")


def test_a_parser_that_raises_what_it_does_not_declare_is_a_finding() -> None:
    with pytest.raises(KeyError):
        targets._read(Parser("broken", 10, broken), b"1")
