"""`underglass infer`: add to a recording of SGLang what it does not say."""

from pathlib import Path
from typing import Annotated

import typer

from underglass.commands.options import fail
from underglass.commands.read_log import read_named


def infer(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A recording of SGLang's scheduler.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The log to write.")],
) -> None:
    """Add block tables, hits, the prefix tree and evictions to a recording of SGLang.

    They are those of a replay, which must decide every step as SGLang did, and are marked as inferred.
    The recording needs token ids: UNDERGLASS_RECORD_TOKENS=1.
    """
    from engine.core.log.log import EventLog
    from engine.simulation.inferred import inferred

    log = read_named(file, whole=True)
    if not isinstance(log, EventLog):
        fail(f"{file} is the log of a cluster: give that of one engine")
    try:
        inferred(log).save(out)
    except ValueError as error:
        fail(f"{file}: {error}")
    except OSError as error:
        fail(f"cannot write {out}: {error.strerror or error}")
    typer.echo(out)
