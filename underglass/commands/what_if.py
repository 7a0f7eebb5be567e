"""`underglass what-if`: replay a log's arrivals with other settings, and say how far to trust it.

It needs no server packages: only the simulator and what reads a log.
"""

import json
import re
import tempfile
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from underglass.commands.environment import option
from underglass.commands.options import KINDS, fail, refuse
from underglass.commands.read_log import read_named

if TYPE_CHECKING:
    from engine.cluster.cluster_log import ClusterLog
    from engine.simulation.study import Study
    from visualizer.comparing.cluster_study import ClusterStudy


def what_if(  # noqa: PLR0917 (typer needs one parameter per option)
    file: Annotated[str, typer.Argument(metavar="FILE", help=KINDS)],
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SETTING=VALUE...",
            help="What to change. Several values, separated by commas, make a sweep. draft_length is "
            "how many drafts a row has at most; 0 switches speculative decoding off.",
            show_default=False,
        ),
    ] = None,
    replicas: Annotated[
        str | None,
        option("Of a cluster's log", "How many replicas; several numbers, separated by commas."),
    ] = None,
    router: Annotated[
        str | None,
        option(
            "Of a cluster's log", "How a replica is chosen; several names, separated by commas."
        ),
    ] = None,
    roles: Annotated[
        str | None,
        option(
            "Of a cluster's log",
            "How many replicas compute prompts and how many continue them: prefill=1,decode=2.",
        ),
    ] = None,
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
    steps: Annotated[
        str | None,
        option(
            "Options",
            "Replay these steps only: FIRST-LAST.",
            show_default="all of a short log, the last ones of a long one",
        ),
    ] = None,
) -> None:
    """Replay a log's arrivals with other settings on a machine that was fitted to the log.

    The log of a cluster is replayed on several machines, with other replicas or routers. Of a long
    log, a part is replayed, which begins with the requests and the cached prefixes of that moment.

    The table shows the recorded run, its replay with unchanged settings, and the changed
    replays. The error on held-back steps stands beside every number.

        underglass what-if run.jsonl token_budget=32,64,128 --html out.html
        underglass what-if cluster.jsonl --replicas 2,3 --router prefix_tree
    """
    from engine.core.config import ConfigError
    from engine.core.log.log import EventLog, LogError
    from engine.simulation.study import study
    from visualizer.indexed.part import replayed_part

    if arrivals not in ("time", "step"):
        fail(f"--arrivals must be time or step, got {arrivals}")
    chosen = re.fullmatch(r"(\d+)-(\d+)", steps or "1-1")
    if chosen is None:
        fail(f"--steps must look like 2000-4000, got {steps}")
    if not settings and not (replicas or router or roles):
        fail("SETTING=VALUE... is missing: name what to change, such as token_budget=32")
    log = read_named(file)
    try:
        changes = parsed_settings(settings or [])
        if not isinstance(log, EventLog):
            if arrivals == "step":
                fail("--arrivals must be time: the replicas of a cluster share no steps")
            refuse({"steps": steps}, "must be omitted: the replicas of a cluster share no steps")
            answer: Study | ClusterStudy = _of_cluster(log, changes, replicas, router, roles)
        elif replicas or router or roles:
            fail(f"--replicas, --router and --roles need a cluster's log; {file} is of one engine")
        else:
            part = replayed_part(log, *(map(int, chosen.groups()) if steps else ()))
            with _bar() as told:
                answer = study(part, changes, pinned=arrivals, told=told)
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


@contextmanager
def _bar() -> Iterator[Callable[[int], None]]:
    """Show how many replays are done, on a terminal; yield a function that gets how many are left."""
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        yield lambda _left: None
        return
    with tqdm(desc="replaying", unit=" replays", delay=1, leave=False, disable=None) as bar:

        def told(left: int) -> None:
            bar.total = bar.n + 2 + left  # the last one finds how many decisions are reproduced
            bar.update()

        yield told


def _of_cluster(
    log: "ClusterLog",
    settings: dict[str, list[Any]],
    replicas: str | None,
    router: str | None,
    roles: str | None,
) -> "ClusterStudy":
    """Replay a cluster's log with every combination of the changes. Raises ConfigError, ValueError."""
    from engine.core.config import ConfigError
    from engine.simulation.study import MAX_RUNS
    from visualizer.comparing.cluster_study import ClusterChange, study_cluster
    from visualizer.indexed.part import replayed_cluster

    if replicas and roles:
        fail("--replicas and --roles both say how many replicas there are: omit one of them")
    counts = replicas.split(",") if replicas else []
    if not all(one.isdecimal() and int(one) for one in counts):
        fail(f"--replicas must be whole numbers of at least 1, got {replicas}")
    sizes = re.fullmatch(r"prefill=([1-9]\d*),decode=([1-9]\d*)", roles or "prefill=1,decode=1")
    if sizes is None:
        fail(f"--roles must look like prefill=1,decode=2, got {roles}")
    changes = [
        ClusterChange(
            replicas=int(number) if number else None,
            router=name or None,
            roles=(int(sizes[1]), int(sizes[2])) if roles else None,
            settings=dict(zip(settings, values, strict=True)),
        )
        for number, name, values in product(
            counts or [""], (router or "").split(","), [*product(*settings.values())]
        )
    ]
    if len(changes) > MAX_RUNS:
        raise ConfigError(
            f"a sweep has 1 to {MAX_RUNS} runs, and these changes give {len(changes)}"
        )
    return study_cluster(replayed_cluster(log), changes)


def parsed_settings(settings: list[str]) -> dict[str, list[Any]]:
    """Return {name: values} from words such as "token_budget=32,64". Raises ConfigError."""
    from engine.core.config import ConfigError, EngineConfig

    fields = (*EngineConfig.__struct_fields__, "draft_length")
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
    for number in (int, float):
        with suppress(ValueError):
            return number(text)
    return text


def _write_page(answer: "Study | ClusterStudy", page: Path) -> None:
    from engine.simulation.study import Study
    from visualizer.comparing.compared import Compared
    from visualizer.comparing.compared_clusters import ComparedClusters
    from visualizer.comparing.compared_runs import ComparedRuns

    names = "replayed", answer.changed[0]
    if isinstance(answer, Study):
        told = {"table": answer.table(), "statements": answer.statements()}
        comparison: Compared = ComparedRuns(answer.replayed, answer.first, names, study=told)
    else:
        assert answer.first is not None, "there is a change"
        comparison = ComparedClusters(answer.replayed, answer.first, names)
    try:
        comparison.to_html(page)
    except OSError as error:
        fail(f"cannot write {error.filename}: {error.strerror}")
