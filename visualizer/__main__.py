"""`python -m visualizer trace.jsonl`: opens a log from the shell, or turns it into something else."""

import gzip
import sys
import tempfile
import webbrowser
import zlib
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from engine.events import EventLog, LogError
from visualizer.html import to_html
from visualizer.logs import Steps, read_log
from visualizer.named_logs import UnknownScenarioError, find
from visualizer.summary import summary

GZIP_MAGIC = b"\x1f\x8b"
FRAMES = ("requests", "steps", "tokens")

app = typer.Typer(
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


ABOUT = """Look at an event log: as a board in the browser, a trace, tables, or a few lines.

Without --perfetto, --csv or --summary the board is written to a temporary page, whose path is \
printed. The paths of all files that were written are printed, one a line.
"""


@app.command(help=ABOUT)
def main(  # noqa: PLR0917 (one parameter per option, as typer has it)
    log: Annotated[
        str,
        typer.Argument(
            metavar="LOG",
            help="A saved log (.jsonl, .jsonl.gz), - for standard input, or a scenario's name.",
        ),
    ],
    html: Annotated[
        Path | None, typer.Option(help="Write the board to this file, as one page.")
    ] = None,
    perfetto: Annotated[
        Path | None,
        typer.Option(help="Write a trace for ui.perfetto.dev to this file (.json, .json.gz)."),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(help="Write requests.csv, steps.csv and tokens.csv to this folder."),
    ] = None,
    summarize: Annotated[
        bool, typer.Option("--summary", help="Print what happened, in a few lines.")
    ] = False,
    open_: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
    step: Annotated[
        int | None,
        typer.Option(
            help="Open the board at this step.",
            show_default="where something happens",
            rich_help_panel="The board",
        ),
    ] = None,
    select: Annotated[
        int | None,
        typer.Option(
            help="Select this request.",
            show_default="whom it happens to",
            rich_help_panel="The board",
        ),
    ] = None,
    theme: Annotated[
        str | None,
        typer.Option(
            help="light or dark.",
            show_default="as the reader's system",
            rich_help_panel="The board",
        ),
    ] = None,
) -> None:
    """Reads the log once and writes everything that was asked for."""
    events = _read(log)
    _check(events, step, select, theme)
    only_exports = html is None and not open_ and bool(perfetto or csv or summarize)
    try:
        if summarize:
            typer.echo(summary(events))
        if perfetto is not None:
            from visualizer.perfetto import to_perfetto

            typer.echo(to_perfetto(events, perfetto))
        if csv is not None:
            _write_csv(events, csv)
        if not only_exports:
            page = html or _temporary_page()
            if find(log) is not None:  # a scenario, which brings a caption
                to_html(log, page, step=step, select=select, theme=theme)
            else:
                title = "Underglass" if log == "-" else Path(log).name
                to_html(events, page, step=step, select=select, theme=theme, title=title)
            typer.echo(page)
            if open_:
                webbrowser.open(page.resolve().as_uri())
    except OSError as error:
        _fail(f"{error.filename}: cannot be written: {error.strerror}")


def _read(name: str) -> EventLog:
    """The log that is meant; leaves with a message where there is none."""
    try:
        if name == "-":
            data = sys.stdin.buffer.read()
        elif Path(name).is_file():
            data = Path(name).read_bytes()
        else:
            return read_log(name)
        if data.startswith(GZIP_MAGIC):
            data = gzip.decompress(data)
        return EventLog.from_bytes(data)
    except UnknownScenarioError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{name}: cannot be read: {error.strerror or error}")
    except (LogError, EOFError, zlib.error) as error:
        _fail(f"{'standard input' if name == '-' else name}: {error}")


def _check(events: EventLog, step: int | None, select: int | None, theme: str | None) -> None:
    if theme not in (None, "light", "dark"):
        _fail(f"--theme is light or dark, not {theme}")
    if step is not None:
        steps = Steps(events).ends
        if not steps:
            _fail("--step: the log has no step yet")
        if step not in steps:
            _fail(f"--step must lie in {min(steps)} to {max(steps)}, got {step}")
    if select is not None and select not in events.requests.index:
        _fail(f"--select: the log has no request {select}")


def _write_csv(events: EventLog, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in FRAMES:
        path = folder / f"{name}.csv"
        getattr(events, name).to_csv(path, index=name != "tokens")
        typer.echo(path)


def _temporary_page() -> Path:
    """A file that outlives this command: a browser may read it later."""
    return Path(tempfile.mkdtemp(prefix="underglass-")) / "board.html"


def _fail(message: str) -> NoReturn:
    """One line that says what is wrong; exit code 2, as for a wrong option."""
    typer.echo(f"visualizer: {message}", err=True)
    raise typer.Exit(2)


if __name__ == "__main__":
    app(prog_name="python -m visualizer")
