"""`response_format` and vLLM's `structured_outputs`: the shape that the output must have.

Both are converted to the engine's `StructuredOutput`. A schema is compiled later, in a separate
process (`server/core/grammar_worker.py`), which also limits the schema's size. Errors name the client's
field.

Source: vLLM's `structured_outputs_from_response_format` (`vllm/entrypoints/generate/base/protocol.py`)
and `StructuredOutputsParams` (`vllm/sampling_params.py`). Differs from vLLM: unknown fields are
rejected instead of ignored, and so is a request with both `structured_outputs` and `response_format`.
"""

import json
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, ValidationError, model_validator

from engine.core.sampling_params import StructuredOutput
from engine.core.tokenizer import TokenizerError, checked
from engine.extensions.grammars.limits import MAX_TEXT
from server.core.settings import MAX_NAME_LENGTH
from server.http.errors import bad_request, invalid_body
from server.http.fields import Strict

# pydantic checks that a bounded string is valid Unicode.
_Text = Annotated[str, Field(max_length=MAX_TEXT)]


class Shape(NamedTuple):
    """The shape of an output, and the name of the client's field that asks for it."""

    output: StructuredOutput
    field: str


class JsonSchemaFormat(Strict):
    """A named JSON schema. It always applies strictly, whatever `strict` says."""

    name: str = Field(max_length=MAX_NAME_LENGTH)
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema", description="The schema of the output.")
    strict: bool | None = None


class ResponseFormat(Strict):
    """OpenAI's way to ask for JSON."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = Field(
        None, description="The schema; only with type json_schema."
    )

    @model_validator(mode="after")
    def _check_schema(self) -> Self:
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise bad_request(
                "response_format.json_schema",
                "response_format.json_schema needs type: json_schema, and that type needs json_schema: "
                "send both or neither",
            )
        return self

    def shape(self) -> Shape | None:
        """Return the shape; None for text."""
        if self.json_schema is not None:
            field = "response_format.json_schema.schema"
            return json_shape(self.json_schema.schema_, field)
        if self.type == "json_object":
            return Shape(StructuredOutput("json_object"), "response_format")
        return None


class StructuredOutputs(Strict):
    """vLLM's way to ask for a shape, with exactly one of the first five fields.

    The other fields choose how vLLM writes JSON. Here, JSON has no optional whitespace, and objects
    have no properties that the schema does not list, unless the schema allows them.
    """

    json_: _Text | dict[str, Any] | None = Field(
        None, alias="json", description="A JSON schema, as an object or as text."
    )
    regex: _Text | None = Field(None, description="A regular expression for the whole output.")
    choice: Annotated[list[_Text], Field(fail_fast=True)] | None = Field(
        None, min_length=1, description="Strings; the output is one of them."
    )
    grammar: _Text | None = Field(
        None, description="A grammar: EBNF, or llguidance's dialect of Lark."
    )
    json_object: bool | None = Field(None, description="true makes the output a JSON object.")
    disable_any_whitespace: bool | None = None
    disable_additional_properties: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _check_unsupported(cls, fields: Any) -> Any:
        """Raise ApiError for a field of vLLM's that is not supported here."""
        if isinstance(fields, dict):
            for name in ("structural_tag", "whitespace_pattern"):
                if fields.get(name) is not None:
                    field = f"structured_outputs.{name}"
                    raise bad_request(field, f"{field} is not supported: leave it out")
            fields = {name: value for name, value in fields.items() if value is not None}
        return fields

    def shape(self) -> Shape:
        """Return the shape. Raises ApiError unless exactly one is given."""
        kinds = {
            "json": self.json_,
            "regex": self.regex,
            "choice": self.choice,
            "grammar": self.grammar,
            "json_object": self.json_object or None,
        }
        given = [name for name, value in kinds.items() if value is not None]
        if len(given) != 1:
            raise bad_request(
                "structured_outputs",
                "structured_outputs must have exactly one of json, regex, choice, grammar and "
                f"json_object, got {' and '.join(given) or 'none'}",
            )
        field = f"structured_outputs.{given[0]}"
        if isinstance(self.json_, dict):
            return json_shape(self.json_, field)
        if self.json_ is not None:
            return Shape(StructuredOutput("json_schema", self.json_), field)
        if self.choice is not None:
            return Shape(StructuredOutput("choice", json_text(self.choice, field)), field)
        if self.regex is not None:
            return Shape(StructuredOutput("regex", self.regex), field)
        if self.grammar is not None:
            return Shape(StructuredOutput("grammar", self.grammar), field)
        return Shape(StructuredOutput("json_object"), field)


def shape_of(fields: Any) -> Shape:
    """Return the shape that a value of `structured_outputs` asks for. Raises ApiError.

    LMTP uses this function, because pydantic does not parse its frames.
    """
    try:
        return StructuredOutputs.model_validate(fields).shape()
    except ValidationError as error:
        errors = error.errors(include_url=False)
        raise invalid_body(
            [each | {"loc": ("structured_outputs", *each["loc"])} for each in errors]
        ) from error


def requested_shape(
    response_format: ResponseFormat | None, structured_outputs: StructuredOutputs | None
) -> Shape | None:
    """Return the shape that a request asks for, if any. Raises ApiError if it asks for two."""
    shape = response_format.shape() if response_format is not None else None
    if structured_outputs is None:
        return shape
    if shape is not None:
        raise bad_request(
            "structured_outputs",
            "structured_outputs cannot be combined with response_format: leave one out",
        )
    return structured_outputs.shape()


def json_shape(schema: dict[str, Any], field: str) -> Shape:
    """Return the shape of a JSON schema. Raises ApiError if it is not valid Unicode."""
    return Shape(StructuredOutput("json_schema", json_text(schema, field)), field)


def json_text(value: object, field: str) -> str:
    """Return a value of the body as JSON. Raises ApiError if it is not valid Unicode."""
    try:
        return checked(json.dumps(value, ensure_ascii=False))
    except TokenizerError as error:
        raise bad_request(field, f"{field}: {error}") from error
