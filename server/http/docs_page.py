"""`/docs`: every route and what it takes, drawn here from the OpenAPI document (`/openapi.json`).

FastAPI's own page loads Swagger's program from another server, and is blank where there is no network.
This one is HTML and nothing else: it works offline, prints, and reads aloud.
"""

import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, Response

_POLICY = "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}: every route</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/page/docs.css">
<main>
<h1>{title}</h1>
{description}
<p><a href="/">The live page</a> shows it at work;
<a href="/openapi.json">/openapi.json</a> is this page for programs.</p>
{body}
</main>
</html>
"""

Schema = Mapping[str, Any]


def install(app: FastAPI) -> None:
    """Serve the page. The app must have been made with `docs_url=None`."""

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        headers = {"Content-Security-Policy": _POLICY}
        return HTMLResponse(render(app.openapi()), headers=headers)


def render(document: Schema) -> str:
    """An OpenAPI document as a page."""
    info = document["info"]
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            tag = operation.get("tags", ["Other"])[0]
            by_tag.setdefault(tag, []).append(_operation(method.upper(), path, operation))
    body = [f"<h2>{escape(tag)}</h2>{''.join(parts)}" for tag, parts in by_tag.items()]
    body.append(_errors(document))
    shapes = document.get("components", {}).get("schemas", {})
    body.append("<h2>Shapes</h2>")
    body += [_shape(name, schema) for name, schema in shapes.items()]
    return _PAGE.format(
        title=escape(info["title"]),
        description="".join(_paragraphs(info.get("description", ""))),
        body="\n".join(body),
    )


def _operation(method: str, path: str, operation: Schema) -> str:
    parts = [f"<h3><code>{method} {escape(path)}</code></h3>"]
    parts += _paragraphs(operation.get("description", ""))
    headers = [
        (one["name"], one.get("required", False), one["schema"] | _description(one))
        for one in operation.get("parameters", [])
    ]
    if headers:
        parts.append(_table("Headers and parameters", headers))
    content = operation.get("requestBody", {}).get("content", {})
    parts += [f"<p>Body: {_type(media['schema'])}, as JSON.</p>" for media in content.values()]
    if operation.get("security"):
        parts.append("<p>Needs the key: <code>Authorization: Bearer KEY</code>.</p>")
    answers = operation.get("responses", {})
    parts += [_answer(answers[status]) for status in answers if status.startswith("2")]
    return f"<section>{''.join(parts)}</section>"


def _answer(answer: Schema) -> str:
    contents = answer.get("content", {})
    kinds = [
        f"{_type(media['schema']) if 'schema' in media else 'events'}, as <code>{escape(kind)}</code>"
        for kind, media in contents.items()
    ]
    words = answer["description"]
    told = "" if words == "Successful Response" else f"<p>{_words(words)}</p>"
    shown = "".join(_examples(media) for media in contents.values())
    return f"<p>Answer: {'; or '.join(kinds)}.</p>{told}{shown}"


def _examples(media: Schema) -> str:
    given = [one["value"] for one in media.get("examples", {}).values()]
    given += [media["example"]] if "example" in media else []
    texts = [one if isinstance(one, str) else json.dumps(one, indent=1) for one in given]
    return "".join(f'<pre tabindex="0">{escape(text.strip())}</pre>' for text in texts)


def _errors(document: Schema) -> str:
    """How requests are refused: the same on every route, so it is told once."""
    some_route: Schema = next(iter(document["paths"].values()), {})
    operation: Schema = next(iter(some_route.values()), {})
    answers: Schema = operation.get("responses", {})
    told = [
        f"<h3>{escape(status)}</h3><p>{_words(answer['description'])}</p>"
        f"{''.join(_examples(media) for media in answer.get('content', {}).values())}"
        for status, answer in answers.items()
        if status in ("4XX", "5XX")
    ]
    return f"<h2>Errors</h2>{''.join(told)}" if told else ""


def _shape(name: str, schema: Schema) -> str:
    required = schema.get("required", [])
    rows = [
        (field, field in required, kind) for field, kind in schema.get("properties", {}).items()
    ]
    parts = [f'<section id="{escape(name)}"><h3>{escape(name)}</h3>']
    parts += _paragraphs(schema.get("description", ""))
    parts.append(_table(name, rows) if rows else f"<p>{_type(schema)}</p>")
    return "".join(parts) + "</section>"


def _table(caption: str, rows: list[tuple[str, bool, Schema]]) -> str:
    lines = [
        f"<tr><th scope=row><code>{escape(name)}</code></th>"
        f"<td>{_type(schema)}{_default(schema, required)}</td>"
        f"<td>{_words(schema.get('description', ''))}</td></tr>"
        for name, required, schema in rows
    ]
    head = "<tr><th scope=col>name</th><th scope=col>what</th><th scope=col>meaning</th></tr>"
    return f"<table><caption>{escape(caption)}</caption>{head}{''.join(lines)}</table>"


def _default(schema: Schema, required: bool) -> str:
    if required:
        return ", required"
    default = schema.get("default")
    return "" if default is None else f", default <code>{escape(str(default))}</code>"


def _type(schema: Schema) -> str:
    """What a value may be, in words; shapes are links."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(_type(one) for one in choices if one != {"type": "null"}))
    if values := schema.get("enum") or ([schema["const"]] if "const" in schema else []):
        return " or ".join(f"<code>{escape(str(value))}</code>" for value in values)
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    limits = [
        f"{words} {schema[name]}"
        for name, words in (
            ("minimum", "at least"),
            ("exclusiveMinimum", "more than"),
            ("maximum", "at most"),
            ("exclusiveMaximum", "less than"),
        )
        if name in schema
    ]
    return escape(", ".join([kind, *limits]))


def _paragraphs(text: str) -> Iterator[str]:
    return (f"<p>{_words(part)}</p>" for part in text.split("\n\n") if part.strip())


def _words(text: str) -> str:
    """Text with what stands between backticks as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def _description(parameter: Schema) -> Schema:
    return {"description": parameter.get("description", "")}
