"""What pages ask about the scheduler's seat, and the answers as JSON values.

    {"seat": "decisions", "step": 20}                        the decisions, or why there are none
    {"seat": "take", "step": 20, "choice": {"type": "victim", "request": 1}}
    {"seat": "helped"}                                       one answer per change, and the best ones

Of a cluster's log, `replica` names the replica, or one of its runs as `ClusterLog.parts` does. It is
run again alone: its requests come when the router sent them. A gateway asks the replica itself.
A notebook's kernel, a page's Python and a server's worker process all answer with `answers`, an
iterator, so that a page can show progress. Bytes are packed logs.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from engine.cluster.cluster_log import ClusterLog
from engine.core.log import EventLog
from engine.simulation.choice import Choice, ChoiceError
from visualizer.comparing.compared_runs import ComparedRuns
from visualizer.packed import pack
from visualizer.seat.seat import Seat

NAMES = ("the run", "yours")  # in the picture of both
_ALONE = "This replica is run again alone: its requests come when the router sent them."


def answers(seat: Seat, asked: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the answers to a question, the last of them with `done`. An `error` says what is wrong."""
    try:
        match asked.get("seat"):
            case "decisions":
                yield _decisions(seat, int(asked["step"])) | {"done": True}
            case "take":
                choice: Choice = msgspec.convert(asked["choice"], Choice)
                yield _taken(seat, int(asked["step"]), choice) | {"done": True}
            case "helped":
                yield from _helped(seat)
            case other:
                yield {
                    "error": f"seat must be decisions, take or helped, got {other!r}",
                    "done": True,
                }
    except (ChoiceError, KeyError, TypeError, ValueError) as error:
        said = f"the question lacks {error}" if isinstance(error, KeyError) else str(error)
        yield {"error": said, "done": True}


class Seats:
    """The seat of an engine's log, or those of a cluster's replicas."""

    def __init__(self, log: EventLog | ClusterLog) -> None:
        self.log = log
        self._seats: dict[str, Seat] = {}

    def json_lines(self, asked: Mapping[str, Any]) -> Iterator[bytes]:
        """Yield the answers to a question as lines of JSON, with bytes in base64."""
        replica = str(asked.get("replica", ""))
        logs = {replica: self.log} if isinstance(self.log, EventLog) else self.log.replicas
        if isinstance(self.log, ClusterLog):
            logs = {part.name: part.log for part in self.log.parts} | logs
        if replica not in logs:
            names = ", ".join(logs) or "none"
            yield _line({"error": f"replica must be one of {names}, got {replica!r}", "done": True})
            return
        if replica not in self._seats:
            self._seats[replica] = Seat(logs[replica])
        for answer in answers(self._seats[replica], asked):
            if replica and "note" in answer:
                answer["note"] = f"{_ALONE} {answer['note']}".strip()
            yield _line(answer)


def _line(answer: dict[str, Any]) -> bytes:
    return msgspec.json.encode(answer) + b"\n"


def _decisions(seat: Seat, step: int) -> dict[str, Any]:
    found = seat.decisions(step)
    config, rerun = seat.rerun.config, seat.rerun
    notes = list[str]()
    if rerun.error is not None:
        notes.append(
            f"Times are predicted by prices fitted to it (median error {rerun.error:.0%})."
        )
    if count := rerun.unfinished:
        notes.append(
            f"Of {count} requests the log does not have the end: they end with the next token."
            if count > 1
            else "Of one request the log does not have the end: it ends with the next token."
        )
    before, after = seat.around(step)
    return {
        "decisions": msgspec.to_builtins(found),
        "previous": before,
        "next": after,
        "settings": {
            "seats": config.max_batch_size,
            "budget": config.token_budget,
            "blocks": config.num_blocks,
        },
        "note": " ".join(notes),
    }


def _taken(seat: Seat, step: int, choice: Choice) -> dict[str, Any]:
    taken = seat.take(step, choice)
    facts = ComparedRuns(taken.happened, taken.log, NAMES).page_facts(with_tour=False)
    return {
        "consequence": msgspec.to_builtins(taken.consequence),
        "step": taken.step,
        "facts": facts,
        "a": pack(taken.happened),
        "b": pack(taken.log),
    }


def _helped(seat: Seat) -> Iterator[dict[str, Any]]:
    from visualizer.advice import SHORTER, Advised, advising

    number = 0
    for one in advising(seat.log, [SHORTER]):
        if isinstance(one, Advised):
            best = [{"words": each.line, "settings": each.changes} for each in one.advice]
            yield {"best": best, "said": one.summary, "done": True}
        else:
            number += 1
            yield {"tried": number, "words": one, "done": False}
