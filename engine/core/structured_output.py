"""The format of a request's output, as a JSON schema, a regular expression or a grammar.

The names follow vLLM's `StructuredOutputsParams` (`vllm/sampling_params.py`).
"""

from typing import Literal, get_args

import msgspec

Kind = Literal["json_schema", "json_object", "regex", "choice", "grammar"]


class StructuredOutput(msgspec.Struct, frozen=True):
    """The format that every output of a request must match.

    kind  "json_schema", "json_object" (any JSON object), "regex", "choice" (one of several texts) or
          "grammar" (EBNF, or llguidance's dialect of Lark)
    text  the schema or the list of choices as JSON, the expression or the grammar; "" for json_object
    """

    kind: Kind
    text: str = ""

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"kind must be one of {', '.join(get_args(Kind))}, got {self.kind!r}")
        if not isinstance(self.text, str):
            raise ValueError(f"text must be a string, got {self.text!r}")
