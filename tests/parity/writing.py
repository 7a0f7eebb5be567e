"""Write recordings; `parity.records` describes the format and reads it."""

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from parity.records import Recording, Step


def write(path: Path, header: dict[str, Any], recordings: Iterable[Recording]) -> None:
    """Write a recording. Equal recordings give equal bytes."""
    lines = [header]
    for workload, steps in recordings:
        fields = msgspec.to_builtins(workload)
        for ask in fields["requests"]:
            ask["prompt"], ask["output"] = _pack_ids(ask["prompt"]), _pack_ids(ask["output"])
        lines.append({"workload": fields, "steps": _pack_steps(steps)})
    write_lines(path, lines)


def write_lines(path: Path, lines: Iterable[Any]) -> None:
    """Write compressed JSON Lines, without a time stamp or a file name in them."""
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def read_header(path: Path) -> dict[str, Any]:
    """Return the first line of a recording."""
    with gzip.open(path, "rt") as file:
        return dict(json.loads(next(file)))


def _pack_ids(ids: list[int]) -> str | list[int]:
    return bytes(ids).decode() if all(33 <= one <= 126 for one in ids) else ids


def _pack_steps(steps: list[Step]) -> list[list[Any]]:
    packed: list[list[Any]] = []
    ends: dict[int, int] = {}  # request -> end of its last row
    lengths: dict[int, int] = {}  # request -> blocks in its table
    before: list[int] = []
    for step in steps:
        for request in step.preempted:
            lengths.pop(request, None)
        rows: Any = [
            [row.request, row.num_tokens] + [row.start] * (ends.get(row.request) != row.start)
            for row in step.rows
        ]
        requests = [row.request for row in step.rows]
        if requests and rows == [[request, 1] for request in before]:
            rows = 0
        blocks = [step.tables[row][lengths.get(row, 0) :] for row in requests]
        fields = [rows, step.free, blocks if any(blocks) else [], step.finished, step.preempted]
        while fields[-1] == []:
            fields.pop()
        packed.append(fields)
        before = requests
        ends |= {row.request: row.start + row.num_tokens for row in step.rows}
        lengths |= {row: len(step.tables[row]) for row in requests}
    return packed
