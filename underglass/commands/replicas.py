"""`underglass serve --replicas N`: from the command's options to a gateway over replicas on Ray."""

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from engine.core.config import EngineConfig
from engine.core.extras import needs_extra
from server.banner import gateway_banner
from server.core.settings import ServerSettings

# What the gateway does itself. Every other option that the user gives reaches the replicas.
_GATEWAYS = frozenset(
    "host allowed_host cors_origin trace_file replicas max_replicas ray roles router deadline".split()
)


def serve_replicas(
    options: Mapping[str, Any],
    given: Mapping[str, Any],
    config: EngineConfig,
    settings: ServerSettings,
) -> None:
    """Start the replicas, and serve the gateway until a signal stops it.

    options  all options by name, with their defaults
    given    the options that the user gave; the replicas get them, too

    Raises StartError, and ConfigError for a wrong setting.
    """
    with needs_extra("--replicas"):
        from server.gateway.ray_cluster import RayOptions, RaySet, check_installed

        check_installed()
        from server.gateway.app import serve_gateway
        from server.gateway.failures import parse_deadlines
        from server.gateway.roles import parse_roles
    if settings.cluster_key is None:
        settings = msgspec.structs.replace(settings, cluster_key=secrets.token_urlsafe(24))
    count, most, address = options["replicas"], options["max_replicas"], options["ray"]
    ray = RayOptions(
        replicas=count,
        max_replicas=most,
        address=address,
        threads=options["threads"],
        batch=config.max_batch_size,
        drain_seconds=settings.drain_seconds,
    )
    engines = RaySet(ray, replica_environment(given, settings))
    where = f"on the Ray cluster at {address}" if address else "on this machine"
    grows = f", up to {most} while batches are full" if most else ""
    rows = [("replicas", f"{count} {where}{grows}"), ("router", options["router"])]
    rows += [("trace file", f"{options['trace_file']}")] * (options["trace_file"] is not None)
    serve_gateway(
        engines,
        options["router"],
        settings,
        port=options["port"],
        roles=parse_roles(options["roles"], count),
        deadlines=parse_deadlines(options["deadline"]),
        trace_file=options["trace_file"],
        request_log=options["request_log"],
        announce=lambda url: print(gateway_banner(settings, url, count, rows), flush=True),
        until_stdin_closes=options["until_stdin_closes"],
        running=engines.running(),
    )


def replica_environment(given: Mapping[str, Any], settings: ServerSettings) -> dict[str, str]:
    """Return the replicas' options as variables: keys would be visible in a command line."""
    options = {name: value for name, value in given.items() if name not in _GATEWAYS}
    for name in ("model", "draft_model"):
        if name in options and (path := Path(options[name])).exists():
            options[name] = path.resolve()  # Ray's processes have another working directory
    options |= {
        "port": 0,
        "request_log": "off",  # the gateway writes it
        "until_stdin_closes": True,
        "cluster_key": settings.cluster_key,
    }
    texts = {
        name: " ".join(value) if isinstance(value, list | tuple) else str(value)
        for name, value in options.items()
    }
    return {f"UNDERGLASS_{name.upper()}": text for name, text in texts.items()}
