"""`gangline ui`: serves the dashboard, on a laptop with the user's own rights, or for all with the rights of each."""

from __future__ import annotations

import asyncio
import functools
import json
import signal
import webbrowser
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gangline import files
from gangline.console.options import LogOptions, listening_at, with_log_options
from gangline.console.output import terminal
from gangline.console.views import access

if TYPE_CHECKING:
    from gangline.kube.client import ApiClient
    from gangline.kube.resources import Json
    from gangline.ui.app import Dashboard, Verb
    from gangline.ui.serving import Address

#: the dashboard's words for the verdicts of doctor
LEVELS: Final = {"ok": "ok", "warning": "warning", "failure": "error", "unknown": "skipped"}
#: where the dashboard is found on a laptop
USUAL_PORT = 8484


@click.command("ui")
@access.cluster_options
@click.option(
    "--listen",
    callback=listening_at,
    default=f"127.0.0.1:{USUAL_PORT}",
    show_default=True,
    help="HOST:PORT; port 0 chooses one.",
)
@click.option(
    "--login",
    "login_by",
    type=click.Choice(["kubeconfig", "token", "oidc"]),
    default="kubeconfig",
    show_default=True,
    help="Whose rights a browser has: those of the kubeconfig, for who opens the link that is printed; or those of a token "
    "that each person pastes; or those of a sign-in with an OIDC issuer that the API server trusts (a token may be pasted, too).",
)
@click.option("--base", default="/", show_default=True, help="The path below which a proxy serves the dashboard.")
@click.option("--url", help="The dashboard's URL, as browsers reach it; with --login oidc it replaces --base.")
@click.option("--oidc-issuer", help="URL of the issuer, as the API server knows it.")
@click.option("--oidc-client-id", help="The client that the API server expects in tokens.")
@click.option(
    "--oidc-client-secret-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the client's secret, if it has one.",
)
@click.option(
    "--oidc-scope", "oidc_scopes", multiple=True, help="A scope; may be repeated. [default: openid email groups]"
)
@click.option(
    "--oidc-ca",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="CA (PEM) of the issuer's certificate.",
)
@click.option("--cluster", default="", help="The cluster's name in titles. [default: the context's]")
@click.option("--insecure-cookies", is_flag=True, help="Let browsers send tokens without TLS. For trials.")
@click.option("--tls-cert", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Certificate (PEM).")
@click.option(
    "--tls-key", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The certificate's key (PEM)."
)
@click.option("--browser", is_flag=True, help="Open the page in the browser.")
@click.option(
    "--ready-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help='Written as {"url": LINK} once the dashboard is served; removed at its end.',
)
@with_log_options
def command(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    listen: tuple[str, int],
    login_by: str,
    base: str,
    url: str | None,
    oidc_issuer: str | None,
    oidc_client_id: str | None,
    oidc_client_secret_file: Path | None,
    oidc_scopes: tuple[str, ...],
    oidc_ca: Path | None,
    cluster: str,
    insecure_cookies: bool,
    tls_cert: Path | None,
    tls_key: Path | None,
    browser: bool,
    ready_file: Path | None,
    log_options: LogOptions,
) -> None:
    """Serve the dashboard: queues, jobs and nodes as they stand, what was, and what is to come.

    Runs until Ctrl-C. It shows what the API server lets the person see who looks, and changes what it lets that person change.
    """
    from gangline.kube import config
    from gangline.ui.app import Dashboard
    from gangline.ui.front_end import NotBuiltError, built
    from gangline.ui.oidc import SCOPES, Issuer, OidcLogin
    from gangline.ui.pages import Pages
    from gangline.ui.serving import Address
    from gangline.ui.sessions import LaptopSessions, TokenSessions

    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key belong together")
    if not (base.startswith("/") and base.endswith("/")):
        raise click.UsageError("--base: must begin and end with /")
    if login_by == "kubeconfig" and insecure_cookies:
        raise click.UsageError("--insecure-cookies is for --login token and oidc")
    oidc = None
    if login_by == "oidc":
        if not (url and oidc_issuer and oidc_client_id):
            raise click.UsageError("--login oidc needs --url, --oidc-issuer and --oidc-client-id")
        if not url.startswith("https://" if not insecure_cookies else ("https://", "http://")):
            raise click.UsageError("--url: must be an https:// address")
        url = url.rstrip("/") + "/"
        base = f"/{url.split('/', 3)[3]}"
        issuer = Issuer(
            oidc_issuer,
            oidc_client_id,
            url,
            client_secret=files.read_text(oidc_client_secret_file).strip() if oidc_client_secret_file else "",
            scopes=oidc_scopes or SCOPES,
            authority=files.read_text(oidc_ca) if oidc_ca else None,
        )
        oidc = OidcLogin(issuer, secure=not insecure_cookies)
    elif url or oidc_issuer or oidc_client_id or oidc_client_secret_file or oidc_scopes or oidc_ca:
        raise click.UsageError("--url and --oidc-… are for --login oidc")
    log_options.begin()
    try:
        where_from = kubeconfig or (None if config.in_pod() else access.own_cluster(context))
        login = config.load(where_from, context, as_user=login_by == "kubeconfig")
        pages = Pages(built(), base)
    except (config.LoginError, NotBuiltError) as error:
        raise click.ClickException(str(error)) from error
    kinds = ("oidc", "token") if oidc is not None else ("token",)
    kept = (
        LaptopSessions(login)
        if login_by == "kubeconfig"
        else TokenSessions(login, secure=not insecure_cookies, kinds=kinds)
    )
    where = Address(*listen, tls_cert, tls_key)
    title = cluster or context or login.server.partition("://")[2]
    first = namespace or login.namespace
    dashboard = Dashboard(kept, pages, verbs(), first, title, own=login_by == "kubeconfig", oidc=oidc, doctor=examined)
    try:
        asyncio.run(_serve(dashboard, where, base, ready_file, browser=browser))
    except OSError as error:
        raise click.ClickException(error.strerror or str(error)) from error
    finally:
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)


async def _serve(dashboard: Dashboard, where: Address, base: str, ready_file: Path | None, *, browser: bool) -> None:
    from gangline.ui.serving import serving
    from gangline.ui.sessions import LaptopSessions

    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with serving(dashboard, where) as root:
        link = f"{root}{base}"
        if isinstance(dashboard.sessions, LaptopSessions):
            link += f"enter?key={dashboard.sessions.link_secret}"
            terminal.say(f"The dashboard, for one browser, until Ctrl-C:\n  {link}")
        else:
            terminal.say(f"The dashboard, until Ctrl-C:\n  {link}")
        if ready_file is not None:
            files.write(ready_file, json.dumps({"url": link}))
        if browser:
            await asyncio.to_thread(webbrowser.open, link)
        await ended.wait()


async def examined(client: ApiClient) -> list[Json]:
    """The findings of `gangline admin doctor --cluster` with the rights of a client."""
    from gangline.console.doctor import installation
    from gangline.console.doctor.cluster import ClusterReads

    cluster = ClusterReads(client)
    try:
        found = await installation.EXAMINATION.of(cluster)
    finally:
        await cluster.close()
    return [
        {
            "name": each.check,
            "level": LEVELS[each.verdict],
            "text": each.detail,
            "advice": each.advice,
            "objects": list(each.objects),
        }
        for each in found
    ]


def verbs() -> dict[str, Verb]:
    """What a browser may change, by the functions of the commands of the same names."""
    from gangline.console.commands.admin import cordon
    from gangline.console.commands.change import cancel, hold, move

    found: dict[str, Callable[..., Awaitable[str]]] = {
        "hold": hold.held,
        "release": hold.released,
        "cancel": cancel.cancelled,
        "move": move.moved,
        "top": move.topped,
        "cordon": cordon.cordoned,
        "uncordon": cordon.uncordoned,
    }
    return {name: _with_reason(change) for name, change in found.items()}


def _with_reason(change: Callable[..., Awaitable[str]]) -> Verb:
    """The change of a command, which says why it was refused as the dashboard does."""
    from gangline.ui.app import RefusedError

    @functools.wraps(change)
    async def changed(*arguments: Any, **options: Any) -> str:
        try:
            return await change(*arguments, **options)
        except click.ClickException as error:
            raise RefusedError(error.message) from error

    return changed
