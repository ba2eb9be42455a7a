"""`gangline completion SHELL`: the script by which a shell completes commands, options, job names and queues."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from gangline.console.output import terminal

SHELLS = ("bash", "zsh", "fish")
#: the environment variable through which click is asked
VARIABLE = "_GANGLINE_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash:  source <(gangline completion bash)
    zsh:   source <(gangline completion zsh)
    fish:  gangline completion fish > ~/.config/fish/completions/gangline.fish

    Names of jobs and queues come from the cluster of the context, with your own rights.
    """  # noqa: D301 (click's \b keeps the lines of a paragraph)
    terminal.say(script(shell), nl=False)


def script(shell: str) -> str:
    """The script, without a test of the shell's version: it runs where the shell is, not here."""
    found = get_completion_class(shell)
    if found is None:
        raise click.ClickException(f"there is no completion for {shell}")
    completion = found(click.Group(), {}, "gangline", VARIABLE)
    return completion.source_template % completion.source_vars() + "\n"
