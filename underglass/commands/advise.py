"""`underglass advise`: which other settings would have met a goal, and what they cost."""

from typing import Annotated

import msgspec
import typer

from underglass.commands.options import KINDS, fail, progress, tell
from underglass.commands.read_log import read_named

REFUSED = 3  # exit status


def advise(  # noqa: PLR0917 (typer needs one parameter per option)
    file: Annotated[str, typer.Argument(metavar="FILE", help=KINDS)],
    goal: Annotated[
        list[str],
        typer.Option(
            metavar="GOAL",
            help='What you want, such as "p99 ttft < 1s", "mean itl < 50ms", "throughput > 500 '
            'tokens/s". Repeatable; the measures are ttft, itl, tpot, e2e, queue and throughput.',
        ),
    ],
    settings: Annotated[
        str | None,
        typer.Option(metavar="NAME,...", help="Change only these settings, separated by commas."),
    ] = None,
    replays: Annotated[int, typer.Option(help="Search with at most so many replays.", min=4)] = 30,
    steps: Annotated[
        int,
        typer.Option(help="Of a longer log, replay the window that missed the goal most.", min=100),
    ] = 6000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of words.")] = False,
) -> None:
    """Say which other settings would have met a goal: at most three changes, the best first.

    Each is found by running the recorded arrivals again, also with more replicas, with shorter drafts
    and, of a cluster's log, with other routers, and is printed with what it gains,
    what it costs, and how far its prediction was off on this very log. Where that is
    more than 30 %, there is no advice, and the exit status is 3.

        underglass advise run.jsonl.gz --goal "p99 ttft < 1s" --goal "p99 itl < 80ms"
    """
    from engine.core.config import ConfigError, EngineConfig
    from engine.core.log.log import LogError
    from visualizer.advice import GoalError, Refusal, goals_of
    from visualizer.advice import advise as advise_of
    from visualizer.advice.replays import OTHER_SETTINGS

    names = [one.strip().replace("-", "_") for one in settings.split(",")] if settings else []
    for name in names:
        if name not in (known := (*OTHER_SETTINGS, *EngineConfig.__struct_fields__)):
            fields = ", ".join(known)
            fail(f"--settings: {name} is not a setting; the settings are {fields}")
    try:
        goals = [one for text in goal for one in goals_of(text)]
        log = read_named(file)
        with progress(replays + 20, "replaying", "run") as on_replay:
            answer = advise_of(
                log, goals, settings=names, replays=replays, steps=steps, on_replay=on_replay
            )
    except GoalError as error:
        fail(f"--goal: {error}")
    except Refusal as error:
        tell(f"{file}: {error}")
        raise typer.Exit(REFUSED) from error
    except (LogError, ConfigError, ValueError) as error:
        fail(f"{file}: {error}")
    typer.echo(msgspec.json.format(msgspec.json.encode(answer)) if as_json else answer)
