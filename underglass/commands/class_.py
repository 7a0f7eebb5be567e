"""`underglass class`: `underglass serve` with the settings of the lesson plan in docs/classroom.md.

The engine starts paused, the memory is small enough for a class to see it run out, and other machines
can connect.
"""

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from underglass.commands.environment import option
from underglass.commands.serve import serve

# 48 blocks of 16 tokens: thirty short prompts fill them.
PLAN: dict[str, Any] = {
    "paused": True,
    "token_budget": 64,
    "max_batch_size": 8,
    "max_kv_tokens": 768,
}


def serve_class(  # noqa: PLR0917 (one parameter per option, as Typer requires)
    ctx: typer.Context,
    model: Annotated[
        str | None,
        option("Class", "Another model, as for `underglass serve`.", show_default="bundled"),
    ] = None,
    host: Annotated[
        str,
        option(
            "Class",
            "Address to listen on. This machine's address in the class's network accepts no requests "
            "from its other networks.",
            show_default="0.0.0.0, all networks",
        ),
    ] = "0.0.0.0",
    port: Annotated[
        int, option("Class", "Port to listen on; 0 picks a free one.", min=0, max=65535)
    ] = 8000,
    api_key: Annotated[
        str | None,
        option(
            "Class", "Require this key. Without one, everyone on the network can join and read."
        ),
    ] = None,
    allowed_host: Annotated[
        list[str], option("Class", "A host name that students type; others get 403. Repeatable.")
    ] = [],  # noqa: B006 (Typer copies it)
    prefix_cache: Annotated[
        str, option("Class", "radix (as in SGLang), hash (as in vLLM) or off.")
    ] = "radix",
    trace_file: Annotated[
        Path | None,
        option(
            "Class",
            "File for the event log, which is the homework of lesson 12.",
            show_default="class-DATE-TIME.jsonl",
        ),
    ] = None,
    trace_text: Annotated[
        str, option("Class", "on, or off: keep names and texts out of the page and the log.")
    ] = "on",
) -> None:
    """Serve a class: the settings of docs/classroom.md, open to the network, paused.

    It prints the addresses at which other machines can join. The page shows them with QR codes.
    """
    serve(
        ctx,
        **PLAN,
        model=model,
        host=host,
        port=port,
        api_key=api_key,
        allowed_host=allowed_host,
        prefix_cache=prefix_cache,
        trace_file=trace_file or Path(f"class-{datetime.now():%Y-%m-%d-%H%M}.jsonl"),
        trace_text=trace_text,
    )
