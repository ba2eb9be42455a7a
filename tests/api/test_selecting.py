"""CEL selectors of devices: which expressions compile, what they select, and what Kubernetes says of those that fail."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.api.selecting import CelVerdicts, DeviceGroup, LocalJudge, Verdict, values
from gangline.api.selecting.expressions import with_empty_domains

Json = dict[str, Any]
DRIVER = "gpu.example.com"
GPU = f"device.attributes['{DRIVER}']"
CARD: Json = {
    "name": "gpu-0",
    "allowMultipleAllocations": True,
    "attributes": {
        "model": {"string": "H100"},
        "index": {"int": 3},
        "healthy": {"bool": True},
        "driver": {"version": "550.90.7-rc.1"},
        "other.example.com/model": {"string": "theirs"},
        "names": {"strings": ["a", "b"]},
        "ints": {"ints": [1, 2]},
        "versions": {"versions": ["1.2.3"]},
    },
    "capacity": {"memory": {"value": "80Gi"}, "other.example.com/memory": {"value": "500m"}},
}


def judge(expression: str, device: Any = CARD, driver: str = DRIVER) -> Verdict:
    group = DeviceGroup(driver, json.dumps([device]).encode())
    [[verdict]] = LocalJudge().judge(expression, [group])
    return verdict


@pytest.mark.parametrize(
    "expression",
    [
        f"device.driver == '{DRIVER}'",
        "device.driver.startsWith('gpu.') && !device.driver.endsWith('.org')",
        "device.allowMultipleAllocations",
        f"{GPU}.model == 'H100' && {GPU}.index == 3 && {GPU}.healthy",
        f"{GPU}.healthy",
        f"{GPU}['model'] in ['A100', 'H100']",
        f"{GPU}.model.lowerAscii().matches('^h[0-9]+$')",
        "device.attributes['other.example.com'].model == 'theirs'",
        f"cel.bind(gpu, {GPU}, gpu.model == 'H100' && gpu.index > 2)",
        f"cel.bind(card, device, card.driver == '{DRIVER}' && card.attributes['{DRIVER}'].index == 3)",
        f"device.capacity['{DRIVER}'].memory.compareTo(quantity('40Gi')) > 0",
        f"device.capacity['{DRIVER}'].memory == quantity('81920Mi')",
        f"device.capacity['{DRIVER}'].memory.isLessThan(quantity('1Ti'))",
        f"device.capacity['{DRIVER}'].memory.asInteger() == 85899345920",
        f"device.capacity['{DRIVER}'].memory.add(quantity('1')).sub(1).isGreaterThan(quantity('80G'))",
        "!device.capacity['other.example.com'].memory.isInteger()",
        "device.capacity['other.example.com'].memory.asApproximateFloat() == 0.5",
        "quantity('-1').sign() == -1 && isQuantity('1Ki') && !isQuantity('one')",
        f"{GPU}.driver.isGreaterThan(semver('550.90.6')) && {GPU}.driver.isLessThan(semver('550.90.7'))",
        f"{GPU}.driver.compareTo(semver('v550', true)) > 0 && {GPU}.driver.major() == 550",
        f"{GPU}.driver.minor() == 90 && {GPU}.driver.patch() == 7",
        "semver('1.2.3+a') == semver('1.2.3+b') && isSemver('1.2.3') && !isSemver('1.2') && isSemver('1.2', true)",
        # what a device does not have
        f"!has({GPU}.missing)",
        f"{GPU}.?missing.orValue('none') == 'none'",
        "!has(device.attributes['no.such'].model) && !('no.such' in device.attributes)",
        f"'{DRIVER}' in device.attributes && 'model' in {GPU} && !('model' in device.attributes['no.such'])",
        """device . attributes [ "no.such" ] . ?model.orValue('none') == 'none' // a comment""",
        f"{GPU}.missing == 1 || true",
        # lists
        f"{GPU}.names.includes('a') && !{GPU}.names.includes('c') && {GPU}.model.includes('H100')",
        f"{GPU}.ints.exists(i, i == 2) && {GPU}.ints.includes(1) && {GPU}.versions.includes(semver('1.2.3'))",
        f"{GPU}.exists(name, name == 'model')",
        f"size({GPU}.names) == 2",
    ],
)
def test_what_selects_the_card(expression: str) -> None:
    assert judge(expression) is True


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("device.foo == 1", "compilation failed: ERROR: <input>:1:7: undeclared reference to 'device.foo'"),
        ("device.driver == 1", "compilation failed: ERROR: <input>:1:15: found no matching overload for '_==_'"),
        ("device.driver ==", "compilation failed: ERROR: <input>:1:17: Syntax error"),
        ("device.driver", "must evaluate to bool or the unknown type, not string"),
        ("quantity('1') < quantity('2')", "compilation failed: ERROR: <input>:1:15: found no matching overload"),
        ("", "compilation failed"),
        ("true" + " " * 10_240, "the expression is longer than 10240 characters"),
        ("(" * 100 + "true" + ")" * 100, "compilation failed: Expression recursion limit exceeded"),
        ("device.driver == '\\ud800'", "compilation failed"),
    ],
)
def test_what_does_not_compile(expression: str, words: str) -> None:
    said = LocalJudge().fault(expression)
    assert said.startswith(words) or words in said
    assert judge(expression) == said


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (f"{GPU}.missing == 1", "no such key: missing"),
        ("device.attributes['no.such'].model == 'x'", "no such key: model"),
        (f"{GPU}.model < 3", "no such overload"),
        (f"{GPU}.index", "CEL result of type int could not be converted to bool"),
        ("quantity('much') == quantity('1')", "'much' is not a Kubernetes quantity"),
        (f"{GPU}.driver.isLessThan(quantity('1'))", "no such overload"),
        ("quantity('0.5').asInteger() == 1", "cannot convert value to integer"),
        (f"{'[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(a, ' * 5}true{')' * 5}", "Iteration budget exceeded"),
    ],
)
def test_what_cannot_be_evaluated(expression: str, words: str) -> None:
    assert LocalJudge().fault(expression) == ""
    assert words in str(judge(expression))


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ({"attributes": {"a": {"bytes": "x"}}}, "attribute a: unsupported attribute value"),
        ({"attributes": {"a": {"int": 2**63}}}, "attribute a: unsupported attribute value"),
        ({"attributes": {"a": 3}}, "attribute a: unsupported attribute value"),
        (
            {"attributes": {"a": {"version": "1.2"}}},
            "attribute a: parse semantic version: '1.2' is no semantic version",
        ),
        ({"capacity": {"c": {"value": "much"}}}, "capacity c: quantities must match"),
    ],
)
def test_a_device_that_cannot_be_read_is_selected_by_nothing(device: Json, words: str) -> None:
    assert str(judge("true", device)).startswith(words)


@pytest.mark.parametrize(
    ("one", "other", "order"),
    [
        ("1.0.0-alpha", "1.0.0-alpha.1", -1),
        ("1.0.0-alpha.1", "1.0.0-alpha.beta", -1),
        ("1.0.0-beta.2", "1.0.0-beta.11", -1),
        ("1.0.0-rc.1", "1.0.0", -1),
        ("1.10.0", "1.9.0", 1),
        ("1.0.0+x", "1.0.0", 0),
    ],
)
def test_versions_are_ordered_as_semver_says(one: str, other: str, order: int) -> None:
    assert values.compare(values.of_version(one), values.of_version(other)) == order
    assert values.compare(values.of_version(other), values.of_version(one)) == -order


@pytest.mark.parametrize("text", ["1.2", "01.2.3", "1.2.3-01", "1.2.3-", "v1.2.3", "1.2.3-a..b", "1.2.3+", ""])
def test_what_is_no_version(text: str) -> None:
    assert not values.is_version(text)


@pytest.mark.parametrize(
    ("expression", "compiled"),
    [
        ("device.attributes['a'].b", "device.attributes[?'a'].orValue({}).b"),
        ("device.capacity[x[0]].b", "device.capacity[?x[0]].orValue({}).b"),
        ("'device.attributes[0]' == r'\\\\'", "'device.attributes[0]' == r'\\\\'"),
        ("x.device.attributes['a']", "x.device.attributes['a']"),
        ("device.attributes[?'a']", "device.attributes[?'a']"),
        ("device.attributes", "device.attributes"),
        ("device.attributes['a'", "device.attributes['a'"),
        (
            "device.attributes[device.attributes['a'].b].c",
            "device.attributes[?device.attributes[?'a'].orValue({}).b].orValue({}).c",
        ),
    ],
)
def test_lookups_of_domains(expression: str, compiled: str) -> None:
    assert with_empty_domains(expression) == compiled


#: pieces of expressions, with which random ones often compile
_PIECES = st.sampled_from(
    [
        *("device", ".", "attributes", "capacity", "[", "]", "(", ")", "{", "}", "'gpu.example.com'", "'", '"', '"""'),
        *(
            "==",
            "&&",
            "||",
            "!",
            "+",
            "?",
            ":",
            ",",
            "1",
            "true",
            "model",
            "memory",
            "quantity('1')",
            "semver('1.2.3')",
        ),
        *(".exists(x, x == 1)", "cel.bind(a, ", "has(", ".?model", ".orValue(1)", "//", "\\\\", "\\n", " ", "r'", GPU),
    ]
)
_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.text(max_size=20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.lists(st.integers()),
)
_ROWS = st.dictionaries(
    st.one_of(st.sampled_from(["model", "memory", "a/b", "/", ""]), st.text(max_size=8)),
    st.dictionaries(
        st.sampled_from(["int", "bool", "string", "version", "value", "ints", "versions"]), _VALUES, max_size=2
    ),
    max_size=4,
)


@settings(max_examples=400, deadline=None)
@given(st.lists(_PIECES, max_size=14).map("".join) | st.text(max_size=40), _ROWS, _ROWS)
def test_nothing_raises(expression: str, attributes: Json, capacity: Json) -> None:
    verdict = judge(expression, {"attributes": attributes, "capacity": capacity})
    assert verdict is True or verdict is False or (isinstance(verdict, str) and verdict)


@settings(max_examples=200, deadline=None)
@given(st.lists(_PIECES, max_size=14).map("".join))
def test_what_is_compiled_instead_is_the_same_but_for_lookups(expression: str) -> None:
    assert with_empty_domains(expression).replace("[?", "[").replace(".orValue({})", "") == expression.replace(
        "[?", "["
    ).replace(".orValue({})", "")


def test_what_was_judged_once_is_known() -> None:
    asked: list[tuple[str, int]] = []

    class Counting(LocalJudge):
        def judge(self, expression: str, groups: Any) -> list[tuple[Verdict, ...]]:
            asked.append((expression, len(groups)))
            return super().judge(expression, groups)

    verdicts = CelVerdicts(Counting())
    one, two = DeviceGroup(DRIVER, orjson.dumps([CARD, {}])), DeviceGroup("other", orjson.dumps([CARD]))
    text = f"device.driver == '{DRIVER}'"
    assert verdicts.of(text, [one, two, one]) == [(True, True), (False,), (True, True)]
    assert verdicts.of(text, [two]) == [(False,)]
    assert verdicts.of("true", [two]) == [(True,)]
    assert asked == [(text, 2), ("true", 1)]


def test_only_so_many_verdicts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangline.api.selecting.judge._MOST_GROUPS", 3)
    verdicts = CelVerdicts(LocalJudge())
    groups = [DeviceGroup(str(n), b"[{}]") for n in range(2)]
    for number in range(10):
        assert verdicts.of(f"{number} == 0", groups) == [(number == 0,)] * 2
    assert verdicts.kept <= 3
