"""`underglass sweep`: raise the arrival rate until a server, or the simulator, is past saturation."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from underglass.commands.environment import option
from underglass.commands.options import Theme, check_theme, fail, tell
from underglass.commands.read_log import read_named
from underglass.commands.what_if import parsed_settings

if TYPE_CHECKING:
    from engine.core.config import EngineConfig
    from engine.core.log.log import EventLog
    from engine.simulation.capacity.curve import Sweep
    from engine.simulation.capacity.load import Load
    from engine.simulation.capacity.point import Point
    from engine.simulation.capacity.simulated import Serve
    from engine.simulation.cost_runner import Cost
    from engine.simulation.workload import Length

SIMULATOR = "simulator"
LOAD: dict[str, Any] = {
    "requests": 200,
    "seconds": 10.0,
    "prompt_tokens": "32-160",
    "output_tokens": "16-48",
    "shared_tokens": 0,
    "burstiness": 1.0,
    "trace": None,
    "shrink": 1,
    "seed": 0,
}


def _load(help: str, default: str, **limits: Any) -> Any:
    return option("The load", help, show_default=default, **limits)


def sweep(  # noqa: PLR0917 (typer needs one parameter per option)
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help='A server\'s URL: this one, vLLM, SGLang; or "simulator".'
        ),
    ] = SIMULATOR,
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SETTING=VALUE]...", help="Settings of the simulated engine."),
    ] = None,
    rates: Annotated[
        str | None,
        option(
            "Options",
            "Requests per second, separated by commas.",
            show_default="found automatically, until past saturation",
        ),
    ] = None,
    slo: Annotated[
        str, option("Options", 'Goals, such as "ttft<1s, itl<50ms"; also tpot and e2e.')
    ] = "",
    share: Annotated[
        float,
        option("Options", "The share of the requests that must meet them.", min=0.01, max=1),
    ] = 0.99,
    out: Annotated[
        Path | None, option("Options", "Write a row of JSON for each request to this file.")
    ] = None,
    against: Annotated[
        Path | None,
        option(
            "Options", "Compare with this file: the same load and rates, unless they are given."
        ),
    ] = None,
    html: Annotated[
        Path | None, option("Options", "Draw the curves on this page (needs the extra lab).")
    ] = None,
    theme: Theme = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print JSON instead of a table.", show_envvar=False),
    ] = False,
    requests: Annotated[int | None, _load("At least so many at each rate.", "200", min=1)] = None,
    seconds: Annotated[
        float | None, _load("The arrivals of a rate last at least so long.", "10", min=0)
    ] = None,
    prompt_tokens: Annotated[str | None, _load("Length of a prompt: N or A-B.", "32-160")] = None,
    output_tokens: Annotated[str | None, _load("Length of an answer: N or A-B.", "16-48")] = None,
    shared_tokens: Annotated[
        int | None, _load("Length of a prefix that all prompts share.", "0", min=0)
    ] = None,
    burstiness: Annotated[
        float | None,
        _load("1: Poisson arrivals; less: bursts (as in vLLM's benchmark).", "1", min=0.001),
    ] = None,
    trace: Annotated[
        Path | None,
        _load("Arrivals, lengths and prefixes of a recorded trace or of a log.", "none"),
    ] = None,
    shrink: Annotated[int | None, _load("Divide the trace's lengths by this.", "1", min=1)] = None,
    seed: Annotated[int | None, _load("Seed of the random numbers.", "0")] = None,
    machine: Annotated[
        str | None,
        option(
            "The target",
            "Simulate the machine and the settings of this log, file or URL of a server.",
            show_default="10 ms + 0.25 ms per token",
        ),
    ] = None,
    model: Annotated[
        str | None, option("The target", "The model's name.", show_default="the first")
    ] = None,
    api_key: Annotated[str | None, option("The target", "The server's key.")] = None,
    body: Annotated[
        str | None,
        option("The target", "JSON fields to add to each request; null removes a field."),
    ] = None,
) -> None:
    """Raise the arrival rate until the target is past saturation, and say how much it can take.

    Requests are sent at their scheduled times, whatever has been answered (an open loop), and
    latencies count from the scheduled time. Ctrl-C keeps the rates that were measured.

        underglass sweep http://localhost:8000 --slo "ttft<1s" --out one.jsonl

        underglass sweep --machine http://localhost:8000 --against one.jsonl
    """
    check_theme(theme)
    from engine.simulation.capacity.curve import Sweep, SweepError, compared
    from engine.simulation.capacity.slo import SloError
    from engine.simulation.capacity.sweep import sweep as run

    if "=" in target and "://" not in target:  # only settings: the simulator is meant
        target, settings = SIMULATOR, [target, *(settings or [])]
    try:
        first = Sweep.load(against) if against else None
        given = {
            "requests": requests, "seconds": seconds, "prompt_tokens": prompt_tokens,
            "output_tokens": output_tokens, "shared_tokens": shared_tokens, "burstiness": burstiness,
            "trace": trace and str(trace), "shrink": shrink, "seed": seed,
        }  # fmt: skip
        words = LOAD | (first.header.load if first else {})
        words |= {name: value for name, value in given.items() if value is not None}
        if rates is None and first:
            offered: list[float] | None = [point.rate for point in first.points]
        else:
            offered = None if rates is None else _rates(rates)
        found = run(
            _target(target, settings or [], machine, model, api_key, body),
            _load_of(words),
            rates=offered,
            slo=slo or (first.header.slo if first else ""),
            share=share,
            name=target,
            load_words=words,
            progress=_progress(out),
        )
        if first is not None and slo:
            first = first.with_slo(found.header.slo)
    except (SweepError, SloError, ValueError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot use {error.filename}: {error.strerror}")
    typer.echo(json.dumps(found.to_dict(), indent=2) if as_json else found)
    if first is not None:
        typer.echo(f"\n{compared(first, found)}", err=as_json)
    if html is not None:
        _draw({first.header.name: first, target: found} if first else {target: found}, html, theme)


def _rates(text: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = [0.0]
    if not all(0 < rate < float("inf") for rate in found):
        fail(f"--rates must be numbers above 0, separated by commas, got {text}")
    return found


def _target(  # noqa: PLR0917
    target: str,
    settings: list[str],
    machine: str | None,
    model: str | None,
    api_key: str | None,
    body: str | None,
) -> "Serve":
    from engine.simulation.capacity.simulated import simulated

    if target == SIMULATOR:
        for name, value in (("model", model), ("api-key", api_key), ("body", body)):
            if value is not None:
                fail(f"--{name} is for a server, but the target is the simulator")
        changes = {}
        for name, values in parsed_settings(settings).items():
            if len(values) > 1:
                fail(f"{name} must have one value, got {len(values)}")
            changes[name] = values[0]
        if machine is None:
            return simulated(_config(changes))
        config, cost = on_machine(machine, changes)
        return simulated(config, cost=cost)
    if not target.startswith(("http://", "https://")):
        fail(f'TARGET must be a URL or "{SIMULATOR}", got {target}')
    if settings or machine:
        fail(f"settings and --machine are for the simulator, but the target is {target}")
    from server.load.endpoint import endpoint

    try:
        more = json.loads(body or "{}")
    except ValueError:
        more = None
    if not isinstance(more, dict):
        fail(f"--body must be a JSON object, got {body}")
    return endpoint(target, model=model, api_key=api_key, body=more, tick=_tick)


def _config(changes: dict[str, Any]) -> Any:
    from engine.core.config import EngineConfig

    return EngineConfig(**changes)


def on_machine(name: str, changes: dict[str, Any]) -> "tuple[EngineConfig, Cost]":
    """Return a log's settings with changes, and the prices of a machine that was fitted to the log."""
    from engine.core.log.log import EventLog
    from engine.core.log.vocabulary import Keyframe, KeyframeState, RunStarted
    from engine.simulation.fit import fit, held_back
    from engine.simulation.what_if import changed_config

    log = _log_at(name) if name.startswith(("http://", "https://")) else read_named(name)
    if not isinstance(log, EventLog) or not len(log):
        fail(f"{name} must be the log of one engine")
    first = log[0]
    started = first.state if isinstance(first, Keyframe) else first  # a busy server keeps a window
    if not isinstance(started, RunStarted | KeyframeState):
        fail(f"{name} must begin with the engine's settings")
    machine = fit(log)
    tell(f"the machine of {name}: {machine}")
    if (error := held_back(log)) is not None:
        tell(str(error))
    return changed_config(started, changes), machine.cost


def _log_at(url: str) -> "EventLog":
    """Return the trace of a running server."""
    import asyncio

    from engine.core.log.log import EventLog
    from server.load.client import ask

    try:
        reply = asyncio.run(ask(url.rstrip("/").removesuffix("/v1"), "/trace"))
    except OSError as error:
        fail(f"no server answers at {url}: {error}")
    if reply.status != 200:
        fail(f"{url}/trace must be a log, got HTTP {reply.status}: is it an Underglass server?")
    return EventLog.from_bytes(reply.body)


def _load_of(words: dict[str, Any]) -> "Load":
    from engine.simulation.capacity.load import Load

    return Load(
        prompt=_length("prompt_tokens", words["prompt_tokens"]),
        output=_length("output_tokens", words["output_tokens"]),
        requests=words["requests"],
        seconds=words["seconds"],
        shared_tokens=words["shared_tokens"],
        burstiness=words["burstiness"],
        recorded=_recorded(words["trace"], words["shrink"]) if words["trace"] else None,
        seed=words["seed"],
    )


def _length(name: str, text: str) -> "Length":
    """Return a length such as "128", or uniform "32-160"."""
    from engine.simulation.workload import uniform

    least, _, most = text.partition("-")
    if not (least.isdecimal() and (most or least).isdecimal()):
        fail(f"--{name.replace('_', '-')} must be N or A-B, got {text}")
    low, high = int(least), int(most or least)
    if not 1 <= low <= high:
        fail(f"--{name.replace('_', '-')} must be from 1 up, the smaller number first, got {text}")
    return uniform(low, high)


def _recorded(name: str, shrink: int) -> Any:
    """Return the requests of a recorded trace, or of a log."""
    from engine.core.log.log import EventLog
    from engine.simulation.traces import TraceError, read_trace
    from engine.simulation.workload import Workload

    try:
        return read_trace(name, shrink=shrink).workload(max_tokens=None)
    except TraceError:
        log = read_named(name)
        if not isinstance(log, EventLog):
            fail(f"{name} must be a recorded trace or the log of one engine")
        return Workload.from_log(log, "time")


def _progress(out: Path | None) -> "Callable[[Sweep, Point], None]":
    """Return what to do after each rate: say it, and keep the rows."""

    def done(found: "Sweep", point: "Point") -> None:
        high = point.percentile("ttft", 0.99)
        waited = "no complete answer" if high is None else f"TTFT p99 {high:.4g} ms"
        saturated = ", saturated" if found.is_saturated(point) else ""
        _clear()
        tell(
            f"{point.rate:g} requests/s offered: {point.requests_per_s:.3g} answered, "
            f"{waited}{saturated}"
        )
        if out is not None:
            found.save(out)

    return done


def _tick(ended: int, count: int) -> None:
    """Show the progress of a rate on a terminal."""
    if sys.stderr.isatty():
        typer.echo(f"\runderglass: {ended} of {count} answered", nl=False, err=True)


def _clear() -> None:
    if sys.stderr.isatty():
        typer.echo("\r\x1b[K", nl=False, err=True)


def _draw(sweeps: "dict[str, Sweep]", page: Path, theme: str | None) -> None:
    from engine.core.extras import MissingExtraError

    try:
        from visualizer import figures

        drawn = figures.capacity(sweeps, theme=theme)
        page.write_text(
            '<!doctype html><meta charset="utf-8"><meta name="color-scheme" '
            f'content="{theme or "light dark"}"><title>Capacity</title>'
            + drawn.to_html(full_html=False, include_plotlyjs=True),
            encoding="utf-8",
        )
    except MissingExtraError as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot write {error.filename}: {error.strerror}")
    typer.echo(page, err=True)
