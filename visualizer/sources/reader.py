"""What a reader of foreign logs consists of.

A `Reader` says what it reads and recognizes it; its `Translator` turns one file or feed into events,
line by line. So one class serves a file, a file that grows, and a live feed. Limits: `limits.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.events import Event, LogError
from engine.events.cluster import AnyClusterEvent
from engine.events.facts import Fact, Knowledge

LogEvent = Event | AnyClusterEvent


class SourceError(LogError):
    """A file or feed cannot be read. One line: what is wrong, in which line, and what was expected."""


class Translator(Protocol):
    """Translates one file or feed, and keeps its state.

    Raises LogError for a damaged line, without the line's number: `unpack.Feed` adds it. What it has
    returned before stays valid.
    """

    def feed(self, message: bytes) -> Sequence[LogEvent]:
        """Return the events of one line of a file, without its line break, or of one message."""

    def end(self) -> Sequence[LogEvent]:
        """Return the events that are left when the source has ended."""


@dataclass(frozen=True)
class Reader:
    """Reads one kind of source.

    name        identifies it in messages and in the table of the documentation: "vllm-recorder"
    title       says what it reads: "vLLM, recorded with underglass-vllm"
    facts       how its logs know each fact; a fact that is missing here is unknown
    recognizes  tells from a file's first line, unpacked and at most 64 KiB of it, whether it is one
    translator  makes a translator for one file or feed
    """

    name: str
    title: str
    facts: Mapping[Fact, Knowledge]
    recognizes: Callable[[bytes], bool]
    translator: Callable[[], Translator]
