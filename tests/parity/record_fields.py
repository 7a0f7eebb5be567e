"""Record which request fields vLLM and SGLang declare, and their defaults.

    python -m tests.parity.record_fields --vllm FOLDER --vllm-version 0.32.0 \\
        --sglang FOLDER --sglang-version 0.5.23

Each folder contains the package of that name, unpacked from its wheel or source distribution. The
sources are parsed, not imported, so neither engine has to be installed. Only names and defaults are
recorded. The output, `tests/fixtures/request_fields.json`, is committed: `tests/server/test_fields.py`
compares it with the server's table, and `make fields` writes it into `docs/clients.md`.
"""

import argparse
import ast
import json
from pathlib import Path
from typing import Any

RECORD = Path(__file__).parents[1] / "fixtures" / "request_fields.json"
ENDPOINTS = ("chat", "completions", "tokenize", "detokenize")
REQUIRED = "required"  # stands for the default of a field without one

_OPENAI = "vllm/entrypoints/openai"
_SGLANG = "sglang/srt/entrypoints/openai/protocol.py"
# For each server and endpoint: the file, and the classes of which a body is one.
SOURCES: dict[str, dict[str, tuple[str, list[str]]]] = {
    "vllm": {
        "chat": (f"{_OPENAI}/chat_completion/protocol.py", ["ChatCompletionRequest"]),
        "completions": (f"{_OPENAI}/completion/protocol.py", ["CompletionRequest"]),
        "tokenize": (
            "vllm/entrypoints/serve/tokenize/protocol.py",
            ["TokenizeCompletionRequest", "TokenizeChatRequest"],
        ),
        "detokenize": ("vllm/entrypoints/serve/tokenize/protocol.py", ["DetokenizeRequest"]),
        "stream_options": ("vllm/entrypoints/generate/base/protocol.py", ["StreamOptions"]),
    },
    "sglang": {
        "chat": (_SGLANG, ["ChatCompletionRequest"]),
        "completions": (_SGLANG, ["CompletionRequest"]),
        "tokenize": (_SGLANG, ["TokenizeRequest"]),
        "detokenize": (_SGLANG, ["DetokenizeRequest"]),
        "stream_options": (_SGLANG, ["StreamOptions"]),
    },
}


def record(folder: Path, server: str) -> dict[str, dict[str, Any]]:
    """Return, for each endpoint, its fields and their defaults; nested ones as `stream_options.x`."""
    found: dict[str, dict[str, Any]] = {}
    for endpoint, (file, names) in SOURCES[server].items():
        declared = classes(folder / file)
        found[endpoint] = {}
        for name in names:
            for field, default in declared[name].items():
                found[endpoint].setdefault(field, default)
    nested = {f"stream_options.{k}": value for k, value in found.pop("stream_options").items()}
    for endpoint in ("chat", "completions"):
        found[endpoint] |= nested
    return found


def classes(file: Path) -> dict[str, dict[str, Any]]:
    """Return the fields of every class in a file, those of base classes in the same file included."""
    found: dict[str, dict[str, Any]] = {}
    for statement in ast.parse(file.read_text("utf-8")).body:
        if isinstance(statement, ast.ClassDef):
            fields: dict[str, Any] = {}
            for base in statement.bases:
                fields |= found.get(ast.unparse(base), {})
            for line in statement.body:
                if isinstance(line, ast.AnnAssign) and not _is_private(line):
                    fields[ast.unparse(line.target)] = _default(line.value)
            found[statement.name] = fields
    return found


def _is_private(line: ast.AnnAssign) -> bool:
    return ast.unparse(line.target).startswith("_") or "ClassVar" in ast.unparse(line.annotation)


def _default(value: ast.expr | None) -> Any:
    """Return the default as a JSON value; that of a random id is null."""
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "Field":
        keywords = {keyword.arg: keyword.value for keyword in value.keywords}
        factory = keywords.get("default_factory")
        if factory is not None:
            return [] if ast.unparse(factory) == "list" else None
        value = value.args[0] if value.args else keywords.get("default")
    if value is None:
        return REQUIRED
    try:
        return ast.literal_eval(value)
    except ValueError:  # a constant with a name, such as the default model's
        return None


def main() -> None:
    """Write the record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for server in SOURCES:
        parser.add_argument(f"--{server}", type=Path, required=True)
        parser.add_argument(f"--{server}-version", required=True)
    args = vars(parser.parse_args())
    recorded = {
        server: {"version": args[f"{server}_version"], **record(args[server], server)}
        for server in SOURCES
    }
    RECORD.write_text(json.dumps(recorded, indent=1) + "\n", "utf-8")
    for server, endpoints in recorded.items():
        counts = {endpoint: len(endpoints[endpoint]) for endpoint in ENDPOINTS}
        print(server, endpoints["version"], counts)


if __name__ == "__main__":
    main()
