"""`underglass bench`: judge scheduling policies on the arrivals of recorded traces."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from underglass.commands.environment import option
from underglass.commands.options import Theme, check_theme, fail
from underglass.commands.read_log import read_named
from underglass.commands.sweep import on_machine
from underglass.commands.what_if import parsed_settings

if TYPE_CHECKING:
    from engine.simulation.bench import Bench, Candidate
    from engine.simulation.traces import Trace


def bench(  # noqa: PLR0917 (typer needs one parameter per option)
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="CANDIDATE... [SETTING=VALUE]...",
            help="Policies by name, file.py:Class or module:Class; +SETTING=VALUE gives one a setting "
            "of its own (fcfs+watermark=0.05). The first is what the others are compared with. "
            "Settings for all stand alone.",
        ),
    ],
    trace: Annotated[
        list[str] | None,
        option(
            "The load",
            "azure_code, azure_conv, mooncake, a file (Azure, BurstGPT, Mooncake, Qwen-Bailian, your "
            "own CSV) or a log. Repeat it for several.",
            show_default="azure_conv",
        ),
    ] = None,
    loads: Annotated[
        str,
        option("The load", "Shares of what the machine can take, separated by commas."),
    ] = "0.7,1,1.3",
    windows: Annotated[int, option("The load", "Parts of a trace: the sample.", min=2)] = 10,
    requests: Annotated[int, option("The load", "Requests in a window.", min=2)] = 100,
    shrink: Annotated[int, option("The load", "Divide all lengths by this.", min=1)] = 1,
    max_tokens: Annotated[
        str,
        option("The load", 'What clients ask for; "answer": exactly what they will get.'),
    ] = "2048",
    slo: Annotated[
        str, option("Options", "What a request must meet to count in the goodput.")
    ] = "ttft<10s, itl<500ms",
    machine: Annotated[
        str | None,
        option(
            "Options",
            "Simulate the machine and the settings of this log, file or URL of a server.",
            show_default="Llama 3.1 8B on an A10",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        option(
            "Options",
            "Write a page with the table and a window of the first two, on one board, at the moment "
            "when they part.",
        ),
    ] = None,
    theme: Theme = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Judge scheduling policies on the arrivals of recorded traces, before one becomes a patch.

    Each trace is cut into windows. In a window all candidates get the same requests at the same
    times, and a difference counts if the 95% interval of the paired differences leaves out 0.

        underglass bench fcfs lcf cost_aware --trace azure_conv --trace mooncake
        underglass bench fcfs mine.py:Mine max_kv_tokens=16384
    """
    check_theme(theme)
    from engine.simulation.bench import Target, gpu
    from engine.simulation.bench import bench as run

    try:
        settings = _settings([word for word in words if _is_setting(word)])
        candidates = [_candidate(word) for word in words if not _is_setting(word)]
        if not candidates:
            fail("CANDIDATE is missing: name policies, such as fcfs lcf")
        if machine is None:
            target = gpu(**settings)
        else:
            config, cost = on_machine(machine, settings)
            target = Target(f"the machine of {machine}", config, lambda: cost)
        traces = [_trace(name, shrink) for name in trace or ["azure_conv"]]
        judged = run(
            candidates,
            traces,
            loads=_numbers(loads),
            windows=windows,
            requests=requests,
            slo=slo,
            target=target,
            max_tokens=_max_tokens(max_tokens),
            progress=_progress,
        )
    except ValueError as error:  # also a ConfigError, a SloError or a TraceError
        fail(str(error))
    finally:
        _clear()
    typer.echo(json.dumps(judged.to_dict(), indent=2) if as_json else judged)
    if html is not None:
        if len(candidates) < 2:
            fail("--html needs two candidates")
        _write_page(judged, candidates, traces[0], _max_tokens(max_tokens), html, theme)
        typer.echo(html, err=as_json)


def _is_setting(word: str) -> bool:
    return "=" in word and "+" not in word


def _settings(words: list[str]) -> dict[str, Any]:
    """Return settings with one value each."""
    found = {}
    for name, values in parsed_settings(words).items():
        if len(values) > 1:
            fail(f"{name} must have one value, got {len(values)}")
        found[name] = values[0]
    return found


def _candidate(word: str) -> "Candidate":
    from engine.simulation.bench import candidate

    policy, *settings = word.split("+")
    return candidate(policy, _settings(settings))


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        fail(f"--loads must be numbers above 0, separated by commas, got {text}")


def _max_tokens(text: str) -> int | None:
    if text == "answer":
        return None
    if not text.isdecimal() or not int(text):
        fail(f'--max-tokens must be a number of at least 1, or "answer", got {text}')
    return int(text)


def _trace(name: str, shrink: int) -> "Trace":
    """Return a recorded trace, or the requests of a log."""
    from engine.core.log.log import EventLog
    from engine.simulation.traces import BUILT_IN, UnknownTraceError, read_trace, trace_of

    if name not in BUILT_IN and not Path(name).is_file():
        fail(f"--trace must be a file or one of {', '.join(BUILT_IN)}, got {name}")
    try:
        return read_trace(name, shrink=shrink)
    except UnknownTraceError as error:
        if ".csv" in Path(name).suffixes:
            fail(str(error))
    log = read_named(name)
    if not isinstance(log, EventLog):
        fail(f"{name} must be a recorded trace or the log of one engine")
    return trace_of(log, Path(name).name)


def _progress(ended: int, runs: int, words: str) -> None:
    """Show a bar on a terminal."""
    if sys.stderr.isatty():
        done = 24 * ended // runs
        bar = f"{'#' * done}{'.' * (24 - done)} {ended} of {runs} runs, {words}"
        typer.echo(f"\r\x1b[K{bar}", nl=False, err=True)


def _clear() -> None:
    if sys.stderr.isatty():
        typer.echo("\r\x1b[K", nl=False, err=True)


def _write_page(  # noqa: PLR0917
    judged: "Bench",
    candidates: "list[Candidate]",
    trace: "Trace",
    max_tokens: int | None,
    page: Path,
    theme: str | None,
) -> None:
    """Write the first trace's last table, with the window in which the first two differ most."""
    from engine.simulation.bench import parting
    from visualizer.comparing.compared_runs import ComparedRuns

    cell = [cell for cell in judged.cells if cell.trace == trace.name][-1]
    first, second = parting(judged, cell, trace, candidates[:2], max_tokens)
    names = candidates[0].name, candidates[1].name
    told = {
        "title": judged.title(cell),
        "table": judged.table(cell),
        "statements": [*judged.verdicts(cell), *judged.statements()],
    }
    try:
        ComparedRuns(first, second, names, study=told).to_html(page, theme=theme)
    except OSError as error:
        fail(f"cannot write {error.filename}: {error.strerror}")
