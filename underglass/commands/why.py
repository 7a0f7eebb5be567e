"""`underglass why`: ask a log what limited the run, why a request was slow, what would have helped.

It needs no server packages: only the event log and what reads it.
"""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

import visualizer  # `read` is imported when it is first used
from underglass.commands.options import KINDS, fail, tell
from underglass.commands.read_log import read_named

if TYPE_CHECKING:
    from engine.cluster.cluster_log import ClusterLog
    from engine.core.log.log import EventLog


_question = partial(typer.Option, rich_help_panel="Other questions", show_envvar=False)


def why(  # noqa: PLR0917 (typer needs one parameter per option)
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
    replica: Annotated[
        str | None,
        _question(
            "--replica",
            metavar="ID",
            help="Of a cluster's log: ask about this replica alone, with its own numbers of requests. "
            'A name such as "0, run 1" means an earlier run.',
        ),
    ] = None,
    helped: Annotated[
        bool,
        _question("--helped", help="The three changes that help most, as advise finds them."),
    ] = False,
) -> None:
    """Explain from a log why a request or a whole run was slow.

    In the log of a cluster, a request has the gateway's number. The answer tells its
    way: the router's reasons, hops that failed, and its time at each replica.

    Without a request: what limited the run, from when to when, and what that cost;
    with --stuck, the queue; with --helped, which other settings would have helped.

    With a request: the parts of its time, which add up to its latency. Each part says
    whether it is inferred or unknown; all others are recorded in the log.
    """
    from engine.core.log.log import LogError
    from visualizer.reading.why import WhyError

    if helped:
        if request is not None or missed or stuck or step is not None:
            fail(
                "--helped is a question about the whole run: leave out REQUEST and other questions"
            )
        typer.echo(_helped(file, replica))
        return
    if missed and (stuck or step is not None):
        fail(f"--missed and {'--stuck' if stuck else '--step'} are two questions: ask one")
    if stuck and request is not None:
        fail("--stuck is a question about the whole queue: leave out REQUEST")
    if request is None and (missed or (step is not None and not stuck)):
        fail(f"{'--missed' if missed else '--step'} is a question about one request: give REQUEST")
    try:
        log = _of_replica(read_named(file), replica)
        answer = _answer(log, request, missed=missed, step=step, stuck=stuck)
    except (LogError, WhyError) as error:
        fail(f"{file}: {error}")
    typer.echo(answer)


def _of_replica(log: "EventLog | ClusterLog", replica: str | None) -> "EventLog | ClusterLog":
    """Return the log of the replica that the command names, if it names one. Raises LogError."""
    from engine.core.log.log import EventLog, LogError

    if replica is None:
        return log
    if isinstance(log, EventLog):
        raise LogError("this is the log of one engine: leave out --replica")
    logs = {part.name: part.log for part in log.parts} | log.replicas
    if replica not in logs:
        raise LogError(f"--replica {replica}: the replicas of this log are {'; '.join(logs)}")
    return logs[replica]


def _helped(file: str, replica: str | None) -> str:
    """Return what would have helped; on the way, tell each change that has been tried."""
    from engine.core.log.log import EventLog
    from visualizer.advice import SHORTER, Advised, advising

    try:
        log = _of_replica(read_named(file), replica)
        if not isinstance(log, EventLog):
            known = "; ".join(part.name for part in log.parts)
            fail(f"{file} is the log of a cluster: add --replica with one of {known}")
        for one in advising(log, [SHORTER]):
            if isinstance(one, Advised):
                return str(one)
            tell(f"tried: {one}")
    except ValueError as error:
        fail(f"{file}: {error}")
    raise AssertionError("the last one is an Advised")


def _answer(
    log: "EventLog | ClusterLog",
    request: str | None,
    *,
    missed: bool,
    step: int | None,
    stuck: bool,
) -> str:
    from engine.core.log.log import EventLog
    from visualizer.indexed.indexed_log import IndexedLog, answer_of
    from visualizer.packed import board_options
    from visualizer.reading.why import WhyError, why
    from visualizer.reading.why.find import request_named, request_names

    if request is None and not stuck:
        if isinstance(log, IndexedLog):
            board_options(log)  # the index then remembers the words of the page, too
        return str(answer_of(log, "why", lambda: str(visualizer.read(log).regimes)))
    if missed and request is not None:
        missed_words = lambda: str(visualizer.read(log).why_missed(request))  # noqa: E731
        return str(answer_of(log, f"why {request} missed", missed_words))
    if not isinstance(log, EventLog):
        asked = visualizer.read(log)
        queues = asked.stuck(step) if request is None else {}
        if request is None and not queues:
            raise WhyError(f"no replica has a step{'' if step is None else f' {step}'}")
        told = [f"replica {name}\n{one}" for name, one in queues.items()]
        return "\n\n".join(told) if request is None else asked.why(request, step)
    if request is None:
        return str(visualizer.read(log).stuck(step))
    if step is not None:
        return why(log, request_named(request_names(log), request), step)
    return str(
        answer_of(log, f"why {request}", lambda: str(visualizer.read(log).why_slow(request)))
    )
