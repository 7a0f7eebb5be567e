"""`underglass open`: show a log in the browser, or export it. Needs none of the server's packages."""

import sys
import webbrowser
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import typer

import visualizer  # `read` is imported when it is first used
from underglass.commands.options import (
    Browser,
    Host,
    Names,
    Port,
    Text,
    Theme,
    check_theme,
    export_option,
    fail,
    page_option,
    progress,
    refuse,
    tell,
)
from underglass.commands.read_log import index_to_follow, named_scenario, read_named, reader_of_long
from underglass.commands.serve_page import HOST, serve, serve_live

if TYPE_CHECKING:
    from engine.cluster.cluster_log import ClusterLog
    from engine.core.log import EventLog
    from visualizer.live.live_log import LiveSource
    from visualizer.live.local_server import Route
    from visualizer.logs import Select

T = TypeVar("T")


def open_logs(  # noqa: PLR0912, PLR0917 (typer needs one parameter per option)
    files: Names,
    follow: Annotated[
        bool, page_option("--follow", help="Follow a file, or standard input, while it grows.")
    ] = False,
    until_end: Annotated[
        bool, page_option("--until-end", help="With --follow: end when standard input ends.")
    ] = False,
    step: Annotated[
        int | None, page_option(help="Begin at this step.", show_default="the most telling one")
    ] = None,
    select: Annotated[
        str,
        page_option(
            metavar="ID|none|auto", help="Select the request with this id or label, or none."
        ),
    ] = "auto",
    theme: Theme = None,
    text: Text = True,
    last: Annotated[
        int | None,
        page_option(
            metavar="MB",
            help="Show only the end of the log.",
            min=1,
            show_default="all of it",
        ),
    ] = None,
    port: Port = 0,
    host: Host = HOST,
    browser: Browser = None,
    html: Annotated[Path | None, export_option(help="Write the page to this HTML file.")] = None,
    perfetto: Annotated[
        Path | None,
        export_option(help="Write a trace for ui.perfetto.dev to this file (.json or .json.gz)."),
    ] = None,
    csv: Annotated[
        Path | None,
        export_option(help="Write requests.csv, steps.csv and tokens.csv to this folder."),
    ] = None,
    summarize: Annotated[
        bool, export_option("--summary", help="Print a summary of the run.")
    ] = False,
) -> None:
    """Show a log in the browser, or compare the first of several logs with each of the others.

    The page is served on this machine only, until Ctrl-C. Its address is secret.
    """
    from engine.core.log import LogError

    check_theme(theme)
    exports = {"html": html, "perfetto": perfetto, "csv": csv, "summary": summarize}
    if follow:
        refuse(exports | {"step": step}, "must be omitted with --follow")
        if len(files) > 1:
            fail(f"--follow needs one file, got {' '.join(files)}")
        source, title = _growing(files[0])
        shown: dict[str, Any] = dict(theme=theme, text=text, port=port, browser=browser, host=host)
        serve_live(source, title, **shown, until_end=until_end)
        return
    if len(files) > 1:
        given = exports | {"html": html if len(files) > 2 else None, "step": step}
        refuse(given, f"must be omitted with {len(files)} files")
    # The page shows as much of a damaged log as it can read, but an export of it would be wrong.
    whole = bool(perfetto or csv or summarize or step or len(files) > 1)
    kept = None if last is None else 1_000_000 * last
    is_plain = last is None and step is None and select == "auto" and text
    if is_plain and not any(exports.values()) and len(files) == 1:
        reader = reader_of_long(files[0])
        if reader is not None:
            from visualizer.live.pages import indexed_routes
            from visualizer.sources.own_logs import CLUSTER_LOG

            is_cluster = reader is CLUSTER_LOG
            routes = indexed_routes(Path(files[0]), theme, is_cluster=is_cluster)
            serve(routes, port, browser, host)
            return
    logs = [read_named(name, kept, text=text, whole=whole) for name in files]
    try:
        if len(logs) > 1:
            pages = _comparisons(files, logs, theme)
        else:
            pages = {"": _board(files[0], logs[0], step, select, theme)}
            _write_exports(files[0], logs[0], perfetto=perfetto, csv=csv, summarize=summarize)
        if html is not None:
            for page in pages.values():
                page(html)
            typer.echo(html)
            if browser:
                webbrowser.open(html.resolve().as_uri())
    except (OSError, LogError) as error:
        if isinstance(error, LogError):
            fail(f"{files[0]}: {error}")
        fail(f"cannot write {error.filename}: {error.strerror}")
    if not any(exports.values()):
        serve(_routes(pages, logs), port, browser, host)


def _routes(
    pages: "dict[str, Callable[..., str]]", logs: "list[EventLog | ClusterLog]"
) -> "dict[str, Route]":
    from visualizer.live.pages import board_routes, routes_of_several

    if len(pages) > 1:
        return routes_of_several({names: page() for names, page in pages.items()})
    [page] = pages.values()
    return board_routes(page, logs)


def _board(
    name: str,
    log: "EventLog | ClusterLog",
    step: int | None,
    select: str,
    theme: str | None,
) -> "Callable[..., str]":
    """Return a function that writes the page of one log to a path, or returns it without one.

    Raises LogError for a log that a page cannot hold, unless it reads the log from an index.
    """
    from engine.core.log import EventLog

    if isinstance(log, EventLog):
        _check_step(log, step)
    else:
        refuse({"step": step}, f"must be omitted: {name} is the log of a cluster")
    selected = _selected(log, select)
    is_scenario = named_scenario(name) is not None  # the page of a scenario has a caption
    shown = name if is_scenario else log
    title = "Underglass" if is_scenario or name == "-" else Path(name).name

    def page(path: Path | None = None, **more: Any) -> str:
        from visualizer.html import save_page, write_page  # imported late: needs the front end
        from visualizer.packed import PackedLog, pack, page_options

        # A page with an index asks for what it needs of it.
        data = b"" if "from" in more else pack(log)
        asks = "tour" in more
        options = page_options(shown, log, step=step, select=selected, asks=asks)
        packed = PackedLog(data, options, not isinstance(log, EventLog))
        if path is None:
            return write_page(packed, None, theme=theme, title=title, **more)
        save_page(packed, path, theme=theme, title=title)
        return ""

    return page


def _comparisons(
    files: list[str], logs: "list[EventLog | ClusterLog]", theme: str | None
) -> "dict[str, Callable[..., str]]":
    """Return {names of two logs: a function that makes the page of their comparison}."""
    from engine.core.log import LogError
    from visualizer.comparing.compared_runs import compare_logs

    names = [Path(name).name.removesuffix(".gz").removesuffix(".jsonl") for name in files]
    if len(set(names)) < len(names):
        names = files
    pages: dict[str, Callable[..., str]] = {}
    for name, log in zip(names[1:], logs[1:], strict=True):
        try:
            comparison = compare_logs(logs[0], log, (names[0], name))
        except (TypeError, LogError) as error:
            fail(str(error))
        pages[f"{names[0]} and {name}"] = partial(comparison.to_html, theme=theme)
    return pages


def _write_exports(
    name: str,
    log: "EventLog | ClusterLog",
    *,
    perfetto: Path | None,
    csv: Path | None,
    summarize: bool,
) -> None:
    """Write the exports other than the page, and print their paths. Print the summary."""
    from engine.core.log import EventLog
    from visualizer.indexed.indexed_log import answer_of
    from visualizer.reading.rows import OutputTokenRow, RequestRow, StepRow
    from visualizer.reading.rows.decisions import DecisionRow
    from visualizer.reading.summary import summary

    if not isinstance(log, EventLog):
        refuse({"perfetto": perfetto}, f"must be omitted: {name} is the log of a cluster")
    if summarize:
        typer.echo(answer_of(log, "summary", lambda: summary(log)))
    if csv is not None:
        csv.mkdir(parents=True, exist_ok=True)
        table = partial(_write_table, csv)
    if not isinstance(log, EventLog):
        if csv is not None:
            table("decisions", DecisionRow, visualizer.read(log).decision_rows)
        return
    if perfetto is not None:
        from visualizer.perfetto import to_perfetto

        with progress(len(log), f"writing {perfetto.name}", " events") as on_event:
            to_perfetto(log, perfetto, on_event)
        typer.echo(perfetto)
    if csv is not None:
        table("requests", RequestRow, visualizer.read(log).each_request)
        table("steps", StepRow, visualizer.read(log).each_step)
        table("tokens", OutputTokenRow, visualizer.read(log).each_token)


def _write_table(
    folder: Path, name: str, kind: type[msgspec.Struct], rows: Iterable[msgspec.Struct]
) -> None:
    from visualizer.reading.frames import write_csv

    path = folder / f"{name}.csv"
    with progress(None, f"writing {path.name}", " rows") as on_row:
        write_csv(path, kind, _counted(rows, on_row))
    typer.echo(path)


def _counted(rows: Iterable[T], on_row: Callable[[T], object]) -> Iterator[T]:
    for row in rows:
        yield row
        on_row(row)


def _growing(name: str) -> "tuple[LiveSource, str]":
    """Return the source of a file that grows, or of standard input, and its title."""
    from visualizer.live.live_log import open_live
    from visualizer.sources import READERS
    from visualizer.sources.follow import FollowedInput

    if name == "-":
        return FollowedInput(sys.stdin.buffer, READERS), "standard input"
    path = Path(name)
    if path.is_dir():
        fail(f"--follow needs a file, and {path} is a directory")
    if not path.exists():
        tell(f"waiting for {path}, which does not exist yet")
    index_to_follow(path)
    return open_live(name), path.name


def _check_step(log: "EventLog", step: int | None) -> None:
    from visualizer.indexed.known import known_of

    if step is None:
        return
    steps = known_of(log).step_numbers
    if not steps:
        fail(f"--step must be omitted, got {step}: the log has no steps yet")
    if step not in steps:
        fail(f"--step must be between {steps[0]} and {steps[-1]}, got {step}")


def _selected(log: "EventLog | ClusterLog", select: str) -> "Select":
    if select in ("auto", "none"):
        return "auto" if select == "auto" else None
    from visualizer.reading.why.find import selected_request

    try:
        return selected_request(log, select)
    except ValueError as error:
        fail(f"--{error}".replace("None", "none", 1))
