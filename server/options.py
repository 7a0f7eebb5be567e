"""Options of the console command that are environment variables, too, and a help that reads well.

`--token-budget` is `UNDERGLASS_TOKEN_BUDGET`; the command line wins. A variable that no option knows is
most likely misspelt, and a server that starts without what was asked for is a surprise for later: it
is refused by name.
"""

import os
import re
from difflib import get_close_matches
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand

PREFIX = "UNDERGLASS_"
# An option list that is no wider leaves the meaning on the same line, in 80 columns.
_WIDEST = 26
_KIND = re.compile(r"<(int|float|str|path|list)\b.*>")
_VARIABLE = re.compile(r"env var: \w+(?:; )?")
_KINDS = {"int": "N", "float": "X", "str": "TEXT", "path": "PATH", "list": "TEXT"}


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


def check_environment(ctx: typer.Context) -> str | None:
    """What is wrong with the environment: a variable that looks like an option's, and is none's."""
    known = [variable for one in ctx.command.params if (variable := _variable(one))]
    for name in os.environ:
        if name.startswith(PREFIX) and name not in known:
            meant = get_close_matches(name, known, n=1, cutoff=0.75)
            if meant:
                return f"there is no environment variable {name}; did you mean {meant[0]}?"
    return None


def origin_of(ctx: typer.Context, field: str) -> str:
    """Where a setting came from, in words, if that was the environment; else nothing."""
    source = ctx.get_parameter_source(field)
    if source is None or source.name != "ENVIRONMENT":
        return ""
    return f" (from {PREFIX}{field.upper()})"


def fail(message: str) -> NoReturn:
    """One line that says what is wrong; exit code 2, as for a wrong option."""
    typer.echo(f"underglass: {message}", err=True)
    raise typer.Exit(2)


def _variable(parameter: Any) -> str | None:
    variable = getattr(parameter, "envvar", None)
    return variable if isinstance(variable, str) else None
