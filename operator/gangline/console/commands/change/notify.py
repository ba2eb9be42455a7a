"""`gangline notify`: sets what jobs tell, and tests the notification receivers of a QueuePolicy."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path

import click

from gangline.console.commands.change import notify_set
from gangline.console.output import terminal
from gangline.console.views import access
from gangline.control.writes.notify.notices import KINDS, Notice, compose, is_address, permitted
from gangline.control.writes.notify.outbox import DeliveryError, addressed, send_with_apprise, urls_of
from gangline.kube.client import NotFound
from gangline.kube.resources import QUEUE_POLICIES, SECRETS


@click.group("notify")
def command() -> None:
    """Choose the messages about a job, or send a test message."""


command.add_command(notify_set.command)


@command.command("test")
@click.argument("policy", required=False)
@click.option("--url", "urls", multiple=True, metavar="URL", help="An Apprise URL to test instead of a policy's.")
@click.option(
    "--kind", type=click.Choice(KINDS), default="Finished", show_default=True, help="Kind of the test notification."
)
@click.option(
    "--to",
    default="",
    metavar="ADDRESS",
    help="Value for {to} in URLs, as in a job's annotation gangline.io/notify-to.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show Apprise's log, which may contain parts of URLs.")
@access.cluster_options
def test(
    policy: str | None,
    urls: tuple[str, ...],
    kind: str,
    to: str,
    verbose: bool,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Send a test message to the receivers of the QueuePolicy POLICY, or to --url.

    Exit status 1 if a receiver did not accept it.
    """
    if bool(policy) == bool(urls):
        raise click.UsageError("give the name of a QueuePolicy, or --url")
    if to and not is_address(to):
        raise click.BadParameter("must be an address, a channel or a number, without spaces", param_hint="--to")
    if verbose:
        logging.basicConfig(level=logging.DEBUG, format="  %(message)s")
    if policy:
        receivers = access.run(_receivers(policy, to, kubeconfig, context))
    else:
        receivers = [("--url", addressed(list(urls), to), "")]
    message = compose([Notice(kind, "test", "Job test/hello", "This is only a test.", round(time.time() * 1000))])
    failed = 0
    for name, found, trouble in receivers:
        if trouble or not found:
            failed += 1
            terminal.say(f"{name}: {trouble or 'its URL has a placeholder for an address: give --to'}", err=True)
        for number, url in enumerate(found, 1):
            which = name if len(found) == 1 else f"{name}, URL {number}"
            try:
                send_with_apprise(url, message, quiet=not verbose)
            except DeliveryError as error:
                failed += 1
                terminal.say(f"{which}: {error}", err=True)
            else:
                terminal.say(f"{which}: sent")
    raise SystemExit(1 if failed else 0)


async def _receivers(
    policy: str, to: str, kubeconfig: Path | None, context: str | None
) -> Sequence[tuple[str, list[str], str]]:
    """Name, URLs and error ("" if none) of every receiver of a policy."""
    async with access.client(kubeconfig, context) as api:
        rules = (await api.get(QUEUE_POLICIES, None, policy))["spec"].get("notify") or []
        if not rules:
            raise click.ClickException(f"QueuePolicy {policy} sends no notifications: it has no spec.notify")
        found: list[tuple[str, list[str], str]] = []
        for rule in rules:
            ref = rule["secretRef"]
            name = f"Secret {ref.get('namespace', 'gangline-system')}/{ref['name']}"
            if to and not permitted(to, rule.get("addresses") or ()):
                found.append((name, [], f"spec.notify[].addresses does not permit jobs to give the address {to}"))
                continue
            try:
                secret = await api.get(SECRETS, ref.get("namespace", "gangline-system"), ref["name"])
                found.append((name, urls_of(secret.get("data") or {}, to), ""))
            except NotFound:
                found.append((name, [], "there is no such Secret"))
            except DeliveryError as error:
                found.append((name, [], str(error)))
    return found
