"""What the server's commands share: options in sections, and settings from environment variables.

Typer reads options from the command line and from environment variables (`--token-budget` is
`UNDERGLASS_TOKEN_BUDGET`; the command line takes precedence). This module adds an error for a misspelt
variable.
"""

import inspect
import os
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import wraps
from typing import Annotated, Any, TypeVar, cast, get_origin

import msgspec
import typer

from engine.core.declared import Setting, settings_of
from underglass.commands.command import PREFIX, flag_of, origin_of, variable_of

FROM_ENVIRONMENT = {"auto_envvar_prefix": PREFIX}
_F = TypeVar("_F", bound=Callable[..., Any])
_NAME = re.compile(r"\A[a-z]+\b|\b[a-z]+(?:_[a-z]+)+\b")


def option(section: str, help: str, *names: str, **limits: Any) -> Any:
    """Return an option for a section of the help. The epilog explains the environment variables.

    names  its flags, where they do not follow from the parameter's name: a switch without an opposite
           has one
    """
    return typer.Option(*names, help=help, rich_help_panel=section, show_envvar=False, **limits)


def with_settings(before: str, structs: Mapping[type[msgspec.Struct], str]) -> Callable[[_F], _F]:
    """Give a command an option for each declared setting of some structs, in place of `**settings`.

    before   the parameter before which the options stand in the help
    structs  each struct, with the section of its settings that name none
    """
    added = [
        _parameter(one, one.extra.get("section", section))
        for struct, section in structs.items()
        for one in settings_of(struct)
    ]

    def decorated(command: _F) -> _F:
        signature = inspect.signature(command)
        *own, _settings = signature.parameters.values()
        place = list(signature.parameters).index(before)
        signature = signature.replace(parameters=[*own[:place], *added, *own[place:]])

        @wraps(command)
        def run(*args: Any, **given: Any) -> Any:
            options = signature.bind(*args, **given)
            options.apply_defaults()
            return command(**options.arguments)

        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()}
        return cast(_F, run)

    return decorated


def _parameter(setting: Setting, section: str) -> inspect.Parameter:
    """Return the parameter of a command for a setting."""
    extra, kind, default = setting.extra, setting.kind, setting.default
    if get_origin(kind) is tuple:
        kind, default = list[str], []
    elif setting.choices:
        kind = str if default is not None else str | None
    names = [flag_of(setting.name)] if extra.get("switch") else []
    shown = {"show_default": extra["shown"]} if "shown" in extra else {}
    bounds = {"min": setting.ge, "max": setting.le} if kind in (int, float) else {}
    return inspect.Parameter(
        setting.name,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        default=default,
        annotation=Annotated[kind, option(section, setting.help, *names, **shown, **bounds)],
    )


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
