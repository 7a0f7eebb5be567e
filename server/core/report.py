"""What the engine thread hands over to the event loop."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from engine.events.vocabulary import Event
from server.core.request_stream import OutputDelta, Prompt, RequestStream


@dataclass(slots=True)
class Report:
    """Everything that happened since the last one.

    events    what the engine wrote to its log
    queued    (request, its prompts, the engine's id of each prompt's first sample)
    gains     what the choices of live requests gained, or how they ended
    cached    (request, index of the prompt, tokens found in the prefix cache)
    replies   (who asked, the answer or an exception)
    paused    whether the engine is held
    urgent    somebody waits for it: a reply, a first token or an end
    """

    events: list[Event] = field(default_factory=list)
    queued: list[tuple[RequestStream, list[Prompt], list[int]]] = field(default_factory=list)
    gains: list[tuple[RequestStream, OutputDelta]] = field(default_factory=list)
    cached: list[tuple[RequestStream, int, int]] = field(default_factory=list)
    replies: list[tuple[asyncio.Future[Any], Any]] = field(default_factory=list)
    paused: bool = False
    urgent: bool = False
