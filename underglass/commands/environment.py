"""What the server's commands share: options in sections, and settings from environment variables.

Typer reads options from the command line and from environment variables (`--token-budget` is
`UNDERGLASS_TOKEN_BUDGET`; the command line takes precedence). This module adds an error for a misspelt
variable.
"""

import os
import re
from difflib import get_close_matches
from typing import Any

import typer

from underglass.commands.command import PREFIX, flag_of, origin_of, variable_of

FROM_ENVIRONMENT = {"auto_envvar_prefix": PREFIX}
_NAME = re.compile(r"\A[a-z]+\b|\b[a-z]+(?:_[a-z]+)+\b")


def option(section: str, help: str, *names: str, **limits: Any) -> Any:
    """Return an option for a section of the help. The epilog explains the environment variables.

    names  its flags, where they do not follow from the parameter's name: a switch without an opposite
           has one
    """
    return typer.Option(*names, help=help, rich_help_panel=section, show_envvar=False, **limits)


def check_environment(ctx: typer.Context) -> str | None:
    """Return an error message if an environment variable is misspelt or the API key is empty.

    Typer ignores an empty variable, so an empty key would start a server that requires no key.
    """
    for key in ("API_KEY", "CLUSTER_KEY"):
        if os.environ.get(f"{PREFIX}_{key}") == "" and ctx.params.get(key.lower()) is None:
            return f"{PREFIX}_{key} is empty: set it to the key, or unset it"
    known = [(parameter.name or "").upper() for parameter in ctx.command.params]
    for name in os.environ:
        own = name.removeprefix(f"{PREFIX}_")
        if own not in (name, *known):
            similar = get_close_matches(own, known, n=1, cutoff=0.75)
            if similar:
                meant = variable_of(similar[0])
                return f"there is no environment variable {name}; did you mean {meant}?"
    return None


def with_flags(ctx: typer.Context, message: str) -> str:
    """Replace the names of settings in a message with options.

    "block_size must ..." becomes "--block-size must ...", and "(from UNDERGLASS_BLOCK_SIZE)" is
    appended if the value came from that variable.
    """
    names = {parameter.name for parameter in ctx.command.params}
    text = _NAME.sub(lambda name: flag_of(name[0]) if name[0] in names else name[0], message)
    return text + origin_of(ctx, message.split(maxsplit=1)[0])
