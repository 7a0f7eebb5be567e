"""`underglass serve`: its options, each with its default and what it does.

What becomes of them is in `starting.py`, which is imported only once they are known to be sound: the
command's help needs no torch.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from engine.config import ConfigError, EngineConfig
from server.cli.options import check_environment, fail, in_flags, option
from server.core.settings import LARGEST_COUNT, ServerSettings

_ENGINE = EngineConfig()
_SERVER = ServerSettings()
_LONGEST = 86_400  # a day; a timer cannot run for ever


def serve(  # noqa: PLR0917 (one parameter per option, as typer has it)
    ctx: typer.Context,
    model: Annotated[
        str | None,
        option(
            "MODEL",
            'A Hugging Face directory, a GGUF file, owner/name on the hub, "bundled" for our own, or '
            '"auto": see --model-dir.',
            "Model",
            show_default="bundled",
        ),
    ] = None,
    model_dir: Annotated[
        Path | None,
        option(
            "MODEL_DIR",
            "With --model auto: its model directories and GGUF files are loaded when asked for.",
            "Model",
        ),
    ] = None,
    max_models: Annotated[
        int,
        option(
            "MAX_MODELS", "With --model auto: how many may be loaded beside ours.", "Model", min=1
        ),
    ] = 2,
    train: Annotated[
        bool,
        option(
            "TRAIN",
            "Train a NanoGPT on stories first, in some ten seconds, and serve that.",
            "Model",
            "--train/--no-train",
        ),
    ] = False,
    threads: Annotated[
        int,
        option("THREADS", "CPU threads; more rarely help a small model.", "Model", min=1, max=256),
    ] = 1,
    host: Annotated[
        str, option("HOST", "Address to listen on; 0.0.0.0 lets other machines in.")
    ] = "127.0.0.1",
    port: Annotated[
        int, option("PORT", "Port to listen on; 0 takes any free one.", min=0, max=65535)
    ] = 8000,
    api_key: Annotated[
        str | None,
        option("API_KEY", "Ask for this key on every route but /health, /ready and the pages."),
    ] = _SERVER.api_key,
    allowed_host: Annotated[
        list[str],
        option(
            "ALLOWED_HOST",
            "A further name it is known by; others get 403. Repeatable.",
        ),
    ] = [],  # noqa: B006 (typer copies it)
    cors_origin: Annotated[
        list[str],
        option(
            "CORS_ORIGIN",
            "A site whose pages may use it: https://example.org, or * for all. Repeatable.",
        ),
    ] = [],  # noqa: B006
    max_waiting: Annotated[
        int, option("MAX_WAITING", "Waiting requests beyond which new ones get 429.", min=1)
    ] = _SERVER.max_waiting,
    max_waiting_tokens: Annotated[
        int,
        option(
            "MAX_WAITING_TOKENS",
            "The same in tokens: prompts, and all output they may have.",
            min=1,
        ),
    ] = _SERVER.max_waiting_tokens,
    chat_max_tokens: Annotated[
        int, option("CHAT_MAX_TOKENS", "Cap on a chat answer if the client names none.", min=1)
    ] = _SERVER.chat_max_tokens,
    drain_seconds: Annotated[
        float,
        option(
            "DRAIN_SECONDS", "Seconds to finish in after SIGTERM or Ctrl-C.", min=0, max=_LONGEST
        ),
    ] = _SERVER.drain_seconds,
    stuck_seconds: Annotated[
        float,
        option(
            "STUCK_SECONDS",
            "Seconds in one step after which requests are told that the engine hangs.",
            min=0,
            max=_LONGEST,
        ),
    ] = _SERVER.stuck_seconds,
    paused: Annotated[
        bool,
        option(
            "PAUSED",
            "Start with the engine held: requests only queue up.",
            "Engine",
            "--paused/--no-paused",
        ),
    ] = False,
    token_budget: Annotated[
        int, option("TOKEN_BUDGET", "Tokens computed in one step, over all requests.", "Engine")
    ] = _ENGINE.token_budget,
    max_batch_size: Annotated[
        int, option("MAX_BATCH_SIZE", "Requests running at once.", "Engine")
    ] = _ENGINE.max_batch_size,
    max_kv_tokens: Annotated[
        int, option("MAX_KV_TOKENS", "Token slots of KV memory.", "Engine")
    ] = _ENGINE.max_kv_tokens,
    block_size: Annotated[
        int, option("BLOCK_SIZE", "Token slots in a KV block.", "Engine")
    ] = _ENGINE.block_size,
    policy: Annotated[
        str, option("POLICY", "Order of the queue: fcfs, priority, sjf, lpm or fair.", "Engine")
    ] = _ENGINE.policy,
    batching: Annotated[
        str,
        option(
            "BATCHING",
            "continuous, or static: a batch runs until its last member is done.",
            "Engine",
        ),
    ] = _ENGINE.batching,
    chunked_prefill: Annotated[
        bool,
        option(
            "CHUNKED_PREFILL",
            "Cut prompts to fit into a step's budget.",
            "Engine",
            "--chunked-prefill/--no-chunked-prefill",
        ),
    ] = _ENGINE.chunked_prefill,
    prefix_cache: Annotated[
        bool,
        option(
            "PREFIX_CACHE",
            "Keep computed blocks and find them again.",
            "Engine",
            "--prefix-cache/--no-prefix-cache",
        ),
    ] = _ENGINE.prefix_cache,
    eviction: Annotated[
        str, option("EVICTION", "What the prefix cache forgets first: lru or lfu.", "Engine")
    ] = _ENGINE.eviction,
    preemption: Annotated[
        bool,
        option(
            "PREEMPTION",
            "Take memory back when it runs out; off, reserve the worst case.",
            "Engine",
            "--preemption/--no-preemption",
        ),
    ] = _ENGINE.preemption,
    log_window: Annotated[
        int,
        option(
            "LOG_WINDOW",
            "Events that /trace returns and live viewers can catch up on.",
            "Event log",
            min=100,
            max=LARGEST_COUNT,
        ),
    ] = _SERVER.log_window,
    trace_file: Annotated[
        Path | None,
        option("TRACE_FILE", "Write the whole event log to this file; replaces it.", "Event log"),
    ] = None,
    request_log: Annotated[
        str,
        option(
            "REQUEST_LOG",
            "Where a line per finished request goes: stderr, off, or a file to append to.",
            "Event log",
        ),
    ] = "stderr",
    until_stdin_closes: Annotated[bool, typer.Option(hidden=True)] = False,
    train_steps: Annotated[int | None, typer.Option(hidden=True, min=1)] = None,
) -> None:
    """Serve a model over HTTP: OpenAI's API, a teaching stream, and the engine's event log."""
    if wrong := check_environment(ctx):
        fail(wrong)
    os.environ["UNDERGLASS_THREADS"] = str(threads)
    if train and model is not None:
        fail("--train makes the model to serve: leave out --model (UNDERGLASS_MODEL), or --train")
    if model == "":
        fail("--model is empty: give a model's directory or name, or leave it out")
    model = model or ("nanogpt" if train else "bundled")
    if (model == "auto") != (model_dir is not None):
        fail("--model auto and --model-dir DIR go together: give both, or neither")
    model = "bundled" if model_dir is not None else model

    from server.cli.starting import Start, StartError, serve_until_stopped

    start = Start(
        model=model,
        model_dir=model_dir,
        max_models=max_models,
        train=train,
        train_steps=train_steps,
        port=port,
        paused=paused,
        trace_file=trace_file,
        request_log=request_log,
        until_stdin_closes=until_stdin_closes,
    )
    try:
        config = EngineConfig(
            token_budget=token_budget,
            max_batch_size=max_batch_size,
            max_kv_tokens=max_kv_tokens,
            block_size=block_size,
            policy=policy,
            batching=batching,  # type: ignore[arg-type] # EngineConfig says what it takes
            chunked_prefill=chunked_prefill,
            prefix_cache=prefix_cache,
            eviction=eviction,
            preemption=preemption,
        )
        settings = ServerSettings(
            model_name=Path(model).resolve().name,
            host=host,
            allowed_hosts=tuple(allowed_host),
            cors_origins=tuple(cors_origin),
            api_key=api_key,
            max_waiting=max_waiting,
            max_waiting_tokens=max_waiting_tokens,
            chat_max_tokens=chat_max_tokens,
            log_window=log_window,
            drain_seconds=drain_seconds,
            stuck_seconds=stuck_seconds,
        )
        serve_until_stopped(start, config, settings)
    except ConfigError as error:
        fail(in_flags(ctx, str(error)))
    except StartError as error:
        fail(str(error))
