"""`underglass tell`: what happened in a log, in a few scenes, as text, a page, a GIF or a PDF."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import visualizer  # `read` is imported when it is first used
from underglass.commands.options import KINDS, Text, Theme, check_theme, export_option, fail
from underglass.commands.read_log import named_scenario, read_named

if TYPE_CHECKING:
    from engine.cluster.cluster_log import ClusterLog
    from engine.core.log.log import EventLog
    from visualizer.comparing.compared_clusters import ComparedClusters
    from visualizer.comparing.compared_runs import ComparedRuns
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
    exports = [path for path in (html, gif, pdf) if path is not None]
    for path, suffix in ((gif, ".gif"), (pdf, ".pdf")):
        if path is not None and path.suffix != suffix:
            fail(f"--{suffix[1:]} must end in {suffix}, got {path}")
    logs = [read_named(name, text=text, whole=True) for name in files]
    if exports:
        _check_fit(files, logs)
    names = [Path(name).name.removesuffix(".gz").removesuffix(".jsonl") for name in files]
    compared = _compared(logs, names) if len(logs) == 2 else None
    tour = visualizer.read(logs[0]).tour if compared is None else compared.tour
    if not exports:
        typer.echo(tour)
        return
    if not len(tour):
        fail(f"{files[0]}: {tour}")
    from visualizer.html import save_page  # imported late: needs the built front end
    from visualizer.pictures import tour_to_file

    try:
        with tempfile.TemporaryDirectory() as folder:
            page = html or Path(folder) / "tour.html"
            if compared is None:
                packed = _packed(files[0], logs[0], tour, text=text)
            else:
                packed = compared.packed()
            title = f"Underglass: {' and '.join(names)}"
            save_page(packed, page, theme=theme, title=title, telling=True)
            for path in exports:
                if path is not html:
                    tour_to_file(page, path)
                typer.echo(path)
    except OSError as error:
        fail(f"cannot write {error.filename}: {error.strerror}")
    except RuntimeError as error:
        fail(str(error))


def _check_fit(files: list[str], logs: "list[EventLog | ClusterLog]") -> None:
    """Exit with a message, before the tour is made, if a log is too long for a page."""
    from engine.core.log.log import LogError
    from visualizer.packed import check_fits

    for name, log in zip(files, logs, strict=True):
        try:
            check_fits(log)
        except LogError as error:
            fail(f"{name}: {error}")


def _packed(name: str, log: "EventLog | ClusterLog", tour: "Tour", *, text: bool) -> "PackedLog":
    """Return what a page needs of a log and of its tour."""
    from visualizer.packed import packed_log

    packed = packed_log(name if text and named_scenario(name) else log)
    packed.options["run"] |= {"tour": tour.as_dict()["scenes"], "more": False}
    return packed


def _compared(
    logs: "list[EventLog | ClusterLog]", names: list[str]
) -> "ComparedRuns | ComparedClusters":
    from engine.core.log.log import LogError
    from visualizer.comparing.compared_runs import compare_logs

    try:
        return compare_logs(logs[0], logs[1], (names[0], names[1]))
    except (TypeError, LogError) as error:
        fail(str(error))
