"""The console command. Each subcommand imports its heavy modules only when it runs."""

from pathlib import Path
from typing import Annotated

import typer

import underglass.shadowed  # noqa: F401 (first: it names a file that hides one of our packages)
from underglass.commands.advise import advise
from underglass.commands.bench import bench
from underglass.commands.class_ import serve_class
from underglass.commands.command import OneLineGroup, SectionedCommand
from underglass.commands.environment import FROM_ENVIRONMENT, option
from underglass.commands.grade import grade
from underglass.commands.index import index_logs
from underglass.commands.infer import infer
from underglass.commands.kv import kv
from underglass.commands.lab import lab
from underglass.commands.listen import listen
from underglass.commands.open import open_logs
from underglass.commands.options import fail
from underglass.commands.report import report
from underglass.commands.serve import serve
from underglass.commands.spans import spans
from underglass.commands.sweep import sweep
from underglass.commands.tell import tell_me
from underglass.commands.what_if import what_if
from underglass.commands.why import why

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
    """Run the console command; the entry point of `underglass`."""
    app()


def _print_version(wanted: bool) -> None:
    if wanted:
        from underglass import __version__

        typer.echo(f"underglass {__version__}")
        raise typer.Exit


@app.callback()
def _commands(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass


app.command(
    cls=SectionedCommand,
    short_help="Serve a model over HTTP.",
    context_settings=FROM_ENVIRONMENT,
    epilog="Every option can also be set by an environment variable: --max-kv-tokens is "
    "UNDERGLASS_MAX_KV_TOKENS. For a repeatable option, separate the values with spaces.",
)(serve)
app.command(
    name="class",
    cls=SectionedCommand,
    short_help="Serve a class: the lesson plan's settings, open to the network.",
    context_settings=FROM_ENVIRONMENT,
)(serve_class)

app.command(
    name="open",
    cls=SectionedCommand,
    short_help="Show a log in the browser: of this engine, vLLM or SGLang.",
)(open_logs)
app.command(cls=SectionedCommand, short_help="Show the KV cache of a running vLLM or SGLang.")(
    listen
)


@app.command(
    cls=SectionedCommand,
    short_help="Send prompts to a running server over LMTP.",
    context_settings=FROM_ENVIRONMENT,
    epilog="Every option can also be set by an environment variable: --api-key is "
    "UNDERGLASS_API_KEY.",
)
def lmtp(
    url: Annotated[str, option("Options", "The server's address.")] = "ws://localhost:8000",
    api_key: Annotated[
        str | None, option("Options", "The server's key, if it requires one.")
    ] = None,
    label: Annotated[str, option("Options", "Your name in the server's event log.")] = "",
) -> None:
    """Send prompts to a running server over LMTP and print the outputs as they are generated.

    Each word of the form name=value sets a parameter; the rest of the line is the prompt:

        max_tokens=20 temperature=0.8 Once upon a time

    Parameters on a line without a prompt apply to all following prompts. Put a
    prompt that contains "=" in double quotes.

    keep=NAME stores the prompt and its output on the server, from=NAME continues
    from them, and release=NAME deletes them.

    Ctrl-C stops an output; Ctrl-D quits the client. When input comes from a pipe,
    each line is a prompt.
    """
    import asyncio

    from server.api.lmtp.interactive import run_terminal

    raise typer.Exit(asyncio.run(run_terminal(url, api_key=api_key, label=label)))


app.command(cls=SectionedCommand, short_help="Open your copy of the lessons in JupyterLab.")(lab)
app.command(cls=SectionedCommand, short_help="Check a class's notebooks.")(grade)
app.command(
    name="what-if",
    cls=SectionedCommand,
    short_help="Replay a log's arrivals with other settings.",
)(what_if)
app.command(
    cls=SectionedCommand,
    short_help="Measure how many requests per second a server can take.",
    context_settings=FROM_ENVIRONMENT,
)(sweep)
app.command(
    cls=SectionedCommand,
    short_help="Judge scheduling policies on recorded traces.",
)(bench)
app.command(
    name="tell", cls=SectionedCommand, short_help="Tell what happened in a log, in a few scenes."
)(tell_me)
app.command(cls=SectionedCommand, short_help="Ask a log why a request was slow.")(why)

app.command(
    cls=SectionedCommand,
    short_help="Say which settings would have met a goal, and how sure that is.",
)(advise)
app.command(cls=SectionedCommand, short_help="Write one page about a run, for a ticket.")(report)
app.command(
    cls=SectionedCommand,
    short_help="Send where requests' time went to a tracing tool, as OpenTelemetry spans.",
)(spans)
app.command(cls=SectionedCommand, short_help="Say how many users fit beside a model's weights.")(kv)
app.command(
    name="index",
    cls=SectionedCommand,
    short_help="Write a log's index, with which it opens at once.",
)(index_logs)
app.command(
    cls=SectionedCommand, short_help="Add blocks, hits and evictions to a recording of SGLang."
)(infer)


@app.command(cls=SectionedCommand, short_help="Train the bundled model from scratch.")
def train(
    out: Annotated[
        Path, typer.Option(help="Output directory for the model, in Hugging Face format.")
    ] = Path("build/model"),
    tokens: Annotated[int, typer.Option(help="Number of tokens to train on.", min=1)] = 18_000_000,
    seed: Annotated[
        int, typer.Option(help="Random seed; the same seed produces the same model.")
    ] = 0,
    device: Annotated[
        str, typer.Option(help="A torch device, or auto to use a GPU if there is one.")
    ] = "auto",
) -> None:
    """Train the bundled model from scratch: corpus, tokenizer and weights."""
    if out.exists() and not out.is_dir():
        fail(f"--out must be a directory, got {out}, which is a file")
    from engine.training.run import train as run

    try:
        run(out, tokens=tokens, seed=seed, device=device)
    except ValueError as error:
        fail(str(error))
