"""What `underglass serve` prints when it is ready: a command to paste, addresses, settings."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from engine.core.config import EngineConfig
from engine.models.byte_sizes import byte_size
from server.core.adapters import ALLOWED, may_be_updated
from server.core.addresses import network_addresses
from server.core.settings import ServerSettings
from server.http.access import is_loopback

if TYPE_CHECKING:
    from server.core.event_log import KVSource
    from server.core.settings import Start

_Row = tuple[str, str]

_CURL = """\
  curl -N {url}/v1/completions -H 'Content-Type: application/json'{key} \\
       -d '{{"prompt": "Once upon a time", "max_tokens": 50}}'
"""


def banner(
    settings: ServerSettings,
    url: str,
    config: EngineConfig,
    start: "Start",
    kv_source: "KVSource | None" = None,
    *,
    model: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """Return the text.

    url    the server's address on this machine
    model  what the log's first event says about the model
    """
    rows = [*_addresses(settings, url, start), *_model(model), *_settings(config, start)]
    if kv_source is not None:
        replay = kv_source.replay_endpoint
        rows.append(("KV events", f"{kv_source.endpoint}, replay {replay}"))
    return _text(settings.model_name, settings, url, rows, kv_source)


def gateway_banner(settings: ServerSettings, url: str, replicas: int, rows: Sequence[_Row]) -> str:
    """Return the text of a gateway. `rows` name its replicas and its router."""
    rows = [
        ("live page", f"{url}/"),
        ("all routes", f"{url}/docs"),
        ("status", f"{url}/health, for Prometheus {url}/metrics"),
        ("cluster log", f"{url}/trace"),
        *rows,
    ]
    return _text(f"{replicas} replica{'s' * (replicas != 1)}", settings, url, rows)


def _text(
    what: str,
    settings: ServerSettings,
    url: str,
    rows: Sequence[_Row],
    kv_source: "KVSource | None" = None,
) -> str:
    header = shlex.quote(f"Authorization: Bearer {settings.api_key}")
    parts = [
        f"Underglass serves {what} at {url}\n",
        _CURL.format(url=url, key=f" -H {header}" if settings.api_key else ""),
        "".join(f"  {name:<18} {text}\n" for name, text in rows),
        "".join(_warnings(settings, kv_source)),
    ]
    return "\n".join(part for part in parts if part)


def _addresses(settings: ServerSettings, url: str, start: "Start") -> Iterator[_Row]:
    """Yield what clients and browsers open."""
    asks = " (asks for the key)" if settings.api_key else ""
    yield "live page", f"{url}/{asks}"
    port = int(url.rpartition(":")[2])
    for one in network_addresses(settings.host):
        interface = f" ({one.interface})" if one.interface else ""
        yield "on other machines", f"{one.url(port)}{interface}"
    yield "all routes", f"{url}/docs"
    yield "OpenAI clients", f"base_url is {url}/v1"
    yield "LMQL clients", f"{url.replace('http://', 'ws://', 1)}/ (LMTP)"
    yield "status", f"{url}/health, for Prometheus {url}/metrics"
    yield "event log", f"{url}/trace"
    if start.model_dir is not None:
        yield "more models", f"{url}/v1/models lists those in {start.model_dir}"


def _model(model: Mapping[str, Any]) -> Iterator[_Row]:
    """Yield the model's precision, device and memory."""
    if "weight_bytes" not in model:  # the model only simulates
        return
    weights = byte_size(model["weight_bytes"])
    kv = byte_size(model["kv_bytes"])
    yield "model", f"{model['dtype']} on {model['device']}, weights {weights}, KV memory {kv}"
    if model["device"] != "cpu":
        yield "", f"only cpu could be tested: what {model['device']} computes has not been checked"


def _settings(config: EngineConfig, start: "Start") -> Iterator[_Row]:
    """Yield the settings that explain most surprises, and the places of the logs."""
    memory = f"{config.max_kv_tokens} KV slots in {config.num_blocks} blocks"
    limits = f"{config.max_batch_size} requests and {config.token_budget} tokens per step"
    yield "engine", f"{memory}, {limits}"
    yield "", f"policy {config.policy}, prefix cache {config.prefix_cache}"
    if drafter := start.draft_model or start.drafter:
        kind = "draft model" if start.draft_model else "drafter"
        yield "", f"{kind} {drafter}, up to {start.draft_length} tokens per step"
    if start.paused:
        yield "", "paused: requests wait until the live page resumes it"
    yield "request log", "off" if start.request_log == "off" else f"to {start.request_log}"
    if start.trace_file is not None:
        yield "trace file", f"{start.trace_file}"


def _warnings(settings: ServerSettings, kv_source: "KVSource | None") -> Iterator[str]:
    """Yield sentences about keys, and about what other machines can do."""
    if settings.api_key is not None:
        yield (
            "Every request needs the key in the header Authorization, except for the pages, /docs, "
            "/health, /ready and /ping.\n"
        )
    elif not is_loopback(settings.host):
        yield "Any machine that can reach this one can use the model; --api-key requires a key.\n"
    if may_be_updated():
        yield f"Clients can load adapters from directories of this machine: {ALLOWED} is set.\n"
    if kv_source is not None and not kv_source.is_local:
        yield (
            "Any machine that can reach this one can subscribe to the KV events without a key; they "
            "have all token ids and cache salts.\n"
        )
