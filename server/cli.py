"""The console command. Everything heavy is imported by the command that needs it."""

import os
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from engine.config import ConfigError, EngineConfig
from server.settings import ServerSettings

app = typer.Typer(
    help="Underglass: LLM inference, under glass.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"auto_envvar_prefix": "UNDERGLASS", "help_option_names": ["-h", "--help"]},
)

_ENGINE = EngineConfig()
_SERVER = ServerSettings()

BANNER = """\
Underglass serves {model} at {url}

  curl -N {url}/v1/completions -H 'Content-Type: application/json'{key} \\
       -d '{{"prompt": "Once upon a time", "max_tokens": 50}}'

  what it is doing   {url}/health
  its event log      {url}/trace
  every route        {url}/docs
"""


def main() -> None:
    """Entry point of `underglass`."""
    app()


@app.callback()
def _commands() -> None:
    pass


def _environment(name: str) -> str:
    return f"UNDERGLASS_{name}"


@app.command()
def serve(  # noqa: PLR0917 (one parameter per option, as typer has it)
    model: Annotated[
        str,
        typer.Option(
            help='A Hugging Face model directory, or "bundled" for the model in the repository.',
            envvar=_environment("MODEL"),
            rich_help_panel="Model",
        ),
    ] = "bundled",
    threads: Annotated[
        int,
        typer.Option(
            help="CPU threads for the forward pass. More than one rarely helps a small model.",
            min=1,
            envvar=_environment("THREADS"),
            rich_help_panel="Model",
        ),
    ] = 1,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on; 0.0.0.0 lets other machines in.",
            envvar=_environment("HOST"),
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            help="Port to listen on; 0 takes any free one.",
            min=0,
            max=65535,
            envvar=_environment("PORT"),
        ),
    ] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(
            help="Ask for this key on every route but /health and /ready.",
            envvar=_environment("API_KEY"),
        ),
    ] = _SERVER.api_key,
    max_waiting: Annotated[
        int,
        typer.Option(
            help="Requests in the queue beyond which new ones are refused (429).",
            min=1,
            envvar=_environment("MAX_WAITING"),
        ),
    ] = _SERVER.max_waiting,
    chat_max_tokens: Annotated[
        int,
        typer.Option(
            help="Cap on a chat answer for which the client names none.",
            min=1,
            envvar=_environment("CHAT_MAX_TOKENS"),
        ),
    ] = _SERVER.chat_max_tokens,
    drain_seconds: Annotated[
        float,
        typer.Option(
            help="Seconds that running requests get to finish after SIGTERM or Ctrl-C.",
            min=0,
            envvar=_environment("DRAIN_SECONDS"),
        ),
    ] = _SERVER.drain_seconds,
    paused: Annotated[
        bool,
        typer.Option(
            "--paused",
            help="Start with the engine held: requests queue up until it is resumed or stepped.",
            envvar=_environment("PAUSED"),
            rich_help_panel="Engine",
        ),
    ] = False,
    token_budget: Annotated[
        int,
        typer.Option(
            help="Tokens computed in one step, over all requests.",
            envvar=_environment("TOKEN_BUDGET"),
            rich_help_panel="Engine",
        ),
    ] = _ENGINE.token_budget,
    max_batch_size: Annotated[
        int,
        typer.Option(
            help="Requests running at once.",
            envvar=_environment("MAX_BATCH_SIZE"),
            rich_help_panel="Engine",
        ),
    ] = _ENGINE.max_batch_size,
    max_kv_tokens: Annotated[
        int,
        typer.Option(
            help="Token slots of KV memory.",
            envvar=_environment("MAX_KV_TOKENS"),
            rich_help_panel="Engine",
        ),
    ] = _ENGINE.max_kv_tokens,
    block_size: Annotated[
        int,
        typer.Option(
            help="Token slots in a KV block.",
            envvar=_environment("BLOCK_SIZE"),
            rich_help_panel="Engine",
        ),
    ] = _ENGINE.block_size,
    policy: Annotated[
        str,
        typer.Option(
            help="Order of the queue: fcfs, priority, sjf or lpm.",
            envvar=_environment("POLICY"),
            rich_help_panel="Engine",
        ),
    ] = _ENGINE.policy,
    batching: Annotated[
        str,
        typer.Option(
            help="continuous, or static: a batch runs until its last member has finished.",
            envvar=_environment("BATCHING"),
            rich_help_panel="Engine",
        ),
    ] = _ENGINE.batching,
    chunked_prefill: Annotated[
        bool,
        typer.Option(
            "--chunked-prefill/--no-chunked-prefill",
            help="Cut prompts to fit into a step's budget.",
            envvar=_environment("CHUNKED_PREFILL"),
            rich_help_panel="Engine",
        ),
    ] = _ENGINE.chunked_prefill,
    prefix_cache: Annotated[
        bool,
        typer.Option(
            "--prefix-cache/--no-prefix-cache",
            help="Keep computed blocks and find them again.",
            envvar=_environment("PREFIX_CACHE"),
            rich_help_panel="Engine",
        ),
    ] = _ENGINE.prefix_cache,
    preemption: Annotated[
        bool,
        typer.Option(
            "--preemption/--no-preemption",
            help="Take memory back when it runs out, instead of reserving the worst case.",
            envvar=_environment("PREEMPTION"),
            rich_help_panel="Engine",
        ),
    ] = _ENGINE.preemption,
    log_window: Annotated[
        int,
        typer.Option(
            help="Events that /trace returns and a live viewer can catch up on.",
            min=100,
            envvar=_environment("LOG_WINDOW"),
            rich_help_panel="Event log",
        ),
    ] = _SERVER.log_window,
    trace_file: Annotated[
        Path | None,
        typer.Option(
            help="Write the whole event log to this file as it happens; replaces the file.",
            envvar=_environment("TRACE_FILE"),
            rich_help_panel="Event log",
        ),
    ] = None,
    until_stdin_closes: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Serve a model over HTTP: OpenAI's API, a teaching stream, and the engine's event log."""
    os.environ[_environment("THREADS")] = str(threads)
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
            preemption=preemption,
        )
        _serve(
            model,
            config,
            ServerSettings(
                model_name=model if model == "bundled" else Path(model).resolve().name,
                api_key=api_key,
                max_waiting=max_waiting,
                chat_max_tokens=chat_max_tokens,
                log_window=log_window,
                drain_seconds=drain_seconds,
            ),
            host=host,
            port=port,
            paused=paused,
            trace_file=trace_file,
            until_stdin_closes=until_stdin_closes,
        )
    except ConfigError as error:
        _fail(str(error))


def _serve(
    model: str,
    config: EngineConfig,
    settings: ServerSettings,
    *,
    host: str,
    port: int,
    paused: bool,
    trace_file: Path | None,
    until_stdin_closes: bool,
) -> None:
    from engine.scheduling.policies import policy_named
    from server.serving import listen, run_server, url_of
    from server.trace_file import TraceFile
    from server.window import Outbox

    policy = policy_named(config.policy)  # complains before the model is loaded
    try:
        listener = listen(host, port)
    except OSError as error:
        _fail(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port")
    try:
        trace = TraceFile(trace_file) if trace_file else None
    except OSError as error:
        _fail(f"--trace-file {trace_file} cannot be written: {error.strerror}")

    from engine.compute.checkpoint import CheckpointError
    from engine.engine import Engine
    from engine.text.tokenizer import TokenizerError

    outbox = Outbox()
    try:
        engine = Engine.load(model, config, policy=policy, log=outbox)
    except (CheckpointError, TokenizerError) as error:
        _fail(f"--model {model}: {error}")
    if paused:
        engine.pause()

    def ready() -> None:
        key = f" -H 'Authorization: Bearer {settings.api_key}'" if settings.api_key else ""
        typer.echo(BANNER.format(model=settings.model_name, url=url_of(listener), key=key))

    run_server(
        engine,
        outbox,
        settings,
        listener,
        trace_file=trace,
        ready=ready,
        until_stdin_closes=until_stdin_closes,
    )


@app.command()
def train(
    out: Annotated[Path, typer.Option(help="Where the Hugging Face directory is written.")] = Path(
        "build/model"
    ),
    tokens: Annotated[int, typer.Option(help="Tokens to train on.", min=1)] = 20_000_000,
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
