"""`underglass what-if`: replay a log's arrivals with other settings, and say how far to trust it.

It needs no server packages: only the simulator and what reads a log.
"""

import json
import re
import tempfile
import webbrowser
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from underglass.commands.environment import option
from underglass.commands.options import KINDS, fail
from underglass.commands.read_log import read_named

if TYPE_CHECKING:
    from engine.simulation.study import Study


def what_if(  # noqa: PLR0917 (typer needs one parameter per option)
    file: Annotated[str, typer.Argument(metavar="FILE", help=KINDS)],
    settings: Annotated[
        list[str],
        typer.Argument(
            metavar="SETTING=VALUE...",
            help="What to change. Several values, separated by commas, make a sweep.",
        ),
    ],
    html: Annotated[
        Path | None, option("Options", "Write the comparison to this HTML file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    opens: Annotated[
        bool, typer.Option("--open", help="Open the comparison in the browser.")
    ] = False,
    arrivals: Annotated[
        str,
        option(
            "Options",
            '"time": requests arrive at the recorded times; "step": before the recorded steps.',
        ),
    ] = "time",
) -> None:
    """Replay a log's arrivals with other settings on a machine that was fitted to the log.

    The table shows the recorded run, its replay with unchanged settings, and the changed
    replays. The error on held-back steps stands beside every number.

        underglass what-if run.jsonl token_budget=32,64,128 --html out.html
    """
    from engine.core.config import ConfigError
    from engine.core.log.log import EventLog, LogError
    from engine.simulation.study import study

    if arrivals not in ("time", "step"):
        fail(f"--arrivals must be time or step, got {arrivals}")
    log = read_named(file)
    if not isinstance(log, EventLog):
        fail(f"{file} must be the log of one engine; it is the log of a cluster")
    try:
        answer = study(log, parsed_settings(settings), pinned=arrivals)
    except (LogError, ValueError) as error:
        text = str(error)
        fail(text if isinstance(error, ConfigError) else f"{file}: {text}")
    if as_json:
        typer.echo(json.dumps(answer.to_dict(), indent=2))
    else:
        typer.echo(answer)
    if html or opens:
        page = html or Path(tempfile.mkdtemp(prefix="underglass-")) / "what_if.html"
        _write_page(answer, page)
        typer.echo(page, err=as_json)
        if opens:
            webbrowser.open(page.resolve().as_uri())


def parsed_settings(settings: list[str]) -> dict[str, list[Any]]:
    """Return {name: values} from words such as "token_budget=32,64". Raises ConfigError."""
    from engine.core.config import ConfigError, EngineConfig

    fields = EngineConfig.__struct_fields__
    parsed: dict[str, list[Any]] = {}
    for word in settings:
        name, equals, values = word.partition("=")
        name = name.strip().replace("-", "_")
        if name not in fields:
            for engine, setting in _with_flag(name):
                raise ConfigError(f"{name} is a flag of {engine}; the setting is {setting}")
            similar = get_close_matches(name, fields, n=1)
            meant = f" (did you mean {similar[0]}?)" if similar else ""
            raise ConfigError(
                f"{name} is not a setting{meant}; the settings are {', '.join(fields)}"
            )
        if not equals or not all(values.split(",")):
            raise ConfigError(f"{name} needs a value: {name}=VALUE, or {name}=VALUE,VALUE")
        if name in parsed:
            raise ConfigError(f"{name} is given twice: separate several values with commas")
        parsed[name] = [_value(text.strip()) for text in values.split(",")]
    return parsed


def _with_flag(name: str) -> Iterator[tuple[str, str]]:
    """Yield the engines that have a flag of this name, with the setting that does the same here."""
    from engine.core.config import EngineConfig
    from engine.core.declared import settings_of

    for engine in ("vLLM", "SGLang"):
        for setting in settings_of(EngineConfig):
            flags = re.findall(r"--([a-z-]+)", str(setting.extra.get(engine.lower())))
            if name.replace("_", "-") in flags:
                yield engine, setting.name


def _value(text: str) -> Any:
    switches = {"on": True, "true": True, "off": False, "false": False}
    if text.lower() in switches:
        return switches[text.lower()]
    return int(text) if text.removeprefix("-").isdecimal() else text


def _write_page(answer: "Study", page: Path) -> None:
    from visualizer.comparing.compared_runs import ComparedRuns

    words, run = next(iter(answer.changed.items()))
    comparison = ComparedRuns(
        answer.replayed,
        run,
        ("replayed", words),
        study={"table": answer.table(), "statements": answer.statements()},
    )
    try:
        comparison.to_html(page)
    except OSError as error:
        fail(f"cannot write {error.filename}: {error.strerror}")
