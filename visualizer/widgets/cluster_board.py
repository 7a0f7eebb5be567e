"""A cluster log as a notebook widget: router, replicas and decisions on one clock."""

import base64
from typing import Any

import traitlets

from engine.cluster.cluster_log import ClusterLog
from engine.core.log import EventLog
from visualizer import read
from visualizer.front_end import part_of_board
from visualizer.html import CLUSTER_MODULE
from visualizer.logs import LEVELS, ClusterLogLike, Select, check_level, read_any
from visualizer.packed import cluster_options, pack, with_more
from visualizer.reading.messages import count
from visualizer.widgets.log_model import SAVED_BYTES
from visualizer.widgets.picture import PictureWidget
from visualizer.widgets.seat_process import SeatProcess

_UNSET = -1  # on the wire: no cursor yet
_AUTO = -2  # on the wire: the request with the most to see


def _wire(request: int | None) -> int:
    return -1 if request is None else request


class ClusterBoard(PictureWidget):
    """A cluster log with a cursor in time and one selected request.

    at_ms      the cursor: milliseconds since the gateway started
    selected   the number of the selected request in the cluster, or None
    level      how much it shows: "lanes", "memory" or "all"
    replicas   the log of each replica, by id: `show(board.replicas["0"])`

    A notebook saves the log with the board only if the packed log has at most 1.3 MB.
    """

    _esm = CLUSTER_MODULE
    log = traitlets.Unicode().tag(sync=True)
    at = traitlets.Int(_UNSET).tag(sync=True)  # us
    request = traitlets.Int(_AUTO).tag(sync=True)  # -1: none
    level = traitlets.Enum(LEVELS, default_value="all").tag(sync=True)
    run = traitlets.Dict().tag(sync=True)  # what limited it

    def __init__(
        self,
        log: ClusterLogLike,
        *,
        at_ms: float | None = None,
        select: Select = "auto",
        level: str = "all",
    ) -> None:
        cluster = read_any(log)
        if not isinstance(cluster, ClusterLog):
            raise TypeError(
                f"log must be a cluster log or a path to one, got {type(cluster).__name__}"
            )
        options = cluster_options(cluster, at_ms, select)
        self.events = cluster
        self._packed = pack(cluster)
        is_small = len(self._packed) <= SAVED_BYTES
        super().__init__(
            log=base64.b64encode(self._packed).decode() if is_small else "",
            at=options.get("at", _UNSET),
            run=options["run"],
            level=check_level(level),
            request=_AUTO if select == "auto" else _wire(options["selected"]),
        )
        self._seat: SeatProcess | None = None
        self.on_msg(self._answer)

    @property
    def replicas(self) -> dict[str, EventLog]:
        """The log of each replica, by id."""
        return self.events.replicas

    @property
    def at_ms(self) -> float | None:
        """The cursor in milliseconds; None until a browser has drawn the board."""
        return None if self.at == _UNSET else self.at / 1000

    @at_ms.setter
    def at_ms(self, at_ms: float) -> None:
        self.at = round(1000 * at_ms)

    @property
    def selected(self) -> int | None:
        """The number of the selected request, or None."""
        return None if self.request < 0 else self.request

    @selected.setter
    def selected(self, request: int | None) -> None:
        options = cluster_options(self.events, None, request)
        self.request = _wire(options["selected"])

    def __repr__(self) -> str:
        log = self.events
        requests = len({row.request for row in read(log).decision_rows})
        return f"ClusterBoard({count(len(log.replicas), 'replica')}, {count(requests, 'request')})"

    def _answer(self, _: Any, message: Any, __: Any) -> None:
        """Send the front end what it asks for: a log that is too large to be saved, or the tour."""
        asked = message.get("ask") if isinstance(message, dict) else None
        if asked == "log":
            self.send({"log": True}, [self._packed])
        elif asked == "more":
            self.run = with_more(self.run, self.events)
        elif asked == "tour":
            self.send({"tour": True}, [read(self.events).tour.to_json()])
        elif asked == "seat.js":
            self.send({asked: True}, [part_of_board(asked)])
        elif asked == "seat":
            self._seat = self._seat or SeatProcess(self.events)
            self._seat.answer(self, message)
        elif asked == "stop" and self._seat is not None:
            self._seat.stop(message["id"])
