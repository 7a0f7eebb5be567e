"""The examples of docs/lmtp.md: what is sent there gets the answers that are printed there."""

import json
import re
from pathlib import Path
from typing import Any

from server.api.lmtp.interactive import PARAMETERS
from server.api.lmtp.messages import CALLS
from tests.server.lmtp.wire import Wire

DOCUMENT = (Path(__file__).parents[3] / "docs" / "lmtp.md").read_text()


def examples() -> list[str]:
    """The frames of all examples, with the side that sends each."""
    blocks = re.findall(r"```lmtp\n(.*?)```", DOCUMENT, re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def kind_of(value: Any) -> str:
    return "number" if isinstance(value, int | float) else type(value).__name__


# Fields that tell one item of a stream from another.
FIELDS = ("model_info", "status", "error", "token")
# Values that are not measured, and so must be as printed.
SAID = ("stream_id", "status", "code", "param", "retry", "finish_reason", "buffer", "error")


def shape(item: dict[str, Any]) -> dict[str, Any]:
    """An item with values that may differ from run to run replaced by their kind."""
    return {name: value if name in SAID else kind_of(value) for name, value in item.items()}


def test_every_example_is_answered_as_printed(url: str) -> None:
    assert sum(line.startswith("<") for line in examples()) > 10
    with Wire(url) as wire:
        for line in examples():
            if line.startswith("> "):
                wire.socket.send(line[2:])
                continue
            word, content = line[2:].split(" ", 1)
            for told in json.loads(content):
                field = next(name for name in FIELDS if name in told)
                item = wire.next(word, told["stream_id"], field)
                assert shape(item) == shape(told)
                if field == "model_info":
                    assert set(item[field]) == set(told[field])


def test_the_tables_name_every_command_and_field() -> None:
    rows = re.findall(r"^\| (`.*?) \|", DOCUMENT, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert set(CALLS) <= named
    assert PARAMETERS | {"prompt"} <= named
