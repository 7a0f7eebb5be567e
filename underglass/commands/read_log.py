"""Read the log that a command names: a file, standard input or a scenario."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from underglass.commands.options import fail, tell

if TYPE_CHECKING:
    from engine.cluster.cluster_log import ClusterLog
    from engine.core.log import EventLog
    from visualizer.scenario import Scenario


def read_named(
    name: str, last: int | None = None, *, text: bool = True, whole: bool = False
) -> "EventLog | ClusterLog":
    """Return the log of a file, of standard input (-) or of a scenario, or exit with a message.

    With `whole`, every event is checked against the events before it.
    """
    from engine.core.log import EventLog, LogError
    from visualizer.reading.without_text import log_without_text
    from visualizer.sources import read_source

    try:
        if (scenario := named_scenario(name)) is not None:
            log: EventLog | ClusterLog = scenario.log
        else:
            with _opened(name) as file:
                log = read_source(
                    file,
                    last,
                    tell=lambda note: tell(f"{name} is long: {note}. Show all with --last 0"),
                )
        if whole and isinstance(log, EventLog):
            log.state()
    except OSError as error:
        fail(f"cannot read {name}: {error.strerror or error}")
    except LogError as error:
        fail(f"{'standard input' if name == '-' else name}: {error}")
    return log if text else log_without_text(log)


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    """Open a file or standard input. On a terminal, a bar shows the progress of a long read."""
    if name == "-":
        yield sys.stdin.buffer
        return
    path = Path(name)
    size = path.stat().st_size
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        with path.open("rb") as file:
            yield file
        return
    with (
        path.open("rb") as file,
        tqdm.wrapattr(
            file,
            "read",
            total=size,
            desc=f"reading {path.name}",
            delay=1,
            leave=False,
            disable=None,
        ) as shown,
    ):
        yield shown


def named_scenario(name: str) -> "Scenario | None":
    """Return the scenario of this name, or None. Exit with a message if the name is nearly one."""
    from visualizer.scenario import UnknownScenarioError, find_scenario

    try:
        return None if name == "-" else find_scenario(name)
    except UnknownScenarioError as error:
        fail(str(error))
