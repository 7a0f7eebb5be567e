"""Write the table of request fields into `docs/clients.md`: `make fields`.

What vLLM and SGLang declare is recorded in `tests/fixtures/request_fields.json`
(`recorders/fixtures/record_fields.py`). The server's bodies declare what works here, and the rest is in
`server/api/openai/fields.py`. The table is made of these, so it cannot differ from them.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from recorders.fixtures.record_fields import RECORD
from server.api.models import DetokenizeRequest, TokenizeRequest
from server.api.openai.chat import ChatRequest
from server.api.openai.completions import CompletionRequest
from server.api.openai.fields import UNSUPPORTED
from server.api.openai.requests import StreamOptions

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
BEGIN, END = "<!-- `make fields` writes what follows -->\n", "<!-- end of what it writes -->\n"

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
    record: dict[str, dict[str, Any]] = json.loads(RECORD.read_text("utf-8"))
    return record


def supported(endpoint: str) -> set[str]:
    """Return the fields that work at an endpoint; nested ones as `stream_options.x`."""
    fields = set(BODIES[endpoint].model_fields)
    if "stream_options" in fields:
        fields |= {f"stream_options.{name}" for name in StreamOptions.model_fields}
    return fields


def page() -> str:
    """Return the page as it should be: the text as it is, and a new table."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    return before + BEGIN + "\n".join(_tables()) + "\n" + END + rest.partition(END)[2]


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


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
