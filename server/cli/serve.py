"""`underglass serve`: its options, with their defaults and help texts.

`serving.py`, which imports FastAPI, is imported only after the options have been checked.
"""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from engine.config import ConfigError, EngineConfig
from server.cli.options import check_environment, fail, option, with_flags
from server.core.settings import LARGEST_COUNT, ServerSettings

_ENGINE = EngineConfig()
_SERVER = ServerSettings()
_DAY = 86_400  # the longest time to set, in seconds; timers need a finite limit

_model = partial(option, "Model")
_server = partial(option, "Server")
_engine = partial(option, "Engine")
_log = partial(option, "Event log")
_Struct = TypeVar("_Struct")


def serve(  # noqa: PLR0917 (one parameter per option, as Typer requires)
    ctx: typer.Context,
    model: Annotated[
        str | None,
        _model(
            "The model to serve: a Hugging Face directory, a GGUF file, owner/name on the Hugging Face "
            'Hub, "bundled", or "auto" (see --model-dir).',
            show_default="bundled",
        ),
    ] = None,
    model_dir: Annotated[
        Path | None,
        _model(
            "With --model auto: a directory of model directories and GGUF files; each model is loaded "
            "when a request names it."
        ),
    ] = None,
    max_models: Annotated[
        int,
        _model("With --model auto: how many of these models can be loaded at once.", min=1),
    ] = 2,
    train: Annotated[
        bool, _model("Train a small NanoGPT on stories first (about ten seconds) and serve it.")
    ] = False,
    threads: Annotated[
        int, _model("CPU threads; more than one rarely helps a small model.", min=1, max=256)
    ] = 1,
    host: Annotated[
        str, _server("Address to listen on; 0.0.0.0 accepts connections from other machines.")
    ] = "127.0.0.1",
    port: Annotated[
        int, _server("Port to listen on; 0 picks a free one.", min=0, max=65535)
    ] = 8000,
    api_key: Annotated[
        str | None,
        _server("Require this key on all routes except /health, /ready and the pages."),
    ] = _SERVER.api_key,
    allowed_host: Annotated[
        list[str], _server("Additional Host name to accept; others get 403. Repeatable.")
    ] = [],  # noqa: B006 (Typer copies it)
    cors_origin: Annotated[
        list[str],
        _server(
            "A site whose pages may use the API, such as https://example.org; * allows all. Repeatable."
        ),
    ] = [],  # noqa: B006
    max_waiting: Annotated[
        int, _server("Maximum number of waiting requests; beyond it, new ones get 429.", min=1)
    ] = _SERVER.max_waiting,
    max_waiting_tokens: Annotated[
        int, _server("The same limit in tokens, counting prompts and their maximum outputs.", min=1)
    ] = _SERVER.max_waiting_tokens,
    chat_max_tokens: Annotated[
        int, _server("max_tokens for chat requests that do not set it.", min=1)
    ] = _SERVER.chat_max_tokens,
    drain_seconds: Annotated[
        float,
        _server(
            "Seconds that running requests have to finish after SIGTERM or Ctrl-C.", min=0, max=_DAY
        ),
    ] = _SERVER.drain_seconds,
    stuck_seconds: Annotated[
        float,
        _server("Seconds that a step may take; after that, all requests fail.", min=0, max=_DAY),
    ] = _SERVER.stuck_seconds,
    paused: Annotated[
        bool, _engine("Start with the engine paused: requests wait until it is resumed.")
    ] = False,
    token_budget: Annotated[
        int, _engine("Maximum number of tokens computed in one step, over all requests.")
    ] = _ENGINE.token_budget,
    max_batch_size: Annotated[
        int, _engine("Maximum number of running requests.")
    ] = _ENGINE.max_batch_size,
    max_kv_tokens: Annotated[
        int, _engine("Size of the KV cache, in token slots.")
    ] = _ENGINE.max_kv_tokens,
    block_size: Annotated[int, _engine("Token slots per KV block.")] = _ENGINE.block_size,
    policy: Annotated[
        str, _engine("Order of the queue: fcfs, priority, sjf, lpm or fair.")
    ] = _ENGINE.policy,
    batching: Annotated[
        str,
        _engine("continuous, or static: a batch runs until its last request has finished."),
    ] = _ENGINE.batching,
    chunked_prefill: Annotated[
        bool, _engine("Split a prompt that exceeds the token budget of a step.")
    ] = _ENGINE.chunked_prefill,
    admission: Annotated[
        str,
        _engine("whole: admit a request if all its tokens fit; first_chunk: if its first ones do."),
    ] = _ENGINE.admission,
    prefix_cache: Annotated[
        str,
        _engine("Reuse the KV blocks of shared prompt prefixes: radix, hash or off."),
    ] = str(_ENGINE.prefix_cache),
    eviction: Annotated[
        str, _engine("Which cached blocks are evicted first: lru or lfu.")
    ] = _ENGINE.eviction,
    preemption: Annotated[
        bool,
        _engine(
            "Preempt requests when KV memory runs out; otherwise reserve each request's maximum."
        ),
    ] = _ENGINE.preemption,
    async_scheduling: Annotated[
        bool, _engine("Schedule a step while the one before is computed, so that neither waits.")
    ] = _ENGINE.async_scheduling,
    log_window: Annotated[
        int,
        _log(
            "Number of recent events kept for /trace and live viewers.",
            min=100,
            max=LARGEST_COUNT,
        ),
    ] = _SERVER.log_window,
    trace_text: Annotated[
        str,
        _log(
            "on, or off: leave names and texts out of the event log, the page and the request log."
        ),
    ] = _SERVER.trace_text,
    trace_file: Annotated[
        Path | None,
        _log(
            "Write the whole event log to this file; an existing file is replaced. An engine that is "
            "restarted from the page goes on in NAME-2, NAME-3, ..."
        ),
    ] = None,
    request_log: Annotated[
        str,
        _log("Where to log one line per request: stderr, off, or a file to append to."),
    ] = "stderr",
    until_stdin_closes: Annotated[bool, typer.Option(hidden=True)] = False,
    train_steps: Annotated[int | None, typer.Option(hidden=True, min=1)] = None,
) -> None:
    """Serve a model over HTTP: OpenAI's API, a teaching stream, and the engine's event log."""
    options = locals()  # every option, by name
    if message := check_environment(ctx):
        fail(message)
    os.environ["UNDERGLASS_THREADS"] = str(threads)
    options["model"] = _model_to_serve(model, model_dir, trace_file, train=train)

    from server.cli.serving import Start, StartError, serve_until_stopped

    try:
        settings = _fill(
            ServerSettings,
            options,
            model_name=Path(options["model"]).resolve().name,
            allowed_hosts=tuple(allowed_host),
            cors_origins=tuple(cors_origin),
        )
        serve_until_stopped(_fill(Start, options), _fill(EngineConfig, options), settings)
    except ConfigError as error:
        fail(with_flags(ctx, str(error)))
    except StartError as error:
        fail(str(error))


def _model_to_serve(
    model: str | None, model_dir: Path | None, trace_file: Path | None, *, train: bool
) -> str:
    """Return the model's name or path; exit if the options cannot be used together."""
    if train and model is not None:
        fail("--train and --model (UNDERGLASS_MODEL) cannot be used together: omit one of them")
    if model == "":
        fail("--model is empty: give a model's directory or name, or omit the option")
    if (model == "auto") != (model_dir is not None):
        fail("--model auto and --model-dir require each other: give both or neither")
    if model_dir is not None and not model_dir.is_dir():
        fail(f"--model-dir must be a directory, got {model_dir}")
    if model_dir is not None and trace_file is not None:
        fail("--trace-file cannot be used with --model auto: it records only one engine")
    if model == "auto":
        return "bundled"
    return model or ("nanogpt" if train else "bundled")


def _fill(kind: type[_Struct], options: Mapping[str, Any], **more: Any) -> _Struct:
    """Build a struct from the options whose names match its fields."""
    names = kind.__struct_fields__  # type: ignore[attr-defined]
    return kind(**{name: options[name] for name in names if name in options} | more)
