"""Start an engine for a server: open its logs, load the model.

Runs in the engine's process; with `--one-process`, that is the server's.
"""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.core.config import EngineConfig
from engine.core.engine import Engine
from engine.core.tokenizer import Tokenizer
from engine.extensions.prompt_lookup import PromptLookup
from engine.models.text.hf_tokenizer import HFTokenizer
from server.core.engine_client import InProcessClient, StartError
from server.core.engine_process import Ready
from server.core.event_log import Outbox, Recording, TraceFile

if TYPE_CHECKING:
    from server.core.kv_publisher import KVPublisher


def load(
    model: str,
    config: EngineConfig,
    *,
    paused: bool,
    texts: bool,
    dtype: str = "auto",
    device: str = "cpu",
    train: bool = False,
    train_steps: int | None = None,
    trace_file: str | None = None,
    run: int = 1,
    kv_events: str | None = None,
    kv_events_topic: str = "",
    drafter: str | None = None,
    draft_model: str | None = None,
    draft_length: int = 4,
) -> InProcessClient:
    """Return an engine for a model, with its logs open. The cheap parts come first.

    model       a name as for `Engine.load`; with `train`, the directory in which to train one
    texts       whether the event log keeps names and texts
    dtype, device  see `Engine.load`
    trace_file  file for the whole event log; `run` 2 writes to the second file, and so on
    kv_events   where to publish KV events
    drafter     "prompt-lookup"; or `draft_model`, a name as for `Engine.load`

    Raises StartError, ConfigError and MemoryError, and CheckpointError or TokenizerError for the model.
    """
    trace = _trace_file(trace_file, run)
    recording = Recording(trace, _kv_publisher(kv_events, kv_events_topic))
    if train:
        nanogpt = importlib.import_module("engine.training.nanogpt")  # imports torch: takes seconds
        nanogpt.train_nanogpt(Path(model), steps=train_steps or nanogpt.STEPS)
    outbox = Outbox(texts=texts)
    parts: dict[str, Any] = {"draft_model": draft_model, "draft_length": draft_length}
    if drafter is not None:
        parts["drafter"] = PromptLookup(draft_length)
    engine = Engine.load(model, config, dtype=dtype, device=device, log=outbox, **parts)
    if paused:
        engine.pause()
    return InProcessClient(engine, outbox, recording)


def load_with(config: dict[str, Any], **arguments: Any) -> InProcessClient:
    """Do what `load` does, with the settings as a dict; called in the engine's process."""
    return load(config=EngineConfig(**config), **arguments)


def tokenizer_of(ready: Ready) -> Tokenizer:
    """Read the tokenizer of an engine in another process. Raises TokenizerError."""
    assert ready.tokenizer is not None
    path, name = Path(ready.tokenizer[0]), ready.tokenizer[1]
    if path.is_file():
        from engine.models.text.gguf_tokenizer import GGUFTokenizer

        return GGUFTokenizer(path)
    return HFTokenizer(path, name)


def _trace_file(path: str | None, run: int) -> TraceFile | None:
    try:
        return TraceFile(Path(path), run) if path else None
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
