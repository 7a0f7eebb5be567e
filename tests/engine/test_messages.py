"""The message catalogue: Python and the browser fill it alike.

`tests/snapshots/messages.txt` has every message with its numbers 0, 1 and 2, as Python fills it;
`visualizer/frontend/test/messages.test.js` compares its own texts with that file.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, get_args

from engine.core.log import vocabulary as v
from visualizer.reading.messages import MESSAGES, fill, text


def every_message(found: Any = MESSAGES) -> Iterator[str]:
    if isinstance(found, str):
        yield found
    else:
        for part in found.values():
            yield from every_message(part)


def test_every_message_is_filled_as_in_the_snapshot(snapshot: Callable[[str, str], None]) -> None:
    lines = []
    for message in every_message():
        names = re.findall(r"\{(\w+)", message)
        for number in range(3 if names else 1):
            values = dict.fromkeys(names, number) | {"who": "it"}
            case = {"message": message, "values": values, "text": text(message, **values)}
            lines.append(json.dumps(case))
    snapshot("messages", "\n".join(lines) + "\n")


def test_every_waiting_reason_has_its_words() -> None:
    assert set(MESSAGES["reasons"]) == set(get_args(v.WaitingReason))
    for words in MESSAGES["reasons"].values():
        assert {"short", "clause"} <= set(words) <= {"short", "clause", "numbers", "waited_for"}


def test_a_request_stays_an_id() -> None:
    assert fill("{who} needs {need}", who=7, need=2) == [7, " needs ", "2"]
    assert fill("for {who}", who="it") == ["for ", "it"]
