"""Options that several commands have, and the functions that print their notes and errors."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Annotated, NoReturn

import typer

KINDS = (
    "A log of this engine, a cluster, vLLM or SGLang, which may be gzipped; - for standard input; "
    "or the name of a scenario."
)

page_option = partial(typer.Option, rich_help_panel="The page", show_envvar=False)
export_option = partial(typer.Option, rich_help_panel="Instead of a page")

Names = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE...",
        help=f"{KINDS} Several files are compared with the first.",
    ),
]
Port = Annotated[
    int, page_option(help="Serve the page on this port.", show_default="any free", min=0, max=65535)
]
Host = Annotated[
    str,
    page_option(
        help="Serve the page at this address of the machine; 0.0.0.0 for all. With another one than "
        "127.0.0.1, each machine that knows the page's secret address can open it."
    ),
]
Browser = Annotated[
    bool | None,
    page_option("--open/--no-browser", help="Open the page in the browser.", show_default="on"),
]
Theme = Annotated[
    str | None,
    page_option(help="Colours: light or dark.", show_default="the reader's system setting"),
]
Text = Annotated[
    bool, page_option("--text/--no-text", help="Show prompts, outputs, token ids and labels.")
]


def check_theme(theme: str | None) -> None:
    """Fail for an unknown theme."""
    if theme not in (None, "light", "dark"):
        fail(f"--theme must be light or dark, got {theme}")


def refuse(given: Mapping[str, object], why: str) -> None:
    """Fail if any of the options is given."""
    for name, value in given.items():
        if value is not None and value is not False:
            fail(f"--{name} {why}")


def tell(note: str) -> None:
    """Print a note to standard error, so that it does not mix with the output."""
    typer.echo(f"underglass: {note}", err=True)


def fail(message: str) -> NoReturn:
    """Print the message and exit with code 2, as typer does for an invalid option."""
    tell(message)
    raise typer.Exit(2)


@contextmanager
def progress(total: int | None, desc: str, unit: str) -> Iterator[Callable[[object], object]]:
    """Show a bar on a terminal, if there is tqdm; yield what is called after each of `total` parts.

    total  None: it is not known, and the bar only counts
    """
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        yield lambda _: None
        return
    with tqdm(total=total, desc=desc, unit=unit, delay=1, leave=False, disable=None) as bar:
        yield lambda _: bar.update()
