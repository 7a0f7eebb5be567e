"""`underglass serve`: its options, with their defaults and help texts.

`serving.py`, which imports FastAPI, is imported only after the options have been checked.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from engine.core.config import ConfigError, EngineConfig
from engine.core.extras import needs_extra
from server.core.settings import ServerSettings, Start
from underglass.commands.command import flag_of
from underglass.commands.environment import check_environment, option, with_flags, with_settings
from underglass.commands.options import fail, tell

_model = partial(option, "Model")
_gateway = partial(option, "Gateway")
_Struct = TypeVar("_Struct")


@with_settings("dry_run", {Start: "Model", ServerSettings: "Server", EngineConfig: "Engine"})
def serve(  # noqa: PLR0917 (one parameter per option, as Typer requires)
    ctx: typer.Context,
    model: Annotated[
        str | None,
        _model(
            "The model to serve: a Hugging Face directory, a GGUF file, owner/name on the Hugging Face "
            'Hub (owner/name:Q4_K_M for a GGUF file there), "bundled", or "auto" (see --model-dir).',
            show_default="bundled",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        _model("Print the memory that the model needs, without loading it, and exit.", "--dry-run"),
    ] = False,
    threads: Annotated[
        int, _model("CPU threads; more than one rarely helps a small model.", min=1, max=256)
    ] = 1,
    replica: Annotated[
        list[str],
        _gateway(
            "Serve no model, but route requests to the Underglass server at this URL. Repeatable. "
            "A server that cannot be reached is waited for."
        ),
    ] = [],  # noqa: B006
    replicas: Annotated[
        int | None,
        _gateway("Serve the model with N engines, each with its own server, on Ray.", min=1),
    ] = None,
    max_replicas: Annotated[
        int | None,
        _gateway("With --replicas: start up to N engines while the batches are full.", min=1),
    ] = None,
    ray: Annotated[
        str | None,
        _gateway(
            "With --replicas: the Ray cluster to join, HOST:PORT or auto.",
            show_default="start Ray on this machine",
        ),
    ] = None,
    router: Annotated[
        str,
        _gateway(
            "How a replica is chosen: random, round_robin, power_of_two, prefix_tree or prefix_events."
        ),
    ] = "prefix_events",
    roles: Annotated[
        str | None,
        _gateway(
            "Compute prompts on some replicas and continue them on others: prefill=1,decode=2 gives "
            "the prompts to the first replica. With --replica, they need the gateway's cluster key."
        ),
    ] = None,
    deadline: Annotated[
        list[str],
        _gateway(
            "How many seconds the gateway waits in a step of a request: first_token=60. Repeatable. "
            "See server/gateway/failures.py."
        ),
    ] = [],  # noqa: B006
    until_stdin_closes: Annotated[bool, typer.Option("--until-stdin-closes", hidden=True)] = False,
    train_steps: Annotated[int | None, typer.Option(hidden=True, min=1)] = None,
    **settings: Any,
) -> None:
    """Serve a model over HTTP: OpenAI's API, a teaching stream, and the engine's event log."""
    options: dict[str, Any] = locals() | settings  # every option, by name
    if message := check_environment(ctx):
        fail(message)
    _check_conflicts(ctx, options)
    if replica:
        _serve_gateway(ctx, options)
        return
    os.environ["UNDERGLASS_THREADS"] = str(threads)
    options["model"] = _model_to_serve(options)
    if dry_run:
        _print_plan(ctx, options)
        return
    if replicas is not None:
        _serve_replicas(ctx, options)
        return

    from server.serving import serve_until_stopped

    with _errors_in_one_line(ctx):
        config, server = _fill(EngineConfig, options), _settings(options, _name(options))
        serve_until_stopped(_fill(Start, options), config, server)


@contextmanager
def _errors_in_one_line(ctx: typer.Context) -> Iterator[None]:
    """Exit with a message if the block cannot start a server, or if its engine is lost."""
    from server.core.engine_client import EngineDiedError, StartError

    try:
        yield
    except ConfigError as error:
        fail(with_flags(ctx, str(error)))
    except StartError as error:
        fail(str(error))
    except EngineDiedError as error:
        tell(str(error))
        raise typer.Exit(1) from error


def _print_plan(ctx: typer.Context, options: Mapping[str, Any]) -> None:
    """Print the memory that the model and the draft model need; exit with code 2 if it does not fit."""
    from engine.models import loader

    chosen = {name: options[name] for name in ("dtype", "device", "draft_model", "draft_length")}
    try:
        plan = loader.plan(options["model"], _fill(EngineConfig, options), **chosen)
        plan.check()
        print(plan)
    except ConfigError as error:
        fail(with_flags(ctx, str(error)))
    except loader.DraftModelError as error:
        fail(f"--draft-model {options['draft_model']}: {error}")
    except ValueError as error:  # CheckpointError
        fail(f"--model {options['model']}: {error}")


def _serve_gateway(ctx: typer.Context, options: Mapping[str, Any]) -> None:
    """Serve a gateway over the servers that --replica names."""
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(parameter.name or "")
        panel = getattr(parameter, "rich_help_panel", "")
        if panel in ("Model", "Engine") and source and source.name == "COMMANDLINE":
            flag = flag_of(parameter.name or "")
            fail(
                f"{flag} cannot be used with --replica: set it on the replicas, which have the engines"
            )
    with needs_extra("--replica", extra="gateway"):
        from server.gateway.app import checked_url, serve_gateway
        from server.gateway.failures import parse_deadlines
        from server.gateway.replica_set import UrlSet
        from server.gateway.roles import parse_roles
    from server.banner import gateway_banner

    with _errors_in_one_line(ctx):
        urls = [checked_url(url) for url in options["replica"]]
        settings = _settings(options, "gateway")
        roles = parse_roles(options["roles"], len(urls))
        if roles and settings.cluster_key is None:
            fail("--roles needs the replicas' cluster key: set UNDERGLASS_CLUSTER_KEY")
        rows = [
            *((f"replica {number}", one) for number, one in enumerate(urls)),
            ("router", options["router"]),
            *([("trace file", f"{options['trace_file']}")] if options["trace_file"] else []),
        ]
        serve_gateway(
            UrlSet(urls),
            options["router"],
            settings,
            port=options["port"],
            roles=roles,
            deadlines=parse_deadlines(options["deadline"]),
            trace_file=options["trace_file"],
            request_log=options["request_log"],
            announce=lambda url: print(gateway_banner(settings, url, len(urls), rows), flush=True),
            until_stdin_closes=options["until_stdin_closes"],
        )


def _serve_replicas(ctx: typer.Context, options: Mapping[str, Any]) -> None:
    """Serve a gateway over replicas that Ray runs, with this command's options."""
    from underglass.commands.replicas import serve_replicas

    given = {
        name: value
        for name, value in ctx.params.items()
        if (source := ctx.get_parameter_source(name)) and not source.name.startswith("DEFAULT")
    }
    with _errors_in_one_line(ctx):
        config, settings = _fill(EngineConfig, options), _settings(options, _name(options))
        serve_replicas(options, given, config, settings)


# Options that cannot be used together, and why. `serve` looks at them in this order.
_CONFLICTS = (
    ("replica", "replicas", "name servers or start them, not both"),
    ("kv_events", "replicas", "each engine would need an address of its own; see --router"),
    ("model_dir", "replicas", "every engine serves one model"),
    ("lora_modules", "model_dir", "an adapter belongs to one model"),
    ("drafter", "draft_model", "omit one of them"),
    ("draft_model", "model_dir", "it fits only one vocabulary"),
    ("drafter", "async_scheduling", "drafts follow the last token"),
    ("draft_model", "async_scheduling", "drafts follow the last token"),
    ("trace_file", "model_dir", "it records only one engine"),
    ("kv_events", "model_dir", "a router expects one model per address"),
    ("dry_run", "train", "name the model that you want to check"),
    ("dry_run", "model_dir", "name the model that you want to check"),
)


def _check_conflicts(ctx: typer.Context, options: Mapping[str, Any]) -> None:
    """Exit if the options cannot be used together."""
    for name, other, reason in _CONFLICTS:
        if options[name] and options[other]:
            what = "--model auto" if other == "model_dir" else flag_of(other)
            fail(f"{flag_of(name)} cannot be used with {what}: {reason}")
    replicas, most = options["replicas"], options["max_replicas"]
    for name in ("max_replicas", "ray"):
        if replicas is None and options[name] is not None:
            fail(f"{flag_of(name)} needs --replicas N, the number of engines")
    for name in ("roles", "deadline"):
        if options[name] and replicas is None and not options["replica"]:
            fail(f"{flag_of(name)} needs --replicas N or --replica URL, the gateway's replicas")
    if replicas is not None and most is not None and most < replicas:
        fail(f"--max-replicas must be at least --replicas, which is {replicas}, got {most}")
    source = ctx.get_parameter_source("draft_length")
    has_draft = options["drafter"] or options["draft_model"]
    if not has_draft and source and source.name == "COMMANDLINE":
        fail("--draft-length needs --drafter or --draft-model: add one of them, or omit it")
    for name in ("model", "draft_model"):
        if options[name] == "":
            fail(f"{flag_of(name)} is empty: give a directory or a name, or omit the option")
    if options["kv_events"] is not None and options["trace_text"] == "off":
        fail("--kv-events publishes token ids, which --trace-text off leaves out: omit one of them")


def _settings(options: Mapping[str, Any], model_name: str) -> ServerSettings:
    """Return the server's settings. Raises ConfigError."""
    first_name = next(iter(options["served_model_name"]), model_name)
    return _fill(ServerSettings, options, model_name=first_name)


def _name(options: Mapping[str, Any]) -> str:
    """Return the model's name in `/v1/models`."""
    return Path(options["model"]).resolve().name


def _model_to_serve(options: Mapping[str, Any]) -> str:
    """Return the model's name or path; exit if the options cannot be used together."""
    model, model_dir, train = options["model"], options["model_dir"], options["train"]
    if train and model is not None:
        fail("--train and --model (UNDERGLASS_MODEL) cannot be used together: omit one of them")
    if (model == "auto") != (model_dir is not None):
        fail("--model auto and --model-dir require each other: give both or neither")
    if model_dir is not None and not model_dir.is_dir():
        fail(f"--model-dir must be a directory, got {model_dir}")
    if model == "auto":
        return "bundled"
    return str(model or ("nanogpt" if train else "bundled"))


def _fill(kind: type[_Struct], options: Mapping[str, Any], **more: Any) -> _Struct:
    """Build a struct from the options whose names match its fields."""
    names = kind.__struct_fields__  # type: ignore[attr-defined]
    return kind(**{name: options[name] for name in names if name in options} | more)
