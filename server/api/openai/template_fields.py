"""The fields besides the messages that determine a conversation's prompt, for chat and /tokenize."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, model_validator

from engine.core.tokenizer import Tokenizer
from server.api.openai.requests import FIRST_ERROR
from server.api.openai.tools import Tool, check_ordinary
from server.core.settings import MAX_TOOLS
from server.http.errors import bad_request

# Names of the request's own fields, and two arguments that would change more than the template's
# variables: `chat_template` and `tokenize`. vLLM drops these two silently
# (`resolve_chat_template_kwargs` in `vllm/renderers/hf.py`).
_NOT_VARIABLES = {
    *("messages", "tools", "documents", "add_generation_prompt", "continue_final_message"),
    *("chat_template", "tokenize"),
}


class TemplateFields(BaseModel):
    """The fields that the chat template reads, and how the prompt ends."""

    add_generation_prompt: bool | None = Field(
        None,
        description="End the prompt with the beginning of the assistant's turn. The default is true, "
        "but false with continue_final_message.",
    )
    continue_final_message: bool | None = Field(
        None, description="Leave the last message open, so that the output continues its text."
    )
    tools: Annotated[list[Tool], FIRST_ERROR] | None = Field(
        None, max_length=MAX_TOOLS, description="Functions that the model may call."
    )
    documents: Annotated[list[dict[str, Any]], FIRST_ERROR] | None = Field(
        None,
        description="Documents for the chat template; rejected if the template does not read them. The "
        "bundled model's template does not.",
    )
    chat_template_kwargs: dict[str, Any] | None = Field(
        None,
        description="Variables of the chat template, such as enable_thinking. A variable that the "
        "template does not read has no effect.",
    )

    @model_validator(mode="after")
    def _check_template_fields(self) -> Self:
        if self.continue_final_message and self.add_generation_prompt:
            raise bad_request(
                "continue_final_message",
                "continue_final_message and add_generation_prompt must not both be true: the first "
                "continues the last message, the second begins a new one",
            )
        for name in sorted(_NOT_VARIABLES & set(self.chat_template_kwargs or ())):
            field = f"chat_template_kwargs.{name}"
            raise bad_request(
                field, f"{field} is not a variable of the template: use the request's own fields"
            )
        return self

    @property
    def begins_turn(self) -> bool:
        """Whether the prompt ends with the beginning of the assistant's turn."""
        if self.add_generation_prompt is None:
            return not self.continue_final_message
        return self.add_generation_prompt

    def template_options(self) -> dict[str, Any]:
        """Return the arguments of `ChatTemplate.render`, except messages and tools."""
        variables = dict(self.chat_template_kwargs or {})
        if self.documents:
            variables["documents"] = self.documents
        return {
            "add_generation_prompt": self.begins_turn,
            "continue_final_message": bool(self.continue_final_message),
            "variables": variables,
        }


def check_variables(variables: Mapping[str, Any], tokenizer: Tokenizer) -> None:
    """Raise ApiError for documents that the template does not read, and for special tokens.

    A special token in a variable could end a turn. Differs from vLLM, where a template that does not
    read `documents` drops them silently.
    """
    if "documents" in variables and not tokenizer.chat_template.takes_documents:
        raise bad_request(
            "documents",
            "documents are not read by this model's chat template: put their text into a message",
        )
    for name, value in variables.items():
        field = name if name == "documents" else f"chat_template_kwargs.{name}"
        check_ordinary(field, value, tokenizer)
