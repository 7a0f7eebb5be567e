"""Parsers for the tool calls in a model's output, one per format.

The names are those of vLLM's `--tool-call-parser`. A format is recognised by certain texts in
its chat templates.
"""

from server.api.openai.tool_parsers.hermes import HermesParser
from server.api.openai.tool_parsers.llama3_json import Llama3JsonParser
from server.api.openai.tool_parsers.mistral import MistralParser
from server.api.openai.tool_parsers.reader import ToolParser

TOOL_PARSERS: dict[str, type[ToolParser]] = {
    "hermes": HermesParser,
    "llama3_json": Llama3JsonParser,
    "llama4_json": Llama3JsonParser,
    "mistral": MistralParser,
}

# Texts that every chat template of the format contains.
_SIGNS = {
    "hermes": ("<tool_call>", "arguments"),
    "mistral": ("[TOOL_CALLS]",),
    "llama3_json": ("<|start_header_id|>", '"parameters": '),
    "llama4_json": ("<|header_start|>", '"parameters": '),
}
# Texts of formats that use the same tags but write XML between them: Qwen3-Coder, GLM 4.5.
_OTHERS = ("<function=", "<arg_key>")


def find_parser(template: str) -> str | None:
    """Return the name of the parser for models with this chat template, or None."""
    if any(other in template for other in _OTHERS):
        return None
    for name, signs in _SIGNS.items():
        if all(sign in template for sign in signs):
            return name
    return None
