"""The two parts of a log's reader: `Reader` and `Translator`.

A `Reader` describes and recognizes one kind of source. Its `Translator` turns one file or feed into
events, line by line, so the same class serves a file, a file that grows, and a live feed. The limits
on what a source may contain are in `limits.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine.cluster.events import AnyClusterEvent
from engine.core.log import Event, LogError, State
from engine.core.log.vocabulary import SCHEMA_VERSION, RunStarted
from engine.simulation.facts import Fact, Knowledge

LogEvent = Event | AnyClusterEvent


class SourceError(LogError):
    """A file or feed cannot be read. The one-line message names the line, the fault and the fix."""


class Translator(Protocol):
    """Translates one file or feed, and keeps its state.

    Raises LogError for a damaged line, without the line's number, which `feed.Feed` adds. The events
    that it returned earlier stay valid.

    state  of what folds each event before the next line is translated; None: nothing does
    """

    state: State | None = None

    def feed(self, message: bytes) -> Sequence[LogEvent]:
        """Return the events of one line of a file, without its line break, or of one message."""

    def skip(self, why: str, line: bytes) -> Sequence[LogEvent] | None:
        """Go on without a damaged line, which `feed` was given last: return events that say so.

        `why` names the line, or says where the file was cut off; then `line` is empty. The default is
        None: the source cannot be read any further.
        """
        return None

    def end(self) -> Sequence[LogEvent]:
        """Return the events that are left when the source has ended: none, if no line is held back."""
        return ()


@dataclass(frozen=True)
class Reader:
    """Reads one kind of source.

    name        identifies it in messages and in the table of the documentation: "vllm-recorder"
    title       says what it reads: "vLLM, recorded with underglass-vllm"
    facts       whether its logs record or infer each fact; a fact that is missing here is unknown
    recognizes  returns whether a file is of this kind, given at most 64 KiB of its unpacked first line
    translator  makes a translator for one file or feed
    """

    name: str
    title: str
    facts: Mapping[Fact, Knowledge]
    recognizes: Callable[[bytes], bool]
    translator: Callable[[], Translator]


def foreign_start(
    engine: str,
    recorder: str,
    facts: Mapping[Fact, Knowledge],
    settings: dict[str, Any],
    unix_us: int,
    *,
    model: str = "",
) -> RunStarted:
    """Return the event with which the log of another engine begins; `unix_us` is its time zero."""
    return RunStarted(
        schema=SCHEMA_VERSION,
        settings=settings,
        classes={},
        model={"name": model} if model else {},
        tokenizer={},
        clock="wall",
        source={"engine": engine, "recorder": recorder, "facts": dict(facts)},
        t={"unix_us": unix_us},
    )
