"""The console command. Everything heavy is imported by the command that needs it."""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from engine.config import ConfigError, EngineConfig
from server.options import SectionedCommand, check_environment, option, origin_of
from server.settings import ServerSettings

app = typer.Typer(
    help="Underglass: LLM inference, under glass.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_ENGINE = EngineConfig()
_SERVER = ServerSettings()


def main() -> None:
    """Entry point of `underglass`."""
    app()


@app.callback()
def _commands() -> None:
    pass


@app.command(
    cls=SectionedCommand,
    epilog="Every option is an environment variable, too: --max-kv-tokens is "
    "UNDERGLASS_MAX_KV_TOKENS. One that can be repeated takes several, with spaces between.",
)
def serve(  # noqa: PLR0917 (one parameter per option, as typer has it)
    ctx: typer.Context,
    model: Annotated[
        str | None,
        option(
            "MODEL",
            'A Hugging Face model directory, "bundled" for our own, or "auto": see --model-dir.',
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
        int, option("THREADS", "CPU threads; more rarely help a small model.", "Model", min=1)
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
        float, option("DRAIN_SECONDS", "Seconds to finish in after SIGTERM or Ctrl-C.", min=0)
    ] = _SERVER.drain_seconds,
    stuck_seconds: Annotated[
        float,
        option(
            "STUCK_SECONDS",
            "Seconds in one step after which requests are told that the engine hangs.",
            min=0,
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
        _fail(wrong)
    os.environ["UNDERGLASS_THREADS"] = str(threads)
    if train and model is not None:
        _fail("--train makes the model to serve: leave out --model (UNDERGLASS_MODEL), or --train")
    model = model or ("nanogpt" if train else "bundled")
    _check_auto(model, model_dir, trace_file)
    if model_dir is not None:
        model = "bundled"
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
        _serve(
            model,
            config,
            ServerSettings(
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
            ),
            host=host,
            port=port,
            paused=paused,
            train=train,
            train_steps=train_steps,
            trace_file=trace_file,
            request_log=request_log,
            model_dir=model_dir,
            max_models=max_models,
            until_stdin_closes=until_stdin_closes,
        )
    except ConfigError as error:
        _fail(f"{error}{origin_of(ctx, str(error).split()[0])}")


def _check_auto(model: str, model_dir: Path | None, trace_file: Path | None) -> None:
    if (model == "auto") != (model_dir is not None):
        _fail("--model auto and --model-dir DIR go together: give both, or neither")
    if model_dir is not None and not model_dir.is_dir():
        _fail(f"--model-dir {model_dir} is not a directory")
    if model_dir is not None and trace_file is not None:
        _fail("--trace-file holds one engine's log: leave it out, or give --model one model")


def _serve(
    model: str,
    config: EngineConfig,
    settings: ServerSettings,
    *,
    host: str,
    port: int,
    paused: bool,
    train: bool,
    train_steps: int | None,
    trace_file: Path | None,
    request_log: str,
    model_dir: Path | None,
    max_models: int,
    until_stdin_closes: bool,
) -> None:
    from engine.cache.eviction import eviction_named
    from engine.scheduling.policies import policy_named
    from server.banner import banner
    from server.models import ModelDirectory
    from server.request_log import LogWriter
    from server.serving import listen, run_server, trained_nanogpt, url_of
    from server.trace_file import TraceFile
    from server.window import Outbox

    # These complain before the model is loaded.
    policy_named(config.policy)
    eviction_named(config.eviction)
    try:
        listener = listen(host, port)
    except OSError as error:
        number = error.errno or 0  # negative: the name could not be looked up
        reason = os.strerror(number) if number > 0 else error.strerror
        _fail(f"cannot listen on {host}:{port}: {reason}; choose another --host or --port")
    try:
        trace = TraceFile(trace_file) if trace_file else None
    except OSError as error:
        _fail(f"--trace-file {trace_file} cannot be written: {error.strerror}")
    try:
        path = None if request_log in ("stderr", "off") else Path(request_log)
        requests = None if request_log == "off" else LogWriter(path)
    except OSError as error:
        _fail(f"--request-log {request_log} cannot be written: {error.strerror}")

    from engine.compute.checkpoint import CheckpointError
    from engine.engine import Engine
    from engine.text.tokenizer import TokenizerError

    def load(source: str | Path) -> tuple[Engine, Outbox]:
        outbox = Outbox()
        engine = Engine.load(
            source,
            config,
            policy=policy_named(config.policy),
            eviction=eviction_named(config.eviction),
            log=outbox,
        )
        if paused:
            engine.pause()
        return engine, outbox

    try:
        with trained_nanogpt(train_steps) if train else nullcontext(model) as source:
            engine, outbox = load(source)
    except (CheckpointError, TokenizerError) as error:
        _fail(f"--model {model}: {error}")
    except MemoryError:
        _fail(f"no room for --max-kv-tokens {config.max_kv_tokens}: choose fewer")

    def ready() -> None:
        typer.echo(banner(settings, url_of(listener)))

    run_server(
        engine,
        outbox,
        settings,
        listener,
        directory=ModelDirectory(model_dir, max_models, load) if model_dir else None,
        trace_file=trace,
        request_log=requests,
        ready=ready,
        until_stdin_closes=until_stdin_closes,
    )


@app.command()
def lmtp(
    url: Annotated[
        str, option("URL", "The server's address.", None, "--url")
    ] = "ws://localhost:8000",
    api_key: Annotated[
        str | None, option("API_KEY", "The server's key, if it has one.", None, "--api-key")
    ] = None,
    label: Annotated[str, typer.Option(help="Your name in the server's event log.")] = "",
) -> None:
    """Talk to a running server over LMTP: prompts in, answers as they are written.

    Words name=value set parameters, the rest of a line is the prompt:

        max_tokens=20 temperature=0.8 Once upon a time

    Without a prompt they hold from now on. A prompt with a "=" in it goes into
    double quotes.

    keep=NAME keeps prompt and answer on the server, from=NAME goes on after
    them, release=NAME forgets them.

    Ctrl-C ends an answer, Ctrl-D the client. From a pipe, each line is a prompt.
    """
    import asyncio

    from server.lmtp.interactive import talk

    raise typer.Exit(asyncio.run(talk(url, api_key=api_key, label=label)))


@app.command()
def train(
    out: Annotated[Path, typer.Option(help="Where the Hugging Face directory is written.")] = Path(
        "build/model"
    ),
    tokens: Annotated[int, typer.Option(help="Tokens to train on.", min=1)] = 12_000_000,
    seed: Annotated[int, typer.Option(help="The same seed makes the same model.")] = 0,
    device: Annotated[
        str, typer.Option(help="A torch device, or auto for a GPU where there is one.")
    ] = "auto",
) -> None:
    """Train the bundled model: corpus, tokenizer and weights, from nothing."""
    from engine.training.run import train as run

    try:
        run(out, tokens=tokens, seed=seed, device=device)
    except ValueError as error:
        _fail(str(error))


def _fail(message: str) -> NoReturn:
    """One line that says what is wrong; exit code 2, as for a wrong option."""
    typer.echo(f"underglass: {message}", err=True)
    raise typer.Exit(2)


if __name__ == "__main__":
    main()
