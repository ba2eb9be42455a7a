"""The table of rights, and the manifests made of it; that they are enough, and no more, tests/cluster shows."""

from __future__ import annotations

import yaml
from click.testing import CliRunner

from gangline.console.cli import main
from gangline.control.mirror import watched_kinds
from gangline.control.process import kopf_shell
from gangline.install import rights
from gangline.kube import resources as kube


def test_everything_that_is_watched_may_be_read() -> None:
    readable = {right.resource for right in rights.OPERATOR.everywhere if set(rights.READ) <= set(right.verbs)}
    assert {*watched_kinds.resources(), *kopf_shell.WATCHED, kube.PODS} <= readable


def test_no_right_is_to_all() -> None:
    for account in rights.ACCOUNTS:
        for right in (*account.everywhere, *account.at_home):
            assert right.verbs and "*" not in (*right.verbs, right.text, right.resource.group)


def test_the_command_prints_what_can_be_applied_in_order() -> None:
    outcome = CliRunner().invoke(main, ["rbac", "--notify-secret", "team-a/chat", "--notify-secret", "mail"])
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


def secrets_of(namespaces: list[str]) -> set[tuple[str, str]]:
    """Roles that say something of Secrets, with their namespaces."""
    return {
        (body["metadata"]["name"], body["metadata"].get("namespace", ""))
        for body in rights.manifests(namespaces)
        if any("secrets" in rule["resources"] for rule in body.get("rules", ()))
    }
