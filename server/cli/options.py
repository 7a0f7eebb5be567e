"""Options of the console command that are environment variables, too, and a help that reads well.

`--token-budget` is `UNDERGLASS_TOKEN_BUDGET`; the command line wins. A variable that no option knows is
most likely misspelt, and a server that starts without what was asked for is a surprise for later: it
is refused by name.

Whatever is wrong is said in one line that names the option, and the variable if it came from there.
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

PREFIX = "UNDERGLASS_"
# An option list that is no wider leaves the meaning on the same line, in 80 columns.
_WIDEST = 26
_KIND = re.compile(r"<(int|float|str|path|list)\b.*>")
_VARIABLE = re.compile(r"env var: \w+(?:; )?")
_KINDS = {"int": "N", "float": "X", "str": "TEXT", "path": "PATH", "list": "TEXT"}
# What a value must be, by the kind of pydantic's complaint.
_MUST_BE = {
    "int_parsing": "a whole number",
    "float_parsing": "a number",
    "bool_parsing": "true or false",
    "greater_than_equal": "at least {ge:g}",
    "less_than_equal": "at most {le:g}",
}
_NAME = re.compile(r"\A[a-z]+\b|\b[a-z]+(?:_[a-z]+)+\b")


def option(name: str, help: str, section: str = "Server", *flags: str, **limits: Any) -> Any:
    """An option that is also an environment variable."""
    return typer.Option(
        *flags,
        help=help,
        envvar=PREFIX + name,
        rich_help_panel=section,
        **limits,
    )


class SectionedCommand(TyperCommand):
    """A command whose help has its options in sections, two columns wide."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, each section under its name."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                section = getattr(parameter, "rich_help_panel", None) or "Options"
                names, meaning = record
                names = _KIND.sub(lambda kind: _KINDS[kind[1]], names)
                meaning = _VARIABLE.sub("", meaning).replace("  []", "")  # told once, below
                sections.setdefault(section, []).append((names, meaning))
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl(records, col_max=_WIDEST)


class OneLineGroup(TyperGroup):
    """Commands of which each says in one line what is wrong with its options."""

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """Read the options before a command's name."""
        if not args:  # nothing is wrong: this shows the help
            return super().make_context(info_name, args, parent, **extra)
        with _one_line():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Find the command, read its options and run it."""
        with _one_line():
            return super().invoke(ctx)


def check_environment(ctx: typer.Context) -> str | None:
    """What is wrong with the environment: a variable that looks like an option's, and is none's.

    Or a key that is empty, which Typer takes for none: the server would let everybody in.
    """
    if os.environ.get(f"{PREFIX}API_KEY") == "" and ctx.params.get("api_key") is None:
        return f"{PREFIX}API_KEY is empty: set it to the key, or unset it"
    known = [variable for one in ctx.command.params if (variable := _variable(one))]
    for name in os.environ:
        if name.startswith(PREFIX) and name not in known:
            meant = get_close_matches(name, known, n=1, cutoff=0.75)
            if meant:
                return f"there is no environment variable {name}; did you mean {meant[0]}?"
    return None


def in_flags(ctx: typer.Context, message: str) -> str:
    """A message that begins with a setting's name, in the command's words.

    "block_size must ..." becomes "--block-size must ...", and "(from UNDERGLASS_BLOCK_SIZE)" is
    added if that is where the value came from.
    """
    names = {parameter.name for parameter in ctx.command.params}
    words = _NAME.sub(lambda name: _flag(name[0]) if name[0] in names else name[0], message)
    return words + _origin_of(ctx, message.split(maxsplit=1)[0])


def fail(message: str) -> NoReturn:
    """One line that says what is wrong; exit code 2, as for a wrong option."""
    typer.echo(f"underglass: {message}", err=True)
    raise typer.Exit(2)


@contextmanager
def _one_line() -> Iterator[None]:
    try:
        yield
    except TyperException as error:
        fail(_complaint(error))


def _complaint(error: TyperException) -> str:
    """What is wrong with a command line. Typer says it in four lines, the usage among them."""
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    if context is None or parameter is None:
        words = error.format_message()
        hint = f" ({context.command_path} -h helps)" if context else ""
        return f"{words[0].lower()}{words[1:]}{hint}"
    return f"{_flag(parameter.name)} {_wish(error)}{_origin_of(context, parameter.name)}"


def _wish(error: TyperException) -> str:
    """What a value must be, and what it is."""
    from pydantic import ValidationError  # only now: the help should not wait for it

    cause = error.__cause__
    found = cause.errors()[0] if isinstance(cause, ValidationError) else None
    if found is None or found["type"] not in _MUST_BE:
        return f"is wrong: {error.message}"
    wish, given = _MUST_BE[found["type"]], str(found["input"])
    shown = repr(given) if found["type"].endswith("_parsing") else given
    return f"must be {wish.format(**found.get('ctx', {}))}, got {shown}"


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _origin_of(ctx: typer.Context, field: str) -> str:
    """Where a setting came from, in words, if that was the environment; else nothing."""
    source = ctx.get_parameter_source(field)
    if source is None or source.name != "ENVIRONMENT":
        return ""
    return f" (from {PREFIX}{field.upper()})"


def _variable(parameter: Any) -> str | None:
    variable = getattr(parameter, "envvar", None)
    return variable if isinstance(variable, str) else None
