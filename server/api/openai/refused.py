"""The rule for fields that are not supported: refused by name, never ignored.

A client that asked for `tools` must not get an answer that knows of none. Only a field's neutral value,
which asks for nothing, passes; `null` always means absent.
"""

from collections.abc import Mapping
from typing import Any

from server.http.errors import bad_request, unknown_field

# Known fields of OpenAI's API that are not supported (some in one of the endpoints only), and the
# values that ask for nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "best_of": (1,),
    "echo": (False,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "metadata": ({},),
    "modalities": (["text"],),
    "moderation": (),
    "parallel_tool_calls": (True, False),
    "prediction": (),
    "prompt_cache_key": (),
    "prompt_cache_options": (),
    "prompt_cache_retention": ("in_memory",),
    "reasoning_effort": ("none",),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "stream_options.continuous_usage_stats": (False,),  # vLLM's
    "stream_options.include_obfuscation": (False,),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "verbosity": ("medium",),
    "web_search_options": (),
}


def check_extra(fields: Mapping[str, Any]) -> None:
    """Raise ApiError for a field that is unknown or cannot be honoured."""
    for name, value in fields.items():
        if value is None:
            continue
        if name not in _NEUTRAL:
            raise unknown_field(name)
        if not any(_same(value, neutral) for neutral in _NEUTRAL[name]):
            raise bad_request(name, f"{name} is not supported here: leave it out")


def _same(value: object, neutral: object) -> bool:
    """Equality in which 0 is not false and 1 is not true."""
    return value == neutral and isinstance(value, bool) == isinstance(neutral, bool)
