"""The console command's help and its error messages.

Typer reads options from the command line and from environment variables (`--token-budget` is
`UNDERGLASS_TOKEN_BUDGET`; the command line takes precedence). This module adds three features that
Typer lacks: help in sections without boxes, one-line errors that name the option (and the variable, if
the value came from one), and an error for a misspelt variable.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from engine.extras import MissingExtraError, needs_extra

PREFIX = "UNDERGLASS"
FROM_ENVIRONMENT = {"auto_envvar_prefix": PREFIX}
# With an option column of this width, the help text fits on the same line in 80 columns.
_OPTION_WIDTH = 26
_TYPE = re.compile(r"<(int|float|str|path|list)\b.*>")
_TYPE_NAMES = {"int": "N", "float": "X", "str": "TEXT", "path": "PATH", "list": "TEXT"}
# The requirement that a value violates, by the type of pydantic's error.
_MUST_BE = {
    "int_parsing": "a whole number",
    "float_parsing": "a number",
    "bool_parsing": "true or false",
    "greater_than_equal": "at least {ge:g}",
    "less_than_equal": "at most {le:g}",
}
_NAME = re.compile(r"\A[a-z]+\b|\b[a-z]+(?:_[a-z]+)+\b")


def option(section: str, help: str, **limits: Any) -> Any:
    """Return an option for a section of the help. The epilog explains the environment variables."""
    return typer.Option(help=help, rich_help_panel=section, show_envvar=False, **limits)


class SectionedCommand(TyperCommand):
    """A command whose help lists the options in sections and in two columns.

    It reports a library that is not installed in one line.
    """

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            with needs_extra(ctx.command_path):
                return super().invoke(ctx)
        except MissingExtraError as error:
            fail(str(error))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, with a heading for each section."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                section = getattr(parameter, "rich_help_panel", None) or "Options"
                names = _TYPE.sub(lambda found: _TYPE_NAMES[found[1]], record[0])
                sections.setdefault(section, []).append((names, record[1]))
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl(records, col_max=_OPTION_WIDTH)


class OneLineGroup(TyperGroup):
    """A command group that reports an invalid option in one line."""

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """Parse the options that precede the command's name."""
        if not args:  # not an error: Typer shows the help
            return super().make_context(info_name, args, parent, **extra)
        with _one_line_errors():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Find the command, parse its options and run it."""
        with _one_line_errors():
            return super().invoke(ctx)


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
                meant = _variable(similar[0])
                return f"there is no environment variable {name}; did you mean {meant}?"
    return None


def with_flags(ctx: typer.Context, message: str) -> str:
    """Replace the names of settings in a message with options.

    "block_size must ..." becomes "--block-size must ...", and "(from UNDERGLASS_BLOCK_SIZE)" is
    appended if the value came from that variable.
    """
    names = {parameter.name for parameter in ctx.command.params}
    text = _NAME.sub(lambda name: _flag(name[0]) if name[0] in names else name[0], message)
    return text + _origin_of(ctx, message.split(maxsplit=1)[0])


def fail(message: str) -> NoReturn:
    """Print a one-line error and exit with code 2, as for an invalid option."""
    typer.echo(f"underglass: {message}", err=True)
    raise typer.Exit(2)


@contextmanager
def _one_line_errors() -> Iterator[None]:
    try:
        yield
    except TyperException as error:
        fail(_message(error))


def _message(error: TyperException) -> str:
    """Return a command-line error as one line. Typer prints four lines, including the usage."""
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    if context is None or parameter is None or not error.message:  # none: an argument is missing
        text = error.format_message().rstrip(".")
        hint = f" (see {context.command_path} -h)" if context else ""
        return f"{text[0].lower()}{text[1:]}{hint}"
    return f"{_flag(parameter.name)} {_requirement(error)}{_origin_of(context, parameter.name)}"


def _requirement(error: TyperException) -> str:
    """Return the requirement and the value that violates it."""
    from pydantic import ValidationError  # imported here so that the help does not wait for it

    cause = error.__cause__
    found = cause.errors()[0] if isinstance(cause, ValidationError) else None
    if found is None or found["type"] not in _MUST_BE:
        return f"is invalid: {error.message}"
    requirement, value = _MUST_BE[found["type"]], str(found["input"])
    got = repr(value) if found["type"].endswith("_parsing") else value
    return f"must be {requirement.format(**found.get('ctx', {}))}, got {got}"


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _variable(name: str) -> str:
    return f"{PREFIX}_{name.upper()}"


def _origin_of(ctx: typer.Context, name: str) -> str:
    """Return " (from UNDERGLASS_...)" if the value came from the environment, else an empty string."""
    source = ctx.get_parameter_source(name)
    return f" (from {_variable(name)})" if source and source.name == "ENVIRONMENT" else ""
