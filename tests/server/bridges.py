"""A bridge in the test's own event loop, what is asked of it, and what it answers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from engine.core.byte_tokenizer import ByteTokenizer
from engine.core.config import EngineConfig
from engine.core.engine import Engine
from engine.core.sampling_params import SamplingParams
from server.core.bridge import Bridge
from server.core.commands import Prompt
from server.core.engine_client import InProcessClient
from server.core.event_log import Outbox
from server.core.request_stream import GenerationRequest, RequestStream
from server.core.settings import ServerSettings
from tests.server.app_under_test import AlphabetRunner

TOKENIZER = ByteTokenizer()


def alphabet(runner: AlphabetRunner | None = None, **config: int) -> InProcessClient:
    outbox, runner = Outbox(), runner or AlphabetRunner(None)
    engine = Engine(runner, EngineConfig(**config), tokenizer=TOKENIZER, log=outbox)
    return InProcessClient(engine, outbox)


@asynccontextmanager
async def running(**settings: object) -> AsyncIterator[Bridge]:
    bridge = Bridge(alphabet(), ServerSettings(**settings))
    bridge.start()
    yield bridge
    await bridge.stop()


def order(*texts: str, max_tokens: int = 8, **fields: object) -> GenerationRequest:
    params = SamplingParams(max_tokens=max_tokens)
    prompts = [Prompt(TOKENIZER.encode(text), params) for text in texts]
    return GenerationRequest(lambda _bridge: prompts, **fields)


async def read(generation: RequestStream) -> dict[int, str]:
    texts: dict[int, str] = {}
    while not generation.finished:
        for gain in await generation.deltas(60):
            texts[gain.choice] = texts.get(gain.choice, "") + "".join(gain.texts)
    return texts
