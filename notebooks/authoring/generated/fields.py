"""The tables of request fields in docs/clients.md.

What vLLM and SGLang declare is recorded in `tests/fixtures/request_fields.json`
(`recorders/fixtures/record_fields.py`). The server's bodies declare what works here, and the rest is in
`server/api/openai/fields.py`. The table is made of these, so it cannot differ from them.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from server.api.models import DetokenizeRequest, TokenizeRequest
from server.api.openai.chat import ChatRequest
from server.api.openai.completions import CompletionRequest
from server.api.openai.fields import UNSUPPORTED
from server.api.openai.requests import StreamOptions

RECORD = Path(__file__).parents[3] / "tests" / "fixtures" / "request_fields.json"

BODIES: dict[str, type[BaseModel]] = {
    "chat": ChatRequest,
    "completions": CompletionRequest,
    "tokenize": TokenizeRequest,
    "detokenize": DetokenizeRequest,
}
SERVERS = {"vllm": "vLLM", "sglang": "SGLang"}
TABLES = {
    "Chat completions and completions": ("chat", "completions"),
    "`/tokenize` and `/detokenize`": ("tokenize", "detokenize"),
}

CONDITIONS = {
    "documents": "works with a chat template that reads it, otherwise rejected; the bundled model's "
    "does not"
}


def recorded() -> dict[str, dict[str, Any]]:
    """Return the fields that vLLM and SGLang declare, by endpoint."""
    record: dict[str, dict[str, Any]] = json.loads(RECORD.read_text("utf-8"))
    return record


def supported(endpoint: str) -> set[str]:
    """Return the fields that work at an endpoint; nested ones as `stream_options.x`."""
    fields = set(BODIES[endpoint].model_fields)
    if "stream_options" in fields:
        fields |= {f"stream_options.{name}" for name in StreamOptions.model_fields}
    return fields


def render() -> str:
    """Return the tables."""
    return "\n".join(_tables()) + "\n"


def _tables() -> Iterator[str]:
    record = recorded()
    heads = [f"{title} {record[server]['version']}" for server, title in SERVERS.items()]
    for title, endpoints in TABLES.items():
        yield f"\n### {title}\n"
        yield f"| field | {' | '.join(heads)} | Underglass |\n|---|---|---|---|"
        declared = {
            server: {one: set(record[server][one]) for one in endpoints} for server in SERVERS
        }
        ours = {one: supported(one) for one in endpoints}
        names = set().union(*(fields for one in declared.values() for fields in one.values()))
        names |= set().union(*ours.values())
        if "chat" in endpoints:
            names |= set(UNSUPPORTED)
        for name in sorted(names):
            cells = [_where(name, fields) for fields in declared.values()]
            yield f"| `{name}` | {' | '.join(cells)} | {_treatment(name, ours, declared)} |"


def _where(name: str, fields: dict[str, set[str]]) -> str:
    """Return the endpoints that declare a field; "yes" if all of a table do."""
    having = [endpoint for endpoint, names in fields.items() if name in names]
    return "yes" if len(having) == len(fields) else ", ".join(having)


def _treatment(
    name: str, ours: dict[str, set[str]], declared: dict[str, dict[str, set[str]]]
) -> str:
    """Return what this server does with a field."""
    works = [endpoint for endpoint, names in ours.items() if name in names]
    other = [
        endpoint
        for endpoint in ours
        if endpoint not in works and any(name in fields[endpoint] for fields in declared.values())
    ]
    if not works:
        return _unsupported(name)
    if not other:
        return CONDITIONS.get(name, "works")
    return f"works in {', '.join(works)}; {', '.join(other)}: {_unsupported(name)}"


def _unsupported(name: str) -> str:
    field = UNSUPPORTED[name]
    if field.hint:
        return "any value, without effect"
    values = " or ".join(f"`{json.dumps(value)}`" for value in field.neutral)
    if set(map(str, field.neutral)) == {"True", "False"}:
        return f"{values}, without effect"
    instead = field.instead.removeprefix("leave it out").removeprefix(": ")
    instead = instead and f": {instead}"
    return f"only {values}{instead}" if values else f"rejected{instead}"
