"""Answer what a notebook's page asks about the scheduler's seat, in a process of its own.

Running a log again takes up to half a minute. Meanwhile the kernel runs other cells, and a page that no
longer asks ends the process. Otherwise it stays for the next question, because it has read the log.
"""

import base64
import json
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from tempfile import TemporaryDirectory
from typing import Any

import ipywidgets

from engine.cluster.cluster_log import ClusterLog
from engine.core.log import EventLog
from underglass import child


class SeatProcess:
    """The process that answers about one log, as it was when it was first asked about."""

    def __init__(self, log: EventLog | ClusterLog) -> None:
        self._folder = TemporaryDirectory(prefix="underglass-")
        self._path = Path(self._folder.name) / "log.jsonl"
        self._path.write_bytes(log.to_bytes())
        self._running: list[Popen[bytes]] = []
        self._turn = threading.Lock()  # of the question that is being answered
        self._asked: object = None  # its id
        self._stopped: set[object] = set()
        self.end = weakref.finalize(self, _kill, self._running)

    def answer(self, widget: ipywidgets.Widget, message: dict[str, Any]) -> None:
        """Send a widget's page the answers to a question, from a thread, with logs as buffers."""
        arguments = (widget, message["id"], message["question"])
        threading.Thread(target=self._answer, args=arguments, daemon=True).start()

    def stop(self, question: object) -> None:
        """Stop answering a question."""
        self._stopped.add(question)
        if self._asked == question:
            _kill(self._running)

    def _answer(self, widget: ipywidgets.Widget, name: object, question: dict[str, Any]) -> None:
        with self._turn:
            self._asked = name
            if name in self._stopped:
                return
            if not self._running or self._running[0].poll() is not None:
                command = child.python("visualizer.seat", self._path)
                started = Popen(
                    command, env=child.environment(), stdin=PIPE, stdout=PIPE, stderr=DEVNULL
                )
                self._running[:] = [started]
            process = self._running[0]
            assert process.stdin is not None and process.stdout is not None
            with suppress(OSError):  # it has ended: there is no answer to read, which is said below
                process.stdin.write(json.dumps(question).encode() + b"\n")
                process.stdin.flush()
            for line in process.stdout:
                answer = json.loads(line)
                logs = [base64.b64decode(answer.pop(side)) for side in ("a", "b") if side in answer]
                widget.send({"seat": name, "answer": answer}, logs)
                if answer["done"]:
                    return
            if name not in self._stopped:
                answer = {"error": "the log could not be run again", "done": True}
                widget.send({"seat": name, "answer": answer})


def _kill(running: list[Popen[bytes]]) -> None:
    for process in running:
        process.kill()
        process.wait()
