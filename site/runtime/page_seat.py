"""The scheduler's seat in a page's log, in Pyodide."""

import json
from pathlib import Path

from engine.core.log import EventLog, LogError
from page_cells import send
from visualizer.seat.answers import answers
from visualizer.seat.seat import Seat
from visualizer.sources import read_source


class Asked:
    """The log that the page asked about last, and its seat."""

    def __init__(self) -> None:
        self._packed = b""
        self._seat: Seat | None = None

    def answer(self, path: str, question: str) -> None:
        """Send the page the answers to a question, given as JSON, about the log in a file."""
        packed = Path(path).read_bytes()
        Path(path).unlink()
        if self._seat is None or packed != self._packed:
            log = read_source(packed)
            if not isinstance(log, EventLog):
                raise LogError("this is the log of a cluster: open the log of one replica")
            self._seat, self._packed = Seat(log), packed
        for one in answers(self._seat, json.loads(question)):
            send({"kind": "seat", "answer": one})


asked = Asked()
