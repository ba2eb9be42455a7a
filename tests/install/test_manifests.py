"""The chart, the kustomize directories and `gangline admin manifests` say the same; what they name is there."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.controlplane import require_control_plane
from tests.install.choices import CHOICES

from gangline.api.read import configuration
from gangline.devcluster.building import build
from gangline.install.manifests import alerts, chart, objects, values
from gangline.install.manifests.tree import MANAGED_BY
from gangline.kube.resources import Json

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "gangline"


def run(*command: str | Path) -> str:
    outcome = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert outcome.returncode == 0, f"{outcome.stdout}{outcome.stderr}"
    return outcome.stdout


def by_name(bodies: list[Any]) -> dict[tuple[str, str, str], Json]:
    """Objects by kind, namespace and name, without who manages them."""
    found: dict[tuple[str, str, str], Json] = {}
    for body in bodies:
        meta = body["metadata"]
        assert meta["labels"].pop(MANAGED_BY)
        found[body["kind"], meta.get("namespace", ""), meta["name"]] = body
    assert len(found) == len(bodies), "nothing comes twice"
    return found


@pytest.mark.parametrize("chosen", CHOICES)
def test_the_chart_is_what_gangline_installs(helm: Path, chosen: str, tmp_path: Path) -> None:
    given = tmp_path / "values.yaml"
    given.write_text(json.dumps(CHOICES[chosen]))
    text = run(helm, "template", "gangline", CHART, "--namespace", "somewhere", "--values", given)
    rendered = by_name([body for body in yaml.safe_load_all(text) if body and not is_hook(body)])
    ours = by_name(objects.plain(values.chosen([CHOICES[chosen]]), "somewhere"))
    namespace = ours.pop(("Namespace", "", "somewhere"))  # Helm's --create-namespace makes it
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert rendered.keys() == ours.keys()
    for key, body in ours.items():
        assert rendered[key] == body, key


@pytest.mark.parametrize(
    ("chosen", "recorded"),
    [("defaults", False), ("everything", True), ("dashboard", True), ("dashboard without a record", False)],
)
def test_decisions_are_recorded_where_the_dashboard_is_served_unless_chosen_otherwise(
    chosen: str, recorded: bool
) -> None:
    installed = by_name(objects.plain(values.chosen([CHOICES[chosen]]), "somewhere"))
    pod = installed["Deployment", "somewhere", "gangline-operator"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    arguments = [each for each in container["args"] if each.startswith("--audit=")]
    assert arguments == (["--audit=/var/lib/gangline/audit/audit.jsonl"] if recorded else [])
    assert {"name": "history", "mountPath": "/var/lib/gangline"} in container["volumeMounts"]
    assert {"name": "history", "emptyDir": {}} in pod["volumes"], "no limit that the record could reach"


def test_pods_run_commands_by_their_present_spelling() -> None:
    """A former one would be in the first line of each pod's log."""
    rows = [
        row
        for file in (*CHART.glob("templates/*.yaml"), *(ROOT / "config").rglob("*.yaml"))
        for row in re.findall(r"^ +args:\n +- (\S+)\n +- (\S+)$", file.read_text(), re.M)
    ]
    assert set(rows) == {("admin", "operator"), ("admin", "webhooks")}
    assert len(rows) >= 8


def is_hook(body: Json) -> bool:
    return "helm.sh/hook" in (body["metadata"].get("annotations") or {})


def test_the_chart_has_no_complaints(helm: Path) -> None:
    assert "0 chart(s) failed" in run(helm, "lint", "--strict", CHART)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("operator.replica=3", "operator.replica: there is no such value"),
        ("operator.replicas=0", "operator.replicas: "),
        ("certificates.mode=mine", "certificates.mode: "),
        ("operator.podLabels={app.kubernetes.io/name: x}", "operator.podLabels: "),
        ("image.digest=latest", "image.digest: "),
        ("operator.resources.requests.cpu=lots", "operator.resources.requests.cpu: "),
    ],
)
def test_what_is_no_value_is_refused_by_both(helm: Path, setting: str, words: str, tmp_path: Path) -> None:
    given = values.setting(setting)
    with pytest.raises(values.ValuesError, match=re.escape(words)):
        values.chosen([given])
    file = tmp_path / "values.yaml"
    file.write_text(json.dumps(given))
    outcome = subprocess.run([helm, "template", "x", CHART, "-f", file], capture_output=True, text=True, check=False)
    assert outcome.returncode != 0 and "schema" in outcome.stderr


def test_values_of_kueues_chart_get_what_to_do_all_at_once() -> None:
    given = {
        "enableCertManager": True,
        "managerConfig": {"controllerManagerConfigYaml": "kind: Configuration"},
        "controllerManager": {"replicas": 1},
        "metrics": {"prometheusNamespace": "monitoring"},
        "unheardOf": 1,
    }
    with pytest.raises(values.ValuesError) as caught:
        values.chosen([given])
    lines = str(caught.value).splitlines()
    assert len(lines) == 5
    assert "enableCertManager: a value of Kueue's chart; write `certificates: {mode: cert-manager}`" in lines
    assert any(line.startswith("managerConfig: ") and "goes into `configuration`" in line for line in lines)
    assert any(line.startswith("metrics.prometheusNamespace: ") and "leave it out" in line for line in lines)
    assert "unheardOf: there is no such value" in lines


def test_the_configuration_may_be_a_block_string_as_in_kueues_chart(helm: Path, tmp_path: Path) -> None:
    text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nfairSharing: {}\n"
    assert values.chosen([{"configuration": text}])["configuration"]["fairSharing"] == {}
    with pytest.raises(values.ValuesError, match=r"configuration: .*cannot be read"):
        values.chosen([{"configuration": "a: ["}])
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({"configuration": text}))
    made = [body for body in yaml.safe_load_all(run(helm, "template", "x", CHART, "-f", file)) if body]
    [stored] = [
        body for body in made if body["kind"] == "ConfigMap" and body["metadata"]["name"].endswith("configuration")
    ]
    assert configuration.parse(stored["data"]["config.yaml"])["fairSharing"] == {}


def test_a_chart_of_which_this_is_a_part_may_set_globals(helm: Path) -> None:
    run(helm, "template", "x", CHART, "--set", "global.region=eu")


@pytest.mark.parametrize(
    ("directory", "chosen"), [("default", {}), ("cert-manager", {"certificates": {"mode": "cert-manager"}})]
)
def test_kustomize_has_the_same_objects(directory: str, chosen: Json) -> None:
    require_control_plane()
    text = run(build.kubectl(), "kustomize", ROOT / "config" / directory)
    made = [body for body in yaml.safe_load_all(text) if body["kind"] != "CustomResourceDefinition"]
    ours = objects.plain(values.chosen([chosen]))
    crds = [body for body in ours if body["kind"] == "CustomResourceDefinition"]
    assert by_name(made) == by_name([body for body in ours if body not in crds])
    assert text.count("\nkind: CustomResourceDefinition\n") == len(crds)


def test_a_file_that_is_generated_no_more_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make check` looks at charts/ and config/ in the same way."""
    chart.write(tmp_path)
    monkeypatch.setattr(chart, "files", cache(chart.files))  # they take seconds, and the first time are compared
    assert chart.differing(tmp_path) == []
    (tmp_path / "charts/gangline/templates/old.yaml").write_text("kind: Old\n")
    (tmp_path / "config/default/service.yaml").write_text("")
    assert chart.differing(tmp_path) == ["charts/gangline/templates/old.yaml", "config/default/service.yaml"]
    chart.write(tmp_path)
    assert chart.differing(tmp_path) == []


def test_values_yaml_holds_the_defaults_and_says_what_each_is_for() -> None:
    assert yaml.safe_load((CHART / "values.yaml").read_text()) == values.defaults()
    assert [path for path, default, text in values.described() if not text and default is not None] == []


#: of the API server: `kubectl get --raw /metrics` of a control plane with webhooks shows them
OF_THE_API_SERVER = {
    "apiserver_admission_webhook_rejection_count",
    "apiserver_admission_webhook_fail_open_count",
    "apiserver_admission_webhook_admission_duration_seconds",
}


def test_alerts_and_dashboard_ask_for_metrics_that_there_are() -> None:
    listed = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/reference/metrics.md").read_text(), re.MULTILINE))
    asked = [alert.expression for alert in alerts.ALERTS]
    asked += [expression for panel in alerts.PANELS for expression, _ in panel.queries]
    names = {name for text in asked for name in re.findall(r"\b(?:gangline|kueue|apiserver)_\w+", text)}
    unknown = {name for name in names if name.removesuffix("_bucket") not in listed | OF_THE_API_SERVER}
    assert len(names) > 15 and not unknown


def test_each_alert_has_a_section_that_says_what_to_look_at_and_what_to_do() -> None:
    sections = re.split(r"^## ", (ROOT / "docs/alerts.md").read_text(), flags=re.MULTILINE)[1:]
    assert [section.split("\n")[0] for section in sections] == [alert.name for alert in alerts.ALERTS]
    assert all("- **Look at**: " in section and "- **Do**: " in section for section in sections)


def test_an_alert_links_to_its_section_where_the_pages_are_served() -> None:
    def links(**rules: str) -> set[str]:
        chosen = values.chosen([{"monitoring": {"rules": {"enabled": True, **rules}}}])
        (body,) = [each for each in objects.plain(chosen) if each["kind"] == "PrometheusRule"]
        return {rule["annotations"].get("runbook_url", "") for rule in body["spec"]["groups"][0]["rules"]}

    assert links() == {""}
    assert f"https://docs.example.com/{alerts.ALERTS[0].runbook}" in links(runbooks="https://docs.example.com")


def test_the_first_row_of_the_dashboard_shows_gpus_and_no_panels_overlap() -> None:
    panels = alerts.model()["panels"]
    first = [panel["title"] for panel in panels if panel["gridPos"]["y"] == 0]
    assert len(first) == 4 and all(title.startswith("GPUs") for title in first)
    taken: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in panels):
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken and place["x"] + place["w"] <= 24
        taken |= cells


def test_no_user_is_named_so_that_openshift_may_choose_one() -> None:
    text = json.dumps([body for body in objects.plain(values.defaults()) if body["kind"] == "Deployment"])
    assert "runAsUser" not in text and "fsGroup" not in text and "runAsNonRoot" in text


def test_the_dashboard_is_json_and_every_object_has_our_label() -> None:
    everything = objects.plain(values.chosen([CHOICES["everything"]]))
    (board,) = [body for body in everything if body["metadata"]["name"] == "gangline-dashboard"]
    assert len(json.loads(board["data"]["gangline.json"])["panels"]) == len(alerts.PANELS)
    assert all(body["metadata"]["labels"]["app.kubernetes.io/part-of"] == "gangline" for body in everything)
