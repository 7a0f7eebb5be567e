"""Parsers for the tool calls in a model's output, one per format.

The names in `TOOL_PARSERS` are those of vLLM's `--tool-call-parser`. A format is recognised by certain
texts in its chat templates.

Source: vLLM's `vllm/tool_parsers/` and `vllm/parser/mistral.py`.
"""

import re
from collections.abc import Generator

from server.api.openai.tool_reader import SPACE, CallArguments, CallStart, Event, ToolParser

_NAME = re.compile(r"([\w.-]+)(?:\[CALL_ID\]\w*)?(?:\[ARGS\])?\s*(?=\{)")
_MAX_NAME = 256  # characters up to the first brace


class HermesParser(ToolParser):
    """Calls of Hermes and Qwen: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`."""

    begin = "<tool_call>"
    end = "</tool_call>"

    def parse(self) -> Generator[Event | None, None, None]:
        """See `ToolParser`."""
        while (opening := (yield from self.content())) is not None:
            opening += yield from self.skip()
            if (yield from self.call()):
                yield from self.skip()
                yield from self.skip_text(self.end)
            else:
                yield opening


class Llama3JsonParser(ToolParser):
    """Calls of Llama 3 and 4: `{"name": ..., "parameters": {...}}`.

    The tag `<|python_tag|>` may precede the calls, and semicolons separate them. Without the tag, calls
    are read only at the beginning of the output, because JSON in the middle of a text may be anything;
    vLLM's streams follow the same rule. Differs from vLLM, which finds calls anywhere in an output that
    is not streamed.
    """

    begin = "<|python_tag|>"

    def parse(self) -> Generator[Event | None, None, None]:
        """See `ToolParser`."""
        opening: str | None = yield from self.skip()
        while opening is not None:
            if not (yield from self.calls(SPACE + ";,")):
                yield opening
            opening = yield from self.content()
            if opening is not None:
                opening += yield from self.skip()


class MistralParser(ToolParser):
    """Calls of Mistral's models after `[TOOL_CALLS]`, in either of two forms.

        [TOOL_CALLS][{"name": "add", "arguments": {"a": 3}}, ...]     tokenizers up to version 7
        [TOOL_CALLS]add[ARGS]{"a": 3}[TOOL_CALLS]...                  tokenizers from version 11 on

    In the second form, `[ARGS]` may be missing, and `[CALL_ID]` and an id may come before it.
    """

    begin = "[TOOL_CALLS]"

    def parse(self) -> Generator[Event | None, None, None]:
        """See `ToolParser`."""
        while (opening := (yield from self.content())) is not None:
            opening += yield from self.skip()
            if not ((yield from self.call_list()) or (yield from self._named())):
                yield opening

    def _named(self) -> Generator[Event | None, None, bool]:
        while not (name := _NAME.match(self.buffer[:_MAX_NAME])):
            head = self.buffer[:_MAX_NAME]
            if self.ended or "{" in head or len(head) == _MAX_NAME:
                return False
            yield None
        yield CallStart(name[1])
        self.take(name.end())
        yield from self.arguments()
        return True


class RequiredParser(ToolParser):
    """A list of `{"name": ..., "parameters": {...}}`, which a grammar forces: `tool_choice` "required".

    Such an output has no tags around the calls. If max_tokens cuts it off before the first call is
    announced, the response has neither calls nor content.
    """

    def parse(self) -> Generator[Event | None, None, None]:
        """See `ToolParser`."""
        yield from self.skip()
        yield from self.call_list()


class NamedParser(ToolParser):
    """The arguments of the function `name`, which a grammar forces: `tool_choice` names it."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def parse(self) -> Generator[Event | None, None, None]:
        """See `ToolParser`."""
        while not (self.buffer or self.ended):
            yield None
        if self.buffer:
            yield CallStart(self._name)
        while True:
            if self.buffer:
                yield CallArguments(self.take(len(self.buffer)))
            if self.ended:
                return
            yield None


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
