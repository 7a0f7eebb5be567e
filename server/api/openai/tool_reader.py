"""The common part of all tool parsers, which turn pieces of text into content and calls.

A parser is a generator that reads `buffer` from the front. It yields content (a `str`), `CallStart` and
`CallArguments`, and None when it needs more text. The code of a format therefore reads like the
format's grammar, and the result does not depend on how the text is cut into pieces.

A call is announced as soon as its name and the beginning of its arguments are known. The arguments are
the model's own text, even if it is not valid JSON, as in OpenAI's API. Text that only looks like the
beginning of a call becomes content.

Differs from vLLM (`vllm/tool_parsers/`), where each format parses a whole output and a stream with
separate code, so that the results may disagree. Here, a whole output is a stream of one piece. Text
between calls and after them is content, whereas vLLM drops it. Arguments keep the model's spacing,
whereas vLLM often serializes them again.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Generator
from dataclasses import dataclass

from engine.core.tokenizer import checked


@dataclass(frozen=True, slots=True)
class CallStart:
    """The beginning of a call of the function `name`."""

    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The next piece of the last call's arguments."""

    text: str


Event = str | CallStart | CallArguments

SPACE = " \t\r\n"

# A call whose head is longer than this many characters is parsed only when it is complete.
_MAX_HEAD = 1024
_HEAD = re.compile(
    r'\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)+")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)'
)


class ToolParser(ABC):
    """Reads one output.

    begin    text before a call
    end      text after a call; it also ends a call whose brackets are not balanced; may be empty
    buffer   text that has not been read yet
    ended    whether the buffer holds the rest of the output, so that no more text comes
    called   whether a call has been announced
    """

    begin = ""
    end = ""

    def __init__(self) -> None:
        self.buffer = ""
        self.ended = False
        self.called = False
        self._events = self.parse()

    def feed(self, text: str) -> list[Event]:
        """Read a piece of the output; return the events that are now certain."""
        self.buffer += text
        return self._run()

    def finish(self) -> list[Event]:
        """Return the events of the remaining text, because no more text comes."""
        self.ended = True
        return self._run()

    def _run(self) -> list[Event]:
        events: list[Event] = []
        for event in self._events:
            if event is None:
                break
            if event != "":
                self.called = self.called or not isinstance(event, str)
                events.append(event)
        return events

    @abstractmethod
    def parse(self) -> Generator[Event | None, None, None]:
        """Yield the output's events, and None to wait for more text."""

    def take(self, length: int) -> str:
        """Remove this many characters from the front of the buffer and return them."""
        front, self.buffer = self.buffer[:length], self.buffer[length:]
        return front

    def skip(self, characters: str = SPACE) -> Generator[None, None, str]:
        """Skip these characters until a different one follows or the output ends; return them."""
        skipped = ""
        while True:
            skipped += self.take(len(self.buffer) - len(self.buffer.lstrip(characters)))
            if self.buffer or self.ended:
                return skipped
            yield None

    def skip_text(self, text: str) -> Generator[None, None, None]:
        """Skip this text if it comes next."""
        while len(self.buffer) < len(text) and text.startswith(self.buffer) and not self.ended:
            yield None
        self.buffer = self.buffer.removeprefix(text)

    def content(self) -> Generator[str | None, None, str | None]:
        """Yield the content up to `begin`, and skip `begin` and the white space before it.

        Returns the skipped text, or None at the end of the output. White space at the end of the text
        is held back until more text arrives, because `begin` may follow it.
        """
        while True:
            text, begin, _ = self.buffer.partition(self.begin)
            if begin:
                content = text.rstrip(SPACE)
                yield self.take(len(content))
                return self.take(len(text) - len(content) + len(begin))
            if self.ended:
                rest = self.take(len(text))
                yield rest if rest.strip(SPACE) or not self.called else ""
                return None
            length = len(text) - partial_overlap(text, self.begin)
            yield self.take(len(text[:length].rstrip(SPACE)))
            yield None

    def calls(self, separators: str) -> Generator[Event | None, None, bool]:
        """Read one or more calls; return False, with the buffer unchanged, if none comes next."""
        if not (yield from self.call()):
            return False
        while True:
            separator = yield from self.skip(separators)
            if not (yield from self.call()):
                self.buffer = separator + self.buffer
                return True

    def call_list(self) -> Generator[Event | None, None, bool]:
        """Read a JSON list of calls; return False, with the buffer unchanged, if none comes next."""
        if not self.buffer.startswith("["):
            return False
        opening = self.take(1) + (yield from self.skip())
        if not (yield from self.calls(SPACE + ",")):
            self.buffer = opening + self.buffer
            return False
        yield from self.skip()
        yield from self.skip_text("]")
        return True

    def call(self) -> Generator[Event | None, None, bool]:
        """Read `{"name": ..., "arguments": ...}`, where `arguments` may be called `parameters`.

        Returns False, with the buffer unchanged, if no such call comes next.
        """
        whole, at, complete = _JsonEnd(self.end), 0, False
        while not (head := _HEAD.match(self.buffer[:_MAX_HEAD])):
            if self.buffer and self.buffer[0] != "{":
                return False
            if not complete:
                at, complete = whole.find(self.buffer, at)
            if complete:
                return (yield from self._whole_call(at))
            if self.ended:
                return False
            yield None
        try:
            name = checked(json.loads(head[1]))
        except ValueError:
            return False
        yield CallStart(name)
        self.take(head.end())
        yield from self.arguments()
        rest = _JsonEnd(self.end, depth=1)  # other members of the call, and its closing brace
        while True:
            at, complete = rest.find(self.buffer)
            self.take(at)
            if complete or self.ended:
                return True
            yield None

    def _whole_call(self, length: int) -> Generator[Event, None, bool]:
        """Read a call in another form: other members, or the arguments before the name."""
        try:
            call = json.loads(self.buffer[:length])
            name, arguments = call["name"], call.get("arguments", call.get("parameters"))
            if not isinstance(arguments, str):
                arguments = json.dumps(arguments, ensure_ascii=False)
            events: list[Event] = [CallStart(checked(name)), CallArguments(checked(arguments))]
        except (ValueError, KeyError, AttributeError, RecursionError):
            return False
        if not name or arguments == "null":
            return False
        self.take(length)
        yield from events
        return True

    def arguments(self) -> Generator[Event | None, None, None]:
        """Yield a JSON object as arguments."""
        value = _JsonEnd(self.end)
        while True:
            at, complete = value.find(self.buffer)
            if self.ended and not complete:
                at = len(self.buffer)
            if at:
                yield CallArguments(self.take(at))
            if complete or self.ended:
                return
            yield None


class _JsonEnd:
    """Finds the end of a JSON object or array that arrives in pieces.

    closing   text that ends the value even if its brackets are not balanced; may be empty
    depth     number of open brackets
    """

    def __init__(self, closing: str, depth: int = 0) -> None:
        self._closing = closing
        ends = f"|{re.escape(closing)}" if closing else ""
        self._marks = re.compile(rf'\\.?|["{{}}\[\]]{ends}', re.DOTALL)
        self._depth = depth
        self._in_string = False

    def find(self, text: str, start: int = 0) -> tuple[int, bool]:
        """Read `text` from `start`; return the end position, and whether the value ends there.

        The caller must not pass text before that position again. The last characters may be left for
        the next call.
        """
        limit = len(text) - partial_overlap(text, self._closing)
        for mark in self._marks.finditer(text, start):
            what = mark[0]
            if what == "\\":  # the escaped character has not arrived yet
                return mark.start(), False
            if what == '"':
                self._in_string = not self._in_string
            elif self._in_string or what[0] == "\\":
                continue
            elif what == self._closing:
                return mark.start(), True
            elif what in "{[":
                self._depth += 1
            else:
                self._depth -= 1
                if self._depth <= 0:
                    return mark.end(), True
        return max(start, limit), False


def partial_overlap(text: str, marker: str) -> int:
    """Return the length of the longest suffix of `text` that is a proper prefix of `marker`."""
    for length in range(min(len(marker) - 1, len(text)), 0, -1):
        if text.endswith(marker[:length]):
            return length
    return 0
