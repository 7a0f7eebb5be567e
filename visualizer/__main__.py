"""`python -m visualizer trace.jsonl`: show a log in the browser, or export it."""

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
from visualizer.logs import Select, StepIndex, read_log
from visualizer.named_logs import UnknownScenarioError, find_scenario
from visualizer.summary import summary

GZIP_MAGIC = b"\x1f\x8b"
FRAMES = ("requests", "steps", "tokens")

app = typer.Typer(
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


_BOARD = {"rich_help_panel": "The board"}

LogName = Annotated[
    str,
    typer.Argument(
        metavar="LOG",
        help="A saved log (.jsonl or .jsonl.gz), - for standard input, or the name of a scenario.",
    ),
]
Html = Annotated[Path | None, typer.Option(help="Write the board to this HTML file.")]
Perfetto = Annotated[
    Path | None,
    typer.Option(help="Write a trace for ui.perfetto.dev to this file (.json or .json.gz)."),
]
Csv = Annotated[
    Path | None, typer.Option(help="Write requests.csv, steps.csv and tokens.csv to this folder.")
]
Summarize = Annotated[bool, typer.Option("--summary", help="Print a summary of the run.")]
Open = Annotated[bool, typer.Option("--open", help="Open the page in the browser.")]
Step = Annotated[
    int | None,
    typer.Option(
        help="Open the board at this step.",
        show_default="the step with the most to see",
        **_BOARD,
    ),
]
SelectOption = Annotated[
    str,
    typer.Option(
        metavar="ID|none|auto",
        help="Select the request with this id, or none.",
        show_default="auto: the request that the step is about",
        **_BOARD,
    ),
]
Theme = Annotated[
    str | None,
    typer.Option(
        help="Colours of the page: light or dark.",
        show_default="the reader's system setting",
        **_BOARD,
    ),
]


@app.command()
def main(  # noqa: PLR0917 (typer needs one parameter per option)
    log: LogName,
    html: Html = None,
    perfetto: Perfetto = None,
    csv: Csv = None,
    summarize: Summarize = False,
    open_: Open = False,
    step: Step = None,
    select: SelectOption = "auto",
    theme: Theme = None,
) -> None:
    """Show an event log as a board in the browser, or export it as a trace, tables or a summary.

    Without --perfetto, --csv or --summary, the board is written to a temporary HTML file.

    The command prints the path of each file that it writes.
    """
    events = _read(log)
    _check(events, step, theme)
    selected = _selected(events, select)
    try:
        if summarize:
            typer.echo(summary(events))
        if perfetto is not None:
            from visualizer.perfetto import to_perfetto

            typer.echo(to_perfetto(events, perfetto))
        if csv is not None:
            csv.mkdir(parents=True, exist_ok=True)
            for name in FRAMES:
                getattr(events, name).to_csv(csv / f"{name}.csv", index=name != "tokens")
                typer.echo(csv / f"{name}.csv")
        if html is None and not open_ and (perfetto or csv or summarize):
            return
        # The page outlives this command, because the browser may read it later.
        page = html or Path(tempfile.mkdtemp(prefix="underglass-")) / "board.html"
        if find_scenario(log) is not None:  # the page of a scenario has a caption
            to_html(log, page, step=step, select=selected, theme=theme)
        else:
            title = "Underglass" if log == "-" else Path(log).name
            to_html(events, page, step=step, select=selected, theme=theme, title=title)
        typer.echo(page)
        if open_:
            webbrowser.open(page.resolve().as_uri())
    except OSError as error:
        _fail(f"cannot write {error.filename}: {error.strerror}")


def _read(name: str) -> EventLog:
    """Return the log, or exit with a message."""
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
        _fail(f"cannot read {name}: {error.strerror or error}")
    except (LogError, EOFError, zlib.error) as error:
        _fail(f"{'standard input' if name == '-' else name}: {error}")


def _check(events: EventLog, step: int | None, theme: str | None) -> None:
    if theme not in (None, "light", "dark"):
        _fail(f"--theme must be light or dark, got {theme}")
    if step is not None:
        steps = StepIndex(events).ends
        if not steps:
            _fail(f"--step must be omitted, got {step}: the log has no steps yet")
        if step not in steps:
            _fail(f"--step must be between {min(steps)} and {max(steps)}, got {step}")


def _selected(events: EventLog, select: str) -> Select:
    if select in ("auto", "none"):
        return "auto" if select == "auto" else None
    if not select.isdecimal() or int(select) not in {row.request for row in events.request_rows}:
        _fail(f"--select must be auto, none or the id of a request in the log, got {select}")
    return int(select)


def _fail(message: str) -> NoReturn:
    """Print the message and exit with code 2, as typer does for an invalid option."""
    typer.echo(f"visualizer: {message}", err=True)
    raise typer.Exit(2)


if __name__ == "__main__":
    app(prog_name="python -m visualizer")
