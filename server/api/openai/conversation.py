"""Conversations, for chat and /tokenize: their messages, and how they become a prompt."""

import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, model_validator

from engine.core.tokenizer import Tokenizer, encode_continuation
from engine.models.text.chat_template import ChatTemplate, ChatTemplateError
from server.api.openai.requests import FIRST_ERROR
from server.api.openai.tools import Tool, check_ordinary
from server.core.admission import characters_in, check_length
from server.core.bridge import Bridge
from server.core.settings import MAX_NAME_LENGTH, MAX_TOOLS
from server.http.errors import bad_request
from server.http.fields import Open

MAX_MESSAGES = 4096
# Names of the request's own fields, and two arguments that would change more than the template's
# variables: `chat_template` and `tokenize`. vLLM drops these two silently
# (`resolve_chat_template_kwargs` in `vllm/renderers/hf.py`).
_NOT_VARIABLES = {
    *("messages", "tools", "documents", "add_generation_prompt", "continue_final_message"),
    *("chat_template", "tokenize"),
}


class CalledFunction(Open):
    """A function that the assistant has called."""

    name: str = Field(max_length=MAX_NAME_LENGTH)
    arguments: str | dict[str, Any] | None = Field(None, description="The arguments as JSON.")


class MessageToolCall(Open):
    """A call in a message of the assistant."""

    id: str | None = Field(None, max_length=MAX_NAME_LENGTH)
    type: str = "function"
    function: CalledFunction


MessageToolCalls = Annotated[list[MessageToolCall], Field(fail_fast=True)]


class TextPart(Open):
    """A part of a message's content."""

    type: str
    text: str | None = None


class ChatMessage(Open):
    """A message. Other fields, such as `reasoning_content`, are passed to the chat template."""

    role: str = Field(max_length=MAX_NAME_LENGTH, examples=["user"])
    content: str | Annotated[list[TextPart], FIRST_ERROR] | None = Field(
        None, examples=["What is 17 + 25?"]
    )
    tool_calls: MessageToolCalls | None = Field(None, description="The assistant's calls.")


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


def template_messages(messages: list[ChatMessage]) -> list[dict[str, Any]]:
    """Return messages as the chat template expects them, with the text parts of each one joined."""
    if not messages:
        raise bad_request("messages", "messages must have at least one entry, got an empty list")
    plain = []
    for index, message in enumerate(messages):
        content = message.content
        if isinstance(content, list):
            content = "".join(_text(part, index, at) for at, part in enumerate(content))
        # Templates know only "system", the older name of "developer"; some silently drop a message
        # whose role they do not know.
        role = "system" if message.role == "developer" else message.role
        extra = {k: v for k, v in (message.model_extra or {}).items() if v is not None}
        if message.tool_calls:  # an empty list would look like a call to some templates
            extra["tool_calls"] = template_tool_calls(message.tool_calls)
        plain.append(extra | {"role": role, "content": content or ""})
    return plain


def _text(part: TextPart, message: int, index: int) -> str:
    if part.type != "text" or part.text is None:
        field = f"messages[{message}].content[{index}]"
        raise bad_request(field, f"{field} must be {{type: text, text: ...}}, got {part.type!r}")
    return part.text


def conversation_tokens(
    messages: Sequence[dict[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    options: Mapping[str, Any],
    bridge: Bridge,
    *,
    truncated: bool = False,
) -> list[int]:
    """Return a conversation's token ids. Raises RequestError if it is too long.

    tools, options  see `ChatTemplate.render`
    truncated       whether the tokens are cut afterwards
    """
    size = characters_in([*messages, *(tools or ()), options["variables"]])
    check_length([size], bridge, truncated=truncated)
    return encode_conversation(messages, bridge.tokenizer, tools, **options)


def encode_conversation(
    messages: Sequence[dict[str, Any]],
    tokenizer: Tokenizer,
    tools: Sequence[Mapping[str, Any]] | None = None,
    **options: Any,
) -> list[int]:
    """Return a conversation's token ids. A client cannot inject special tokens.

    tools, options  see `ChatTemplate.render`

    If a user's message contains "<|user_end|>", these characters are ordinary text. As a special token,
    they would end the user's turn, and the rest of the message could pass for the assistant's. The
    template therefore gets a placeholder instead of such content, and the content is inserted
    afterwards as ordinary text. The assistant's messages keep their special tokens, because the model
    generated them and the next turn finds them in the prefix cache.
    """
    template = tokenizer.chat_template
    messages = with_names(messages) if template.takes_tools else without_tool_messages(messages)
    if tools is not None and template.takes_tools:
        check_ordinary("tools", tools, tokenizer)
    check_variables(options.get("variables", {}), tokenizer)
    marker = secrets.randbits(128)  # random, so no message can contain it
    replaced: list[list[int]] = []  # each replaced content, as ids of ordinary text
    safe = []
    for message in messages:
        if message["role"] != "assistant":
            ordinary = tokenizer.encode_ordinary(message["content"])
            has_special_token = encode_continuation(message["content"], tokenizer) != ordinary
            if has_special_token:
                message = message | {"content": f"[{marker} {len(replaced)}]"}  # noqa: PLW2901
                replaced.append(ordinary)
        safe.append(message)
    text = _rendered(template, safe, tools=tools, **options)
    before, *rest = re.split(rf"\[{marker} (\d+)\]", text)
    tokens = tokenizer.encode(before)
    # A dictionary, because most of these texts repeat.
    between = {text: encode_continuation(text, tokenizer) for text in rest[1::2]}
    for index, text in zip(rest[::2], rest[1::2], strict=True):
        tokens += replaced[int(index)] + between[text]
    return tokens


def _rendered(template: ChatTemplate, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
    """Render a conversation. If the template rejects system messages, they join the user's messages."""
    try:
        return template.render(messages, **options)
    except ChatTemplateError as error:
        accepted = with_one_system_message(messages)
        if accepted == messages:
            raise
        try:
            return template.render(accepted, **options)
        except ChatTemplateError:
            raise error from None


def with_one_system_message(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with at most one system message, which is the first.

    The system messages at the beginning are joined. A later one becomes a user's message in its place
    and is joined with adjacent messages of the user, because many templates require roles to alternate.

    Differs from vLLM, which reports the template's error. OpenAI's API accepts such messages anywhere.
    """
    joined: list[dict[str, Any]] = []
    begins, after_system = True, False
    for message in messages:
        is_system = message["role"] == "system"
        begins = begins and is_system
        role = "user" if is_system and not begins else message["role"]
        if joined and joined[-1]["role"] == role and (is_system or after_system):
            joined[-1]["content"] += "\n\n" + message["content"]
        else:
            joined.append({**message, "role": role})
        after_system = is_system
    return joined


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


def template_tool_calls(calls: Iterable[MessageToolCall]) -> list[dict[str, Any]]:
    """Return calls as templates expect them, with the arguments as objects.

    Arguments that are not a JSON object become an empty object, as in vLLM (`_postprocess_messages` in
    `vllm/renderers/chat_utils.py`). An error would end the conversation because of an earlier message.
    """
    plain = []
    for call in calls:
        values = call.model_dump(exclude_none=True)
        values["type"] = call.type
        values["function"]["arguments"] = _object(call.function.arguments)
        plain.append(values)
    return plain


def _object(arguments: str | dict[str, Any] | None) -> dict[str, Any]:
    if isinstance(arguments, dict):
        return arguments
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def with_names(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages, with the name of the function added to each tool's result.

    OpenAI's clients send only the id of the call, and some templates need the name.
    """
    names: dict[str, str] = {}
    named = []
    for message in messages:
        for call in message.get("tool_calls", ()):
            names[call.get("id", "")] = call["function"]["name"]
        plain = dict(message)
        if message["role"] == "tool" and message.get("tool_call_id") in names:
            plain = {"name": names[message["tool_call_id"]]} | plain
        named.append(plain)
    return named


def without_tool_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages for a template that does not read tools.

    The assistant's calls become its content, in the form in which `tool_choice: required` makes the
    model write them. All results of a turn become one message of the user, because many templates
    require roles to alternate.
    """
    plain: list[dict[str, Any]] = []
    after_result = False
    for message in messages:
        is_result = message["role"] == "tool"
        if is_result and after_result:
            plain[-1]["content"] += "\n" + message["content"]
        elif is_result:
            plain.append({"role": "user", "content": message["content"]})
        else:
            plain.append(_with_calls_as_content(message))
        after_result = is_result
    return plain


def _with_calls_as_content(message: Mapping[str, Any]) -> dict[str, Any]:
    plain = dict(message)
    calls = [
        {"name": call["function"]["name"], "parameters": call["function"]["arguments"]}
        for call in plain.pop("tool_calls", ())
    ]
    if calls:
        plain["content"] += json.dumps(calls, ensure_ascii=False)
    return plain
