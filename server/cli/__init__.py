"""The console command. Everything heavy is imported by the command that needs it."""

from pathlib import Path
from typing import Annotated

import typer

from server.cli.options import OneLineGroup, SectionedCommand, fail, option
from server.cli.serve import serve

app = typer.Typer(
    cls=OneLineGroup,
    help="Underglass: LLM inference, under glass.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Entry point of `underglass`."""
    app()


@app.callback()
def _commands() -> None:
    pass


app.command(
    cls=SectionedCommand,
    short_help="Serve a model over HTTP.",
    epilog="Every option is an environment variable, too: --max-kv-tokens is "
    "UNDERGLASS_MAX_KV_TOKENS. One that can be repeated takes several, with spaces between.",
)(serve)


@app.command(
    cls=SectionedCommand,
    short_help="Talk to a running server over LMTP.",
    epilog="--url and --api-key are the environment variables UNDERGLASS_URL and "
    "UNDERGLASS_API_KEY, too.",
)
def lmtp(
    url: Annotated[str, option("URL", "The server's address.", "Options")] = "ws://localhost:8000",
    api_key: Annotated[
        str | None, option("API_KEY", "The server's key, if it has one.", "Options")
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

    from server.api.lmtp.interactive import run_terminal

    raise typer.Exit(asyncio.run(run_terminal(url, api_key=api_key, label=label)))


@app.command(short_help="Train the bundled model from nothing.")
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
        fail(str(error))
