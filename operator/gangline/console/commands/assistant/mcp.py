"""`gangline mcp`: the answers of other commands for an assistant, by the Model Context Protocol."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from gangline.console.views import access


@click.command("mcp")
@access.login_options
@click.option(
    "--allow-changes",
    is_flag=True,
    help="Also tools that hold, release, cancel and submit, each of them only after a preview.",
)
def command(kubeconfig: Path | None, context: str | None, allow_changes: bool) -> None:
    """Serve tools for an assistant on stdin and stdout, by the Model Context Protocol: queue, why, eta, whatif, plan, history,
    preemptions, report, nodes, share and limits.

    They answer with your rights. The assistant starts this command; it needs `pip install 'gangline[mcp]'`.
    """
    try:
        from gangline.console.commands.assistant import server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("gangline", "gangline_webhooks"):
            raise
        raise click.ClickException("an assistant's tools need the package mcp: pip install 'gangline[mcp]'") from error
    from gangline.console.commands.assistant.tools import Surroundings

    asyncio.run(server.serve(Surroundings(kubeconfig, context), allow_changes=allow_changes))
