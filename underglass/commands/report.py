"""`underglass report`: one page about a run for a ticket."""

from pathlib import Path
from typing import Annotated

import typer

from underglass.commands.options import KINDS, fail, progress
from underglass.commands.read_log import read_named


def report(
    file: Annotated[str, typer.Argument(metavar="FILE", help=KINDS)],
    html: Annotated[
        Path | None, typer.Option(help="Write a page to this file.", show_default="report.html")
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(help="Write Markdown to this file, and its pictures beside it."),
    ] = None,
    replays: Annotated[
        bool,
        typer.Option("--replays/--no-replays", help="Replay the run with other settings."),
    ] = True,
) -> None:
    """Write one page about a run: what limited it, since when, the ten slowest requests and why, and
    what would have helped.

    Prompts and outputs are not in it; the labels of requests are.
    """
    from visualizer.report import parts_of
    from visualizer.report import report as report_of
    from visualizer.report.blocks import as_html, write_markdown

    log = read_named(file, whole=True)
    with progress(parts_of(log, replays=replays), "reporting", "part") as on_part:
        blocks = report_of(log, Path(file).name, replays=replays, on_part=on_part)
    try:
        if markdown is not None:
            for path in write_markdown(blocks, markdown):
                typer.echo(path)
        if html is not None or markdown is None:
            page = html or Path("report.html")
            page.write_text(as_html(blocks), encoding="utf-8")
            typer.echo(page)
    except OSError as error:
        fail(f"cannot write {error.filename}: {error.strerror}")
