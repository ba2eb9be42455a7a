"""The benchmark of the webhooks: what it sends is what they take."""

from __future__ import annotations

import itertools

from tests.bench import reviews
from tests.bench.webhooks import _said
from tests.fuzz.webhooks import webhooks

from gangline.kube.resources import BY_KIND


def test_every_kind_of_review_is_in_the_mix_and_gets_a_judgement() -> None:
    whole = sum(weight for _, weight in reviews._weighted())
    asked = list(itertools.islice(reviews.mix(), whole))
    names = {each.name for each in asked}
    assert len(names) == len(reviews._weighted())
    assert {"Job mutate", "JobSet validate", "GPUJob mutate", "Workload v1beta1 to v1beta2"} <= names
    for each in {each.name: each for each in asked}.values():
        status, answer = webhooks().ask("POST", each.path, each.body)
        refused = _said(status, answer) != 200
        assert refused == (each.name == "ClusterQueue recipe validate"), (
            each.name,
            answer[:300],
        )  # incomplete as written


def test_the_corpus_is_sent_to_every_endpoint() -> None:
    paths = [each.path for each in reviews.hostile()]
    assert {path: paths.count(path) > 20 for path in paths} == {"/mutate": True, "/validate": True, "/convert": True}


def test_writes_are_of_both_versions_and_in_their_place() -> None:
    made = list(itertools.islice(reviews.writes("team"), 40))
    assert {each["apiVersion"].rpartition("/")[2] for each in made} == {"v1", "v1beta1", "v1beta2"}
    for each in made:
        assert each["metadata"].get("namespace") == ("team" if BY_KIND[each["kind"]].namespaced else None)
