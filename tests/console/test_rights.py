"""The table of rights, and the manifests made of it; that they are enough, and no more, tests/cluster shows."""

from __future__ import annotations

from pathlib import Path

import yaml
from click.testing import CliRunner
from tests.jobs.foreign import DECLARED, OWN

from gangline.api import jobkinds
from gangline.console.cli import main
from gangline.control.feed import watched_kinds
from gangline.control.process import kopf_shell
from gangline.install import rights
from gangline.kube import resources as kube
from gangline.record import following

CONFIGURATION = {
    "integrations": {
        "frameworks": ["ray.io/rayjob", "kubeflow.org/pytorchjob", "pod"],
        "declared": [{**DECLARED, "managedBy": "spec.managedBy"}],
    },
    "multiKueue": {"externalFrameworks": [{"name": "Pipeline.v1.example.com"}]},
}


def test_everything_that_is_watched_may_be_read() -> None:
    readable = {right.resource for right in rights.OPERATOR.everywhere if set(rights.READ) <= set(right.verbs)}
    watched = {*watched_kinds.resources(), *kopf_shell.WATCHED, kube.PODS}
    assert {(each.group, each.plural) for each in watched} <= {(each.group, each.plural) for each in readable}


def test_no_right_is_to_all() -> None:
    for account in rights.ACCOUNTS:
        for right in (*account.everywhere, *account.at_home):
            assert right.verbs and "*" not in (*right.verbs, right.text, right.resource.group)


def test_a_recorder_reads_what_it_records_and_nothing_else() -> None:
    outcome = CliRunner().invoke(main, ["admin", "rbac", "--record"])
    assert outcome.exit_code == 0
    *_, role, binding = yaml.safe_load_all(outcome.output)
    assert role["kind"] == "ClusterRole" and binding["subjects"][0]["name"] == "gangline-record"
    read = {(rule["apiGroups"][0], name) for rule in role["rules"] for name in rule["resources"]}
    assert {(each.group, each.plural) for each in following.watched()} == read
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"list", "watch"}
    assert not [name for _, name in read if name in ("secrets", "pods", "configmaps")]
    assert CliRunner().invoke(main, ["admin", "rbac", "--record", "--worker"]).exit_code == 2


def test_the_command_prints_what_can_be_applied_in_order() -> None:
    outcome = CliRunner().invoke(main, ["admin", "rbac", "--notify-secret", "team-a/chat", "--notify-secret", "mail"])
    assert outcome.exit_code == 0
    made = list(yaml.safe_load_all(outcome.output))
    assert made == rights.manifests(["team-a/chat", "mail"])
    seen: set[tuple[str, str, str]] = set()
    for body in made:
        meta = body["metadata"]
        if "roleRef" in body:
            namespace = meta.get("namespace", "")
            role = (body["roleRef"]["kind"], namespace, body["roleRef"]["name"])
            assert role in seen or namespace == "kube-system", "a binding comes after its role"
            (subject,) = body["subjects"]
            assert (subject["kind"], subject["namespace"], subject["name"]) in seen
        seen.add((body["kind"], meta.get("namespace", ""), meta["name"]))
    assert len(seen) == len(made), "nothing comes twice"


def test_secrets_are_read_by_name_alone() -> None:
    assert secrets_of([]) == {("gangline-webhooks", "gangline-system")}
    more = secrets_of(["team-a/chat", "mail"]) - secrets_of([])
    assert more == {("gangline-operator-secrets", "team-a"), ("gangline-operator-secrets", "gangline-system")}
    for body in rights.manifests(["team-a/chat", "team-a/mail", "mail"]):
        for rule in body.get("rules", ()):
            if "secrets" in rule["resources"] and rule["verbs"] != ["create"]:
                assert rule["resourceNames"] in (["chat", "mail"], ["mail"], ["gangline-webhook-cert"]), rule


def worker_rights(*arguments: str) -> dict[str, set[str]]:
    """Resource -> verbs of the role for a worker cluster."""
    outcome = CliRunner().invoke(main, ["admin", "rbac", "--worker", *arguments])
    assert outcome.exit_code == 0, outcome.output
    [role] = yaml.safe_load_all(outcome.output)
    assert (role["kind"], role["metadata"]["name"]) == ("ClusterRole", "gangline-multikueue")
    return {
        f"{name}.{group}": set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for name in rule["resources"]
    }


def test_a_worker_grants_the_kinds_that_its_manager_sends(tmp_path: Path) -> None:
    """Those that it manages and that can run in another cluster, and the custom resources that it names."""
    of_jobs = {*rights.READ, "create", "delete"}
    usual = worker_rights()
    assert usual.pop("workloads.kueue.x-k8s.io") == {*of_jobs, "patch"}
    assert usual.pop("workloads/status.kueue.x-k8s.io") == {"patch"}
    assert usual == {"jobs.batch": {*of_jobs, "patch"}, "jobsets.jobset.x-k8s.io": of_jobs}, (
        "elastic Jobs get their size anew"
    )
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(CONFIGURATION))
    found = worker_rights("--config", str(file))
    kinds = {name for name in found if not name.endswith("kueue.x-k8s.io")}
    custom = {"trainingruns.example.com", "pipelines.example.com"}
    assert kinds == {"rayjobs.ray.io", "pytorchjobs.kubeflow.org", "pods.", *custom}
    assert all(found[kind] == of_jobs for kind in kinds)
    frameworks = ["deployment", "statefulset", "leaderworkerset.x-k8s.io/leaderworkerset"]
    file.write_text(yaml.safe_dump({"integrations": {"frameworks": frameworks}}))
    serving = worker_rights("--config", str(file))
    assert serving["pods."] == serving["statefulsets.apps"] == of_jobs
    assert serving["leaderworkersets.leaderworkerset.x-k8s.io"] == {*of_jobs, "patch"}, "its replicas are followed"


def test_a_manager_may_write_the_statuses_of_the_jobs_that_it_sends(tmp_path: Path) -> None:
    """Of all kinds, since nobody else does while they run in another cluster. Those of other controllers it only reads."""
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(CONFIGURATION))
    outcome = CliRunner().invoke(main, ["admin", "rbac", "--config", str(file)])
    granted: dict[str, set[str]] = {}
    for body in yaml.safe_load_all(outcome.output):
        if body["kind"] == "ClusterRole" and body["metadata"]["name"].startswith("gangline-operator"):
            for rule in body["rules"]:
                for name in rule["resources"]:
                    granted.setdefault(f"{name}.{rule['apiGroups'][0]}", set()).update(rule["verbs"])
    for kind in (*(each for each in jobkinds.BUILT_IN if each.managed_by), OWN):
        assert "patch" in granted[f"{kind.resource.plural}/status.{kind.group}"], kind.kind
    assert granted["pipelines.example.com"] == set(rights.READ)
    assert granted["pipelines/status.example.com"] == {"patch"}


def secrets_of(namespaces: list[str]) -> set[tuple[str, str]]:
    """Roles that say something of Secrets, with their namespaces."""
    return {
        (body["metadata"]["name"], body["metadata"].get("namespace", ""))
        for body in rights.manifests(namespaces)
        if any("secrets" in rule["resources"] for rule in body.get("rules", ()))
    }
