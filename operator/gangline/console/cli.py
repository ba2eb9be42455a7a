"""The `gangline` command. Each subcommand's module is imported only when the subcommand is called, to keep start-up short."""

from __future__ import annotations

import importlib

import click

import gangline

#: subcommand -> "module:click command"
COMMANDS: dict[str, str] = {
    "audit": "gangline.console.commands.audit:command",
    "crds": "gangline.console.commands.crds:command",
    "cluster": "gangline.console.commands.cluster:command",
    "down": "gangline.console.commands.up:down",
    "doctor": "gangline.console.commands.doctor:command",
    "eta": "gangline.console.commands.eta:command",
    "forecast": "gangline.console.commands.forecast:command",
    "image": "gangline.console.commands.image:command",
    "install": "gangline.console.commands.install:install",
    "manifests": "gangline.console.commands.install:manifests",
    "notify": "gangline.console.commands.notify:command",
    "operator": "gangline.console.commands.operator:command",
    "plan": "gangline.console.commands.plan:command",
    "queue": "gangline.console.commands.queue:command",
    "rbac": "gangline.console.commands.rbac:command",
    "replay": "gangline.console.commands.replay:command",
    "run": "gangline.console.commands.run:command",
    "swap": "gangline.console.commands.swap:command",
    "uninstall": "gangline.console.commands.install:uninstall",
    "up": "gangline.console.commands.up:command",
    "upgrade": "gangline.console.commands.install:upgrade",
    "vectors": "gangline.console.commands.vectors:command",
    "webhooks": "gangline.console.commands.webhooks:command",
    "whatif": "gangline.console.commands.whatif:command",
    "why": "gangline.console.commands.why:command",
}


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except ImportError as error:
            if error.name is not None:  # a missing module of ours is a bug: show the traceback
                raise
            raise click.ClickException(str(error)) from error  # a library that this machine can't load


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(gangline.__version__, prog_name="gangline")
def main() -> None:
    """Gangline admits a GPU gang when all its pods can run. This command shows queues and reasons, and starts clusters."""


if __name__ == "__main__":
    main()
