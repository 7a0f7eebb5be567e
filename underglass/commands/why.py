"""`underglass why`: ask a log why a request was slow, why it missed the cache, or what is stuck.

It needs no server packages: only the event log and what reads it.
"""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from underglass.commands.options import KINDS, fail
from underglass.commands.read_log import read_named
from visualizer import read

if TYPE_CHECKING:
    from engine.cluster.cluster_log import ClusterLog
    from engine.core.log.log import EventLog


_question = partial(typer.Option, rich_help_panel="Other questions", show_envvar=False)


def why(
    file: Annotated[str, typer.Argument(metavar="FILE", help=KINDS)],
    request: Annotated[
        str | None,
        typer.Argument(
            metavar="REQUEST",
            help="The request's id or its label; a part of it if no other has that.",
            show_default=False,
        ),
    ] = None,
    missed: Annotated[
        bool, _question("--missed", help="Why no more of its prompt was found in the cache.")
    ] = False,
    step: Annotated[
        int | None, _question("--step", metavar="N", help="Why it waited or ran in this step.")
    ] = None,
    stuck: Annotated[
        bool,
        _question("--stuck", help="The queue of --step, or of the last step: ages and reasons."),
    ] = False,
) -> None:
    """Explain from a log why a request was slow.

    The parts of its time add up to its latency. Each part says whether it is inferred
    or unknown; all others are recorded in the log.

    Without a request, --stuck explains the queue.
    """
    from engine.core.log.log import LogError
    from visualizer.reading.why import WhyError

    if missed and (stuck or step is not None):
        fail(f"--missed and {'--stuck' if stuck else '--step'} are two questions: ask one")
    if stuck == (request is not None):
        fail("give a REQUEST, or --stuck for the whole queue")
    try:
        answer = _answer(read_named(file), request, missed=missed, step=step)
    except (LogError, WhyError) as error:
        fail(f"{file}: {error}")
    typer.echo(answer)


def _answer(
    log: "EventLog | ClusterLog", request: str | None, *, missed: bool, step: int | None
) -> str:
    from engine.core.log.log import EventLog
    from visualizer.reading.why import WhyError, why
    from visualizer.reading.why.find import request_named, request_names

    if missed and request is not None:
        return str(read(log).why_missed(request))
    if not isinstance(log, EventLog):
        raise WhyError("a cluster log answers only --missed; use the log of one replica")
    if request is None:
        return str(read(log).stuck(step))
    if step is not None:
        return why(log, request_named(request_names(log), request), step)
    return str(read(log).why_slow(request))
