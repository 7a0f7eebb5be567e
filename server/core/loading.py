"""Start an engine for a server: open its logs, load the model.

Runs in the engine's process; with `--one-process`, that is the server's.
"""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from engine.core.config import EngineConfig
from engine.core.engine import Engine
from engine.core.tokenizer import Tokenizer
from engine.extensions.adapters import AdapterError
from engine.extensions.prompt_lookup import PromptLookup
from engine.models.text.hf_tokenizer import HFTokenizer
from server.core.adapters import lora_module
from server.core.engine_client import InProcessClient, StartError
from server.core.engine_process import Ready
from server.core.event_log import Outbox, Recording, TraceFile
from server.core.settings import Start

if TYPE_CHECKING:
    from server.core.kv_publisher import KVPublisher


def load(start: Start, config: EngineConfig, *, texts: bool, run: int = 1) -> InProcessClient:
    """Return an engine for a model, with its logs open. The cheap parts come first.

    start  the model to load; if it is to be trained first, the directory in which to train it
    texts  whether the event log keeps names and texts
    run    1, or the number of the run after restarts: run 2 writes to the second trace file

    Raises StartError, ConfigError and MemoryError, and CheckpointError or TokenizerError for the model.
    """
    trace = _trace_file(start.trace_file, run)
    recording = Recording(trace, _kv_publisher(start.kv_events, start.kv_events_topic))
    if start.train:
        nanogpt = importlib.import_module("engine.training.nanogpt")  # imports torch: takes seconds
        nanogpt.train_nanogpt(Path(start.model), steps=start.train_steps or nanogpt.STEPS)
    outbox = Outbox(texts=texts)
    engine = Engine.load(
        start.model,
        config,
        dtype=start.dtype,
        device=start.device,
        log=outbox,
        draft_model=start.draft_model,
        draft_length=start.draft_length,
        drafter=PromptLookup(start.draft_length) if start.drafter else None,
    )
    for text in start.lora_modules:
        name, path = lora_module(text)
        try:
            engine.adapters.add(name, path)
        except AdapterError as error:
            raise StartError(f"--lora-modules {text}: {error}") from error
    if start.paused:
        engine.pause()
    return InProcessClient(engine, outbox, recording)


def load_with(start: dict[str, Any], config: dict[str, Any], **more: Any) -> InProcessClient:
    """Do what `load` does, with structs as dicts; called in the engine's process."""
    started = msgspec.convert(start, Start, dec_hook=lambda _kind, path: Path(path))
    return load(started, EngineConfig(**config), **more)


def tokenizer_of(ready: Ready) -> Tokenizer:
    """Read the tokenizer of an engine in another process. Raises TokenizerError."""
    assert ready.tokenizer is not None
    path, name = Path(ready.tokenizer[0]), ready.tokenizer[1]
    if path.is_file():
        from engine.models.text.gguf_tokenizer import GGUFTokenizer

        return GGUFTokenizer(path)
    return HFTokenizer(path, name)


def _trace_file(path: Path | None, run: int) -> TraceFile | None:
    try:
        return TraceFile(path, run) if path else None
    except OSError as error:
        raise StartError(f"--trace-file {path} cannot be written: {error.strerror}") from error


def _kv_publisher(address: str | None, topic: str) -> "KVPublisher | None":
    if address is None:
        return None
    from server.core.kv_publisher import KVPublisher

    try:
        return KVPublisher(address, topic)
    except OSError as error:
        raise StartError(
            f"--kv-events {address}: cannot listen there or on the next port: {error.strerror}; choose "
            "another address or port"
        ) from error
