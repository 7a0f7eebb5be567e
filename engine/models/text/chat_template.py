"""Chat templates: the model's own Jinja template turns a conversation into a prompt.

A model directory has its template in `chat_template.jinja` or in `tokenizer_config.json`. A template
is untrusted code, so it runs in Jinja's sandbox, where it can neither access the internals of Python
objects nor change its arguments. The environment matches that of transformers
(`transformers/utils/chat_template_utils.py`), so both render the same prompt.
"""

import importlib
import secrets
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from engine.core.extras import needs_extra

if TYPE_CHECKING:
    import jinja2


class ChatTemplateError(ValueError):
    """The model has no chat template, or the template rejects the conversation."""


class ChatTemplate:
    """A model's chat template.

    source          the Jinja source; None if the model has none
    special_tokens  names that the template may use, such as `bos_token`, and their text
    """

    def __init__(self, source: str | None, special_tokens: Mapping[str, str]) -> None:
        self.source = source
        self._special_tokens = dict(special_tokens)

    @classmethod
    def from_directory(
        cls, directory: Path, settings: Mapping[str, Any], special_tokens: Mapping[str, str]
    ) -> "ChatTemplate":
        """Read the template of a Hugging Face directory.

        `settings` is the content of its tokenizer_config.json. `chat_template.jinja` overrides it.
        """
        file = directory / "chat_template.jinja"
        if file.is_file():
            return cls(file.read_text(encoding="utf-8"), special_tokens)
        source = settings.get("chat_template")
        if isinstance(source, list):  # several named templates
            source = {entry["name"]: entry["template"] for entry in source}.get("default")
        return cls(source, special_tokens)

    @property
    def exists(self) -> bool:
        """Whether the model has a chat template."""
        return self.source is not None

    @property
    def takes_tools(self) -> bool:
        """Whether the template reads `tools`, and so can show them to the model."""
        return "tools" in self._variables

    @property
    def takes_documents(self) -> bool:
        """Whether the template reads `documents`."""
        return "documents" in self._variables

    @cached_property
    def _variables(self) -> set[str]:
        """The names that the template reads; empty without a template."""
        if self.source is None:
            return set()
        try:
            names: set[str] = _environment().variables(self.source)
        except _environment().TemplateError:  # `render` reports it
            return set()
        return names

    @cached_property
    def _template(self) -> "jinja2.Template":
        # Compiled on first use: a model with a broken template still completes text.
        if self.source is None:
            raise ChatTemplateError(
                "this model has no chat template: use plain completions, or add a "
                "chat_template.jinja to the model directory"
            )
        try:
            template: jinja2.Template = _environment().compiled(self.source)
            return template
        except _environment().TemplateError as error:
            raise ChatTemplateError(
                f"the model's chat template is not valid Jinja, correct it: {error}"
            ) from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Render a conversation as a prompt.

        messages                objects with `role`, `content` and other keys that the template reads
        add_generation_prompt   append the beginning of the assistant's turn
        continue_final_message  end after the last message's content, so that the model goes on with it
        tools                   functions that the model may call, in OpenAI's form
        variables               what else the template may read, such as `documents`

        Raises ChatTemplateError if there is no template or it rejects the messages.
        """
        if continue_final_message:
            return self._render_open(messages, tools, variables)
        template = self._template
        try:
            return template.render(
                {"documents": None}
                | self._special_tokens
                | dict(variables or {})
                | {
                    "messages": messages,
                    "add_generation_prompt": add_generation_prompt,
                    "tools": tools,
                }
            )
        except _environment().TemplateError as error:
            raise ChatTemplateError(f"the chat template rejects these messages: {error}") from error
        except (TypeError, KeyError, ValueError, AttributeError, OverflowError) as error:
            # A template may apply any Python operation to a message of an unexpected form.
            raise ChatTemplateError(
                f"the chat template cannot handle these messages: {error}"
            ) from error

    def _render_open(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        variables: Mapping[str, Any] | None,
    ) -> str:
        """Render a conversation up to the end of its last message's content.

        A tag marks that end. If the template strips spaces from the end of a message, the result has
        none there, either. As in transformers (`render_jinja_template`).
        """
        tag = f"[{secrets.token_hex(16)}]"  # random, so no message can contain it
        last = messages[-1]
        tagged = [*messages[:-1], {**last, "content": f"{last['content']}{tag} "}]
        rendered = self.render(
            tagged, add_generation_prompt=False, tools=tools, variables=variables
        )
        text, found, after = rendered.rpartition(tag)
        if not found:
            raise ChatTemplateError(
                "the chat template leaves out the last message, so continue_final_message must be false"
            )
        return text if after.startswith(" ") else text.rstrip()


def _environment() -> ModuleType:
    """Return `chat_environment.py`. It needs Jinja, and a simulation never renders a template."""
    with needs_extra("a chat template"):
        return importlib.import_module("engine.models.text.chat_environment")
