"""`underglass listen`: show the KV cache of a running vLLM or SGLang in the browser."""

from pathlib import Path
from typing import Annotated

import typer

from underglass.commands.options import Browser, Port, Text, Theme, check_theme, fail, tell
from underglass.commands.serve_page import serve_live


def listen(  # noqa: PLR0917
    endpoint: Annotated[
        str,
        typer.Argument(
            metavar="ENDPOINT", help="Where the engine publishes KV events: tcp://127.0.0.1:5557"
        ),
    ],
    replay: Annotated[
        str | None,
        typer.Option(help="Where the engine sends missed messages again."),
    ] = None,
    topic: Annotated[
        str, typer.Option(help="Only show messages whose topic begins with this.")
    ] = "",
    save: Annotated[
        Path | None, typer.Option(help="Also write the messages to this new file.")
    ] = None,
    theme: Theme = None,
    text: Text = True,
    port: Port = 0,
    browser: Browser = None,
) -> None:
    """Show the KV cache of a running vLLM or SGLang, live from its KV events.

    vLLM binds an endpoint such as tcp://*:5557 and connects to any other. If nothing listens at a local
    endpoint, this command binds it.
    """
    check_theme(theme)
    from engine.core.extras import MissingExtraError
    from engine.core.log import LogError
    from visualizer.sources.zmq_source import ZmqSource

    try:
        raw = None if save is None else save.open("xb")
        source = ZmqSource(endpoint, replay=replay, topic=topic, save=raw, tell=tell)
    except OSError as error:
        fail(f"cannot write {error.filename}: {error.strerror}")
    except (LogError, MissingExtraError) as error:
        if save is not None and raw is not None:
            raw.close()
            save.unlink()  # so that the next attempt can create the file
        fail(str(error))
    try:
        serve_live(source, endpoint, theme=theme, text=text, port=port, browser=browser)
    finally:
        if raw is not None:
            raw.close()
