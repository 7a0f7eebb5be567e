"""`underglass tell`: what happened in a log, in a few scenes, as text, a page, a GIF or a PDF."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import visualizer  # `read` is imported when it is first used
from underglass.commands.options import KINDS, Text, Theme, check_theme, export_option, fail
from underglass.commands.read_log import named_scenario, read_named

if TYPE_CHECKING:
    from visualizer.packed import PackedLog
    from visualizer.reading.tour import Tour


def tell_me(  # noqa: PLR0917 (typer needs one parameter per option)
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help=f"{KINDS} Two files are compared.")
    ],
    theme: Theme = None,
    text: Text = True,
    html: Annotated[
        Path | None, export_option(help="Write a page that opens with the tour to this HTML file.")
    ] = None,
    gif: Annotated[Path | None, export_option(help="Write a GIF with a frame per scene.")] = None,
    pdf: Annotated[
        Path | None, export_option(help="Write a PDF with all scenes on a page.")
    ] = None,
) -> None:
    """Tell what happened in a log, or how two logs differ, in five to nine scenes.

    Prints the scenes as text. The GIF and the PDF are drawn by a Chromium without a window.
    """
    check_theme(theme)
    if len(files) > 2:
        fail(f"FILE must be given once or twice, got {len(files)} files")
    packed, tour, title = _told(files, text=text)
    exports = [path for path in (html, gif, pdf) if path is not None]
    if not exports:
        typer.echo(tour)
        return
    for path, suffix in ((gif, ".gif"), (pdf, ".pdf")):
        if path is not None and path.suffix != suffix:
            fail(f"--{suffix[1:]} must end in {suffix}, got {path}")
    if not len(tour):
        fail(f"{files[0]}: {tour}")
    from visualizer.html import write_page  # imported late: needs the built front end
    from visualizer.pictures import tour_to_file

    try:
        with tempfile.TemporaryDirectory() as folder:
            page = html or Path(folder) / "tour.html"
            write_page(packed, page, theme=theme, title=title, telling=True)
            for path in exports:
                if path is not html:
                    tour_to_file(page, path)
                typer.echo(path)
    except OSError as error:
        fail(f"cannot write {error.filename}: {error.strerror}")
    except RuntimeError as error:
        fail(str(error))


def _told(files: list[str], *, text: bool) -> "tuple[PackedLog, Tour, str]":
    """Return what a page needs of a log or of two, the tour, and the page's title."""
    from visualizer.packed import packed_log

    logs = [read_named(name, text=text, whole=True) for name in files]
    names = [Path(name).name.removesuffix(".gz").removesuffix(".jsonl") for name in files]
    if len(logs) == 1:
        tour = visualizer.read(logs[0]).tour
        packed = packed_log(files[0] if text and named_scenario(files[0]) else logs[0], text=text)
        packed.options["run"] |= {"tour": tour.as_dict()["scenes"], "more": False}
        return packed, tour, f"Underglass: {names[0]}"
    from visualizer.comparing.compared_runs import compare_logs

    try:
        compared = compare_logs(logs[0], logs[1], (names[0], names[1]))
    except TypeError as error:
        fail(str(error))
    return compared.packed(), compared.tour, f"Underglass: {names[0]} and {names[1]}"
