"""`underglass serve`: its options, with their defaults and help texts.

`serving.py`, which imports FastAPI, is imported only after the options have been checked.
"""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from engine.core.config import ConfigError, EngineConfig
from engine.core.extras import needs_extra
from server.core.settings import DRAFTERS, LARGEST_COUNT, ServerSettings
from underglass.commands.environment import check_environment, option, with_flags
from underglass.commands.options import fail

_ENGINE = EngineConfig()
_SERVER = ServerSettings()
_DAY = 86_400  # the longest time to set, in seconds; timers need a finite limit

_model = partial(option, "Model")
_server = partial(option, "Server")
_engine = partial(option, "Engine")
_log = partial(option, "Event log")
_gateway = partial(option, "Gateway")
_Struct = TypeVar("_Struct")


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
    model_dir: Annotated[
        Path | None,
        _model(
            "With --model auto: a directory of model directories and GGUF files; each model is loaded "
            "when a request names it."
        ),
    ] = None,
    max_models: Annotated[
        int,
        _model("With --model auto: how many of these models can be loaded at once.", min=1),
    ] = 2,
    served_model_name: Annotated[
        list[str],
        _model(
            "The name of the model in the API; requests for another name get 404. Repeatable: answers "
            "show the first name.",
            show_default="the model's own name, and requests may use any",
        ),
    ] = [],  # noqa: B006 (Typer copies it)
    drafter: Annotated[
        str | None,
        _model(
            "Guess the next tokens, and verify them in one forward pass: prompt-lookup finds them in "
            "the text so far.",
            show_default="none",
        ),
    ] = None,
    draft_model: Annotated[
        str | None,
        _model(
            "Let a smaller model with the same vocabulary guess: a directory, a GGUF file or "
            "owner/name.",
            show_default="none",
        ),
    ] = None,
    draft_length: Annotated[
        int, _model("With --drafter or --draft-model: how many tokens to guess per step.", min=1)
    ] = 4,
    train: Annotated[
        bool,
        _model(
            "Train a small NanoGPT on stories first (about ten seconds) and serve it.", "--train"
        ),
    ] = False,
    dtype: Annotated[
        str,
        _model(
            "Precision of weights, KV and computation: auto, float32, bfloat16 or float16. auto is the "
            "checkpoint's own where the device computes it natively, otherwise float32.",
        ),
    ] = "auto",
    device: Annotated[
        str,
        _model(
            "Where the model computes: cpu, cuda or mps. Only cpu could be tested.",
        ),
    ] = "cpu",
    dry_run: Annotated[
        bool,
        _model("Print the memory that the model needs, without loading it, and exit.", "--dry-run"),
    ] = False,
    threads: Annotated[
        int, _model("CPU threads; more than one rarely helps a small model.", min=1, max=256)
    ] = 1,
    host: Annotated[
        str, _server("Address to listen on; 0.0.0.0 accepts connections from other machines.")
    ] = "127.0.0.1",
    port: Annotated[
        int, _server("Port to listen on; 0 picks a free one.", min=0, max=65535)
    ] = 8000,
    api_key: Annotated[
        str | None,
        _server("Require this key on all routes except /health, /ready and the pages."),
    ] = _SERVER.api_key,
    cluster_key: Annotated[
        str | None,
        _server(
            "Accept controls only from the gateway that has this key; on a gateway, the key it sends. "
            "Better set as UNDERGLASS_CLUSTER_KEY."
        ),
    ] = _SERVER.cluster_key,
    allowed_host: Annotated[
        list[str], _server("Additional Host name to accept; others get 403. Repeatable.")
    ] = [],  # noqa: B006 (Typer copies it)
    cors_origin: Annotated[
        list[str],
        _server(
            "A site whose pages may use the API, such as https://example.org; * allows all. Repeatable."
        ),
    ] = [],  # noqa: B006
    max_waiting: Annotated[
        int, _server("Maximum number of waiting requests; beyond it, new ones get 429.", min=1)
    ] = _SERVER.max_waiting,
    max_waiting_tokens: Annotated[
        int, _server("The same limit in tokens, counting prompts and their maximum outputs.", min=1)
    ] = _SERVER.max_waiting_tokens,
    chat_max_tokens: Annotated[
        int, _server("max_tokens for chat requests that do not set it.", min=1)
    ] = _SERVER.chat_max_tokens,
    tool_call_parser: Annotated[
        str | None,
        _server(
            "How the model writes tool calls: hermes, llama3_json, llama4_json or mistral.",
            show_default="recognised by the chat template",
        ),
    ] = _SERVER.tool_call_parser,
    drain_seconds: Annotated[
        float,
        _server(
            "Seconds that running requests have to finish after SIGTERM or Ctrl-C.", min=0, max=_DAY
        ),
    ] = _SERVER.drain_seconds,
    stuck_seconds: Annotated[
        float,
        _server("Seconds that a step may take; after that, all requests fail.", min=0, max=_DAY),
    ] = _SERVER.stuck_seconds,
    paused: Annotated[
        bool,
        _engine("Start with the engine paused: requests wait until it is resumed.", "--paused"),
    ] = False,
    token_budget: Annotated[
        int, _engine("Maximum number of tokens computed in one step, over all requests.")
    ] = _ENGINE.token_budget,
    max_batch_size: Annotated[
        int, _engine("Maximum number of running requests.")
    ] = _ENGINE.max_batch_size,
    max_kv_tokens: Annotated[
        int, _engine("Size of the KV cache, in token slots.")
    ] = _ENGINE.max_kv_tokens,
    block_size: Annotated[int, _engine("Token slots per KV block.")] = _ENGINE.block_size,
    policy: Annotated[
        str, _engine("Order of the queue: fcfs, priority, sjf, lpm or fair.")
    ] = _ENGINE.policy,
    batching: Annotated[
        str,
        _engine("continuous, or static: a batch runs until its last request has finished."),
    ] = _ENGINE.batching,
    chunked_prefill: Annotated[
        bool, _engine("Split a prompt that exceeds the token budget of a step.")
    ] = _ENGINE.chunked_prefill,
    admission: Annotated[
        str,
        _engine("whole: admit a request if all its tokens fit; first_chunk: if its first ones do."),
    ] = _ENGINE.admission,
    prefix_cache: Annotated[
        str,
        _engine("Reuse the KV blocks of shared prompt prefixes: radix, hash or off."),
    ] = str(_ENGINE.prefix_cache),
    eviction: Annotated[
        str, _engine("Which cached blocks are evicted first: lru or lfu.")
    ] = _ENGINE.eviction,
    preemption: Annotated[
        bool,
        _engine(
            "Preempt requests when KV memory runs out; otherwise reserve each request's maximum."
        ),
    ] = _ENGINE.preemption,
    async_scheduling: Annotated[
        bool, _engine("Schedule a step while the one before is computed, so that neither waits.")
    ] = _ENGINE.async_scheduling,
    jump_forward: Annotated[
        bool, _engine("Append the tokens that a grammar forces without sampling them.")
    ] = _ENGINE.jump_forward,
    log_window: Annotated[
        int,
        _log(
            "Number of recent events kept for /trace and live viewers.",
            min=100,
            max=LARGEST_COUNT,
        ),
    ] = _SERVER.log_window,
    trace_text: Annotated[
        str,
        _log(
            "on, or off: leave names and texts out of the event log, the page and the request log."
        ),
    ] = _SERVER.trace_text,
    trace_file: Annotated[
        Path | None,
        _log(
            "Write the whole event log to this file; an existing file is replaced. After a restart of "
            "the engine, the new run is logged to a new file: after run.jsonl come run-2.jsonl, "
            "run-3.jsonl, ..."
        ),
    ] = None,
    kv_events: Annotated[
        str | None,
        _log(
            "Publish the prefix cache's changes as vLLM's KV events, for routers: a port, or "
            "tcp://ADDRESS:PORT; replays are on the next port. Subscribers see all token ids and "
            "need no key."
        ),
    ] = None,
    kv_events_topic: Annotated[
        str, _log("Topic of the KV events; subscribers filter by its beginning.")
    ] = "",
    request_log: Annotated[
        str,
        _log("Where to log one line per request: stderr, off, or a file to append to."),
    ] = "stderr",
    one_process: Annotated[
        bool,
        _server(
            "Run the engine in the server's own process, to read and debug it; slower under load.",
            "--one-process",
        ),
    ] = False,
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
    until_stdin_closes: Annotated[bool, typer.Option("--until-stdin-closes", hidden=True)] = False,
    train_steps: Annotated[int | None, typer.Option(hidden=True, min=1)] = None,
) -> None:
    """Serve a model over HTTP: OpenAI's API, a teaching stream, and the engine's event log."""
    options = locals()  # every option, by name
    if message := check_environment(ctx):
        fail(message)
    _check_replicas(options)
    if replica:
        return _serve_gateway(ctx, options)
    os.environ["UNDERGLASS_THREADS"] = str(threads)
    _check_drafter(ctx, options)
    options["model"] = _model_to_serve(model, model_dir, trace_file, train=train)
    _check_kv_events(kv_events, model_dir, trace_text)
    if dry_run:
        return _print_plan(ctx, options)
    if replicas is not None:
        return _serve_replicas(ctx, options)

    from server.core.engine_client import EngineDiedError, StartError
    from server.serving import Start, serve_until_stopped

    try:
        settings = _settings(options, _name(options))
        serve_until_stopped(_fill(Start, options), _fill(EngineConfig, options), settings)
    except ConfigError as error:
        fail(with_flags(ctx, str(error)))
    except StartError as error:
        fail(str(error))
    except EngineDiedError as error:
        typer.echo(f"underglass: {error}", err=True)
        raise typer.Exit(1) from error


def _print_plan(ctx: typer.Context, options: Mapping[str, Any]) -> None:
    """Print the memory that the model and the draft model need; exit with code 2 if it does not fit."""
    if options["train"] or options["model_dir"] is not None:
        other = "--train" if options["train"] else "--model auto"
        fail(f"--dry-run cannot be used with {other}: name the model that you want to check")
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
            flag = f"--{(parameter.name or '').replace('_', '-')}"
            fail(
                f"{flag} cannot be used with --replica: set it on the replicas, which have the engines"
            )
    with needs_extra("--replica"):
        from server.gateway.replica_set import ReplicaSet, UrlSet, WithRoles
        from server.gateway.roles import parse_roles
        from server.gateway.run import checked_url, serve_gateway
    from server.banner import gateway_banner
    from server.core.engine_client import StartError

    try:
        urls, settings = (
            [checked_url(url) for url in options["replica"]],
            _settings(options, "gateway"),
        )
        replicas: ReplicaSet = UrlSet(urls)
        if options["roles"] is not None:
            replicas = WithRoles(replicas, parse_roles(options["roles"], len(urls)))
            if settings.cluster_key is None:
                fail("--roles needs the replicas' cluster key: set UNDERGLASS_CLUSTER_KEY")
        rows = [
            *((f"replica {number}", one) for number, one in enumerate(urls)),
            ("router", options["router"]),
        ]
        serve_gateway(
            replicas,
            options["router"],
            settings,
            port=options["port"],
            request_log=options["request_log"],
            announce=lambda url: print(gateway_banner(settings, url, len(urls), rows), flush=True),
            until_stdin_closes=options["until_stdin_closes"],
        )
    except (ConfigError, ValueError) as error:
        fail(with_flags(ctx, str(error)))
    except StartError as error:
        fail(str(error))


def _serve_replicas(ctx: typer.Context, options: Mapping[str, Any]) -> None:
    """Serve a gateway over replicas that Ray runs, with this command's options."""
    from server.core.engine_client import StartError
    from underglass.commands.replicas import serve_replicas

    given = {
        name: value
        for name, value in ctx.params.items()
        if (source := ctx.get_parameter_source(name)) and not source.name.startswith("DEFAULT")
    }
    try:
        config, settings = _fill(EngineConfig, options), _settings(options, _name(options))
        serve_replicas(options, given, config, settings)
    except (ConfigError, ValueError) as error:
        fail(with_flags(ctx, str(error)))
    except StartError as error:
        fail(str(error))


def _check_replicas(options: Mapping[str, Any]) -> None:
    """Exit if the options of replicas cannot be used together with the others."""
    replicas, most = options["replicas"], options["max_replicas"]
    if replicas is None:
        for name in ("max_replicas", "ray"):
            if options[name] is not None:
                fail(f"--{name.replace('_', '-')} needs --replicas N, the number of engines")
        if options["roles"] is not None and not options["replica"]:
            fail("--roles needs --replicas N or --replica URL: the replicas that get the roles")
        return
    if most is not None and most < replicas:
        fail(f"--max-replicas must be at least --replicas, which is {replicas}, got {most}")
    reasons = {
        "replica": "it starts no engines; name servers or start them, not both",
        "trace_file": "it records one engine; /trace returns the log of all",
        "kv_events": "each engine would need an address of its own; see --router",
        "model_dir": "every engine serves one model",
    }
    for name, reason in reasons.items():
        if options[name]:
            fail(f"--{name.replace('_', '-')} cannot be used with --replicas: {reason}")


def _settings(options: Mapping[str, Any], model_name: str) -> ServerSettings:
    """Return the server's settings. Raises ConfigError."""
    served_names = tuple(options["served_model_name"])
    return _fill(
        ServerSettings,
        options,
        model_name=served_names[0] if served_names else model_name,
        served_names=served_names,
        allowed_hosts=tuple(options["allowed_host"]),
        cors_origins=tuple(options["cors_origin"]),
    )


def _name(options: Mapping[str, Any]) -> str:
    """Return the model's name in `/v1/models`."""
    return Path(options["model"]).resolve().name


def _model_to_serve(
    model: str | None, model_dir: Path | None, trace_file: Path | None, *, train: bool
) -> str:
    """Return the model's name or path; exit if the options cannot be used together."""
    if train and model is not None:
        fail("--train and --model (UNDERGLASS_MODEL) cannot be used together: omit one of them")
    if model == "":
        fail("--model is empty: give a model's directory or name, or omit the option")
    if (model == "auto") != (model_dir is not None):
        fail("--model auto and --model-dir require each other: give both or neither")
    if model_dir is not None and not model_dir.is_dir():
        fail(f"--model-dir must be a directory, got {model_dir}")
    if model_dir is not None and trace_file is not None:
        fail("--trace-file cannot be used with --model auto: it records only one engine")
    if model == "auto":
        return "bundled"
    return model or ("nanogpt" if train else "bundled")


def _check_drafter(ctx: typer.Context, options: Mapping[str, Any]) -> None:
    """Exit if the options about drafts cannot be used together with each other or the others."""
    drafter, model = options["drafter"], options["draft_model"]
    if drafter not in (None, *DRAFTERS):
        fail(f"--drafter must be {' or '.join(DRAFTERS)}, got {drafter!r}")
    if drafter is not None and model is not None:
        fail("--drafter and --draft-model cannot be used together: omit one of them")
    if model == "":
        fail("--draft-model is empty: give a model's directory or name, or omit the option")
    if model is not None and options["model_dir"] is not None:
        fail("--draft-model cannot be used with --model auto: it fits only one vocabulary")
    source = ctx.get_parameter_source("draft_length")
    if not (drafter or model) and source and source.name == "COMMANDLINE":
        fail("--draft-length needs --drafter or --draft-model: add one of them, or omit it")
    if (drafter or model) and options["async_scheduling"]:
        flag = "--draft-model" if model else "--drafter"
        fail(f"{flag} cannot be used with --async-scheduling: drafts follow the last token")


def _check_kv_events(kv_events: str | None, model_dir: Path | None, trace_text: str) -> None:
    """Exit if KV events cannot be used together with the other options."""
    if kv_events is not None and model_dir is not None:
        fail("--kv-events cannot be used with --model auto: a router expects one model per address")
    if kv_events is not None and trace_text == "off":
        fail("--kv-events publishes token ids, which --trace-text off leaves out: omit one of them")


def _fill(kind: type[_Struct], options: Mapping[str, Any], **more: Any) -> _Struct:
    """Build a struct from the options whose names match its fields."""
    names = kind.__struct_fields__  # type: ignore[attr-defined]
    return kind(**{name: options[name] for name in names if name in options} | more)
