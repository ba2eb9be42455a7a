"""Whatever bytes an endpoint gets, its work is bounded: some thousand steps of the interpreter, and few for each byte."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz import worst
from tests.fuzz.operator_http import RUNNING, operator_http
from tests.fuzz.webhooks import webhooks

SIZE = 200_000
#: steps that any request may take, and more for each byte
BASE, PER_BYTE = 40_000, 2

OBJECT = '{"apiVersion": "gangline.io/v1alpha1", "kind": "GPUJob", "metadata": {"name": "a", "namespace": "team"}, "spec": HERE}'
REVIEW = (
    '{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": "u", "operation": "CREATE", '
)
CONVERSION = (
    '{"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "request": {"uid": "u", "desiredAPIVersion": '
    '"kueue.x-k8s.io/v1beta2", "objects": [{"kind": "Workload", "apiVersion": "kueue.x-k8s.io/v1beta1", "spec": HERE}]}}'
)
WHOLE = {
    "/mutate": f'{REVIEW}"object": {OBJECT}}}}}',
    "/validate": f'{REVIEW}"object": {OBJECT}}}}}',
    "/convert": CONVERSION,
}
OPERATOR = {
    f"/progress/team/{RUNNING}/{RUNNING}": '{"step": 1, "x": HERE}',
    "/extender/none/filter": '{"Pod": {"metadata": {}, "spec": HERE}, "NodeNames": ["a"]}',
}


def texts(piece: str, whole: str) -> Iterator[bytes]:
    """The piece over and over: alone, and as a list, a text and the names of an object in what the endpoint expects."""
    row = piece * (SIZE // len(piece))
    yield row.encode()
    yield whole.replace("HERE", f"[{row}0]").encode()
    yield whole.replace("HERE", json.dumps(row)).encode()
    yield whole.replace("HERE", json.dumps({f"{piece}{number}": piece for number in range(2000)})).encode()


def assert_bounded(data: bytes, steps: int) -> None:
    assert steps <= BASE + PER_BYTE * len(data), f"{steps} steps for {len(data)} bytes: {data[:200]!r}"


@pytest.mark.parametrize("path", WHOLE)
@pytest.mark.parametrize("piece", worst.PIECES)
def test_the_steps_of_a_review_are_bounded(path: str, piece: str) -> None:
    for data in texts(piece, WHOLE[path]):
        assert_bounded(data, worst.steps(lambda data=data: webhooks().ask("POST", path, data)))


@pytest.mark.parametrize("path", OPERATOR)
@pytest.mark.parametrize("piece", worst.PIECES)
def test_the_steps_of_the_operator_are_bounded(path: str, piece: str) -> None:
    for data in texts(piece, OPERATOR[path]):
        ask_operator(path, data)


@given(st.sampled_from([*WHOLE, *OPERATOR]), st.binary(max_size=2000), st.integers(1, 200))
def test_any_bytes_take_bounded_steps(path: str, data: bytes, times: int) -> None:
    repeated = data * times
    if path in WHOLE:
        assert_bounded(repeated, worst.steps(lambda: webhooks().ask("POST", path, repeated)))
    else:
        ask_operator(path, repeated)


def ask_operator(path: str, data: bytes) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n"
    http = operator_http()  # made before its steps are counted
    assert_bounded(data, worst.steps(lambda: http.ask("operator", head.encode() + data)))
