"""The routes of the pages on loopback: boards and comparisons of files, and boards of live sources."""

import html
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path
from string import Template
from typing import Any

from engine.cluster.cluster_log import ClusterLog
from engine.core.log import EventLog, LogError
from visualizer.front_end import MODULES, part_of_board
from visualizer.html import write_page
from visualizer.indexed.beside import index_of
from visualizer.indexed.indexed_log import Indexed, answer_of, log_of
from visualizer.live.growing import growing_index
from visualizer.live.live_log import LiveLog
from visualizer.live.local_server import Answer, Request, Route
from visualizer.live.ranges import ranges_of
from visualizer.packed import PackedLog, board_options, pack, told_later
from visualizer.sources import read_source
from visualizer.sources.limits import LAST, MAX_DROPPED, MAX_UNPACKED

_LIVE_PAGE = Template((Path(__file__).parent / "live.html").read_text("utf-8"))
_LIST = Template(
    """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Underglass: comparisons</title>
<link rel="icon" href="data:,">
<style>:root { color-scheme: light dark; font: 16px/1.6 sans-serif; }</style>
<h1>Comparisons</h1>
<ul>$links</ul>
</html>
"""
)
TRANSLATE, TOUR, INDEX, GROWING, DECIDE = "translate", "tour", "index", "growing", "seat"
_MOST_ASKED = 10_000  # bytes of a question


def board_routes(
    page: Callable[..., str], logs: Sequence[EventLog | ClusterLog]
) -> dict[str, Route]:
    """Return the routes of the page of one log or of a comparison.

    A page of one log also has the translation of files dropped onto it, and the scheduler's seat. One
    that reads its log from an index gets ranges of that file. `page` is told what it needs to know of
    these routes.
    """
    options: dict[str, str] = {}
    routes: dict[str, Route] = {f"POST {TRANSLATE}": _translate}
    if len(logs) == 1:
        options |= {"translate": TRANSLATE, "tour": TOUR}
        routes[f"GET {TOUR}"] = _telling(logs[0])
        if isinstance(indexed := logs[0], Indexed):
            options["from"] = INDEX
            routes[f"GET {INDEX}"] = ranges_of(indexed.index.path)
        options["decide"] = DECIDE
        routes[f"POST {DECIDE}"] = _deciding(lambda: logs[0])
        page_of_seat = part_of_board("seat.js")
        routes["GET seat.js"] = Answer(page_of_seat, "text/javascript; charset=utf-8")
    return routes | {"GET ": Answer(page(**options).encode())}


def indexed_routes(path: Path, theme: str | None, *, is_cluster: bool) -> dict[str, Route]:
    """Return the routes of a page that reads a log from its index, in ranges.

    If there is none yet, the page gets its chunks while it is written, and cannot decide yet.
    """
    served: list[dict[str, Route]] = []  # the routes once there is an index

    def indexed() -> dict[str, Route]:
        if not served and (index := index_of(path)) is not None:
            log = log_of(index)
            packed = PackedLog(b"", board_options(log), index.directory.cluster)
            page = partial(write_page, packed, None, theme=theme, title=path.name)
            served.append(board_routes(page, [log]))
        return served[0] if served else {}

    def unindexed(name: str, request: Request) -> Answer:
        route = indexed().get(name)
        if route is None and name == "GET ":
            packed = PackedLog(b"", {}, is_cluster)
            more = {"translate": TRANSLATE, "stream": GROWING}
            return Answer(write_page(packed, None, theme=theme, title=path.name, **more).encode())
        if route is None:
            return _refuse("the log is not indexed yet: wait until all of it is read")
        return route if isinstance(route, Answer) else route(request)

    def growing(_request: Request) -> Answer:
        return Answer(growing_index(path), "application/octet-stream")

    names = ("GET ", f"GET {INDEX}", f"GET {TOUR}", f"POST {DECIDE}", "GET seat.js")
    return {
        **{name: partial(unindexed, name) for name in names},
        f"POST {TRANSLATE}": _translate,
        f"GET {GROWING}": growing,
    }


def _telling(log: EventLog | ClusterLog) -> Route:
    def told() -> dict[str, Any]:
        more = told_later(log)
        return {"scenes": more.pop("tour"), **more}

    def answer(_request: Request) -> Answer:
        return Answer(json.dumps(answer_of(log, "tour", told)).encode(), "application/json")

    return answer


def _deciding(log_now: Callable[[], EventLog | ClusterLog]) -> Route:
    from visualizer.seat.answers import Seats

    seats: list[Seats] = []  # of the log that was asked about last

    def answer(request: Request) -> Answer:
        if request.length > _MOST_ASKED:
            return _refuse(f"a question has at most {_MOST_ASKED} bytes")
        try:
            asked = json.loads(request.read(request.length))
        except ValueError:
            asked = None
        if not isinstance(asked, dict):
            return _refuse("a question must be a JSON object")
        log = log_now()
        if not seats or seats[0].log is not log:
            seats[:] = [Seats(log)]
        return Answer(seats[0].json_lines(asked), "application/x-ndjson")

    return answer


def routes_of_several(pages: Mapping[str, str]) -> dict[str, Route]:
    """Return the routes of several finished pages, and of a page that links to them."""
    links = "".join(
        f'<li><a href="{number}">{html.escape(name)}</a>' for number, name in enumerate(pages)
    )
    routes: dict[str, Route] = {"GET ": Answer(_LIST.substitute(links=links).encode())}
    for number, page in enumerate(pages.values()):
        routes[f"GET {number}"] = Answer(page.encode())
    return routes


def live_routes(log: LiveLog, theme: str | None) -> dict[str, Route]:
    """Return the routes of a page that follows a source."""
    mode = f' data-theme="{theme}"' if theme else ""

    def page(_request: Request) -> Answer:
        kind = "cluster" if log.is_cluster else "engine"
        module = "cluster.js" if log.is_cluster else "live.js"
        shown = _LIVE_PAGE.substitute(
            title=html.escape(log.name), theme=mode, module=module, kind=kind
        )
        return Answer(shown.encode())

    def kind(_request: Request) -> Answer:
        return Answer(log.kind(), "text/plain")

    def events(request: Request) -> Answer:
        stream = log.stream(request.headers.get("Last-Event-ID", ""))
        return Answer(stream, "text/event-stream")

    def regimes(_request: Request) -> Answer:
        return Answer(json.dumps(log.regimes()).encode(), "application/json")

    def tour(_request: Request) -> Answer:
        return Answer(log.tour(), "application/json")

    return {
        "GET ": page,
        "GET events": events,
        "GET kind": kind,
        f"GET {TOUR}": tour,
        "GET regimes": regimes,
        f"POST {DECIDE}": _deciding(log.kept),
        **{f"GET {module.name}": _script(module) for module in MODULES.glob("*.js")},
    }


def _script(module: Path) -> Route:
    return lambda _request: Answer(module.read_bytes(), "text/javascript; charset=utf-8")


def _translate(request: Request) -> Answer:
    """Return the packed log of a dropped file, or one line that says why it cannot be read."""
    if request.length > MAX_DROPPED:
        return _refuse(
            f"it is larger than {MAX_DROPPED >> 20} MB: open it with `underglass open FILE`"
        )
    try:
        log = read_source(request.read(request.length), LAST, limit=MAX_UNPACKED)
    except LogError as error:
        return _refuse(str(error))
    if not isinstance(log, EventLog):
        return _refuse("it is the log of a cluster: open it with `underglass open FILE`")
    return Answer(pack(log), "application/gzip")


def _refuse(why: str) -> Answer:
    return Answer(why.encode(), "text/plain; charset=utf-8", HTTPStatus.UNPROCESSABLE_ENTITY)
