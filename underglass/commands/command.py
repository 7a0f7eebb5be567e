"""The help and the error messages of every command.

Typer lacks help in sections without boxes, and one-line errors that name the option (and the
environment variable, if the value came from one).
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup
from typer.exceptions import TyperException

from engine.core.extras import MissingExtraError, needs_extra
from underglass.commands.options import fail

PREFIX = "UNDERGLASS"
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


class SectionedCommand(TyperCommand):
    """A command whose help lists arguments and options in sections and in two columns.

    It reports an invalid option or a missing library in one line.
    """

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """Parse the command line."""
        with _one_line_errors():
            return super().make_context(info_name, args, parent, **extra)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the usage line's words, because Typer would write FILE... as {FILE...}..."""
        arguments = [one for one in self.get_params(ctx) if isinstance(one, TyperArgument)]
        return ["[OPTIONS]", *(_in_usage(one) for one in arguments)]

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            with needs_extra(ctx.command_path):
                return super().invoke(ctx)
        except MissingExtraError as error:
            fail(str(error))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the options, with a heading for each section."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                section = getattr(parameter, "rich_help_panel", None) or "Options"
                names = _TYPE.sub(lambda found: _TYPE_NAMES[found[1]], record[0])
                if isinstance(parameter, TyperArgument):
                    section, names = "Arguments", name_of(parameter)
                sections.setdefault(section, []).append((names, record[1]))
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl(records, col_max=_OPTION_WIDTH)


class OneLineGroup(TyperGroup):
    """A command group that reports an unknown command or an invalid option in one line."""

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """Parse the options that precede the command's name."""
        if not args:  # not an error: Typer shows the help
            return super().make_context(info_name, args, parent, **extra)
        with _one_line_errors():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Find the command and run it."""
        with _one_line_errors():
            return super().invoke(ctx)


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
        text = error.format_message().rstrip(".").replace("(Possible options: ", "(did you mean ")
        hint = f" (see {context.command_path} -h)" if context else ""
        return f"{text[0].lower()}{text[1:]}{hint}"
    return f"{name_of(parameter)} {_requirement(error)}{origin_of(context, parameter.name)}"


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


def name_of(parameter: Any) -> str:
    """Return --token-budget for an option, and FILE for an argument."""
    if isinstance(parameter, TyperArgument):
        return parameter.metavar or parameter.name.upper()
    return flag_of(parameter.name)


def _in_usage(argument: TyperArgument) -> str:
    """Return FILE for an argument that is required, otherwise [FILE]."""
    return name_of(argument) if argument.required else f"[{name_of(argument)}]"


def flag_of(name: str) -> str:
    """Return the option of a parameter: --token-budget for token_budget."""
    return "--" + name.replace("_", "-")


def variable_of(name: str) -> str:
    """Return the environment variable of a parameter: UNDERGLASS_TOKEN_BUDGET for token_budget."""
    return f"{PREFIX}_{name.upper()}"


def origin_of(ctx: typer.Context, name: str) -> str:
    """Return " (from UNDERGLASS_...)" if the value came from the environment, else an empty string."""
    source = ctx.get_parameter_source(name)
    return f" (from {variable_of(name)})" if source and source.name == "ENVIRONMENT" else ""
